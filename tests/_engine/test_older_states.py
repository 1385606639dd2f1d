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
    # A state that is saved behind each of these batches goes on there.
    for stop in range(1, len(wanted)):
        with ds.feed(executor="inline") as feed:
            feed.load_state_dict(state)
            for _ in range(stop):
                next(feed)
            again = json.loads(json.dumps(feed.state_dict()))
        assert again["penstock_state"] == 3
        assert rest_of(ds, again)[0] == wanted[stop:]


@pytest.mark.parametrize(
    ("source", "mode", "runs", "wanted"),
    [
        ((0, 0), OPEN, [], 0),
        ((0, 8), OPEN, [], 2),
        ((1, 12), OPEN, [], 5 + 3),
        ((0, 20), OPEN, [], 5),
        ((0, 8), DROP_END, [], 5),
        ((1, 8), DROP_END, [], 10),
        ((1, 20), OPEN, [], 10),
        ((0, 8), PASS_END, [], 10),
    ],
)
def test_a_place_between_batches_is_their_number(source: tuple[int, int], mode: int, runs: Any, wanted: int) -> None:
    ds = numbers().batch(4).repeat(2)
    found = converted_position(ds, old_position(source, [[0, mode, [[], 0], 0, 0]], runs, folded=True))
    assert found == {"source": [0, wanted], "done": [], "again": [], "folds": []}


MAPS = "operators other than map, prefetch and one repeat stand after the batch"


@pytest.mark.parametrize(
    "ds", [numbers().batch(4).take(3), numbers().batch(4).enumerate(), numbers().batch(4).batch(2), numbers().window(3, 2)]
)
def test_places_behind_a_batch_under_other_operators_are_refused(ds: ps.Dataset) -> None:
    assert refusal(lambda: converted_position(ds, old_position((0, 6), [], folded=True))) == MAPS


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

STREAMS: dict[str, Callable[[], ps.Dataset]] = {
    "one chain": lambda: numbers().filter(bool).take(13).repeat(2).batch(3),
    "a map between": lambda: numbers().filter(bool).take(13).map(abs).repeat(2).map(abs).batch(3),
    "a map first": lambda: numbers().flat_map(lambda x: [x] * 2).map(abs).skip(2).map(abs).batch(3),
    "a buffer above": lambda: numbers().filter(bool).take(13).map(abs).repeat(2).shuffle(4, seed=1),
}


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_folds_that_counted_at_one_place_count_where_they_stand(name: str) -> None:
    whole = [np.asarray(batch).tolist() for batch in STREAMS[name]().feed(executor="inline")]
    for stop in range(1, len(whole)):
        with STREAMS[name]().feed(executor="inline") as feed:
            for _ in range(stop):
                next(feed)
            state = json.loads(json.dumps(feed.state_dict()))
        place = state["position"]
        records = place["folds"]
        holding = next((record for record in records if record[3] or record[4]), records[0])
        together = [records[0][0], max(record[1] for record in records), [one for record in records for one in record[2]], *holding[3:5]]
        position = old_position(tuple(place["source"]), [together])
        old = sealed({**{key: value for key, value in state.items() if key != "crc32"}, "penstock_state": 1, "position": position})
        assert rest_of(STREAMS[name](), old)[0] == whole[stop:]


REPLAYED = [(0, 7), (0, 10), (0, 13), (0, 16), (1, 6), (1, 9), (1, 12), (1, 15), (1, 18)]
"""How far the version of format 2 had read behind each batch."""


@pytest.mark.parametrize("stop", range(1, 9))
def test_what_came_out_above_the_maps_behind_a_buffer_does_not_come_again(stop: int) -> None:
    ds = numbers().filter(lambda value: value % 3 != 1).shuffle(4, seed=1).map(abs).take(9).repeat(2).batch(2)
    whole = [[3, 5], [2, 6], [9, 12], [14, 0], [15, 3], [0, 2], [8, 9], [5, 6], [12, 14]]
    buffer = {"pass": 0, "draws": 0, "held": []}
    position = old_position((0, 0), [[0, OPEN, [buffer, 0, 0, []], 0, stop, [], list(REPLAYED[stop - 1])]], folded=False)
    assert rest_of(ds, old_state(ds, position))[0] == whole[stop:]
    with ds.feed(executor="inline") as feed:
        feed.load_state_dict(old_state(ds, position))
        first = [next(feed).tolist() for _ in range(min(2, len(whole) - stop))]
        state = feed.state_dict()
    assert first == whole[stop : stop + 2]
    if stop + 2 < len(whole):
        assert rest_of(ds, state)[0] == whole[stop + 2 :]


def test_the_first_results_of_one_element_are_taken_again_and_left_out() -> None:
    ds = numbers().flat_map(lambda x: [10 * x, 10 * x + 1, 10 * x + 2])
    position = old_position((0, 3), [[0, OPEN, [], 0, 0]], [(5, 7)], [(4, (0, 1))])
    assert converted_position(ds, position) == {
        "source": [0, 3],
        "done": [[5, 7]],
        "again": [[0, 4, 5]],
        "folds": [[2, 0, [], 0, 0, [], [0, 0]]],
    }
    found, _ = rest_of(ds, old_state(ds, position))
    assert found[0] == 42
    assert sorted(found) == sorted([42, *(10 * x + copy for x in range(3, COUNT) if x not in (4, 5, 6) for copy in range(3))])


@pytest.mark.parametrize("partial", [[(4, (1,))], [(4, (0,)), (6, (0,))]])
def test_other_results_of_elements_are_refused(partial: Any) -> None:
    ds = numbers().flat_map(lambda x: [x] * 3)
    words = refusal(lambda: converted_position(ds, old_position((0, 3), [[0, OPEN, [], 0, 0]], (), partial)))
    assert words == "some of the results of several elements were delivered"
