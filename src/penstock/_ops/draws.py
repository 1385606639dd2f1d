"""Watches the first calls of functions for draws from the random generators that all functions of a process share."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from penstock._system.failing import attempt
from penstock._system.process import OwnLocks

_CALLS = 3

# What imports them is the user's program. A copy of a state takes 3 to 15 us.
_STATES: Mapping[str, Callable[[Any], Any]] = {
    "random": lambda module: module.getstate(),
    "numpy.random": lambda module: pickle.dumps(module.get_state(legacy=False)),
    "torch": lambda module: module.default_generator.get_state().numpy().tobytes(),
}


class Draws:
    """Compares the states of shared generators around the first three calls of each function. From any thread.

    A state may be moved by another thread meanwhile. So a call counts only while the training loop waits. Where several workers run
    functions, only the first that is found is named: it may be what moves the state during the calls of another one.

    It also passes on what else a worker has to say of a function or of itself, in whatever process.

    Args:
        quiet: tells whether the training loop draws nothing at the moment.
    """

    __slots__ = ("_found", "_has_found", "_left", "_locks", "_quiet", "_told", "_workers")

    def __init__(self, quiet: Callable[[], bool] = lambda: True) -> None:
        self._quiet = quiet
        self._locks = OwnLocks()
        self._left: dict[str, int] = {}
        self._workers: set[int] = set()
        self._has_found = False
        self._told: set[str] = set()
        self._found: list[tuple[str, str]] = []

    def watched(self, fn: Callable[..., Any], name: str, worker: object) -> Callable[..., Any]:
        """Return `fn`, or for its first calls what watches it. One that seeds these generators itself, as a DataLoader's, is left alone."""
        self._workers.add(id(worker))
        if self._left.setdefault(name, 0 if getattr(fn, "seeds_generators", False) else _CALLS) <= 0:
            return fn
        return partial(self._call, fn, name)

    def add(self, kind: str, text: str) -> None:
        """Note a text that is no empty one, and of that kind of notice, once."""
        if text and text not in self._told:
            self._told.add(text)
            self._found.append((kind, text))

    def take(self) -> list[tuple[str, str]]:
        """Return what was noted since the last call."""
        found, self._found = self._found, []
        return found

    def _call(self, fn: Callable[..., Any], name: str, *arguments: Any, **rng: Any) -> Any:
        self._left[name] -= 1
        # Another watched call may wait for this one: it must not be waited for.
        lock = self._locks.own()
        if self._left[name] < 0 or not self._quiet() or not lock.acquire(blocking=False):
            return fn(*arguments, **rng)
        try:
            before = _states()
            result = fn(*arguments, **rng)
            after = _states() if self._quiet() and not (self._has_found and len(self._workers) > 1) else before
            moved = next((generator for generator, state in before.items() if state != after[generator]), None)
            if moved is not None:
                self._has_found = True
                self.add("random", _words(name, moved))
            return result
        finally:
            lock.release()


def _words(name: str, generator: str) -> str:
    return (
        f"'{name}' draws from the generator of {generator}, which all functions of a process share: what it gives depends on which worker "
        "runs it, and another run or a resume gives something else. Let it draw from an argument rng: "
        f"map({name}) with `def {name}(element, rng)` gets a NumPy generator that depends on seed, epoch and element only"
    )


def _states() -> dict[str, Any]:
    """Return the states of the shared generators that are loaded."""
    return {name: attempt(state_of, sys.modules[name]) for name, state_of in _STATES.items() if name in sys.modules}
