"""Workers as processes: Python functions run side by side, and a worker may die without the stream noticing."""

from __future__ import annotations

import os
import pickle
import re
import select
import signal
import socket
import threading
import time
import weakref
from contextlib import suppress
from typing import Any, NamedTuple

from penstock._contracts.event import noted
from penstock._contracts.frameworks import Pin
from penstock._engine.chunk import BatchItem, WorkItem
from penstock._engine.engine import Engine
from penstock._engine.error_policy import ErrorHandler, signal_in
from penstock._engine.turns import Stopped
from penstock._ops.rows import Rows
from penstock._ops.stack import BatchSpec
from penstock._plan.base import Node
from penstock._system.memory import available_cpus, free_memory, release_freed_memory
from penstock._system.process import uninterrupted
from penstock._workers.arena import Arena
from penstock._workers.child import Child, stop_all
from penstock._workers.elsewhere import RemoteWorker, RemoteWorkers
from penstock._workers.executed import pools_here
from penstock._workers.failure import Logged, Warned, log_levels
from penstock._workers.inbox import Inbox
from penstock._workers.nursery import FORKS, Nursery
from penstock._workers.outbox import Parcelled
from penstock._workers.parts import largest_part, path_of, warn_of_generators, words_of
from penstock._workers.pipe import NO_SIGNAL, not_sendable, pickled
from penstock._workers.remote import SPOT, AtRow, Begun, Place, Reply, Request, Retrying, Spot, Stages, load, serve
from penstock._workers.sending import digest, dumps_to_worker
from penstock._workers.shared_pickle import PickledOnce, TooLarge, Unsent, pickle_apart
from penstock.errors import PlanError, WorkerDied

_MOST_LEASED = 16
"""So many results of one process may be referred to before further ones are copied out of its memory."""
_STACK_S, _QUIET_S = 0.5, 0.05
_CALL = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_SPOT = re.compile(SPOT + rb"([0-9a-f]+)\n")
RELEASE_BYTES = 32 << 20  # the pickles of a longer list, 60 bytes per path, are worth giving back
_SHARE_OF_FREE = 4  # copies may take this part of the free memory
_GRACE_S = 1.0  # an idle process ends in 2 ms
_START_S = 60.0
"""So long may a process take to start and to import what its functions need; from then on it counts as a stall."""


class Sent(NamedTuple):
    """What worker processes compute, pickled once.

    Attributes:
        serial: a number of its own.
        stages: where it lies.
        descriptor: of the memory file.
    """

    serial: int
    stages: PickledOnce
    descriptor: int


