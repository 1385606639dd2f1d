"""What stands behind a full take between two repeats is never delivered: it is not waited for, and may fail in any way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from core import core
from laws.epochs import rest
from laws.plans import Broken, plain

import penstock as ps

OPTIONS: list[dict[str, Any]] = [{"executor": "inline"}, {"executor": "threads", "num_workers": 3, "memory_bytes": 1}]


def R(count: int) -> ps.Dataset:  # noqa: N802
    return ps.from_source(range(count))


def failing(result: Callable[[int], Any] = lambda value: value) -> Callable[[int], Any]:
    def check(value: int) -> Any:
        if value == 5:
            raise ValueError("cannot use 5")
        return result(value)

    return check


def always(value: Any) -> bool:
    return True


def itself(value: Any) -> Any:
    return value


def generated() -> ps.Dataset:
    def generate() -> Iterator[int]:
        yield from range(5)
        raise OSError("row 5")

    return ps.from_generator(generate, fast_forward=True)


SOURCES: dict[str, Callable[[], ps.Dataset]] = {
    "a generator": generated,
    "a generator below a map": lambda: generated().map(itself, concurrency=2),
    "a generator below a filter": lambda: generated().filter(always),
    "a source below a filter": lambda: ps.from_source(Broken(list(range(6)), frozenset([5]))).filter(always),
    "a map below a filter": lambda: R(6).map(failing()).filter(always),
    "a map with workers of its own": lambda: R(6).map(failing(), concurrency=2).filter(always),
    "a map": lambda: R(6).filter(always).map(failing()),
    "a filter": lambda: R(6).filter(failing(always)),
    "a flat_map": lambda: R(6).flat_map(failing(lambda value: [value])),
    "a filter in an earlier stage": lambda: R(6).filter(failing(always)).skip(0).filter(always),
    "the last batch": lambda: R(6).filter(always).map(failing()).skip(0).batch(4).filter(always).unbatch(),
    "the last batch of each pass": lambda: R(6).filter(always).map(failing()).skip(0).batch(4).repeat(2).filter(always).unbatch(),
    "a filter in a later stage": lambda: R(6).filter(always).skip(0).filter(failing(always)),
}
TAKES: dict[str, tuple[Callable[[ps.Dataset], ps.Dataset], list[Any]]] = {
    "no repeat below": (lambda ds: ds.take(3).repeat().take(8), [0, 1, 2, 0, 1, 2, 0, 1]),
    "two passes below": (lambda ds: ds.repeat(2).take(3).repeat(2), [0, 1, 2] * 2),
    "an endless repeat below": (lambda ds: ds.repeat().take(3).repeat(2), [0, 1, 2] * 2),
    "an endless repeat of two passes below": (lambda ds: ds.repeat(2).repeat().take(3).repeat(2), [0, 1, 2] * 2),
    "two passes of an endless repeat below": (lambda ds: ds.repeat().repeat(2).take(3).repeat(2), [0, 1, 2] * 2),
    "a filter between": (lambda ds: ds.repeat(2).filter(always).take(3).repeat(2), [0, 1, 2] * 2),
    "a filter above": (lambda ds: ds.repeat(2).take(3).filter(always).repeat(2), [0, 1, 2] * 2),
    "a batch between": (lambda ds: ds.repeat(2).batch(2).take(1).repeat(2), [[0, 1]] * 2),
    "a batch and a filter between": (lambda ds: ds.repeat(2).batch(2).filter(always).take(1).repeat(2), [[0, 1]] * 2),
    "a buffer between": (lambda ds: ds.repeat(2).shuffle(1).take(3).repeat(2), [0, 1, 2] * 2),
    "a skip below": (lambda ds: ds.skip(1).repeat(2).take(2).repeat(2), [1, 2] * 2),
    "a full take above": (lambda ds: ds.repeat(2).take(3).repeat(2).take(5), [0, 1, 2, 0, 1]),
    "two takes": (lambda ds: ds.repeat(2).take(2).repeat(2).take(3).repeat(2), [0, 1, 0] * 2),
    "nothing is taken": (lambda ds: ds.repeat(2).take(0).repeat(2), []),
}


@pytest.mark.filterwarnings("ignore:this dataset gave no elements")
@pytest.mark.parametrize("options", core(OPTIONS), ids=str)
@pytest.mark.parametrize("source", SOURCES)
def test_no_error_behind_a_full_take_is_raised(source: str, options: dict[str, Any]) -> None:
    for name, (cut, wanted) in TAKES.items():
        with cut(SOURCES[source]()).feed(**options) as feed:
            assert [plain(item) for item in feed] == wanted, name


@pytest.mark.filterwarnings("ignore:this dataset gave no elements")
@pytest.mark.parametrize("source", core(["a generator", "a filter in an earlier stage", "the last batch of each pass"]))
def test_a_run_saved_beside_such_an_error_goes_on(source: str) -> None:
    for name, (cut, wanted) in TAKES.items():
        ds = cut(SOURCES[source]())
        for stop in range(len(wanted) + 1):
            with ds.feed(executor="inline") as feed:
                found = [plain(next(feed)) for _ in range(stop)]
                state = json.loads(json.dumps(feed.state_dict()))
            with ds.feed(executor="threads", num_workers=2) as feed:
                feed.load_state_dict(state)
                assert found + [plain(item) for item in rest(feed)] == wanted, (name, stop)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("source", SOURCES)
def test_an_error_before_the_take_is_full_is_raised(source: str, options: dict[str, Any]) -> None:
    found: list[Any] = []
    ds = SOURCES[source]().repeat(2).filter(always).take(6).repeat(2)
    with pytest.raises((ValueError, OSError), match=r"cannot use 5|row 5"), ds.feed(**options) as feed:
        found.extend(feed)
    assert found in ([0, 1, 2, 3, 4], [0, 1, 2, 3])  # a batch fails as a whole


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_pass_above_such_a_take_begins_with_its_own_epoch(options: dict[str, Any]) -> None:
    def order(epoch: int) -> list[int]:
        with R(6).shuffle(seed=1).feed(executor="inline") as feed:
            feed.set_epoch(epoch)
            return [int(value) for value in feed]

    wanted = [*order(0)[:3], *order(2)[:3], *order(4)[:3]]
    for cut in (lambda ds: ds.repeat(2).take(3).repeat(3), lambda ds: ds.repeat(2).filter(always).take(3).repeat(3)):
        with cut(R(6).shuffle(seed=1).filter(always)).feed(**options) as feed:
            assert list(feed) == wanted


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_end_of_a_generator_that_fails_is_raised_wherever_the_take_stands(options: dict[str, Any]) -> None:
    def generate() -> Iterator[int]:
        try:
            yield from range(10**6)
        finally:
            raise OSError("cannot end")

    for name, (cut, _) in TAKES.items():
        ds = cut(ps.from_generator(generate, fast_forward=True))
        with pytest.raises(OSError, match="cannot end"), ds.feed(**options) as feed:
            assert len(list(feed)) < 0, name
