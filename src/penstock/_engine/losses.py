"""What listeners are told of elements that failed: each retry as it is made, each loss in the order of the elements."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock._contracts.event import ElementRetried, Event
from penstock._engine.mishaps import Mishap
from penstock._ops.block import ElementFailed

__all__ = ["Losses", "tell_retry"]


def tell_retry(
    announce: Callable[[Event], Any], failed: ElementFailed, key: tuple[int, int, int], worker: int, retry: int, wait_s: float
) -> None:
    """Announce that an element will be tried again."""
    announce(ElementRetried(time.perf_counter_ns(), failed.stage, worker, key, retry, wait_s, failed.error))


class Losses:
    """Announces what was skipped and replaced. From any thread.

    Attributes:
        waiting: what was booked and is not announced yet.
        broken: the error of a listener that could not write it down; nothing may be delivered after it.
    """

    __slots__ = ("_announce", "_broke", "_telling", "broken", "waiting")

    def __init__(self, lost: deque[Mishap], announce: Callable[[Event], Any], broke: Callable[[BaseException], Any]) -> None:
        """Prepare.

        Args:
            lost: what was booked and not announced yet.
            announce: tells the listeners.
            broke: ends the run with an error.
        """
        self.waiting, self._announce, self._broke = lost, announce, broke
        self._telling = threading.Lock()
        self.broken: BaseException | None = None

    def tell(self) -> None:
        """Announce what was booked, in order; who finds somebody else at it waits."""
        lost = self.waiting
        if not lost:
            return
        try:
            with self._telling:
                while lost:
                    try:
                        self._announce(lost[0].event(time.perf_counter_ns()))
                    finally:
                        lost.popleft()  # only now: who finds nothing here may rely on everything being told
        except OSError as error:  # of a file that cannot be written: nothing may be lost unseen
            self.broken = error
            self._broke(error)
