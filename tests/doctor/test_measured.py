"""A measured program gives what the plan gives: the same batches, states and errors, for all kinds of operators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock._contracts.element import flatten
from penstock.doctor import Profiler

Made = Callable[[], "ps.Dataset"]


def double(value: Any) -> Any:
    return value * 2


def noisy(value: Any, *, rng: np.random.Generator) -> Any:
    return float(value) + rng.random()


async def fetch(value: Any) -> Any:
    return value + 1


def pixels(number: int) -> dict[str, Any]:
    return {"image": np.full((8, 8, 3), number, np.uint8), "label": number}


def numbers() -> Iterator[int]:
    yield from range(40)


class Stateful:
    """A stream that can say where it is."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 40:
            self.at += 1
            yield self.at

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def source(count: int = 40) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def crops() -> ps.Dataset:
    images = source().map(pixels).map(ps.image.random_crop("image", 4), seed=3).map(ps.image.random_flip("image"), seed=4)
    return images.map(ps.image.normalize("image", (0.5,) * 3, (0.5,) * 3)).batch(8)


PLANS: dict[str, Made] = {
    "map": lambda: source().shuffle(seed=1).map(double).map(noisy, seed=2).batch(8),
    "columns": lambda: ps.from_arrays({"x": np.arange(40), "y": np.ones((40, 3))}).shuffle(seed=1).batch(8),
    "unbatched": lambda: source().map(double, output_spec=ps.ArraySpec((), np.int64)),
    "async": lambda: source().map(fetch, concurrency=4).map(double).batch(8),
    "filter": lambda: source().filter(lambda value: value % 3).flat_map(lambda value: (value, -value)).batch(5),
    "unbatch": lambda: source().batch(4).filter(lambda batch: batch[0] % 8 == 0).unbatch().batch(3),
    "above": lambda: source().batch(8).map(double).map(noisy_batch, seed=5),
    "batches": lambda: source().map(double).batch(4).batch(2),
    "window": lambda: source().map(double).window(4, shift=2),
    "zip": lambda: source().map(double).zip(source().map(double)).batch(8),
    "concatenate": lambda: source().map(double).concatenate(source(7)).batch(8),
    "mix": lambda: source().mix(source(9).map(double), stop="all_exhausted").batch(4),
    "mix of lists": lambda: source().mix(source(50), weights=[0.3, 0.7]).shuffle(seed=1).batch(4),
    "interleave": lambda: source(4).interleave(lambda value: source(value + 3).map(double), cycle_length=2).batch(4),
    "cache": lambda: source().map(double).cache().shuffle(seed=2).batch(8),
    "generator": lambda: ps.from_generator(numbers, fast_forward=True).map(double).batch(8),
    "stream": lambda: ps.from_stream(Stateful()).map(double).batch(8),
    "buffer": lambda: source().filter(lambda value: value > 2).shuffle(6, seed=3).batch(4),
    "bucket": lambda: source().map(lambda value: np.arange(value + 1)).bucket_by_length(len, [10, 20], [4, 3, 2]),
    "pack": lambda: source().map(lambda value: np.arange(value % 7 + 1)).pack_sequences(16),
    "resample": lambda: source(200).rejection_resample(lambda value: int(value == 0), [0.5, 0.5], seed=1).batch(2),
    "images": crops,
}


def noisy_batch(batch: Any, *, rng: np.random.Generator) -> Any:
    return batch + rng.random()


@contextlib.contextmanager
def profiled() -> Iterator[Profiler]:
    profiler = Profiler()
    profiler.start()
    try:
        yield profiler
    finally:
        profiler.stop()


def run(make: Made, num_workers: int) -> tuple[list[list[Any]], list[dict[str, Any]]]:
    """Return the arrays of the first half of an epoch, of the rest after a resume, and the states between and behind."""
    ds = make()
    with ds.feed(executor="threads", num_workers=num_workers) as feed:
        first = list(islice(feed, 3))
        middle = feed.state_dict()
    with ds.feed(executor="threads", num_workers=num_workers) as feed:
        feed.load_state_dict(middle)
        rest = list(feed)
        end = feed.state_dict()
    for state in (middle, end):  # a stream says where it is once per block, and a block is as long as reading takes
        if state["position"].pop("stream", None) is not None:
            del state["crc32"]
    return [[np.asarray(leaf).tolist() for leaf in flatten(item)] for item in (*first, *rest)], [middle, end]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("name", PLANS)
def test_batches_and_states_are_those_of_the_plan(name: str, num_workers: int) -> None:
    expected = run(PLANS[name], num_workers)
    with profiled() as profiler:
        found = run(PLANS[name], num_workers)
    assert found == expected
    (group,) = profiler.groups
    called = [probe.kind for probe in group.probes if profiler.recorder.total(probe).num_calls]
    assert "read" in called
    assert "penstock" in called


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_is_the_same_and_so_is_what_a_policy_leaves_out(num_workers: int) -> None:
    def fail(value: int) -> int:
        if value == 21:
            raise ValueError(f"cannot use {value}")
        return value

    def outcome(**options: Any) -> tuple[list[Any], str, list[str]]:
        seen: list[Any] = []
        try:
            with source().map(double).map(fail if not options else odd).batch(4).feed(num_workers=num_workers, **options) as feed:
                seen.extend(batch.tolist() for batch in feed)
        except ValueError as error:
            return seen, str(error), error.__notes__
        return seen, "", []

    def odd(value: int) -> int:
        if value % 8 == 4:
            raise ValueError(f"cannot use {value}")
        return value

    expected = outcome(on_error=ps.Skip(limit=20))
    with profiled():
        assert outcome(on_error=ps.Skip(limit=20)) == expected
    assert sum(map(len, expected[0])) == 30


def test_rows_name_functions_by_file_and_line() -> None:
    with profiled() as profiler:
        list(source().map(double).batch(8).feed())
        list(ps.from_generator(numbers).map(double, output_spec=ps.ArraySpec((), np.int64)).feed())
    found = {probe.name: probe.where for group in profiler.groups for probe in group.probes}
    line = double.__code__.co_firstlineno
    assert found["double"] == f"{__file__}:{line}"
    assert found["from_generator"] == f"{__file__}:{numbers.__code__.co_firstlineno}"
    assert found["penstock itself"] == ""
