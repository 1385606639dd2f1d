"""The collection of runners that are started together. Each context, such as a thread or an asyncio task, has its own."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Never

from penstock.errors import PlanError
from penstock.queues.coordinator import Coordinator
from penstock.queues.limits import no_such_keywords
from penstock.queues.runner import QueueRunner

__all__ = ["add_queue_runner", "is_collected", "start_queue_runners"]

_COLLECTION = "queue_runners"

# Never changed in place: the copy of a context would share it.
_runners: ContextVar[Mapping[str, tuple[QueueRunner, ...]]] = ContextVar("penstock_queue_runners")


def add_queue_runner(qr: QueueRunner, collection: str = _COLLECTION) -> None:
    """Add a runner to a collection of the current context, for `start_queue_runners`.

    A context is a thread's, or an asyncio task's, own: a new thread begins with empty collections, a new task with those of its creator,
    and what either adds is not seen elsewhere. A runner whose threads have ended leaves the collection by itself. Never blocks.

    Raises:
        PlanError: it is no runner.
    """
    if not isinstance(qr, QueueRunner):
        raise PlanError(f"{qr!r} is no runner", where="add_queue_runner(qr)", fix="give a QueueRunner")
    _runners.set({**_runners.get({}), collection: (*_collected(collection), qr)})


def start_queue_runners(
    coord: Coordinator | None = None, daemon: bool = True, start: bool = True, collection: str = _COLLECTION, **others: Never
) -> list[threading.Thread]:
    """Start the threads of all runners that were added in this context, and return those that are new.

    Runners that are running already are left alone. All threads are made before the first is started. Warns when none was ever added in
    this context: the runners of another thread are not seen here. Never blocks.

    Args:
        coord: stops the threads and gets their errors; without one each runner keeps its own.
        daemon: whether a program may exit while they run.
        start: whether to start them; else that is up to the caller.
        collection: which runners.
        others: none; the keywords of TensorFlow are refused with the words for them here.

    Raises:
        CoordinationError: as `QueueRunner.create_threads`; then none was started.
        PlanError: `coord` is no coordinator.
        RuntimeError: the system has no thread to give; the coordinator has stopped those that were started.
    """
    no_such_keywords("start_queue_runners()", others)
    collected, runners = _runners.get({}), _collected(collection)
    if collection in collected:
        _runners.set({**collected, collection: runners})
    else:
        warnings.warn(
            f"start_queue_runners(): no runner was added to {collection!r} in this context (thread {threading.current_thread().name!r}); "
            "add_queue_runner() must be called in the same thread or task",
            RuntimeWarning,
            stacklevel=2,
        )
    for runner in runners:
        runner.check(coord)
    threads = [thread for runner in runners for thread in runner.create_threads(coord, daemon)]
    if start:
        for runner in runners:
            runner.start()
    return threads


def is_collected(qr: QueueRunner) -> bool:
    """Return whether a runner is in the collection that `start_queue_runners` starts here."""
    return any(qr is one for one in _collected(_COLLECTION))


def _collected(collection: str) -> tuple[QueueRunner, ...]:
    return tuple(runner for runner in _runners.get({}).get(collection, ()) if not runner.has_ended())
