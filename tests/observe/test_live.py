"""The line of `feed.progress()`: what it says and when, on a terminal, in a file, and where it cannot be written."""

from __future__ import annotations

import io
import re
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from feeds import state_behind
from observe.terminals import on_a_terminal
from observe.test_progress import Terminal

import penstock as ps
from penstock.errors import FeedClosed
from penstock.observe.live import FeedPlace, Rates, followed, lasting
from penstock.observe.stats import Stats


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Run:
    """An epoch of which the test says how long each batch is waited for and each step takes."""

    def __init__(self, total: int | None, stream: io.StringIO, *, wait_s: float, step_s: float, count: int, first: int = 0) -> None:
        self.clock, self.stream = Clock(), stream
        self._num_done, self._wait_s, self._step_s = first, wait_s, step_s
        self._place = lambda: FeedPlace(2, self._num_done, total, "batches", 128)
        self.batches = followed(self._give(count), self._place, Stats().snapshot, stream, self.clock)

    def _give(self, count: int) -> Iterator[int]:
        for number in range(count):
            self.clock.now_s += self._wait_s
            self._num_done += 1
            yield number

    def steps(self, count: int) -> list[str]:
        """Take so many batches, and return the texts that were drawn meanwhile."""
        begin = len(self.stream.getvalue())
        for _ in range(count):
            next(self.batches)
            self.clock.now_s += self._step_s
        return re.split(r"[\r\n]+", self.stream.getvalue()[begin:].strip())


def test_the_line_has_the_epoch_what_is_done_the_time_left_the_rate_and_the_waiting() -> None:
    run = Run(1000, Terminal(), wait_s=0.01, step_s=0.09, count=1000)
    drawn = run.steps(301)
    assert drawn[0] == "epoch 2: waiting for the first batch"
    assert drawn[-1].rstrip() == "epoch 2: 301/1,000 batches (30 %), 1:10 left, 10/s, waited 10 %"
    run.batches.close()


def test_it_is_drawn_five_times_a_second_and_the_last_line_stays() -> None:
    run = Run(100, Terminal(), wait_s=0.0, step_s=0.01, count=100)
    assert 4 <= len(run.steps(100)) <= 6
    assert list(run.batches) == []
    assert run.stream.getvalue().count("\n") == 1
    assert run.stream.getvalue().rpartition("\r")[2].rstrip() == "epoch 2: 100/100 batches (100 %) in 0:01, 100/s, waited 0 %"


def test_into_a_file_there_is_a_line_every_30_seconds_with_elements_a_second() -> None:
    run = Run(1000, io.StringIO(), wait_s=0.0, step_s=1.0, count=1000)
    lines = run.steps(100)
    assert len(lines) == 3
    assert lines[-1] == "epoch 2: 91/1,000 batches (9 %), 15:09 left, 1/s, waited 0 %, 128 elements/s"
    run.batches.close()


def test_the_rate_and_the_waiting_are_those_of_the_last_30_seconds() -> None:
    rates = Rates()
    for second in range(101):
        rates.add(float(second), 10 * second if second < 50 else 500 + (second - 50), float(min(second, 50)))
    assert rates.now() == (1.0, 0.0)
    assert len(rates._marks) <= 32


def test_without_a_length_and_after_a_resume() -> None:
    run = Run(None, Terminal(), wait_s=0.0, step_s=0.5, count=10)
    assert run.steps(4)[-1].rstrip() == "epoch 2: 4 batches, 2/s, waited 0 %, 256 elements/s"
    run.batches.close()
    run = Run(1000, Terminal(), wait_s=0.0, step_s=0.5, count=10, first=900)
    assert run.steps(4)[-1].startswith("epoch 2: 904/1,000 batches (90 %), 0:48 left, 2/s, ")
    run.batches.close()
    assert run.stream.getvalue().rpartition("\r")[2].rstrip() == "epoch 2: 904/1,000 batches (90 %) in 0:02, 2/s, waited 0 %"


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0:00"), (65.0, "1:05"), (3725.0, "1:02:05"), (360000.0, "100:00:00")])
def test_a_time_is_hours_minutes_and_seconds(seconds: float, words: str) -> None:
    assert lasting(seconds) == words


