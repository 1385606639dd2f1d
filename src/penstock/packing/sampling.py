"""A look at some elements before packing: which fields they have, how large they are, how long they take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from penstock._contracts.event import ElementLost, Event
from penstock._contracts.policy import Policy, Skip, final
from penstock._plan.base import Node, walk
from penstock._plan.facts import spec_of_plan
from penstock.dataset import Dataset
from penstock.errors import PackError, SourceError, SpecError
from penstock.formats.sizes import size_words
from penstock.packing.columns import Column, columns_of
from penstock.packing.disk import NoDisk, OutFile
from penstock.packing.encoders import open_encoder
from penstock.packing.options import PackOptions
from penstock.packing.schema import Schema, alike, schema_of
from penstock.packing.splitting import Split, for_part

__all__ = ["MOST", "Look", "Sample", "SamplePart", "check_room", "declared_of", "encoded_bytes", "take_sample"]

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
    columns: tuple[Column, ...]
    total_bytes: int | None
    total_count: int | None
    mean_bytes: float
    element_s: float
    num_sampled: int


def take_sample(split: Split, options: PackOptions, policy: Policy, looks: Sequence[Look | None] = ()) -> Sample:
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
class Look:
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

    def __call__(self, number: int) -> Look:
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


def _looks(split: Split, policy: Policy, count: int, looks: Sequence[Look | None]) -> Iterator[Look]:
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


def _joined(looks: Sequence[Look]) -> Look:
    elements = [element for look in looks for element in look.elements]
    return Look(
        positions=[position for look in looks for position in look.positions],
        elements=elements[:MOST],
        num_found=sum(look.num_found for look in looks),
        num_tried=sum(look.num_tried for look in looks),
        num_lost=sum(look.num_lost for look in looks),
        num_first=sum(look.num_first for look in looks),
        taken_s=sum(look.taken_s for look in looks) * min(1.0, MOST / max(1, len(elements))),
    )


def _look(split: Split, policy: Policy, positions: list[int]) -> Look:
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
    return Look(
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


def encoded_bytes(columns: Sequence[Column], options: PackOptions, rows: Sequence[Sequence[Any]]) -> int:
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
