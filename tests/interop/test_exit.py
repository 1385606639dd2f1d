"""FAULTS B9 beside libraries in C, which hold on to modules when the interpreter exits."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from faults.leaving import USES, said_at_exit

pytestmark = pytest.mark.slow


ALL = ["tensorflow", "torch", "datasets"]


@pytest.mark.parametrize(("others", "use"), [*((ALL, use) for use in [*USES, "others"]), *(([one], "running") for one in ALL)])
def test_a_program_that_exits_beside_other_libraries_says_nothing_of_penstock(others: list[str], use: str, tmp_path: Path) -> None:
    for other in others:
        if importlib.util.find_spec(other) is None:
            pytest.skip(f"{other} is not installed")
    status, _, words = said_at_exit(use, *others, folder=tmp_path)  # TensorFlow says something of its own
    assert (status, "ignored in" in words, "penstock" in words) == (0, False, False), words
