from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import NotRepeatable

FIX = (
    "\n  fix:   where other calls of the function run meanwhile, it or an object in it is not thread-safe: leave executor= out (one call "
    "at a time), or give num_workers=N (worker processes with a copy each). Where it draws random numbers, take a parameter rng=; where it "
    "counts, tells the time, or changes an element of the source in place, no two runs are the same: mend that, or leave verify= out"
)
TWICE = "was computed twice for one element, the second time alone, and did not give the same:"
NUMBERS = ps.from_source(list(range(200)))
COUNTER = itertools.count()
WAYS = [ps.Threads(verify=0.1), ps.Processes(verify=0.1)]
BOTH = pytest.mark.parametrize("executor", WAYS, ids=["threads", "processes"])


def run(dataset: ps.Dataset, executor: Any, **options: Any) -> list[Any]:
    with dataset.feed(executor=executor, num_workers=2, **options) as feed:
        return list(feed)


def message(dataset: ps.Dataset, executor: Any, **options: Any) -> str:
    with pytest.raises(NotRepeatable) as caught:
        run(dataset, executor, **options)
    return str(caught.value)


def as_field(number: int) -> dict[str, Any]:
    return {"x": np.full(3, number, np.float32), "y": [1, 2, number]}


def counted(element: dict[str, Any]) -> dict[str, Any]:
    return {**element, "n": next(COUNTER)}


def noisy(element: dict[str, Any]) -> dict[str, Any]:
    return {**element, "noise": np.random.standard_normal(4)}


def timed(element: dict[str, Any]) -> dict[str, Any]:
    return {**element, "meta": {"at": (time.perf_counter_ns(), "ns")}}


def drawn(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**element, "noise": rng.standard_normal(4)}


def not_a_number(number: int) -> dict[str, Any]:
    return {"x": np.full(3, np.nan), "y": float("nan"), "z": np.float32("nan"), "t": {"a", "b"}, "none": None, "b": b"\0"}


def lock_of(number: int) -> Any:
    return {"lock": LOCK, "number": number}


def doubled(element: dict[str, Any]) -> dict[str, Any]:
    element["x"] *= 2  # of its own copy
    return element


LOCK = threading.Lock()


@BOTH
def test_the_error_names_the_function_the_element_and_the_field(executor: Any) -> None:
    told = message(NUMBERS.map(as_field).map(counted).map(doubled), executor)
    assert told.startswith(f"'counted' {TWICE} ['n'] was ")
    assert "\n  where: stage 'counted', element epoch 0 index " in told
    assert "(element " in told
    assert told.endswith(FIX)


@pytest.mark.parametrize(
    ("function", "words"), [(noisy, f"'noisy' {TWICE} ['noise'] was float64[4], then "), (timed, f"'timed' {TWICE} ['meta']['at'][0] was ")]
)
def test_draws_and_times_are_found(function: Callable[..., Any], words: str) -> None:
    for dataset in (NUMBERS.map(as_field).map(function), NUMBERS.map(as_field).map(function).batch(8, collate_fn=list)):
        assert message(dataset, WAYS[0]).startswith(words)


REPEATABLE: dict[str, ps.Dataset] = {
    "batches": NUMBERS.map(as_field).map(drawn).batch(7).map(doubled),
    "filter": NUMBERS.map(as_field).filter(lambda element: element["y"][2] % 3).flat_map(lambda element: [element] * 2).map(drawn).batch(7),
    "NaN": NUMBERS.map(not_a_number),
    "own workers": NUMBERS.shuffle(seed=1).map(as_field).map(doubled, concurrency=2).map(drawn),
    "generator": ps.from_generator(lambda: iter(range(60))).map(as_field).map(doubled).batch(4, collate_fn=list),
}


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, ps.Threads) for name in REPEATABLE), ("batches", ps.Processes), ("filter", ps.Processes)]
)
def test_what_is_repeatable_comes_as_without_verify(name: str, kind: Any) -> None:
    same = run(REPEATABLE[name], "threads"), run(REPEATABLE[name], kind(verify=0.5))
    np.testing.assert_equal(*same)


