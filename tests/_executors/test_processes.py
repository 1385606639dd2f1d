"""What a worker process tells on its second line, and that its start is no slow element."""

from __future__ import annotations

import sys
import time

import pytest
from _executors.in_workers import SlowToRead

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
