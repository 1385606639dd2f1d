"""Functions that fail inside the operators that hold, mix, pack, cache or await elements: FAULTS A1, A4, A5, A10 there, in both orders.

Every case fails at one element, is saved, mended and resumed: what came before the error and what comes after it are the whole.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from faults.ways import UNORDERED, WAYS, every_unordered_way, notes
from sources.streams import Numbers

import penstock as ps

pytestmark = pytest.mark.slow  # together with its kin two minutes; `make check` runs it

SIZE = 120


class Bad(Exception):
    """A user's own error."""


class Flaw:
    """Raises for one element as long as it is broken."""

    def __init__(self, place: int, raises: Callable[[], BaseException]) -> None:
        self.place, self.raises, self.broken = place, raises, True

    def __call__(self, x: Any) -> Any:
        if x == self.place and self.broken:
            raise self.raises()
        return x


def small(x: int) -> int:
    return x % 5


class Case(NamedTuple):
    """A pipeline, the stage that fails, and the elements that stand in one item of it."""

    make: Callable[[Flaw, Path], ps.Dataset]
    stage: str
    parts: Callable[[Any], list[Any]]
    unordered: bool = True


def source() -> ps.Dataset:
    return ps.from_source(range(SIZE))


def tokens(x: int) -> Any:
    return np.full(small(x) + 1, x, np.int32)


def awaiting(flaw: Flaw) -> Callable[[int], Any]:
    async def fetch(x: int) -> int:
        await asyncio.sleep(0)
        return int(flaw(x))

    return fetch


def members(flaw: Flaw) -> ps.Dataset:
    return ps.from_source(range(0, SIZE, 20)).interleave(lambda k: ps.from_source(range(k, k + 20)).map(flaw, name="bad"), 3, 2)


def with_length(flaw: Flaw) -> Callable[[int], int]:
    return lambda x: small(flaw(x))


def one(item: Any) -> list[Any]:
    return [int(item)]


def many(item: Any) -> list[Any]:
    return [int(x) for x in item]


def segments(item: dict[str, Any]) -> list[Any]:
    """Return what each sequence of a packed row was, by its tokens."""
    ids = item["segment_ids"]
    return [tuple(item["tokens"][ids == number].tolist()) for number in range(1, int(ids.max()) + 1)]


def rows_of(item: dict[str, Any]) -> list[Any]:
    splits = item["row_splits"]
    return [tuple(item["values"][begin:end].tolist()) for begin, end in pairwise(splits)]


CASES = {
    "mix": Case(lambda f, _: source().map(f, name="bad").mix(ps.from_source(range(1000, 1400)), weights=[2, 1]), "bad", one),
    "mix that starts over": Case(
        lambda f, _: source().mix(ps.from_source(range(1000, 1050)), stop="all_exhausted").map(f, name="bad"), "bad", one
    ),
    "interleave": Case(lambda f, _: members(f), "bad", one),
    "bucket_by_length": Case(lambda f, _: source().bucket_by_length(with_length(f), [2, 4], [3, 2, 1], name="bad"), "bad", many),
    "pack_sequences": Case(lambda f, _: source().map(f, name="bad").map(tokens).pack_sequences(8, num_bins=3), "bad", segments),
    "pack and split": Case(
        lambda f, _: source().map(f, name="bad").map(tokens).pack_sequences(8, split=True), "bad", segments, unordered=False
    ),
    "window": Case(lambda f, _: source().map(f, name="bad").window(4, 4), "bad", many, unordered=False),
    "window behind a filter": Case(
        lambda f, _: source().filter(lambda x: x % 7).map(f, name="bad").window(3, 2), "bad", many, unordered=False
    ),
    "cache": Case(lambda f, _: source().map(f, name="bad").cache().repeat(2), "bad", one),
    "cache of a few bytes": Case(lambda f, _: source().map(f, name="bad").cache(max_bytes=300).repeat(2), "bad", one),
    "cache in a folder": Case(lambda f, folder: source().map(f, name="bad").cache(folder / "cache", version="1").repeat(2), "bad", one),
    "ragged_batch": Case(lambda f, _: source().map(f, name="bad").map(tokens).ragged_batch(6), "bad", rows_of),
    "buffer of a stream": Case(lambda f, _: ps.from_stream(Numbers(SIZE)).map(f, name="bad").shuffle(16, seed=3), "bad", one),
    "rejection_resample": Case(
        lambda f, _: source().rejection_resample(lambda x: int(f(x)) % 2, [1, 2], [1, 1], name="bad"), "bad", one, unordered=False
    ),
    "async map": Case(lambda f, _: source().map(awaiting(f), name="bad", concurrency=8), "bad", one),
    "async map behind a filter": Case(lambda f, _: source().filter(lambda x: x % 7).map(awaiting(f), name="bad").batch(4), "bad", many),
}
EVERY_CASE = pytest.mark.parametrize("case", CASES)
PLACES = [1, 45, 118]


