"""The methods of a dataset that measure its elements, and those that go by what was measured."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from penstock._contracts.policy import Policy
from penstock._order.arithmetic import INFINITE
from penstock._plan import check, known
from penstock._plan import node as plan
from penstock._plan.base import Ints, Node, function_name, length_of, padding_words, walk
from penstock._plan.facts import known_length
from penstock.dataset.operators import Chaining, check_function, check_padding, check_padding_value
from penstock.errors import PlanError

if TYPE_CHECKING:
    from penstock._ops.operator import ChainOp
    from penstock.dataset.builder import Dataset


class KnownMethods(Chaining):
    """Measure, and what needs no function because numbers are known."""

    __slots__ = ()

    def measure(
        self,
        folder: str,
        *,
        num_workers: int | None = None,
        executor: Literal["processes", "threads"] = "processes",
        on_error: Policy | None = None,
        progress: bool = False,
        version: str = "",
        update: bool = False,
        **functions: Callable[[Any], int | bool],
    ) -> Dataset:
        """Compute named numbers of each element once, keep them in a folder, and return the same dataset, which knows them.

            ds = ps.read_jsonl("c4/*.jsonl").map(tokenise).measure("c4-lengths", length=lambda e: len(e["tokens"]))
            rows = ds.pack_sequences(2048, by="length").shuffle(seed=1).shard_by_rank().batch(8)

        Operators go by a number where they take `by=`: `filter`, `sort_window`, `pack_sequences`, `bucket_by_length`, `batch_by_cost`. What
        they give then has positions: `len`, `ds[i]`, `shuffle`, `shard` and a resume work above them, and each rank computes its own
        elements only. An element takes 4 bytes in the folder, 8 where a number is beyond int32, and one bit of a function that gives bools.

        A folder that is complete is read, and nothing is computed. A job that was killed loses the parts that it was at. Jobs that measure
        into the same folder at the same time, such as ranks, share the work: on one machine, and on several where folder and input lie on
        a file system whose locks work between them. Those that have nothing left to do wait for the others.

        Args:
            folder: where the numbers are kept, or lie already; without functions all of them are read.
            num_workers: how many workers compute; as many as there are CPUs by default.
            executor: "processes", or "threads" for functions that let go of the interpreter lock.
            on_error: what happens to an element that fails; `ps.Skip()` leaves it out of what this returns.
            progress: whether to print how far it is.
            version: of the functions, which are known by their names: give another one, and another folder, after a change of what one
                does. A folder of another version is refused.
            update: whether a folder that was measured when files were missing, or others, is brought up to date: only the elements of files
                that were added or changed are measured. The dataset reads local files of records, Parquet or `read_files`, with nothing
                but `map` and `cache` between. Another job that reads the folder then has to start again.
            **functions: each returns a whole number >= 0 of an element, or a bool.

        Raises:
            PlanError: the elements have no positions, or another order in each pass; the folder holds the numbers of another dataset,
                function or version, or is not complete and cannot be written; with `update`, it is not known of which files its numbers
                are, or none is as it was.
            SourceError: the folder is not complete, or damaged.
            SpecError: a function returns something else.
        """
        from penstock.dataset.measuring import measure, sameness
        from penstock.sources.measures import read_measures

        check.indexable(self._root, "measure", "measure before the filter, flat_map or generator")
        _one_order(self._root, "measure")
        _no_ranks(self._root, "measure", "each rank would measure its own part, into the same folder")
        if functions or update:
            options: dict[str, Any] = {"executor": executor, "on_error": on_error, "progress": progress, "version": version}
            found = measure(cast("Dataset", self), folder, functions, num_workers=num_workers, update=update, **options)
        else:
            found = read_measures(folder, sameness(self._root, version), known_length(self._root, "measure()"))
        measured = self._with(known.Measure(child=self._root, columns=found.columns))
        if found.failed is None:
            return measured
        from penstock._order.planned import FilteredOrder

        numbers = _Numbers(_chain_over(plan.Read(source=found.failed)), inverted=True)
        order = FilteredOrder(numbers, len(found.failed))
        return self._with(known.Chosen(child=measured._root, order=order, words="measured()", mark=f"{found.failed.crc:08x}"))

    def sort_window(self, by: str, window: int) -> Dataset:
        """Sort each `window` elements by a number that is known of them, the smallest first; equal ones keep their order.

        Raises:
            PlanError: no such number is known, or the elements have another order in each pass.
        """
        size = check.count_argument(window, "window", "sort_window", least=1)
        from penstock._order.planned import SortedOrder

        numbers, mark = numbers_of(self._root, by, "sort_window")
        order = SortedOrder(numbers, int(length_of(self._root) or 0), size)
        return self._with(known.Chosen(child=self._root, order=order, words=f"sort_window(by={by!r}, window={size})", mark=mark))

    def batch_by_cost(
        self,
        cost: str | Callable[[Any], int],
        max_cost: int,
        *,
        pool: int = 512,
        pad_to_multiple_of: int = 1,
        padded_shapes: Any = None,
        padding_values: Any = None,
        name: str | None = None,
    ) -> Dataset:
        """Make padded batches by a budget: as many elements of like costs as `max_cost` allows, each as dear as the dearest of its batch.

        Each `pool` of neighbours is sorted, cut into batches, and these come in the order of their first elements. With tokens as costs, a
        batch has at most `max_cost` tokens, its padding included.

        Args:
            cost: a function that returns what an element costs, such as tokens, samples of sound or pixels; or the name of a number that
                `measure` has found below. By name the batches are the same, and their positions are arithmetic. A map between that
                changes what an element costs is not noticed: the cost need not be a dimension of its arrays.
            max_cost: of a batch: its largest cost times its elements.
            pool: elements that are sorted together: more means less padding, and batches of elements that stood further apart.
            pad_to_multiple_of: a cost is rounded up to a multiple of it, and so is the first dimension of each padded array.
            padded_shapes: as in `padded_batch`.
            padding_values: as in `padded_batch`.
            name: of the stage in errors and figures, if `cost` is a function; the function's name by default.

        Raises:
            PlanError: no such number is known, or the elements have another order in each pass.
            SpecError: an element costs more than `max_cost`, by name; a function's is raised where the element comes.
        """
        from penstock._order.planned import BudgetOrder

        most = check.count_argument(max_cost, "max_cost", "batch_by_cost", least=1)
        multiple = check.count_argument(pad_to_multiple_of, "pad_to_multiple_of", "batch_by_cost", least=1)
        size = check.count_argument(pool, "pool", "batch_by_cost", least=1)
        check_padding("batch_by_cost", padded_shapes, padding_values)
        given = {"child": self._root, "padded_shapes": padded_shapes, "padding_values": padding_values, "multiple": multiple}
        if not isinstance(cost, str):
            check_function(cost, "batch_by_cost")
            return self._with(known.BatchByCost(fn=cost, name=name or function_name(cost), most=most, pool=size, **given))
        check.instead_of_by(name, "name", "batch_by_cost")
        check.shared_workers(self._root, "batch_by_cost")
        numbers, mark = numbers_of(self._root, cost, "batch_by_cost")
        order = BudgetOrder(numbers, int(length_of(self._root) or 0), most, size, multiple)
        padding = padding_words(padded_shapes, padding_values)
        words = f"batch_by_cost({cost!r}, {most}, pool={size}, pad_to_multiple_of={multiple}{padding})"
        return self._with(known.PlannedBatches(order=order, words=words, mark=mark, **given))

    def bucket_by_length(
        self,
        length_fn: Callable[[Any], int] | None = None,
        bucket_boundaries: Sequence[int] = (),
        bucket_batch_sizes: Sequence[int] = (),
        padded_shapes: Any = None,
        padding_values: Any = None,
        *,
        by: str | None = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Make padded batches of elements of like lengths: less padding than in a `padded_batch` of whatever comes.

        A batch comes as soon as its bucket is full; at the end of a pass what is left comes bucket by bucket. A saved state holds the
        numbers of the waiting elements, and a resume reads them again. tf.data calls it bucket_by_sequence_length.

        With `by` the batches are the same ones in the same order, and their positions are arithmetic.

        Args:
            length_fn: returns an element's length.
            bucket_boundaries: ascending; bucket b takes lengths from boundary b-1 up to, not including, boundary b.
            bucket_batch_sizes: batch size of each bucket, one more than boundaries.
            padded_shapes: as in `padded_batch`.
            padding_values: as in `padded_batch`.
            by: the name of a number that `measure` has found below, in the place of `length_fn`.
            drop_remainder: whether to leave out the batches of a pass that are not full.
            name: of the stage in errors and figures; the function's name by default.
        """
        if by is None:
            check_function(length_fn, "bucket_by_length")
        else:
            check.instead_of_by(length_fn, "length_fn", "bucket_by_length")
            check.instead_of_by(name, "name", "bucket_by_length")
        boundaries = check.counts_argument(bucket_boundaries, "bucket_boundaries", "bucket_by_length", least=1)
        sizes = check.counts_argument(bucket_batch_sizes, "bucket_batch_sizes", "bucket_by_length", least=1)
        check_padding("bucket_by_length", padded_shapes, padding_values)
        if list(boundaries) != sorted(set(boundaries)) or len(sizes) != len(boundaries) + 1:
            raise PlanError(
                f"bucket_boundaries={list(boundaries)} with bucket_batch_sizes={list(sizes)}",
                where="bucket_by_length()",
                fix="give ascending boundaries, and one batch size more than boundaries",
            )
        node = plan.BucketByLength(
            child=self._root,
            fn=length_fn or len,
            name=name or function_name(length_fn or len),
            boundaries=boundaries,
            batch_sizes=sizes,
            drop_remainder=check.drop_remainder_argument(drop_remainder, "bucket_by_length", self._root),
            padded_shapes=padded_shapes,
            padding_values=padding_values,
        )
        return self._with(node if by is None else _bucketed(node, by))

    def pack_sequences(
        self, length: int, *, by: str | None = None, num_bins: int | None = None, split: bool = False, padding_value: Any = 0
    ) -> Dataset:
        """Put several sequences side by side in rows of `length` tokens, so that little padding is trained on.

        A sequence is an array of one dimension, or a dict of such arrays of equal lengths (tokens, labels, masks). A row is a dict of the
        same fields ("tokens" for a bare array), each [length], with `segment_ids` int32 [length] (1, 2, ... for each sequence, 0 for
        padding) and `positions` int32 [length] (counted from 0 in each sequence). `feed.stats()` says what share is padding.

        Args:
            length: tokens per row.
            by: the name of the number of tokens that `measure` has found below. Rows then have positions. Each 65,536 sequences are
                packed by best fit, which fills rows better than the open rows of `num_bins`. A row is short by a sequence that a policy
                leaves out, and all others stay as they are.
            num_bins: open rows, 64 by default: a sequence goes whole into the first that has room; when none has, the fullest one is
                delivered (first fit). A longer sequence than `length` is an error, one of no tokens is left out.
            split: put the sequences one after the other instead, and cut them where a row is full: no padding but in the last row of
                a pass. The parts of a cut sequence are segments of their own.
            padding_value: of the fields behind the last token; each field's dtype must hold it as it is, and 0 is the empty value of texts.
        """
        check_padding_value("pack_sequences", padding_value)
        if by is not None:
            check.instead_of_by(num_bins, "num_bins", "pack_sequences")
            size = check.count_argument(length, "length", "pack_sequences", least=1)
            cuts = check.flag_argument(split, "split", "pack_sequences")
            return self._with(_packed(self._root, size, by, padding_value, split=cuts))
        bins = check.count_argument(64 if num_bins is None else num_bins, "num_bins", "pack_sequences", least=1)
        node = plan.PackSequences(
            child=self._root,
            length=check.count_argument(length, "length", "pack_sequences", least=1),
            num_bins=None if check.flag_argument(split, "split", "pack_sequences") else bins,
            padding_value=padding_value,
        )
        return self._with(node)


