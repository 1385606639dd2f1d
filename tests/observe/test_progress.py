"""The progress bar, with a clock that the test turns."""

from __future__ import annotations

import io
from typing import Any

import pytest

from penstock.observe.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Bar(Progress):
    """A bar whose clock says what it is told to."""

    def __init__(self, total: float | None = 1000, unit: str = "crops", stream: io.StringIO | None = None) -> None:
        self.now_s, self.shown = 0.0, stream or Terminal()
        super().__init__("cutting", total, unit=unit, stream=self.shown, clock=lambda: self.now_s)

    def after(self, seconds: float, count: float = 1) -> str:
        """Advance after so many seconds, and return all that was drawn."""
        self.now_s += seconds
        self.advance(count)
        return self.shown.getvalue()


def test_the_line_comes_after_two_seconds_and_is_wiped_at_the_end() -> None:
    with Bar() as bar:
        assert bar.after(1.9, 50) == ""
        drawn = bar.after(2.1, 350)
        assert drawn == "\rcutting [############..................] 400/1,000 crops, 100/s, 6 s left"
    assert bar.shown.getvalue() == drawn + "\r" + " " * (len(drawn) - 1) + "\r"


def test_the_line_is_redrawn_ten_times_a_second_at_most() -> None:
    bar = Bar()
    bar.after(3)
    for _ in range(99):
        drawn = bar.after(0.01)
    assert 9 <= drawn.count("\r") <= 11


def test_a_shorter_line_covers_the_longer_one_before_it() -> None:
    bar = Bar(10)
    first = len(bar.after(100))
    assert len(bar.after(1, 9)) == 2 * first


def test_into_a_file_one_line_is_written_every_ten_seconds() -> None:
    bar = Bar(100, stream=io.StringIO())
    lines = [bar.after(1) for _ in range(25)][-1].splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("cutting [###")
    assert "10/100 crops, 1/s, 90 s left" in lines[0]


@pytest.mark.parametrize(
    ("bar", "seconds", "count", "words"),
    [
        ({"total": None}, 4, 4000, "\rcutting 4,000 crops, 1,000/s"),
        ({"total": 10.0, "unit": "s"}, 5, 5.0, "5/10 s, 5 s left"),
        ({}, 5, 0, "time left unknown"),
        ({}, 2.8, 7, " crops, 2.5/s, "),
        ({}, 52, 2, " crops, 2.3/min, "),
        ({}, 1400, 2, " crops, 700 s each, "),
    ],
    ids=str,
)
def test_the_rate_and_the_rest_are_said_as_far_as_they_are_known(bar: dict[str, Any], seconds: float, count: float, words: str) -> None:
    assert words in Bar(**bar).after(seconds, count)
