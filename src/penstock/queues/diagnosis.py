"""What keeps a wait from ending, asked by the thread that waits, so no thread watches.

Three grades. *Certain*: no thread that could end the wait is free to do so, an error at once. *Likely*: something was made and never
started, or all threads that served the queue have ended: one warning after `LIKELY_S`. Otherwise a warning after the patience of the queue,
with what the threads at the other end are doing. The first sentence has the slip, the user's line and a remedy.

The number of living threads says nothing. A wait can be ended by the threads that have served the queue, and by those that lead to it
(`_Search`), if they are free or their own wait without limit can be ended. The main thread leads to everything while it is free: the next
lines of a notebook are not written yet.
"""

from __future__ import annotations

import gc
import opcode
import signal
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock._contracts.process import current_frames
from penstock.queues.standing import INSTALLED, OURS, PYTHONS, USERS, kind_of, level_of_caller, where_stand

if TYPE_CHECKING:
    from penstock.queues.base import Queue

PATIENCE_S = 60.0
"""How long a call waits before it says so."""

LIKELY_S = 5.0
"""The same where a slip is likely."""

SOON_S = 0.02
"""Most waits are over by then; only one that is not is looked into. A wait is hopeless when two looks so far apart find it so."""

_LOOK_S = 0.5
"""How often the main thread looks; others look less and less often, at last every LIKELY_S."""

_CROWD = 32
"""Up to this many waits inspect the other threads whenever they like. A larger number takes turns, with a pause of `_REST` times the length
of an inspection after each: a thousand waits that each inspect a thousand threads left no time for anything else."""

_REST = 20

_MOST_NAMED = 4

_MOST = 50_000
"""So many objects are looked at for one thread: 30 ms. Beyond that a thread with the user's code on its stack is taken to come to the
object, and one that has only code of packages on it is not: the kernel of a notebook and a test runner lead to all that there is."""

_DEEPEST = 12
"""Steps from the stack of a thread that has only code of packages on it. A coroutine in an event loop is found in 8."""

_IMPORT, _EXTENDED = opcode.opmap["IMPORT_NAME"], opcode.opmap["EXTENDED_ARG"]
_HEAP_TYPE = 1 << 9
_BARREN = (ModuleType, CodeType, FrameType, TracebackType)
_BY_NAME_ONLY = (ContextVar, threading.local)  # what they hold in another thread cannot be seen from here
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)


class Producer(Protocol):
    """Something that fills a queue with threads of its own, such as a QueueRunner."""

    @property
    def name(self) -> str:
        """What to call it in a warning."""

    @property
    def queue(self) -> Queue:
        """What it fills."""

    @property
    def words(self) -> str:
        """What to call it in a sentence, with the line that made it."""

    def threads(self) -> Sequence[threading.Thread]:
        """Return its threads, those that have ended included; empty before they were made."""

    def unstarted(self) -> tuple[str, str] | None:
        """Return what was made and not started, and the call that starts it; None when it runs or has ended."""


RUNNERS: weakref.WeakSet[Producer] = weakref.WeakSet()
"""All that fill queues, for a wait at the queue of none of them."""


class Users:
    """The threads that were seen at one end of a queue, and those that lead to it.

    A thread is kept by a weak reference beside its number: the system gives the number of one that has ended to the next one.

    Attributes:
        since_ns: when the first of them was seen.
        native_ids: what the system calls each of them.
        clocks: of each, (time, CPU time) when it was seen first and last, in ns.
    """

    __slots__ = ("clocks", "could", "native_ids", "seen", "since_ns")

    def __init__(self) -> None:
        self.seen: dict[int, tuple[str, weakref.ref[threading.Thread]]] = {}
        self.could: dict[int, weakref.ref[threading.Thread]] = {}
        self.native_ids: dict[int, int] = {}
        self.clocks: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
        self.since_ns = 0

    def note(self) -> None:
        """Note the calling thread."""
        ident = threading.get_ident()
        now = time.perf_counter_ns(), time.thread_time_ns()
        if ident not in self.seen:
            thread = threading.current_thread()
            self.since_ns = self.since_ns or now[0]
            self.native_ids[ident] = threading.get_native_id()
            self.clocks[ident] = now, now
            self.seen[ident] = thread.name, weakref.ref(thread)  # last: an interrupt may come between
        else:
            self.clocks[ident] = self.clocks[ident][0], now

    def others(self) -> list[str]:
        """Return the names of the threads seen but the calling one."""
        own = threading.current_thread()
        return [name for name, thread in list(self.seen.values()) if thread() is not own]

    def alive(self, threads: dict[int, threading.Thread]) -> set[int]:
        """Return those of the threads seen, and of those that lead here, that are alive."""
        known = [(ident, thread) for ident, (_, thread) in list(self.seen.items())] + list(self.could.items())
        return {ident for ident, thread in known if ident in threads and threads[ident] is thread()}