def filtered(root: Node, by: str) -> Node:
    """Return the plan of `filter(by=)`."""
    from penstock._order.planned import FilteredOrder

    numbers, mark = numbers_of(root, by, "filter")
    return known.Chosen(child=root, order=FilteredOrder(numbers, int(length_of(root) or 0)), words=f"filter(by={by!r})", mark=mark)


def _packed(root: Node, length: int, by: str, padding_value: Any, *, split: bool) -> Node:
    """Return the plan of `pack_sequences(by=)`."""
    from penstock._order.planned import CutOrder, PackedOrder

    check.shared_workers(root, "pack_sequences")
    numbers, mark = numbers_of(root, by, "pack_sequences")
    order = (CutOrder if split else PackedOrder)(numbers, int(length_of(root) or 0), length)
    words = f"pack_sequences({length}, by={by!r}{', split=True' if split else ''}, padding_value={padding_value!r})"
    return known.PackedRows(child=root, order=order, words=words, mark=mark, length=length, padding_value=padding_value)


def _bucketed(node: plan.BucketByLength, by: str) -> Node:
    """Return the plan of `bucket_by_length(by=)` for that of the stream operator."""
    from penstock._order.planned import BucketedOrder

    check.shared_workers(node.child, "bucket_by_length")
    numbers, mark = numbers_of(node.child, by, "bucket_by_length")
    num_elements = int(length_of(node.child) or 0)
    order = BucketedOrder(numbers, num_elements, node.boundaries, node.batch_sizes, drops=node.drop_remainder)
    padding = ", drop_remainder=True" * node.drop_remainder + padding_words(node.padded_shapes, node.padding_values)
    words = f"bucket_by_length(by={by!r}, {list(node.boundaries)}, {list(node.batch_sizes)}{padding})"
    return known.PlannedBatches(
        child=node.child,
        order=order,
        words=words,
        mark=mark,
        padded_shapes=node.padded_shapes,
        padding_values=node.padding_values,
        multiple=1,
    )


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The known numbers of a plan's elements, by position."""

    chain: ChainOp
    inverted: bool = False

    def describe(self, position: int) -> str:
        """Say where a number comes from."""
        return self.chain.where(0, position)

    def __call__(self, positions: Ints) -> Ints:
        from penstock._ops.block import ElementFailed
        from penstock._ops.worker import WorkerContext

        if not len(positions):
            return positions
        try:
            numbers = self.chain.run(np.zeros(len(positions), np.int64), positions, WorkerContext(0)).columns()[0]
        except ElementFailed as failed:
            raise failed.error from None
        return 1 - numbers if self.inverted else numbers


