"""Before packing: a dataset as shards, and a look at some elements: which fields they have, how large they are, how long they take.

The parts of a dataset: what has positions, what runs on its elements, and which positions belong to which shard.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from penstock._contracts.event import ElementLost, Event
from penstock._contracts.options import Options
from penstock._contracts.policy import Policy, Replace, Retry, Skip, checked_policy, final
from penstock._plan import node as plan
from penstock._plan.base import Node, length_of, never_ends, substituted, walk
from penstock._plan.facts import is_indexable, spec_of_plan
from penstock.dataset.builder import Dataset
from penstock.errors import PackError, PlanError, SourceError, SpecError, TooManySkipped
from penstock.formats.sizes import size_words
from penstock.packing.disk import NoDisk, OutFile
from penstock.packing.encoders import open_encoder
from penstock.packing.options import PackOptions
from penstock.packing.schema import FieldColumn, Schema, alike, columns_of, schema_of


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
            root = node.with_children([root])
        return root


def has_positions(root: plan.Node) -> bool:
    """Tell whether a plan has positions, but for elementwise operators above them. The elements of any other only reading tells."""
    while (root.per_element or root.is_hint) and not is_indexable(root):
        root = root.children[0]
    return is_indexable(root)


def split(dataset: Dataset, *, variants: int, shuffle: int | None) -> Split:
    """Cut a dataset for packing.

    Args:
        dataset: what is to be packed; it has positions, see `has_positions`.
        variants: passes over it; the random numbers of each are other ones.
        shuffle: seed of an order over all of it, variants included; None for its own.

    Raises:
        PlanError: it is endless.
    """
    chain = [dataset._root]
    while not is_indexable(chain[0]):
        chain.insert(0, chain[0].children[0])
    base, above = chain[0], [node for node in chain[1:] if not node.is_hint]
    check_ends(base)
    whole = Dataset(base)
    if variants > 1:
        whole = whole.repeat(variants)
    if shuffle is not None:
        whole = whole.shuffle(seed=shuffle)
    return Split(base=whole._root, above=tuple(above), options=dataset._options, num_positions=int(length_of(base) or 0) * variants)


def check_ends(root: plan.Node) -> None:
    """Make sure that a plan ends; a stream is taken to end.

    Raises:
        PlanError: it does not.
    """
    if never_ends(root):
        raise PlanError("an endless dataset cannot be packed", where="pack()", fix="give repeat a count, use take(n), or variants=K")


def leaving_out(root: plan.Node) -> plan.Node:
    """Return a plan whose shards have what they have: what is skipped is left out, not replaced by another element of the shard."""
    others: dict[plan.Node, plan.Node] = {}
    for node in plan.shards_of(root):
        others[node] = replace(node, child=substituted(node.child, others), equal_steps=False)
    return substituted(root, others)


def policy_of(options: Options, on_error: Policy | None) -> Policy:
    """Return what is done about elements that fail: what was given, or the dataset's own.

    Raises:
        PlanError: it is no policy, or puts other elements in their place.
    """
    policy = checked_policy(options.on_error if on_error is None else on_error, "on_error", "pack()")
    if isinstance(final(policy), Replace):
        raise PlanError(
            "Replace() would put an element in place of another that stands in another shard",
            where="pack(on_error=...)",
            fix="use ps.Skip() or ps.Retry()",
        )
    return policy


def for_part(policy: Policy) -> Policy:
    """Return the policy for a part of a dataset: a share of all is judged when all is known, a number now, too."""
    last = final(policy)
    if not isinstance(last, Skip) or not isinstance(last.limit, float):
        return policy
    free = replace(last, limit=None)
    return replace(policy, then=free) if isinstance(policy, Retry) else free


def check_losses(policy: Policy, lost: Sequence[dict[str, Any]], num_written: int, num_read: int | None = None) -> None:
    """Refuse a result of which too much, or all, is missing.

    Args:
        policy: what is done about elements that fail.
        lost: a record of each that was left out.
        num_written: elements.
        num_read: positions that were read; None: those that were written or left out.

    Raises:
        SourceError, TooManySkipped: what is wrong.
    """
    if not num_written:
        raise SourceError("no element is left to write", where="pack()", fix="look at the filter, and at what on_error leaves out")
    last = final(policy)
    limit = last.limit if isinstance(last, Skip) else None
    count = num_written + len(lost) if num_read is None else num_read
    most = None if limit is None else limit if isinstance(limit, int) else limit * count
    if most is not None and len(lost) > most:
        raise TooManySkipped(
            f"{len(lost)} of {count} elements failed, limit {limit!r}; first: {lost[0]['error']}: {lost[0]['text']}",
            where=f"pack(), {lost[0]['where']}",
            fix="mend the input, or allow more: ps.Skip(limit)",
        )


MOST = 64
"""So many elements a sample has at most."""

_AT_ONCE = 1024
_SPARE = 1.05
_INLINE: dict[str, Any] = {"executor": "inline", "ordered": True, "quarantine": None, "record": None, "replay": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a sample said.

    Attributes:
        schema: the fields.
        columns: how they are written.
        total_bytes: what all will take, by the mean of the sample; None of a stream that goes on behind it.
        total_count: how many elements there will be, likewise; exact where nothing is filtered or skipped.
        mean_bytes: of an element.
        element_s: how long one element takes to make and encode, in one thread.
        num_sampled: positions, or elements of a stream, that were looked at.
    """

    schema: Schema
    columns: tuple[FieldColumn, ...]
    total_bytes: int | None
    total_count: int | None
    mean_bytes: float
    element_s: float
    num_sampled: int


