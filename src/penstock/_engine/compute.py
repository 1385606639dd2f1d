"""Computing a task: a WorkItem or a BatchItem in, an Outcome out; rows of a batch are written into a slot. And finishing a chunk."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from penstock._contracts.element import bytes_of_all
from penstock._contracts.policy import Policy
from penstock._engine.chunk import BatchItem, Failure, Key, KnownLoss, LostElement, Outcome, PositionsPerOp, WorkItem
from penstock._engine.error_policy import (
    EMPTY,
    MOST_REPLACEMENTS,
    RAISING,
    SKIPPED,
    ErrorHandler,
    FailedElement,
    Partial,
    handled,
    in_pieces,
)
from penstock._engine.program import IN_PROGRAM, FilterStep, SegmentPlan
from penstock._engine.verifying import chosen, computed_twice, copied, rows_twice
from penstock._ops.block import LEFT_OUT, UNLIMITED, Block, ElementFailed, Ints, part_of
from penstock._ops.operator import ChainOp, Operator, WritesRows, apply_all
from penstock._ops.reading import BatchLeaf
from penstock._ops.rows import Rows
from penstock._ops.streams import FilterOp
from penstock._ops.worker import WorkerContext
from penstock._order.arithmetic import INFINITE, Length
from penstock._system.lazy import dataclass
from penstock.errors import StateMismatch

T = TypeVar("T")


def compute(plan: SegmentPlan, item: WorkItem, slot: Rows | None, worker: WorkerContext, error_handler: ErrorHandler = RAISING) -> Outcome:
    """Run the rows of an item through its stage, into `slot` if it is the last stage of a batch. Nothing else is touched.

    It stops early behind the element with which it holds more than `item.room` bytes: then its end is not the item's, without a failure.

    When an element fails, the rows before it are run again without it, and `error_handler` says what becomes of it; then the rows behind
    it are run. If it gives up, everything before the failure is delivered whatever the size of the block.

    Raises:
        KeyboardInterrupt: of the user, in the main thread; the item may be computed again.
    """
    worker.take_room(item.room)
    job = _Job(plan, item, slot, worker, error_handler, item.positions_per_op)
    share = error_handler.policies.verify
    twice = rows_twice(share, plan, item) if share else frozenset()
    run = partial(job.run_verified, twice) if twice else job.run
    with worker.beside():
        blocks, end, failure = in_pieces(
            item.begin, item.end, job.known_rows(), run, job.handle, one_by_one=item.fatal is not None, singly=twice
        )
    worker.piece = None
    block = None
    if item.stage < len(plan.stages) - 1 and end > item.begin:
        block = joined(item.begin, [(begin, part) for begin, part in blocks if part is not None])
    return job.outcome(end, block, failure)


@dataclass(slots=True, eq=False)
class _Job:
    """An item in work."""

    plan: SegmentPlan
    item: WorkItem
    slot: Rows | None
    worker: WorkerContext
    error_handler: ErrorHandler
    positions_per_op: PositionsPerOp
    moved: set[int] = field(default_factory=set)
    parts: dict[int, tuple[Block, Ints]] = field(default_factory=dict)
    lost: list[LostElement] = field(default_factory=list)
    unknown: frozenset[str] = frozenset()

    def outcome(self, end: int, block: Block | None, failure: Failure | None) -> Outcome:
        """Hand everything over."""
        return Outcome(
            end,
            block,
            failure,
            (),
            tuple(self.parts.items()),
            _handed_over(self.lost),
            [(row, self._places(row)) for row in self.moved],
            self.worker.kept,
            self.worker.most_bytes,
            self.unknown,
        )

    def run(self, begin: int, end: int, without: Without = (), found: list[LostElement] | None = None) -> Block | Partial | None:
        """Run rows through the stage; with `found`, policies act inside the leaf on one row, and it gets what they replaced there."""
        self._begin(begin, end, found)
        if self.item.fatal is not None:
            _announce(self.item, begin, self.worker, *self._owner())
        piece = _RowRange(self.item.stage, begin, end, self.item.block)
        block = self._input(piece)
        block.room = self.worker.room
        out, taken = self._through(piece, block, without)
        return out if taken == end - begin else Partial(out, begin + taken)

    def run_verified(self, twice: frozenset[int], begin: int, end: int) -> Block | Partial | None:
        """Run rows through the stage; one of `twice`, which comes by itself, a second time, alone, and refuse it if that gives another."""
        if begin not in twice:
            return self.run(begin, end)
        piece, worker = _RowRange(self.item.stage, begin, end, self.item.block), self.worker
        if self.item.block is not None or self.item.given is not None:  # else it is read again: so a change of the source itself shows
            given = self._input(piece)
            rows = copied(given.rows())
            if rows is None:
                self.unknown |= {type(row).__name__ for row in given.rows()}
                return self.run(begin, end)
            piece = piece._replace(block=given.with_rows(rows))
            cast(Block, piece.block).origins = given.origins

        def again() -> None:
            job = _Job(self.plan, self.item, None, worker, self.error_handler, self.positions_per_op)
            job._begin(begin, end, None)
            job._through(piece, job._input(piece), ())

        try:
            out, unknown = computed_twice(worker, lambda: self.run(begin, end), again, lambda: self._identity(begin)[:2])
        except ElementFailed:
            self.parts.pop(begin, None)
            raise
        self.unknown |= unknown
        return out

    def _begin(self, begin: int, end: int, found: list[LostElement] | None) -> None:
        self.worker.begin((begin, end))
        if found is not None:
            found.clear()
            self.worker.mend = partial(self._retry, begin, found)

    def _owner(self) -> tuple[str, Any]:
        """Return whose failure it is if a row ends worker processes, and the policy of its stage: which step did it is not known."""
        stage = self.plan.stages[self.item.stage]
        owners = [step for step in (*stage.operators, *stage.filter_steps) if getattr(step, "policy", None) is not None]
        owner: Any = owners[0] if len(owners) == 1 else None
        return (stage.name or self.plan.name, None) if owner is None else (owner.name, owner.policy)

    def known_rows(self) -> Collection[int]:
        """Return the rows that are known to have failed in this stage before the state was saved."""
        return [row for row, some in self.item.known.items() if any(self._is_due(one) for one in some)]

    def _is_due(self, known: KnownLoss) -> bool:
        """Tell whether this stage is where something is done about what is known: for a whole input the first that is run here.

        Async calls are begun elsewhere; their stage comes here when one of them fails.
        """
        stages = self.plan.stages
        if known.inner:
            return 0 <= known.inner[1] - self.plan.steps_before(self.item.stage) < len(stages[self.item.stage].filter_steps)
        first = next((number for number, stage in enumerate(stages) if stage.awaited is None), len(stages))
        return self.item.stage <= first

    def handle(self, row: int, failed: ElementFailed | None) -> Any:
        """Say what stands for a row that failed, or is known to have failed before the state was saved."""
        known = [one for one in self.item.known.get(row, ()) if self._is_due(one)] if failed is None else []
        whole = next((one for one in known if not one.inner), None)
        found: list[LostElement] = []
        around = self.worker.index, self.lost
        if failed is not None and failed.inside_batch and self.error_handler.cares(failed):
            failed = None  # the row runs once more, and the policies act where the element stands
        if whole is not None and not whole.how:
            self.lost.append(self._case(row, (), found).known_as(whole))
            return SKIPPED
        if whole is not None:
            case = self._case(row, (), found)
            self._move(row, whole.how)
            out = handled(self.error_handler, lambda _: case, lambda out: self._run_one(row, found, out), None, known, *around)
        else:
            out = handled(
                self.error_handler,
                lambda out: self._case(row, out, found),
                lambda out: self.run(row, row + 1, out, found),
                failed,
                known,
                *around,
            )
        if out is EMPTY:
            found[-1] = found[-1]._replace(fixed=False)  # it stands for the row, which goes with it
        if not isinstance(out, Failure):
            self.lost.extend(found)
        return SKIPPED if out is EMPTY else out

    def _retry(self, row: int, found: list[LostElement], child: ChainOp, length: Length, epochs: Ints, positions: Ints) -> list[Any]:
        """Compute the elements of batches inside the leaf, each alone or with its neighbours; None stands for one that is left out.

        Args:
            row: of the chunk.
            found: gets what was replaced.
            child: the chain below the batch.
            length: of one pass of it.
            epochs: of the elements.
            positions: of the elements, in the order right below the batch.
        """

        def rows_at(epochs: Ints, positions: Ints) -> list[Any]:
            with self.worker.given_room(UNLIMITED):
                return child.run(epochs, positions, self.worker).rows()

        def run(begin: int, end: int) -> list[Any]:
            return rows_at(epochs[begin:end], positions[begin:end])

        def handle(place: int, failed: ElementFailed | None) -> Any:
            assert failed is not None
            epoch, position = int(epochs[place]), int(positions[place])

            def others() -> Iterator[tuple[int, Callable[[], Any]]]:
                for distance in range(1, _num_others(length) + 1):
                    moved = epochs[place : place + 1], np.array([_moved_on(position, distance, length)], np.int64)
                    yield distance, partial(rows_at, *moved)

            parts = child.keys(epochs[place : place + 1], positions[place : place + 1])
            key = int(parts[0][0]), int(parts[1][0]), int(parts[2][0])
            again = partial(run, place, place + 1)
            loss = LostElement(-1, row, key, child.where(epoch, position), (key,), None, fixed=True)
            result = self.error_handler.handle(FailedElement(loss, again, others), failed, self.worker.index, found)[0]
            return [LEFT_OUT] if result is SKIPPED or result is EMPTY else result

        done, _, failure = in_pieces(0, len(positions), (), run, handle)
        if failure is not None:
            failed = ElementFailed(failure.at, failure.stage, failure.error)
            failed.final = True
            raise failed from failure.error
        return [element for _, elements in done for element in elements]

    def _case(self, row: int, without: Without, found: list[LostElement]) -> FailedElement:
        key, where, place = self._identity(row)
        saved = self._places(row)
        keys = () if place is None and self.item.given is None else (key,)  # a whole batch has no key of an element

        def restore() -> None:
            if row in self.moved:
                self._put(row, saved)
                self.moved.discard(row)

        def others() -> Iterator[tuple[int, Callable[[], Any]]]:
            for distance in range(1, _num_others(_pass_length(self.plan)) + 1):
                restore()
                self._move(row, distance)
                yield distance, partial(self._run_one, row, found)

        return FailedElement(
            LostElement(-1, row, key, where, keys, place),
            lambda: self.run(row, row + 1, without, found),
            others if self.positions_per_op else None,
            restore,
            row < self.item.num_replayed,
        )

    def _run_one(self, row: int, found: list[LostElement], without: Without = ()) -> Block | None:
        """Run one row through all stages up to this one."""
        stages = self.plan.stages[: self.item.stage + 1]
        if self.worker.errand is not None and IN_PROGRAM in [stage.workers for stage in stages]:
            return cast("Block | None", self.worker.errand(partial(self._run_one_here, row, found, without)))
        return self._run_one_here(row, found, without)

    def _run_one_here(self, row: int, found: list[LostElement], without: Without) -> Block | None:
        self._begin(row, row + 1, found)
        block: Block | None = None
        for stage in range(self.item.stage + 1):
            piece = _RowRange(stage, row, row + 1, block)
            block, _ = self._through(piece, self._input(piece), without if stage == self.item.stage else ())
        return block

    def _through(self, piece: _RowRange, block: Block, without: Without) -> tuple[Block | None, int]:
        """Run a block through a stage."""
        try:
            if self.worker.trace is not None and piece.block is None and self.item.given is None:
                self.worker.trace.note("read", block)
            return self._run_rows(piece, block, without)
        except ElementFailed as failed:
            failed.of_batch = failed.of_batch or isinstance(self.plan.leaf, BatchLeaf)
            raise

    def _identity(self, row: int) -> tuple[Key, str, tuple[int, int] | None]:
        """Return the key of a row, where it comes from in words, and its place in the leaf."""
        plan, given, at = self.plan, self.item.given, row - self.item.begin
        if given is not None:
            key = int(given.epochs[at]), int(given.indices[at]), int(given.lanes[at])
            return key, "" if plan.stream is None else plan.stream.describe(key[1]), None
        assert plan.leaf is not None
        epochs, positions = self.positions_per_op[0]
        keys = plan.leaf.keys(epochs[at : at + 1], positions[at : at + 1])
        place = int(epochs[at]), int(positions[at])
        key = int(keys[0][0]), int(keys[1][0]), int(keys[2][0])
        return key, plan.leaf.where(*place), None if isinstance(plan.leaf, BatchLeaf) else place

    # -- positions of rows that stand for others ---------------------------------------------------------------------------------

    def _places(self, row: int) -> list[tuple[int, int]]:
        """Return the (epoch, position) of a row at each level."""
        at = row - self.item.begin
        return [(int(epochs[at]), int(positions[at])) for epochs, positions in self.positions_per_op]

    def _put(self, row: int, places: list[tuple[int, int]]) -> None:
        at = row - self.item.begin
        for (epochs, positions), (epoch, position) in zip(self.positions_per_op, places, strict=True):
            epochs[at], positions[at] = epoch, position

    def _move(self, row: int, distance: int) -> None:
        """Let a row stand for the element `distance` places further on, counted round the end of the pass."""
        plan, at = self.plan, row - self.item.begin
        assert plan.leaf is not None
        if self.positions_per_op is self.item.positions_per_op:  # they belong to the chunk
            self.positions_per_op = [(epochs.copy(), positions.copy()) for epochs, positions in self.positions_per_op]
        epochs, positions = self.positions_per_op[-1]
        position = _moved_on(int(positions[at]), distance, _pass_length(plan))
        chain = ChainOp(plan.leaf, tuple(step for stage in plan.stages for step in stage.operators))
        moved = chain.positions_per_op(epochs[at : at + 1].copy(), np.array([position], np.int64))
        self._put(row, [(int(epoch[0]), int(place[0])) for epoch, place in moved])
        self.moved.add(row)

    # -- the stage ----------------------------------------------------------------------------------------------------------------

    def _input(self, piece: _RowRange) -> Block:
        """Return the block of the rows of a piece."""
        item, plan, begin, end = self.item, self.plan, piece.begin - self.item.begin, piece.end - self.item.begin
        whole = (piece.begin, piece.end) == (item.begin, item.end)
        if piece.block is not None:
            return piece.block if whole or piece.block is not item.block else part_of(piece.block, begin, end)
        if item.given is not None:
            return item.given if whole else item.given.select(slice(begin, end))
        assert plan.leaf is not None
        epochs, positions = self.positions_per_op[0]
        block = plan.leaf.run(epochs[begin:end], positions[begin:end], self.worker)
        if not block.columnar:
            return block
        row_bytes = sum(dtype.itemsize * math.prod(shape) for shape, dtype in block.leaf_types())
        count = max(1, self.worker.room // max(1, 2 * row_bytes))
        if count < end - begin:
            block = plan.leaf.run(epochs[begin : begin + count], positions[begin : begin + count], self.worker)
        if self.slot is None or plan.stages[piece.stage].operators:
            block.num_bytes = len(block) * row_bytes
        return block

    def _run_rows(self, piece: _RowRange, block: Block, without: Without) -> tuple[Block | None, int]:
        """Run a block through a stage; return it for the next one, or leave it in the slot or the parts; also how many rows it took."""
        stage, worker = self.plan.stages[piece.stage], self.worker
        positions_per_op = self._positions_of(piece, block)
        last = piece.stage == len(self.plan.stages) - 1
        worker.block, worker.operator, worker.origins = block, None, block.origins
        fresh = piece.block is None and self.item.given is None
        asked = piece.end - piece.begin if fresh else len(block)  # what was read may be less
        if last and self.slot is not None and block.origins is None:
            return None, self._write(piece, self.slot, block, positions_per_op, asked)
        origins = block.origins
        try:
            block, taken = _apply_to_inputs(stage.operators, block, positions_per_op, worker, asked, piece.end - piece.begin)
            block.rows()
            light = fresh and not block.num_bytes
        except ElementFailed as failed:
            raise failed if origins is None else failed.moved(int(origins[failed.offset])) from failed.error
        origins = None if origins is None else origins[: len(block)]
        if stage.filter_steps:
            block, origins = self._filtered(piece.stage, block, origins, without, light)
            taken = taken if block.taken is None else block.taken
            light = light and not block.num_bytes
        worker.weigh(block.num_bytes)
        worker.keep(8 * len(block.rows()) if light else block.num_bytes)
        block.origins, block.room, block.num_bytes = origins, UNLIMITED, 0
        if not last:
            return block, taken
        self._leave(piece, block, origins)
        return None, taken

    def _filtered(self, stage: int, block: Block, origins: Ints | None, without: Without, light: bool) -> tuple[Block, Ints]:
        """Run a block through the filters and flat_maps of a stage; weigh what comes out, unless all of it is light."""
        steps, first = self.plan.stages[stage].filter_steps, self.plan.steps_before(stage)
        block, origins = filter_step(steps, block, origins, self.worker, without, first)
        elements = block.rows()
        if not light or block.num_bytes:
            block.num_bytes = bytes_of_all(elements)
        return block, origins

    def _write(self, piece: _RowRange, slot: Rows, block: Block, positions_per_op: PositionsPerOp, asked: int) -> int:
        """Run a block through the last stage, straight into the slot; return how many rows it took."""
        operators, worker = self.plan.stages[piece.stage].operators, self.worker
        if operators and hasattr(operators[-1], "apply_into") and worker.trace is None:
            block = apply_all(operators[:-1], block, positions_per_op[:-1], worker)
            worker.block, worker.operator = block, operators[-1]
            count, kept = cast(WritesRows, operators[-1]).apply_into(block, worker, slot, piece.begin)
        else:
            block = apply_all(operators, block, positions_per_op, worker)
            kept = slot.put_block(piece.begin, block)
            count = len(block)
        worker.weigh(block.num_bytes)
        worker.keep(kept)
        return piece.end - piece.begin if count == asked else count  # of rows that a policy left out there is nothing

    def _leave(self, piece: _RowRange, block: Block, origins: Ints | None) -> None:
        """Leave finished elements in the slot, row by row, or in the parts."""
        places = (np.arange(len(block), dtype=np.int64) if origins is None else origins) + piece.begin
        if self.slot is None:
            self.parts[piece.begin] = block, places
            return
        for row, element in zip(places.tolist(), block.rows(), strict=True):
            self.slot.put(row, element)

    def _positions_of(self, piece: _RowRange, block: Block) -> PositionsPerOp:
        """Return the (epochs, positions) of the stage's operators; where rows are given, those of the keys: only maps stand there."""
        stages = self.plan.stages
        if self.plan.leaf is None:
            return [(block.epochs, block.indices)] * len(stages[piece.stage].operators)
        first = 1 + sum(len(earlier.operators) for earlier in stages[: piece.stage])
        begin = piece.begin - self.item.begin
        here: Any = slice(begin, begin + len(block)) if block.origins is None else block.origins + begin
        return [(e[here], p[here]) for e, p in self.positions_per_op[first : first + len(stages[piece.stage].operators)]]


