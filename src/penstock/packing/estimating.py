"""What `pack` would write, by a look at some elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from penstock._contracts.policy import Policy
from penstock.dataset import Dataset
from penstock.packing.disk import Disk
from penstock.packing.options import options_of, workers_of
from penstock.packing.packer import Packing
from penstock.packing.positions import positioned
from penstock.packing.ticks import Watching

__all__ = ["Estimate", "estimate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What packing would give, by a sample of the elements.

    Attributes:
        count: elements; exact where nothing is filtered or skipped.
        size: bytes of all files.
        num_shards: files.
        seconds: how long it would take, by the time of the sample and as many CPUs as there are workers. With fewer shards than workers
            Python code takes longer: a process has several threads then, of which one at a time runs it.
        num_sampled: elements that were looked at.
        fields: how they would be written, a line each.
    """

    count: int
    size: int
    num_shards: int
    seconds: float
    num_sampled: int
    fields: tuple[str, ...]


def estimate(dataset: Any, *, num_workers: int | Literal["auto"] = "auto", on_error: Policy | None = None, **options: Any) -> Estimate:
    """Say what `pack` with these arguments would write, and how long it would take. Makes at most 64 elements, writes nothing.

    Compressed TFRecord files are decompressed whole, as their records must be counted; of other streams all elements are read, into a
    temporary file.

    Raises:
        PlanError, SpecError, SourceError, MissingExtra, BaseException: as `pack`.
    """
    chosen, count = options_of(options), workers_of(num_workers)
    ready = positioned(
        dataset, None, on_error=on_error, variants=chosen.variants, num_threads=count, watching=Watching(), disk=Disk(), check=_nothing
    )
    with ready as found:
        packing = Packing(found.dataset, chosen, on_error)
        sample = packing.sample()
    num_shards = packing.options.count_of(sample.total_bytes, packing.split.num_positions)
    return Estimate(
        count=sample.total_count,
        size=sample.total_bytes,
        num_shards=num_shards,
        seconds=sample.element_s * sample.total_count / count,
        num_sampled=sample.num_sampled,
        fields=tuple(column.words() for column in sample.columns),
    )


def _nothing(dataset: Dataset) -> None:
    """Check nothing: for what is only estimated."""
