"""Small datasets to try things on: a few of every kind, and random pipelines."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock._contracts.source import StreamSource
from penstock._plan import node as plan
from penstock.dataset import Dataset, from_arrays, from_generator, from_source
from penstock.errors import PlanError

__all__ = ["as_dataset", "random_datasets", "small_datasets"]


def as_dataset(given: Any) -> Dataset:
    """Return a dataset as it is, and one over a source of any kind."""
    if isinstance(given, Dataset):
        return given
    if isinstance(given, StreamSource):
        return Dataset(plan.ReadStream(source=given))
    return from_source(given)


def small_datasets() -> dict[str, Dataset]:
    """Return datasets of whole numbers by name: every kind of source, and orders and folds below."""
    return {
        "a list": from_source(list(range(23))),
        "a list behind a filter": from_source(list(range(25))).filter(_two_of_three),
        "a generator": from_generator(_some, fast_forward=True),
        "arrays": from_arrays(np.arange(20)),
        "no element": from_source([]),
        "one element": from_source([7]),
        "a shuffled shard": from_source(list(range(31))).shuffle(seed=5).shard(2, 1),
        "two shuffled passes": from_source(list(range(9))).shuffle(seed=2).repeat(2),
        "a stage with workers of its own": from_source(list(range(19))).map(_same, concurrency=2),
        "a list behind a flat_map": from_source(list(range(12))).flat_map(_copies),
        "a long list": from_source(list(range(400))),
    }


def random_datasets(count: int, seed: int) -> Iterator[Dataset]:
    """Give pipelines of one to seven random operators over random sources, the same for the same seed."""
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        dataset = chance.choice(_SOURCES)(chance.randrange(60))
        for _ in range(chance.randrange(7)):
            try:
                dataset = chance.choice(_STEPS)(dataset, chance.randrange(1, 12))
            except PlanError:  # this operator cannot stand here
                continue
        yield dataset


def _same(x: Any) -> Any:
    return x


def _two_of_three(x: Any) -> bool:
    return int(np.sum(x)) % 3 != 1


def _copies(x: Any) -> list[Any]:
    return [x] * (int(np.sum(x)) % 3)


def _double(x: Any) -> Any:
    return np.asarray(x) * 2


def _noisy(x: Any, rng: np.random.Generator) -> Any:
    return np.asarray(x) + int(rng.integers(0, 1000))


def _some() -> Iterator[int]:
    return iter(range(21))


_SOURCES: tuple[Callable[[int], Dataset], ...] = (
    lambda size: from_source(list(range(size))),
    lambda size: from_arrays(np.arange(size)),
    lambda size: from_generator(lambda: iter(range(size)), fast_forward=True),
)

_STEPS: tuple[Callable[[Dataset, int], Dataset], ...] = (
    lambda ds, number: ds.map(_double),
    lambda ds, number: ds.map(_noisy, seed=number),
    lambda ds, number: ds.map(_double, concurrency=1 + number % 3),
    lambda ds, number: ds.filter(_two_of_three),
    lambda ds, number: ds.flat_map(_copies),
    lambda ds, number: ds.shuffle(seed=number),
    lambda ds, number: ds.shuffle(number, seed=3),
    lambda ds, number: ds.shard(1 + number % 3, 0),
    lambda ds, number: ds.take(5 * number),
    lambda ds, number: ds.skip(number),
    lambda ds, number: ds.repeat(1 + number % 3),
    lambda ds, number: ds.concatenate(ds),
    lambda ds, number: ds.padded_batch(number),
    lambda ds, number: ds.prefetch(number),
)
