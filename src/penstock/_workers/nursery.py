"""A process that the workers of one feed are forked from: it imports what their functions need, and reads them, once for all.

    nursery = Nursery()
    nursery.load(load, args, descriptor)                   # calls load(*args, descriptor) there
    child = nursery.fork(target, args, name="worker 0")    # runs target(pipe, *args, loaded) in a fork of it; a `Child` like any other

It has no Python thread but its main one and no pool of native threads, so that no lock of theirs stays locked in a fork. An import may
start threads all the same: `Loaded` names them.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from penstock._system.memory import private_memory
from penstock._workers.child import Child, Ends, wait_any
from penstock._workers.entry import GUARD, ChildSetup, Parcel, pidfd_of, run_as_child
from penstock._workers.executed import UNKNOWN
from penstock._workers.failure import Failure
from penstock._workers.pipe import Pipe, PipeEnded
from penstock.errors import WorkerDied, WorkerFailed

FORKS = sys.platform == "linux"
"""Whether workers are forked: frameworks of Apple that a function imports may crash in a fork."""

_NAME = "the process that worker processes are forked from"
_SAFE = frozenset({"jemalloc_bg_thd"})
"""Names of native threads whose libraries handle a fork: jemalloc's, in pyarrow, purges memory, and is not needed in a copy."""

_ENDING_S, _LOOKS = 0.01, 5
_JOIN_S, _DEAF_S, _GRACE_S = 1.0, 5.0, 0.3


class Loaded(NamedTuple):
    """The answer when all is read.

    Attributes:
        private_bytes: memory of the process that it shares with no other.
        threads: names of threads that imports have started.
    """

    private_bytes: int
    threads: list[str]


class _Load(NamedTuple):
    load: Callable[..., object]
    args: tuple[Any, ...]


class _Fork(NamedTuple):
    target: Callable[..., object]
    args: tuple[Any, ...]
    name: str


class _Reap(NamedTuple):
    pid: int


class _Forked(NamedTuple):
    pid: int
    has_pidfd: bool


class Nursery:
    """The process, from any thread. Its user sees to it that one at a time calls `load` and `fork`.

    Attributes:
        loads: whether it starts, or loads, which may take a minute.
    """

    def __init__(self, method: Literal["exec", "fork"] = "exec") -> None:
        """Start the process: by "fork" a copy of this one, for one that runs no thread that such a copy would miss.

        Raises:
            OSError: it cannot be started.
        """
        self.loads = True
        self._asking = threading.Lock()
        self._child = Child.start(_tend, name=_NAME, method=method, forks=True)

    @classmethod
    def forked(cls) -> Nursery | None:
        """Return one that is a fork of this process; None where this has threads that a fork would lack."""
        return cls("fork") if FORKS and not _other_threads() else None

    def load(self, load: Callable[..., object], args: tuple[Any, ...], descriptor: int) -> Loaded:
        """Have the forks from now on get what `load(*args, descriptor)` returns there.

        Raises:
            WorkerDied: the process has ended.
            BaseException: what `load` raised; the process has ended.
        """
        with self._asking:
            self.loads = True
            self._child.send(_Load(load, args), fds=[descriptor])
            loaded: Loaded = self._child.receive()
            self.loads = False
            return loaded

    def fork(self, target: Callable[..., object], args: tuple[Any, ...], name: str) -> Child:
        """Fork a child that runs `target(pipe, *args, loaded)`.

        Raises:
            WorkerDied: the process has ended.
            OSError: no process can be forked, or no descriptor is left, here or there.
        """
        with self._asking, Ends.made() as ends:
            self._child.send(_Fork(target, args, name), fds=[ends.theirs.fileno(), ends.their_lifeline.fileno()])
            answer = self._child.receive()
            if isinstance(answer, Failure):
                raise answer.error(_NAME)
            pidfd = self._child.take_fd() if answer.has_pidfd else None
            return Child(_Offspring(self, answer.pid), ends, name, pidfd)

    def reap(self, pid: int, timeout_s: float) -> int | None:
        """Return the exit status of a fork; None where it runs, or cannot be asked for in time."""
        if not self._asking.acquire(timeout=timeout_s):  # it loads
            return None
        try:
            self._child.send(_Reap(pid))
            if not wait_any([self._child], timeout_s=_DEAF_S):  # it was stopped, or hangs
                self._child.kill()
            code: int | None = self._child.receive()
            return code
        except WorkerDied:
            return _reaped(pid)  # it is a child of ours now, where this process adopts those that lose their parent
        finally:
            self._asking.release()

    def kill(self) -> None:
        """Kill it, and return: who waits for it gets `WorkerDied`. Those that it forked live on."""
        self._child.kill()

    def stop(self) -> None:
        """End it. Those that it forked live on."""
        self._child.stop(_GRACE_S)


