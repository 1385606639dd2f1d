"""Builder methods that say which element comes when."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock._contracts.arguments import real_number
from penstock._plan import check
from penstock._plan import node as plan
from penstock._plan.functions import function_name
from penstock._plan.groups import groups_of
from penstock._plan.length import is_indexable, length_of
from penstock.dataset.chaining import LATER, Chaining, branches
from penstock.errors import PlanError

if TYPE_CHECKING:
    from penstock.dataset.builder import Dataset

__all__ = ["OrderMethods"]

_BUFFER_BYTES = 256 << 20
_ROUNDING = 1e-9
"""What decimal fractions that add up to 1 may miss it by as floats."""


class OrderMethods(Chaining):
    """Shuffle, shard, repeat and their kin."""

    __slots__ = ()

    def shuffle(
        self,
        buffer_size: int | None = None,
        seed: int = 0,
        reshuffle_each_epoch: bool = True,
        *,
        buffer_bytes: int | None = None,
        window_groups: int | None = None,
    ) -> Dataset:
        """Put the elements in a random order that the seed determines: of all of them, or inside a window.

        Behind a filter, flat_map or generator, where the elements have no positions, a buffer of `buffer_size` elements is kept and a
        random one of them comes next, as in tf.data; a saved state then holds the numbers of those in the buffer, and a resume reads them
        again.

        Args:
            buffer_size: None for a global permutation. A number k moves each element less than k places; no data are buffered, and
                k >= len is the global permutation.
            seed: equal seeds give equal permutations of equal lengths.
            reshuffle_each_epoch: whether each pass of a `repeat` above has an order of its own.
            buffer_bytes: bound on the elements in the buffer, where there is one; 256 MB by default. It depends on the data alone, so
                the order does too.
            window_groups: for a source that lies in groups (row groups of Parquet, files of records): the groups come in a random order,
                and their elements in a random one inside windows of so many groups. So a window's groups are read once, while it lasts;
                the more groups, the closer to a global permutation, which it is from their number on.

        Raises:
            PlanError: without `buffer_size` behind a filter, flat_map or generator, and on endless datasets; `window_groups` without
                groups, or with `buffer_size`.
        """
        reshuffle = check.flag_argument(reshuffle_each_epoch, "reshuffle_each_epoch", "shuffle")
        if window_groups is not None:
            return self._shuffle_groups(window_groups, buffer_size, seed, reshuffle)
        size = None if buffer_size is None else check.count_argument(buffer_size, "buffer_size", "shuffle", least=1)
        seed = check.seed_argument(seed, "shuffle")
        num_bytes = 0
        if size is not None and not is_indexable(self._root):
            num_bytes = check.count_argument(_BUFFER_BYTES if buffer_bytes is None else buffer_bytes, "buffer_bytes", "shuffle", least=1)
        else:
            check.indexable(self._root, "shuffle", f"give it a buffer_size=, or {LATER}")
            check.finite(self._root, "shuffle", "shuffle() first, then repeat(): each epoch gets an order of its own")
        node = plan.Shuffle(child=self._root, buffer_size=size, seed=seed, reshuffle_each_epoch=reshuffle, buffer_bytes=num_bytes)
        return self._with(node)

    def _shuffle_groups(self, window_groups: int, buffer_size: int | None, seed: int, reshuffle: bool) -> Dataset:
        count = check.count_argument(window_groups, "window_groups", "shuffle", least=1)
        if buffer_size is not None:
            raise PlanError(
                f"a window is of {count} groups or of {buffer_size} elements, not both", where="shuffle()", fix="give one of the two"
            )
        check.indexable(self._root, "shuffle", f"give it a buffer_size= instead, or {LATER}")
        groups_of(self._root)
        node = plan.Shuffle(
            child=self._root,
            buffer_size=None,
            seed=check.seed_argument(seed, "shuffle"),
            reshuffle_each_epoch=reshuffle,
            window_groups=count,
        )
        return self._with(node)

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Keep elements index, index + num_shards, ...: one rank's part. All shards together are the whole, in its order."""
        num_shards = check.count_argument(num_shards, "num_shards", "shard", least=1)
        index = check.count_argument(index, "index", "shard")
        if index >= num_shards:
            raise PlanError(f"index={index} of num_shards={num_shards}", where="shard()", fix=f"give an index in 0..{num_shards - 1}")
        return self._with(plan.Shard(child=self._root, num_shards=num_shards, index=index))

    def shard_by_rank(
        self, even: Literal["drop", "pad", "error"] = "drop", *, rank: int | None = None, num_ranks: int | None = None
    ) -> Dataset:
        """Keep this rank's part: of each round of `num_ranks` elements the one number `rank`. All ranks have equally many, in any pipeline.

        Put it above what leaves elements out or makes several of one (filter, flat_map, buckets, packs): each rank computes those for all
        elements, and all come to the same end without a word between them. Where `torch.distributed` or JAX runs with several processes,
        a feed compares the plans, seeds and states of all ranks before its first batch.

        A state that was saved on all ranks after the same step goes on with another number of ranks, where nothing but map, batch, prefetch
        and repeat stands above: no element of a round is lost or repeated.

        Args:
            even: what becomes of a last round that is not complete, in each pass: "drop" leaves it out, "pad" gives its first elements to
                the ranks that would have none, and "error" raises: here where the length is known, else at the end.
            rank: this process's number, from 0. By default it is that of torch.distributed or JAX where one of them is initialized, else
                that of the environment: torchrun, SLURM (srun), Open MPI, MPICH. Where none of these tells, there is one rank.
            num_ranks: how many there are; with `rank`. Nothing is compared then: give the numbers where only some processes take batches,
                or where several need the same ones, as with tensor parallelism.

        Raises:
            PlanError: a `rank` without `num_ranks` or beyond it; a shard below already; with "error", a length that is no multiple.
        """
        from penstock.adapters.ranks import current_rank

        given = rank is not None or num_ranks is not None
        own, count = (rank, num_ranks) if given else current_rank()
        if own is None or count is None:
            raise PlanError("one of rank= and num_ranks= is missing", where="shard_by_rank()", fix="give both, or none of them")
        count = check.count_argument(count, "num_ranks", "shard_by_rank", least=1)
        own = check.count_argument(own, "rank", "shard_by_rank")
        if own >= count:
            raise PlanError(f"rank={own} of num_ranks={count}", where="shard_by_rank()", fix=f"give a rank in 0..{count - 1}")
        shard = plan.Shard(child=self._root, num_shards=count, index=own, even=even, found=not given)
        return self._with(check.rank_shard(shard))

    def take(self, count: int) -> Dataset:
        """Keep the first `count` elements of each pass."""
        return self._with(plan.Take(child=self._root, count=check.count_argument(count, "count", "take")))

    def skip(self, count: int) -> Dataset:
        """Leave out the first `count` elements of each pass."""
        return self._with(plan.Skip(child=self._root, count=check.count_argument(count, "count", "skip")))

    def split(self, *fractions: float, seed: int = 0) -> tuple[Dataset, ...]:
        """Divide the elements at random into disjoint parts: `train, val = ds.split(0.9, seed=7)`.

        It is `shuffle(seed=seed, reshuffle_each_epoch=False)` with `skip` and `take`: arithmetic that holds no indices. Equal seeds give
        equal parts of datasets of equal lengths. The elements of a part come in a random order that is the same in every epoch; a
        `shuffle` above gives each epoch another one.

        Args:
            *fractions: the share of each part. What they leave of 1 is one more part, the last; none if they add up to 1. A part ends at
                the number of elements times the sum of the fractions up to its own, rounded to the nearest whole number, half up.
            seed: of the assignment.

        Returns:
            One dataset for each part.

        Raises:
            PlanError: behind a filter, flat_map or generator, and on endless datasets; above a `shuffle` that reshuffles or a `repeat`,
                which would put an element in several parts; fractions that are no shares, or a part without an element.
        """
        check.indexable(self._root, "split", "split() below the filter, flat_map or generator, and call that on each part")
        check.finite(self._root, "split", "split() first, and repeat() the part to train on")
        check.one_order(self._root, "split")
        shuffled = plan.Shuffle(child=self._root, buffer_size=None, seed=check.seed_argument(seed, "split"), reshuffle_each_epoch=False)
        parts, begin = [], 0
        for end in _ends(fractions, int(length_of(self._root) or 0)):
            parts.append(self._with(shuffled).skip(begin).take(end - begin))
            begin = end
        return tuple(parts)

    def repeat(self, count: int | None = None) -> Dataset:
        """Go through everything below `count` times, or endlessly: epochs. What is shuffled or random below differs in each."""
        number = None if count is None else check.count_argument(count, "count", "repeat", least=1)
        return self._with(plan.Repeat(child=self._root, count=number))

    def concatenate(self, other: Chaining, *more: Chaining) -> Dataset:
        """Deliver all elements of this dataset, then all of the others."""
        roots = branches((self, other, *more), "concatenate")
        for root in roots[:-1]:
            check.finite(root, "concatenate", "put the endless dataset last")
        return self._with(plan.Concatenate(children=roots))

    def zip(self, other: Chaining, *more: Chaining) -> Dataset:
        """Pair the elements of several datasets in tuples, as many as the shortest has."""
        return self._with(plan.Zip(children=branches((self, other, *more), "zip")))

    def mix(
        self,
        other: Chaining,
        *more: Chaining,
        weights: Sequence[float] | None = None,
        stop: Literal["first_exhausted", "all_exhausted"] = "first_exhausted",
    ) -> Dataset:
        """Take elements of this dataset and the others in turn, in proportion to `weights`.

        No random number is used: which dataset gives element t is arithmetic, and before any t each has given its share of t, less or more
        a few elements (3/4 of the binary logarithm of the number of datasets). A state may be loaded with other weights, or with more
        datasets behind the others, if every operator above is a map, take, skip, shard, enumerate, zip, batch or prefetch. They hold for
        what follows.

        Args:
            other: a second dataset.
            *more: further ones.
            weights: one positive number per dataset, this one first; equal by default. Their sum does not matter.
            stop: "first_exhausted" ends before the first element that a dataset does not have. With "all_exhausted" a dataset that has
                ended starts over, as its next epoch, until each was seen whole at least once.

        Raises:
            PlanError: for other weights; for a dataset behind a filter, flat_map or generator; and with "all_exhausted" for one that is
                endless or empty.
        """
        roots = branches((self, other, *more), "mix")
        if stop not in ("first_exhausted", "all_exhausted"):
            raise PlanError(f"stop={stop!r} is no way to stop", where="mix()", fix="give 'first_exhausted' or 'all_exhausted'")
        shares = check.weights_argument(weights, len(roots), "mix")
        for number, root in enumerate(roots if stop == "all_exhausted" else ()):
            check.finite(root, "mix(stop='all_exhausted')", "take(n) of the endless dataset, or stop='first_exhausted'")
            if length_of(root) == 0:
                raise PlanError(f"dataset {number} is empty and cannot start over", where="mix(stop='all_exhausted')", fix="leave it out")
        node = plan.Mix(children=roots, history=((0, shares),), restart=stop == "all_exhausted")
        return self._with(node)

    def interleave(self, fn: Callable[[Any], Chaining], cycle_length: int | None = None, block_length: int = 1) -> Dataset:
        """Make a dataset of each element, and take elements of `cycle_length` of them in turn, `block_length` from each.

        The order is tf.data's: a dataset keeps its place in the cycle until it gives less than `block_length` (or nothing) at its turn;
        when that place comes round again, the next dataset begins there. `fn` is called now, once per element, in this thread.

        Args:
            fn: takes one element and returns a Dataset whose length and positions are known.
            cycle_length: how many are open at a time; all of them by default.
            block_length: how many elements one turn gives.

        Raises:
            PlanError: when this dataset, or one that `fn` returns, is endless or stands behind a filter, flat_map or generator.
        """
        check.callable_argument(fn, "interleave")
        check.indexable(self._root, "interleave", LATER)
        check.finite(self._root, "interleave", "take(n) first: the datasets are made when the pipeline is")
        cycle = None if cycle_length is None else check.count_argument(cycle_length, "cycle_length", "interleave", least=1)
        block = check.count_argument(block_length, "block_length", "interleave", least=1)
        from penstock._engine.lowering import Evaluator

        outer = Evaluator(self._root)
        roots = branches([fn(outer.element(place)) for place in range(int(length_of(self._root) or 0))], "interleave")
        for root in roots:
            check.finite(root, "interleave", "take(n) of each dataset")
        node = plan.Interleave(children=roots, name=function_name(fn), cycle_length=cycle or max(1, len(roots)), block_length=block)
        return self._with(node)


def _ends(fractions: tuple[Any, ...], length: int) -> list[int]:
    """Return where each part of a split ends."""
    shares = [share for share in map(real_number, fractions) if share is not None and share > 0]
    total = math.fsum(shares)
    if not shares or len(shares) != len(fractions) or total > 1 + _ROUNDING:
        raise PlanError(
            f"the fractions {', '.join(map(repr, fractions)) or '()'} are no shares of 1",
            where="split()",
            fix="give positive numbers that add up to 1 or less, such as split(0.9) or split(0.8, 0.1)",
        )
    sums = [math.fsum(shares[: number + 1]) for number in range(len(shares))]
    ends = [min(length, int(length * share + 0.5)) for share in sums]
    if total > 1 - _ROUNDING:
        ends[-1] = length
    else:
        ends.append(length)
    sizes = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    if 0 in sizes:
        raise PlanError(
            f"{length} elements in parts of {', '.join(map(str, sizes))}: a part would be empty",
            where="split()",
            fix="give other fractions, or more elements",
        )
    return ends