class Computer(NamedTuple):
    """Where messages are computed.

    Attributes:
        compute: as `compute`.
        compute_batches: as `compute_batches`.
    """

    compute: Callable[[SegmentPlan, WorkItem, Rows | None, WorkerContext, ErrorHandler], Outcome]
    compute_batches: Callable[[SegmentPlan, BatchItem, WorkerContext, ErrorHandler], Outcome]


class _RowRange(NamedTuple):
    """Rows of an item that are run together through one stage; `block` as the stage before made them."""

    stage: int
    begin: int
    end: int
    block: Block | None


def _pass_length(plan: SegmentPlan) -> Length:
    """Return how many rows one pass of a segment has."""
    return plan.batch.length if plan.batch is not None else plan.length


def _num_others(length: Length) -> int:
    """Count the elements of a pass of this length that may take the place of one."""
    return MOST_REPLACEMENTS if length is None else int(min(MOST_REPLACEMENTS, length - 1))


def _moved_on(position: int, distance: int, length: Length) -> int:
    """Return the position so many places further on, counted round the end of the pass."""
    position += distance
    return position if length is None or length == INFINITE else position % int(length)


def _apply_to_inputs(
    operators: Sequence[Operator], block: Block, positions_per_op: PositionsPerOp, worker: WorkerContext, asked: int, count: int
) -> tuple[Block, int]:
    """Run a block, `asked` elements of `count` inputs, up through operators; return it with the first input that was not taken."""
    origins = block.origins
    made = apply_all(operators, block, positions_per_op, worker)
    made.rows()
    if len(made) == asked:
        return made, count
    if origins is None:
        return made, len(made)

    def run(rest: Block, begin: int) -> Block:
        here = slice(begin, begin + len(rest))
        return apply_all(operators, rest, [(epochs[here], positions[here]) for epochs, positions in positions_per_op], worker)

    return whole_inputs(block, made, origins, run)


