"""The meaning of a stop: the state of one run, the error that is kept, errors that are a normal end, and errors between threads."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeAlias

from penstock._system.failing import add_note, cause_of, traceback_of, words_of, would_end
from penstock._system.parking import ParkingLot
from penstock.errors import PlanError, QueueClosed, StopRaised

CLEAN: tuple[type[BaseException], ...] = (QueueClosed,)
"""What ends threads normally when nothing else is named."""

ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
Unraised: TypeAlias = "weakref.finalize[[str], object]"


class CoordinatedRun:
    """What belongs to one run: from the making of a coordinator, or its `clear_stop`, to the next one.

    A deque loses nothing when two threads, or a thread and a signal handler inside it, take from it at once: each callback is called once.
    """

    def __init__(self) -> None:
        self.stopped_s: float | None = None
        self.joined = False
        self.first: BaseException | None = None
        self.unraised: Unraised | None = None
        self.errors: list[BaseException] = []
        self.callbacks: deque[Callable[[], object]] = deque()
        self.threads: dict[threading.Thread, None] = {}
        self.lot = ParkingLot()

    def keep(self, error: BaseException) -> None:
        """Keep an error for the join; should nobody take it, a warning comes when the coordinator is dropped or the program exits."""
        if self.first is None:
            self.first = error
        if not self.errors:
            self.unraised = tell_when_dropped(self, "a coordinator", error, "call join() before the coordinator goes")
        self.errors.append(error)

    def take(self) -> list[BaseException]:
        """Return the errors that were kept, to be raised by the caller."""
        errors, self.errors = self.errors, []
        if self.unraised is not None:
            self.unraised.detach()
        return errors

    def call_back(self, guard: Callable[[], AbstractContextManager[None]]) -> None:
        """Call each callback once, inside a guard of its own; one that an exception interrupts is left for the next request."""
        while True:
            try:
                callback = self.callbacks.popleft()
            except IndexError:
                return
            try:
                with guard():
                    callback()
            except BaseException:
                self.callbacks.appendleft(callback)
                raise


def is_clean(error: BaseException, clean: tuple[type[BaseException], ...], stopped: bool = False) -> bool:
    """Tell whether an error means a normal end.

    By default (`clean is CLEAN`) a read that found too few elements is none, unless a stop came before it: what is left would be lost, and
    nobody told.
    """
    return isinstance(error, clean) and (stopped or clean is not CLEAN or not getattr(error, "num_left", 0))


def reported(ex: object) -> BaseException | None:
    """Return the error that a request for a stop reports; None for none.

    Args:
        ex: an exception, `sys.exc_info()` or None.

    Raises:
        PlanError: `ex` is nothing of these.
    """
    traceback = None
    if isinstance(ex, tuple) and len(ex) == 3:
        _, ex, traceback = ex
    if ex is None:
        return None
    if not isinstance(ex, BaseException):
        raise PlanError(
            f"request_stop got {ex!r}, which is no exception",
            where="Coordinator.request_stop(ex)",
            fix="give the exception that was caught, sys.exc_info(), or nothing",
        )
    if traceback_of(ex) is None:
        ex = BaseException.with_traceback(ex, traceback)
    return ex


def told_as_error(error: BaseException) -> BaseException:
    """Return an error fit to be raised in another thread: one that would pass for an end there becomes a StopRaised."""
    if not would_end(error):
        return error
    stopped = StopRaised(
        f"thread {threading.current_thread().name!r} raised {words_of(error)}",
        where=f"thread {threading.current_thread().name!r}",
        fix="raise another exception for an error; for a normal end give an iterator, or list the type among those that are clean",
    )
    stopped.__cause__ = error
    return stopped


def passes_on(error: BaseException) -> bool:
    """Tell whether an exception is for the thread that it is raised in.

    Ctrl-C and SystemExit in another thread than the main one end nothing but that thread, and silently: there they are errors.
    """
    if isinstance(error, Exception):
        return False
    return not isinstance(error, (KeyboardInterrupt, SystemExit)) or threading.current_thread() is threading.main_thread()


def exception_types(given: Any, *, where: str) -> tuple[type[BaseException], ...]:
    """Return the exception types of an argument as a tuple: one type, several, or None for the default.

    Raises:
        PlanError: something else is among them.
    """
    if given is None:
        return CLEAN
    types = (given,) if isinstance(given, type) else tuple(given)
    wrong = [kind for kind in types if not (isinstance(kind, type) and issubclass(kind, BaseException))]
    if wrong:
        raise PlanError(
            f"{wrong[0]!r} is no exception type", where=where, fix="give exception classes, such as (QueueClosed, StopIteration)"
        )
    return types


def attach_others(first: BaseException, others: list[BaseException]) -> BaseException:
    """Return the first error, with a note for each of the others."""
    for other in others:
        if other is not first and other is not cause_of(first):
            add_note(first, f"penstock: also failed: {words_of(other)}")
    return first


def tell_when_dropped(owner: object, name: str, error: BaseException, fix: str) -> Unraised:
    """Have a warning tell of an error that its owner kept and nobody raised: when the owner is dropped, or the program exits.

    Whoever raises it calls `detach` of what this returns.
    """
    words = f"{name} was dropped with an error that nobody has raised: {words_of(error)}; {fix}"  # not the error: it may hold the owner
    return weakref.finalize(owner, _warn, words)


def _warn(words: str) -> None:
    warnings.warn(words, RuntimeWarning, stacklevel=3)
