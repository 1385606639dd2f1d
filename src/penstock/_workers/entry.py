"""What runs in the child: its guard against outliving the parent, then the function it was started for."""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import sys
import threading
from collections import ChainMap
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, NamedTuple, NoReturn, Protocol

from penstock._workers.failure import Failure
from penstock._workers.pipe import FAILURE, READY, Pipe, PipeEnded
from penstock._workers.sending import SendingPickler

GUARD = "penstock-guard"
"""The thread of a child that waits for the end of its parent, and holds no lock."""
_ORPHANED = 70
_PR_SET_PDEATHSIG = 1


class ChildSetup(NamedTuple):
    """What a child gets from its parent at the start.

    Attributes:
        end: its end of the pipe.
        lifeline: a multiprocessing Connection that never carries a byte: it ends when the parent does.
        parent: the pid of the process that started it, which need not be its parent in the sense of the system.
        dies_with_thread: whether the system may kill it when the starting thread ends: true for a main thread that is its parent.
        others: what a fork copied and only the parent may hold.
        forks: whether this child forks processes. Then it has no thread of its own, and its function, which gets this setup, watches.
    """

    end: socket.socket
    lifeline: Any
    parent: int
    dies_with_thread: bool
    others: Sequence[Any] = ()
    forks: bool = False


class Parcel:
    """A function and its arguments, read only when the child has begun, so that an error in reading them can be told."""

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._content: Any = (target, args)
        self._data: bytes | None = None

    def __getstate__(self) -> bytes:
        # Inside the pickling of the process: what may travel only while one is started (locks, connections) may travel here too.
        from multiprocessing.reduction import ForkingPickler

        file = BytesIO()
        pickler = SendingPickler(file)
        pickler.dispatch_table = ChainMap(vars(ForkingPickler)["_extra_reducers"], pickler.dispatch_table)
        pickler.dump(self._content)
        return file.getvalue()

    def __setstate__(self, data: bytes) -> None:
        self._content, self._data = None, data

    def open(self, pipe: Pipe) -> tuple[Callable[..., object], tuple[Any, ...]]:
        """Return the function and its arguments, which did not come by the pipe."""
        content = self._content if self._data is None else pickle.loads(self._data)
        self._content = self._data = None
        return content  # type: ignore[no-any-return]


class Package(Protocol):
    """A function and its arguments, on their way to a child."""

    def open(self, pipe: Pipe) -> tuple[Callable[..., object], tuple[Any, ...]]:
        """Return them; they may come by the pipe."""


def serve(setup: ChildSetup, parcel: Package) -> None:
    """Run the function with the pipe and its arguments; send the error that ends it, whatever it is."""
    for other in setup.others:
        other.close()
    # The terminal sends Ctrl-C to the children as well: the parent decides. A forked child has the parent's handlers, which are not for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see `_start` of child.py
    os.setpgid(0, 0)  # processes that the function starts end with this one
    _guard(setup)
    pipe = Pipe(setup.end)
    try:
        pipe.send_bytes(READY, b"")
        target, args = parcel.open(pipe)
        target(pipe, *((setup,) if setup.forks else ()), *args)
    except PipeEnded:  # the parent asked for the end, or is gone
        return
    except BaseException as error:
        _tell(pipe, error)
    finally:
        pipe.close()


def _tell(pipe: Pipe, error: BaseException) -> None:
    try:
        pipe.send_bytes(FAILURE, pickle.dumps(Failure.of(error), protocol=5))
    except PipeEnded:
        # The parent asked for the end and wants no result any more, so no error of one either. But one of cleaning up is not swallowed.
        if isinstance(error.__context__, PipeEnded):
            sys.excepthook(type(error), error, error.__traceback__)


def _guard(setup: ChildSetup) -> None:
    """End this process, and those that it started, when the parent ends, three times over: each way has a case that the others miss.

    - SIGKILL by the kernel when the lifeline ends (O_ASYNC): also while C code holds the interpreter. Late when a process forked by the
      parent holds a copy of its end.
    - A thread that waits for the lifeline and, through a pidfd, for the parent itself: also then. Not while C code holds the interpreter.
      In a process that forks others the function waits for them itself, beside the pipe.
    - PDEATHSIG, only where the system's parent is our parent's main thread: it is sent when the *thread* ends that forked.
    """
    import fcntl

    descriptor = setup.lifeline.fileno()
    if setup.dies_with_thread:
        _die_with_parent()
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpid())
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    parent = pidfd_of(setup.parent)
    if parent is not None:
        poll.register(parent, select.POLLIN)
    if poll.poll(0):  # it ended before the kernel was asked to tell
        os._exit(_ORPHANED)
    if not setup.forks:
        threading.Thread(target=_watch, args=(poll,), name=GUARD, daemon=True).start()


def pidfd_of(parent: int) -> int | None:
    """Return a descriptor that is readable once the parent has ended; end this process where it has. None where there is no such thing."""
    try:
        return os.pidfd_open(parent)
    except ProcessLookupError:
        os._exit(_ORPHANED)
    except (AttributeError, OSError):  # macOS, or a sandbox without the call: the lifeline remains
        return None


def run_as_child(setup: ChildSetup, parcel: Package, name: str) -> NoReturn:
    """Be a child as multiprocessing knows it, by `current_process()` and `parent_process()`, however this process was started."""
    import multiprocessing

    code = 1
    try:
        process: Any = multiprocessing.get_context("spawn").Process(target=serve, args=(setup, parcel), name=name, daemon=True)
        process._parent_pid, process._parent_name = setup.parent, "MainProcess"
        code = process._bootstrap(parent_sentinel=setup.lifeline.fileno())
    finally:
        os._exit(code)


def _watch(poll: select.poll) -> None:
    poll.poll()
    os.killpg(0, signal.SIGKILL)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
