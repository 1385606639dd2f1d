"""`penstock measure` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli.running import Cli
from dataset.measured import is_even, numbers, tripled

from penstock.dataset.measuring import measure

COMMAND = ("measure", "dataset.measured:numbers", "--length=dataset.measured:tripled", "--num-workers=1")


def test_the_program_finds_what_the_command_has_measured(cli: Cli, tmp_path: Path) -> None:
    dest = str(tmp_path / "out")
    told = cli(*COMMAND, "--column", "even=dataset.measured:is_even", "--dest", dest)
    assert (told.code, told.err) == (0, "")
    assert "column length: 300 numbers in" in told.text
    assert "column even: 300 booleans in" in told.text
    before = (tmp_path / "out" / "measures.json").stat().st_mtime_ns
    found = measure(numbers(), dest, {"length": tripled, "even": is_even})
    assert found.columns["length"].gather_columns(np.array([7]), None)[0].tolist() == [21]
    assert (tmp_path / "out" / "measures.json").stat().st_mtime_ns == before


def test_bad_elements_are_left_out_if_it_is_said(cli: Cli, tmp_path: Path) -> None:
    command = *COMMAND[:2], "--column=n=dataset.measured:bad_tens", "--num-workers=1", "--dest", tmp_path / "out"
    told = cli(*command)
    assert told.code == 1
    assert "0 is bad" in told.err
    assert "left out 30 elements, marked in" in cli(*command, "--on-error=skip").text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*COMMAND, "--column=dataset.measured:tripled"], "is no column"),
        ([*COMMAND, "--column=length=dataset.measured:tripled"], "column 'length' is given twice"),
        ([*COMMAND, "--column=n=dataset.measured:none"], "has no function 'none'"),
        (["measure", "dataset.measured:COUNT", "--length=dataset.measured:tripled"], "is a int, not a dataset"),
    ],
)
def test_columns_have_a_name_and_a_function_and_are_of_a_dataset(cli: Cli, tmp_path: Path, arguments: list[str], words: str) -> None:
    told = cli(*arguments, "--dest", tmp_path)
    assert told.code == 1
    assert words in told.err


def test_a_folder_is_brought_up_to_date(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = "measure", "dataset.measured:texts_here", "--length=dataset.measured:number_in", "--num-workers=1", "--dest=out"
    (tmp_path / "a.txt").write_text("5\n")
    assert cli(*command).code == 0
    (tmp_path / "b.txt").write_text("6\n7\n")
    told = cli(*command)
    assert told.code == 1
    assert "measured for another dataset" in told.err
    assert "column length: 3 numbers in" in cli(*command, "--update").text
