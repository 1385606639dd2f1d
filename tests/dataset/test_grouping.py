from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataset.small import POSITIONS, Row, assert_refused, double, generated, numbers, refusals

WRONG: list[Row] = [
    ("batch 0", lambda: numbers(3).batch(0), "batch_size=0 is not a whole number >= 1", "batch()", "batch_size"),
    ("ragged_batch 0", lambda: numbers(3).ragged_batch(0), "batch_size=0 is not a whole number", "ragged_batch()", "batch_size"),
    (
        "ragged_batch of a word",
        lambda: numbers(3).ragged_batch(2, ragged="x"),
        "ragged='x' is no list of fields",
        "ragged_batch()",
        '("tokens",)',
    ),
    (
        "ragged_batch of a float",
        lambda: numbers(3).ragged_batch(2, ragged=[1.5]),
        "ragged=[1.5] is no list",
        "ragged_batch()",
        "keys of the",
    ),  # type: ignore[list-item]
    ("window of 0", lambda: numbers(3).window(0), "size=0 is not a whole number >= 1", "window()", "size"),
    ("window that stays", lambda: numbers(3).window(2, shift=0), "shift=0 is not a whole number >= 1", "window()", "shift"),
    ("window of stride 0", lambda: numbers(3).window(2, stride=0), "stride=0 is not a whole number >= 1", "window()", "stride"),
    ("padded_batch 0", lambda: numbers(3).padded_batch(0), "batch_size=0 is not a whole number", "padded_batch()", "batch_size"),
]


@refusals(WRONG)
def test_what_cannot_run_is_refused_where_it_is_written(call: Callable[[], Any], what: str, where: str, fix: str) -> None:
    assert_refused(call, what, where, fix)