def take_sample(split: Split, options: PackOptions, policy: Policy, looks: Sequence[PositionsLook | None] = ()) -> Sample:
    """Make up to 64 elements, at positions that are evenly spaced over all: the first, the last and between. Blocks for as long.

    Where a filter or the policy leaves none of them, all positions are tried from the first on, until there is one.
    The elements are the same in every run, and so is everything that is derived of them but the time.

    Args:
        split: the dataset.
        options: what else decides the bytes.
        policy: what is done about elements that fail.
        looks: what `SamplePart` gave for all its parts, in order: then nothing is made here, unless one of them is None.

    Raises:
        SourceError: there is no element.
        SpecError: they differ in their fields, or have some that cannot be written.
        BaseException: what a function of the dataset raises, unless the policy leaves such elements out.
    """
    count = split.num_positions
    if count == 0:
        raise SourceError("the dataset has no elements", where="pack()", fix="give one with at least one element")
    look = next((look for look in _looks(split, policy, count, looks) if look.elements), None)
    if look is None:
        raise SourceError(
            f"none of {count} elements could be made, or all were filtered out",
            where="pack()",
            fix="look at the filter, at ds[0], and at what on_error leaves out",
        )
    begun_s = time.perf_counter()
    last = final(policy)
    elements = alike(look.elements) if isinstance(last, Skip) and issubclass(SpecError, last.errors) else look.elements
    schema = _schema(split, elements, look.positions)
    rows = [schema.values(element) for element in elements]
    columns = columns_of(schema, options.format, rows[0])
    num_bytes = encoded_bytes(columns, options, rows)
    taken_s = look.taken_s + time.perf_counter() - begun_s
    times = count / look.num_tried
    return Sample(
        schema=schema,
        columns=columns,
        total_bytes=round(num_bytes * times * look.num_found / len(look.elements)),
        total_count=round(len(elements) * times * look.num_found / len(look.elements)),
        mean_bytes=num_bytes / len(rows),
        element_s=taken_s / max(1, len(elements) - look.num_first),
        num_sampled=len(look.positions),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsLook:
    """What some positions gave. Picklable if the elements are.

    Attributes:
        positions: that were tried now.
        elements: up to 64 of what they gave.
        num_found: how many they gave.
        num_tried: positions that were tried so far.
        num_lost: how many elements the policy left out.
        num_first: how many of the elements were the first in their process, which take the time of imports and caches as well.
        taken_s: how long the other elements took.
    """

    positions: list[int]
    elements: list[Any]
    num_found: int
    num_tried: int
    num_lost: int
    num_first: int
    taken_s: float


@dataclass(frozen=True, slots=True)
class SamplePart:
    """Makes a part of the sample in a worker that starts and has nothing else to do: it has everything imported and opened then as well.

    Called with the number of the part.

    Attributes:
        split: the dataset.
        policy: what is done about elements that fail.
        num_parts: into how many the positions of the sample are divided.
    """

    split: Split
    policy: Policy
    num_parts: int

    def __call__(self, number: int) -> PositionsLook:
        """Make it.

        Raises:
            BaseException: as `take_sample`.
        """
        positions = _spaced(self.split.num_positions)
        begin, end = (part * len(positions) // self.num_parts for part in (number, number + 1))
        return _look(self.split, self.policy, positions[begin:end])


def _spaced(count: int) -> list[int]:
    """Return the positions of the sample: at most 64, spaced evenly over all."""
    return sorted({place * (count - 1) // (MOST - 1) for place in range(MOST)} if count > MOST else range(count))


def _looks(split: Split, policy: Policy, count: int, looks: Sequence[PositionsLook | None]) -> Iterator[PositionsLook]:
    """Look at positions that are evenly spaced over all, unless others have, then at all of them, in parts."""
    there = [look for look in looks if look is not None]
    made = looks and len(there) == len(looks) and not _too_many(sum(look.num_lost for look in there), policy)
    yield _joined(there) if made else _look(split, policy, _spaced(count))
    for first in range(0, count if count > MOST else 0, _AT_ONCE):
        look = _look(split, policy, list(range(first, min(first + _AT_ONCE, count))))
        yield replace(look, num_tried=first + look.num_tried)


def _too_many(num_lost: int, policy: Policy) -> bool:
    """Tell whether parts have lost more together than the policy allows; the error is that of one sample."""
    last = final(policy)
    return isinstance(last, Skip) and isinstance(last.limit, int) and num_lost > last.limit


def _joined(looks: Sequence[PositionsLook]) -> PositionsLook:
    elements = [element for look in looks for element in look.elements]
    return PositionsLook(
        positions=[position for look in looks for position in look.positions],
        elements=elements[:MOST],
        num_found=sum(look.num_found for look in looks),
        num_tried=sum(look.num_tried for look in looks),
        num_lost=sum(look.num_lost for look in looks),
        num_first=sum(look.num_first for look in looks),
        taken_s=sum(look.taken_s for look in looks) * min(1.0, MOST / max(1, len(elements))),
    )


def _look(split: Split, policy: Policy, positions: list[int]) -> PositionsLook:
    num_lost = 0

    def listen(event: Event) -> None:
        nonlocal num_lost
        num_lost += isinstance(event, ElementLost)

    found = chain.from_iterable(_elements(dataset, policy, listen) for dataset in _parts(split, policy, positions))
    elements = list(islice(found, 1))
    begun_s = time.perf_counter()
    elements += islice(found, MOST - 1)
    taken_s = time.perf_counter() - begun_s
    num_found = len(elements) + sum(1 for _ in found)
    return PositionsLook(
        positions=positions,
        elements=elements,
        num_found=num_found,
        num_tried=len(positions),
        num_lost=num_lost,
        num_first=len(elements[:1]),
        taken_s=taken_s,
    )


def _parts(split: Split, policy: Policy, positions: list[int]) -> list[Dataset]:
    """Return the datasets of some positions: one, or one for each where elements may be left out below a batch and its position moves."""
    moves = isinstance(final(policy), Skip) and any(node.groups_elements for node in walk(split.base))
    return [split.part(position, position + 1) for position in positions] if moves else [split.some(positions)]


def _elements(dataset: Dataset, policy: Policy, listen: Callable[[Event], None]) -> Iterator[Any]:
    with dataset.feed(**_INLINE, on_error=for_part(policy), listeners=[listen]) as feed:
        feed._warns_when_empty = False
        yield from feed


def _schema(split: Split, elements: list[Any], positions: list[int]) -> Schema:
    """Find the fields.

    Raises:
        SpecError: of the element that differs from most, named as a feed names it; or one that no element would pass.
    """
    declared = declared_of(split.whole())
    try:
        return schema_of(elements, declared)
    except SpecError:
        usual = alike(elements)
        if len(usual) < len(elements):
            check = schema_of(usual, declared).values
            with split.some(positions).map(check, name="pack").feed(**_INLINE) as feed:
                for _ in feed:
                    pass
        raise


def declared_of(root: Node) -> Any:
    """Return what the maps of a plan say of its elements, as far as nothing must be computed for it; None for nothing."""
    try:
        return spec_of_plan(root, _nothing)
    except _NotDeclared:
        return None


class _NotDeclared(Exception):
    """Nothing is declared for a part of a plan."""


def _nothing(root: Node) -> Any:
    raise _NotDeclared


def encoded_bytes(columns: Sequence[FieldColumn], options: PackOptions, rows: Sequence[Sequence[Any]]) -> int:
    """Return the size of a file of these rows."""
    out = OutFile(NoDisk(), "")
    encoder = open_encoder(options.format, columns, options.compression, out, 0)
    for row in rows:
        encoder.add(row)
    encoder.finish()
    return out.size


def check_room(folder: str, needed_bytes: int) -> None:
    """Make sure that a disk has room for so many bytes and 5 % more.

    Raises:
        PackError: it has not.
    """
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    wanted = int(needed_bytes * _SPARE)
    if wanted > free:
        raise PackError(
            f"about {size_words(wanted)} are needed and {size_words(free)} are free",
            where=f"pack() to {folder!r}",
            fix="make room, or pack less, smaller or compressed",
        )