def compute_batches(plan: SegmentPlan, item: BatchItem, worker: WorkerContext, error_handler: ErrorHandler = RAISING) -> Outcome:
    """Run batches through the operators above them, around those that fail. Nothing else is touched."""
    worker.finishing = True
    lost: list[LostElement] = []

    def run(begin: int, end: int, without: Without = ()) -> tuple[Block, Ints]:
        if item.fatal is not None:
            _announce(item, begin, worker, "+".join(filter(None, (step.name for step in plan.batch_ops))))
        return _apply_batch_ops(plan, item, begin, end, worker, without)

    def handle(number: int, failed: ElementFailed | None) -> Any:
        if number in item.without:
            return SKIPPED
        known = item.known.get(number, []) if failed is None else []
        if known and not known[0].inner:
            lost.append(_failed_batch(item, number).known_as(known[0]))
            return SKIPPED
        return handled(
            error_handler,
            lambda out: _failed_batch(item, number, lambda: run(number, number + 1, out)),
            lambda out: run(number, number + 1, out),
            failed,
            known,
            worker.index,
            lost,
        )

    asked, twice = [*item.known, *item.without], _batches_twice(item, error_handler.policies.verify)
    called = partial(_run_verified, plan, item, worker, run, twice) if twice else run
    with worker.beside():
        parts, end, failure = in_pieces(0, len(item.batches), asked, called, handle, one_by_one=item.fatal is not None, singly=twice)
    worker.piece = None
    origins = [origin + begin for begin, (_, part) in parts for origin in part.tolist()]
    block = concatenated([part for _, (part, _) in parts])
    return Outcome(end, block, failure, origins, lost=_handed_over(lost))


