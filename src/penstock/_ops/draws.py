"""Watches the first calls of functions for draws from the random generators that all functions of a process share."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from penstock._contracts.failing import attempt

__all__ = ["Drawn", "Draws"]

_CALLS = 3

# What imports them is the user's program. A copy of a state takes 3 to 15 us.
_STATES: Mapping[str, Callable[[Any], Any]] = {
    "random": lambda module: module.getstate(),
    "numpy.random": lambda module: pickle.dumps(module.get_state(legacy=False)),
    "torch": lambda module: module.default_generator.get_state().numpy().tobytes(),
}


class Drawn(NamedTuple):
    """A function, by the name of its stage, that drew from a generator that is not its own."""

    name: str
    generator: str

    def __str__(self) -> str:
        return (
            f"'{self.name}' draws from the generator of {self.generator}, which all functions of a process share: what it gives depends on "
            "which worker runs it, and another run or a resume gives something else. Let it draw from an argument rng: "
            f"map({self.name}) with `def {self.name}(element, rng)` gets a NumPy generator that depends on seed, epoch and element only"
        )


class Draws:
    """Compares the states of shared generators around the first three calls of each function. From any thread.

    A state may be moved by another thread meanwhile. So a call counts only while the training loop waits. Where several threads run
    functions, only the first that is found is named: it may be what moves the state during the calls of another one.

    Args:
        quiet: tells whether the training loop draws nothing at the moment.
    """

    __slots__ = ("_found", "_left", "_lock", "_names", "_quiet", "_threads")

    def __init__(self, quiet: Callable[[], bool] = lambda: True) -> None:
        self._quiet = quiet
        self._lock = threading.Lock()
        self._left: dict[str, int] = {}
        self._threads: set[int] = set()
        self._names: set[str] = set()
        self._found: list[Drawn] = []

    def watched(self, fn: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return `fn`, or for its first calls what watches it. One that seeds these generators itself, as a DataLoader's, is left alone."""
        self._threads.add(threading.get_ident())
        if self._left.setdefault(name, 0 if getattr(fn, "seeds_generators", False) else _CALLS) <= 0:
            return fn
        return partial(self._call, fn, name)

    def add(self, found: Drawn) -> None:
        """Note what was found, of each function once."""
        if found.name not in self._names:
            self._names.add(found.name)
            self._found.append(found)

    def take(self) -> list[Drawn]:
        """Return what was found since the last call."""
        found, self._found = self._found, []
        return found

    def _call(self, fn: Callable[..., Any], name: str, *arguments: Any, **rng: Any) -> Any:
        self._left[name] -= 1
        # Another watched call may wait for this one: it must not be waited for.
        if self._left[name] < 0 or not self._quiet() or not self._lock.acquire(blocking=False):
            return fn(*arguments, **rng)
        try:
            before = _states()
            result = fn(*arguments, **rng)
            after = _states() if self._quiet() and not (self._names and len(self._threads) > 1) else before
            moved = next((generator for generator, state in before.items() if state != after[generator]), None)
            if moved is not None:
                self.add(Drawn(name, moved))
            return result
        finally:
            self._lock.release()


def _states() -> dict[str, Any]:
    """Return the states of the shared generators that are loaded."""
    return {name: attempt(state_of, sys.modules[name]) for name, state_of in _STATES.items() if name in sys.modules}
