"""A look at some elements before packing: which fields they have, how large they are, how long they take."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from penstock._contracts.policy import Policy
from penstock._plan.node import Node
from penstock._plan.specs import spec_of_plan
from penstock.errors import PackError, SourceError
from penstock.formats.sizes import size_words
from penstock.packing.columns import Column, columns_of
from penstock.packing.disk import Disk, OutFile
from penstock.packing.encoders import open_encoder
from penstock.packing.options import PackOptions
from penstock.packing.schema import Schema, schema_of
from penstock.packing.splitting import Split, for_part

__all__ = ["Sample", "WarmUp", "check_room", "take_sample"]

_MOST = 64
_SPARE = 1.05
_INLINE: dict[str, Any] = {"executor": "inline", "ordered": True, "quarantine": None, "record": None, "replay": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a sample said.

    Attributes:
        schema: the fields.
        columns: how they are written.
        total_bytes: what all will take, by the mean of the sample.
        total_count: how many elements there will be, likewise; exact where nothing is filtered or skipped.
        element_s: how long one element takes to make and encode, in one thread.
        num_sampled: positions that were looked at.
    """

    schema: Schema
    columns: tuple[Column, ...]
    total_bytes: int
    total_count: int
    element_s: float
    num_sampled: int


def take_sample(split: Split, options: PackOptions, policy: Policy) -> Sample:
    """Make up to 64 elements, at positions that are evenly spaced over all: the first, the last and between. Blocks for as long.

    The elements are the same in every run, and so is everything that is derived of them but the time.

    Raises:
        SourceError: there is no element, or none of the sample could be made.
        SpecError: they differ in their fields, or have some that cannot be written.
        BaseException: what a function of the dataset raises, unless the policy leaves such elements out.
    """
    count = split.num_positions
    if count == 0:
        raise SourceError("the dataset has no elements", where="pack()", fix="give one with at least one element")
    positions = sorted({number * (count - 1) // (_MOST - 1) for number in range(_MOST)} if count > _MOST else range(count))
    with split.some(positions).feed(**_INLINE, on_error=for_part(policy)) as feed:
        feed.warns_when_empty = False
        elements = list(islice(feed, 1))  # beside its own time, the first one takes that of imports and caches
        begun_s = time.perf_counter()
        elements += feed
    if not elements:
        raise SourceError(
            f"none of {len(positions)} elements could be made, or all were filtered out",
            where="pack()",
            fix="look at ds[0], and at what on_error leaves out",
        )
    schema = schema_of(elements, _declared(split.whole()))
    rows = [schema.values(element) for element in elements]
    columns = columns_of(schema, options.format, rows[0])
    num_bytes = _encoded(columns, options, rows)
    taken_s = time.perf_counter() - begun_s
    num_timed = max(1, len(elements) - 1)
    times = count / len(positions)
    return Sample(
        schema=schema,
        columns=columns,
        total_bytes=round(num_bytes * times),
        total_count=round(len(elements) * times),
        element_s=taken_s / num_timed,
        num_sampled=len(positions),
    )


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Makes one of the elements of the sample, which is made anyway, in a worker that waits: it imports and opens what it needs for it."""

    split: Split

    def __call__(self) -> None:
        """Make it."""
        with self.split.some([0]).feed(**_INLINE) as feed:
            feed.warns_when_empty = False
            for _ in feed:
                pass


def _declared(root: Node) -> Any:
    """Return what the maps of a plan say of its elements, as far as nothing must be computed for it; None for nothing."""
    try:
        return spec_of_plan(root, _nothing)
    except _NotDeclared:
        return None


class _NotDeclared(Exception):
    """Nothing is declared for a part of a plan."""


def _nothing(root: Node) -> Any:
    raise _NotDeclared


class _Nowhere(Disk):
    """Counts, and writes nothing."""

    def create(self, path: str) -> int:
        return 0

    def write(self, descriptor: int, data: memoryview) -> int:
        return len(data)

    def close(self, descriptor: int) -> None:
        return None


def _encoded(columns: Sequence[Column], options: PackOptions, rows: Sequence[Sequence[Any]]) -> int:
    out = OutFile(_Nowhere(), "")
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
