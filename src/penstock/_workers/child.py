"""A child process as its parent sees it.

    child = Child.start(function, (1, "two"), name="worker 0")     # runs function(pipe, 1, "two") in the child
    child.send(message)                                            # pipe.receive() there
    for ready in wait_any([child, ...]): ready.receive()           # a message, or raises what ended the child
    child.stop(grace_s=2.0)                                        # always ends it, leaves no zombie

In the child, `function(pipe, *args)` runs in the main thread. `pipe.send(message)` and `pipe.receive()` raise `PipeEnded` when the parent
asks for the end (let it pass), `pipe.ended()` asks without waiting. When the function returns, the child ends: send a last message of your
own before, for an end that was not announced is `WorkerDied`. An exception of the function is raised by `receive()` in the parent.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from penstock._workers.entry import ChildSetup, Parcel, serve
from penstock._workers.executed import Executed
from penstock._workers.failure import Failure
from penstock._workers.pipe import FAILURE, MESSAGE, READY, Pipe, PipeEnded, not_sendable
from penstock._workers.sending import dumps_to_worker
from penstock.errors import PlanError, WorkerDied

METHODS = ("forkserver", "spawn", "fork", "exec")
_SIGNALS_MS = 500
_TERM_S = 0.5
_KILL_S = 10.0


class Ends(NamedTuple):
    """The two ends of what joins a child to its parent: a socket pair, and a lifeline, which never carries a byte."""

    ours: socket.socket
    theirs: socket.socket
    lifeline: Any
    their_lifeline: Any

    @classmethod
    @contextmanager
    def made(cls) -> Iterator[Ends]:
        """Make them for a child that is started meanwhile: it takes its ends along, and where there is none, nothing is left open."""
        import multiprocessing

        ours, theirs = socket.socketpair()
        try:
            their_lifeline, lifeline = multiprocessing.Pipe(duplex=False)
        except OSError:  # no descriptor is left
            ours.close()
            theirs.close()
            raise
        try:
            yield cls(ours, theirs, lifeline, their_lifeline)
        except BaseException:
            ours.close()
            lifeline.close()
            raise
        finally:
            theirs.close()
            their_lifeline.close()


class Child:
    """One process. `send` may be called from several threads, `stop` from any and more than once, `receive` from one at a time."""

    def __init__(self, process: Any, ends: Ends, name: str, pidfd: int | None = None) -> None:
        """See a process that was started: `pid`, `join`, `exitcode` and `close` are as those of multiprocessing. `pidfd`: one."""
        self.name = name
        self.pid: int = process.pid
        self.began = False
        self._process = process
        self._pipe = Pipe(ends.ours)
        self._lifeline = ends.lifeline
        self._arrived: deque[tuple[int, bytes]] = deque()
        self._ended = False
        self._reaping = threading.RLock()
        self.exit_code: int | None = None
        """The exit status, minus the number of the signal that killed it, or None while it runs or nobody knows."""
        self._gone = False
        self._pidfd = _pidfd(self.pid) if pidfd is None else pidfd

    @classmethod
    def start(
        cls,
        target: Callable[..., object],
        args: tuple[Any, ...] = (),
        *,
        name: str,
        method: str = "forkserver",
        forks: bool = False,
    ) -> Child:
        """Start a process that runs `target(pipe, *args)`. It does not import the program: what that defines is sent by value.

        Args:
            target: a function; except with `fork` it and `args` are pickled.
            args: its arguments behind the pipe.
            name: what errors call the child.
            method: "forkserver", which is "exec" where there can be no such server; "spawn"; "exec", a fresh interpreter; or "fork", which
                copies this process as it is and warns when other threads run, because whatever lock they hold stays locked in the copy.
            forks: whether the child forks processes itself, with "exec" or "fork"; see `ChildSetup`.

        Raises:
            PlanError: there is no such method here, `target` or `args` cannot be pickled, or this process is such a child itself.
        """
        import multiprocessing

        if method not in METHODS or (method != "exec" and method not in multiprocessing.get_all_start_methods()):
            raise PlanError(f"method={method!r} is no way to start a process here", where=name, fix=f"give one of {', '.join(METHODS)}")
        if multiprocessing.current_process().daemon:
            raise PlanError("a worker process cannot start processes of its own", where=name, fix="use threads there, or start it outside")
        if method == "exec":
            return cls._execute(Executed.message(target, args, name), name, forks)
        context = multiprocessing.get_context(method)
        forked = method == "fork"
        with Ends.made() as ends:
            setup = ChildSetup(
                end=ends.theirs,
                lifeline=ends.their_lifeline,
                parent=os.getpid(),
                dies_with_thread=method != "forkserver" and threading.current_thread() is threading.main_thread(),
                others=(ends.ours, ends.lifeline) if forked else (),
                forks=forks,
            )
            process = context.Process(target=serve, args=(setup, Parcel(target, args)), name=name, daemon=True)  # type: ignore[attr-defined]
            try:
                if forked and not forks:
                    _warn_of_threads(name)
                if method == "forkserver":
                    _preload(target.__module__)
                with _without_program(name):
                    _start(process, method)
            except OSError:
                if method != "forkserver":
                    raise
                # The server is gone, belongs to the process that this one was forked from, or has no folder or socket here.
                return cls.start(target, args, name=name, method="exec")
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                if forked:
                    raise
                told = not_sendable(args, error, name, dumps_to_worker)
                fix = "open files, locks and clients inside the function; only fork takes such objects along"
                raise PlanError(told.what, where=f"{name}, started by {method}", fix=fix) from error
            # What multiprocessing does at exit ends its children and waits for them, while threads of ours may start others in their place.
            multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]
        return cls(process, ends, name)

    @classmethod
    def _execute(cls, message: bytes, name: str, forks: bool) -> Child:
        with Ends.made() as ends, _without_interrupts():
            process = Executed((ends.theirs.fileno(), ends.their_lifeline.fileno()), forks)
        child = cls(process, ends, name)
        try:
            child.send_bytes(message)
        except WorkerDied:  # `receive` tells it
            pass
        except BaseException:
            child.stop(0.0)
            raise
        return child

    def send(self, message: object, *, fds: Sequence[int] = ()) -> None:
        """Send an object; blocks while 200 kB and more of earlier messages are unread.

        Raises:
            SpecError: it cannot be pickled.
            WorkerDied: the child is gone.
        """
        try:
            self._pipe.send(message, fds=fds, where=f"a message to {self.name}")
        except PipeEnded:
            raise self.died() from None

    def send_bytes(self, message: bytes, *, fds: Sequence[int] = ()) -> None:
        """Send an object that is pickled already; see `send`."""
        try:
            self._pipe.send_bytes(MESSAGE, message, fds)
        except PipeEnded:
            raise self.died() from None

    def offer(self, message: object) -> bool:
        """Send an object to a child that may have ended; return False when it has. What it sent before can still be received.

        Raises:
            SpecError: it cannot be pickled.
        """
        try:
            self._pipe.send(message, where=f"a message to {self.name}")
        except PipeEnded:
            return False
        return True

    def receive(self) -> Any:
        """Wait for the next message of the child; what it sent before it died comes first.

        Raises:
            WorkerDied: the child ended, or was killed, without a message left.
            BaseException: what the child's function raised.
        """
        while not self._arrived:
            if self._ended:
                raise self.died()
            wait_any([self])
        kind, payload = self._arrived.popleft()
        if kind == FAILURE:
            failure: Failure = pickle.loads(payload)
            raise failure.error(f"{self.name}, process {self.pid}")
        return pickle.loads(payload)

    def speaks(self, timeout_s: float, *others: int) -> bool:
        """Wait until there is something to read, or on other descriptors, so long at most; tell whether there is. Reads nothing."""
        return bool(_poll([*self._descriptors, *others], timeout_s))

    def looks(self) -> bool:
        """Read what has arrived; tell whether `receive` would return at once. Never blocks."""
        if not self._ended:
            self._take_in(_poll(self._descriptors, 0.0))
        return bool(self._arrived or self._ended)

    @property
    def _descriptors(self) -> list[int]:
        return [number for number in (self._pipe.fileno(), self._pidfd) if number is not None]

    @property
    def has_message(self) -> bool:
        """Whether `receive` would return at once, as far as it has been read."""
        return bool(self._arrived)

    def take_fd(self) -> int:
        """Return the descriptor that came with the message received last; the caller closes it."""
        return self._pipe.take_fd()

    def died(self) -> WorkerDied:
        """Reap the child, which must have ended or be about to, and return the error that says how."""
        self._reap(_TERM_S)
        if not self._gone:  # it closed its end of the pipe and goes on: of no use any more
            self.stop(0.0)
        code = self.exit_code
        return WorkerDied(f"{self.name} (process {self.pid}) {_how(code)}", where=self.name, fix=_advice(code, self.began))

    def ask(self) -> None:
        """Ask the child to end, and return: its pipe ends. For `stop` of several, that they end side by side."""
        if not self._gone:
            self._pipe.shut()

    def stop(self, grace_s: float) -> None:
        """End the child: its pipe ends, and who does not go within `grace_s` is terminated, then killed. Returns when it is reaped."""
        with self._reaping:
            if self._gone:
                return self._close()
            self._pipe.shut()
            if not self._reap(grace_s):
                self.signal(signal.SIGTERM)
                if not self._reap(_TERM_S):
                    self.signal(signal.SIGKILL)
                    self._reap(_KILL_S)
            return self._close()

    def _take_in(self, spoke: Container[int]) -> None:
        """Read what has arrived; note the end, behind everything that was sent before."""
        # Where the pidfd speaks and the pipe does not, the child may have sent its last words between the two looks.
        if self._pipe.fileno() in spoke or (self._pidfd in spoke and self._pipe.readable()):
            try:
                self._pipe.fill()
            except PipeEnded:
                self._ended = True
                return
        elif self._pidfd in spoke:
            self._ended = True
        while (found := self._pipe.take()) is not None:
            if found[0] == READY:
                self.began = True
            else:
                self._arrived.append(found)

    def _reap(self, timeout_s: float) -> bool:
        with self._reaping:
            if self._gone or self._process is None:
                return self._gone
            deadline = time.monotonic() + timeout_s
            if self._pidfd is not None and not _poll([self._pidfd], timeout_s):
                return False
            # Behind a pidfd that has told, this takes no time, or that of a message from the fork server.
            self._process.join(max(0.0 if self._pidfd is None else 1.0, deadline - time.monotonic()))
            self.exit_code = self._process.exitcode
            self._gone = self.exit_code is not None or self._pidfd is not None
            if self._gone:
                with suppress(ProcessLookupError, PermissionError):  # it has left no process behind
                    os.killpg(self.pid, signal.SIGKILL)
            return self._gone

    def kill(self) -> None:
        """Kill the child, and return; `receive` tells of its death."""
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send the child a signal, unless it has ended."""
        try:
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, number)
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def _close(self) -> None:
        self._ended = True
        self._pipe.close()
        self._lifeline.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        if self._process is not None and self.exit_code is not None:
            self._process.close()
        self._process = None


