"""Cells of the matrix: what loops do with feeds, and what comes back. FAULTS B, C34, G6 and G8."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import jobs_in_workers as jobs
from faults.cells import (
    WORKERS,
    Way,
    cell,
    check_beginning,
    check_note,
    check_same,
    reference,
    run,
    taken,
)
from faults.ways import notes

import penstock as ps

NUM_BATCHES = 12


def batches(count: int = NUM_BATCHES) -> ps.Dataset:
    return ps.from_source(range(8 * count)).shuffle(seed=3).map(jobs.row).batch(8)


@cell("B1", step=[0, 1, 5, NUM_BATCHES])
def a_loop_is_left(way: Way, folder: Path, step: int) -> None:
    ds = batches()
    with ds.feed(**way) as feed:
        if step:
            check_beginning(taken(feed, step)[0], reference(ds), step, way)
        items, error = taken(feed)
        assert error is None, error
        check_same(items, reference(ds, epoch=int(step > 0)), way)
    for number, _ in enumerate(ds.feed(**way), 1):
        if number >= step:
            break
    check_same(run(ds, way)[0], reference(ds), way)


@cell("B2", held=["by nothing", "by a cycle", "by a traceback"])
def a_feed_is_dropped(way: Way, folder: Path, held: str) -> None:
    feed: Any = batches(1000).feed(**way)
    next(feed)
    if held == "by a cycle":
        cycle: list[Any] = [feed]
        cycle.append(cycle)
        del cycle
    if held == "by a traceback":
        try:
            raise LookupError(feed)
        except LookupError as error:
            kept = error
        del kept
    del feed
    gc.collect()


@cell("B3")
def the_training_loop_fails_with_full_queues(way: Way, folder: Path) -> None:
    def train() -> None:
        with ps.from_source(range(4000)).map(jobs.large_row).batch(16).feed(**way) as feed:
            for left, _ in zip(range(3, -1, -1), feed, strict=False):
                assert 6 // left > 1

    with pytest.raises(ZeroDivisionError):
        train()


@cell("B4", "B5")
def a_feed_is_closed_in_each_state(way: Way, folder: Path) -> None:
    for step in (None, 0, 1, NUM_BATCHES):
        feed = batches().feed(**way)
        if step is not None:
            taken(feed, step or None) if step else iter(feed)
        feed.close()
        feed.close()
        assert feed.is_closed
        with pytest.raises(ps.errors.FeedClosed):
            next(feed)

    def around() -> Iterator[Any]:
        with batches().feed(**way) as inner:
            yield from inner

    with contextlib.closing(around()) as generator:
        next(generator)


@cell("B6", "G8", executors=WORKERS)
def several_feeds_run_at_once_and_one_is_closed(way: Way, folder: Path) -> None:
    ds = batches()
    whole = reference(ds)
    with ds.feed(**way) as one, ds.feed(**way) as two, batches(1000).feed(**way) as third:
        next(third)
        pairs = []
        for number, pair in enumerate(zip(one, two, strict=True)):
            pairs.append(pair)
            if number == 3:
                third.close()
    check_same([first for first, _ in pairs], whole, way)
    check_same([second for _, second in pairs], whole, way)


@cell("B7")
def four_threads_share_a_feed(way: Way, folder: Path) -> None:
    ds = batches(60)
    found: list[Any] = []

    def take() -> None:
        found.extend(iterator)

    with ds.feed(**way) as feed:
        iterator = iter(feed)
        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    check_same(found, reference(ds), {**way, "ordered": False})


@cell("B8")
def an_ended_iterator_is_asked_again(way: Way, folder: Path) -> None:
    with batches().feed(**way) as feed:
        iterator = iter(feed)
        check_same(list(iterator), reference(batches()), way)
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(iterator)


@cell("B14")
def everything_happens_outside_the_main_thread(way: Way, folder: Path) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run(batches(), way)))
    thread.start()
    thread.join()
    ((items, error),) = found
    assert error is None, error
    check_same(items, reference(batches()), way)


@cell("B19")
def the_consumer_keeps_everything(way: Way, folder: Path) -> None:
    ds = batches(200)
    with ds.feed(**way) as feed:
        kept, copies, descriptors = [], [], []
        for batch in feed:
            kept.append(batch)
            copies.append(batch.copy())
            descriptors.append(len(os.listdir("/proc/self/fd")))
    assert all((batch == copy).all() for batch, copy in zip(kept, copies, strict=True))
    assert max(descriptors[100:]) <= max(descriptors[:50]) + 3
    check_same(kept, reference(ds), way)


@cell("B20", "B21")
def a_consumer_takes_its_time(way: Way, folder: Path) -> None:
    """What is computed ahead stays in the budget, whatever the time."""
    budget = 4 << 20
    started = folder / "started"
    ds = ps.from_source(range(2000)).map(Counted(started)).map(jobs.large_row).batch(4)
    with ds.feed(**way, memory_bytes=budget) as feed:
        next(feed)
        quiet = -1
        while quiet != started.stat().st_size:  # until nothing more is begun
            quiet = started.stat().st_size
            threading.Event().wait(0.2)
        assert quiet <= budget // (4 << 14) + 8
        feed.close()


class Counted:
    """Writes a byte into a file for each element."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, x: int) -> int:
        file = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(file, b".")
        os.close(file)
        return x


