"""ragged_batch and window: what plain Python says, delivered, resumed at every element, and computed one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from laws.plans import plain
from sources.streams import Numbers

import penstock as ps
from penstock.errors import SpecError, StateMismatch

COUNT = 13


def _row(number: Any) -> dict[str, Any]:
    return {"tokens": np.arange(int(number) % 4), "label": int(number)}


def _even(number: Any) -> bool:
    return bool(number % 2 == 0)


def _ragged(numbers: list[int], size: int, drop: bool = False) -> list[Any]:
    groups = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    out = []
    for group in groups:
        if len(group) == size or not drop:
            lengths = [number % 4 for number in group]
            values = [token for length in lengths for token in range(length)]
            out.append({"tokens": {"values": values, "row_splits": np.cumsum([0, *lengths]).tolist()}, "label": group})
    return out


def _windows(numbers: list[int], size: int, shift: int, stride: int, drop: bool = False) -> list[list[int]]:
    windows = [numbers[start::stride][:size] for start in range(0, len(numbers), shift)]
    return [window for window in windows if len(window) == size or not drop]


def _shuffled(seed: int) -> list[int]:
    return [int(number) for number in ps.from_arrays(np.arange(COUNT)).shuffle(seed=seed)]


NUMBERS = ps.from_arrays(np.arange(COUNT))
WHOLE = list(range(COUNT))
EVEN = [number for number in WHOLE if number % 2 == 0]
FIELDS = ("tokens",)
PLANS: dict[str, tuple[Callable[[], ps.Dataset], list[Any]]] = {
    "ragged": (lambda: NUMBERS.map(_row).ragged_batch(4), _ragged(WHOLE, 4)),
    "ragged, full": (lambda: NUMBERS.map(_row).ragged_batch(4, True, FIELDS).repeat(2), _ragged(WHOLE, 4, True) * 2),
    "ragged, one by one": (lambda: NUMBERS.shuffle(seed=2).map(_row).ragged_batch(1), _ragged(_shuffled(2), 1)),
    "ragged, skip": (lambda: NUMBERS.map(_row).ragged_batch(3, ragged=FIELDS).skip(1).take(3), _ragged(WHOLE, 3)[1:4]),
    "ragged behind a filter": (lambda: NUMBERS.filter(_even).map(_row).ragged_batch(3).repeat(2), _ragged(EVEN, 3) * 2),
    "ragged of passes behind a filter": (lambda: NUMBERS.filter(_even).repeat(2).map(_row).ragged_batch(3), _ragged(EVEN * 2, 3)),
    "ragged of a stream": (lambda: ps.from_stream(Numbers(COUNT)).map(_row).ragged_batch(5, ragged=FIELDS), _ragged(WHOLE, 5)),
    "window": (lambda: NUMBERS.window(3), _windows(WHOLE, 3, 3, 1)),
    "window, overlapping": (lambda: NUMBERS.window(4, 1), _windows(WHOLE, 4, 1, 1)),
    "window, strides": (lambda: NUMBERS.window(3, 2, 4, True).repeat(2), _windows(WHOLE, 3, 2, 4, True) * 2),
    "window, gaps": (lambda: NUMBERS.window(2, 5), _windows(WHOLE, 2, 5, 1)),
    "window, wider than all": (lambda: NUMBERS.window(50, 6), _windows(WHOLE, 50, 6, 1)),
    "window, filter": (lambda: NUMBERS.window(3, 2).filter(lambda w: len(w) == 3), _windows(WHOLE, 3, 2, 1, True)),
    "window of a shuffle": (lambda: NUMBERS.shuffle(seed=5).window(3, 1), _windows(_shuffled(5), 3, 1, 1)),
    "window of passes": (lambda: NUMBERS.repeat(2).window(5, 4), _windows(WHOLE * 2, 5, 4, 1)),
    "window, batch": (
        lambda: NUMBERS.window(3, 1, 2, True).batch(4),
        [_windows(WHOLE, 3, 1, 2, True)[start : start + 4] for start in range(0, 9, 4)],
    ),
    "window of batches": (
        lambda: NUMBERS.batch(2, True).window(2, 1, drop_remainder=True),
        _windows([[a, a + 1] for a in range(0, 12, 2)], 2, 1, 1, True),  # type: ignore[misc]
    ),
    "window, unbatch": (lambda: NUMBERS.window(3, 2).unbatch(), [x for window in _windows(WHOLE, 3, 2, 1) for x in window]),
}
IN_ORDER = [name for name, (make, _) in PLANS.items() if "filter" not in name and "stream" not in name and "unbatch" not in name]


@pytest.mark.parametrize(("make", "whole"), PLANS.values(), ids=PLANS.keys())
@pytest.mark.parametrize("chosen", [{"executor": "inline"}, {"executor": "threads", "num_workers": 3}], ids=["inline", "threads"])
def test_it_is_what_plain_python_says(make: Callable[[], ps.Dataset], whole: list[Any], chosen: dict[str, Any]) -> None:
    assert [plain(item) for item in make().feed(**chosen)] == whole


@pytest.mark.parametrize(("make", "whole"), PLANS.values(), ids=PLANS.keys())
def test_saved_at_every_element_it_goes_on_with_other_options(make: Callable[[], ps.Dataset], whole: list[Any]) -> None:
    for stop in range(len(whole)):
        with make().feed(executor="threads", num_workers=2) as feed:
            head = [plain(next(feed)) for _ in range(stop)]
            state = json.loads(json.dumps(feed.state_dict()))
        with make().feed(executor="inline") as feed:
            feed.load_state_dict(state)
            assert head + [plain(item) for item in feed] == whole


@pytest.mark.parametrize("name", IN_ORDER)
def test_each_can_be_computed_alone(name: str) -> None:
    make, whole = PLANS[name]
    assert len(make()) == len(whole)
    assert [plain(make()[place]) for place in range(len(whole))] == whole


def test_windows_can_be_shuffled_and_sharded_and_resumed_on_other_ranks() -> None:
    def rank(number: int, index: int) -> ps.Dataset:
        return NUMBERS.window(3, 1).shuffle(seed=4).shard(number, index).repeat(2)

    windows = _windows(WHOLE, 3, 1, 1)
    order = [int(place) for place in ps.from_arrays(np.arange(COUNT)).shuffle(seed=4)]
    assert [plain(window) for window in NUMBERS.window(3, 1).shuffle(seed=4)] == [windows[place] for place in order]
    with rank(1, 0).feed() as feed:
        seen = [plain(next(feed)) for _ in range(5)]
        state = feed.state_dict()
    for index in range(2):
        with rank(2, index).feed() as feed:
            feed.load_state_dict(state)
            seen += [plain(item) for item in feed]
    assert sorted(seen) == sorted(windows * 2)


def test_a_state_of_windows_above_a_shard_does_not_move_to_other_ranks() -> None:
    with NUMBERS.shard(2, 0).window(2, 1).feed() as feed:
        next(feed)
        state = feed.state_dict()
    with NUMBERS.shard(3, 0).window(2, 1).feed() as feed, pytest.raises(StateMismatch, match="another number of shards"):
        feed.load_state_dict(state)


def test_a_state_of_ragged_batches_moves_to_other_ranks() -> None:
    def rank(number: int, index: int) -> ps.Dataset:
        return ps.from_arrays(np.arange(12)).map(_row).shard(number, index).ragged_batch(2)

    with rank(1, 0).feed() as feed:
        seen = next(feed)["label"].tolist()
        state = feed.state_dict()
    for index in range(2):
        with rank(2, index).feed() as feed:
            feed.load_state_dict(state)
            seen += [label for batch in feed for label in batch["label"].tolist()]
    assert sorted(seen) == list(range(12))


@pytest.mark.parametrize("behind", [False, True])
def test_rows_that_cannot_be_joined_are_refused_with_both_behind_what_fits(behind: bool) -> None:
    rows = [np.zeros((n, 2 if n < 5 else 3)) for n in range(1, 7)]
    ds = ps.from_source(rows)
    seen: list[Any] = []
    with (ds.filter(len) if behind else ds).ragged_batch(3).feed() as feed, pytest.raises(SpecError) as refusal:
        list(map(seen.append, feed))
    assert [batch["row_splits"].tolist() for batch in seen] == [[0, 1, 3, 6]]
    assert "float64[4, 2] in one and float64[5, 3] in the other" in refusal.value.what
    assert "index 3" in refusal.value.where
    assert "index 4" in refusal.value.where


def test_windows_are_written_into_recycled_memory_as_batches_are() -> None:
    with ps.from_arrays(np.zeros((20_000, 64))).window(16, 1, drop_remainder=True).feed(executor="threads", num_workers=2) as feed:
        addresses = [window.ctypes.data for window in feed]
    assert len(set(addresses)) < len(addresses) / 2
