"""Workers as actors of a Ray cluster: items are computed on any node, everything else stays in this program."""

from __future__ import annotations

import os
import pickle
import platform
import re
import socket
import threading
import time
import weakref
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.options import Ray
from penstock._contracts.source import FileSource
from penstock._contracts.version import VERSION
from penstock._engine.chunk import BatchItem, WorkItem
from penstock._engine.error_policy import ErrorHandler
from penstock._engine.turns import Stopped
from penstock._ops.rows import Rows
from penstock._plan.base import Node, sources
from penstock._system.failing import attempt
from penstock._workers.elsewhere import RemoteWorker, RemoteWorkers
from penstock._workers.failure import Failure
from penstock._workers.pipe import not_sendable
from penstock._workers.ray_actor import About, Packed, RayActor
from penstock._workers.remote import Place, Reply, Request, Spot, Stages
from penstock.errors import MissingExtra, PlanError, WorkerDied, WorkerFailed

_WHERE = 'executor="ray"'
_FILES = 64
"""So many local files of a source are looked for on a node: a folder that is not there lacks all of them."""
_LOOK_S = 0.2
_CONNECT_S = 5.0
_STACK_S = 1.0


class SentToRay(NamedTuple):
    """What actors compute: a reference to it in the object store, and the local files that it reads, with their sizes."""

    reference: Any
    files: list[tuple[str, int]]


