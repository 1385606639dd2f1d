"""One task on one worker: rows through a stage, into the batch or on to the next stage. Holds no lock."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from penstock._contracts.element import bytes_of_all
from penstock._engine.ahead import all_written, taken_out
from penstock._engine.failing import prepare
from penstock._engine.joining import concatenated, join, joined, with_late
from penstock._engine.mishaps import Mishap
from penstock._engine.program import SegmentPlan
from penstock._engine.rescue import GONE, MOST_REPLACEMENTS, RAISING, Around, Case, Partial, Rescue, in_pieces, mended
from penstock._engine.sifting import Without, sift, whole_inputs
from penstock._engine.unit import Failure, Known, LateFailure, Levels, Result, Task, Unit
from penstock._ops.block import UNLIMITED, Block, ElementFailed, Ints, part_of
from penstock._ops.leaves import BatchLeaf
from penstock._ops.operator import ChainOp, Operator, WritesRows, climb
from penstock._ops.positions import moves_only
from penstock._ops.rows import Rows
from penstock._ops.worker import WorkerContext
from penstock._order.arithmetic import INFINITE, Length

__all__ = ["finish_unit", "run_task"]


def run_task(plan: SegmentPlan, task: Task, worker: WorkerContext, rescue: Rescue = RAISING) -> tuple[Block | None, int, Failure | None]:
    """Run the rows of a task through its stage.

    It stops early behind the element with which it holds more than `task.room` bytes: then its end is not the task's, without a failure.

    When an element fails, the rows before it are run again without it, and `rescue` says what becomes of it; then the rows behind it are
    run. If it gives up, everything before the failure is delivered whatever the size of the block.

    Returns:
        (the block for the next stage or None, the first row that is not done, the failure or None).

    Raises:
        KeyboardInterrupt: of the user, in the main thread; the task may be run again.
    """
    unit = task.unit
    assert unit is not None
    worker.take_room(task.room)
    rows, given = unit.rows, unit.given  # before looking at `finishing`: who finishes the unit takes them away
    if unit.whole:
        return None, task.end, None  # its rows are written already
    if unit.finishing:
        return None, task.begin, None  # a row before these failed, and the unit was finished without them
    job = _Job(plan, task, given, rows, worker, rescue)
    try:
        blocks, end, failure = in_pieces(task.begin, task.end, job.known_rows(), job.run, job.treat)
    except BaseException:
        _forget(unit, task)
        raise
    worker.piece = None
    if task.stage == len(plan.stages) - 1 or end == task.begin:
        return None, end, failure
    return joined(task, [(begin, block) for begin, block in blocks if block is not None]), end, failure


def _forget(unit: Unit, task: Task) -> None:
    """Take back what an interrupted run left with the unit: it will be run again, perhaps in other pieces."""
    for parts in (unit.parts, unit.keys, unit.late):
        for begin in [begin for begin in parts if task.begin <= begin < task.end]:
            del parts[begin]
    unit.mishaps[:] = [mishap for mishap in unit.mishaps if not task.begin <= mishap.row < task.end]


class _Job(NamedTuple):
    """A task in work."""

    plan: SegmentPlan
    task: Task
    given: Block | None
    rows: Rows | None
    worker: WorkerContext
    rescue: Rescue

    def run(self, begin: int, end: int, without: Without = (), found: list[Mishap] | None = None) -> Block | Partial | None:
        """Run rows through the stage; with `found`, policies act inside the leaf on one row, and it gets what they replaced there."""
        self._begin(begin, end, found)
        piece = self.task._replace(begin=begin, end=end)
        block = _input(self.plan, self.task, self.given, begin, end, self.worker)
        block.room = self.worker.room
        out, taken = self._through(piece, block, without)
        return out if taken == end - begin else Partial(out, begin + taken)

    def _begin(self, begin: int, end: int, found: list[Mishap] | None) -> None:
        self.worker.begin((begin, end))
        if found is not None:
            found.clear()
            self.worker.mend = partial(self._mend, begin, found)

    def known_rows(self) -> Collection[int]:
        """Return the rows that are known to have failed in this stage before the state was saved."""
        unit = self.task.unit
        assert unit is not None
        bad = () if self.task.stage else unit.bad_rows
        return [*bad, *(row for row, some in unit.known.items() if any(self._is_due(one) for one in some))]

    def _is_due(self, known: Known) -> bool:
        """Tell whether this stage is where something is done about what is known: for a whole input the first that is run here.

        Async calls are begun elsewhere; their stage comes here when one of them fails.
        """
        stages = self.plan.stages
        first = next((number for number, stage in enumerate(stages) if stage.awaited is None), len(stages))
        return known.inner[0] == self.task.stage if known.inner else self.task.stage <= first

    def treat(self, row: int, failed: ElementFailed | None) -> Any:
        """Say what stands for a row that failed, or is known to have failed before the state was saved."""
        unit = self.task.unit
        assert unit is not None
        if failed is None and not self.task.stage and row in unit.bad_rows:
            return GONE
        return self._mended(unit, row, failed)

    def _mended(self, unit: Unit, row: int, failed: ElementFailed | None) -> Any:
        known = [one for one in unit.known.get(row, ()) if self._is_due(one)] if failed is None else []
        whole = next((one for one in known if not one.inner), None)
        around = Around(self.worker.index, unit.mishaps)
        found: list[Mishap] = []
        if failed is not None and failed.inside_batch and self.rescue.cares(failed):
            failed = None  # the row runs once more, and the policies act where the element stands
        if whole is not None and not whole.how:
            unit.mishaps.append(self._case(unit, row, (), found).known_as(whole))
            return GONE
        if whole is not None:
            case = self._case(unit, row, (), found)
            _move(self.plan, unit, row, whole.how)
            out = mended(self.rescue, lambda _: case, lambda out: self._alone(row, found, out), None, known, around)
        else:
            out = mended(
                self.rescue,
                lambda out: self._case(unit, row, out, found),
                lambda out: self.run(row, row + 1, out, found),
                failed,
                known,
                around._replace(late=partial(self._late, row)),
            )
        if out is not GONE and not isinstance(out, Failure):
            unit.mishaps.extend(found)
        return out

    def _late(self, row: int, failed: ElementFailed, failure: Failure) -> tuple[int, ...] | None:
        """Keep the failure of a row, or of one of its results, for the folds, where these may leave it out by count alone."""
        unit, plan = self.task.unit, self.plan
        assert unit is not None
        settled = plan.decides if plan.batch is not None else (self.task.stage, failed.step) <= plan.settled_after
        if not plan.late_failures or (settled and (plan.batch is not None or failed.inner is None)):
            return None
        key, where, _ = _identity(plan, unit, row)
        late = LateFailure(prepare(failure, where, key[:2]), at_once=settled)
        if plan.batch is not None:
            unit.bad_rows[row] = late
            return ()
        unit.late.setdefault(row, []).append((failed.inner[1] if failed.inner else 0, failed.key or key, late))
        return (*failed.inner, 1) if settled and failed.inner else failed.inner or ()

    def _mend(self, row: int, found: list[Mishap], child: ChainOp, length: Length, epochs: Ints, positions: Ints) -> list[Any]:
        """Compute the elements of batches inside the leaf; others take the place of those that fail, for their positions are fixed.

        Args:
            row: of the unit.
            found: gets what was replaced.
            child: the chain below the batch.
            length: of one pass of it.
            epochs: of the elements.
            positions: of the elements, in the order right below the batch.
        """
        unit = self.task.unit
        assert unit is not None
        item = unit.item_of(row)

        def rows_at(epochs: Ints, positions: Ints) -> list[Any]:
            with self.worker.given_room(UNLIMITED):
                return child.run(epochs, positions, self.worker).rows()

        def run(begin: int, end: int) -> list[Any]:
            return rows_at(epochs[begin:end], positions[begin:end])

        def treat(place: int, failed: ElementFailed | None) -> Any:
            assert failed is not None
            epoch, position = int(epochs[place]), int(positions[place])

            def others() -> Iterator[tuple[int, Callable[[], Any]]]:
                for distance in range(1, _num_others(length) + 1):
                    moved = epochs[place : place + 1], np.array([_moved_on(position, distance, length)], np.int64)
                    yield distance, partial(rows_at, *moved)

            parts = child.keys(epochs[place : place + 1], positions[place : place + 1])
            key = int(parts[0][0]), int(parts[1][0]), int(parts[2][0])
            again = partial(run, place, place + 1)
            case = Case(
                item, row, again, others, lambda: None, key, child.where(epoch, position), (key,), None, False, self.task.stage, fixed=True
            )
            return self.rescue.treat(case, failed, self.worker.index, found)[0]

        done, _, failure = in_pieces(0, len(positions), (), run, treat)
        if failure is not None:
            failed = ElementFailed(failure.at, failure.stage, failure.error)
            failed.final = True
            raise failed from failure.error
        return [element for _, elements in done for element in elements]

    def _case(self, unit: Unit, row: int, without: Without, found: list[Mishap]) -> Case:
        key, where, place = _identity(self.plan, unit, row)
        item = unit.item_of(row)
        saved = [(int(e[row]), int(p[row])) for e, p in unit.levels]

        def restore() -> None:
            for (epochs, positions), (epoch, position) in zip(unit.levels, saved, strict=True):
                epochs[row], positions[row] = epoch, position

        def others() -> Iterator[tuple[int, Callable[[], Any]]]:
            for distance in range(1, _num_others(_pass_length(self.plan)) + 1):
                restore()
                _move(self.plan, unit, row, distance)
                yield distance, partial(self._alone, row, found)

        return Case(
            item,
            row,
            lambda: self.run(row, row + 1, without, found),
            others if unit.levels else None,
            restore,
            key,
            where,
            () if place is None and unit.given is None else (key,),  # a whole batch has no key of an element
            place,
            item < unit.num_replayed,
            self.task.stage,
        )

    def _alone(self, row: int, found: list[Mishap], without: Without = ()) -> Block | None:
        """Run one row through all stages up to this one."""
        self._begin(row, row + 1, found)
        block: Block | None = None
        for stage in range(self.task.stage + 1):
            piece = self.task._replace(stage=stage, begin=row, end=row + 1, block=block)
            given = _input(self.plan, piece, self.given, row, row + 1, self.worker)
            block, _ = self._through(piece, given, without if stage == self.task.stage else ())
        return block

    def _through(self, piece: Task, block: Block, without: Without) -> tuple[Block | None, int]:
        """Run a block through a stage."""
        try:
            return _run_rows(self.plan, piece, block, self.rows, self.worker, without)
        except ElementFailed as failed:
            failed.of_batch = failed.of_batch or isinstance(self.plan.leaf, BatchLeaf)
            raise


def _identity(plan: SegmentPlan, unit: Unit, row: int) -> tuple[tuple[int, int, int], str, tuple[int, int] | None]:
    """Return the key of a row, where it comes from in words, and its place in the leaf."""
    if unit.given is not None:
        given = unit.given
        key = int(given.epochs[row]), int(given.indices[row]), int(given.lanes[row])
        return key, "" if plan.stream is None else plan.stream.describe(key[1]), None
    assert plan.leaf is not None
    epochs, positions = unit.levels[0]
    keys = plan.leaf.keys(epochs[row : row + 1], positions[row : row + 1])
    place = int(epochs[row]), int(positions[row])
    key = int(keys[0][0]), int(keys[1][0]), int(keys[2][0])
    return key, plan.leaf.where(*place), None if isinstance(plan.leaf, BatchLeaf) else place


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


def _move(plan: SegmentPlan, unit: Unit, row: int, distance: int) -> None:
    """Let a row of a unit stand for the element `distance` places further on, counted round the end of the pass."""
    assert plan.leaf is not None
    epochs, positions = unit.levels[-1]
    position = _moved_on(int(positions[row]), distance, _pass_length(plan))
    chain = ChainOp(plan.leaf, tuple(step for stage in plan.stages for step in stage.operators))
    moved = chain.levels(epochs[row : row + 1].copy(), np.array([position], np.int64))
    for (below_epochs, below_positions), (epoch, place) in zip(unit.levels, moved, strict=True):
        below_epochs[row], below_positions[row] = epoch[0], place[0]


def _run_rows(
    plan: SegmentPlan, task: Task, block: Block, rows: Rows | None, worker: WorkerContext, without: Without = ()
) -> tuple[Block | None, int]:
    """Run a block through a stage; return it for the next stage, or leave it in the batch or with the unit; also how many rows it took."""
    stage, unit = plan.stages[task.stage], task.unit
    assert unit is not None
    operators = stage.operators
    levels = _levels(plan, task, block) if operators else []
    last = task.stage == len(plan.stages) - 1
    worker.block, worker.operator, worker.origins = block, None, block.origins
    fresh = task.block is None and unit.given is None
    asked = task.end - task.begin if fresh else len(block)  # what was read may be less
    if last and rows is not None and block.origins is None:
        keys = block
        if operators and hasattr(operators[-1], "up_into"):
            block = climb(operators[:-1], block, levels[:-1], worker)
            worker.block, worker.operator = block, operators[-1]
            count, kept = cast(WritesRows, operators[-1]).up_into(block, worker, rows, task.begin)
        else:
            block = climb(operators, block, levels, worker)
            kept = rows.put_block(task.begin, block)
            count = len(block)
        worker.weigh(block.num_bytes)
        worker.keep(kept)
        if unit.ahead:
            here = slice(0, count)
            unit.keys[task.begin] = (
                Block(keys.epochs[here], keys.indices[here], keys.lanes[here]),
                range(task.begin, task.begin + count),
            )
        return None, task.end - task.begin if count == asked else count  # of rows that a policy left out there is nothing
    origins = block.origins
    try:
        block, taken = _climb(operators, block, levels, worker, asked, task.end - task.begin)
        elements = block.rows()
        light = fresh and not block.num_bytes
    except ElementFailed as failed:
        raise failed if origins is None else failed.moved(int(origins[failed.offset])) from failed.error
    if stage.sifts:
        block, origins = sift(stage.sifts, block, None if origins is None else origins[: len(block)], worker, without)
        taken = taken if block.taken is None else block.taken
        elements, light = block.rows(), light and not block.num_bytes
        block.num_bytes = 0 if light else bytes_of_all(elements)
    elif origins is not None:
        origins = origins[: len(block)]
    worker.weigh(block.num_bytes)
    worker.keep(8 * len(elements) if light else block.num_bytes)
    block.origins, block.room, block.num_bytes = origins, UNLIMITED, 0
    if not last:
        return block, taken
    places = (np.arange(len(block), dtype=np.int64) if origins is None else origins) + task.begin
    if rows is not None:
        for row, element in zip(places.tolist(), block.rows(), strict=True):
            rows.put(row, element)
        unit.keys[task.begin] = Block(block.epochs, block.indices, block.lanes), places
        return None, taken
    unit.parts[task.begin] = block, places
    return None, taken


def _climb(operators: Sequence[Operator], block: Block, levels: Levels, worker: WorkerContext, asked: int, count: int) -> tuple[Block, int]:
    """Run a block, `asked` elements of `count` inputs, up through operators; return it with the first input that was not taken."""
    origins = block.origins
    made = climb(operators, block, levels, worker)
    made.rows()
    if len(made) == asked:
        return made, count
    if origins is None:
        return made, len(made)

    def run(rest: Block, begin: int) -> Block:
        here = slice(begin, begin + len(rest))
        return climb(operators, rest, [(epochs[here], positions[here]) for epochs, positions in levels], worker)

    return whole_inputs(block, made, origins, run)


def _levels(plan: SegmentPlan, task: Task, block: Block) -> Levels:
    """Return the (epochs, positions) of the stage's operators; where rows are given, those of the keys: only maps stand there."""
    assert task.unit is not None
    if plan.leaf is None:
        return [(block.epochs, block.indices)] * len(plan.stages[task.stage].operators)
    first = 1 + sum(len(earlier.operators) for earlier in plan.stages[: task.stage])
    here: Any = slice(task.begin, task.begin + len(block)) if block.origins is None else block.origins + task.begin
    return [(e[here], p[here]) for e, p in task.unit.levels[first : first + len(plan.stages[task.stage].operators)]]


