"""FAULTS B9: an interpreter that exits says nothing, whatever is alive, and whatever else holds on to modules."""

from __future__ import annotations

from pathlib import Path

import pytest
from core import core
from faults.leaving import INDEXED, OTHERS, STREAMS, USES, said_at_exit

import penstock


@pytest.mark.parametrize("use", core([*USES, "others"], ["running", "others"]))
def test_a_program_that_exits_while_objects_are_alive_says_nothing(use: str, tmp_path: Path) -> None:
    kinds = OTHERS if use == "others" else INDEXED if use == "looked at" else {**INDEXED, **STREAMS}
    assert said_at_exit(use, folder=tmp_path) == (0, "".join(f"{kind}\n" for kind in kinds), "")


def test_nothing_of_penstock_is_finalised_by_a_method() -> None:
    """One that runs at the exit of the interpreter may find its module's names to be None; `weakref.finalize` does not run there."""
    for path in Path(penstock.__file__).parent.rglob("*.py"):
        assert "def __del__" not in path.read_text(encoding="utf-8"), path