def test_the_epochs_of_a_feed_are_those_of_a_for_and_a_resumed_one_goes_on() -> None:
    dataset = ps.from_source(range(40)).shuffle(seed=3).batch(4)
    with dataset.feed(executor="threads", num_workers=1) as feed:
        plain = [[batch.tolist() for batch in feed] for _ in range(2)]
    lines = io.StringIO()
    with dataset.feed(executor="threads", num_workers=1) as feed:
        assert [[batch.tolist() for batch in feed.progress(stream=lines)] for _ in range(2)] == plain
    assert [line.split(" in ")[0] for line in lines.getvalue().splitlines()] == [
        "epoch 0: 10/10 batches (100 %)",
        "epoch 1: 10/10 batches (100 %)",
    ]
    lines = io.StringIO()
    state = state_behind(dataset, 4, num_workers=0)
    with dataset.feed(num_workers=0) as feed:
        feed.load_state_dict(state)
        assert len(list(feed.progress(stream=lines))) == 6
    assert lines.getvalue().startswith("epoch 0: 10/10 batches (100 %) in ")


def test_elements_are_called_elements_and_an_endless_feed_has_no_total() -> None:
    lines = io.StringIO()
    with ps.from_source(range(5)).map(float).feed(num_workers=0) as feed:
        assert list(feed.progress(stream=lines)) == [0.0, 1.0, 2.0, 3.0, 4.0]
    with ps.from_source(range(5)).batch(2).repeat().feed(num_workers=0) as feed:
        for number, _ in enumerate(feed.progress(stream=lines)):
            if number == 6:
                break
    texts = [line.split(" in ")[0] for line in lines.getvalue().splitlines()]
    assert texts == ["epoch 0: 5/5 elements (100 %)", "epoch 0: 7 batches"]


def test_an_error_of_the_feed_passes_behind_the_last_line_and_a_closed_feed_refuses_at_once() -> None:
    lines = io.StringIO()
    with ps.from_source(range(6)).map(lambda value: 1 // (3 - value)).feed(executor="threads", num_workers=1) as feed:
        with pytest.raises(ZeroDivisionError):
            list(feed.progress(stream=lines))
        with pytest.raises(FeedClosed):
            feed.progress()
    assert lines.getvalue().startswith("epoch 0: 3/6 elements (50 %) in ")


def test_a_batch_that_the_loop_lets_go_of_is_free() -> None:
    with ps.from_source(range(6)).batch(2).feed(num_workers=0) as feed:
        batches = feed.progress(stream=io.StringIO())
        batch = weakref.ref(next(batches))
        assert batch() is None
        batches.close()


PROGRAM = """
import time
import penstock as ps
def slow(value):
    time.sleep(0.005)
    return value
with ps.from_source(range(160)).map(slow, name="decode").batch(2).feed(executor="threads", num_workers=1) as feed:
    for batch in feed.progress():
        time.sleep(0.001)
print("done")
"""


def test_on_a_real_terminal_it_is_one_line_that_names_the_stage_that_is_waited_for() -> None:
    written = on_a_terminal(PROGRAM, 120)
    assert [line.rpartition("\r")[2].split(" in ")[0] for line in written.split("\r\n")] == ["epoch 0: 80/80 batches (100 %)", "done", ""]
    (drawn,) = re.findall(r"epoch 0: .* for '[^']*decode'", written.replace("\r", "\n"))[-1:]
    assert re.fullmatch(r"epoch 0: \d+/80 batches \(\d+ %\), 0:0\d left, \d+/s, waited \d+ %( for .*)", drawn)


def test_a_narrow_terminal_gets_fewer_words_and_one_line() -> None:
    written = on_a_terminal(PROGRAM, 44)
    drawn: list[Any] = written.replace("\r\n", "\r").split("\r")[1:-3]
    assert len(drawn) > 1
    assert max(map(len, drawn)) <= 43
