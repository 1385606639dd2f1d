"""Streams with states of their own: saved anywhere and resumed is never stopped, and little is read again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from core import core
from feeds import resumed, state_behind
from laws.epochs import rest
from laws.plans import plain
from sources.streams import Epochs, Numbers, Sticky, Told

import penstock as ps
from penstock._plan.saved import sealed
from penstock.errors import StateDamaged, StateMismatch, StateUnavailable

COUNT = 11


def _odd(number: Any) -> bool:
    return bool(number % 2)


def _twice(number: Any) -> list[Any]:
    return [number, -number]


def _numbers(passes: int) -> list[int]:
    return list(range(COUNT)) * passes


def _epochs(passes: int, count: int = COUNT) -> list[int]:
    return [100 * number + x for number in range(passes) for x in range(count)]


def _groups(values: list[Any], size: int) -> list[Any]:
    return [values[start : start + size] for start in range(0, len(values), size)]


Make = Callable[[], ps.Dataset]
PLANS: dict[str, tuple[Make, list[Any]]] = {
    "bare": (lambda: ps.from_stream(Numbers(COUNT)), _numbers(1)),
    "declared": (lambda: ps.from_stream(Numbers(COUNT), length=COUNT).repeat(2), _numbers(2)),
    "filter": (lambda: ps.from_stream(Numbers(COUNT)).filter(_odd), [x for x in _numbers(1) if x % 2]),
    "batch": (lambda: ps.from_stream(Numbers(COUNT)).batch(3), _groups(_numbers(1), 3)),
    "passes": (lambda: ps.from_stream(Numbers(COUNT)).repeat(3), _numbers(3)),
    "filter, passes, batch": (
        lambda: ps.from_stream(Numbers(COUNT)).filter(_odd).repeat(3).batch(4),
        _groups([x for x in _numbers(3) if x % 2], 4),
    ),
    "flat_map, enumerate": (
        lambda: ps.from_stream(Numbers(COUNT)).flat_map(_twice).enumerate(),
        [list(pair) for pair in enumerate(y for x in _numbers(1) for y in _twice(x))],
    ),
    "told of epochs": (lambda: ps.from_stream(Told(COUNT)).map(np.int64).repeat(3).batch(2), _groups(_epochs(3), 2)),
    "own epochs": (lambda: ps.from_stream(Epochs(COUNT)).repeat(3), _epochs(3)),
    "own epochs, flat_map": (lambda: ps.from_stream(Epochs(2)).flat_map(_twice).repeat(4), [y for x in _epochs(4, 2) for y in _twice(x)]),
    "own epochs, cut": (
        lambda: ps.from_stream(Epochs(10**9)).flat_map(_twice).take(5).repeat(3),
        [value for number in range(3) for value in [y for x in range(100 * number, 100 * number + 3) for y in _twice(x)][:5]],
    ),
}
OPTIONS: list[dict[str, Any]] = [{"executor": "inline"}, {"executor": "threads", "num_workers": 2}]


@pytest.mark.parametrize("plan", core(PLANS, ["own epochs, cut"]))
@pytest.mark.parametrize("turned", [False, True], ids=["inline first", "threads first"])
def test_saved_at_every_element_and_again_and_resumed_in_a_new_process_is_never_stopped(plan: str, turned: bool) -> None:
    make, whole = PLANS[plan]
    before, after = OPTIONS[:: -1 if turned else 1]
    for stop in range(len(whole)):
        with make().feed(**before) as feed:
            head = [plain(next(feed)) for _ in range(stop)]
            state = json.loads(json.dumps(feed.state_dict()))
        with make().feed(**after) as feed:
            feed.load_state_dict(state)
            assert feed.step == stop
            again = json.loads(json.dumps(feed.state_dict()))
            assert again["position"] == state["position"]
            middle = [plain(item) for _, item in zip(range(2), rest(feed), strict=False)]
            second = json.loads(json.dumps(feed.state_dict()))
        with make().feed(**before) as feed:
            feed.load_state_dict(second)
            assert head + middle + [plain(item) for item in rest(feed)] == whole


def test_the_same_object_may_serve_one_feed_after_the_other() -> None:
    ds = ps.from_stream(Numbers(COUNT)).repeat(2)
    with ds.feed() as feed:
        assert [next(feed) for _ in range(14)] == _numbers(2)[:14]
        state = feed.state_dict()
    assert resumed(ds, state) == _numbers(2)[14:]
    assert list(ds) == _numbers(2)


def test_a_resume_reads_only_what_stands_behind_the_last_note() -> None:
    state = state_behind(ps.from_stream(Numbers(100_000)), 90_000, executor="threads", num_workers=1)
    note = state["position"]["stream"]
    assert note["state"] == {"index": note["position"]}
    stream = Numbers(100_000)
    with ps.from_stream(stream).feed(executor="inline") as feed:
        feed.load_state_dict(state)
        assert next(feed) == 90_000
        assert stream.loaded == [{"index": note["position"]}]
        assert next(iter(feed)) == 90_001
        feed.close()
    assert 80_000 < note["position"] <= 90_000


def test_without_states_only_fast_forward_can_resume() -> None:
    with ps.from_stream(range(5)).feed() as feed:
        next(feed)
        with pytest.raises(StateUnavailable) as refusal:
            feed.state_dict()
    assert "cannot say where it is" in refusal.value.what
    assert refusal.value.where == "from_stream(range)"
    assert "state_dict() and load_state_dict()" in refusal.value.fix
    ds = ps.from_stream(range(5), fast_forward=True).repeat(2)
    for stop in range(10):
        with ds.feed() as feed:
            head = [next(feed) for _ in range(stop)]
            state = feed.state_dict()
        assert head + resumed(ds, state, executor="inline") == [0, 1, 2, 3, 4] * 2


class Odd(Numbers):
    def state_dict(self) -> Any:
        return (self.index,)


def test_a_state_that_is_not_json_is_said_when_it_is_asked_for_and_not_before() -> None:
    with ps.from_stream(Odd(5)).feed() as feed:
        assert next(feed) == 0
        with pytest.raises(StateUnavailable, match=r"^state_dict\(\) of Odd returned what JSON cannot hold"):
            feed.state_dict()
        assert list(feed) == [1, 2, 3, 4]
    ds = ps.from_stream(Odd(5), fast_forward=True)
    state = state_behind(ds)
    assert "stream" not in state["position"]
    assert resumed(ds, state) == [1, 2, 3, 4]


def test_a_stream_whose_state_fails_is_an_error_behind_what_it_gave() -> None:
    class Broken(Numbers):
        def state_dict(self) -> Any:
            raise OSError("no state")

    with ps.from_stream(Broken(5)).feed() as feed:
        assert next(feed) == 0
        with pytest.raises(OSError, match="no state"):
            next(feed)


def _saved() -> dict[str, Any]:
    return state_behind(ps.from_stream(Numbers(COUNT)), 5, executor="inline")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (5, "position.stream is 5, not an object"),
        ({"pass": 0, "position": 1, "cut": 0, "state": {}}, "position.stream.cut is 0, not true or false"),
        ({"pass": 0, "position": 1, "cut": False}, "not an object with 'state'"),
        ({"pass": 1, "position": 1, "cut": False, "state": {}}, "stream's pass is 1, outside 0..0"),
        ({"pass": 0, "position": 6, "cut": False, "state": {}}, "stream's position is 6, outside 0..5"),
        ({"pass": 0, "position": "1", "cut": False, "state": {}}, "position.stream.position is '1', not a whole number"),
    ],
)
def test_a_damaged_place_is_refused(change: Any, words: str) -> None:
    state = _saved()
    body = {key: value for key, value in state.items() if key != "crc32"}
    body["position"] = {**state["position"], "stream": change}
    with ps.from_stream(Numbers(COUNT)).feed() as feed:
        with pytest.raises(StateDamaged, match="checksum"):
            feed.load_state_dict({**body, "crc32": state["crc32"]})
        with pytest.raises(StateDamaged) as refusal:
            feed.load_state_dict(sealed(body))
        assert words in refusal.value.what


def test_a_state_of_another_stream_is_refused() -> None:
    state = _saved()
    with ps.from_stream(Sticky(COUNT)).feed() as feed, pytest.raises(StateMismatch, match="name was 'Numbers' and is now 'Sticky'"):
        feed.load_state_dict(state)
    with ps.from_stream(range(COUNT)).feed() as feed:
        with pytest.raises(StateMismatch, match="other data"):
            feed.load_state_dict(state)
        with pytest.raises(StateMismatch) as refusal:
            feed.load_state_dict(state, strict=False)
    assert refusal.value.what == "the state holds the place of a stream with states, and this source has none"
    assert refusal.value.where == "load_state_dict()"
    assert "fast_forward=True" in refusal.value.fix
    with ps.from_stream(range(COUNT), fast_forward=True).feed() as feed:
        feed.load_state_dict(state, strict=False)
        assert list(feed) == list(range(5, COUNT))
