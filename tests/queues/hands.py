"""Real threads that do what a test tells them, one thing after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

LIMIT_S = 30.0


class Hand:
    """A thread; `do` runs a function in it and returns or raises what that does."""

    def __init__(self, name: str, start: bool = True) -> None:
        self.name = name
        self._orders: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        if start:
            self.thread.start()

    def _serve(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                self._results.put((order(), None))
            except BaseException as error:
                self._results.put((None, error))
                del error
            del order

    def begin(self, order: Callable[[], Any]) -> None:
        self._orders.put(order)

    def result(self) -> Any:
        value, error = self._results.get(timeout=LIMIT_S)
        try:
            if error is not None:
                raise error
            return value
        finally:
            del error

    def do(self, order: Callable[[], Any]) -> Any:
        self.begin(order)
        return self.result()

    def end_soon(self) -> None:
        self._orders.put(None)

    def end(self) -> None:
        self.end_soon()
        if self.thread.ident is not None:
            self.thread.join(LIMIT_S)
            assert not self.thread.is_alive()


@contextmanager
def hands(*names: str) -> Iterator[list[Hand]]:
    """Give a thread for each name, and end them."""
    made = [Hand(name) for name in names]
    try:
        yield made
    finally:
        for hand in made:
            hand.end()


def ended(threads: Any) -> bool:
    """Wait for threads to end; tell whether all have."""
    for thread in threads:
        thread.join(LIMIT_S)
    return not any(thread.is_alive() for thread in threads)


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true, for at most LIMIT_S."""
    pause = threading.Event()
    for _ in range(int(LIMIT_S * 1000)):
        if true():
            return
        pause.wait(0.001)
    assert true()
