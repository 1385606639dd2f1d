"""The methods of a dataset that measure its elements, and those that go by what was measured."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from penstock._contracts.policy import Policy
from penstock._order.arithmetic import INFINITE
from penstock._order.mixing import History
from penstock._order.planned import (
    WIDE_WINDOW,
    BalancedOrder,
    BucketedOrder,
    BudgetOrder,
    CutOrder,
    DistinctOrder,
    FilteredOrder,
    PackedOrder,
    PlannedOrder,
    SampledOrder,
    SortedOrder,
)
from penstock._plan import check, known
from penstock._plan import node as plan
from penstock._plan.base import Ints, Node, function_name, length_of, padding_words, walk
from penstock._plan.facts import known_length, known_names
from penstock._system.lazy import dataclass
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
        folder: str = "",
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

        Operators go by a number where they take `by=`: `filter`, `sort_window`, `pack_sequences`, `bucket_by_length`, `batch_by_cost` and
        `mix`. What they give then has positions: `len`, `ds[i]`, `shuffle`, `shard` and a resume work above them, and each rank computes
        its own elements only. An element takes 4 bytes in the folder, 8 where a number is beyond int32, and one bit of a function that
        gives bools.

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
        from penstock.dataset.measuring import TO_MEASURE, measure, sameness
        from penstock.sources.measures import read_measures

        check.indexable(self._root, "measure", TO_MEASURE)
        _one_order(self._root, "measure")
        no_ranks(self._root, "measure", "each rank would measure its own part, into the same folder")
        if functions or update:
            options: dict[str, Any] = {"executor": executor, "on_error": on_error, "progress": progress, "version": version}
            found = measure(cast("Dataset", self), folder, functions, num_workers=num_workers, update=update, **options)
        else:
            found = read_measures(folder, sameness(self._root, version), known_length(self._root, "measure()"))
        measured = self._with(known.Measure(child=self._root, columns=found.columns))
        if found.failed is None:
            return measured
        numbers = _Numbers(_chain_over(plan.Read(source=found.failed)), inverted=True)
        order = FilteredOrder(numbers, len(found.failed))
        return self._with(known.Chosen(child=measured._root, order=order, words="measured()", mark=f"{found.failed.crc:08x}"))

    def numbers(self, name: str) -> Ints:
        """Return a number that is known of each element, int64 [len(ds)], without computing the elements.

            labels = ds.numbers("label")  # of read_images and read_list
            balanced = ds.sample(len(ds), 1 / np.bincount(labels)[labels], seed=1)

        Also known are "num_bytes" of files and records, "num_tokens" of Megatron-LM files, and what `measure` has found.

        Raises:
            PlanError: no such number is known, or the elements have another order in each pass.
        """
        known_number, _ = numbers_of(self._root, name, "numbers")
        return known_number(np.arange(int(length_of(self._root) or 0)))

    def sort_window(self, by: str, window: int) -> Dataset:
        """Sort each `window` elements by a number that is known of them, the smallest first; equal ones keep their order.

        Raises:
            PlanError: no such number is known, or the elements have another order in each pass.
        """
        size = check.count_argument(window, "window", "sort_window", least=1)
        order = partial(SortedOrder, size=size, varies=_changes(self._root))
        return self._with(ByNumber(by, "sort_window", order, f"sort_window(by={by!r}, window={size})")(self._root))

    def balance(self, by: str, num_ranks: int | None = None) -> Dataset:
        """Deal the elements so that each rank has the same work in each step: of each round of `num_ranks` all cost nearly the same.

            ds.measure("lengths").shuffle(seed=1).balance("length").shard_by_rank().batch(8)

        Each 2**20 elements are sorted by a number that is known of them and cut into rounds, which come in the order of their first
        elements. So it goes by the order below, also by that of a `shuffle` in each pass, for any batch size. The last elements, which
        make no whole round, stay where they are.

        Args:
            by: the name of the number that `measure` has found below.
            num_ranks: elements of a round; by default that of `shard_by_rank`. To go on with a saved state on another number of ranks,
                give the number of before: steps stay balanced where the new one divides it.

        Raises:
            PlanError: no such number is known.
        """
        from penstock.adapters.ranks import current_rank

        size = check.count_argument(current_rank()[1] if num_ranks is None else num_ranks, "num_ranks", "balance", least=1)
        order = partial(BalancedOrder, size=size, window=WIDE_WINDOW, varies=_changes(self._root))
        return self._with(ByNumber(by, "balance", order, f"balance(by={by!r}, num_ranks={size})")(self._root))

    def sample(
        self, num_samples: int, weights: Any, *, replacement: bool = True, seed: int = 0, reshuffle_each_epoch: bool = True
    ) -> Dataset:
        """Draw elements at random: how often one comes is in proportion to its weight.

            ds.measure("weights", weight=rarity).sample(100_000, "weight", seed=1)

        A draw depends on the seed, the pass and its position only, so `len`, `ds[i]`, a resume and ranks work as on any dataset.

        Args:
            num_samples: elements of a pass.
            weights: the name of a number that `measure` has found below, or an array [len(ds)] of numbers >= 0.
            replacement: whether an element can come several times in a pass. Without, it comes once at most, in the order of the draws,
                and each draw is of those that are left; a pass then holds 4 bytes for each sample, 8 beyond 2**32 elements.
            seed: equal seeds give equal draws.
            reshuffle_each_epoch: whether each pass has draws of its own.

        Raises:
            PlanError: no such number is known, or there are not as many weights as elements, or too few that are not 0; the elements
                have another order in each pass.
        """
        count = check.count_argument(num_samples, "num_samples", "sample")
        replacement = check.flag_argument(replacement, "replacement", "sample")
        seed = check.seed_argument(seed, "sample")
        varies = check.flag_argument(reshuffle_each_epoch, "reshuffle_each_epoch", "sample")
        numbers: _Numbers | _Given
        numbers, mark = numbers_of(self._root, weights, "sample") if isinstance(weights, str) else _weights(self._root, weights)
        num_elements = int(length_of(self._root) or 0)
        order: SampledOrder | DistinctOrder
        if replacement:
            order = SampledOrder(numbers, num_elements, count, seed, varies=varies)
            least, found = min(count, 1), min(order.total, 1)
        else:
            order = DistinctOrder(numbers, num_elements, count, seed, varies=varies)
            least, found = count, len(FilteredOrder(numbers, num_elements))
        if found < least:
            raise PlanError(
                f"{count} samples are to be drawn, and {found or 'no'} elements have a weight that is not 0",
                where="sample()",
                fix="ask for fewer, or give replacement=True" if found else "give elements a weight",
            )
        options = ", replacement=False" * (not replacement) + f", seed={seed}" + ", reshuffle_each_epoch=False" * (not varies)
        words = f"sample({count}, {repr(weights) if isinstance(weights, str) else 'weights'}{options})"
        return self._with(known.Chosen(child=self._root, order=order, words=words, mark=mark))

    def batch_by_cost(
        self,
        cost: str | Callable[[Any], int] | None = None,
        max_cost: int = 0,
        *,
        by: str | None = None,
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
            by: that name, in the place of `cost`, as the other operators have it.
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
        most = check.count_argument(max_cost, "max_cost", "batch_by_cost", least=1)
        multiple = check.count_argument(pad_to_multiple_of, "pad_to_multiple_of", "batch_by_cost", least=1)
        size = check.count_argument(pool, "pool", "batch_by_cost", least=1)
        check_padding("batch_by_cost", padded_shapes, padding_values)
        given: dict[str, Any] = {"padded_shapes": padded_shapes, "padding_values": padding_values, "multiple": multiple}
        if by is not None:
            check.instead_of_by(cost, "cost", "batch_by_cost")
            cost = by
        if not isinstance(cost, str):
            check_function(cost, "batch_by_cost")
            assert cost is not None
            name = name or function_name(cost)
            return self._with(known.BatchByCost(child=self._root, fn=cost, name=name, most=most, pool=size, **given))
        check.instead_of_by(name, "name", "batch_by_cost")
        check.shared_workers(self._root, "batch_by_cost")
        order = partial(BudgetOrder, most=most, pool=size, multiple=multiple)
        words = f"batch_by_cost({cost!r}, {most}, pool={size}, pad_to_multiple_of={multiple}{padding_words(padded_shapes, padding_values)})"
        return self._with(ByNumber(cost, "batch_by_cost", order, words, partial(known.PlannedBatches, **given))(self._root))

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
        boundaries = check.counts_argument(bucket_boundaries, "bucket_boundaries", "bucket_by_length")
        sizes = check.counts_argument(bucket_batch_sizes, "bucket_batch_sizes", "bucket_by_length")
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
        if by is None:
            return self._with(node)
        check.shared_workers(self._root, "bucket_by_length")
        order = partial(BucketedOrder, boundaries=boundaries, batch_sizes=sizes, drops=node.drop_remainder)
        padding = ", drop_remainder=True" * node.drop_remainder + padding_words(padded_shapes, padding_values)
        words = f"bucket_by_length(by={by!r}, {list(boundaries)}, {list(sizes)}{padding})"
        batches = partial(known.PlannedBatches, padded_shapes=padded_shapes, padding_values=padding_values, multiple=1)
        return self._with(ByNumber(by, "bucket_by_length", order, words, batches)(self._root))

    def pack_sequences(
        self,
        length: int,
        *,
        by: str | None = None,
        num_bins: int | None = None,
        split: bool = False,
        padding_value: Any = 0,
        positions: Literal["segment", "document"] = "segment",
    ) -> Dataset:
        """Put several sequences side by side in rows of `length` tokens, so that little padding is trained on.

        A sequence is an array of one dimension, or a dict of such arrays of equal lengths (tokens, labels, masks) and of numbers (a weight,
        the number of a source), which each of its tokens gets. A row is a dict of the same fields ("tokens" for a bare array), each
        [length], with `segment_ids` int32 [length] (1, 2, ... for each sequence, 0 for padding) and `positions` int32 [length] (counted
        from 0 in each sequence). `feed.stats()` says what share is padding.

        Args:
            length: tokens per row.
            by: the name of the number of tokens that `measure` has found below. Rows then have positions. Each 65,536 sequences are
                packed by best fit, which fills rows better than the open rows of `num_bins`. A row is short by a sequence that a policy
                leaves out, all padding when none is left, and all others stay as they are.
            num_bins: open rows, 64 by default: a sequence goes whole into the first that has room; when none has, the fullest one is
                delivered (first fit). A longer sequence than `length` is an error, one of no tokens is left out.
            split: put the sequences one after the other instead, and cut them where a row is full: no padding but in the last row of
                a pass. The parts of a cut sequence are segments of their own.
            padding_value: of the fields behind the last token, such as 0 or {"labels": -100}; a dict leaves all others at 0. The dtype of
                a field must hold its value as it is, and 0 is the empty value of texts.
            positions: "document" lets the positions of a cut sequence go on in the next row: they are counted from its first token.
        """
        check_padding_value("pack_sequences", padding_value)
        if positions not in ("segment", "document"):
            raise PlanError(f"positions={positions!r} is not known", where="pack_sequences()", fix="give 'segment' or 'document'")
        if by is not None:
            check.instead_of_by(num_bins, "num_bins", "pack_sequences")
        bins = check.count_argument(64 if num_bins is None else num_bins, "num_bins", "pack_sequences", least=1)
        node = known.PackSequences(
            child=self._root,
            length=check.count_argument(length, "length", "pack_sequences", least=1),
            num_bins=None if check.flag_argument(split, "split", "pack_sequences") else bins,
            padding_value=padding_value,
            positions=positions,
        )
        if by is None:
            return self._with(node)
        check.shared_workers(self._root, "pack_sequences")
        kind, how = (CutOrder, ", split=True") if node.num_bins is None else (PackedOrder, "")
        rows = partial(known.PackedRows, length=node.length, padding_value=padding_value, positions=positions)
        order, words = partial(kind, capacity=node.length), node.words(f"by={by!r}{how}")
        return self._with(ByNumber(by, "pack_sequences", order, words, rows)(self._root))


@dataclass(frozen=True, slots=True)
class ByNumber:
    """Makes the node of an operator that goes by the known number `by`: `order` takes the numbers and how many there are."""

    by: str
    operator: str
    order: Callable[..., PlannedOrder]
    words: str
    make: Callable[..., known.PlannedNode] = known.Chosen

    def __call__(self, root: Node) -> Node:
        """Return the node over `root`, also over one whose mixes have other weights from some place on."""
        numbers, mark = numbers_of(root, self.by, self.operator)
        order = self.order(numbers, int(length_of(root) or 0))
        return self.make(child=root, order=order, words=self.words, mark=mark, again=self)


def weighed(roots: Sequence[Node], history: History, by: str) -> History:
    """Return the weights of elements for those of a known number: each divided by the mean number of its dataset.

    Raises:
        PlanError: as `numbers_of`, or the numbers of a dataset are all 0.
    """
    means = [_mean(root, by, number) for number, root in enumerate(roots)]
    out = []
    for start, weights in history:
        rates = [Fraction(weight) / mean for weight, mean in zip(weights, means, strict=True)]
        out.append((start, tuple(float(rate / sum(rates)) for rate in rates)))
    return tuple(out)


def _mean(root: Node, by: str, number: int) -> Fraction:
    """Return the mean of a known number over one pass of dataset `number` of a mix."""
    node = root
    while isinstance(node, (plan.Shuffle, plan.Repeat)) or (node.children and node.aligned and by not in node.known_numbers):
        node = node.children[0]  # of the same elements
    numbers, _ = numbers_of(node, by, "mix")
    length = int(length_of(node) or 0)
    total = int(CutOrder(numbers, length, 1).starts[-1])  # in windows
    if not total:
        raise PlanError(f"the sum of {by!r} of dataset {number} is 0", where=f"mix(by={by!r})", fix="leave it out, or mix without by=")
    return Fraction(total, length)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The known numbers of a plan's elements, by position."""

    chain: ChainOp
    inverted: bool = False

    def describe(self, position: int) -> str:
        """Say where a number comes from."""
        return self.chain.where(0, position)

    def __call__(self, positions: Ints, epoch: int = 0) -> Ints:
        from penstock._ops.block import ElementFailed
        from penstock._ops.worker import WorkerContext

        if not len(positions):
            return positions
        try:
            numbers = self.chain.run(np.full(len(positions), epoch, np.int64), positions, WorkerContext(0)).columns()[0]
        except ElementFailed as failed:
            raise failed.error from None
        return 1 - numbers if self.inverted else numbers