def _announce(item: WorkItem | BatchItem, number: int, worker: WorkerContext, stage: str, policy: Policy | None = None) -> None:
    """Announce a row or batch that is run alone; raise the failure of one that ends worker processes."""
    if item.fatal and number in item.fatal:
        failed = ElementFailed(0, stage, item.fatal[number], policy)
        failed.fatal = True
        raise failed
    worker.announce_row(number)


def _handed_over(some: list[T]) -> tuple[T, ...]:
    """Return what a list has, and empty it: frames of errors hold the list, and would keep alive what it holds."""
    out = tuple(some)
    some.clear()
    return out


def _failed_batch(item: BatchItem, number: int, again: Callable[[], Any] = lambda: None) -> FailedElement:
    """Say which batch it is: it goes by its first element."""
    keys: tuple[Key, ...] = ()
    if item.keys is not None and item.sizes is not None:
        first = sum(item.sizes[:number])
        here, given = slice(first, first + item.sizes[number]), item.keys
        keys = tuple(zip(given.epochs[here].tolist(), given.indices[here].tolist(), given.lanes[here].tolist(), strict=True))
    else:
        keys = (_keyed(item, number, number + 1).key_of(0),)
    where = f"a batch of {len(keys)}" if item.keys is not None else "a batch"
    shown = keys if item.keys is not None else ()
    loss = LostElement(number, -1, keys[0], where, shown, None)
    return FailedElement(loss, again, replayed=number < item.num_replayed)


