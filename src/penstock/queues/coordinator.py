"""Ends a set of threads together: who asks for the stop, what it wakes, and who gets the error."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Never

from penstock._system.failing import add_note
from penstock._system.frames import call_and_place, words_of_threads
from penstock._system.parking import SIGNALS_S
from penstock.errors import CoordinationError, PlanError, QueueStarved, StillRunning
from penstock.queues.diagnosis import PATIENCE_S, SOON_S, QueueWait, WaitWatch, other_threads, waits
from penstock.queues.stopping import CoordinatedRun, ExcInfo, attach_others, exception_types, is_clean, passes_on, reported, told_as_error
from penstock.queues.trees import limit_of, no_such_keywords

_SHORTEST_S = 0.1  # a grace period below this may last as long when the stop comes during the join
_LONGEST_S = 3600.0


class Coordinator:
    """Ask a set of threads to stop, wait for them, and get the first error of any of them.

    Any thread may ask for the stop, and so may a signal handler. Threads look at `should_stop()`; what they wait for is ended by the stop
    itself: it closes the queues of all runners that were started with this coordinator, in the thread that asks for it. All methods may be
    called from any thread and none blocks, but for `join` and `wait_for_stop`.

    As a context manager it reports what the block raises, asks for the stop when the block ends, and joins:

        with Coordinator() as coord:
            start_queue_runners(coord)
            ...

    Args:
        clean_stop_exception_types: exceptions that mean a normal end: reporting one asks for the stop and is no error. By default
            `QueueClosed`, but not that of a read that found too few elements before any stop: those would be lost without a word.

    Attributes:
        patience_s: seconds after which a `join` without a stop says so, and again after twice as long.

    Raises:
        PlanError: something among the types is no exception type, or there is another keyword.
    """

    patience_s: float = PATIENCE_S

    def __init__(self, clean_stop_exception_types: Iterable[type[BaseException]] | None = None, **others: Never) -> None:
        no_such_keywords("Coordinator()", others)
        self._clean = exception_types(clean_stop_exception_types, where="Coordinator(clean_stop_exception_types)")
        # Reentrant: a signal handler that asks for the stop may interrupt any method in its own thread.
        self._mutex = threading.RLock()
        self._run = CoordinatedRun()
        self._told: set[threading.Thread] = set()

    def should_stop(self) -> bool:
        """Tell whether a stop was requested; also true, after `clear_stop`, in threads of the run before that have not ended."""
        return self._run.stopped_s is not None or self._is_told()

    @property
    def joined(self) -> bool:
        """Whether a `join` has ended since the last `clear_stop`, and no thread was registered since."""
        return self._run.joined

    def request_stop(self, ex: BaseException | ExcInfo | None = None) -> None:
        """Ask all threads to stop, end what they wait for, and keep the error for `join`.

        The callbacks of `on_stop` run in this thread before the call returns. A second request does nothing but report its error. A thread
        of the run before a `clear_stop` stops nothing by it, unless with an error.

        Args:
            ex: an exception or `sys.exc_info()`. The first is raised by `join`, also when a stop without an error came before it; later
                ones are its notes. One of the clean types is no error. One that would pass for an end (StopIteration, SystemExit, ...)
                becomes a `StopRaised`.

        Raises:
            PlanError: `ex` is neither.
            BaseException: `ex` itself, when `join` has ended already and nobody would get it.
        """
        error = reported(ex)
        is_told = self._is_told()
        with self._mutex:
            run = self._run
            if error is not None:
                clean = is_clean(error, self._clean, stopped=is_told or run.stopped_s is not None)
                error = None if clean else told_as_error(error)
            if error is None and is_told:
                return
            late = error is not None and run.joined
            if error is not None and not late:
                run.keep(error)  # before the stop: who sees that must be able to ask for the error
            if run.stopped_s is None:
                run.stopped_s = time.monotonic()
        run.lot.ring_all()
        run.call_back(self.stop_on_exception)
        if late and error is not None:
            raise error

    def wait_for_stop(self, timeout_s: float | None = None, **others: Never) -> bool:
        """Block until a stop is requested, at most `timeout_s` (None: without limit); return whether one was.

        Raises:
            PlanError: `timeout_s` is no number >= 0.
        """
        no_such_keywords("Coordinator.wait_for_stop()", others)
        run, limit_s = self._run, limit_of(timeout_s)
        if self._is_told():
            return True
        until_s = None if limit_s is None else time.monotonic() + limit_s
        while run.stopped_s is None:
            left_s = None if until_s is None else until_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            run.lot.park(lambda: run.stopped_s is None, left_s)
        return True

    def stop_on_exception(self) -> _StopOnException:
        """Return a context manager that ends its block at an exception and gives that to `request_stop`.

        What is for its own thread goes on there, and asks for a stop without an error: GeneratorExit, a task's cancellation, and in the
        main thread Ctrl-C and SystemExit.
        """
        return _StopOnException(self)

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Have `callback()` called once, at the next stop, by the thread that asks for it; at once when a stop was requested already.

        It must not block. Its errors are reported as those of threads are.
        """
        with self._mutex:
            run = self._run
            waits = run.stopped_s is None
            if waits:
                run.callbacks.append(callback)
        if not waits:
            with self.stop_on_exception():
                callback()

    def register_thread(self, thread: threading.Thread) -> None:
        """Have `join` wait for a thread, started or not.

        Raises:
            PlanError: it is no `threading.Thread`.
        """
        _checked([thread], "Coordinator.register_thread(thread)")
        with self._mutex:
            self._told.discard(thread)
            self._run.threads[thread] = None
            self._run.joined = False

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_s: float | None = 120.0,
        ignore_live_threads: bool = False,
        **others: Never,
    ) -> None:
        """Block until the threads have ended, then raise the first error, once.

        Waits without limit until a stop is requested, then at most `stop_grace_period_s`. Ctrl-C is served at once and asks for a stop.

        Args:
            threads: to wait for, besides those registered, also later by others.
            stop_grace_period_s: seconds from the stop, or from this call if that came later, for all together; None waits for ever.
            ignore_live_threads: return all the same when some are still alive.
            others: none; the keywords of TensorFlow are refused with the words for them here.

        Raises:
            BaseException: the first error given to `request_stop`, with its own traceback. Later errors and the threads that are still
                alive are its notes. A second `join` raises it no more.
            StillRunning: without an error, the threads that are still alive, with the line in which each is. They stay registered.
            CoordinationError: called from a thread that it would wait for; or one was never started, and the others have ended without a
                stop.
            PlanError: a grace period that is no number >= 0, something among the threads that is none, or another keyword.
        """
        no_such_keywords("Coordinator.join()", others)
        limit_s = limit_of(stop_grace_period_s, "stop_grace_period_s")
        grace_s = math.inf if limit_s is None else limit_s
        run = self._enter(threads)
        try:
            self._wait(run, grace_s)
        except BaseException as interrupt:
            self.request_stop()
            attach_others(interrupt, run.errors)  # they stay for the next join
            raise
        self._check_started(run)
        self._leave(run, grace_s, ignore_live_threads)

    def clear_stop(self) -> None:
        """Begin a new run: `should_stop()` is false again, for new threads.

        Threads of the run before that have not ended are not called back to work: they go on being told to stop, and are no longer waited
        for. A queue that was closed stays closed.

        Raises:
            BaseException: an error that no `join` has raised. The new run has begun all the same.
        """
        with self._mutex:
            before = self._run
            if before.stopped_s is None:
                before.joined = False
                return
            self._told = {thread for thread in (*self._told, *before.threads) if thread.ident is None or thread.is_alive()}
            self._run = CoordinatedRun()
            errors = before.take()
        _note(errors, "")
        if errors:
            raise errors.pop(0)  # this frame may not hold it: error, traceback and frame would be a cycle

    def raise_requested_exception(self) -> None:
        """Raise the first error of this run, each time; do nothing when there is none. `join` raises it all the same."""
        first = self._run.first
        if first is not None:
            try:
                raise first
            finally:
                del first  # or the error, its traceback and this frame would be a cycle

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> bool:
        if error is not None and not self.stop_on_exception().__exit__(kind, error, traceback):
            with self._mutex:
                others = self._run.take()
            attach_others(error, others)
            return False
        self.request_stop()
        self.join()
        return True

    def _is_told(self) -> bool:
        return bool(self._told) and threading.current_thread() in self._told

    def _enter(self, threads: Iterable[threading.Thread] | None) -> CoordinatedRun:
        given = _checked(() if threads is None else threads, "Coordinator.join(threads)")
        current = threading.current_thread()
        with self._mutex:
            run = self._run
            waited = {**run.threads, **dict.fromkeys(given)}
            if current not in waited:
                run.threads, run.joined = waited, False
                return run
        raise CoordinationError(
            f"thread {current.name!r} would wait for itself",
            where="Coordinator.join()",
            fix="join from a thread that is not registered, such as the main one; a registered one returns when should_stop() is true",
        )

    def _wait(self, run: CoordinatedRun, grace_s: float) -> None:
        """Wait for one thread after the other.

        A stop does not wake this, and need not: it only sets a limit, at least one grace period ahead. So looking once in each grace period
        is never too late. The main thread looks twice a second: a signal that comes right before a wait is served only after it.
        """
        entered_s = time.monotonic()
        slice_s = min(max(grace_s, _SHORTEST_S), _LONGEST_S)
        if threading.current_thread() is threading.main_thread():
            slice_s = min(slice_s, SIGNALS_S)
        left_s = SOON_S
        with WaitWatch(_JoinWait(run), self.patience_s) as watch:
            while (thread := next(filter(threading.Thread.is_alive, list(run.threads)), None)) is not None:
                thread.join(min(left_s, slice_s))
                if run.stopped_s is None:
                    try:
                        left_s = watch.look(time.monotonic() - entered_s)
                    except (CoordinationError, QueueStarved) as hopeless:
                        self.request_stop(hopeless)  # as one of a thread, which may find the same in this moment
                if run.stopped_s is not None:
                    left_s = max(run.stopped_s, entered_s) + grace_s - time.monotonic()
                    if left_s <= 0:
                        return

    def _check_started(self, run: CoordinatedRun) -> None:
        # Only now: a thread that is still alive may have been about to start one that it had registered.
        unstarted = [thread.name for thread in list(run.threads) if thread.ident is None]
        if unstarted and run.stopped_s is None:
            raise CoordinationError(
                f"{len(unstarted)} thread(s) were never started: {', '.join(unstarted)}",
                where="Coordinator.join()",
                fix="start them first: create_threads(start=True), or thread.start() for each",
            )

    def _leave(self, run: CoordinatedRun, grace_s: float, ignore_live_threads: bool) -> None:
        with self._mutex:
            alive = [thread for thread in run.threads if thread.is_alive()]
            run.threads = dict.fromkeys(alive)
            run.joined = True  # from here on errors are raised where they are reported
        words = words_of_threads(alive)
        _note(list(run.errors), f"penstock: still running after {grace_s:g} s: {words}" if alive else "")
        with self._mutex:  # at the last moment: a Ctrl-C before it leaves the error to the next join
            errors = run.take()
        if errors:
            raise errors.pop(0)  # this frame may not hold it: error, traceback and frame would be a cycle
        if alive and not ignore_live_threads:
            raise StillRunning(
                f"{len(alive)} thread(s) did not stop inside {grace_s:g} s: {words}",
                where="Coordinator.join()",
                fix="have them look at should_stop(), and give what they wait for a limit; or give a longer stop_grace_period_s",
            )


