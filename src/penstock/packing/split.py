"""Which positions of a dataset belong to which shard, and a sample of its elements: their fields, and how large they are."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from penstock._contracts.options import Options
from penstock._contracts.policy import Policy, Skip, final
from penstock._plan import node as plan
from penstock._plan.base import Node, length_of, never_ends, walk
from penstock._plan.facts import is_indexable, known_spec
from penstock._system.lazy import dataclass
from penstock.dataset.builder import Dataset
from penstock.dataset.measuring import opened
from penstock.errors import PlanError, SourceError, SpecError
from penstock.packing.encoders import SUFFIXES, open_encoder
from penstock.packing.options import PackOptions
from penstock.packing.schema import Schema, columns_of, schema_of
from penstock.sources.paths import spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A plan with positions, and operators that make nothing, one or several elements of each of its elements.

    Attributes:
        base: the plan before the first filter, flat_map or unbatch.
        above: these operators and the maps between and after them, in order.
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
            root = node.with_children([root])
        return root


def has_positions(root: plan.Node) -> bool:
    """Tell whether a plan has positions, but for elementwise operators after them. The elements of any other only reading tells."""
    while (root.per_element or root.is_hint) and not is_indexable(root):
        root = root.children[0]
    return is_indexable(root)


def split(dataset: Dataset, shuffle: int | None = None) -> Split:
    """Cut a dataset for packing.

    Args:
        dataset: what is to be packed; it has positions, see `has_positions`.
        shuffle: seed of an order over all of it; None for its own.

    Raises:
        PlanError: it is endless.
    """
    chain = [dataset._root]
    while not is_indexable(chain[0]):
        chain.insert(0, chain[0].children[0])
    base, above = chain[0], [node for node in chain[1:] if not node.is_hint]
    check_ends(base)
    ordered = Dataset(base) if shuffle is None else Dataset(base).shuffle(seed=shuffle)
    return Split(base=ordered._root, above=tuple(above), options=dataset._options, num_positions=int(length_of(base) or 0))


def check_ends(root: plan.Node) -> None:
    """Make sure that a plan ends; a stream is taken to end.

    Raises:
        PlanError: it does not.
    """
    if never_ends(root):
        raise PlanError("an endless dataset cannot be packed", where="pack()", fix="give repeat a count, or use take(n)")


MOST = 64
"""So many elements a sample has at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a sample says of the whole.

    Attributes:
        schema: the fields, and how they are written.
        count: how many elements there will be, in proportion; None of a stream that goes on after the sample.
        size: what all will take, in proportion; None likewise.
        mean_bytes: of an element.
        num_sampled: how many elements were looked at.
        num_shards: files; None where that is not known.
    """

    schema: Schema
    count: int | None
    size: int | None
    mean_bytes: float
    num_sampled: int
    num_shards: int | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """Say how each field would be written, in a line."""
        return tuple(field.words() for field in self.schema.fields)


def take_sample(split: Split, options: PackOptions, policy: Policy) -> Estimate:
    """Make the elements of up to 64 positions that are evenly spaced over all, in this thread.

    Where a filter or the policy leaves none of them, the first element of all is the sample. It is the same in every run.

    Raises:
        SourceError: there is no element.
        SpecError: none of them can be written.
        BaseException: what a function of the dataset raises, unless the policy leaves such elements out.
    """
    count = split.num_positions
    if count == 0:
        raise SourceError("the dataset has no elements", where="pack()", fix="give one with at least one element")
    positions = spread(count, MOST)
    elements, num_found = list[Any](), 0
    # Where elements may be left out before a batch, it moves: then each position is read alone, and is what it is in its shard.
    moves = isinstance(final(policy), Skip) and any(node.groups_elements for node in walk(split.base))
    for dataset in [split.part(position, position + 1) for position in positions] if moves else [split.some(positions)]:
        with opened(dataset, policy, executor="inline") as found:
            for element in found:
                num_found += 1
                if len(elements) < MOST:
                    elements.append(element)
    share = count / len(positions)
    if not elements:
        with opened(Dataset(split.whole(), split.options), policy, executor="inline") as found:
            elements = list(islice(found, 1))
        num_found = 1
    if not elements:
        raise SourceError(
            f"none of {count} elements could be made, or all were filtered out",
            where="pack()",
            fix="look at the filter, at ds[0], and at what on_error leaves out",
        )
    return sample_of(elements, split.whole(), options, round(num_found * share))


def sample_of(elements: Sequence[Any], root: Node, options: PackOptions, count: int | None) -> Estimate:
    """Find the fields of some elements, and their size in a file.

    Args:
        elements: at least one.
        root: the plan that they come of.
        options: of the packing.
        count: how many there are of them in the whole, if that is known.

    Raises:
        SpecError: none of them can be written.
    """
    schema = schema_of(elements, known_spec(root))
    rows = []
    for element in elements:
        with suppress(SpecError):  # it is an error, or left out, when it is written
            rows.append(schema.values(element))
    schema = columns_of(schema, options.format, rows[0], options.dtype)
    files = [io.BytesIO() for _ in SUFFIXES[options.format]]
    encoder = open_encoder(options.format, schema.fields, options.compression, files, 0)
    for row in rows:
        encoder.add(row)
    encoder.finish()
    mean_bytes = sum(file.tell() for file in files) / len(rows)
    return Estimate(
        schema=schema,
        count=count,
        size=None if count is None else round(mean_bytes * count),
        mean_bytes=mean_bytes,
        num_sampled=len(elements),
    )