def _apply_batch_ops(
    plan: SegmentPlan, item: BatchItem, begin: int, end: int, worker: WorkerContext, without: Without
) -> tuple[Block, Ints]:
    worker.begin((begin, end))
    if not item.collated:
        item = item._replace(batches=[*item.batches[:begin], *_collated(plan, item.batches[begin:end]), *item.batches[end:]])
    block = _keyed(item, begin, end)
    if worker.trace is not None:
        worker.trace.note("batch", block)
    operators, filter_steps = plan.batch_steps
    positions_per_op: PositionsPerOp = [(e[begin:end], p[begin:end]) for e, p in item.positions_per_op[1 : 1 + len(operators)]]
    if not positions_per_op and operators:
        positions_per_op = [(block.epochs, block.indices)] * len(operators)
    block = apply_all(operators, block, positions_per_op, worker)
    if filter_steps:
        return filter_step(filter_steps, block, None, worker, without)
    block.rows()
    return block, np.arange(len(block), dtype=np.int64)


def _run_verified(
    plan: SegmentPlan, item: BatchItem, worker: WorkerContext, run: Callable[[int, int], T], twice: Collection[int], begin: int, end: int
) -> T:
    """Run batches; one of `twice`, which comes by itself, a second time, alone, from a copy, and refuse it if that gives another."""
    batches = copied(item.batches[begin:end]) if begin in twice else None
    if batches is None:
        return run(begin, end)
    copy, loss = item._replace(batches=[*item.batches[:begin], *batches, *item.batches[end:]]), _failed_batch(item, begin).loss
    again = partial(_apply_batch_ops, plan, copy, begin, end, worker, ())
    return computed_twice(worker, lambda: run(begin, end), again, lambda: (loss.key, loss.where))[0]


