"""`penstock inspect` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.cli import main
from penstock.formats.tfrecord import frame


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    elements = [{"label": number, "text": f"\x1b[31m{number}"} for number in range(6)]
    ps.pack(ps.from_source(elements), tmp_path / "out", num_shards=2, executor="threads")
    return tmp_path / "out"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["inspect", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_what_is_there_is_shown_and_verified(capsys: pytest.CaptureFixture[str], packed: Path) -> None:
    code, out, err = run(capsys, str(packed), "--verify", "--samples=1")
    assert (code, err) == (0, "")
    text = " ".join(out.split())
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
        assert words in text
    assert "sample 1" not in text


def test_nothing_that_a_terminal_acts_on_is_printed(capsys: pytest.CaptureFixture[str], packed: Path) -> None:
    _, out, _ = run(capsys, str(packed))
    assert r"'\x1b[31m0'" in out
    assert "\x1b" not in out
    odd = packed / "\x1b[2J.tfrecord"
    odd.write_bytes(frame(b"\x1b[2J"))
    _, out, _ = run(capsys, str(odd))
    assert r"\x1b[2J.tfrecord" in out
    assert "\x1b" not in out


def test_one_file_is_one_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ps.pack(ps.from_source(range(3)), tmp_path, num_shards=1, executor="threads")
    _, out, _ = run(capsys, str(tmp_path))
    assert "3 in 1 file " in " ".join(out.split()) + " "
    assert "1 files" not in out


def test_what_is_wrong_is_said_and_is_the_exit_status(capsys: pytest.CaptureFixture[str], packed: Path) -> None:
    path = packed / "data-00000-of-00002.tfrecord"
    path.write_bytes(path.read_bytes()[:-3])
    code, out, _ = run(capsys, str(packed), "--verify")
    assert code == 1
    text = " ".join(out.split())
    assert "WRONG 'data-00000-of-00002.tfrecord' has" in text
    assert "2 records were found, and the manifest says 3" in text
    assert "things are wrong" in text
    code, out, _ = run(capsys, str(packed))
    assert code == 1


def test_a_file_without_a_count_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(frame(b"x"))
    code, out, _ = run(capsys, str(tmp_path / "a"), "--verify")
    assert code == 0
    assert "no count to check against" in " ".join(out.split())


def test_what_cannot_be_done_is_an_error(capsys: pytest.CaptureFixture[str], packed: Path) -> None:
    assert "does not exist" in run(capsys, str(packed / "missing"))[2]