@cell("B22")
def a_hundred_thousand_tiny_elements(way: Way, folder: Path) -> None:
    ds = ps.from_source(range(100_000)).map(jobs.doubled)
    items, error = run(ds, way)
    assert error is None, error
    check_same(items, list(range(0, 200_000, 2)), way)


@cell("B24")
def two_elements_fail_at_once(way: Way, folder: Path) -> None:
    items, error = run(ps.from_source(range(100)).map(jobs.Raises("ValueError", 50, 51), name="explode"), way)
    check_beginning(items, list(range(100)), 50, way)
    assert isinstance(error, ValueError)
    place = int(str(error).rpartition(" ")[2])
    assert place == 50 or (place == 51 and not way["ordered"])
    check_note(error, "explode", place, way)


@cell("B24")
def two_elements_kill_at_once(way: Way, folder: Path) -> None:
    ds = ps.from_source(range(100)).map(jobs.Dies(folder, "SIGKILL", {50: 99, 51: 99}), name="explode")
    items, error = run(ds, way)
    check_beginning(items, list(range(100)), 50, way)
    assert isinstance(error, ps.errors.WorkerDied)
    assert "element epoch 0 index 50" in notes(error) or not way["ordered"]


@cell("B25")
def a_function_does_not_stop_inside_the_grace_period(way: Way, folder: Path) -> None:
    """A process can be killed, so nothing is left of it, and no error."""
    os.mkfifo(folder / "never")
    feed = ps.from_source(range(1000)).map(jobs.Hangs(folder, "a call of C", 10, 1)).feed(**way, grace_period_s=0.1)
    with feed:
        next(feed)
        while not list(folder.glob("hangs-*")):  # a next() might wait for the element that hangs
            time.sleep(0.001)


@cell("B28", what=["a file", "a lock", "a generator"])
def a_function_returns_what_cannot_be_sent(way: Way, folder: Path, what: str) -> None:
    items, error = run(ps.from_source(range(100)).map(jobs.Returns(what, 50), name="odd"), way)
    assert len(items) <= 50 or not way["ordered"]
    check_beginning(items, list(range(100)), len(items), way)
    assert isinstance(error, ps.errors.SpecError), error
    kind = {"a file": "_io.TextIOWrapper", "a lock": "_thread.lock", "a generator": "generator"}[what]
    assert f"a value of type {kind} cannot be sent to another process" in error.what, error.what
    assert "stage 'read+odd'" in error.where, error.where


@cell("B29", "C34")
def one_result_is_far_larger_than_the_others(way: Way, folder: Path) -> None:
    ds = ps.from_source(range(60)).map(Heavy())
    items, error = run(ds, way)
    assert error is None, error
    check_same(items, reference(ds), way)


class Heavy:
    """One array of 100 MB among small ones."""

    def __call__(self, x: int) -> Any:
        return np.full(100 << 20 if x == 30 else 10 * (x % 3), x, np.uint8)


@cell("B29", batched=[False, True])
def results_are_of_every_dtype_shape_and_layout(way: Way, folder: Path, batched: bool) -> None:
    ds = ps.from_source(range(4 * len(jobs.DTYPES) * len(jobs.SHAPES))).map(jobs.of_every_kind)
    if batched:
        ds = ds.batch(1)
    items, error = run(ds, {**way, "ordered": True})
    assert error is None, error
    check_same(items, reference(ds), {})


@cell("B29", kind=["texts", "texts in batches", "ragged arrays"])
def results_vary_in_size(way: Way, folder: Path, kind: str) -> None:
    ds = {
        "texts": ps.from_source(range(200)).map(jobs.words),
        "texts in batches": ps.from_source(range(200)).map(jobs.words).batch(1),
        "ragged arrays": ps.from_source(range(100)).map(jobs.ragged),
    }[kind]
    items, error = run(ds, way)
    assert error is None, error
    check_same(items, reference(ds), way)


@cell("B32")
def elements_are_finished_out_of_order(way: Way, folder: Path) -> None:
    ds = ps.from_source(range(400)).map(Uneven())
    items, error = run(ds, way)
    assert error is None, error
    check_same(items, list(range(400)), way)


class Uneven:
    """Takes very different times."""

    def __call__(self, x: int) -> int:
        return sum(range((x * 7919) % 97 * 200)) * 0 + x


@cell("G6", deadline_s=60)
def eight_workers_on_few_cpus_give_no_false_alarm(way: Way, folder: Path) -> None:
    items, error = run(ps.from_source(range(400)).map(Uneven()), {**way, "num_workers": 8}, stall_timeout_s=5.0)
    assert error is None, error
    check_same(items, list(range(400)), way)


@cell("G6", deadline_s=180, slow=True)
def sixty_four_workers_on_few_cpus_give_no_false_alarm(way: Way, folder: Path) -> None:
    ds = ps.from_source(range(6400)).map(Uneven()).batch(8)
    batches, error = run(ds, {**way, "num_workers": 64}, stall_timeout_s=10.0)
    assert error is None, error
    check_same([int(x) for batch in batches for x in batch], list(range(6400)), way)