class Link(Protocol):
    """A wait without limit, and what could end it."""

    def pending(self) -> bool:
        """Return whether it still waits."""

    def known(self, threads: dict[int, threading.Thread]) -> set[int]:
        """Return the numbers of the living threads that are known to be able to end it."""

    def targets(self) -> Iterable[object]:
        """Return the objects of which a thread that comes to one can end it."""

    def remember(self, ident: int, thread: threading.Thread) -> None:
        """Note that a thread leads to one of them."""


class WatchedWait(Link, Protocol):
    """A call of this room that waits without limit."""

    def joins(self, thread: threading.Thread) -> bool:
        """Return whether it waits for the end of a thread."""

    def blames(self, joiner: int) -> bool:
        """Return whether the slip is the join of a thread which joins this one, and not here."""

    def certain(self) -> Exception:
        """Return the error of a wait that no thread can end."""

    def likely(self) -> str | None:
        """Return the warning where a slip is likely."""

    def long(self, waited_s: float) -> str:
        """Return the warning of a wait that lasts long for no reason that is known."""


_waits: dict[int, WatchedWait] = {}
"""The waits without limit, by the number of their thread."""


@contextmanager
def waiting(wait: WatchedWait) -> Iterator[None]:
    """Let other threads know that the calling one waits without limit. A signal handler may wait inside a wait."""
    own = threading.get_ident()
    outer = _waits.get(own)
    _waits[own] = wait
    try:
        yield
    finally:
        if outer is None:
            _waits.pop(own, None)
        else:
            _waits[own] = outer


def waits() -> dict[int, WatchedWait]:
    """Return the waits without limit of all threads, by the number of the thread."""
    return {ident: wait for ident, wait in list(_waits.items()) if wait.pending()}


class WaitWatch:
    """Looks into one wait now and then, in the thread that waits.

    Args:
        wait: the wait.
        patience_s: when a warning comes, if no slip is known.
        may_fail: whether a hopeless wait is an error: it has no limit of its own.
    """

    def __init__(self, wait: WatchedWait, patience_s: float, may_fail: bool) -> None:
        self._wait = wait
        self._in_main = threading.current_thread() is threading.main_thread()
        self._was_hopeless = False
        self._look_s = 0.0 if may_fail else float("inf")
        self._likely_s: float = min(LIKELY_S, patience_s) if patience_s < float("inf") else patience_s
        self._warn_s: float = patience_s

    def look(self, waited_s: float) -> float:
        """Raise or warn if it is time to; return how many seconds to wait until the next look.

        Raises:
            Exception: that of `WatchedWait.certain`.
        """
        if waited_s >= min(self._look_s, self._likely_s) and _looks.begin():
            try:
                self._look_into(waited_s)
            finally:
                _looks.end()
        if self._warn_s <= waited_s < self._likely_s:
            self._warn_s = 2 * waited_s
            _warn(self._wait.long(waited_s))
        next_s = min(self._look_s, self._likely_s, self._warn_s) - waited_s
        if next_s <= 0:  # others look at the moment: a crowd asks less often
            next_s = SOON_S * max(1.0, len(_waits) / _CROWD)
        # A signal that comes right before the main thread sleeps does not wake it (see `parking`).
        return min(next_s, _LOOK_S) if self._in_main else next_s

    def _look_into(self, waited_s: float) -> None:
        if waited_s >= self._look_s:
            hopeless = _is_hopeless(threading.get_ident(), self._wait)
            if hopeless and self._was_hopeless and self._wait.pending():
                raise self._wait.certain()
            self._was_hopeless = hopeless
            step_s = SOON_S if hopeless else _LOOK_S if self._in_main else min(max(_LOOK_S, waited_s), LIKELY_S)
            self._look_s = waited_s + step_s
        if waited_s >= self._likely_s:
            self._likely_s = float("inf")
            words = self._wait.likely()
            if words is not None:
                self._warn_s = float("inf")
                _warn(words)


