"""`penstock inspect` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.running import Cli

import penstock as ps
from penstock.formats.tfrecord import frame


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    elements = [{"label": number, "text": f"\x1b[31m{number}"} for number in range(6)]
    ps.pack(ps.from_source(elements), tmp_path / "out", num_shards=2, executor="threads")
    return tmp_path / "out"


def test_what_is_there_is_shown_and_verified(cli: Cli, packed: Path) -> None:
    told = cli("inspect", packed, "--verify", "--samples=1")
    assert (told.code, told.err) == (0, "")
    for words in (
        "records 6 in 2 files",
        "records 3",
        "at least",
        "field label: int64",
        "sample 0 label = int64[1] [0]",
        "verified: names, sizes and SHA-256 of all files",
        "verified: both CRCs of 3 records",
        "Nothing wrong was found",
    ):
        assert words in told.text
    assert "sample 1" not in told.text


def test_nothing_that_a_terminal_acts_on_is_printed(cli: Cli, packed: Path) -> None:
    odd = packed / "\x1b[2J.tfrecord"
    odd.write_bytes(frame(b"\x1b[2J"))
    for path, words in ((packed, r"'\x1b[31m0'"), (odd, r"\x1b[2J.tfrecord")):
        out = cli("inspect", path).out
        assert words in out
        assert "\x1b" not in out


def test_one_file_is_one_file(cli: Cli, tmp_path: Path) -> None:
    ps.pack(ps.from_source(range(3)), tmp_path, num_shards=1, executor="threads")
    told = cli("inspect", tmp_path)
    assert "3 in 1 file " in told.text + " "
    assert "1 files" not in told.out


def test_what_is_wrong_is_said_and_is_the_exit_status(cli: Cli, packed: Path) -> None:
    path = packed / "data-00000-of-00002.tfrecord"
    path.write_bytes(path.read_bytes()[:-3])
    told = cli("inspect", packed, "--verify")
    assert told.code == 1
    for words in ("WRONG 'data-00000-of-00002.tfrecord' has", "2 records were found, and the manifest says 3", "things are wrong"):
        assert words in told.text
    assert cli("inspect", packed).code == 1


def test_a_file_without_a_count_says_so(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(frame(b"x"))
    told = cli("inspect", tmp_path / "a", "--verify")
    assert told.code == 0
    assert "no count to check against" in told.text


def test_what_cannot_be_done_is_an_error(cli: Cli, packed: Path) -> None:
    assert "does not exist" in cli("inspect", packed / "missing").err