class WorkerProcesses(RemoteWorkers):
    """The worker processes of one feed."""

    def __init__(self, owner: object, pin: Pin | None = None, arena: Arena | None = None, nursery: Nursery | None = None) -> None:
        """Make the memory of batches, pinned with `pin`. The processes end with `end()`, and when `owner` is no longer referred to.

        `arena` and `nursery` are there already in an engine process.

        Raises:
            OSError: the system has no descriptor left.
        """
        super().__init__()
        self._workers: dict[tuple[str, int], WorkerProcess]
        self.arena = arena or Arena(pin)
        self._sent: Sent | None = None
        self._digest, self._told_kept, self._num_processes = b"", False, 0
        self.warned: dict[Any, Any] = {}
        self.starting = threading.RLock()
        self.closed = False
        self._forking = threading.RLock()
        self._forks = FORKS
        self._nursery, self._is_apart = nursery, arena is not None
        self._loaded = 0  # the serial of what the nursery has
        self._failure: Exception | None = None
        self.end = weakref.finalize(owner, self._close)

    @property
    def sent(self) -> Sent:
        """What is run."""
        assert self._sent is not None
        return self._sent

    def _has_changed(self, stages: Stages, engine: Engine) -> bool:
        found, notice = digest_of(stages, self._digest)
        if notice and not self._told_kept:
            self._told_kept = True
            announce(engine, notice)
        return found != self._digest

    def _send(self, stages: Stages, root: Node, num_workers: int) -> None:
        unsent, self._num_processes = pickled_once(stages, num_workers), num_workers
        self._digest = digest(stages)
        if self._sent is None and num_workers > 1 and not self._is_apart:  # then the program has warned
            warn_of_generators(stages)
        with self.starting:
            if self.closed:
                raise Stopped
            sent = Sent(1 if self._sent is None else self._sent.serial + 1, *unsent.write())
            if self._sent is not None:
                os.close(self._sent.descriptor)
            self._sent = sent
        del unsent
        if sent.stages.num_bytes > RELEASE_BYTES:
            release_freed_memory()

    def run(self, engine: Engine, root: Node, default: str, num_workers: int) -> None:
        """See `RemoteWorkers`. The first time it is also read, where workers are forked: whether that works is known before an element.

        Raises:
            PlanError: something cannot be sent, or read there, or would take too much memory.
        """
        super().run(engine, root, default, num_workers)
        with self._forking:
            if not self._forks or self._loaded:
                return
            try:
                self._load(engine)
            except WorkerDied:  # a worker will start another
                return
            except OSError as error:
                raise no_system_resources(error) from error

    def _make(self, name: str, index: int) -> WorkerProcess:
        return WorkerProcess(self, f"worker process {name}", index)

    def new_child(self, worker: WorkerProcess, name: str, index: int) -> tuple[Child, int]:
        """Start a process; return it with the serial of what it can compute, 0 for nothing yet.

        Raises:
            WorkerDied: it cannot be started.
            PlanError: it cannot read what it is to compute.
            Stopped: the feed was closed.
        """
        failure = self._failure
        with self._forking:
            if self._failure is not None and self._failure is not failure:  # it failed meanwhile, and would again
                raise self._failure
            try:
                child = self._new_child(worker, name, index)
            except Exception as error:
                if self.closed:
                    raise Stopped from None
                self._failure = no_system_resources(error) if isinstance(error, OSError) else error
                raise self._failure from None
            self._failure = None
            with self.starting:
                if not self.closed:
                    return child, self._loaded if self._forks else 0
            child.stop(0.0)
            raise Stopped

    def _new_child(self, worker: WorkerProcess, name: str, index: int) -> Child:
        had_nursery = self._nursery is not None
        try:
            return self._start_child(worker, name, index)
        except WorkerDied:
            self._end_nursery()
            if not had_nursery or self.closed:
                raise
        return self._start_child(worker, name, index)  # it was killed since it was needed last

    def _start_child(self, worker: WorkerProcess, name: str, index: int) -> Child:
        nursery = self._nursery
        if self._forks and (nursery is None or self._loaded != self.sent.serial):
            nursery = self._load(worker.engine)
        share = max(1, available_cpus() // max(1, self._num_processes))
        args = (name, index, self.arena.num_bytes, pools_here(str(share)), log_levels())
        if nursery is None or not self._forks:
            return Child.start(serve, args, name=name, method="exec")
        return nursery.fork(serve, args, name)

    def _load(self, engine: Engine) -> Nursery | None:
        """Have the nursery read what is run now; None where its imports started threads."""
        sent = self.sent
        nursery = self._nursery = self._nursery or uninterrupted(self._new_nursery)
        try:
            if self.closed:  # else `_close` kills it from now on
                raise Stopped
            loaded = nursery.load(load, (sent.stages,), sent.descriptor)
        except BaseException:
            self._end_nursery()
            raise
        self._loaded = sent.serial
        num_workers, free_bytes = self._num_processes, free_memory()
        if loaded.threads:
            self._end_nursery()
            self._forks = False
            announce(
                engine,
                f"importing what the functions need started other threads ({', '.join(loaded.threads[:5])}), which a forked process lacks: "
                "each worker process is started by itself and imports all of it, which takes longer. Start threads where a function is "
                "called first, not where its module is imported",
            )
            return None
        if free_bytes is not None and num_workers * loaded.private_bytes > free_bytes:
            announce(
                engine,
                f"{num_workers} worker processes may come to need {num_workers} times {loaded.private_bytes >> 20} MB, what their "
                f"functions import and hold, and {free_bytes >> 20} MB are free: give a smaller num_workers",
            )
        return nursery

    def _new_nursery(self) -> Nursery:
        self._nursery = Nursery()
        return self._nursery

    def _break_off_load(self) -> None:
        nursery = self._nursery
        if nursery is not None and nursery.loads:
            nursery.kill()

    def _end_nursery(self) -> None:
        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            nursery.stop()

    def kill(self) -> None:
        """Kill the processes that still compute for a run that was ended, or start for it."""
        self._break_off_load()
        stop_all([worker.child for worker in self._workers.values() if worker.busy and worker.child is not None], 0.0)

    def _close(self) -> None:
        with self.starting:
            self.closed = True
        self._break_off_load()
        stop_all([worker.child for worker in self._workers.values() if worker.child is not None], _GRACE_S)
        for worker in self._workers.values():
            worker.let_go()
        self._workers.clear()
        with self._forking:
            self._end_nursery()
        if self._sent is not None:
            os.close(self._sent.descriptor)
        self.arena.close()


def digest_of(what: object, before: bytes) -> tuple[bytes, str]:
    """Return the digest of what is run; or that of before, and what is to be announced, where it cannot be sent any more."""
    try:
        return digest(what), ""
    except Exception as error:  # also what `__getstate__` of a user's class raises
        if (interrupt := signal_in(error)) is not None:
            raise interrupt from None
        words = not_sendable(what, error, "", dumps_to_worker).what
        return before, f"{words}; worker processes go on with what the functions and objects of the dataset held before"


def announce(engine: Engine, text: str) -> None:
    """Say something to the user of the feed."""
    engine.announce(noted("worker", text))


def no_system_resources(error: OSError) -> PlanError:
    """Return the error of a system that has no descriptors, memory or processes left for workers."""
    return PlanError(
        f"no worker process can be started: {error.strerror or error}; limits of this process may be too low (ulimit -a)",
        where='executor="processes"',
        fix='raise that of open files, memory or processes (ulimit -n, -v, -u), give a smaller num_workers, or executor="threads"',
    )


class WorkerProcess(RemoteWorker):
    """One worker process, as the thread that works with it sees it."""

    def __init__(self, processes: WorkerProcesses, name: str, index: int) -> None:
        super().__init__()
        self.child: Child | None = None
        self._processes, self._name, self._index = processes, name, index
        self._starts_until_s = 0.0
        self._line: _Line | None = None
        self.let_go()

    def let_go(self) -> None:
        """Forget the process, which has ended; the next one has nothing yet."""
        if self._line is not None:
            self._line.close()
        self.child, self._line, self._serial, self._starts_until_s = None, None, 0, 0.0
        self._given_up = None
        self._inbox = Inbox(_MOST_LEASED)
        self._spec: tuple[int, BatchSpec | None] = (0, None)  # the last one that was sent, and its number

    def spot(self) -> Spot | None:
        """See `RemoteWorker`. A process that starts, or imports what its functions need, is not yet with an element."""
        line, now_s = self._line, time.monotonic()
        if now_s < self._starts_until_s:
            return Spot(0, now_s, None, "")
        return line.spot() if line is not None and self.busy else None

    @property
    def pid(self) -> int | None:
        """See `RemoteWorker`."""
        child = self.child
        return None if child is None else child.pid

    def calls(self) -> list[tuple[str, int, str]]:
        """See `RemoteWorker`."""
        line, child = self._line, self.child
        return [] if line is None or child is None else line.calls(child)

    def give_up(self, error: BaseException) -> bool:
        """See `RemoteWorker`."""
        child = self.child
        if child is None or not self.busy:
            return False
        self._given_up = error
        child.kill()
        return True

    def _exchange(self, segment: int, item: WorkItem | BatchItem, slot: Rows | None, error_handler: ErrorHandler, at: list[int]) -> Reply:
        sent = self._processes.sent
        if self.child is None or sent.serial != self._serial:
            self._starts_until_s = time.monotonic() + _START_S
        child = self.start()
        if sent.serial == self._serial:
            self._starts_until_s = 0.0
        place = None if slot is None else self._place(slot)
        given = sent.stages if sent.serial != self._serial else None
        message: Any = item if isinstance(item, WorkItem) else self._processes.arena.dumps(item)
        levels = None if given is None else log_levels()
        request = Request(segment, message, slot is not None, place, self._inbox.take_returned(), given, levels)
        data = pickled(request, f"an item for {self._name}", None if _is_plain(request.item, place) else dumps_to_worker)
        child.send_bytes(data, fds=[sent.descriptor] if given is not None else ())
        self._serial = sent.serial
        while not isinstance(message := child.receive(), Parcelled):
            if isinstance(message, AtRow):
                at.append(message.row)
            elif isinstance(message, Begun):
                self._starts_until_s = 0.0
            elif isinstance(message, (Logged, Warned)):
                message.show(self._processes.warned)
            elif isinstance(message, Retrying):
                error_handler.retrying(*pickle.loads(message.what))
        reply: Reply = self._inbox.open(message, child.take_fd)
        return reply

    def start(self) -> Child:
        """Return the process; start it if there is none."""
        if self.child is None:
            self.child, self._serial = self._processes.new_child(self, self._name, self._index)
            self._line = _Line(self.child, self._processes.arena.fd)
        return self.child

    def _lose(self) -> bool:
        child = self.child
        if child is not None:
            child.stop(0.0)
        self.let_go()
        return child is not None and child.began

    def _place(self, slot: Rows) -> Place | None:
        memory = slot.memory()
        if memory is None:
            return None
        spec, arrays = memory
        serial, sent = self._spec
        if spec is not sent:
            serial, sent = self._spec = serial + 1, spec
            sent = None
        offsets = tuple(None if array.dtype.hasobject else self._processes.arena.offset_of(array) for array in arrays)
        return Place(len(arrays[0]), serial, spec if sent is None else None, offsets)


class _Line:
    """A second line to a worker process, for questions while it computes. From any thread."""

    def __init__(self, child: Child, arena: int) -> None:
        """Send the process its end, and the descriptor of the arena."""
        self._end, theirs = socket.socketpair()
        self._end.setblocking(False)
        try:
            with theirs:
                child.send(None, fds=[arena, theirs.fileno()])
        except WorkerDied:
            self._end.close()
            raise
        self._lock = threading.Lock()
        self._buffer = b""
        self._spot: Spot | None = None
        self._asked = False

    def spot(self) -> Spot | None:
        """Return the answer to an earlier question, and ask again."""
        with self._lock:
            self._read()
            if not self._asked:
                self._asked = True
                with suppress(OSError):  # the process has ended, which its pipe tells
                    self._end.send(b"?", NO_SIGNAL)
            return self._spot

    def _read(self) -> list[str]:
        """Take in what has arrived; return the lines of a stack, which is written in pieces: a spot may stand amid a line."""
        with suppress(OSError):  # nothing has arrived, or the process has ended
            while data := self._end.recv(1 << 16):
                self._buffer += data
        for spot in _SPOT.findall(self._buffer):
            self._spot, self._asked = pickle.loads(bytes.fromhex(spot.decode())), False
        *lines, self._buffer = _SPOT.sub(b"", self._buffer).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def calls(self, child: Child) -> list[tuple[str, int, str]]:
        """Let the process tell its stack; what it has told within half a second is returned."""
        lines: list[str] = []
        with self._lock:
            self._read()
            child.signal(signal.SIGUSR1)
            poll = select.poll()
            poll.register(self._end, select.POLLIN)
            deadline = time.monotonic() + _STACK_S
            while (left_s := deadline - time.monotonic()) > 0 and (events := poll.poll(1000 * (left_s if not lines else _QUIET_S))):
                lines += self._read()
                if events[0][1] & select.POLLHUP:  # the process has ended
                    break
        found_calls = [_CALL.match(line) for line in lines]
        return [(call[1], int(call[2]), call[3]) for call in reversed(found_calls) if call is not None]

    def close(self) -> None:
        """Close it."""
        self._end.close()


def _is_plain(item: WorkItem | BatchItem | bytes, place: Place | None) -> bool:
    """Tell whether neither holds anything of the user's, such as a NamedTuple in a spec: then they are pickled in a tenth of the time."""
    if place is not None and place.spec is not None:
        return False
    return not isinstance(item, WorkItem) or (item.block is None and item.given is None and not (item.known or item.fatal))


def pickled_once(stages: object, num_workers: int) -> Unsent:
    """Pickle what is run.

    Raises:
        PlanError: something cannot be pickled, or the workers together would take more than a quarter of the memory that is free.
    """
    free = free_memory()
    try:
        return pickle_apart(stages, num_readers=num_workers, most_bytes=None if free is None else free // _SHARE_OF_FREE)
    except TooLarge as large:
        steps = largest_part(stages)
        raise PlanError(
            f"{num_workers} worker processes would take more than {large.num_bytes / 1e6:,.0f} MB for copies of what the dataset holds, "
            f"and {(free or 0) / 1e6:,.0f} MB are free; most of it is {words_of(steps) or path_of(steps)}",
            where='executor="processes"',
            fix="keep large arrays in a file (np.load(path, mmap_mode='r')), open it in the worker, or give executor=\"threads\"",
        ) from None
    except Exception as error:  # also what `__getstate__` of a user's class raises
        raise PlanError(
            not_sendable(stages, error, "", dumps_to_worker).what,
            where='executor="processes"',
            fix='open files, locks and clients inside the function, once in each process, or let threads do it: executor="threads"',
        ) from error
