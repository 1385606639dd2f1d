"""Functions that fail, and workers that are slow: FAULTS A1, A4, A5, A14 in the caller's thread and in threads."""

from __future__ import annotations

import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from faults.ways import SETTLED_S, drained, every_thread_count, every_way, notes, worker_named_in
from laws.plans import plain

import penstock as ps

SIZE = 700
PLACES = [0, 1, 7, 85, 341, SIZE - 1]
"""The first, places in blocks of every size on the way up (1, 4, 16, 64, 256), the last."""


class BadPixel(Exception):
    """A user's own error with a constructor of its own."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(f"{reason} at {place}")
        self.place = place


def failing(place: int) -> Callable[[Any], Any]:
    def explode(x: Any) -> Any:
        if x == place:
            raise BadPixel(x, "no colour")
        return x

    return explode


def check_users_error(error: BaseException | None, place: int, stage: str, way: dict[str, Any], *, epoch: int = 0, words: str = "") -> None:
    """Check type, value, note and traceback of the BadPixel of element `place`."""
    assert type(error) is BadPixel
    assert error.place == place
    assert str(error) == f"no colour at {place}"
    note = notes(error)
    assert note.count("penstock:") == 1
    assert f"stage {stage!r}, worker " in note
    assert f"element epoch {epoch} index {place}" in note
    assert words in note
    assert worker_named_in(note) < way.get("num_workers", 1)
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)][-1] == "explode"


@every_way
@pytest.mark.parametrize("place", PLACES)
def test_the_error_of_a_map_function_comes_as_itself_behind_everything_before_it(place: int, way: dict[str, Any]) -> None:
    feed = ps.from_source(range(SIZE)).map(failing(place), name="explode").feed(**way)
    items, error = drained(feed)
    assert items == list(range(place))
    assert feed.step == place
    check_users_error(error, place, "explode", way, words=f"(element {place} of range)")


@every_way
@pytest.mark.parametrize("place", PLACES)
def test_all_whole_batches_before_the_failing_element_are_delivered(place: int, way: dict[str, Any]) -> None:
    items, error = drained(ps.from_source(range(SIZE)).map(failing(place), name="decode").batch(8).feed(**way))
    assert items == [list(range(start, start + 8)) for start in range(0, place // 8 * 8, 8)]
    check_users_error(error, place, "decode", way)


@every_way
@pytest.mark.parametrize("place", [3, 200])
def test_the_key_of_the_error_is_the_place_in_the_source_whatever_the_order_and_the_epoch(place: int, way: dict[str, Any]) -> None:
    seen = ps.from_source(range(300)).shuffle(seed=5).repeat(3)
    whole = [seen[i] for i in range(len(seen))]
    second = whole.index(place, 300)
    calls: dict[int, int] = {}
    mutex = threading.Lock()

    def explode(x: int, rng: np.random.Generator) -> int:
        if x == place:
            with mutex:
                calls[x] = calls.get(x, 0) + 1
            if rng.bit_generator.state["state"]["counter"][3] == 1:  # the epoch: only the second pass fails
                raise BadPixel(x, "no colour")
        return x

    items, error = drained(seen.map(explode, seed=1, name="explode").feed(**way))
    assert items == whole[:second]
    check_users_error(error, place, "explode", way, epoch=1)
    assert calls[place] >= 2


def _explode_in_source(place: int) -> ps.Dataset:
    class Faulty:
        def __len__(self) -> int:
            return SIZE

        def __getitem__(self, index: int) -> int:
            def explode() -> int:
                if index == place:
                    raise BadPixel(index, "no colour")
                return index

            return explode()

    return ps.from_source(Faulty())


def _explode_in_generator(place: int) -> ps.Dataset:
    def explode() -> Iterator[int]:
        for x in range(SIZE):
            if x == place:
                raise BadPixel(x, "no colour")
            yield x

    return ps.from_generator(explode)


def _explode_in_filter(place: int) -> ps.Dataset:
    fn = failing(place)
    return ps.from_source(range(SIZE)).filter(lambda x: fn(x) >= 0, name="explode")


def _explode_in_flat_map(place: int) -> ps.Dataset:
    fn = failing(place)
    return ps.from_source(range(SIZE)).flat_map(lambda x: [fn(x)], name="explode")


def _explode_behind_a_filter(place: int) -> ps.Dataset:
    return ps.from_source(range(SIZE)).filter(lambda x: True).map(failing(place), name="explode")


def _explode_with_workers_of_its_own(place: int) -> ps.Dataset:
    return ps.from_source(range(SIZE)).map(lambda x: x).map(failing(place), name="explode", concurrency=2)


KINDS = {
    "the source": (_explode_in_source, "read"),
    "a generator": (_explode_in_generator, "read"),
    "a filter": (_explode_in_filter, "explode"),
    "a flat_map": (_explode_in_flat_map, "explode"),
    "a map behind a filter": (_explode_behind_a_filter, "explode"),
    "a map with workers of its own": (_explode_with_workers_of_its_own, "explode"),
}


@every_way
@pytest.mark.parametrize("place", [0, 85, SIZE - 1])
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_anywhere_in_the_pipeline_comes_as_itself_behind_everything_before_it(kind: str, place: int, way: dict[str, Any]) -> None:
    make, stage = KINDS[kind]
    items, error = drained(make(place).feed(**way))
    assert items == list(range(place))
    check_users_error(error, place, stage, {"executor": "threads", "num_workers": max(2, way.get("num_workers", 1))})
    items, error = drained(make(place).batch(4).feed(**way))
    assert items == [list(range(start, start + 4)) for start in range(0, place // 4 * 4, 4)]
    assert type(error) is BadPixel


@every_way
def test_an_error_is_raised_once_and_then_the_feed_says_that_it_has_failed(way: dict[str, Any]) -> None:
    feed = ps.from_source(range(20)).map(failing(5)).feed(**way)
    items, error = drained(feed)
    assert items == [0, 1, 2, 3, 4]
    assert type(error) is BadPixel
    for _ in range(3):
        with pytest.raises(ps.errors.FeedClosed) as closed:
            next(feed)
        assert "stopped at an error, which was raised before" in closed.value.what
        assert "Feed.__next__" in closed.value.where
        assert "load_state_dict()" in closed.value.fix
    assert feed.step == 5


@every_way
def test_after_an_error_the_saved_state_goes_on_with_the_element_that_failed(way: dict[str, Any]) -> None:
    broken = {"now": True}

    def flaky(x: int) -> int:
        if x == 9 and broken["now"]:
            raise OSError(5, "the disk is away")
        return x

    ds = ps.from_source(range(30)).map(flaky)
    feed = ds.feed(**way)
    items, error = drained(feed)
    assert items == list(range(9))
    assert type(error) is OSError
    assert error.args == (5, "the disk is away")
    broken["now"] = False
    again = ds.feed(**way)
    again.load_state_dict(feed.state_dict())
    assert drained(again) == (list(range(9, 30)), None)


WOULD_END: list[tuple[Callable[[], object], str]] = [
    (lambda: _raise(StopIteration()), "StopIteration"),
    (lambda: _raise(StopIteration("enough")), "StopIteration('enough')"),
    (lambda: next(iter(())), "StopIteration"),
    (lambda: _raise(StopAsyncIteration()), "StopAsyncIteration"),
    (lambda: _raise(GeneratorExit()), "GeneratorExit"),
    (lambda: _raise(SystemExit(3)), "SystemExit(3)"),
    (lambda: sys.exit(0), "SystemExit(0)"),
]


def _raise(error: BaseException) -> None:
    raise error


@every_way
@pytest.mark.parametrize(("end", "words"), WOULD_END, ids=[words for _, words in WOULD_END])
@pytest.mark.parametrize("operator", ["map", "filter", "flat_map", "source"])
def test_an_exception_that_would_pass_for_an_end_is_an_error_and_never_a_short_epoch(
    operator: str, end: Callable[[], object], words: str, way: dict[str, Any]
) -> None:
    def ending(x: int) -> Any:
        if x == 37:
            end()
        return [x] if operator == "flat_map" else x + 1 if operator == "filter" else x

    class Source:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> int:
            return int(ending(index))

    ds = ps.from_source(Source()) if operator == "source" else getattr(ps.from_source(range(100)), operator)(ending, name="ending")
    stage = "read" if operator == "source" else "ending"
    items, error = drained(ds.feed(**way))
    assert items == list(range(37))
    assert type(error) is ps.errors.StopRaised
    assert isinstance(error, RuntimeError)
    assert error.what == f"the function of stage {stage!r} raised {words}"
    assert f"stage {stage!r}, worker " in error.where
    assert "element epoch 0 index 37" in error.where
    assert "raise another exception" in error.fix
    assert "take()" in error.fix
    assert type(error.__cause__).__name__ == words.partition("(")[0]


@every_thread_count
def test_a_keyboard_interrupt_of_a_users_function_in_a_thread_is_an_error(way: dict[str, Any]) -> None:
    def interrupted(x: int) -> int:
        if x == 37:
            raise KeyboardInterrupt
        return x

    items, error = drained(ps.from_source(range(100)).map(interrupted, name="interrupted").feed(**way))
    assert items == list(range(37))
    assert type(error) is ps.errors.StopRaised
    assert error.what == "the function of stage 'interrupted' raised KeyboardInterrupt"
    assert type(error.__cause__) is KeyboardInterrupt


def test_a_keyboard_interrupt_in_the_callers_thread_stays_one_because_it_is_the_users_and_the_feed_goes_on() -> None:
    presses = iter([True])

    def interrupted(x: int) -> int:
        if x == 37 and next(presses, False):
            raise KeyboardInterrupt
        return x

    with ps.from_source(range(100)).map(interrupted, name="interrupted").batch(10).feed(executor="inline") as feed:
        items: list[Any] = []
        batches = iter(feed)
        with pytest.raises(KeyboardInterrupt):
            items.extend(plain(item) for item in batches)
        assert feed.step == len(items) <= 3
        items.extend(plain(item) for item in batches)
    assert items == [list(range(start, start + 10)) for start in range(0, 100, 10)]


@every_way
@pytest.mark.parametrize("end", [StopIteration, GeneratorExit, SystemExit, StopAsyncIteration])
def test_a_generator_function_that_raises_an_end_itself_is_an_error(end: type[BaseException], way: dict[str, Any]) -> None:
    class Reader:
        def __init__(self) -> None:
            self.rows = iter(range(20))

        def __iter__(self) -> Reader:
            return self

        def __next__(self) -> int:
            row = next(self.rows)
            if row == 12 and end is not StopIteration:
                raise end
            return row

    def open_reader() -> Reader:
        if end is StopIteration:
            raise end
        return Reader()

    items, error = drained(ps.from_generator(open_reader).feed(**way))
    assert items == ([] if end is StopIteration else list(range(12)))
    assert type(error) is ps.errors.StopRaised
    assert f"stage 'read' raised {end.__name__}" in error.what
    assert "element epoch 0 index " + ("0" if end is StopIteration else "12") in error.where


@pytest.mark.parametrize("num_workers", [2, 8])
def test_one_stuck_worker_keeps_the_order_and_the_others_run_ahead_no_further_than_the_byte_budget(num_workers: int) -> None:
    batch, row_bytes, num_batches = 4, 64 << 10, 60
    budget = 6 * batch * row_bytes
    stuck, go_on, ahead = threading.Event(), threading.Event(), threading.Event()
    mutex = threading.Lock()
    started: list[int] = []

    def sometimes_slow(x: int) -> Any:
        with mutex:
            started.append(x)
        if x == 0:
            stuck.set()
            assert go_on.wait(30)
        ahead.set()
        return np.full(row_bytes, x % 251, np.uint8)

    got: list[Any] = []
    feed = (
        ps.from_source(range(num_batches * batch))
        .map(sometimes_slow)
        .batch(batch)
        .feed(executor="threads", num_workers=num_workers, memory_bytes=budget)
    )
    consumer = threading.Thread(target=lambda: got.extend(item[:, 0].tolist() for item in feed))
    consumer.start()
    try:
        assert stuck.wait(30)
        assert ahead.wait(30)  # the others are not held up by the stuck one
        quiet = 0
        while quiet != len(started):  # until nobody starts anything any more
            quiet = len(started)
            threading.Event().wait(SETTLED_S)
        assert got == []
        assert batch <= quiet <= budget // row_bytes
    finally:
        go_on.set()
        consumer.join(30)
    assert got == [[x % 251 for x in range(start, start + batch)] for start in range(0, num_batches * batch, batch)]
    assert sorted(started) == list(range(num_batches * batch))


@every_thread_count
def test_elements_of_very_uneven_cost_come_in_order(way: dict[str, Any]) -> None:
    costs = [int(random.Random(4).paretovariate(0.6)) for _ in range(2000)]

    def work(x: int) -> int:
        return sum(range(min(costs[x % len(costs)], 20_000))) * 0 + x

    assert drained(ps.from_source(range(2000)).map(work).feed(**way)) == (list(range(2000)), None)