def numbers_of(root: Node, name: str, operator: str) -> tuple[_Numbers, str]:
    """Return what gives the number `name` of elements by position, and a check sum of all numbers that it looks at.

    Raises:
        PlanError: no such number is known of each element, or the elements have another order in each pass, or no end.
    """
    check.indexable(root, operator, "measure it, and go by what was measured: ds.measure(folder, name=fn)")
    _one_order(root, operator)
    _no_ranks(root, operator, "each rank would then make its own number of steps, and wait for the others for ever")
    if length_of(root) == INFINITE:
        raise PlanError(
            "the dataset has no end, so what comes behind its last element is not known",
            where=f"{operator}(by=...)",
            fix="put repeat() after it",
        )
    names = sorted({one for part in walk(root) if isinstance(part, known.Measure) for one in part.columns})
    told = f"known below it: {', '.join(names)}" if names else "nothing was measured below it"
    over = _over_columns(root, name, operator, told)
    marks = [str(node.source.fingerprint()) for node in walk(over) if isinstance(node, plan.Read)]
    return _Numbers(_chain_over(over)), f"{zlib.crc32(''.join(marks).encode()):08x}"


def _chain_over(root: Node) -> ChainOp:
    from penstock._engine.lowering import evaluator

    return evaluator(root)


def _one_order(root: Node, operator: str) -> None:
    changing = next((node for node in walk(root) if node.changes_order), None)
    if changing is not None:
        again = changing.line().partition("(")[0]
        raise PlanError(
            f"{changing.line()} gives another order, or the elements again, in each pass, and {operator} goes by the order of one pass",
            where=f"{operator}()",
            fix=f"put {again}() behind {operator}()" + (", or give it one order: reshuffle_each_epoch=False" if again == "shuffle" else ""),
        )


def _no_ranks(root: Node, operator: str, why: str) -> None:
    if any(shard.even is not None for shard in plan.shards_of(root)):
        raise PlanError(
            f"{operator} stands after shard_by_rank: {why}",
            where=f"{operator}() after shard_by_rank()",
            fix=f"put shard_by_rank() behind {operator}(): each rank then computes its own elements only",
        )


def _over_columns(node: Node, name: str, operator: str, told: str) -> Node:
    """Return the plan over a column in the place of what was measured, without the maps between: its elements are the numbers."""
    if isinstance(node, known.Measure) and name in node.columns:
        return plan.Read(source=node.columns[name])
    if node.children and node.aligned:
        return _over_columns(node.children[0], name, operator, told)
    if not node.children or isinstance(node, plan.Zip) or not (node.selects or len(node.children) > 1):
        raise PlanError(
            f"no number {name!r} is known of the elements of {node.line()}; {told}",
            where=f"{operator}(by={name!r})",
            fix="measure it below, with nothing but map, cache, shuffle, shard, take, skip, concatenate and mix between",
        )
    return node.with_children([_over_columns(child, name, operator, told) for child in node.children])
