"""What a worker process does: jobs, one after the other, as long as there are tickets.

A ticket is the number of a job in a pipe that the parent can read as well: what it reads there, this worker will not do. The kernel gives
each ticket to one of them, so a job is never done twice, no lock is shared, and a worker that computes need not be asked.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from penstock._contracts.event import Times, clocks, times_since
from penstock._processes.failure import Failure
from penstock._processes.pipe import Pipe, PipeEnded, pickled
from penstock._processes.sending import dumps_to_program
from penstock.errors import PlanError, SpecError

__all__ = ["TICKET", "work"]

TICKET = struct.Struct("<q")
_MOST_AHEAD_BYTES = 1 << 26
_HELD_S = 0.005
_HELD_BYTES = 1 << 18
"""Results wait so long, and up to so many bytes, to be told together: a message costs 30 us."""


def work(pipe: Pipe) -> None:
    """Do jobs until the parent closes the tickets.

    The first message may be (number, pickle of a function), which is called with it while the parent may still be about to say what is to
    be done; the answer is the pickle of what it returns, or None. Then comes the pickle of the function of all jobs, with the descriptor
    of the tickets. The other messages are lists of (number, pickle of the job), in the order of the tickets. Answers to them are
    lists of (number, done or not, pickle of the result or of a Failure, when).

    Raises:
        PlanError: the function cannot be found here.
    """
    function = pipe.receive()
    if isinstance(function, tuple):
        pipe.send(_made_ahead(*function))
        function = pipe.receive()
    tickets = pipe.take_fd()
    try:
        _Desk(pipe, tickets, _function(function)).serve()
    finally:
        os.close(tickets)


def _made_ahead(number: int, data: bytes) -> bytes | None:
    """Return the pickle of what a function makes; None where it fails, which its caller will find out by itself, or makes too much."""
    with suppress(Exception):
        made = pickled(pickle.loads(data)(number), "what was made ahead", dumps_to_program)
        return made if len(made) <= _MOST_AHEAD_BYTES else None
    return None


def _function(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as error:
        raise PlanError(
            f"the function cannot be found in a worker process: {error}",
            where="parallel_jobs(fn, ...)",
            fix='import what it needs inside it, put its modules where other processes find them, or use executor="threads"',
        ) from error


class _Desk:
    """Does jobs in the main thread. A second thread tells results that wait: the job behind a quick one may last for hours."""

    def __init__(self, pipe: Pipe, tickets: int, function: Any) -> None:
        self._pipe = pipe
        self._tickets = tickets
        self._function = function
        self._jobs: deque[tuple[int, bytes]] = deque()
        self._telling = threading.Lock()
        self._answers: list[tuple[int, bool, bytes, Times]] = []
        self._waiting = threading.Event()
        self._ended = threading.Event()

    def serve(self) -> None:
        teller = threading.Thread(target=self._tell_in_time, name="penstock-teller", daemon=True)
        teller.start()
        try:
            self._work()
        finally:
            self._ended.set()
            self._waiting.set()
            teller.join()

    def _work(self) -> None:
        held_bytes = 0
        while (number := self._next()) is not None:
            data = self._job(number)
            begin = clocks()
            done, answer = self._outcome(number, data)
            with self._telling:
                self._answers.append((number, done, answer, times_since(begin)))
                first = len(self._answers) == 1
            held_bytes = len(answer) + (0 if first else held_bytes)
            if held_bytes > _HELD_BYTES:
                self._tell()
            elif first:
                self._waiting.set()

    def _tell_in_time(self) -> None:
        try:
            while not self._ended.is_set():
                self._waiting.wait()
                self._waiting.clear()
                self._ended.wait(_HELD_S)
                self._tell()
        except PipeEnded:  # the other thread finds out as well
            return

    def _next(self) -> int | None:
        """Take a ticket; wait for one, with nothing left to tell, when there is none. None when there will be no more."""
        while True:
            try:
                ticket = os.read(self._tickets, TICKET.size)
            except BlockingIOError:  # none yet, or the parent was quicker
                self._tell()
                self._wait()
                continue
            if not ticket:
                self._tell()
                return None
            return int(TICKET.unpack(ticket)[0])

    def _wait(self) -> None:
        """Wait for a ticket, or for the end of them; the end of the pipe is one too, should a forked process hold a copy of the tickets."""
        poll = select.poll()
        poll.register(self._tickets, select.POLLIN)
        poll.register(self._pipe.fileno(), 0)
        if self._tickets not in dict(poll.poll()):
            raise PipeEnded

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
            return True, pickled(self._function(pickle.loads(data)), f"the result of job {number}", dumps_to_program)
        except BaseException as error:
            return False, pickle.dumps(Failure.of(_named(error, number)), protocol=5)

    def _tell(self) -> None:
        with self._telling:
            if self._answers:
                self._pipe.send(self._answers)
                self._answers = []


def _named(error: BaseException, number: int) -> BaseException:
    """Say of a result that cannot be sent what else could be done."""
    if isinstance(error, SpecError) and error.where == f"the result of job {number}":
        fix = f'{error.fix}; or use executor="threads", where nothing is sent'
        return SpecError(error.what, where=error.where, fix=fix)
    return error