def wait_any(children: Sequence[Child], timeout_s: float | None = None, *, alive: Sequence[Child] = ()) -> list[Child]:
    """Wait until a message of some children can be received, or they have ended; return these. Without sleeping or polling.

    Another thread ends the wait by `ask()` of a child.

    Args:
        children: those whose messages are waited for.
        timeout_s: None waits without limit.
        alive: others, whose messages do not matter now, but their death does.

    Returns:
        An empty list when the time ran out.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    watched: list[int | None] = [child._pidfd for child in alive]
    while True:
        ready = [child for child in children if child._arrived or child._ended]
        if ready:
            return ready
        watched_now = [number for child in children for number in (child._pipe.fileno(), child._pidfd)] + watched
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        spoke = _poll([number for number in watched_now if number is not None], left_s)
        for child in children:
            child._take_in(spoke)
        ready = [child for child in children if child._arrived or child._ended]
        ready += [child for child in alive if child._pidfd in spoke]
        if ready or not spoke:
            return ready


def stop_all(children: Sequence[Child], grace_s: float) -> None:
    """End children side by side: all of them are asked, and have `grace_s` together."""
    deadline = time.monotonic() + grace_s
    for child in children:
        child.ask()
    for child in children:
        child.stop(max(0.0, deadline - time.monotonic()))


def _poll(descriptors: Sequence[int], timeout_s: float | None) -> set[int]:
    """Wait until some descriptors speak and return them, or the empty set when the time ran out.

    The main thread looks for signals twice a second, as in `ParkingLot` and for the same reason.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    if timeout_s is not None:
        return {descriptor for descriptor, _ in poll.poll(1000 * timeout_s)}
    timeout_ms = _SIGNALS_MS if threading.current_thread() is threading.main_thread() else None
    while not (spoke := poll.poll(timeout_ms)):
        pass
    return {descriptor for descriptor, _ in spoke}


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # macOS, a sandbox without the call, or it has ended already: the pipe and the sentinel remain
        return None