@dataclass(frozen=True, slots=True)
class _Given:
    """The numbers that a program has given, by position."""

    numbers: Ints

    def describe(self, position: int) -> str:
        return f"weight {position}"

    def __call__(self, positions: Ints, epoch: int = 0) -> Ints:
        return self.numbers[positions]


def _weights(root: Node, given: Any) -> tuple[_Given, str]:
    """Return weights as whole numbers, to 1/2**60 of their sum, and a check sum.

    Raises:
        PlanError: they are no weights of the elements.
    """
    check.indexable(root, "sample", "sample before the filter, flat_map or generator")
    _one_order(root, "sample")
    no_ranks(root, "sample", "each rank would draw from its own part")
    found, length = np.asarray(given), known_length(root, "sample()")
    total = float(found.sum(dtype=np.float64)) if found.dtype.kind in "biuf" else math.nan
    if found.shape != (length,) or not math.isfinite(total) or (found < 0).any():
        value = ""
        if found.shape == (length,) and found.dtype.kind in "biuf":
            bad = int(np.argmin(np.isfinite(found) & (found >= 0)))
            value = f", and number {bad} is {found[bad]}"
        raise PlanError(
            f"weights are {found.dtype}{list(found.shape)}, for {length} elements{value}",
            where="sample(weights=...)",
            fix=f"give one finite number >= 0 for each of the {length} elements, or the name of a measured number",
        )
    shares = found.astype(np.float64) / (total or 1.0)
    numbers = np.where(shares > 0, np.maximum(shares * 2.0**60, 1), 0).astype(np.int64)
    return _Given(numbers), f"{zlib.crc32(numbers.tobytes()):08x}"