def flat(case: Case, items: list[Any]) -> Counter[Any]:
    return Counter(part for item in items for part in case.parts(item))


def taken(feed: ps.Feed) -> tuple[list[Any], BaseException | None]:
    """Take the items as they are, and the error that ended them."""
    items: list[Any] = []
    with feed:
        try:
            items.extend(feed)
        except BaseException as error:
            return items, error
    return items, None


def same(case: Case, a: list[Any], b: list[Any]) -> bool:
    return [case.parts(item) for item in a] == [case.parts(item) for item in b]


def check_failure(case: Case, flaw: Flaw, folder: Path, way: dict[str, Any]) -> BaseException:
    """Run into the error, save, mend, resume; return the error."""
    flaw.broken = False
    whole, error = taken(case.make(flaw, folder / "reference").feed(executor="inline"))
    assert error is None
    flaw.broken = True
    ds = case.make(flaw, folder)
    feed = ds.feed(**way)
    items, error = taken(feed)
    assert error is not None
    assert feed.step == len(items)
    with pytest.raises(ps.errors.FeedClosed):
        next(feed)
    flaw.broken = False
    again = ds.feed(**way)
    again.load_state_dict(feed.state_dict())
    rest, mended = taken(again)
    assert mended is None
    if way.get("ordered", True):
        assert same(case, items + rest, whole)
    else:
        assert flat(case, items + rest) == flat(case, whole)
    return error


def ways_of(case: Case) -> list[dict[str, Any]]:
    """Return the ways that promise the same elements: an order that the operator needs is refused, or gives others by its meaning."""
    return [*WAYS, *UNORDERED] if case.unordered else WAYS


@EVERY_CASE
def test_a_function_that_fails_in_any_operator_loses_nothing(case: str, tmp_path: Path) -> None:
    here = CASES[case]
    for number, way in enumerate(ways_of(here)):
        place = PLACES[number % len(PLACES)]
        error = check_failure(here, Flaw(place, partial(Bad, f"element {place}")), tmp_path / str(number), way)
        assert type(error) is Bad
        assert str(error) == f"element {place}"
        note = notes(error)
        assert note.startswith(f"penstock: stage {here.stage!r}, worker ")  # a cached one may fail in its second pass as well
        assert "element epoch 0 index " in note or not way.get("ordered", True)  # in completion order the second pass may come first


ENDS: dict[str, Callable[[], BaseException]] = {
    "StopIteration": StopIteration,
    "GeneratorExit": GeneratorExit,
    "SystemExit": lambda: SystemExit(0),
    "CancelledError": asyncio.CancelledError,
    "StopAsyncIteration": StopAsyncIteration,
}


@EVERY_CASE
def test_what_would_pass_for_an_end_is_an_error_in_any_operator(case: str, tmp_path: Path) -> None:
    here = CASES[case]
    for number, (way, end) in enumerate(zip(ways_of(here), cycle(ENDS), strict=False)):
        error = check_failure(here, Flaw(45, ENDS[end]), tmp_path / str(number), way)
        assert type(error) is ps.errors.StopRaised
        assert error.what.startswith(f"the function of stage {here.stage!r} raised {end}")
        assert f"stage {here.stage!r}, worker " in error.where
        assert "raise another exception" in error.fix


@every_unordered_way
def test_a_balance_of_what_comes_first_gives_each_element_once_at_most_and_fails_all_the_same(way: dict[str, Any], tmp_path: Path) -> None:
    here = CASES["rejection_resample"]
    flaw = Flaw(45, lambda: Bad("element 45"))
    items, error = taken(here.make(flaw, tmp_path).feed(**way))
    assert type(error) is Bad
    assert max(flat(here, items).values()) == 1
    flaw.broken = False
    items, error = taken(here.make(flaw, tmp_path).feed(**way))
    assert error is None
    assert max(flat(here, items).values()) == 1
    assert abs(sum(x % 2 for x in flat(here, items)) - 2 * len(items) / 3) < 8
