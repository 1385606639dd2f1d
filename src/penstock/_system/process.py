"""This process: its threads and what they wait for, and objects in one that is forked from it."""

from __future__ import annotations

import _thread
import ctypes
import functools
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from penstock._system.failing import ReadBrokenOff
from penstock.errors import PlanError

_T = TypeVar("_T")


class OwnLocks:
    """A lock for each process: a thread that held one when another thread forked is not there to let go of it in the child.

    `with locks.own():` is held by one thread of this process. What it guards may have been in the middle of a change at the fork, and is
    put in order by whoever is the first to be told that `is_new`. From any thread.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._locks = {self._pid: threading.Lock()}

    def __reduce__(self) -> tuple[type[OwnLocks], tuple[()]]:
        """Be new in another process."""
        return OwnLocks, ()

    def own(self) -> threading.Lock:
        """Return the lock of this process."""
        pid = os.getpid()
        return self._locks.get(pid) or self._locks.setdefault(pid, threading.Lock())

    def is_new(self) -> bool:
        """Tell, once and only with the lock in hand, that this process was forked from the one that was told so or made this."""
        pid = os.getpid()
        if pid == self._pid:
            return False
        self._pid = pid
        return True


def call_in_forked(owner: _T, function: Callable[[_T], object]) -> None:
    """Have `function(owner)` called in each process that is forked from this one, before anything else runs there.

    So `owner` need not ask at each step in which process it is: `os.getpid` costs 190 ns, where a feed hands on an element in 450 ns.
    """
    _in_forked()[owner] = function


def leak(thing: object) -> None:
    """Keep an object until this process ends, and never finalise it, not even at the exit of the interpreter.

    For what belongs to the parent: an event loop that is closed in a forked process takes its parent's descriptors out of the epoll set
    that both share, a file writes the same buffer a second time, and the `finally` of a generator may remove a file.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class WorkerPlace:
    """Which of the worker processes of a feed this one is.

    Attributes:
        index: its number; None in the program.
        num_workers: how many there are.
    """

    __slots__ = ("index", "num_workers")

    def __init__(self) -> None:
        self.index: int | None = None
        self.num_workers = 0


@functools.cache
def worker_place() -> WorkerPlace:
    """Return the one of this process, which its worker fills in."""
    return WorkerPlace()


@functools.cache
def _in_forked() -> weakref.WeakKeyDictionary[Any, Callable[[Any], object]]:
    functions: weakref.WeakKeyDictionary[Any, Callable[[Any], object]] = weakref.WeakKeyDictionary()

    def call_all() -> None:
        for owner, function in list(functions.items()):
            function(owner)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call_all)
    return functions


def why_no_processes() -> str:
    """Return why this process can start no worker process; an empty text where it can. Imports nothing."""
    if sys.platform == "win32":
        return "they need Linux or macOS, and this is Windows; in WSL they run"
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None and process.current_process().daemon:
        return "this is a daemonic process, such as a worker of multiprocessing.Pool or of a feed, and those start no processes"
    if getattr(sys, "frozen", False):
        return "this program is frozen into one file: no Python interpreter is there that could be started"
    spawn: Any = sys.modules.get("multiprocessing.spawn")
    if not (sys.executable if spawn is None else spawn.get_executable()):
        return "sys.executable names no Python interpreter that could be started"
    return ""


