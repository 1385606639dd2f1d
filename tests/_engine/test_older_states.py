"""States of format 1 and 2 go on where they were saved, or are refused in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock._engine.resume import _converted as converted
from penstock._engine.resume import _parts_behind as parts_behind
from penstock._order.runs import Runs
from penstock._plan.saved import sealed
from penstock.errors import StateMismatch

COUNT = 20
OPEN, DROP_END, PASS_END = 0, 1, 2


def numbers() -> ps.Dataset:
    return ps.from_source(list(range(COUNT)))


def old_position(source: tuple[int, int], sequencers: list[Any], runs: Any = (), partial: Any = (), **more: Any) -> dict[str, Any]:
    done = [[list(run) for run in runs], [[place, list(some)] for place, some in partial]]
    return {"source": list(source), "done": done, "sequencers": sequencers, **more}


def old_state(ds: ps.Dataset, position: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    with ds.feed(executor="inline") as feed:
        state = json.loads(json.dumps(feed.state_dict()))
    return sealed({**state, "penstock_state": 2, "epoch": [epoch, 0], "position": position})


def converted_position(ds: ps.Dataset, position: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = converted(ds._root, {"penstock_state": 2, "position": position}, epoch)["position"]
    return {name: value for name, value in found.items() if name != "older"}


def rest_of(ds: ps.Dataset, state: Any, **options: Any) -> tuple[list[Any], Any]:
    with ds.feed(executor="inline", **options) as feed:
        feed.load_state_dict(state)
        return [np.asarray(batch).tolist() for batch in feed], feed.state_dict()


def refusal(convert: Callable[[], Any]) -> str:
    with pytest.raises(StateMismatch) as caught:
        convert()
    assert caught.value.where == "load_state_dict()"
    assert caught.value.fix == "begin the epoch again, or go on with the version that saved it"
    what: str = caught.value.what
    start = "an earlier version of penstock saved this state at a place that this version does not have: "
    assert what.startswith(start)
    return what.removeprefix(start)


# -- places that counted the elements before a batch -----------------------------------------------------------------------------------


@given(st.integers(1, 7), st.integers(1, 3), st.integers(0, 2), st.frozensets(st.integers(0, COUNT - 1)), st.integers(0, 1))
def test_what_was_not_delivered_of_a_pass_comes_once_and_then_the_other_passes(
    size: int, passes: int, pass_number: int, delivered: frozenset[int], epoch: int
) -> None:
    pass_number = min(pass_number, passes - 1)
    ds = numbers().batch(size).map(np.asarray).repeat(passes)
    runs = Runs((place, place + 1) for place in delivered).without(())
    watermark = runs[0][1] if runs and runs[0][0] == 0 else 0
    position = old_position(
        (epoch * passes + pass_number, watermark),
        [[0, OPEN, [[], pass_number], 0, 0]],
        runs[1:] if watermark else runs,
        folded=True,
    )
    left = [place for place in range(COUNT) if place not in delivered]
    wanted = [
        group[start : start + size]
        for group in (left, *([list(range(COUNT))] * (passes - 1 - pass_number)))
        for start in range(0, len(group), size)
    ]
    state = old_state(ds, position, epoch)
    found, _ = rest_of(ds, state)
    assert found == wanted
    # A state that is saved behind one of these batches goes on there.
    for stop in {stop for stop in (1, len(wanted) // 2, len(wanted) - 1) if 0 < stop < len(wanted)}:
        with ds.feed(executor="inline") as feed:
            feed.load_state_dict(state)
            for _ in range(stop):
                next(feed)
            again = json.loads(json.dumps(feed.state_dict()))
        assert again["penstock_state"] == 3
        assert rest_of(ds, again)[0] == wanted[stop:]


MAPS = "operators other than map, prefetch and one repeat stand after the batch"


@pytest.mark.parametrize(
    ("ds", "words"),
    [
        (numbers().batch(4).take(3), MAPS),
        (numbers().batch(4).enumerate(), MAPS),
        (numbers().batch(4).batch(2), "it counts what rows are made of"),
        (numbers().window(3, 2), MAPS),
    ],
)
def test_places_behind_a_batch_under_other_operators_are_refused(ds: ps.Dataset, words: str) -> None:
    assert refusal(lambda: converted_position(ds, old_position((0, 6), [], folded=True))) == words


def test_a_rest_of_a_pass_that_has_no_plan_is_refused() -> None:
    scattered = (0, ((0, 2), (5, 6)))
    for ds, words in (
        (numbers().filter(bool), MAPS),
        (numbers(), MAPS),
        (numbers().batch(4).repeat(2).map(abs).repeat(2), MAPS),
        (numbers().batch(4).take(2), MAPS),
        (numbers().repeat().batch(4), "the dataset before the batch has no end"),
    ):
        assert refusal(lambda ds=ds: parts_behind(ds._root, scattered, 0)) == words


# -- folds that stood before maps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partial", [[(4, (1,))], [(4, (0,)), (6, (0,))]])
def test_other_results_of_elements_are_refused(partial: Any) -> None:
    ds = numbers().flat_map(lambda x: [x] * 3)
    words = refusal(lambda: converted_position(ds, old_position((0, 3), [[0, OPEN, [], 0, 0]], (), partial)))
    assert words == "some of the results of several elements were delivered"
