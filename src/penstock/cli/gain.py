"""Measures what packing bought: samples per second of the raw source, and of what was packed from it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from penstock._contracts.policy import Policy
from penstock.packing import Manifest, read_packed

__all__ = ["Gain", "measured"]

_SECONDS = 2.0
_WARM = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Samples per second, both with the same number of threads."""

    raw_per_s: float
    packed_per_s: float
    num_workers: int

    @property
    def times(self) -> float:
        """Return how many times as fast the packed data are."""
        return self.packed_per_s / self.raw_per_s

    @property
    def pays_after_epochs(self) -> float | None:
        """Return after how many epochs the time of packing, one epoch over the raw source, is won back; None for never."""
        return None if self.times <= 1 else 1 / (1 - 1 / self.times)


def measured(dataset: Any, manifest: Manifest, num_workers: int, on_error: Policy) -> Gain:
    """Read both for two seconds at most, or once.

    Raises:
        PenstockError: the packed data cannot be read.
    """
    return Gain(
        raw_per_s=_rate(dataset, num_workers, on_error),
        packed_per_s=_rate(read_packed(manifest.path), num_workers, on_error),
        num_workers=num_workers,
    )


def _rate(dataset: Any, num_workers: int, on_error: Policy) -> float:
    """Return the samples per second of a feed that has begun: its start is no part of it, if there are more than a few samples."""
    count = 0
    with dataset.feed(num_workers=num_workers, on_error=on_error) as feed:
        begun_s = time.perf_counter()
        for number, _ in enumerate(feed):
            if number == _WARM:
                begun_s, count = time.perf_counter(), 0
            count += 1
            if time.perf_counter() - begun_s >= _SECONDS:
                break
    return count / max(1e-9, time.perf_counter() - begun_s)
