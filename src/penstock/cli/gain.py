"""Measures what packing bought: samples per second of the raw source, and of what was packed from it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock import image
from penstock._contracts.policy import Policy
from penstock.packing import Manifest, read_packed

__all__ = ["Gain", "measured"]

_SECONDS = 2.0
_LEAST_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Samples per second, both with the same number of threads, and what was done to each: what a training loop would do."""

    raw_per_s: float
    packed_per_s: float
    num_workers: int
    raw_words: str = "through the same operators"
    packed_words: str = "read"

    @property
    def times(self) -> float:
        """Return how many times as fast the packed data are."""
        return self.packed_per_s / self.raw_per_s

    @property
    def pays_after_epochs(self) -> float | None:
        """Return after how many epochs the time of packing, one epoch over the raw source, is won back; None for never."""
        return None if self.times <= 1 else 1 / (1 - 1 / self.times)


def measured(dataset: Any, manifest: Manifest, num_workers: int, on_error: Policy, resized: tuple[Any, int | None] | None = None) -> Gain:
    """Read both for a few seconds.

    Args:
        dataset: what was packed.
        manifest: of the packed data.
        num_workers: threads for each.
        on_error: the policy for each.
        resized: where images were encoded again, the source without that, and the size of the shorter side or None: of both, decoded
            pixels are taken, as a training loop needs them; it would encode nothing.

    Raises:
        PenstockError: the packed data cannot be read.
    """
    packed, words = read_packed(manifest.path), {}
    if resized is not None:
        source, size = resized
        dataset, packed = source.map(image.decode("data")), packed.map(image.decode("data"))
        if size is not None:
            dataset = dataset.map(image.resize("data", size))
        words = {"raw_words": "decoded" if size is None else "decoded and resized", "packed_words": "read and decoded"}
    return Gain(
        raw_per_s=_rate(dataset, len(manifest), num_workers, on_error),
        packed_per_s=_rate(packed, len(manifest), num_workers, on_error),
        num_workers=num_workers,
        **words,
    )


def _rate(dataset: Any, num_elements: int, num_workers: int, on_error: Policy) -> float:
    """Return the samples per second of a feed at work, behind a first pass, or two seconds of it, that is not measured.

    Measured is a whole pass of two seconds at most, and so many passes over a small dataset as make half a second.
    """
    with dataset.repeat().feed(num_workers=num_workers, on_error=on_error) as feed:
        elements = iter(feed)
        _count(elements, num_elements, 0.0)
        begun_s = time.perf_counter()
        count = _count(elements, num_elements, _LEAST_SECONDS)
        return count / max(1e-9, time.perf_counter() - begun_s)


def _count(elements: Iterator[Any], least: int, least_s: float) -> int:
    """Take so many elements at least, for so long at least, but not for more than two seconds, and return how many they were."""
    begun_s, count = time.perf_counter(), 0
    for _ in elements:
        count += 1
        taken_s = time.perf_counter() - begun_s
        if taken_s >= _SECONDS or (count >= least and taken_s >= least_s):
            break
    return count