def current_frames() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by the thread's number.

    Clear the result after use: the caller's own frame is in it, so it is a reference cycle.

    `sys._current_frames` holds the interpreter's list of threads while it allocates. Before Python 3.11.9 and 3.12.3 the garbage collector
    may run in between and let another thread run; if that one starts or ends a thread, the process hangs for ever
    (https://github.com/python/cpython/issues/106883). So the collector is off meanwhile.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_enabled:
            gc.enable()


# -- waits that are ended from outside --------------------------------------------------------------------------------------------


class Breaker:
    """Ends the waits of the threads that attach themselves, now and from then on.

    `break_off` takes no lock and may be called from any thread, in finalisers and signal handlers.
    """

    __slots__ = ("_broken", "_ends")

    def __init__(self) -> None:
        self._broken = False
        self._ends: dict[int, Callable[[], object]] = {}

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Have the waits of this thread end with this breaker, in the `with` block: the body of a worker."""
        before, _here.breaker = _here.breaker, self
        try:
            yield
        finally:
            _here.breaker = before

    @property
    def is_attached(self) -> bool:
        """Whether it is this thread that is attached."""
        return _here.breaker is self

    def break_off(self) -> None:
        """End all waits, and each later one as soon as it begins. A second call does nothing more."""
        self._broken = True
        for end in list(self._ends.values()):
            end()

    @contextmanager
    def _ending(self, end: Callable[[], object]) -> Iterator[None]:
        thread = threading.get_ident()
        self._ends[thread] = end
        if self._broken:  # looked at behind the entry: who breaks off looks at the entries behind its mark
            end()
        try:
            yield
        finally:
            del self._ends[thread]


class _Here(threading.local):
    breaker: Breaker | None = None


_here = _Here()


def in_worker_thread() -> bool:
    """Tell whether this thread is a worker of a feed."""
    return _here.breaker is not None


@contextmanager
def breakable(end: Callable[[], object], interrupted: type[BaseException], shown: str) -> Iterator[None]:
    """Have a wait of this thread ended by `end()` when its breaker breaks off.

    Args:
        end: ends the wait, from any thread; must not block.
        interrupted: what the wait raises then.
        shown: what is waited for, for the error.

    Raises:
        ReadBrokenOff: it was broken off.
    """
    breaker = _here.breaker
    if breaker is None:
        yield
        return
    try:
        with breaker._ending(end):
            yield
    except interrupted:
        if not breaker._broken:
            raise
        raise ReadBrokenOff(
            f"{shown!r} was being read when its feed was closed", where=shown, fix="close the feed behind the last read"
        ) from None


def refuse_on_windows(where: str, instead: str) -> None:
    """Refuse what needs worker processes, or locks of files between processes.

    Raises:
        PlanError: this is Windows.
    """
    if sys.platform == "win32":
        raise PlanError(f"{where} needs Linux or macOS, and this is Windows", where=where, fix=f"{instead}, or run the program in WSL")


def refuse_while_imported(where: str) -> None:
    """Refuse to run while this process is started by multiprocessing and imports the program: all of it would run again.

    Raises:
        PlanError: it does.
    """
    module = sys.modules.get("multiprocessing.process")
    if module is not None and getattr(module.current_process(), "_inheriting", False):
        raise PlanError(
            f"{where} is reached while a child process imports the program, so what the program does is done again there",
            where=where,
            fix="put what the program does under `if __name__ == '__main__':`, as multiprocessing asks of a program that starts processes",
        )


def uninterrupted(call: Callable[[], _T]) -> _T:
    """Make a short call in a thread of its own and wait for its end: no signal handler, which runs in the main thread, raises amid it.

    Raises:
        BaseException: what the call raised; or, behind its end, what a signal handler raised meanwhile.
    """
    if threading.get_ident() != threading.main_thread().ident or sys.is_finalizing():  # no other thread runs any more
        return call()
    returned: list[_T] = []
    raised: list[BaseException] = []
    done = threading.Lock()
    done.acquire()

    def run() -> None:
        try:
            returned.append(call())
        except BaseException as error:
            raised.append(error)
        finally:
            done.release()

    interrupt = None
    try:
        _thread.start_new_thread(run, ())
    except BaseException as error:
        if isinstance(error, RuntimeError) and getattr(error.__traceback__, "tb_next", None) is None:  # no thread can be started
            return call()
        interrupt = error  # of a signal handler: one that raises a RuntimeError, too, has a frame of its own
    while not (returned or raised):
        try:
            done.acquire()
        except BaseException as error:
            interrupt = error
    for failure in filter(None, [interrupt, *raised]):
        raise failure
    return returned[0]
