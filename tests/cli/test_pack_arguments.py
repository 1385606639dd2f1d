"""Arguments of `penstock pack` and `penstock inspect`."""

from __future__ import annotations

import argparse

import pytest

from penstock.cli.command import _add_inspect, _add_pack


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    _add_pack(parser)
    return parser.parse_args(["a", "b", *arguments])


@pytest.mark.parametrize(
    ("text", "size"), [("256MB", 256_000_000), ("1.5 GB", 1_500_000_000), ("1GiB", 1 << 30), ("10", 10), ("2kb", 2000)]
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert parsed("--shard-bytes", text).shard_bytes == size


@pytest.mark.parametrize("text", ["", "MB", "0", "3 apples", "-1MB", "1e999MB"])
def test_what_is_no_size_is_refused(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit):
        parsed(f"--shard-bytes={text}")
    assert f"{text!r} is not a size, such as 256MB" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "two", "-1"])
def test_workers_are_a_number_or_auto(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert parsed("--num-workers=auto").num_workers == "auto"
    assert parsed("--num-workers=3").num_workers == 3
    with pytest.raises(SystemExit):
        parsed(f"--num-workers={text}")
    assert 'is neither "auto" nor a whole number >= 1' in capsys.readouterr().err


def test_inspect_has_arguments_too() -> None:
    parser = argparse.ArgumentParser()
    _add_inspect(parser)
    found = parser.parse_args(["x", "--verify", "--samples=1"])
    assert (found.path, found.verify, found.samples) == ("x", True, 1)
