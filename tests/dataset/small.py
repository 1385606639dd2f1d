"""Small datasets."""

from __future__ import annotations

from typing import Any

import numpy as np

import penstock as ps


def numbers(count: int) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def double(x: Any) -> Any:
    return x * 2


def noisy(x: int, rng: np.random.Generator) -> int:
    return x + int(rng.integers(0, 1000)) * 1000


def endless() -> ps.Dataset:
    return numbers(3).repeat()


def generated() -> ps.Dataset:
    return ps.from_generator(lambda: iter(range(4)))


async def fetch(x: int) -> int:
    return x
