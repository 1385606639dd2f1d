"""The worker by itself: a real process, a pipe and tickets, with the test in the place of the pool."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jobs import acting

from penstock._processes.child import Child
from penstock.errors import PlanError, SpecError, WorkerDied
from penstock.jobs.worker import TICKET, work

pytestmark = [
    pytest.mark.usefixtures("fork_server"),
    pytest.mark.skipif(sys.platform == "win32", reason="processes of POSIX"),
]


class Desk:
    """A worker and the parent's ends of what leads to it."""

    def __init__(self, child: Child, tickets_in: int, tickets_out: int) -> None:
        self.child, self.tickets_in, self.tickets_out = child, tickets_in, tickets_out

    def give(self, *jobs: tuple[int, Any]) -> None:
        self.tickets(*(number for number, _ in jobs))
        self.child.send([(number, pickle.dumps(job)) for number, job in jobs])

    def tickets(self, *numbers: int) -> None:
        os.write(self.tickets_in, b"".join(map(TICKET.pack, numbers)))

    def take_back(self, count: int) -> list[int]:
        return [number for (number,) in TICKET.iter_unpack(os.read(self.tickets_out, count * TICKET.size))]

    def no_more(self) -> None:
        if self.tickets_in >= 0:
            os.close(self.tickets_in)
        self.tickets_in = -1

    def answers(self, count: int) -> list[tuple[int, Any]]:
        """Receive until `count` jobs are told; return numbers and results."""
        out: list[tuple[int, Any]] = []
        while len(out) < count:
            answers = self.child.receive()
            assert all(0 < begin_ns <= end_ns for *_, (begin_ns, end_ns, _) in answers)
            out += [(number, pickle.loads(data)) for number, _, data, _ in answers]
        assert len(out) == count
        return out


@contextmanager
def desk(function: Any) -> Iterator[Desk]:
    tickets_out, tickets_in = os.pipe()
    os.set_blocking(tickets_out, False)
    child = Child.start(work, name="worker 0")
    try:
        child.send(pickle.dumps(function), fds=[tickets_out])
        worker = Desk(child, tickets_in, tickets_out)
        yield worker
    finally:
        child.stop(10.0)
        os.close(tickets_out)
        worker.no_more()


def test_jobs_are_done_in_the_order_of_their_tickets_and_told() -> None:
    with desk(acting.square) as worker:
        worker.give((3, 5), (7, 6))
        worker.give((1, 7))
        assert worker.answers(3) == [(3, 25), (7, 36), (1, 49)]


def test_a_job_whose_ticket_was_taken_back_is_not_done(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with desk(acting.turn) as worker:
        worker.give((0, ("hold", str(fifo))), (1, ("value", "one")), (2, ("value", "two")), (3, ("value", "three")))
        with fifo.open("w") as file:  # opens when the worker is at the first job
            assert worker.take_back(2) == [1, 2]
            file.write("held")
        assert worker.answers(2) == [(0, "held"), (3, "three")]
        worker.give((1, ("value", "again")))
        assert worker.answers(1) == [(1, "again")]


def test_a_ticket_may_come_long_before_its_job_and_a_job_may_be_large() -> None:
    with desk(acting.turn) as worker:
        worker.tickets(0, 1)
        worker.child.send([(0, pickle.dumps(("value", bytes(3_000_000))))])
        assert worker.answers(1) == [(0, bytes(3_000_000))]
        worker.child.send([(1, pickle.dumps(("value", 1)))])
        assert worker.answers(1) == [(1, 1)]


def test_an_error_and_a_result_that_cannot_be_sent_are_told_with_the_job_and_the_worker_goes_on() -> None:
    with desk(acting.turn) as worker:
        worker.give(*enumerate([("fail", 1), ("odd", 2), ("lock", 3), ("exit", 0), ("interrupt", 0), ("value", 9)]))
        failures = dict(worker.answers(6))
        assert failures.pop(5) == 9
        errors = [failure.error("here") for failure in failures.values()]
        assert [type(error).__name__ for error in errors] == ["ValueError", "WorkerFailed", "SpecError", "StopRaised", "StopRaised"]
        assert "in turn" in errors[0].__notes__[0]
        assert isinstance(errors[2], SpecError)
        assert errors[2].where == "the result of job 2"
        assert "a value of type _thread.lock cannot be sent to another process" in errors[2].what
        assert 'or use executor="threads", where nothing is sent' in errors[2].fix


def test_a_job_that_cannot_be_read_is_its_own_error() -> None:
    with desk(acting.turn) as worker:
        worker.give((4, acting.Unreadable()), (5, ("value", 1)))
        failed, done = worker.answers(2)
        assert (failed[0], str(failed[1].error("here"))) == (4, "this cannot be read")
        assert done == (5, 1)


def test_the_worker_ends_by_itself_when_there_are_no_more_tickets_and_does_first_what_it_has() -> None:
    with desk(acting.square) as worker:
        worker.give((0, 2), (1, 3))
        worker.no_more()
        assert worker.answers(2) == [(0, 4), (1, 9)]
        with pytest.raises(WorkerDied) as caught:
            worker.child.receive()
        assert "ended with exit code 0" in caught.value.what


def test_the_worker_ends_with_its_pipe_though_somebody_holds_a_copy_of_the_tickets() -> None:
    with desk(acting.square) as worker:
        worker.give((0, 2))
        assert worker.answers(1) == [(0, 4)]
        worker.child.stop(10.0)
        assert worker.child.exit_code == 0


def test_a_function_that_the_worker_cannot_read_is_an_error_in_words() -> None:
    with desk(acting.Unreadable()) as worker:
        with pytest.raises(PlanError) as caught:
            worker.child.receive()
        assert caught.value.what == "the function cannot be found in a worker process: this cannot be read"
        assert caught.value.fix.startswith("import what it needs inside it, put its modules where other processes find them")
