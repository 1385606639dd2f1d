"""A map with a declaration that is true gives what it gives without; one that is not stops at the first element that differs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from feeds import state_behind

import penstock as ps
from penstock._contracts.element import flatten
from penstock.errors import SpecError, StateMismatch
from penstock.testing.runs import plain

Build = Callable[[Any, int], ps.Dataset]

WAYS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "num_workers": 3},
    {"executor": "threads", "num_workers": 2, "memory_bytes": 1},
    {"ordered": False},
]
COUNT, WRONG = 20, 13
BEFORE = 12


def numbers(count: int = COUNT) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def columns() -> ps.Dataset:
    return ps.from_arrays({"image": np.arange(COUNT * 12, dtype=np.uint8).reshape(COUNT, 2, 2, 3), "label": np.arange(COUNT)})


def row(x: int) -> Any:
    """Return an element that is another one at `WRONG`."""
    return {"x": np.full(3, x, np.float64 if x == WRONG else np.float32), "y": x}


def noisy(x: int, rng: np.random.Generator) -> Any:
    return {**row(x), "y": int(rng.integers(1000))}


async def later(x: int) -> Any:
    for _ in range(7 - x % 8):
        await asyncio.sleep(0)
    return row(x)


def of_batch(batch: Any) -> Any:
    return {"x": batch.astype(np.float64 if WRONG in batch else np.float32), "y": batch}


ROW = {"x": ps.ArraySpec((3,), np.dtype(np.float32)), "y": ps.ArraySpec((), np.dtype(np.int64))}
OPEN = {"x": ps.ArraySpec((None,), np.dtype(np.float32)), "y": ps.ArraySpec((), np.dtype(np.int64))}
BATCH = {"x": ps.ArraySpec((None,), np.dtype(np.float32)), "y": ps.ArraySpec((None,), np.dtype(np.int64))}

PLANS: dict[str, tuple[Build, Any]] = {
    "map": (lambda spec, count: numbers(count).map(row, output_spec=spec), ROW),
    "open sizes": (lambda spec, count: numbers(count).map(row, output_spec=spec), OPEN),
    "random": (lambda spec, count: numbers(count).map(noisy, seed=3, output_spec=spec), ROW),
    "below a batch": (lambda spec, count: numbers(count).map(row, output_spec=spec).batch(4), ROW),
    "with workers": (lambda spec, count: numbers(count).map(row, concurrency=2, output_spec=spec).batch(4), ROW),
    "async": (lambda spec, count: numbers(count).map(later, output_spec=spec).batch(4), OPEN),
    "above a batch": (lambda spec, count: numbers(count).batch(3).map(of_batch, output_spec=spec), BATCH),
    "behind a filter": (lambda spec, count: numbers(count).filter(lambda x: True).map(row, output_spec=spec).batch(4, True), ROW),
    "in a branch": (lambda spec, count: numbers(count).zip(numbers(count).map(row, output_spec=spec)), ROW),
}


ROWS = {"below a batch": 4, "with workers": 4, "async": 4, "behind a filter": 4, "above a batch": 3}


def until_wrong(build: Build, spec: Any) -> list[Any]:
    """List what is delivered before the element that differs."""
    got: list[Any] = []
    with pytest.raises(SpecError) as caught:
        got.extend(plain(element) for element in build(spec, COUNT).feed(num_workers=0))
    assert "['x'] is declared as float32[" in caught.value.what
    assert "and came as float64[" in caught.value.what
    assert "stage '" in caught.value.where
    assert any("element epoch 0 index" in note for note in caught.value.__notes__)
    return got


@pytest.mark.parametrize("name", PLANS)
def test_a_wrong_result_is_an_error_behind_everything_before_it(name: str) -> None:
    build, spec = PLANS[name]
    got = until_wrong(build, spec)
    assert got == [plain(one) for one in build(None, WRONG)][: len(got)]
    assert len(got) == WRONG // ROWS.get(name, 1)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", PLANS)
def test_a_true_declaration_changes_nothing(name: str, way: dict[str, Any]) -> None:
    build, spec = PLANS[name]
    bare, declaring = build(None, BEFORE), build(spec, BEFORE)
    expected, found = [plain(one) for one in bare.feed(**way)], [plain(one) for one in declaring.feed(**way)]
    if not way.get("ordered", True):
        expected, found = (sorted(np.concatenate([np.ravel(leaf) for leaf in flatten(got)])) for got in (expected, found))
    assert found == expected
    assert [line for line in repr(bare).splitlines() if "map(" not in line] == [
        line for line in repr(declaring).splitlines() if "map(" not in line
    ]
    if None not in [size for leaf in spec.values() for size in leaf.shape]:
        assert declaring.spec() == bare.spec()


IMAGE = {"image": ps.ArraySpec((2, 2, 3), np.dtype(np.uint8)), "label": ps.ArraySpec((), np.dtype(np.int64))}
FLOATS = {"image": ps.ArraySpec((3, 2, 2), np.dtype(np.float32)), "label": ps.ArraySpec((), np.dtype(np.int64))}


def images(first: Any, last: Any) -> ps.Dataset:
    pytest.importorskip("cv2")
    return (
        columns()
        .map(ps.image.random_flip("image"), seed=1, output_spec=first)
        .map(ps.image.normalize("image", (0.5, 0.5, 0.5), (0.2, 0.2, 0.2), layout="CHW"), output_spec=last)
        .batch(4)
    )


@pytest.mark.parametrize("way", WAYS[:3], ids=str)
def test_fused_operators_are_checked_where_it_is_declared_and_stay_fused(way: dict[str, Any]) -> None:
    bare = [plain(batch) for batch in images(None, None).feed(**way)]
    for first, last in ((IMAGE, None), (None, FLOATS), (IMAGE, FLOATS)):
        assert [plain(batch) for batch in images(first, last).feed(**way)] == bare
    for first, last, words in ((FLOATS, None, "uint8[2, 2, 3]"), (None, IMAGE, "float32[3, 2, 2]")):
        with pytest.raises(SpecError) as caught:
            list(images(first, last).feed(**way))
        assert f"['image'] is declared as {(first or last)['image']} and came as {words}" in caught.value.what
    assert len([line for line in images(IMAGE, FLOATS).explain().splitlines() if "stage" in line]) == 1


def test_ds_i_checks_too_and_spec_runs_no_function() -> None:
    ds = numbers().map(row, output_spec=ROW)
    assert plain(ds[3]) == plain(row(3))
    with pytest.raises(SpecError):
        ds[WRONG]
    ran: list[Any] = []
    assert numbers().map(ran.append, output_spec=ROW).batch(4).spec()["x"] == ps.ArraySpec((4, 3), np.dtype(np.float32))
    assert ran == []


def test_a_policy_treats_a_wrong_result_as_any_failing_element() -> None:
    with numbers().map(row, output_spec=ROW, on_error=ps.Skip(limit=1)).feed() as feed:
        assert [int(one["y"]) for one in feed] == [x for x in range(COUNT) if x != WRONG]
        assert feed.stats().num_skipped == 1


def test_the_declaration_is_part_of_the_plan() -> None:
    ds = numbers().take(5).map(row, output_spec=OPEN)
    assert "map(row, output_spec={'x': float32[None], 'y': int64[]})" in repr(ds)
    state = state_behind(ds)
    with ds.feed() as feed:
        feed.load_state_dict(state)
        assert int(next(feed)["y"]) == 1
    for other in (ROW, None):
        with numbers().take(5).map(row, output_spec=other).feed() as feed, pytest.raises(StateMismatch) as caught:
            feed.load_state_dict(state)
        assert "the state was saved with another plan: it had " in caught.value.what
        assert "map(row, output_spec={'x': float32[None], 'y': int64[]})" in caught.value.what


def test_a_cache_in_a_folder_belongs_to_one_declaration(tmp_path: Any) -> None:
    calls: list[int] = []

    def counted(x: int) -> Any:
        calls.append(x)
        return {"x": np.zeros(3, np.float32), "y": x}

    for spec, count in ((ROW, 3), (ROW, 3), (OPEN, 6)):
        list(numbers().take(3).map(counted, output_spec=spec).cache(tmp_path, version="1"))
        assert len(calls) == count
