"""What a worker process does: make the items of one worker and send them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock._contracts.event import Times, clocks, times_since
from penstock._processes.outbox import Outbox
from penstock._processes.pipe import Pipe
from penstock.enqueuer.given import Given

__all__ = ["FINISHED", "ITEM", "NOTHING", "Duty", "serve_items"]

ITEM, NOTHING, FINISHED = 0, 1, 2
"""What a message of the worker is: an item, the place of a None, the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """What one worker is to do.

    Attributes:
        given: what to feed from.
        worker: its number.
        num_workers: of all.
        seed: for `np.random` and `random`; None takes one from the system.
        share: whether it gives items worker, worker + num_workers, ... only.
        credit: how many items it may send before it is granted more.
        where: words for errors.
    """

    given: Given
    worker: int
    num_workers: int
    seed: int | None
    share: bool
    credit: int
    where: str


def serve_items(pipe: Pipe, duty: Duty) -> None:
    """Send all items of a duty and the end; as many ahead as the parent grants."""
    # Without a seed of its own, each copy of a forked process would draw the same random numbers.
    np.random.seed(None if duty.seed is None else duty.seed % 2**32)
    random.seed(duty.seed)
    sender = _Sender(pipe, duty)
    iterator = duty.given.open(duty.worker, duty.num_workers)
    cut = duty.share and not duty.given.takes_share
    try:
        begin = clocks()
        for number, item in enumerate(iterator):
            if not cut or number % duty.num_workers == duty.worker:
                sender.give(item, times_since(begin))
            begin = clocks()
    finally:
        if hasattr(iterator, "close"):
            iterator.close()
    sender.finish()


class _Sender:
    """Sends items, each for one credit."""

    def __init__(self, pipe: Pipe, duty: Duty) -> None:
        self._pipe = pipe
        self._outbox = Outbox(pipe, where=duty.where)
        self._credit = duty.credit
        self._keeps_places = duty.share

    def give(self, item: Any, times: Times) -> None:
        """Send an item, and when it was made; of None its place, when places count."""
        if item is None and not self._keeps_places:
            return
        while self._credit == 0:
            granted, slots = self._pipe.receive()
            self._credit += granted
            self._outbox.given_back(slots)
        self._credit -= 1
        if item is None:
            self._pipe.send(NOTHING)
        else:
            self._outbox.send(item, times)

    def finish(self) -> None:
        """Say that there are no more."""
        self._pipe.send(FINISHED)