def numbers_of(root: Node, name: str, operator: str) -> tuple[_Numbers, str]:
    """Return what gives the number `name` of elements by position, and a check sum of all numbers that it looks at.

    Raises:
        PlanError: no such number is known of each element, or the elements have another order in each pass, or no end.
    """
    check.indexable(root, operator, "measure it, and go by what was measured: ds.measure(folder, name=fn)")
    if operator not in ("sort_window", "balance"):  # which go by the order of each pass
        _one_order(root, operator)
    no_ranks(root, operator, "each rank would then make its own number of steps, and wait for the others for ever")
    if length_of(root) == INFINITE:
        raise PlanError(
            "the dataset has no end, so what comes behind its last element is not known",
            where=f"{operator}(by=...)",
            fix="put repeat() after it",
        )
    names = known_names(root)
    told = f"known before it: {names}" if names else "nothing was measured before it"
    over = _over_columns(root, name, operator, told)
    marks = [str(node.source.fingerprint()) for node in walk(over) if isinstance(node, plan.Read)]
    return _Numbers(_chain_over(over)), f"{zlib.crc32(''.join(marks).encode()):08x}"


def _chain_over(root: Node) -> ChainOp:
    from penstock._engine.lowering import evaluator

    return evaluator(root)


def _changes(root: Node) -> bool:
    return any(node.changes_order for node in walk(root))


