"""What was found in a file."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import SourceError
from penstock.packing.report import Inspection, pieces_of, summary


def test_problems_are_sentences_and_fields_are_told_by_samples() -> None:
    report = Inspection(path="a", kind="b", size=1, samples=[{"x": 1, "y": b""}, {"x": 1.5}])
    report.add_problem(SourceError("it is bad", where="a", fix="none"))
    report.add_problem(ValueError("odd"))
    assert report.problems == ["it is bad (a)", "ValueError: odd"]
    report.describe_samples()
    assert report.fields == ["'x': int or float", "'y': bytes"]


def test_a_file_comes_in_pieces_and_sizes_have_a_median(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(5 << 20))
    assert [piece.size for piece in pieces_of(str(tmp_path / "a"))] == [4 << 20, 1 << 20]
    assert summary([5, 1, 3]) == (1, 3, 5)
