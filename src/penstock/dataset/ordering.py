"""Builder methods that say which element comes when."""

from __future__ import annotations

from typing import Self

from penstock._plan import check
from penstock._plan import node as plan
from penstock.dataset.chaining import LATER, Chaining, branches
from penstock.errors import PlanError

__all__ = ["OrderMethods"]


class OrderMethods(Chaining):
    """Shuffle, shard, repeat and their kin."""

    __slots__ = ()

    def shuffle(self, buffer_size: int | None = None, seed: int = 0, reshuffle_each_epoch: bool = True) -> Self:
        """Put the elements in a random order that the seed determines: of all of them, or inside a window.

        Args:
            buffer_size: None for a global permutation. A number k moves each element less than k places; no data are buffered, and
                k >= len is the global permutation.
            seed: equal seeds give equal permutations of equal lengths.
            reshuffle_each_epoch: whether each pass of a `repeat` above has an order of its own.

        Raises:
            PlanError: behind a filter, flat_map or generator, and on endless datasets.
        """
        check.indexable(self._root, "shuffle", LATER)
        check.finite(self._root, "shuffle", "shuffle() first, then repeat(): each epoch gets an order of its own")
        size = None if buffer_size is None else check.count_argument(buffer_size, "buffer_size", "shuffle", least=1)
        seed = check.seed_argument(seed, "shuffle")
        return self._with(plan.Shuffle(child=self._root, buffer_size=size, seed=seed, reshuffle_each_epoch=bool(reshuffle_each_epoch)))

    def shard(self, num_shards: int, index: int) -> Self:
        """Keep elements index, index + num_shards, ...: one rank's part. All shards together are the whole, in its order."""
        num_shards = check.count_argument(num_shards, "num_shards", "shard", least=1)
        index = check.count_argument(index, "index", "shard")
        if index >= num_shards:
            raise PlanError(f"index={index} of num_shards={num_shards}", where="shard()", fix=f"give an index in 0..{num_shards - 1}")
        return self._with(plan.Shard(child=self._root, num_shards=num_shards, index=index))

    def take(self, count: int) -> Self:
        """Keep the first `count` elements of each pass."""
        return self._with(plan.Take(child=self._root, count=check.count_argument(count, "count", "take")))

    def skip(self, count: int) -> Self:
        """Leave out the first `count` elements of each pass."""
        return self._with(plan.Skip(child=self._root, count=check.count_argument(count, "count", "skip")))

    def repeat(self, count: int | None = None) -> Self:
        """Go through everything below `count` times, or endlessly: epochs. What is shuffled or random below differs in each."""
        number = None if count is None else check.count_argument(count, "count", "repeat", least=1)
        node = plan.Repeat(child=self._root, count=number)
        check.bounded(node, "repeat")
        return self._with(node)

    def concatenate(self, other: Chaining, *more: Chaining) -> Self:
        """Deliver all elements of this dataset, then all of the others."""
        roots = branches((self, other, *more), "concatenate")
        for root in roots[:-1]:
            check.finite(root, "concatenate", "put the endless dataset last")
        return self._with(plan.Concatenate(children=roots))

    def zip(self, other: Chaining, *more: Chaining) -> Self:
        """Pair the elements of several datasets in tuples, as many as the shortest has."""
        return self._with(plan.Zip(children=branches((self, other, *more), "zip")))