class _Looks:
    """Keeps the looks of a crowd to a twentieth of the time. Without a lock, which a fork would leave locked."""

    def __init__(self) -> None:
        self._begun_at = self._free_at = 0.0

    def begin(self) -> bool:
        """Return whether the calling thread may look now."""
        now = time.monotonic()
        if now < self._free_at and len(_waits) > _CROWD:
            return False
        self._begun_at, self._free_at = now, now + LIKELY_S  # or until the end of this look
        return True

    def end(self) -> None:
        now = time.monotonic()
        self._free_at = now + _REST * (now - self._begun_at)


_looks = _Looks()


def _warn(words: str) -> None:
    warnings.warn(words, RuntimeWarning, stacklevel=level_of_caller())


def threads_at(idents: Iterable[int]) -> str:
    """Say of threads where they are."""
    threads = living()
    words = [f"thread {thread.name!r} is at {where}" for thread, where in where_stand(threads[i] for i in idents if i in threads).items()]
    return "; ".join(words[:_MOST_NAMED]) + (f"; and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else "")


_Member = TypeVar("_Member")


def members(known: weakref.WeakSet[_Member]) -> list[_Member]:
    """Return what is in a WeakSet: to iterate over one fails when another thread adds to it meanwhile, to copy the set inside does not."""
    references: set[weakref.ref[_Member]] = known.data  # type: ignore[attr-defined]
    return [item for reference in list(references) if (item := reference()) is not None]


def unstarted_threads(targets: Iterable[object]) -> list[threading.Thread]:
    """Return the threads that were made and not started, and would come to one of some objects."""
    known: weakref.WeakSet[threading.Thread] = getattr(threading, "_dangling", weakref.WeakSet())
    made = members(known)
    starting = set(threading.enumerate())
    search = _Search(list(targets))
    return [thread for thread in made if thread.ident is None and thread not in starting and search.from_thread(None, thread)]


def main_is_free() -> bool:
    """Return whether the main thread is alive, is not the calling one and has no wait without limit."""
    main = threading.main_thread()
    return main.is_alive() and main is not threading.current_thread() and main.ident not in waits()


def living() -> dict[int, threading.Thread]:
    """Return the living threads by their numbers."""
    return {thread.ident: thread for thread in threading.enumerate() if thread.ident is not None}


def _is_hopeless(own: int, wait: WatchedWait) -> bool:
    """Return whether neither a free thread nor one whose own wait can be ended can end the wait of this thread."""
    threads = living()
    frames = current_frames()
    try:
        return _Circle(own, wait, threads, frames).is_closed()
    finally:
        frames.clear()  # this function's own frame is among them: a cycle that would keep the elements alive


class _Circle:
    """The threads that wait, directly or not, for what only one another could do, beginning with the calling one."""

    def __init__(self, own: int, wait: WatchedWait, threads: dict[int, threading.Thread], frames: dict[int, FrameType]) -> None:
        self._threads, self._frames = threads, frames
        self._waits: dict[int, Link] = {ident: other for ident, other in list(_waits.items()) if ident in frames and other.pending()}
        for ident, thread in threads.items():
            joined = None if ident in self._waits or ident not in frames else _joined(frames[ident])
            if joined is not None and thread is not joined:
                self._waits[ident] = _Join(joined)
        self._waits[own] = wait
        self._inside: dict[int, Link] = {own: wait}

    def is_closed(self) -> bool:
        """Return whether none of them can be helped from outside."""
        while True:
            if self._helped_by_known():
                return False
            found = self._others()
            if not found:
                return not self._helped_by_chance()
            if not found <= self._waits.keys():
                return False
            self._inside.update((ident, self._waits[ident]) for ident in found)

    def _helped_by_known(self) -> bool:
        """Go on to all threads that are known to help; return whether one of them is free."""
        todo = list(self._inside.values())
        while todo:
            for ident in todo.pop().known(self._threads):
                if ident not in self._waits:
                    return True
                if ident not in self._inside:
                    self._inside[ident] = self._waits[ident]
                    todo.append(self._waits[ident])
        main = threading.main_thread()
        return main.is_alive() and main.ident not in self._waits

    def _others(self) -> set[int]:
        """Return the first thread outside that leads to something which is waited for inside."""
        waits = list(self._inside.values())
        targets = [target for wait in waits for target in wait.targets()]
        search = _Search(targets)
        outside = [ident for ident in self._frames if ident not in self._inside]
        for ident in sorted(outside, key=self._waits.__contains__):  # free ones first
            thread = self._threads.get(ident)
            if search.from_thread(self._frames[ident], thread):
                if thread is not None and ident not in self._waits:
                    for wait in waits:
                        wait.remember(ident, thread)
                return {ident}
        return set()

    def _helped_by_chance(self) -> bool:
        """Return whether a thread that starts in this moment, or the handler of a signal, leads inside."""
        search = _Search([target for wait in self._inside.values() for target in wait.targets()])
        starting = [thread for thread in threading.enumerate() if thread.ident not in self._frames]
        return any(search.from_thread(None, thread) for thread in starting) or search.from_signals()


class _Join:
    """A `Thread.join` without limit."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    def pending(self) -> bool:
        return self._thread.is_alive()

    def known(self, threads: dict[int, threading.Thread]) -> set[int]:
        return {self._thread.ident} if self._thread.ident is not None and self._thread.is_alive() else set()

    def targets(self) -> Iterable[object]:
        return ()

    def remember(self, ident: int, thread: threading.Thread) -> None:
        return None


def _joined(frame: FrameType | None) -> threading.Thread | None:
    """Return the thread that the thread of a stack has joined without limit."""
    for _ in range(2):  # up to Python 3.12 the lock is waited for one call further in
        if frame is None or frame.f_code.co_filename != threading.__file__:
            return None
        if frame.f_code.co_name == "join" and frame.f_locals.get("timeout", 0) is None:
            thread = frame.f_locals.get("self")
            return thread if isinstance(thread, threading.Thread) else None
        frame = frame.f_back
    return None


class _Search:
    """One look at the threads of this process: which of them could come to one of some objects.

    A thread of a notebook's kernel, of a progress bar or of a log cannot fill a queue that it does not know. The frames of a thread
    tell what it knows: their variables, and the globals that the user's code names, functions that these call included. Modules and the
    dictionaries of modules are not searched as a whole, for everything leads to everything through them. The search is breadth first,
    with limits, and needed only where no thread is known to have used the queue.
    """

    def __init__(self, targets: Collection[object]) -> None:
        self._targets = {id(target) for target in targets}
        self._module_dicts = {id(vars(module)) for module in list(sys.modules.values()) if isinstance(module, ModuleType)}
        self._module_dicts.add(id(sys.modules))

    def from_thread(self, frame: FrameType | None, thread: threading.Thread | None) -> bool:
        """Return whether a thread could come to one of the objects; `frame` is the innermost of its stack, None before it runs."""
        roots: list[Any] = [thread]
        users = frame is None  # it was not started, or starts in this moment
        unknown = False
        while frame is not None:
            code, kind = frame.f_code, kind_of(frame.f_code.co_filename)
            users = users or kind == USERS
            if frame.f_locals is not frame.f_globals:
                roots += list(frame.f_locals.values())
            if kind in (USERS, INSTALLED):
                unknown = unknown or (kind == USERS and _imports_unknown(code))
                roots += self._named(code, frame.f_globals)
            frame = frame.f_back
        return unknown or self._found(roots, users)

    def from_signals(self) -> bool:
        """Return whether the handler of a signal could come to one of the objects."""
        handlers = [signal.getsignal(number) for number in signal.valid_signals()]
        return self._found([handler for handler in handlers if callable(handler) and handler is not signal.default_int_handler], False)

    def _found(self, roots: list[Any], users: bool) -> bool:
        seen: dict[int, Any] = {}  # the objects too, so that no other one gets the number of one that goes meanwhile
        level, depth = roots, 0
        while level and (users or depth < _DEEPEST):
            below: list[Any] = []
            for item in level:
                if id(item) in seen or id(item) in self._module_dicts:
                    continue
                if id(item) in self._targets or (users and type(item) is _Unknown):
                    return True
                seen[id(item)] = item
                if len(seen) > _MOST or (type(item) in _CONTAINERS and len(item) > _MOST):
                    return users
                below += [other for other in self._below(item) if gc.is_tracked(other)]
            level, depth = below, depth + 1
        return False

    def _below(self, item: Any) -> list[Any]:
        kind = type(item)  # not isinstance(): a proxy of a user may run code when it is asked for its class
        if issubclass(kind, _BARREN):
            return []
        if kind is FunctionType:
            return self._of_function(item)
        if issubclass(kind, type):
            return _of_type(item)
        below = gc.get_referents(item)
        if issubclass(kind, weakref.ref):
            below.append(weakref.ref.__call__(item))
        return below

    def _of_function(self, function: FunctionType) -> list[Any]:
        held: list[Any] = [function.__closure__, function.__defaults__, function.__kwdefaults__, vars(function)]
        kind = kind_of(function.__code__.co_filename)
        if kind in (PYTHONS, OURS):
            return held
        if kind == USERS and _imports_unknown(function.__code__):
            held.append(_Unknown())
        return held + self._named(function.__code__, function.__globals__)

    def _named(self, code: CodeType, known: dict[str, Any]) -> list[Any]:
        """Return the globals that code names, and what it names of the modules among them."""
        names = set(_names(code))
        values = [known[name] for name in names if name in known]
        modules = [value for value in values if issubclass(type(value), ModuleType)]
        modules += [sys.modules[name] for name in names if name in sys.modules and name not in known]
        for module in modules:
            if kind_of(vars(module).get("__file__") or "<frozen ") in (USERS, INSTALLED) or module.__name__ == "__main__":
                values += [vars(module)[name] for name in names if name in vars(module)]
        return [_Unknown() if issubclass(type(value), _BY_NAME_ONLY) else value for value in values]


class _Unknown:
    """In place of something that cannot be looked into: an instance is tracked by the collector, so it is not sorted out."""


def _of_type(kind: type) -> list[Any]:
    """Return what a class of the user holds: its methods, its attributes, its bases."""
    if not kind.__flags__ & _HEAP_TYPE:
        return []
    module = sys.modules.get(str(kind.__module__))
    file = getattr(module, "__file__", None) or ("<frozen " if kind.__module__ in sys.builtin_module_names else "<user>")
    return [*vars(kind).values(), *kind.__bases__] if kind_of(file) == USERS else []


def _names(code: CodeType) -> Iterator[str]:
    """Give the names in code, that of functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _imports_unknown(code: CodeType) -> bool:
    """Return whether code imports what was not imported yet: nothing is known of what that will do."""
    extended, raw = 0, code.co_code
    for place in range(0, len(raw), 2):
        operation, number = raw[place], raw[place + 1] | extended
        extended = number << 8 if operation == _EXTENDED else 0
        if operation == _IMPORT and code.co_names[number] not in sys.modules:
            return True
    return any(_imports_unknown(constant) for constant in code.co_consts if isinstance(constant, CodeType))
