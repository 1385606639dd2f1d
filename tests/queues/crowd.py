"""Threads around a queue, for the tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.queues import ParkingLot
from penstock.queues.base import Queue

__all__ = ["LIMIT_S", "Crowd", "lined_up", "together"]

LIMIT_S = 100.0


class Crowd:
    """Threads that run functions; leaving the block joins them, and fails when one hangs or raised."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def start(self, *functions: Callable[[], object]) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._guarded, args=(function,), daemon=True) for function in functions]
        for thread in threads:
            thread.start()
        self.threads += threads
        return threads

    def _guarded(self, function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            self.errors.append(error)
            raise

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        end_s = time.monotonic() + (LIMIT_S if error is None else 1.0)
        for thread in self.threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        if error is None:
            assert not [thread.name for thread in self.threads if thread.is_alive()]
            assert not self.errors


def together(*functions: Callable[[], object]) -> None:
    """Run all in threads of their own; fail when one hangs or raises."""
    with Crowd() as crowd:
        crowd.start(*functions)


def lined_up(queue: Queue, readers: int = 0, writers: int = 0) -> None:
    """Wait until so many stand in the lines, for at most LIMIT_S."""
    watch, looked, lines = ParkingLot(), 0, queue._exchange
    while (len(lines.readers), len(lines.writers)) != (readers, writers) and looked < LIMIT_S * 1000:
        watch.park(lambda: True, 0.001)
        looked += 1
    assert (len(lines.readers), len(lines.writers)) == (readers, writers)
