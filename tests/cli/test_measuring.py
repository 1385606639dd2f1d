"""`penstock measure` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dataset.measured import is_even, numbers, tripled

from penstock.cli import main
from penstock.dataset.measuring import measure


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["measure", *arguments])
    captured = capsys.readouterr()
    return code, " ".join(captured.out.split()), captured.err


COMMAND = ("dataset.measured:numbers", "--length=dataset.measured:tripled", "--num-workers=1")


def test_the_program_finds_what_the_command_has_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dest = str(tmp_path / "out")
    code, out, err = run(capsys, *COMMAND, "--column", "even=dataset.measured:is_even", "--dest", dest)
    assert (code, err) == (0, "")
    assert "column length: 300 numbers in" in out
    assert "column even: 300 booleans in" in out
    before = (tmp_path / "out" / "measures.json").stat().st_mtime_ns
    found = measure(numbers(), dest, {"length": tripled, "even": is_even})
    assert found.columns["length"].gather_columns(np.array([7]), None)[0].tolist() == [21]
    assert (tmp_path / "out" / "measures.json").stat().st_mtime_ns == before


def test_bad_elements_are_left_out_if_it_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ("dataset.measured:numbers", "--column=n=dataset.measured:bad_tens", "--num-workers=1", "--dest", str(tmp_path / "out"))
    code, _, err = run(capsys, *command)
    assert code == 1
    assert "0 is bad" in err
    assert "left out 30 elements, marked in" in run(capsys, *command, "--on-error=skip")[1]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--column=dataset.measured:tripled"], "is no column"),
        (["--column=length=dataset.measured:tripled"], "column 'length' is given twice"),
        (["--column=n=dataset.measured:none"], "has no function 'none'"),
    ],
)
def test_columns_have_a_name_and_a_function(capsys: pytest.CaptureFixture[str], tmp_path: Path, more: list[str], words: str) -> None:
    code, _, err = run(capsys, *COMMAND, "--dest", str(tmp_path), *more)
    assert code == 1
    assert words in err


def test_what_is_no_dataset_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "dataset.measured:COUNT", "--length=dataset.measured:tripled", "--dest", str(tmp_path))
    assert code == 1
    assert "is a int, not a dataset" in err


def test_a_folder_is_brought_up_to_date(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("dataset.measured:texts_here", "--length=dataset.measured:number_in", "--num-workers=1", "--dest=out")
    (tmp_path / "a.txt").write_text("5\n")
    assert run(capsys, *command)[0] == 0
    (tmp_path / "b.txt").write_text("6\n7\n")
    code, _, err = run(capsys, *command)
    assert code == 1
    assert "measured for another dataset" in err
    assert "column length: 3 numbers in" in run(capsys, *command, "--update")[1]
