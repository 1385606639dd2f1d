"""A dataset as shards: which part of it has positions, what runs on its elements, and which positions belong to which shard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock._contracts.options import Options
from penstock._contracts.policy import Policy, Retry, Skip, final
from penstock._contracts.source import CountableStream
from penstock._plan import node as plan
from penstock._plan.length import INFINITE, is_indexable, length_of
from penstock.dataset import Dataset
from penstock.errors import PlanError

__all__ = ["Split", "for_part", "split"]

_ELEMENTWISE = (plan.Map, plan.Filter, plan.FlatMap, plan.Unbatch)
_IN_ORDER = (*_ELEMENTWISE, plan.Take, plan.Skip, plan.Repeat, plan.Prefetch, plan.Batch, plan.PaddedBatch, plan.RaggedBatch)
"""Operators that mean the same above a stream and above a source with positions, and read it from its beginning to its end."""
_BATCHES = (plan.AnyBatch, plan.Window, plan.PackSequences, plan.BucketByLength)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A plan with positions, and operators that make nothing, one or several elements of each of its elements.

    Attributes:
        base: the plan below the first filter, flat_map or unbatch.
        above: these operators and the maps between and above them, from below.
        options: of the dataset.
        num_positions: elements of `base`.
    """

    base: plan.Node
    above: tuple[plan.Node, ...]
    options: Options
    num_positions: int

    def whole(self) -> plan.Node:
        """Return the plan of all elements."""
        return self._with(self.base)

    def part(self, begin: int, end: int) -> Dataset:
        """Return the elements that come of positions begin..end-1: what they are in the whole, random numbers included."""
        return Dataset(self._with(plan.Take(child=plan.Skip(child=self.base, count=begin), count=end - begin)), self.options)

    def some(self, positions: list[int]) -> Dataset:
        """Return the elements that come of some positions, in their order."""
        return Dataset(self._with(plan.Pick(child=self.base, places=tuple((0, position) for position in positions))), self.options)

    def borders(self, num_shards: int) -> list[int]:
        """Return where shards begin, and the end: shard s has positions borders[s]..borders[s + 1] - 1, sizes differ by one at most."""
        return [number * self.num_positions // num_shards for number in range(num_shards + 1)]

    def _with(self, root: plan.Node) -> plan.Node:
        for node in self.above:
            root = replace(node, child=root)  # type: ignore[arg-type]
        return root


def split(dataset: Any, *, variants: int, shuffle: int | None) -> Split:
    """Cut a dataset for packing.

    Args:
        dataset: what is to be packed.
        variants: passes over it; the random numbers of each are other ones.
        shuffle: seed of an order over all of it, variants included; None for its own.

    Raises:
        PlanError: it is no dataset, endless, has no positions to begin with, or batches behind a filter.
    """
    if not isinstance(dataset, Dataset):
        raise PlanError(f"{dataset!r} is not a Dataset", where="pack()", fix="wrap it with ps.from_source or ps.from_arrays")
    root = _counted(dataset._root)
    is_counted = root is not dataset._root
    chain = [root]
    while not is_indexable(chain[0]) and len(plan.children_of(chain[0])) == 1:
        chain.insert(0, plan.children_of(chain[0])[0])
    base, above = chain[0], [node for node in chain[1:] if not isinstance(node, plan.Prefetch)]
    odd = next((node for node in above if not isinstance(node, _ELEMENTWISE)), None)
    if not is_indexable(base) or odd is not None:
        raise PlanError(
            f"{_name(base if odd is None else odd)} cannot be cut into shards: only reading tells which elements it has"
            + ("" if odd is None else ", as it stands above a filter, flat_map or unbatch"),
            where="pack()",
            fix="put take, shuffle, shard and repeat below the filter or flat_map; a function that yields the same in every pass can be "
            "packed as from_generator(fn, fast_forward=True, length=n), elements of other streams must be written to files first"
            if odd is None or not isinstance(odd, _BATCHES)
            else "pack single elements, and batch when you read them",
        )
    length = length_of(base)
    if length is None or length == INFINITE:
        raise PlanError("an endless dataset cannot be packed", where="pack()", fix="give repeat a count, use take(n), or variants=K")
    whole = Dataset(base)
    if variants > 1:
        whole = whole.repeat(variants)
    if shuffle is not None:
        if is_counted:
            raise PlanError(
                "the input can only be read from its beginning, and shuffle= reads it in any order",
                where="pack(shuffle=...)",
                fix="pack it as it is; what was packed can be shuffled when it is read, or packed again with shuffle=",
            )
        whole = whole.shuffle(seed=shuffle)
    return Split(base=whole._root, above=tuple(above), options=dataset._options, num_positions=int(length) * variants)


def _counted(root: plan.Node) -> plan.Node:
    """Return a plan with positions in place of one of a stream that can be counted, which happens here; any other plan as it is.

    Raises:
        PenstockError, OSError: the files of the stream cannot be read.
    """
    if isinstance(root, plan.ReadStream):
        counted = root.source.counted() if isinstance(root.source, CountableStream) else None
        return root if counted is None else plan.Read(source=counted)
    if not isinstance(root, _IN_ORDER):
        return root
    child = _counted(root.child)
    return root if child is root.child else replace(root, child=child)


def _name(node: plan.Node) -> str:
    return "a generator or stream" if isinstance(node, plan.ReadStream) else type(node).__name__.lower()


def for_part(policy: Policy) -> Policy:
    """Return the policy for a part of a dataset: a share of all is judged when all is known, a number now, too."""
    last = final(policy)
    if not isinstance(last, Skip) or not isinstance(last.limit, float):
        return policy
    free = replace(last, limit=None)
    return replace(policy, then=free) if isinstance(policy, Retry) else free
