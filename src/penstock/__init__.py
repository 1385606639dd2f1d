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
from penstock._contracts.options import Jax, Options, Processes, Ray, Threads, Torch
from penstock._contracts.policy import Raise, Replace, Retry, Skip
from penstock._contracts.storage import RemoteFiles, StorageOptions
from penstock._contracts.version import VERSION
from penstock.dataset.builder import Dataset
from penstock.dataset.from_torch import from_dataloader
from penstock.dataset.opening import (
    from_arrays,
    from_generator,
    from_source,
    from_stream,
    read_coco,
    read_csv,
    read_files,
    read_images,
    read_jsonl,
    read_list,
    read_megatron,
    read_pairs,
    read_parquet,
    read_quarantine,
    read_tar,
    read_text,
    read_tfrecord,
    read_tokens,
)

if TYPE_CHECKING:
    from penstock import image, observe, queues, text
    from penstock.enqueuer import GeneratorEnqueuer, SampleBatches
    from penstock.feed import Feed
    from penstock.formats.example import decode_example, decode_sequence_example, encode_example, encode_sequence_example, parse_example
    from penstock.formats.features import FixedLenFeature, FixedLenSequenceFeature, VarLenFeature
    from penstock.jobs import parallel_jobs
    from penstock.observe import finalize_step
    from penstock.packing import pack, read_packed

__version__ = VERSION

__all__ = [
    "ArraySpec",
    "Dataset",
    "Feed",
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "GeneratorEnqueuer",
    "Jax",
    "Options",
    "Processes",
    "Raise",
    "Ray",
    "RemoteFiles",
    "Replace",
    "Retry",
    "SampleBatches",
    "Skip",
    "StorageOptions",
    "Threads",
    "Torch",
    "VarLenFeature",
    "__version__",
    "decode_example",
    "decode_sequence_example",
    "encode_example",
    "encode_sequence_example",
    "errors",
    "finalize_step",
    "from_arrays",
    "from_dataloader",
    "from_generator",
    "from_source",
    "from_stream",
    "image",
    "observe",
    "pack",
    "parallel_jobs",
    "parse_example",
    "queues",
    "read_coco",
    "read_csv",
    "read_files",
    "read_images",
    "read_jsonl",
    "read_list",
    "read_megatron",
    "read_packed",
    "read_pairs",
    "read_parquet",
    "read_quarantine",
    "read_tar",
    "read_text",
    "read_tfrecord",
    "read_tokens",
    "text",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # else checkers would take any name for one of this module

    def __getattr__(name: str) -> Any:
        """Import parts of Penstock when they are first used: programs that only describe data start 40 ms sooner."""
        import importlib

        if name in ("image", "observe", "queues", "text"):
            return importlib.import_module(f"penstock.{name}")
        if name == "Feed":
            return importlib.import_module("penstock.feed").Feed
        if name in ("pack", "read_packed"):
            return getattr(importlib.import_module("penstock.packing"), name)
        if name == "finalize_step":
            return importlib.import_module("penstock.observe").finalize_step
        if name == "parallel_jobs":
            return importlib.import_module("penstock.jobs").parallel_jobs
        if name in ("GeneratorEnqueuer", "SampleBatches"):
            return getattr(importlib.import_module("penstock.enqueuer"), name)
        if name in ("FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature"):
            return getattr(importlib.import_module("penstock.formats.features"), name)
        if name in ("decode_example", "encode_example", "parse_example"):
            return getattr(importlib.import_module("penstock.formats.example"), name)
        if name in ("decode_sequence_example", "encode_sequence_example"):
            return getattr(importlib.import_module("penstock.formats.example"), name)
        hint = importlib.import_module("penstock.dataset.foreign").attribute_hint(name)
        raise AttributeError(f"module 'penstock' has no attribute {name!r}{hint}", name=name, obj=importlib.import_module("penstock"))
