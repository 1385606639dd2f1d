"""What a request for a stop means: the state of one run, the error that is kept, and those that are none."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from penstock.errors import PlanError, StopRaised
from penstock.queues.failing import words_of, would_end
from penstock.queues.parking import ParkingLot

__all__ = ["ExcInfo", "Run", "error_to_keep", "exception_types", "passes_on"]

ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Run:
    """What belongs to one run: from the making of a coordinator, or its `clear_stop`, to the next one.

    A deque loses nothing when two threads, or a thread and a signal handler inside it, take from it at once: each callback is called once.
    """

    def __init__(self) -> None:
        self.stopped_s: float | None = None
        self.joined = False
        self.first: BaseException | None = None
        self.errors: list[BaseException] = []
        self.callbacks: deque[Callable[[], object]] = deque()
        self.threads: dict[threading.Thread, None] = {}
        self.lot = ParkingLot()

    def __del__(self) -> None:
        if self.errors:
            warnings.warn(
                f"a coordinator was dropped with an error that nobody has raised: {words_of(self.errors[0])}; "
                "call join() before the coordinator goes",
                RuntimeWarning,
                stacklevel=1,
            )

    def call_back(self, guard: Callable[[], AbstractContextManager[None]]) -> None:
        """Call each callback once, inside a guard of its own."""
        while True:
            try:
                callback = self.callbacks.popleft()
            except IndexError:
                return
            with guard():
                callback()


def error_to_keep(ex: object, clean: tuple[type[BaseException], ...]) -> BaseException | None:
    """Return the error that a request for a stop reports; None when it reports none, or a clean one.

    Args:
        ex: an exception, `sys.exc_info()` or None.
        clean: the types that mean a normal end.

    Raises:
        PlanError: `ex` is nothing of these.
    """
    traceback = None
    if isinstance(ex, tuple) and len(ex) == 3:
        _, ex, traceback = ex
    if ex is None or isinstance(ex, clean):
        return None
    if not isinstance(ex, BaseException):
        raise PlanError(
            f"request_stop got {ex!r}, which is no exception",
            where="Coordinator.request_stop(ex)",
            fix="give the exception that was caught, sys.exc_info(), or nothing",
        )
    if ex.__traceback__ is None:
        ex = ex.with_traceback(traceback)
    if not would_end(ex):
        return ex
    stopped = StopRaised(
        f"thread {threading.current_thread().name!r} reported {words_of(ex)}",
        where="Coordinator.request_stop(ex)",
        fix="raise another exception for an error, or list this type in clean_stop_exception_types for a normal end",
    )
    stopped.__cause__ = ex
    return stopped


def passes_on(error: BaseException) -> bool:
    """Tell whether an exception is for the thread that it is raised in.

    Ctrl-C and SystemExit in another thread than the main one end nothing but that thread, and silently: there they are errors.
    """
    if isinstance(error, Exception):
        return False
    return not isinstance(error, (KeyboardInterrupt, SystemExit)) or threading.current_thread() is threading.main_thread()


def exception_types(given: Any, default: tuple[type[BaseException], ...], *, where: str) -> tuple[type[BaseException], ...]:
    """Return the exception types of an argument as a tuple: one type, several, or None for the default.

    Raises:
        PlanError: something else is among them.
    """
    if given is None:
        return default
    types = (given,) if isinstance(given, type) else tuple(given)
    wrong = [kind for kind in types if not (isinstance(kind, type) and issubclass(kind, BaseException))]
    if wrong:
        raise PlanError(
            f"{wrong[0]!r} is no exception type", where=where, fix="give exception classes, such as (QueueClosed, StopIteration)"
        )
    return types