def _one_order(root: Node, operator: str) -> None:
    changing = next((node for node in walk(root) if (node.varies if isinstance(node, known.Chosen) else node.changes_order)), None)
    if changing is not None:
        again = changing.line().partition("(")[0]
        raise PlanError(
            f"{changing.line()} gives another order, or the elements again, in each pass, and {operator} goes by the order of one pass",
            where=f"{operator}()",
            fix=f"put {again}() behind {operator}()"
            + (", or give it one order: reshuffle_each_epoch=False" if again in ("shuffle", "sample") else ""),
        )


def no_ranks(root: Node, operator: str, why: str) -> None:
    """Refuse what stands after shard_by_rank()."""
    if any(shard.even is not None for shard in plan.shards_of(root)):
        raise PlanError(
            f"{operator} stands after shard_by_rank: {why}",
            where=f"{operator}() after shard_by_rank()",
            fix=f"put shard_by_rank() behind {operator}(): each rank then computes its own elements only",
        )


def _over_columns(node: Node, name: str, operator: str, told: str) -> Node:
    """Return the plan over a column in the place of what has these numbers, without the maps between: its elements are the numbers."""
    found = node.known_numbers.get(name)
    if found is not None:
        return plan.Read(source=found)
    if node.children and node.aligned:
        return _over_columns(node.children[0], name, operator, told)
    if not node.children or isinstance(node, plan.Zip) or not (node.selects or len(node.children) > 1):
        raise PlanError(
            f"no number {name!r} is known of the elements of {node.line()}; {told}",
            where=f"{operator}(), by {name!r}",
            fix="measure it below, with nothing but map, cache, shuffle, shard, take, skip, concatenate and mix between",
        )
    return node.with_children([_over_columns(child, name, operator, told) for child in node.children])
