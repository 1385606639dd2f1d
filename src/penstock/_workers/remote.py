"""The child's side of a worker process: messages in, computed as a worker thread does, outcomes out."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from penstock._contracts.element import sizes_of
from penstock._engine.chunk import BatchItem, Outcome, WorkItem
from penstock._engine.compute import compute, compute_batches
from penstock._engine.error_policy import ErrorHandler
from penstock._engine.program import Policies, SegmentPlan
from penstock._ops.block import ElementFailed
from penstock._ops.draws import Draws
from penstock._ops.rows import RowsElsewhere
from penstock._ops.stack import BatchSpec
from penstock._ops.worker import WorkerContext
from penstock._system.failing import attempt
from penstock._system.parking import thread_times
from penstock._system.process import worker_place
from penstock._workers.arena import ArenaView
from penstock._workers.executed import set_pools
from penstock._workers.failure import dump_with_errors, send_records
from penstock._workers.outbox import Outbox
from penstock._workers.pipe import Pipe, not_sendable
from penstock._workers.sending import Keep, dumps_to_program, pickler_to_program
from penstock._workers.settings import Settings, set_here
from penstock._workers.shared_pickle import PickledOnce
from penstock.errors import PlanError, SpecError
from penstock.kernels import slow_twins

SPOT = b"spot "
"""What stands before a `Spot`, in hexadecimal digits up to the end of the line."""


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)


class Stages(NamedTuple):
    """What a worker process computes.

    Attributes:
        segments: of the plan, without what the program computes.
        policies: of the feed.
        num_workers: how many compute it.
        settings: of modules that their functions read.
    """

    segments: tuple[SegmentPlan, ...]
    policies: Policies
    num_workers: int = 1
    settings: Settings = {}  # noqa: RUF012 - nobody changes it


class Place(NamedTuple):
    """Where the rows of a chunk are written.

    Attributes:
        num_rows: of the chunk.
        serial: of the spec.
        spec: None for one that was sent before.
        offsets: of the array of each field in the arena; None for one that comes back in the reply, as texts and objects do.
    """

    num_rows: int
    serial: int
    spec: BatchSpec | None
    offsets: tuple[int | None, ...]


class Request(NamedTuple):
    """The message to a worker process.

    Attributes:
        segment: the number of that of the item.
        item: what is computed; the pickle of a BatchItem, whose arrays lie in the arena.
        to_slot: whether the rows go into batches.
        place: where they are written; None where that is not known yet: then they come back in the reply.
        free: slots of the process that the parent has no views of any more.
        stages: what is run from now on, or None for no change; the descriptor comes with the message.
        log_levels: with stages, those of the program.
    """

    segment: int
    item: WorkItem | BatchItem | bytes
    to_slot: bool = False
    place: Place | None = None
    free: Sequence[int] = ()
    stages: PickledOnce | None = None
    log_levels: dict[str, int] | None = None


class Reply(NamedTuple):
    """The message from a worker process.

    Attributes:
        outcome: of the item; None where it takes what only the program has: another element that a function there has to make.
        beside: rows that were not written into batches.
        columns: for each field, its rows of the item; None for one that was written into the batch. Nothing when all were.
        cpu_ns: CPU time.
        busy_ns: elapsed time, without that in which the process was ready to run and got no CPU.
        packed: as `WorkerContext.take_packed`.
        notices: kind and text of what is to be announced.
    """

    outcome: Outcome | None
    beside: dict[int, Any]
    columns: Sequence[Any]
    cpu_ns: int
    busy_ns: int
    packed: tuple[int, int]
    notices: list[tuple[str, str]]


class Begun(NamedTuple):
    """The stages are read, with all that their functions import."""


class AtRow(NamedTuple):
    """A row, or batch, of the item is computed next."""

    row: int


class Retrying(NamedTuple):
    """An element is tried again: what `ErrorHandler.retrying` gets."""

    what: bytes


class Spot(NamedTuple):
    """Where a worker process is.

    Attributes:
        number: of the request that it answers; 0 while it starts, or imports what its functions need.
        marker: another value means that it has moved on.
        row: of the chunk, where that is known.
        step: as `WorkerContext.step_name`.
    """

    number: int
    marker: Any
    row: int | None
    step: str


_T = TypeVar("_T")


def _unqueued_ns() -> int:
    """Return a clock that stands while this thread is ready to run and gets no CPU."""
    times = thread_times()
    return time.perf_counter_ns() - (0 if times is None else times[1])


_FIX = "import what the functions need inside them, or put their modules where other processes find them"


def load(stages: PickledOnce, descriptor: int) -> Stages:
    """Read what worker processes compute, in the process that they are forked from.

    Raises:
        PlanError: it cannot be read here.
    """
    return _read(lambda: stages.load(descriptor), f"the process that the workers are forked from, process {os.getpid()}", _FIX)


def _read(load: Callable[[], Stages], words: str, fix: str) -> Stages:
    try:
        loaded = load()
        set_here(loaded.settings)
        return loaded
    except Exception as error:
        raise PlanError(
            f"the functions of the dataset cannot be read in a worker process: {type(error).__name__}: {error}", where=words, fix=fix
        ) from error


class RemoteComputer:
    """Computes items as a worker thread does, away from the engine."""

    def __init__(self, words: str, index: int, announce_row: Callable[[int], object], arena: ArenaView | None = None) -> None:
        """Compute nothing yet.

        Args:
            words: names the worker, for errors.
            index: the worker's number.
            announce_row: called with a row before it is computed, where rows kill workers.
            arena: memory of the engine, where batches lie; None where there is none.
        """
        self.words, self.fix = words, _FIX
        self.context = WorkerContext(index)
        self.context.announce_row = announce_row
        self.context.draws = self._draws = Draws()
        self.context.errand = _not_here
        self._arena = arena
        self._specs: dict[int, BatchSpec] = {}
        self._segments: tuple[SegmentPlan, ...] = ()
        self._handler: ErrorHandler | None = None
        self._num_requests = 0

    def spot(self) -> Spot:
        """Return where the worker is. From any thread."""
        context = self.context
        return Spot(self._num_requests, context.place(), context.row(), context.step_name)

    def begin(
        self, load: Callable[[], Stages], pause: Callable[[float], bool], retrying: Callable[..., None], num_threads: int = 1
    ) -> None:
        """Compute what `load` gives from now on, each native pool with `num_threads`; `pause` and `retrying` as in `ErrorHandler`.

        Raises:
            PlanError: it cannot be read here.
        """
        self._segments = ()
        place = worker_place()
        place.index = self.context.index
        self._segments, policies, place.num_workers, _ = _read(load, self.words, self.fix)
        self._handler = ErrorHandler(policies=policies, pause=pause, retrying=retrying)
        limit_pools(num_threads)
        _keep_freed_memory()

    def compute(self, request: Request) -> Reply:
        """Compute a request."""
        self._num_requests += 1
        assert self._handler is not None
        begin_cpu, begin_ns = time.thread_time_ns(), _unqueued_ns()
        outcome: Outcome | None
        plan, context, item = self._segments[request.segment], self.context, self._item(request)
        beside: dict[int, Any] = {}
        columns: Sequence[Any] = ()
        if isinstance(item, BatchItem):
            outcome = compute_batches(plan, item, context, self._handler)
        else:
            rows = self._rows(request.place) if request.to_slot else None
            try:
                outcome = compute(plan, item, rows, context, self._handler)
            except _NotHere:
                outcome = None
            if rows is not None and outcome is not None:
                beside, columns = rows.beside_rows, rows.columns(item.begin, outcome.end)
        context.rest()
        self._draws.add("kernels", slow_twins())
        cpu_ns, busy_ns = time.thread_time_ns() - begin_cpu, _unqueued_ns() - begin_ns
        return Reply(outcome, beside, columns, cpu_ns, busy_ns, context.take_packed(), self._draws.take())

    def answer(self, request: Request, send: Callable[[Reply], _T], dumps: Callable[[object], object]) -> _T:
        """Compute a request, and return what `send` returns for the reply. Rows, or batches, that cannot be sent fail as others do.

        Raises:
            SpecError: the reply cannot be sent, and not for the sake of single rows.
        """
        reply = self.compute(request)
        try:
            return send(reply)
        except SpecError as error:
            told, item = error, self._item(request)
        bad = {row: result for row, result in _results(item, reply) if attempt(dumps, result) is None}
        why = cast(Exception, told.__cause__ or told)
        unsent = {row: self._unsent(request, not_sendable(result, why, "", dumps_to_program)) for row, result in bad.items()}
        reply = self.compute(request._replace(item=item._replace(fatal={**(item.fatal or {}), **unsent}))) if unsent else reply
        try:
            return send(reply)
        except SpecError as error:  # of what stands for such a row
            raise self._unsent(request, told) from error.__cause__

    def _item(self, request: Request) -> WorkItem | BatchItem:
        item = request.item
        if not isinstance(item, bytes):
            return item
        return cast(BatchItem, pickle.loads(item) if self._arena is None else self._arena.loads(item))

    def _unsent(self, request: Request, error: SpecError) -> SpecError:
        plan, item = self._segments[request.segment], request.item
        stage = plan.stages[item.stage].name if isinstance(item, WorkItem) else ""
        return SpecError(error.what, where=f"a result of stage {stage or plan.name!r}, {self.words}", fix=error.fix)

    def _rows(self, place: Place | None) -> RowsElsewhere:
        if place is None:
            return RowsElsewhere(0, None, None)
        if place.spec is not None:
            self._specs = {place.serial: place.spec}
        spec = self._specs[place.serial]
        arrays = []
        for leaf, offset in zip(spec.leaves, place.offsets, strict=True):
            shape = (place.num_rows, *sizes_of(leaf))
            if offset is None or self._arena is None:
                arrays.append(np.empty(shape, leaf.dtype))
            else:
                arrays.append(self._arena.array(offset, shape, leaf.dtype))
        return RowsElsewhere(place.num_rows, spec, arrays, [offset is None for offset in place.offsets])


def _results(item: WorkItem | BatchItem, reply: Reply) -> Iterator[tuple[int, Any]]:
    """Yield what a reply holds of each row, or batch, of an item."""
    first = item.begin if isinstance(item, WorkItem) else 0
    outcome = reply.outcome
    yield from reply.beside.items()
    for column in reply.columns:
        if column is None:
            continue
        yield from enumerate(column, first)
    if outcome is None:
        return
    for _, (block, rows) in outcome.parts:
        yield from zip(rows.tolist(), block.rows(), strict=True)
    if outcome.block is not None:
        block = outcome.block
        origins = outcome.origins or (range(len(block)) if block.origins is None else block.origins.tolist())
        yield from zip([first + origin for origin in origins], block.rows(), strict=True)


class _NotHere(BaseException):
    """What a function of the program would have to make is asked for."""


def _not_here(call: Callable[[], Any]) -> Any:
    raise _NotHere


class _Worker:
    """What a worker process has."""

    def __init__(self, pipe: Pipe, name: str, index: int, arena: ArenaView, num_threads: int) -> None:
        self._pipe, self._num_threads = pipe, num_threads
        words = f"{name}, process {os.getpid()}"
        self._computer = RemoteComputer(words, index, lambda row: pipe.send(AtRow(row)), arena)
        self._outbox = Outbox(pipe, where=f"a result of {name}", dumps=self._dumps)

    def begin(self, load: Callable[[], Stages], log_levels: dict[str, int]) -> None:
        """Compute what `load` gives from now on; `log_levels` as in `Request`."""
        send_records(log_levels, self._pipe.send, dumps_to_program)
        self._computer.begin(load, self._pause, self._tell_retry, self._num_threads)

    def tell_spots(self, line: socket.socket) -> None:
        """Say where the worker is as often as the parent asks, in a thread of its own: it answers unless C code holds the interpreter."""
        with suppress(OSError):  # the parent has ended, and this process is about to
            while line.recv(1):
                line.sendall(SPOT + pickle.dumps(self._computer.spot()).hex().encode() + b"\n")

    def answer(self, request: Request) -> None:
        """Compute a request and send the reply."""
        if request.stages is not None:
            stages = request.stages
            self.begin(lambda: stages.load(self._pipe.take_fd()), request.log_levels or {})
            self._pipe.send(Begun())
        self._outbox.given_back(list(request.free))
        self._computer.answer(request, self._outbox.send, partial(self._dumps, keep=None))

    def _pause(self, seconds: float) -> bool:
        """Wait before a retry; return whether the parent asks for the end, or has ended."""
        poll = select.poll()
        poll.register(self._pipe.fileno(), getattr(select, "POLLRDHUP", 0))
        return bool(poll.poll(1000 * seconds))

    def _tell_retry(self, failed: ElementFailed, *what: Any) -> None:
        self._pipe.send(Retrying(self._dumps((failed, *what), None)))

    def _dumps(self, value: object, keep: Keep | None) -> bytes:
        return dump_with_errors(value, keep, where=self._computer.words, pickler=pickler_to_program())


def serve(
    pipe: Pipe,
    name: str,
    index: int,
    arena_bytes: int,
    pools: Mapping[str, str],
    log_levels: dict[str, int],
    loaded: Stages | None = None,
) -> None:
    """Compute requests until the parent asks for the end. The descriptor of the arena comes with the first message.

    Args:
        pipe: to the parent.
        name: of the worker.
        index: of the worker.
        arena_bytes: of the arena.
        pools: variables that size the pools of native libraries, which this process begins without.
        log_levels: those of the program.
        loaded: what it computes first, where it was forked with it.
    """
    _seed_apart()
    set_pools(pools)
    pipe.receive()
    given = pools["OMP_NUM_THREADS"]
    worker = _Worker(pipe, name, index, ArenaView(pipe.take_fd(), arena_bytes), int(given) if given.isdecimal() else 1)
    line = socket.socket(fileno=pipe.take_fd())
    faulthandler.register(signal.SIGUSR1, line.fileno(), all_threads=False)  # tells the stack also where C code holds the interpreter
    threading.Thread(target=worker.tell_spots, args=(line,), name="penstock-spots", daemon=True).start()
    if loaded is not None:
        worker.begin(lambda: loaded, log_levels)
    while True:
        worker.answer(pipe.receive())


def _seed_apart() -> None:
    """Seed the global generators: a forked process would draw the same numbers as its siblings; `random` sees to that itself."""
    np.random.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(int.from_bytes(os.urandom(8)) >> 1)


def _keep_freed_memory() -> None:
    """Let the C library keep the memory of arrays that are freed; else a photograph takes 30 page faults, 10 % of the time."""
    with suppress(OSError, AttributeError):  # of a C library without it
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 128 << 20)


def limit_pools(num_threads: int) -> None:
    """Let libraries that are loaded compute with so many threads each."""
    set_of_cv2: Callable[[int], Any] | None = getattr(sys.modules.get("cv2"), "setNumThreads", None)
    set_of_torch: Callable[[int], Any] | None = getattr(sys.modules.get("torch"), "set_num_threads", None)
    for set_number in (set_of_cv2, set_of_torch, *(_setters_of_blas() if num_threads > 1 else ())):  # they begin with one
        if set_number is not None:
            set_number(num_threads)


def _setters_of_blas() -> Iterator[Callable[[int], Any]]:
    """Find the functions of the OpenBLAS libraries that are loaded: those of NumPy, SciPy and OpenCV are three."""
    with suppress(OSError):  # not on macOS
        for path in {line.split(maxsplit=5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line}:
            library = ctypes.CDLL(path)
            names = (f"{scipy}openblas_set_num_threads{width}" for scipy in ("", "scipy_") for width in ("", "64_"))
            yield from (getattr(library, name) for name in names if hasattr(library, name))