def _batches_twice(item: BatchItem, share: float) -> frozenset[int]:
    """Return the batches that are computed a second time and compared."""
    if not share or not item.batches:
        return frozenset()
    keys = _keyed(item, 0, len(item.batches))
    return frozenset(chosen(share, (keys.epochs, keys.indices, keys.lanes)).tolist())


def _collated(plan: SegmentPlan, batches: list[Any]) -> Iterator[Any]:
    """Yield what the user's `collate_fn` makes of the rows of each batch."""
    assert plan.batch is not None
    for number, rows in enumerate(batches):
        try:
            yield plan.batch.collation.collate(rows, str)
        except Exception as error:
            failed = ElementFailed(number, "batch", error)
            failed.final = True  # its elements are good: no policy leaves them out
            raise failed from error


def _keyed(item: BatchItem, begin: int, end: int) -> Block:
    """Give batches keys: their own (epoch, position), or behind a fold those of their first element."""
    here = slice(begin, end)
    if item.positions_per_op:
        epochs, positions = item.positions_per_op[0]
        return Block(epochs[here], positions[here], np.zeros(end - begin, np.uint64), rows=item.batches[here])
    assert item.keys is not None
    assert item.sizes is not None
    first = np.concatenate([[0], np.cumsum(item.sizes)[:-1]])[here].astype(np.int64)
    given = item.keys
    return Block(given.epochs[first], given.indices[first], given.lanes[first], rows=item.batches[here])


