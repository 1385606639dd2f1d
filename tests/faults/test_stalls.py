"""Nobody waits without an end: FAULTS A11, A13, G6, G9. Every stuck thread is real, and released at the end by an event."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from faults.ways import drained, every_thread_count, notes
from laws.plans import plain

import penstock as ps
from penstock._contracts.event import Event, Notice
from penstock.errors import FeedClosed, FeedStalled

SOON: dict[str, Any] = {"stall_timeout_s": 0.05, "grace_period_s": 0.01}
NEEDS_FIFO = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
NEEDS_STOP = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP here")


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """An event that a stuck function waits for; set after the test."""
    event = threading.Event()
    yield event
    event.set()


def seconds_of(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found is not None, text
    return float(found[1])


def stalled(feed: ps.Feed) -> tuple[list[Any], FeedStalled]:
    """Take all that comes before the stall, and the stall."""
    items, error = drained(feed)
    assert isinstance(error, FeedStalled), error
    return items, error


@every_thread_count
def test_an_element_that_waits_for_ever_is_an_error_with_stage_key_worker_and_stack(way: dict[str, Any], release: threading.Event) -> None:
    def stuck(value: int) -> int:
        if value == 17:
            release.wait()
        return value

    ds = ps.from_source(range(100)).shuffle(seed=3).map(stuck, name="stuck")
    whole = list(ps.from_source(range(100)).shuffle(seed=3))
    items, error = stalled(ds.feed(**way, **SOON))
    assert items == whole[: len(items)]  # those before it in its block are with the worker: the state resumes in front of them
    assert len(items) <= whole.index(17)
    assert seconds_of(r"of stage 'stuck' for ([\d.]+) s", error.what) >= SOON["stall_timeout_s"]
    assert "a lock or event that nobody releases, in " in error.what
    assert "in test_an_element_that_waits_for_ever" in error.what
    assert "stage 'stuck', worker " in error.where
    assert "(penstock-workers-" in error.where
    assert "element epoch 0 index 17 (element 17 of range)" in error.where
    assert "stuck: release.wait()" in error.where
    assert "in Event.wait" in error.where
    assert "execute.py" not in error.where
    assert "stall_timeout_s=0.05" in error.where
    assert "must not hold what a worker needs" in error.fix
    assert "penstock: still running: penstock-workers-" in notes(error)


def test_a_feed_that_stalled_is_closed_and_its_state_goes_on_with_the_element_that_was_stuck(release: threading.Event) -> None:
    ill = {15}

    def stuck(value: int) -> int:
        if value in ill:
            release.wait()
        return value

    ds = ps.from_source(range(40)).map(stuck).batch(2)
    feed, before = ds.feed(executor="threads", num_workers=2, **SOON), []
    with pytest.raises(FeedStalled):
        before.extend(plain(batch) for batch in feed)
    with pytest.raises(FeedClosed):
        next(feed)
    feed.close()
    ill.clear()
    healthy = ds.feed(executor="threads", num_workers=3)
    healthy.load_state_dict(feed.state_dict())
    behind, error = drained(healthy)
    assert before + behind == [[start, start + 1] for start in range(0, 40, 2)]
    assert error is None


@every_thread_count
def test_a_loop_without_end_is_named_as_one_that_computes(way: dict[str, Any]) -> None:
    over: list[int] = []

    def loop(value: int) -> int:
        while value == 6 and not over:
            pass
        return value

    try:
        items, error = stalled(ps.from_source(range(30)).map(loop).feed(**way, **SOON))
    finally:
        over.append(1)
    assert items == list(range(len(items)))
    assert "likely cause: a loop without end, or a very expensive element, in " in error.what
    assert "of a CPU: it computes; its stack" in error.where
    assert "in test_a_loop_without_end" in error.what


@NEEDS_FIFO
def test_a_read_from_a_fifo_that_nobody_writes_is_a_blocked_read(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    class Files:
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> bytes:
            if index == 3:
                with open(fifo, "rb") as file:
                    return file.read()
            return b"%d" % index

    try:
        items, error = stalled(ps.from_source(Files()).feed(executor="threads", num_workers=2, **SOON))
    finally:
        with open(fifo, "wb"):  # whoever reads gets its end
            pass
    assert items == [b"0", b"1", b"2"][: len(items)]
    assert "of stage 'read' for " in error.what
    assert "a blocked read (file, FIFO, network disk or socket) in " in error.what
    assert "element epoch 0 index 3 (element 3 of Files)" in error.where
    assert "of a CPU: it waits" in error.where


@every_thread_count
def test_a_generator_that_waits_for_an_empty_queue_is_an_empty_source(way: dict[str, Any]) -> None:
    queue: SimpleQueue[int | None] = SimpleQueue()
    for number in range(5):
        queue.put(number)

    def rows() -> Iterator[int]:
        while True:
            row = queue.get()
            if row is None:
                return
            yield row

    try:
        items, error = stalled(ps.from_generator(rows).map(lambda x: x).feed(**way, **SOON))
    finally:
        queue.put(None)
    assert items == list(range(5))
    assert seconds_of(r"^the generator has given no element for ([\d.]+) s", error.what) >= SOON["stall_timeout_s"]
    assert "likely cause: an empty source: it waits for a queue into which nobody puts anything" in error.what
    assert "stage 'read', worker 0 (penstock-reader-0), element epoch 0 index 5 (element 5 of generator " in error.where
    assert "shared workers: nothing to do" in error.where


def test_a_generator_stuck_in_a_call_of_its_own_is_dead(release: threading.Event) -> None:
    read, write = os.pipe()

    def rows() -> Iterator[bytes]:
        yield b"first"
        yield os.read(read, 1)

    try:
        items, error = stalled(ps.from_generator(rows).feed(executor="threads", num_workers=1, **SOON))
    finally:
        os.write(write, b"x")
    assert items == [b"first"]
    assert "a dead generator or a blocked read in " in error.what
    assert "rows: yield os.read(read, 1)" in error.where
    os.close(write)
    gone = [thread for thread in threading.enumerate() if thread.name == "penstock-reader-0"]
    for thread in gone:
        thread.join(30)
    os.close(read)


def test_two_operators_that_wait_for_each_others_lock_are_both_named() -> None:
    left, right = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def first(value: int) -> int:
        with left:
            if value == 1:
                both.wait()
                with right:
                    pass
        return value

    def second(value: int) -> int:
        with right:
            if value == 0:
                both.wait()
                with left:
                    pass
        return value

    ds = ps.from_source(range(2)).map(first, name="first", concurrency=1).map(second, name="second", concurrency=2)
    try:
        items, error = stalled(ds.feed(executor="threads", num_workers=1, stall_timeout_s=0.3, grace_period_s=0.01))
    finally:
        right.release()  # a lock may be released by any thread; who held it gets a RuntimeError that nobody hears
    assert items == []
    assert re.search(r"likely cause: a lock between two operators: worker [01] of stage '", error.what)
    assert "of stage 'first' (at " in error.what
    assert "of stage 'second' (at " in error.what
    assert "wait for each other or for a third" in error.what
    assert "with right:" in error.where
    assert "with left:" in error.where
    assert "take the locks in one order everywhere" in error.fix


def test_a_stage_with_workers_of_its_own_is_named_while_the_others_idle(release: threading.Event) -> None:
    def stuck(value: int) -> int:
        if value >= 2:
            release.wait()
        return value

    ds = ps.from_source(range(50)).map(lambda x: x, name="fast").map(stuck, name="slow", concurrency=2)
    items, error = stalled(ds.feed(executor="threads", num_workers=3, **SOON))
    assert items == [0, 1][: len(items)]
    assert seconds_of(r"of stage 'slow' for ([\d.]+) s", error.what) >= SOON["stall_timeout_s"]
    assert "(penstock-0.1-" in error.where
    assert "meanwhile:" in error.where
    assert "  3 of 3 shared workers: nothing to do" in error.where


def test_a_filter_that_does_not_return_is_named_with_its_element(release: threading.Event) -> None:
    ds = ps.from_source(range(50)).filter(lambda value: value != 9 or release.wait())
    _, error = stalled(ds.feed(executor="threads", num_workers=1, **SOON))
    assert "element epoch 0 index 9 (element 9 of range)" in error.where


def test_a_map_above_a_batch_is_named_with_the_first_element_of_its_batch(release: threading.Event) -> None:
    ds = ps.from_source(range(12)).batch(4).map(lambda rows: rows if rows[0] != 4 else release.wait(), name="above")
    items, error = stalled(ds.feed(executor="threads", num_workers=1, **SOON))
    assert items == [[0, 1, 2, 3]]
    assert "stage 'above', worker 0" in error.where
    assert "element epoch 0 index 4 (element 4 of range)" in error.where


def test_a_lock_that_the_training_loop_itself_holds_is_reported() -> None:
    lock = threading.Lock()

    def locked(value: int) -> int:
        with lock:
            return value

    feed = ps.from_source(range(9)).map(locked).feed(executor="threads", num_workers=1, **SOON)
    with lock, pytest.raises(FeedStalled) as caught:
        next(feed)
    assert "a lock or event that nobody releases, in " in caught.value.what
    assert "the thread that calls next() must not hold what a worker needs" in caught.value.fix


@pytest.mark.usefixtures("nervous")
def test_a_consumer_that_keeps_all_batches_is_no_stall() -> None:
    ds = ps.from_arrays(np.arange(4000).reshape(1000, 4)).batch(10)
    with ds.feed(executor="threads", num_workers=2, memory_bytes=1, stall_timeout_s=5.0) as feed:
        kept = list(feed)
    assert np.concatenate(kept).tolist() == np.arange(4000).reshape(1000, 4).tolist()


def test_a_warning_is_given_for_the_loops_own_line_once_per_doubled_time_and_the_feed_goes_on(release: threading.Event) -> None:
    texts: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Notice) and event.kind == "stall":
            texts.append(event.text)
            if len(texts) == 2:
                release.set()

    def stuck(value: int) -> int:
        if value == 3:
            release.wait()
        return value

    feed = (
        ps.from_source(range(8))
        .map(stuck, name="stuck")
        .feed(executor="threads", num_workers=2, on_stall="warn", listeners=[listen], **SOON)
    )
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        assert list(feed) == list(range(8))
    assert len(given) == len(texts) >= 2
    assert all(warning.category is RuntimeWarning and warning.filename == __file__ for warning in given)
    assert str(given[0].message).startswith(texts[0] + "\n  where: stage 'stuck', worker ")
    said = tuple(dict.fromkeys(reversed(texts)))[::-1]  # each once, where it was said last
    assert said == feed.stats().notices[-len(said) :]


def test_work_that_goes_on_without_a_result_is_warned_about_and_never_an_error() -> None:
    enough = threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Notice) and event.kind == "stall":
            enough.set()

    ds = ps.from_generator(itertools.count).filter(lambda _: enough.is_set())
    with (
        ds.feed(executor="threads", num_workers=1, listeners=[listen], stall_timeout_s=0.05) as feed,
        pytest.warns(RuntimeWarning) as given,
    ):
        next(feed)
    text = str(given[0].message)
    assert seconds_of(r"^nothing has arrived for ([\d.]+) s", text) >= 0.05
    assert "though work goes on; likely cause: much work for little result" in text
    assert "fix:   look at feed.report(); a longer stall_timeout_s says that such waits are expected" in text


@pytest.mark.parametrize("never", [None, float("inf")])
def test_without_a_timeout_nobody_looks(never: float | None) -> None:
    turn = threading.Event()

    def slow(value: int) -> int:
        turn.wait(0.2)
        return value

    assert drained(ps.from_source(range(3)).map(slow).feed(executor="threads", num_workers=1, stall_timeout_s=never)) == ([0, 1, 2], None)


def test_64_workers_that_compute_on_few_cores_give_no_false_alarm() -> None:
    begun: list[int] = []

    def heavy(value: int) -> int:
        begun.append(value)
        while len(begun) < 64:  # all compute at once from here on; who came early is busy until then, and lets others start
            time.sleep(0)
        end = time.thread_time_ns() + 30_000_000
        while time.thread_time_ns() < end:
            pass
        return value

    # 64 at once on one GIL: each element takes 2 s, four times the limit, and computes for 30 ms of them.
    ds = ps.from_source(range(64)).map(heavy).batch(64)
    assert drained(ds.feed(executor="threads", num_workers=64, stall_timeout_s=0.5)) == ([list(range(64))], None)


_STOPPED = """
import sys
import penstock as ps

def wait_for_a_line(value):
    if value == 2:
        print("waiting", flush=True)
        sys.stdin.readline()
    return value

with ps.from_source(range(5)).map(wait_for_a_line).feed(executor="threads", num_workers=2, stall_timeout_s=2.0) as feed:
    print(list(feed), flush=True)
"""


@NEEDS_STOP
def test_time_in_which_the_process_was_stopped_does_not_count() -> None:
    with subprocess.Popen([sys.executable, "-W", "error", "-c", _STOPPED], stdin=-1, stdout=-1, stderr=-1, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        threading.Event().wait(3.0)  # longer than the limit: the passing of time is what is tested
        child.send_signal(signal.SIGCONT)
        out, err = child.communicate("go\n", timeout=60)
    assert (out, err, child.returncode) == ("[0, 1, 2, 3, 4]\n", "", 0)