class _Offspring:
    """A fork of a nursery, as `Child` sees a process."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid, self._nursery = pid, nursery
        self.exitcode: int | None = None

    def join(self, timeout_s: float = _JOIN_S) -> None:
        """Take its exit status. Without a pidfd, it is asked for every 10 ms."""
        deadline = time.monotonic() + timeout_s
        while self.exitcode is None and (left_s := deadline - time.monotonic()) > 0:
            self.exitcode = self._nursery.reap(self.pid, left_s)
            if self.exitcode is None:
                time.sleep(_ENDING_S)

    def close(self) -> None:
        """Let go of it."""


def _tend(pipe: Pipe, setup: ChildSetup) -> None:
    """Load and fork as the parent asks, until it ends."""
    parent = pidfd_of(setup.parent)
    poll = select.poll()
    for descriptor in (pipe.fileno(), setup.lifeline.fileno(), *([] if parent is None else [parent])):
        poll.register(descriptor, select.POLLIN)
    with ExitStack() as stack:
        others = [pipe, setup.lifeline, *([] if parent is None else [stack.enter_context(open(parent, "rb", buffering=0))])]
        loaded: Any = None
        while True:
            while (found := pipe.take()) is None:
                if any(descriptor != pipe.fileno() for descriptor, _ in poll.poll()):
                    raise PipeEnded
                pipe.fill()
            request = pickle.loads(found[1])
            if isinstance(request, _Load):
                gc.unfreeze()
                loaded = request.load(*request.args, pipe.take_fd())
                for number in (signal.SIGTERM, signal.SIGUSR1):  # sent to all processes of a job, they are the program's business
                    signal.signal(number, signal.SIG_IGN)
                gc.freeze()  # else a collection in a worker would write to each object, and have its pages copied
                pipe.send(Loaded(private_memory(), _other_threads()))
            elif isinstance(request, _Reap):
                pipe.send(_reaped(request.pid))
            else:
                _answer_fork(pipe, request, loaded, setup.parent, others)


def _answer_fork(pipe: Pipe, request: _Fork, loaded: Any, parent: int, others: list[Any]) -> None:
    """Fork, and tell the parent of it, or of what hinders; the fork does not return."""
    with ExitStack() as stack:
        try:
            end, lifeline = (stack.enter_context(open(pipe.take_fd(), "rb", buffering=0)) for _ in range(2))
            pid = _forked()
            if not pid:
                setup = ChildSetup(
                    socket.socket(fileno=os.dup(end.fileno())), lifeline, parent, dies_with_thread=False, others=(end, *others)
                )
                run_as_child(setup, Parcel(request.target, (*request.args, loaded)), request.name)
        except (OSError, WorkerFailed) as error:
            pipe.send(Failure.of(error))
            return
        pidfds = []
        with suppress(OSError):  # a sandbox without the call
            pidfds = [stack.enter_context(open(os.pidfd_open(pid), "rb", buffering=0)).fileno()]
        pipe.send(_Forked(pid, bool(pidfds)), fds=pidfds)


def _forked() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads beside a fork: they were looked at
        return os.fork()


def _reaped(pid: int) -> int | None:
    """Return the exit status of a child of this process, None while it runs."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return UNKNOWN
    return os.waitstatus_to_exitcode(status) if ended else None


def _other_threads() -> list[str]:
    """Name the threads that a fork of this process would lack, and that matter to it."""
    others: list[str] = []
    for _ in range(_LOOKS):
        names = {int(task): _comm(task) for task in os.listdir("/proc/self/task")}
        names.update((thread.native_id or 0, thread.name) for thread in threading.enumerate())
        others = sorted(name for number, name in names.items() if name not in (*_SAFE, GUARD) and number != os.getpid())
        if not others:
            break
        time.sleep(_ENDING_S)  # one that has been joined may be there for a moment still
    return others


def _comm(task: str) -> str:
    with suppress(OSError):  # it has ended
        return Path("/proc/self/task", task, "comm").read_text(errors="replace").strip()
    return ""
