"""Datasets and their programs, for the tests of lowering and of what it makes."""

from __future__ import annotations

from typing import Any

import numpy as np

import penstock as ps
from penstock._engine.lowering import lower
from penstock._engine.program import Program


def program(dataset: ps.Dataset) -> Program:
    return lower(dataset._root)


def numbers(count: int = 12) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def pictures() -> ps.Dataset:
    return ps.from_arrays({"image": np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), np.uint8), "label": np.arange(12)})


def double(x: Any) -> Any:
    return x * 2


def steps(ds: ps.Dataset, between: bool = False) -> ps.Dataset:
    """Add three transforms, with a plain function between them that keeps them from being fused."""
    for number, operator in enumerate(
        (ps.image.random_crop("image", 6, padding=1), ps.image.random_flip("image"), ps.image.normalize("image", (0.5,) * 3, (0.2,) * 3))
    ):
        ds = ds.map(operator, seed=number)
        if between:
            ds = ds.map(dict)
    return ds
