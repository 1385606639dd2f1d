"""Measures what packing bought: samples per second of the raw source and of what was packed from it, as a training loop reads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock import image
from penstock._contracts.policy import Policy
from penstock.errors import PlanError, SpecError
from penstock.packing import Manifest, read_packed

__all__ = ["Gain", "measured"]

_SECONDS = 2.0
_LEAST_SECONDS = 0.5
_BATCH_SIZE = 32
_LEAST_BATCHES = 8
"""In a pass. A batch of 32 elements that take 0.4 s each would be a long wait: of a small dataset a batch is an eighth at most."""

_SIDE = 224
_SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Samples per second, both in shuffled batches and with the same number of threads, and what was done to each sample."""

    raw_per_s: float
    packed_per_s: float
    num_workers: int
    batch_size: int = _BATCH_SIZE
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
    """Read both for a few seconds as a training loop would: shuffled, in batches, over and over.

    A shuffle is over all elements where these have positions, else over a buffer of two batches, which is filled before the measurement.

    Args:
        dataset: what was packed.
        manifest: of the packed data.
        num_workers: threads for each.
        on_error: the policy for each.
        resized: where images were encoded again, the source without that, and the size of the shorter side or None. Batches of pixels of
            one size are taken of both, as a training loop needs them: the central square, or without a size the image resized to 224x224.

    Raises:
        PenstockError: the packed data cannot be read.
    """
    batch_size = max(1, min(_BATCH_SIZE, len(manifest) // _LEAST_BATCHES))
    raw, packed, words = dataset, read_packed(manifest.path), {}
    raw_steps: list[Any] = []
    packed_steps: list[Any] = []
    if resized is not None:
        raw, size = resized
        alike = image.resize("data", (_SIDE, _SIDE)) if size is None else image.center_crop("data", size)
        packed_steps = [image.decode("data"), alike]
        raw_steps = packed_steps if size is None else [image.decode("data"), image.resize("data", size), alike]
        words = {
            "raw_words": f"decoded, resized to {_SIDE}x{_SIDE}" if size is None else "decoded, resized and cropped",
            "packed_words": f"read, decoded, resized to {_SIDE}x{_SIDE}" if size is None else "read, decoded and cropped",
        }
    shuffled = [_with(_shuffled(raw, batch_size), raw_steps), _with(_shuffled(packed, batch_size), packed_steps)]

    def rates(batched: Callable[[Any], Any]) -> list[float]:
        return [_rate(batched(one.repeat()), len(manifest), batch_size, num_workers, on_error) for one in shuffled]

    try:
        raw_per_s, packed_per_s = rates(lambda one: one.batch(batch_size))
    except SpecError:  # lengths vary
        raw_per_s, packed_per_s = rates(lambda one: one.padded_batch(batch_size))
    return Gain(raw_per_s=raw_per_s, packed_per_s=packed_per_s, num_workers=num_workers, batch_size=batch_size, **words)


def _shuffled(dataset: Any, batch_size: int) -> Any:
    try:
        return dataset.shuffle(seed=_SEED)
    except PlanError:  # no positions
        return dataset.shuffle(2 * batch_size, seed=_SEED)


def _with(dataset: Any, steps: list[Any]) -> Any:
    for step in steps:
        dataset = dataset.map(step)
    return dataset


def _rate(batches: Any, num_elements: int, batch_size: int, num_workers: int, on_error: Policy) -> float:
    """Return the samples per second of a feed at work, behind a first pass, or two seconds of it, that is not measured.

    Measured is a whole pass of two seconds at most, and so many passes over a small dataset as make half a second; but one batch at least.
    """
    with batches.feed(num_workers=num_workers, on_error=on_error) as feed:
        taken = iter(feed)
        _count(taken, num_elements // batch_size, 0.0)
        begun_s = time.perf_counter()
        count = _count(taken, num_elements // batch_size, _LEAST_SECONDS)
        return count * batch_size / max(1e-9, time.perf_counter() - begun_s)


def _count(batches: Iterator[Any], least: int, least_s: float) -> int:
    """Take so many batches at least, for so long at least, but not for more than two seconds, and return how many they were."""
    begun_s, count = time.perf_counter(), 0
    for _ in batches:
        count += 1
        taken_s = time.perf_counter() - begun_s
        if taken_s >= _SECONDS or (count >= least and taken_s >= least_s):
            break
    return count