def concatenated(blocks: list[Block]) -> Block | None:
    """Put blocks one behind the other, as rows; None for none."""
    if len(blocks) == 1:
        return blocks[0]
    if not blocks:
        return None
    keys = ([block.epochs for block in blocks], [block.indices for block in blocks], [block.lanes for block in blocks])
    return Block(*map(np.concatenate, keys), rows=[row for block in blocks for row in block.rows()])  # type: ignore[arg-type]


def joined(start: int, blocks: list[tuple[int, Block]]) -> Block:
    """Put the pieces of an item that begins with row `start` together; rows that were left out show in the origins."""
    if not blocks:
        none = np.empty(0, np.int64)
        out = Block(none, none, none.astype(np.uint64), rows=[])
        out.origins = none
        return out
    if len(blocks) == 1 and blocks[0][0] == start:
        return blocks[0][1]
    together = concatenated([block for _, block in blocks])
    assert together is not None
    origins = [np.arange(len(block), dtype=np.int64) if block.origins is None else block.origins for _, block in blocks]
    together.origins = np.concatenate([part + (begin - start) for part, (begin, _) in zip(origins, blocks, strict=True)])
    return together


# -- filters, flat_maps and the maps among them ---------------------------------------------------------------------------------

Without = Sequence[tuple[int, ...]]
"""Elements to leave out: (step, number among those that its input gave); or (step, number, 1), that one and all behind it."""