def test_the_same_elements_are_computed_twice_in_each_run_and_their_share_is_kept() -> None:
    def calls(share: float, **options: Any) -> list[int]:
        seen: list[int] = []

        def noted(number: int) -> int:
            seen.append(number)
            return number

        with ps.from_source(list(range(2000))).map(noted).feed(executor=ps.Threads(verify=share), **options) as feed:
            assert sorted(feed) == list(range(2000))
        return sorted(number for number, count in Counter(seen).items() if count == 2)

    few = calls(0.05, num_workers=2)
    assert 70 <= len(few) <= 130
    assert few == calls(0.05, num_workers=0) == calls(0.05, num_workers=3, ordered=False)
    assert calls(1.0, num_workers=1) == list(range(2000))
    assert calls(0.0, num_workers=2) == []


def test_a_race_in_a_shared_object_is_found_and_the_second_time_no_other_thread_computes() -> None:
    inside = threading.local()
    running = [0]
    met: list[int] = []
    barrier = threading.Barrier(2)

    def racing(number: int) -> int:
        alone = getattr(inside, "last", None) == number
        inside.last = number
        running[0] += 1
        if not alone:
            try:
                barrier.wait(0.2)
            except threading.BrokenBarrierError:
                barrier.reset()
        met.append(running[0] if alone else 0)
        found = running[0] if alone else 2
        running[0] -= 1
        return found

    told = message(ps.from_source(list(range(40))).map(racing), ps.Threads(verify=1.0))
    assert "'racing' was computed twice" not in told  # the name is that of its function here
    assert "racing' was computed twice for one element" in told
    assert "the result was 2, then 1" in told
    assert max(met) == 1


def test_a_function_that_changes_the_source_is_named_with_it() -> None:
    arrays = [np.zeros(2) for _ in range(50)]

    def scaled(array: Any) -> Any:
        array += 1
        return array

    told = message(ps.from_source(arrays).map(scaled), ps.Threads(verify=0.2))
    assert told.startswith(f"'read' {TWICE} the result was float64[2], ")
    assert ".scaled' may have changed it in place" in told


def test_a_filter_that_changes_its_mind_is_found() -> None:
    told = message(NUMBERS.filter(lambda number: next(COUNTER) % 2), ps.Threads(verify=0.1))
    assert "the number of elements was " in told


def test_an_error_of_the_second_time_is_told() -> None:
    seen: set[int] = set()

    def once(number: int) -> int:
        if number in seen:
            raise KeyError(number)
        seen.add(number)
        return number

    assert "the second time it raised KeyError" in message(NUMBERS.map(once), ps.Threads(verify=0.1))


def test_functions_above_a_batch_and_collate_fn_are_compared() -> None:
    above = NUMBERS.map(as_field).batch(4).map(counted)
    assert message(above, WAYS[0]).startswith("'counted' was computed twice for one element")
    collating = NUMBERS.map(as_field).batch(4, collate_fn=lambda rows: {"n": random.random(), "rows": len(rows)})
    assert message(collating, WAYS[0]).startswith("'batch' was computed twice for one element")


def test_no_policy_leaves_such_an_element_out() -> None:
    assert message(NUMBERS.map(as_field).map(counted, on_error=ps.Skip()), WAYS[0], on_error=ps.Replace()).endswith(FIX)


def test_what_cannot_be_compared_is_left_out_with_one_notice() -> None:
    with NUMBERS.map(lock_of).feed(executor=ps.Threads(verify=0.1), num_workers=2) as feed:
        assert len(list(feed)) == 200
    told = "verify= leaves out objects that cannot be copied or pickled, and so not be compared: lock"
    assert [notice for notice in feed.stats().notices if "verify" in notice] == [told]


def test_async_functions_are_left_out() -> None:
    async def counted_async(number: int) -> int:
        return next(COUNTER)

    assert len(run(NUMBERS.map(counted_async).map(lambda number: number + 1), ps.Threads(verify=0.3))) == 200


class Boxed:
    """A value whose pickle is another one each time."""

    def __init__(self, value: int) -> None:
        self.value, self.salt = value, next(COUNTER)


class Equal(Boxed):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


def test_objects_may_say_themselves_that_they_are_equal() -> None:
    assert len(run(NUMBERS.map(Equal), WAYS[0])) == 200
    assert message(NUMBERS.map(Boxed), WAYS[0]).startswith(f"'Boxed' {TWICE} the result was a Boxed, then another")
