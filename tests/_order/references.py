"""What holding folds and resampling do to a list of pairs (item, size or class), in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from penstock import kernels

__all__ = [
    "bucketed",
    "bucketing",
    "concatenated",
    "concatenating",
    "drawing",
    "drawn",
    "first_fitted",
    "first_fitting",
    "group_shuffled",
    "resampled",
    "resampling",
    "windowed",
]

Sized = list[tuple[Any, int]]


def bucketing(sizes: Iterable[tuple[Any, int]], boundaries: tuple[int, ...], batch_sizes: tuple[int, ...], drop: bool) -> Iterator[Any]:
    buckets: list[list[Any]] = [[] for _ in batch_sizes]
    for name, size in sizes:
        number = sum(size >= boundary for boundary in boundaries)
        buckets[number].append(name)
        if len(buckets[number]) == batch_sizes[number]:
            yield buckets[number]
            buckets[number] = []
    yield from [bucket for bucket in buckets if bucket and not drop]


def bucketed(sizes: Sized, boundaries: tuple[int, ...], batch_sizes: tuple[int, ...], drop: bool) -> list[Any]:
    return list(bucketing(sizes, boundaries, batch_sizes, drop))


def first_fitting(sizes: Iterable[tuple[Any, int]], capacity: int, num_bins: int) -> Iterator[Any]:
    bins: list[Sized] = []
    for name, size in sizes:
        if not size:
            continue
        found = [one for one in bins if sum(s for _, s in one) + size <= capacity]
        if not found and len(bins) == num_bins:
            fullest = max(bins, key=lambda one: sum(s for _, s in one))  # the oldest of equals
            bins.remove(fullest)
            yield [name for name, _ in fullest]
        if not found:
            bins.append([])
            found = bins[-1:]
        found[0].append((name, size))
        if sum(s for _, s in found[0]) == capacity:
            full = found[0]
            bins = [one for one in bins if one is not full]
            yield [name for name, _ in full]
    yield from [[name for name, _ in one] for one in bins]


def first_fitted(sizes: Sized, capacity: int, num_bins: int) -> list[Any]:
    return list(first_fitting(sizes, capacity, num_bins))


def concatenating(sizes: Iterable[tuple[Any, int]], capacity: int) -> Iterator[Any]:
    row: list[Any] = []
    room = capacity
    for name, size in sizes:
        begin = 0
        while begin < size:
            end = min(size, begin + room)
            row.append((name, begin, end))
            room -= end - begin
            begin = end
            if not room:
                yield row
                row, room = [], capacity
    if row:
        yield row


def concatenated(sizes: Sized, capacity: int) -> list[Any]:
    return list(concatenating(sizes, capacity))


def drawing(sizes: Iterable[tuple[Any, int]], number: int, size: int, most_bytes: int, seed: int) -> Iterator[Any]:
    held: Sized = []
    given = 0
    for item in chain(sizes, [None]):
        held += [] if item is None else [item]
        while held and (item is None or len(held) >= size or (sum(s for _, s in held) > most_bytes and len(held) > 1)):
            place = kernels.mix(seed, number, given) * len(held) >> 64
            held[place], held[-1] = held[-1], held[place]
            given += 1
            yield held.pop()[0]


def drawn(sizes: Sized, number: int, size: int, most_bytes: int, seed: int) -> list[Any]:
    return list(drawing(sizes, number, size, most_bytes, seed))


def windowed(sizes: Sized, size: int, shift: int, stride: int, drop: bool) -> list[Any]:
    names = [name for name, _ in sizes]
    groups = [names[start::stride][:size] for start in range(0, len(names), shift)]
    return [group for group in groups if not drop or len(group) == size]


def resampling(items: Iterable[tuple[Any, int]], target: list[float], initial: list[float] | None, seed: int, number: int) -> Iterator[Any]:
    counts = [1] * len(target)
    for place, (item, kind) in enumerate(items):
        counts[kind] += 1
        ratios = [wanted / found for wanted, found in zip(target, initial or counts, strict=True)]
        if kernels.mix(seed, number, place) / 2**64 < ratios[kind] / max(ratios):
            yield item


def resampled(passes: list[Sized], target: list[float], initial: list[float] | None, seed: int, first: int = 0) -> list[list[Any]]:
    return [list(resampling(items, target, initial, seed, number)) for number, items in enumerate(passes, first)]


def group_shuffled(groups: list[list[Any]], window: int, seed: int, epoch: int) -> list[Any]:
    """Put groups in a keyed order, and elements inside windows of several groups."""
    groups = [group for group in groups if group]
    key = kernels.mix(seed, epoch, 5)
    ranked = [groups[place] for place in keyed(len(groups), kernels.mix(seed, epoch, 4))]
    out = []
    for number, begin in enumerate(range(0, len(ranked), window)):
        rows = [row for group in ranked[begin : begin + window] for row in group]
        out += [rows[place] for place in keyed(len(rows), kernels.mix(key, number))]
    return out


def keyed(count: int, key: int) -> list[int]:
    return kernels.permute(np.arange(count, dtype=np.int64), count, key).tolist() if count else []
