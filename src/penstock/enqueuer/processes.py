"""Worker processes of a GeneratorEnqueuer: each has a generator of its own, and their items are taken in turn."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock._contracts.event import clocks, times_since
from penstock._workers.child import Child, stop_all, wait_any
from penstock._workers.failure import Failure
from penstock._workers.inbox import Inbox
from penstock._workers.outbox import Outbox
from penstock._workers.pipe import Pipe, PipeEnded
from penstock.enqueuer.enqueuer import Made, iterator_of, takes_share

_MOST_LEASED = 256  # items in shared memory, each with a descriptor; those beyond are copied out


class ItemProcesses:
    """The processes of one `start()`. One thread takes items; others may `wake` it.

    Args:
        thing: what the user gave.
        name: of the enqueuer.
        num_workers: how many processes.
        credit: items that each may send ahead of the one that is taken.
        random_seed: process i gets `random_seed + i`; None: each one of the system.
        share: whether process i gives items i, i + n, i + 2n, ... alone.
        method: how to start them, as `Child.start` has it.

    Attributes:
        at: the number of the process that the last item or error is of.
    """

    def __init__(self, thing: Any, name: str, num_workers: int, credit: int, random_seed: int | None, share: bool, method: str) -> None:
        self.at = 0
        self._woken = False
        self._workers: dict[Child, tuple[int, Inbox]] = {}
        try:
            for worker in range(num_workers):
                seed = None if random_seed is None else random_seed + worker
                args = thing, name, worker, num_workers, credit, seed, share
                child = Child.start(_serve, args, name=f"worker {worker} of {name}", method=method)
                self._workers[child] = worker, Inbox(_MOST_LEASED // num_workers)
        except BaseException:
            self.stop(0.0)
            raise

    def items(self) -> Iterator[Made]:
        """Take an item of each process in turn.

        Raises:
            WorkerDied: a process has ended before its generator; at once, whoever's turn it is.
            BaseException: what a generator raised, at its turn.
        """
        turn = deque(self._workers)
        while turn:
            child = turn[0]
            ready = wait_any([child], alive=[other for other in turn if other is not child])
            if self._woken:
                return
            child = child if child in ready else ready[0]
            self.at, inbox = self._workers[child]
            while child is not turn[0]:  # it has died: up to its last word, which is raised
                child.receive()
            message = child.receive()
            if isinstance(message, Failure):
                raise message.error(f"{child.name}, process {child.pid}")
            if message is None:
                turn.popleft()
                continue
            turn.rotate(-1)
            yield Made(self.at, message.about, inbox.open(message, child.take_fd))
            child.offer(inbox.take_returned())

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [child.pid for child in self._workers]

    def wake(self) -> None:
        """Ask the processes to end, which ends `items`. From any thread."""
        self._woken = True
        for child in self._workers:
            child.ask()

    def stop(self, grace_s: float) -> None:
        """End the processes: one that does not end within `grace_s` is killed."""
        stop_all(list(self._workers), grace_s)


def _serve(pipe: Pipe, thing: Any, name: str, worker: int, num_workers: int, credit: int, seed: int | None, share: bool) -> None:
    """Send the items of one process, as many ahead as there is credit, and what ended them: an error, or None."""
    # Without a seed of its own, each copy of a forked process would draw the same random numbers.
    np.random.seed(None if seed is None else seed % 2**32)
    random.seed(seed)
    outbox = Outbox(pipe, where=f"worker {worker} of {name}")
    step = num_workers if share and not takes_share(thing) else 1
    end = None
    try:
        begin = clocks()
        for number, item in enumerate(iterator_of(thing, name, worker, num_workers)):
            times = times_since(begin)
            if number % step == worker % step:
                if credit:
                    credit -= 1
                else:
                    outbox.given_back(pipe.receive())
                outbox.send(item, times)
            begin = clocks()
    except PipeEnded:
        raise
    except BaseException as error:
        end = Failure.of(error)
    pipe.send(end)
    while True:  # until the parent asks for the end: one that ended by itself would look dead before its turn
        pipe.receive()
