"""What a worker process tells on its second line, and that its start is no slow element."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path

import pytest
from _executors.in_workers import ReadsForever, SlowToRead, StartsThread, draws, first_of_processes, pools, with_process

import penstock as ps
from penstock._executors.processes import _Line
from penstock._executors.remote import serve
from penstock._processes.arena import Arena
from penstock._processes.child import Child

pytestmark = [
    pytest.mark.usefixtures("fork_server"),
    pytest.mark.skipif(sys.platform == "win32", reason="processes and signals of POSIX"),
]


def test_a_stack_is_whole_when_the_answer_to_another_question_comes_amid_it() -> None:
    arena = Arena()
    child = Child.start(serve, ("worker 0", 0, arena.num_bytes, {"OMP_NUM_THREADS": "1"}), name="worker 0", method="exec")
    line = _Line(child, arena.fd)
    try:
        while line.spot() is None or line.calls(child)[-1][2] != "recv_fds":  # it waits for a request
            time.sleep(0.01)
        for _ in range(10):
            line.spot()
            assert [function for _, _, function in line.calls(child)][-4:] == ["serve", "receive", "fill", "recv_fds"]
    finally:
        child.stop(10.0)
        line.close()
        arena.close()


def test_a_process_that_starts_longer_than_a_stall_is_no_slow_element() -> None:
    with ps.from_source(range(20)).map(SlowToRead()).feed(executor="processes", num_workers=1, stall_timeout_s=0.3) as feed:
        assert list(feed) == list(range(20))  # a warning of slow elements would be an error here


def test_workers_draw_numbers_of_their_own() -> None:
    with ps.from_source(range(200)).map(draws).feed(executor="processes", num_workers=3) as feed:
        drawn = list(feed)
    assert len({one["pid"] for one in drawn}) == 3
    assert len({number for one in drawn for number in (one["numpy"], one["python"])}) == 400


@pytest.mark.parametrize(("num_workers", "given"), [(1, ""), (1, "3"), (64, "")])
def test_native_libraries_of_a_worker_have_its_share_of_the_cpus(num_workers: int, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    share = str(max(1, len(os.sched_getaffinity(0)) // num_workers))
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    with ps.from_source(range(64)).map(pools).feed(executor="processes", num_workers=num_workers) as feed:
        assert next(feed) == {"OMP_NUM_THREADS": given or share, "OPENBLAS_NUM_THREADS": share}


def test_workers_are_started_one_by_one_where_an_import_starts_threads() -> None:
    with ps.from_source(range(200)).map(StartsThread()).map(with_process).feed(executor="processes", num_workers=2) as feed:
        got = list(feed)
        notices = feed.stats().notices
    assert [number for number, _ in got] == list(range(200))
    assert [notice.partition(":")[0] for notice in notices] == [
        "importing what the functions need started other threads (a thread of a module), which a forked process lacks"
    ]


def test_a_feed_is_closed_while_its_functions_are_read(tmp_path: Path) -> None:
    fifo = str(tmp_path / "begun")
    os.mkfifo(fifo)
    feed = ps.from_source(range(20)).map(ReadsForever(fifo)).feed(executor="processes", num_workers=2, grace_period_s=0.1)
    caught: list[BaseException] = []

    def take() -> None:
        try:
            next(feed)
        except ps.errors.FeedClosed as closed:
            caught.append(closed)

    thread = threading.Thread(target=take)
    thread.start()
    with open(fifo, "rb") as begun:
        begun.read()
    feed.close()
    thread.join()
    assert len(caught) == 1


def test_a_daemonic_process_has_no_worker_processes() -> None:
    with multiprocessing.get_context("forkserver").Pool(1) as pool, pytest.raises(ps.errors.PlanError) as caught:
        pool.apply(first_of_processes)
    assert caught.value.what == (
        "no worker processes can be started: this is a daemonic process, such as a worker of multiprocessing.Pool or of a feed, and those "
        "start no processes"
    )
    assert caught.value.fix == 'give executor="threads"'