def filter_step(
    steps: Sequence[FilterStep | Operator],
    block: Block,
    origins: Ints | None,
    worker: WorkerContext,
    without: Without = (),
    first: int = 0,
) -> tuple[Block, Ints]:
    """Run filters, flat_maps and the maps among them; their failures count in input offsets. What comes out has `taken`.

    `without` leaves out elements that fail: before step n those with the given numbers, one after the other. `first` is the number of the
    first step.

    Raises:
        ElementFailed: a step failed.
        StateMismatch: an input does not give an element that was left out before the state was saved.
    """
    origins = np.arange(len(block), dtype=np.int64) if origins is None else origins
    several = block.origins is not None
    taken: int | None = None
    block.taken = None
    for number, step in enumerate(steps):
        for left_out, element, *rest in without:
            if left_out == first + number:
                if element >= len(block):
                    raise not_again(f"number {element} of the results of one element was left out, and it gives {len(block)} now")
                keep = np.arange(element) if rest else np.delete(np.arange(len(block)), element)
                block, origins = block.select(keep), origins[keep]
        worker.block, worker.operator, worker.origins = block, step, origins
        try:
            if hasattr(step, "filter_step"):
                after, after_origins = cast(FilterStep, step).filter_step(block, origins)
                several = several or len(after) > len(block) or type(step) is not FilterOp
                if after.taken is not None:
                    taken = int(origins[after.taken])
                    after.taken = None  # a filter that keeps all returns the block itself
            else:
                after, after_origins = step.apply(block, origins, origins, worker), origins
                after.rows()
                if len(after) < len(block):
                    after, taken = whole_inputs(block, after, origins, partial(_apply_from, step, origins, worker))
                    after_origins = origins[: len(after)]
        except ElementFailed as failed:
            raise _located(failed, (number, first), several, block, origins) from failed.error
        worker.weigh(block.num_bytes + after.num_bytes)
        block, origins = after, after_origins
        if worker.trace is not None:
            worker.trace.note(step.name, block)
    block.taken = taken
    return block, origins


def not_again(what: str) -> StateMismatch:
    """Return the error of an element that does not give what it gave before the state was saved."""
    return StateMismatch(
        f"the data or functions are other ones than when the state was saved: {what}",
        where="load_state_dict()",
        fix="resume with the data and functions that the state was saved with",
    )


def _apply_from(step: Operator, origins: Ints, worker: WorkerContext, block: Block, begin: int) -> Block:
    """Run a map on elements from `begin` on."""
    here = origins[begin : begin + len(block)]
    return step.apply(block, here, here, worker)


def whole_inputs(block: Block, made: Block, origins: Ints, run: Callable[[Block, int], Block]) -> tuple[Block, int]:
    """End what was made of a part of a block behind a whole input, the first one at least; return it with the first input not taken.

    `run(block, begin)` makes the same of some of the elements, from number `begin` on.
    """
    count = len(made)
    last = origins[count - 1]
    if origins[count] != last:
        return made, int(origins[count])
    first = int(np.searchsorted(origins, last))
    if first:
        return made.with_rows(made.rows()[:first], made.num_bytes), int(last)
    end = int(np.searchsorted(origins, last, side="right"))
    rest = block.select(slice(count, end))
    rest.room = UNLIMITED
    try:
        added = run(rest, count)
    except ElementFailed as failed:
        raise failed.moved(count + failed.offset) from failed.error
    out = block.select(slice(0, end)).with_rows([*made.rows(), *added.rows()], made.num_bytes + added.num_bytes)
    return out, int(last) + 1


def _located(failed: ElementFailed, step: tuple[int, int], several: bool, block: Block, origins: Ints) -> ElementFailed:
    """Say which input of a run of steps failed, and, where inputs give several elements, which of them."""
    at = min(failed.element, len(origins) - 1)
    out = failed.moved(int(origins[at]))
    out.step, first = step
    if several:
        out.inner = first + out.step, at - int(np.searchsorted(origins, origins[at]))
        out.key = block.key_of(at)
    return out


HERE = Computer(compute, compute_batches)
"""In the calling thread."""
