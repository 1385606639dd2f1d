"""What holding folds and resampling do to a list of pairs (item, size or class), in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import kernels

__all__ = ["bucketed", "concatenated", "drawn", "first_fitted", "group_shuffled", "resampled", "windowed"]

Sized = list[tuple[Any, int]]


def bucketed(sizes: Sized, boundaries: tuple[int, ...], batch_sizes: tuple[int, ...], drop: bool) -> list[Any]:
    buckets: list[list[Any]] = [[] for _ in batch_sizes]
    out = []
    for name, size in sizes:
        number = sum(size >= boundary for boundary in boundaries)
        buckets[number].append(name)
        if len(buckets[number]) == batch_sizes[number]:
            out.append(buckets[number])
            buckets[number] = []
    return out + [bucket for bucket in buckets if bucket and not drop]


def first_fitted(sizes: Sized, capacity: int, num_bins: int) -> list[Any]:
    bins: list[Sized] = []
    out = []
    for name, size in sizes:
        if not size:
            continue
        found = [one for one in bins if sum(s for _, s in one) + size <= capacity]
        if not found and len(bins) == num_bins:
            fullest = max(bins, key=lambda one: sum(s for _, s in one))  # the oldest of equals
            bins.remove(fullest)
            out.append(fullest)
        if not found:
            bins.append([])
            found = bins[-1:]
        found[0].append((name, size))
        if sum(s for _, s in found[0]) == capacity:
            bins.remove(found[0])
            out.append(found[0])
    return [[name for name, _ in one] for one in out + bins]


def concatenated(sizes: Sized, capacity: int) -> list[Any]:
    tokens = [(name, place) for name, size in sizes for place in range(size)]
    out = []
    for start in range(0, len(tokens), capacity):
        row: list[Any] = []
        for name, place in tokens[start : start + capacity]:
            if row and row[-1][0] == name:
                row[-1] = (name, row[-1][1], place + 1)
            else:
                row.append((name, place, place + 1))
        out.append(row)
    return out


def drawn(sizes: Sized, number: int, size: int, most_bytes: int, seed: int) -> list[Any]:
    held: Sized = []
    out: list[Any] = []
    for item in [*sizes, None]:
        held += [] if item is None else [item]
        while held and (item is None or len(held) >= size or (sum(s for _, s in held) > most_bytes and len(held) > 1)):
            place = kernels.mix(seed, number, len(out)) * len(held) >> 64
            held[place], held[-1] = held[-1], held[place]
            out.append(held.pop()[0])
    return out


def windowed(sizes: Sized, size: int, shift: int, stride: int, drop: bool) -> list[Any]:
    names = [name for name, _ in sizes]
    groups = [names[start::stride][:size] for start in range(0, len(names), shift)]
    return [group for group in groups if not drop or len(group) == size]


def resampled(passes: list[Sized], target: list[float], initial: list[float] | None, seed: int, first: int = 0) -> list[list[Any]]:
    out: list[list[Any]] = []
    for number, items in enumerate(passes, first):
        counts = [1] * len(target)
        out.append([])
        for place, (item, kind) in enumerate(items):
            counts[kind] += 1
            ratios = [wanted / found for wanted, found in zip(target, initial or counts, strict=True)]
            if kernels.mix(seed, number, place) / 2**64 < ratios[kind] / max(ratios):
                out[-1].append(item)
    return out


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
