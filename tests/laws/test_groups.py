"""ragged_batch and window: what plain Python says, delivered, resumed at every element, and computed one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from feeds import resumed
from laws.plans import plain
from sources.streams import Numbers

import penstock as ps
from penstock.errors import SpecError

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


NUMBERS = ps.from_arrays(np.arange(COUNT))
WHOLE = list(range(COUNT))
EVEN = [number for number in WHOLE if number % 2 == 0]
FIELDS = ("tokens",)
PLANS: dict[str, tuple[Callable[[], ps.Dataset], list[Any]]] = {
    "ragged": (lambda: NUMBERS.map(_row).ragged_batch(4), _ragged(WHOLE, 4)),
    "ragged, full": (lambda: NUMBERS.map(_row).ragged_batch(4, True, FIELDS).repeat(2), _ragged(WHOLE, 4, True) * 2),
    "ragged behind a filter": (lambda: NUMBERS.filter(_even).map(_row).ragged_batch(3).repeat(2), _ragged(EVEN, 3) * 2),
    "ragged of passes behind a filter": (lambda: NUMBERS.filter(_even).repeat(2).map(_row).ragged_batch(3), _ragged(EVEN * 2, 3)),
    "ragged of a stream": (lambda: ps.from_stream(Numbers(COUNT)).map(_row).ragged_batch(5, ragged=FIELDS), _ragged(WHOLE, 5)),
    "window": (lambda: NUMBERS.window(3), _windows(WHOLE, 3, 3, 1)),
    "window, overlapping": (lambda: NUMBERS.window(4, 1), _windows(WHOLE, 4, 1, 1)),
    "window, strides": (lambda: NUMBERS.window(3, 2, 4, True).repeat(2), _windows(WHOLE, 3, 2, 4, True) * 2),
    "window of passes": (lambda: NUMBERS.repeat(2).window(5, 4), _windows(WHOLE * 2, 5, 4, 1)),
    "window, batch": (
        lambda: NUMBERS.window(3, 1, 2, True).batch(4),
        [_windows(WHOLE, 3, 1, 2, True)[start : start + 4] for start in range(0, 9, 4)],
    ),
    "window of batches": (
        lambda: NUMBERS.batch(2, True).window(2, 1, drop_remainder=True),
        _windows([[a, a + 1] for a in range(0, 12, 2)], 2, 1, 1, True),  # type: ignore[misc]
    ),
}


@pytest.mark.parametrize(("make", "whole"), PLANS.values(), ids=PLANS.keys())
def test_saved_at_every_element_it_goes_on_with_other_options(make: Callable[[], ps.Dataset], whole: list[Any]) -> None:
    for stop in range(len(whole)):
        with make().feed(executor="threads", num_workers=2) as feed:
            head = [plain(next(feed)) for _ in range(stop)]
            state = json.loads(json.dumps(feed.state_dict()))
        assert head + [plain(item) for item in resumed(make(), state, executor="inline")] == whole


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
