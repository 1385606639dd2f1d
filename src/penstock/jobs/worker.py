"""What a worker process does: jobs, one after the other, as long as there are tickets.

A ticket is the number of a job in a pipe that the parent can read as well: what it reads there, this worker will not do. The kernel gives
each ticket to one of them, so a job is never done twice, no lock is shared, and a worker that computes need not be asked.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import time
from collections import deque
from typing import Any

from penstock._processes.failure import Failure
from penstock._processes.pipe import Pipe, pickled
from penstock.errors import PlanError, SpecError

__all__ = ["TICKET", "work"]

TICKET = struct.Struct("<q")
_HELD_S = 0.005
"""Results of jobs that took less than this together are told together: a message costs 30 us."""


def work(pipe: Pipe, function: bytes) -> None:
    """Do jobs until the parent closes the tickets.

    The first message brings the descriptor of the tickets. The others are lists of (number, pickle of the job), in the order of the
    tickets. Answers are (seconds, [(number, done or not, pickle of the result or of a Failure), ...]).

    Raises:
        PlanError: the function cannot be found here.
    """
    pipe.receive()
    tickets = pipe.take_fd()
    try:
        _Desk(pipe, tickets, _function(function)).serve()
    finally:
        os.close(tickets)


def _function(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as error:
        raise PlanError(
            f"the function cannot be found in a worker process: {error}",
            where="parallel_jobs(fn, ...)",
            fix="put it into a module and import it (a notebook or `python -c` has no file that a worker could read), or use "
            'executor="threads"',
        ) from error


class _Desk:
    def __init__(self, pipe: Pipe, tickets: int, function: Any) -> None:
        self._pipe = pipe
        self._tickets = tickets
        self._function = function
        self._jobs: deque[tuple[int, bytes]] = deque()
        self._answers: list[tuple[int, bool, bytes]] = []
        self._busy_s = 0.0

    def serve(self) -> None:
        told_s = time.perf_counter()
        while (number := self._next()) is not None:
            data = self._job(number)
            began_s = time.perf_counter()
            self._answers.append((number, *self._outcome(number, data)))
            now_s = time.perf_counter()
            self._busy_s += now_s - began_s
            if now_s - told_s >= _HELD_S:
                self._tell()
                told_s = now_s

    def _next(self) -> int | None:
        """Take a ticket; wait for one, with nothing left to tell, when there is none. None when there will be no more."""
        while True:
            try:
                ticket = os.read(self._tickets, TICKET.size)
            except BlockingIOError:  # none yet, or the parent was quicker
                self._tell()
                poll = select.poll()
                poll.register(self._tickets, select.POLLIN)
                poll.poll()
                continue
            if not ticket:
                self._tell()
                return None
            return int(TICKET.unpack(ticket)[0])

    def _job(self, number: int) -> bytes:
        """Return the job of a ticket; those before it were taken back."""
        while True:
            while self._jobs:
                found, data = self._jobs.popleft()
                if found == number:
                    return data
            self._jobs.extend(self._pipe.receive())

    def _outcome(self, number: int, data: bytes) -> tuple[bool, bytes]:
        try:
            return True, pickled(self._function(pickle.loads(data)), f"the result of job {number}")
        except BaseException as error:
            return False, pickle.dumps(Failure.of(_named(error, number)), protocol=5)

    def _tell(self) -> None:
        if self._answers:
            self._pipe.send((self._busy_s, self._answers))
            self._answers, self._busy_s = [], 0.0


def _named(error: BaseException, number: int) -> BaseException:
    """Say of a result that cannot be sent what else could be done."""
    if isinstance(error, SpecError) and error.where == f"the result of job {number}":
        fix = f'{error.fix}; or use executor="threads", where nothing is sent'
        return SpecError(error.what, where=error.where, fix=fix)
    return error