class RayWorkers(RemoteWorkers):
    """The actors of one feed. They end with `end()`, when `owner` is no longer referred to, and with this program."""

    def __init__(self, owner: object, options: Ray) -> None:
        """Connect to the cluster.

        Raises:
            PlanError: there is no cluster, or this program cannot join it.
        """
        super().__init__()
        self._workers: dict[tuple[str, int], RayWorker]
        self.ray = _connected(options.address)
        self.options = options
        self.sent: SentToRay | None = None
        self.end = weakref.finalize(owner, self._close)

    @property
    def num_workers(self) -> int:
        """How many actors the cluster has room for."""
        amounts = self.ray.cluster_resources()
        wanted = {"CPU": self.options.num_cpus, **self.options.resources}
        return max(1, int(min(amounts.get(name, 0) // amount for name, amount in wanted.items() if amount)))

    def _send(self, stages: Stages, root: Node, num_workers: int) -> None:
        apart: list[pickle.PickleBuffer] = []
        try:
            stream = self.ray.cloudpickle.dumps(stages, protocol=5, buffer_callback=apart.append)
        except Exception as error:
            fix = "open files, locks and clients inside your functions, or give executor='threads'"
            raise PlanError(not_sendable(stages, error, "", self.ray.cloudpickle.dumps).what, where=_WHERE, fix=fix) from error
        buffers = [np.frombuffer(buffer.raw(), np.uint8) for buffer in apart]
        self.sent = SentToRay(self.ray.put((stream, buffers)), _local_files(root))

    def _make(self, name: str, index: int) -> RayWorker:
        return RayWorker(self, f"Ray worker {name}", index)

    def create(self, name: str, index: int) -> Actor:
        """Ask Ray for an actor."""
        options = self.options
        return Actor(
            self.ray.remote(concurrency_groups={"look": 1}, max_restarts=0)(RayActor)
            .options(
                num_cpus=options.num_cpus,
                resources=dict(options.resources) or None,
                runtime_env=None if options.runtime_env is None else dict(options.runtime_env),
                scheduling_strategy="SPREAD",
            )
            .remote(name, index),
            self.ray,
        )

    def running(self) -> list[Actor]:
        """List the actors that run, those of workers that have nothing to do included."""
        found = []
        for actor in [worker.actor for worker in list(self._workers.values())]:
            if actor is not None and not actor.lost:
                with suppress(self.ray.exceptions.RayError):  # its own worker is told
                    found += [actor] if actor.wait(0.0) else []
        return found

    def kill(self) -> None:
        """Kill the actors that still compute for a run that was ended."""
        for worker in self._workers.values():
            if worker.busy:
                worker.stop()

    def _close(self) -> None:
        if self.ray.is_initialized():  # it is not when Ray has ended before, at the exit of the program
            for worker in self._workers.values():
                worker.stop()
        self._workers.clear()
        self.sent = None


class Actor:
    """An actor that was asked for.

    Attributes:
        about: what it said of itself; None until Ray has placed it.
        turn: held by the worker whose item it computes.
        lost: whether it has died or was killed.
    """

    def __init__(self, handle: Any, ray: Any) -> None:
        self.handle, self._ray = handle, ray
        self.about: About | None = None
        self.turn, self.lost = threading.Lock(), False
        self._hello = handle.about.remote()
        self._sent: SentToRay | None = None
        self._lock = threading.Lock()
        self._asked: Any = None
        self._spot: Spot | None = None

    def wait(self, timeout_s: float) -> bool:
        """Wait until it runs, at most so long; return whether it does."""
        if self.about is None and self._ray.wait([self._hello], timeout=timeout_s)[0]:
            about = self._ray.get(self._hello)
            _check_versions(about)
            self.about = about
        return self.about is not None

    def begin(self, sent: SentToRay, timeout_s: float | None) -> None:
        """Have it compute what was sent.

        Raises:
            PlanError: its node lacks files or modules, or takes longer than `timeout_s`.
        """
        with self._lock:
            if self._sent is sent:
                return
            try:
                answer = self._ray.get(self.handle.begin.remote([sent.reference], sent.files), timeout=timeout_s)
            except self._ray.exceptions.GetTimeoutError as error:
                raise PlanError(
                    f"node {self.about and self.about.node} has not read the functions of the dataset within {timeout_s:g} s",
                    where=_WHERE,
                    fix="look at what their modules do when they are imported, or raise stall_timeout_s",
                ) from error
            if isinstance(answer, bytes):
                raise _read_failure(answer)
            if answer:
                raise PlanError(
                    f"node {self.about and self.about.node} does not have {answer[0]!r}"
                    + (f" and {len(answer) - 1} more files" if answer[1:] else ""),
                    where=_WHERE,
                    fix="put the files where all nodes see them at the same path (a network disk), read them from a bucket (s3://...), or "
                    'give executor="processes"',
                )
            self._sent = sent

    def spot(self) -> Spot | None:
        """Return the answer to an earlier question, and ask again. From any thread."""
        if (asked := self._asked) is not None and self._ray.wait([asked], timeout=0)[0]:
            with suppress(self._ray.exceptions.RayError):  # it has ended
                self._spot = self._ray.get(asked)
            asked = None
        if asked is None:
            self._asked = self.handle.spot.options(concurrency_group="look").remote()
        return self._spot


class RayWorker(RemoteWorker):
    """One worker, as the thread that works with it sees it. Until its own actor is placed, another one computes for it."""

    def __init__(self, workers: RayWorkers, name: str, index: int) -> None:
        super().__init__()
        self.actor: Actor | None = None
        self._used: Actor | None = None
        self._workers, self._name, self._index = workers, name, index
        self._starts = self._began = False

    def _exchange(self, segment: int, item: WorkItem | BatchItem, slot: Rows | None, error_handler: ErrorHandler, at: list[int]) -> Reply:
        ray, sent = self._workers.ray, self._workers.sent
        assert sent is not None
        message: Any = item if isinstance(item, WorkItem) else ray.cloudpickle.dumps(item)
        request = Request(segment, message, slot is not None, None if slot is None else _place(slot))
        try:
            data = ray.cloudpickle.dumps(request)
        except Exception as error:
            raise not_sendable(request, error, f"an item for {self._name}") from error
        parcel = self._computed(sent, data, at if item.fatal is not None else None)
        # Copied: what is delivered must not hold memory of the object store.
        found = pickle.loads(parcel.stream, buffers=[bytearray(buffer) for buffer in parcel.buffers])
        if isinstance(found, Failure):
            raise found.error(self._words())
        reply: Reply = found[0]
        for what in found[1]:
            error_handler.retrying(*pickle.loads(what))
        return reply._replace(columns=[parcel.columns.get(number, array) for number, array in enumerate(reply.columns)])

    def _computed(self, sent: SentToRay, data: bytes, at: list[int] | None) -> Packed:
        """Have an actor compute a request; `at` gets the rows that it comes to."""
        ray = self._workers.ray
        self._used, self._began, self._starts = None, False, True
        try:
            actor = self._used = self._free_actor()
            self._began = True
            actor.begin(sent, self._patience_s)
            self._starts = False
            return ray.get(actor.handle.compute.remote(data)) if at is None else self._announced(actor, data, at)
        except ray.exceptions.RayError as error:
            translated = self._translated(error)
            if self._used is not None and isinstance(translated, WorkerDied):
                self._used.lost = True  # before another one has its turn
            raise translated from error
        finally:
            self._starts = False
            if self._used is not None:
                self._used.turn.release()

    def _announced(self, actor: Actor, data: bytes, at: list[int]) -> Packed:
        method = actor.handle.announce.options(num_returns="streaming", _generator_backpressure_num_objects=1)
        answers = iter(method.remote(data))
        while not isinstance(row := self._workers.ray.get(next(answers)), Packed):
            at.append(row)
        return row

    def _free_actor(self) -> Actor:
        """Return an actor that runs and computes nothing, with its turn taken. Blocks until there is one.

        An item never waits behind another one in an actor: it would seem to hang where that one does.

        Raises:
            WorkerDied: its own actor could not begin.
            PlanError: Ray has placed none in the time of a stall.
            Stopped: the engine was stopped.
        """
        begin_s = time.monotonic()
        while not self.engine.stopping:
            own = self.actor
            if own is None or own.lost:
                own = self.actor = self._workers.create(self._name, self._index)
            if own.wait(_LOOK_S) and own.turn.acquire(timeout=_LOOK_S):
                if not own.lost:
                    return own
                own.turn.release()
            running = self._workers.running()
            for other in running:
                if other.turn.acquire(blocking=False):
                    return other
            if not running and time.monotonic() - begin_s > (self._patience_s or float("inf")):
                raise self._not_placed()
        raise Stopped

    @property
    def _patience_s(self) -> float | None:
        """How long a worker may take to begin: a little less than a stall, whose report would not know why. None for any time."""
        timeout_s = self.engine.watch.timeout_s
        return None if timeout_s is None else 0.9 * timeout_s

    def _not_placed(self) -> PlanError:
        ray, options = self._workers.ray, self._workers.options
        wanted = ", ".join(f"{name}: {amount:g}" for name, amount in {"CPU": options.num_cpus, **options.resources}.items())
        free = ", ".join(f"{name}: {amount:g}" for name, amount in sorted(ray.available_resources().items()) if ":" not in name)
        nodes = ray.nodes()
        dead = [node["NodeManagerAddress"] for node in nodes if not node["Alive"]]
        return PlanError(
            f"Ray has placed no worker ({wanted}) within {self._patience_s:g} s; {len(nodes) - len(dead)} nodes are alive, with "
            f"{free} free" + (f"; gone: {', '.join(dead)}" if dead else ""),
            where=_WHERE,
            fix="start nodes with these resources, free some, or ask for less: ps.Ray(num_cpus=, resources=); raise "
            "stall_timeout_s where nodes take longer to come",
        )

    def _translated(self, error: Any) -> Exception:
        """Return what an error of Ray means here."""
        errors, text = self._workers.ray.exceptions, str(error)
        if isinstance(error, errors.RayTaskError):
            return WorkerFailed(text, where=self._words(), fix="see the traceback of the node above")
        gone = (errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError)
        if isinstance(error, gone):
            missing = "No module named 'penstock" in text
            return WorkerDied(
                f"{self._words(text)} died: {_reason(text)}",
                where=self._words(),
                fix='install penstock on every node, or give ps.Ray(runtime_env={"pip": ["penstock"]})'
                if missing
                else "look at the element that it computed, at the memory of its node, and into the logs of Ray"
                if self._began
                else "look into the logs of Ray: the actor could not begin, as on a node with another version of Python or Ray",
            )
        full = "the object store is full, and so is the disk that it spills to"
        is_full = isinstance(error, (errors.ObjectStoreFullError, errors.OutOfDiskError))
        return WorkerFailed(
            full if is_full else f"Ray cannot move an item: {type(error).__name__}: {_reason(text)}",
            where=self._words(),
            fix="make batches or memory_bytes= smaller, or give the nodes a larger object store (ray start --object-store-memory=...)",
        )

    def _words(self, text: str = "") -> str:
        about = None if self._used is None else self._used.about
        if about is not None:
            return f"{self._name} on node {about.node}, process {about.pid}"
        return self._name + "".join(f" on node {address}" for address in re.findall(r"^\tip: (\S+)", text, re.MULTILINE))

    def _lose(self) -> bool:
        used, self._given_up = self._used, None
        if used is self.actor or used is None:
            self.stop()
        return self._began  # another worker may have used it too, and have let go of it before

    def stop(self) -> None:
        """Kill the actor."""
        actor, self.actor = self.actor, None
        if actor is not None:
            with suppress(self._workers.ray.exceptions.RayError):  # it is gone
                self._workers.ray.kill(actor.handle)

    def spot(self) -> Spot | None:
        """See `RemoteWorker`."""
        used = self._used
        if self._starts:  # no element takes long yet
            return Spot(0, time.monotonic(), None, "")
        return used.spot() if used is not None and used is self.actor and self.busy else None

    @property
    def pid(self) -> int | None:
        """See `RemoteWorker`."""
        return 0

    def calls(self) -> list[tuple[str, int, str]]:
        """See `RemoteWorker`."""
        ray, used = self._workers.ray, self._used
        if used is None:
            return []
        try:
            found: list[tuple[str, int, str]] = ray.get(used.handle.calls.options(concurrency_group="look").remote(), timeout=_STACK_S)
        except ray.exceptions.RayError:  # C code holds the interpreter there, or it is gone
            return []
        return found

    def give_up(self, error: BaseException) -> bool:
        """See `RemoteWorker`."""
        used = self._used
        if used is None or self._starts or not self.busy:
            return False
        self._given_up = error
        self._workers.ray.kill(used.handle)
        return True


def imported() -> Any:
    """Return Ray.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingExtra(f"Ray cannot be imported: {error}", where=_WHERE, fix='pip install "penstock[ray]"') from error
    return ray


def _connected(address: str | None) -> Any:
    """Return Ray, connected to the cluster that runs, or to the one at an address."""
    ray = imported()
    if ray.is_initialized():
        return ray
    try:
        host, _, port = (address or "").rpartition(":")
        if host and port.isdigit():
            socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()  # Ray itself tries for two minutes
        ray.init(address=address or "auto", log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise PlanError(
            f"no Ray cluster at {address!r} can be joined: {error}" if address else f"no Ray cluster runs that can be joined: {error}",
            where=_WHERE,
            fix='start one (`ray start --head`), call ray.init() before, or name it: ps.Ray(address="host:6379")',
        ) from error
    return ray


def _check_versions(about: About) -> None:
    here = {"Python": platform.python_version(), "Penstock": VERSION}
    there = {"Python": about.python, "Penstock": about.penstock}
    for name, version in here.items():
        if version != there[name]:
            raise PlanError(
                f"node {about.node} has {name} {there[name]}, and this program {version}: the same functions may give other bytes",
                where=_WHERE,
                fix=f"install {name} {version} there, or run this program with {there[name]}",
            )


def _local_files(root: Node) -> list[tuple[str, int]]:
    """Return up to 64 files of each source, evenly spaced, with their sizes."""
    found = []
    for node in sources(root):
        if isinstance(node.source, FileSource):
            paths = list(node.source.input_files())
            some = paths[:: max(1, -(-len(paths) // _FILES))]
            found += [(path, size) for path in some if (size := attempt(os.path.getsize, path)) is not None]
    return found


def _place(slot: Rows) -> Place | None:
    memory = slot.memory()
    return None if memory is None else Place(len(memory[1][0]), 0, memory[0], (None,) * len(memory[1]))


def _read_failure(data: bytes) -> BaseException:
    failure: Failure = pickle.loads(data)
    return failure.error(_WHERE)


def _reason(text: str) -> str:
    """Return the line of Ray's text that says why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "error raised in its creation task" in text:
        return lines[-1]
    found = next((line for line in lines if line.startswith("The actor is dead because")), lines[0] if lines else "")
    return found.split(" Some common causes")[0]