class _JoinWait:
    """A join before any stop was requested: its threads may wait for what the joining one could do."""

    def __init__(self, run: CoordinatedRun) -> None:
        self._run = run
        call, place = call_and_place()
        self._here = f"{'join' if call == 'join' else 'the end of the block'}{'()' * (call == 'join')} at {place}"

    def pending(self) -> bool:
        """Return whether it still waits for a thread, and no stop was requested."""
        return self._run.stopped_s is None and any(thread.is_alive() for thread in list(self._run.threads))

    def error(self) -> Exception:
        """Return the error of a join that never ends: that of a read which no thread serves, where there is one."""
        for wait in waits():
            if isinstance(wait, QueueWait) and wait.reads:
                return wait.error()
        return CoordinationError(
            f"no stop was requested, so {self._here} would wait for ever: call request_stop() before it, or use `with coord:`",
            where=f"Coordinator.join(){other_threads()}",
            fix="request_stop() ends the waits of all threads at their queues; join() waits for them then",
        )

    def warning(self, waited_s: float, is_long: bool) -> str | None:
        """Return the warning; None before the patience is over, for threads that work for hours are no slip."""
        if not is_long:
            return None
        return (
            f"no stop was requested, and {self._here} has waited {waited_s:.0f} s: call request_stop() before it if the threads do not end "
            f"by themselves\n  where: Coordinator.join(){other_threads()}"
        )


class _StopOnException:
    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> bool:
        if error is None:
            return False
        if passes_on(error):
            self._coordinator.request_stop()
            return False
        self._coordinator.request_stop(error)
        return True


def _note(errors: list[BaseException], note: str) -> None:
    """Give the first of some errors its notes."""
    if errors:
        attach_others(errors[0], errors)
        if note:
            add_note(errors[0], note)


def _checked(threads: Any, where: str) -> list[threading.Thread]:
    """Return the threads that an argument holds."""
    given = list(threads) if isinstance(threads, Iterable) else [threads]
    wrong = [item for item in given if not isinstance(item, threading.Thread)]
    if wrong:
        raise PlanError(f"{wrong[0]!r} is no thread", where=where, fix="give threading.Thread objects, such as create_threads() returns")
    return given
