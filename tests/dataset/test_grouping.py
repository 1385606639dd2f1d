from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataset.small import Row, assert_refused, numbers, refusals

WRONG: list[Row] = [
    ("batch 0", lambda: numbers(3).batch(0), "batch_size=0 is not a whole number >= 1", "batch()", "batch_size"),
    ("padded_batch 0", lambda: numbers(3).padded_batch(0), "batch_size=0 is not a whole number", "padded_batch()", "batch_size"),
]


@refusals(WRONG)
def test_what_cannot_run_is_refused_where_it_is_written(call: Callable[[], Any], what: str, where: str, fix: str) -> None:
    assert_refused(call, what, where, fix)
