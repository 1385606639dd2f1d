"""The progress bar, with a clock that the test turns."""

from __future__ import annotations

import io

import pytest

from penstock.observe.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_nothing_is_shown_in_the_first_two_seconds() -> None:
    stream, clock = Terminal(), Clock()
    with Progress("cutting", 100, unit="crops", stream=stream, clock=clock) as progress:
        clock.now_s += 1.9
        progress.advance(50)
    assert stream.getvalue() == ""


def test_after_two_seconds_the_line_has_bar_rate_and_time_left_and_is_wiped_at_the_end() -> None:
    stream, clock = Terminal(), Clock()
    with Progress("cutting", 1000, unit="crops", stream=stream, clock=clock) as progress:
        clock.now_s += 4
        progress.advance(400)
        drawn = stream.getvalue()
        assert drawn == "\rcutting [############..................] 400/1,000 crops, 100/s, 6 s left"
    assert stream.getvalue() == drawn + "\r" + " " * (len(drawn) - 1) + "\r"


def test_the_line_is_redrawn_ten_times_a_second_at_most() -> None:
    stream, clock = Terminal(), Clock()
    with Progress("cutting", 1000, unit="crops", stream=stream, clock=clock) as progress:
        clock.now_s += 3
        for _ in range(100):
            progress.advance()
            clock.now_s += 0.01
        assert 9 <= stream.getvalue().count("\r") <= 11


def test_a_shorter_line_covers_the_longer_one_before_it() -> None:
    stream, clock = Terminal(), Clock()
    with Progress("cutting", 10, unit="crops", stream=stream, clock=clock) as progress:
        clock.now_s += 100
        progress.advance()
        first = len(stream.getvalue())
        clock.now_s += 1
        progress.advance(9)
        assert len(stream.getvalue()) == 2 * first


def test_into_a_file_one_line_is_written_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress("cutting", 100, unit="crops", stream=stream, clock=clock) as progress:
        for _ in range(25):
            clock.now_s += 1
            progress.advance()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("cutting [###")
    assert "10/100 crops, 1/s, 90 s left" in lines[0]


def test_without_a_total_count_and_rate_are_shown() -> None:
    stream, clock = Terminal(), Clock()
    with Progress("reading", None, unit="elements", stream=stream, clock=clock) as progress:
        clock.now_s += 4
        progress.advance(4000)
    assert stream.getvalue().startswith("\rreading 4,000 elements, 1,000/s\r")


def test_seconds_have_no_rate() -> None:
    stream, clock = Terminal(), Clock()
    with Progress("measuring", 10.0, unit="s", stream=stream, clock=clock) as progress:
        clock.now_s += 5
        progress.advance(5.0)
        assert "5/10 s, 5 s left" in stream.getvalue()


@pytest.mark.parametrize(
    ("elapsed_s", "words"),
    [(0.8, "2.5/s, "), (52.0, "2.3/min, "), (1400.0, "700 s each, ")],
)
def test_a_slow_task_has_a_pace_that_is_not_zero(elapsed_s: float, words: str) -> None:
    stream, clock = Terminal(), Clock()
    with Progress("packing", 10, unit="shards", stream=stream, clock=clock) as progress:
        progress._start_s = 110.0 - elapsed_s
        clock.now_s = 110.0
        progress.advance(2)
        assert f" shards, {words}" in stream.getvalue()


def test_before_anything_is_done_the_time_left_is_unknown() -> None:
    stream, clock = Terminal(), Clock()
    with Progress("cutting", 10, unit="crops", stream=stream, clock=clock) as progress:
        clock.now_s += 5
        progress.advance(0)
        assert "time left unknown" in stream.getvalue()
