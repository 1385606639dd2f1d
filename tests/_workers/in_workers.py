"""Functions that worker processes import."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np


def busy(element: int) -> Any:
    """Compute in Python for some 0.2 ms; return the number, and the process that has computed it."""
    total = 0
    for number in range(3000):
        total += number * element
    return {"number": np.int64(element), "total": np.int64(total % 1000), "pid": np.int64(os.getpid())}


def numbered(element: int) -> Any:
    """Return the number, and the process that has read it."""
    return {"number": np.int64(element), "below": np.int64(os.getpid())}


def numbered_but_six(element: int) -> Any:
    """Fail at 6."""
    if element == 6:
        raise ValueError("six")
    return numbered(element)


def first_numbered(elements: tuple[int, int]) -> Any:
    return numbered(elements[0])


def twice(element: Any) -> list[Any]:
    return [element, element]


def drawn(element: Any, rng: Any) -> Any:
    """Add a random number to an element, or to all elements of a tuple; a dict stays as it is."""
    if isinstance(element, tuple):
        return tuple(drawn(one, rng) for one in element)
    return element if isinstance(element, dict) else element + rng.integers(1000)


def marked(element: Any) -> Any:
    """Add the process that runs this."""
    return {**element, "above": np.int64(os.getpid())}


def abs_or_die(number: int) -> int:
    """Return a number; end the process at a negative one."""
    return os._exit(3) if number < 0 else number  # type: ignore[return-value,no-any-return]


class SlowToRead:
    """A function that a process takes 1.5 s to read."""

    def __call__(self, element: int) -> int:
        return element

    def __getstate__(self) -> int:
        return 1

    def __setstate__(self, state: int) -> None:
        time.sleep(1.5)


class Bound:
    """Values, by default the numbers up to `length`, and a function that gives what it gets. A lock binds it to its process."""

    def __init__(self, length: int, values: Sequence[int] | None = None) -> None:
        self._values, self._lock = range(length) if values is None else values, threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> int:
        return self._values[index]

    def __call__(self, element: Any) -> Any:
        return element


def draws(element: int) -> Any:
    """Return numbers of the global generators, and the process."""
    time.sleep(0.001)  # so that other workers have their share
    return {"numpy": np.random.randint(1 << 40), "python": random.getrandbits(40), "pid": os.getpid()}


def with_process(element: int) -> tuple[int, int]:
    return element, os.getpid()


def pools(element: int) -> Any:
    """Return what the variables of native pools say."""
    return {name: os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}


class StartsThread:
    """A function that starts a thread where it is read, as some modules do when they are imported."""

    def __call__(self, element: int) -> int:
        return element

    def __setstate__(self, state: Any) -> None:
        threading.Thread(target=threading.Event().wait, name="a thread of a module", daemon=True).start()

    def __getstate__(self) -> int:
        return 1


class ReadsForever:
    """A function that takes for ever to be read; it tells by a named pipe when that begins."""

    def __init__(self, fifo: str) -> None:
        self._fifo = fifo

    def __call__(self, element: int) -> int:
        return element

    def __setstate__(self, state: Any) -> None:
        with open(state["_fifo"], "wb"):
            pass
        threading.Event().wait()
