"""`map` with an `async def` function is `map` with the function that it would be without `async`: same elements, order, errors, states."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from laws.epochs import OPTIONS, rest
from laws.plans import double, keep_two_thirds, noisy, plain

import penstock as ps
from penstock.errors import StopRaised


@pytest.fixture(params=OPTIONS, ids=str)
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    chosen: dict[str, Any] = request.param
    return chosen


async def async_double(x: Any) -> Any:
    """Later elements of a handful are ready first."""
    for _ in range(7 - int(np.sum(x)) % 8):
        await asyncio.sleep(0)
    return x * 2


async def async_noisy(x: Any, rng: np.random.Generator) -> Any:
    await asyncio.sleep(0)
    first = int(rng.integers(0, 1000)) * 1000
    await asyncio.sleep(0)
    assert rng.random() >= 0  # its own generator: the draws of others do not come between
    return x + first


class Doubler:
    async def __call__(self, x: Any) -> Any:
        return await async_double(x)

    async def method(self, x: Any) -> Any:
        return await async_double(x)


async def add(number: int, x: int) -> int:
    return x + number


def numbers(count: int) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def failing(feed: ps.Feed, got: list[Any], kind: type[BaseException]) -> Any:
    """Read into `got` until the feed raises an error of this kind; return it."""

    with pytest.raises(kind) as caught:
        got.extend(map(plain, feed))  # keeps what came before the error
    return caught.value


Build = Callable[[Any, Any], ps.Dataset]

SHAPES: dict[str, Build] = {
    "alone": lambda f, g: numbers(23).map(f),
    "below a batch": lambda f, g: numbers(23).map(f, concurrency=5).batch(4),
    "above a batch": lambda f, g: numbers(23).batch(4).map(f, concurrency=3),
    "above and below": lambda f, g: numbers(23).map(f).batch(4).map(f).unbatch(),
    "behind a filter": lambda f, g: numbers(23).filter(keep_two_thirds).map(f, concurrency=5).batch(3),
    "behind a take of a filter": lambda f, g: numbers(23).filter(keep_two_thirds).take(9).map(f, concurrency=5).repeat(2),
    "behind flat_map": lambda f, g: numbers(23).flat_map(lambda x: [x] * (x % 3)).map(f, concurrency=4).batch(5),
    "before sync maps": lambda f, g: numbers(23).map(f).map(double).map(double, concurrency=2).batch(4).map(double),
    "two": lambda f, g: numbers(23).map(f, concurrency=4).map(f, concurrency=4).batch(4),
    "with rng": lambda f, g: numbers(23).map(g, seed=3).repeat(3).batch(4),
    "in an order": lambda f, g: numbers(23).map(f).shuffle(seed=1).shard(2, 1).enumerate().repeat(3),
    "of a generator": lambda f, g: ps.from_generator(lambda: iter(range(23)), fast_forward=True).map(f, concurrency=4).repeat(2),
    "batches of batches": lambda f, g: numbers(24).map(f).batch(2).batch(3),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_it_delivers_what_the_sync_map_delivers_and_resumes_at_every_element(shape: str, way: dict[str, Any]) -> None:
    expected = [plain(item) for item in SHAPES[shape](double, noisy).feed(executor="inline")]
    dataset = SHAPES[shape](async_double, async_noisy)
    states = []
    with dataset.feed(**way) as feed:
        states.append(feed.state_dict())
        got = []
        for item in feed:
            got.append(plain(item))
            states.append(feed.state_dict())
    assert got == expected
    for place in range(len(states)):
        other = OPTIONS[place % 3]
        with dataset.feed(**other) as feed:
            feed.load_state_dict(json.loads(json.dumps(states[place])))
            assert [plain(item) for item in rest(feed)] == expected[place:]


@pytest.mark.parametrize(
    "fn",
    [Doubler(), Doubler().method, functools.partial(async_double), functools.partial(Doubler())],
    ids=["object", "method", "partial", "partial of an object"],
)
def test_objects_methods_and_partials_are_awaited_too(fn: Any, way: dict[str, Any]) -> None:
    assert list(numbers(9).map(fn).feed(**way)) == list(range(0, 18, 2))
    assert list(numbers(3).map(functools.partial(add, 10)).feed(**way)) == [10, 11, 12]


@pytest.mark.parametrize("shape", ["alone", "below a batch", "above a batch", "behind a filter", "behind flat_map", "of a generator"])
@pytest.mark.parametrize("bad", [0, 7, 21])
def test_everything_before_the_first_failure_is_delivered_and_nothing_behind(shape: str, bad: int, way: dict[str, Any]) -> None:
    def fails(x: Any) -> Any:
        if np.any(x >= bad):
            raise LookupError(f"no {x}")
        return x * 2

    async def async_fails(x: Any) -> Any:
        await async_double(x)
        return fails(x)

    def run(fn: Any) -> tuple[list[Any], str, list[str]]:
        got: list[Any] = []
        with SHAPES[shape](fn, None).feed(**(way if fn is async_fails else {"executor": "inline"})) as feed:
            caught = failing(feed, got, LookupError)
        return got, str(caught), [note for note in caught.__notes__ if "also failed" not in note]

    delivered: list[Any] = []
    notes: list[Any] = []
    for fn in (fails, async_fails):
        items, words, noted = run(fn)
        delivered.append((items, words))
        notes.append([note.replace("async_fails", "fails").partition("element")[2] for note in noted])
        assert noted[0].startswith("penstock: stage '")
    assert delivered[0] == delivered[1]
    assert notes[0] == notes[1]


@pytest.mark.parametrize(
    "error", [StopIteration(5), StopAsyncIteration(5), SystemExit(5), GeneratorExit(5), asyncio.CancelledError(5)], ids=repr
)
def test_what_would_end_a_loop_a_task_or_the_program_is_an_error(error: BaseException, way: dict[str, Any]) -> None:
    async def leave(x: int) -> int:
        await asyncio.sleep(0)
        if x == 2:
            raise error
        return x

    got: list[Any] = []
    with numbers(5).map(leave, name="leave").feed(**way) as feed:
        caught = failing(feed, got, StopRaised)
    assert got == [0, 1]
    assert caught.what == f"the function of stage 'leave' raised {type(error).__name__}(5)"
    assert "element epoch 0 index 2" in caught.where
    assert caught.__cause__ is error
    with pytest.raises(StopRaised):
        numbers(5).map(leave)[2]


def test_what_stands_behind_a_failure_in_its_block_is_cancelled_and_has_ended_when_the_error_arrives(way: dict[str, Any]) -> None:
    ended: list[int] = []

    async def fn(x: int) -> int:
        try:
            if x == 3:
                await asyncio.sleep(0)
                raise LookupError(x)
            if x > 3:
                await asyncio.Event().wait()  # never
            return x
        finally:
            await asyncio.sleep(0)
            ended.append(x)

    got: list[Any] = []
    with numbers(40).map(fn, concurrency=40).batch(1).feed(**way) as feed:
        failing(feed, got, LookupError)
    assert got == [[0], [1], [2]]
    assert len(set(ended)) == len(ended)
    assert {0, 1, 2, 3} <= set(ended)


class Unreadable:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 2:
            raise OSError(f"row {index}")
        return index


def test_inside_a_batch_of_batches_what_cannot_be_read_is_a_failure_of_the_read(way: dict[str, Any]) -> None:
    async def later(value: int) -> int:
        return value

    ds = ps.from_source(Unreadable()).map(later).batch(1).batch(1)
    with ds.feed(**way) as feed, pytest.raises(OSError, match="row 2") as caught:
        for _ in feed:
            pass
    assert "stage 'read'" in caught.value.__notes__[0]
    with ds.feed(on_error=ps.Replace(), **way) as feed:
        assert [batch.tolist() for batch in feed] == [[[0]], [[1]], [[3]], [[3]]]
