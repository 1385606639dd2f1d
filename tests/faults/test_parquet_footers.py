"""FAULTS C31 and H7: a damaged one is an error, and never the end of the process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from faults.footers import tables
from programs import output_of

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

SCRIPT = str(Path(__file__).with_name("footers.py"))


def said(kind: str, use: str, num_changes: int, folder: Path) -> list[str]:
    """Return what was neither read nor refused, one line each, and a last line for the whole."""
    return output_of("-W", "ignore", SCRIPT, kind, use, num_changes, timeout_s=600, TMPDIR=str(folder)).splitlines()


def test_a_changed_byte_of_a_footer_does_not_end_the_process(tmp_path: Path) -> None:
    """Of a file of two columns, 4 of 745 changes did, those of the lengths of histograms among the statistics."""
    lines = said("numbers", "read", 1, tmp_path)
    assert lines[:-1] == []
    assert lines[-1].endswith("changes, True")


@pytest.mark.slow
@pytest.mark.parametrize("use", ["read", "inspect"])
@pytest.mark.parametrize("kind", ["numbers", "strings", "lists"])
def test_no_change_of_a_byte_of_a_footer_ends_the_process(kind: str, use: str, tmp_path: Path) -> None:
    assert kind in tables()
    *odd, last = said(kind, use, 4 if use == "read" else 2, tmp_path)
    assert odd == []
    assert last.endswith(f"changes, {use == 'read'}"), "an inspection reports what it finds"
