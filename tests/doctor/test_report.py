"""The figures of a report: shares that add up, and words for times and sizes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.doctor import Profiler, report_of
from penstock.doctor.report import size_words, tenths, time_words


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=40).filter(any))
def test_shares_are_tenths_that_add_up_to_100(parts: list[int]) -> None:
    shares = tenths(parts)
    assert sum(round(share * 10) for share in shares) == 1000
    assert all(abs(share - 100 * part / sum(parts)) <= 0.1 + 1e-9 for share, part in zip(shares, parts, strict=True))


def test_nothing_has_no_share() -> None:
    assert tenths([]) == []
    assert tenths([0, 0]) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 us"), (3.14e-6, "3.14 us"), (0.0999e-3, "99.9 us"), (0.9996e-3, "1 ms"), (12.34, "12.3 s"), (4321.0, "4,321 s")],
)
def test_times_have_three_digits(seconds: float, words: str) -> None:
    assert time_words(seconds) == words


@pytest.mark.parametrize(
    ("num_bytes", "words"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (200_000_123, "200 MB"), (7_250_000_000, "7.25 GB")]
)
def test_sizes_have_three_digits(num_bytes: int, words: str) -> None:
    assert size_words(num_bytes) == words


def test_the_operators_stand_by_time_and_in_their_order_for_a_picture() -> None:
    profiler = Profiler()
    profiler.start()
    try:
        assert len(list(ps.from_source(range(100)).map(abs).filter(bool).batch(10).feed())) == 10
    finally:
        profiler.stop()
    report = report_of(profiler, ("train.py",), 0)
    assert [one.name for one in report.pipeline] == ["from_source", "abs", "bool", "batch", "penstock itself"]
    assert sorted(report.operators, key=lambda one: -one.wall_s) == list(report.operators)
    assert set(report.operators) == set(report.pipeline)
    figures = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert "pipeline" not in figures
    assert figures["operators"][0]["share_percent"] == report.operators[0].share_percent
    assert max(map(len, report.lines())) <= 116
