"""Penstock feeds training loops: exact order, exact resume, batches written straight into recycled memory.

import penstock as ps

ds = ps.read_list("train.txt").shuffle(seed=7).map(decode).batch(128, drop_remainder=True).repeat(10)
with ds.feed() as feed:
for batch in feed:
train(batch)
"""

from __future__ import annotations

from typing import Any

from penstock import errors
from penstock._contracts.element import ArraySpec
from penstock._contracts.options import Options
from penstock._contracts.version import VERSION as __version__
from penstock.dataset import Dataset, from_arrays, from_generator, from_source, read_files, read_images, read_list
from penstock.feed import Feed

__all__ = [
    "ArraySpec",
    "Dataset",
    "Feed",
    "Options",
    "__version__",
    "errors",
    "from_arrays",
    "from_generator",
    "from_source",
    "image",
    "read_files",
    "read_images",
    "read_list",
]


def __getattr__(name: str) -> Any:
    """Import `penstock.image` when it is first used: programs without images start 12 ms sooner."""
    if name == "image":
        import importlib

        return importlib.import_module("penstock.image")
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