def _start(process: Any, method: str) -> None:
    """Start it with SIGINT blocked.

    Not with the fork server: one that is started here would hand the block on to all children of the program.
    """
    import warnings

    if method == "forkserver":
        process.start()
        return
    with _without_interrupts(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)  # said in our words
        process.start()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start a process that has SIGINT blocked, so that Ctrl-C does not end it before it can say that it does not heed it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _preload(module: str) -> None:
    """Let the fork server import a module once, and not the program, unless that has said what it imports, or it runs already."""
    from multiprocessing import forkserver

    server: Any = vars(forkserver)["_forkserver"]
    if server._forkserver_pid is None and server._preload_modules == ["__main__"]:
        server.set_forkserver_preload([module])


@contextmanager
def _without_program(name: str) -> Iterator[None]:
    """Let the process `name` that is started meanwhile not import the program, which is run once."""
    from multiprocessing import spawn

    before = spawn.get_preparation_data

    def prepared(name_of_process: str) -> dict[str, Any]:
        data = before(name_of_process)
        return {key: value for key, value in data.items() if name_of_process != name or not key.startswith("init_main_from")}

    spawn.get_preparation_data = prepared  # type: ignore[assignment]  # the name of its argument differs
    try:
        yield
    finally:
        spawn.get_preparation_data = before


def _warn_of_threads(name: str) -> None:
    import warnings

    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if others:
        warnings.warn(
            f"{name} is forked while other threads run ({', '.join(others[:5])}): a lock that one of them holds stays locked in the child. "
            "Start it before the threads, or give a function that makes the generator, which needs no fork",
            RuntimeWarning,
            stacklevel=3,
        )


def _how(code: int | None) -> str:
    if code is None or code == 255:
        return "ended, nobody knows how"
    if code >= 0:
        return f"ended with exit code {code} before its work was done"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _advice(code: int | None, began: bool) -> str:
    if code == -signal.SIGKILL:
        return "look for the kernel's out-of-memory killer in the system's log; fewer workers or smaller batches need less memory"
    if code == -signal.SIGBUS:
        return "look for a memory-mapped file that was cut short while it was read, or whose disk failed or is full"
    if code is not None and code < 0:
        return "native code crashed or somebody sent the signal; run with PYTHONFAULTHANDLER=1 to see the Python line it was at"
    if not began:
        return "its own message is on stderr"
    return "look on stderr for what the process said; os._exit() and native code end a process without an error"