def _input(plan: SegmentPlan, task: Task, given: Block | None, begin: int, end: int, worker: WorkerContext) -> Block:
    """Return the block of rows begin..end of a task."""
    if task.block is not None:
        return task.block if (begin, end) == (task.begin, task.end) else part_of(task.block, begin - task.begin, end - task.begin)
    if given is not None:
        return given if (begin, end) == (0, len(given)) else given.select(slice(begin, end))
    assert plan.leaf is not None
    assert task.unit is not None
    epochs, positions = task.unit.levels[0]
    block = plan.leaf.run(epochs[begin:end], positions[begin:end], worker)
    if not block.columnar:
        return block
    row_bytes = sum(dtype.itemsize * math.prod(shape) for shape, dtype in block.leaf_types())
    count = max(1, worker.room // max(1, 2 * row_bytes))
    if count < end - begin:
        block = plan.leaf.run(epochs[begin : begin + count], positions[begin : begin + count], worker)
    if task.unit.rows is None or plan.stages[task.stage].operators:
        block.num_bytes = len(block) * row_bytes
    return block


def finish_unit(plan: SegmentPlan, unit: Unit, worker: WorkerContext, rescue: Rescue = RAISING) -> tuple[Result, Failure | None]:
    """Make the items of a unit whose wanted rows are done: batches through the top operators, or the parts joined.

    Returns:
        (the items before the first failure, that failure with the number of its item or None).
    """
    worker.rest()
    worker.take_room(UNLIMITED)
    worker.finishing = True
    failure = unit.failure
    count = unit.good_items()
    if failure is not None:
        failure = failure._replace(at=unit.item_of(failure.at))
    unit.in_place = unit.rows is not None and not unit.rows.beside and moves_only(plan.top)
    if unit.ahead and unit.rows is not None:
        result = all_written(plan, unit)
        if result is not None:
            return result, None
        unit.parts, unit.in_place = taken_out(unit), False
    late = _bad_items(unit)
    if unit.rows is None:
        unit.late.update(late)
        return join(unit, count), failure
    bad: dict[int, ElementFailed] = {}
    batches = unit.rows.finish(count, bad, without=late)
    if bad and not (plan.late_failures and plan.settled_at_top < -1):
        first = min(bad)
        failure = Failure(first, bad[first].error, bad[first].stage, worker.index)
        batches, bad = batches[:first], {}
    unit.rows = None
    if plan.folds is None and moves_only(plan.top):
        return Result(batches, None, None), failure
    unit.late.update(late)
    return _run_top(plan, unit, batches, bad, set(late), worker, rescue, failure)


def _bad_items(unit: Unit) -> dict[int, list[tuple[int, tuple[int, int, int], LateFailure]]]:
    """Return the items that have a row without an element, as `late` has them: each with the failure of its first such row."""
    out: dict[int, list[tuple[int, tuple[int, int, int], LateFailure]]] = {}
    for row in sorted(unit.bad_rows):
        item = unit.item_of(row)
        if item not in out:
            key = unit.given.key_of(unit.first_row(item)) if unit.given is not None else _top_case(unit, item, lambda: None).key
            out[item] = [(0, key, unit.bad_rows[row])]
    return out


def _run_top(
    plan: SegmentPlan,
    unit: Unit,
    batches: list[Any],
    bad: dict[int, ElementFailed],
    without: set[int],
    worker: WorkerContext,
    rescue: Rescue,
    failure: Failure | None,
) -> tuple[Result, Failure | None]:
    """Run batches through the top operators, around those that fail; `bad` could not be made of their elements, `without` lack one."""

    def run(begin: int, end: int, without: Without = ()) -> tuple[Block, Ints]:
        return _top(plan, unit, batches, begin, end, worker, without)

    def late(item: int, failed: ElementFailed, failure: Failure) -> tuple[int, ...] | None:
        settled = failed.step <= plan.settled_at_top
        if not plan.late_failures or (settled and failed.inner is None):
            return None
        case = _top_case(unit, item, lambda: None)
        kept = LateFailure(prepare(failure, case.where, case.key[:2]), at_once=settled)
        unit.late.setdefault(item, []).append((failed.inner[1] if failed.inner else 0, failed.key or case.key, kept))
        return (*failed.inner, 1) if settled and failed.inner else failed.inner or ()

    def treat(item: int, failed: ElementFailed | None) -> Any:
        if item in without:
            return GONE
        failed = failed or bad.get(item)
        known = unit.known_items.get(item, []) if failed is None else []
        if known and not known[0].inner:
            unit.mishaps.append(_top_case(unit, item, lambda: None).known_as(known[0]))
            return GONE
        return mended(
            rescue,
            lambda out: _top_case(unit, item, lambda: run(item, item + 1, out)),
            lambda out: run(item, item + 1, out),
            failed,
            known,
            Around(worker.index, unit.mishaps, partial(late, item)),
        )

    known_items = [*unit.known_items, *bad, *without]
    parts, end, failed = in_pieces(0, len(batches), known_items, run, treat)
    worker.piece = None
    if failed is not None:
        failure = failed._replace(at=end)
    block = concatenated([part for _, (part, _) in parts])
    origins = [origin + begin for begin, (_, part) in parts for origin in part.tolist()]
    return with_late(unit, list(block.rows()) if block is not None else [], origins, block, end), failure


def _top_case(unit: Unit, item: int, again: Callable[[], Any]) -> Case:
    """Say who a batch is: it goes by its first element."""
    keys: tuple[tuple[int, int, int], ...] = ()
    if unit.given is not None and unit.sizes is not None:
        first = sum(unit.sizes[:item])
        here, given = slice(first, first + unit.sizes[item]), unit.given
        keys = tuple(zip(given.epochs[here].tolist(), given.indices[here].tolist(), given.lanes[here].tolist(), strict=True))
    elif unit.top_levels:
        epochs, positions = unit.top_levels[0]
        keys = ((int(epochs[item]), int(positions[item]), 0),)
    where = f"a batch of {len(keys)}" if unit.given is not None else "a batch"
    return Case(
        item, -1, again, None, lambda: None, keys[0], where, keys if unit.given is not None else (), None, item < unit.num_replayed, 0
    )


def _top(
    plan: SegmentPlan, unit: Unit, batches: list[Any], begin: int, end: int, worker: WorkerContext, without: Without
) -> tuple[Block, Ints]:
    worker.begin((begin, end))
    block = _keyed(unit, batches, begin, end)
    operators = [step for step in plan.top if not hasattr(step, "sift")]
    sifts: Sequence[Any] = ()
    if len(operators) < len(plan.top):
        first = next(place for place, step in enumerate(plan.top) if hasattr(step, "sift"))
        operators, sifts = list(plan.top[:first]), plan.top[first:]  # type: ignore[arg-type]
    levels: Levels = [(e[begin:end], p[begin:end]) for e, p in unit.top_levels[1 : 1 + len(operators)]]
    if not levels and operators:
        levels = [(block.epochs, block.indices)] * len(operators)
    block = climb(operators, block, levels, worker)
    if sifts:
        return sift(sifts, block, None, worker, without)
    block.rows()
    return block, np.arange(len(block), dtype=np.int64)


def _keyed(unit: Unit, batches: list[Any], begin: int, end: int) -> Block:
    """Give batches keys: their own (epoch, position), or behind a fold those of their first element."""
    here = slice(begin, end)
    if unit.top_levels:
        epochs, positions = unit.top_levels[0]
        return Block(epochs[here], positions[here], np.zeros(end - begin, np.uint64), rows=batches[here])
    assert unit.given is not None
    assert unit.sizes is not None
    first = np.concatenate([[0], np.cumsum(unit.sizes)[:-1]])[here].astype(np.int64)
    given = unit.given
    return Block(given.epochs[first], given.indices[first], given.lanes[first], rows=batches[here])
