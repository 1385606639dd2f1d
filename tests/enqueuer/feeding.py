"""Generators for the tests, at the top of a module so that a fork server can import them."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps


def twenty() -> Iterator[int]:
    yield from range(20)


def nothing() -> Iterator[int]:
    yield from ()


def endless() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def some_none() -> Iterator[int | None]:
    for number in range(12):
        yield None if number % 3 == 1 else number


def bad_at_five() -> Iterator[int]:
    yield from range(5)
    raise LookupError("no sixth")


def leaves() -> Iterator[int]:
    yield 0
    sys.exit(0)


def stops_oddly() -> Any:
    class Odd:
        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            raise KeyboardInterrupt

    return Odd()


def batches() -> Iterator[dict[str, Any]]:
    for number in range(6):
        yield {"image": np.full((8, 32, 32, 3), number, np.float32), "label": np.full(8, number), "name": f"batch {number}"}


def own_share(worker: int, num_workers: int) -> Iterator[tuple[int, int]]:
    for number in range(worker, 21, num_workers):
        yield number, worker


def noise() -> Iterator[tuple[int, int]]:
    for _ in range(3):
        yield int(np.random.randint(10**9)), random.randrange(10**9)


def pids() -> Iterator[int]:
    while True:
        yield os.getpid()


def one_lock() -> Iterator[Any]:
    yield np.zeros(3)
    yield {"x": np.zeros(3), "f": threading.Lock()}


def one_file() -> Iterator[Any]:
    with open(os.devnull) as file:
        yield file


class Dies:
    """Sends itself a signal behind so many items."""

    def __init__(self, after: int, number: int) -> None:
        self.after, self.number = after, number

    def __call__(self) -> Iterator[Any]:
        for count in range(self.after):
            yield np.full(5000, count)
        os.kill(os.getpid(), self.number)
        yield "never"


class KillsItself:
    """A callable with a place: worker 0 kills itself before its item number `after`, others go on for ever."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, worker: int, num_workers: int) -> Iterator[Any]:
        for count in range(10**9):
            if worker == 0 and count == self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            yield np.full(5000, count)


class WritesAtEnd:
    """Writes a file when it is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> Iterator[int]:
        try:
            yield from endless()
        finally:
            self.path.write_text("closed")


def stuck_at_three() -> Iterator[int]:
    yield from range(3)
    threading.Event().wait()


def deaf_at_three() -> Iterator[int]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield from stuck_at_three()


def not_iterable() -> int:
    return 7


def fails_in_the_making() -> Iterator[int]:
    raise FileNotFoundError("no list")


def stuck_or_pid(worker: int, num_workers: int) -> Iterator[int]:
    if worker == 1:
        threading.Event().wait()
    while True:
        yield os.getpid()


def deaf_and_pid() -> Iterator[int]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield os.getpid()
    threading.Event().wait()


class Counts:
    """Each item is how many this process has made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self) -> Iterator[int]:
        number = 0
        while True:
            number += 1
            yield number


def uneven(worker: int, num_workers: int) -> Iterator[str]:
    for number in range(3 - worker):
        yield f"{worker}:{number}"


def fails_in_worker_one(worker: int, num_workers: int) -> Iterator[str]:
    for number in range(5):
        if (worker, number) == (1, 1):
            raise ValueError("of worker 1")
        yield f"{worker}:{number}"


class Ends:
    """Gives its process and an array of the item's number; ends in some way at one item."""

    def __init__(self, end: str, num: int, at: int) -> None:
        self.end, self.num, self.at = end, num, at

    def __call__(self, worker: int, num_workers: int) -> Iterator[Any]:
        for number in range(worker, self.num, num_workers):
            if number == self.at and self.end == "error":
                raise KeyError(number)
            if number == self.at and self.end == "death":
                os.kill(os.getpid(), signal.SIGKILL)
            yield os.getpid(), np.full((1, 10, 3000, 20_000)[number * 7 % 11 % 4], number)


class Unreadable:
    def __init__(self) -> None:
        self.array = np.zeros(5000)

    def __setstate__(self, state: Any) -> None:
        raise ValueError("not to be read")


def unreadable() -> Iterator[Any]:
    yield "before"
    yield Unreadable()


def two_thousand() -> Iterator[Any]:
    for number in range(2000):
        yield np.full(1000, number)


def take(enqueuer: ps.GeneratorEnqueuer, got: list[Any]) -> None:
    """Append all items, so that those before an error can be looked at."""
    for item in enqueuer.get():
        got.append(item)  # noqa: PERF402


def load(key: int) -> dict[str, Any]:
    if key % 5 == 3:
        raise ValueError(f"{key} is bad")
    return {"x": np.full(2, key, np.float32), "label": key}


class Holds:
    """Gives one item when a FIFO is written to."""

    def __init__(self, fifo: Path) -> None:
        self.fifo = fifo

    def __call__(self) -> Iterator[str]:
        yield self.fifo.read_text()
