"""Functions that worker processes import."""

from __future__ import annotations

import os
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
