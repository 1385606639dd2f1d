from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock._engine.compute import filter_step
from penstock._ops.block import Block, ElementFailed
from penstock._ops.map import MapOp
from penstock._ops.streams import FilterOp, FlatMapOp
from penstock._ops.worker import WorkerContext


def block(values: list[Any]) -> Block:
    indices = np.arange(len(values), dtype=np.int64)
    return Block(np.zeros_like(indices), indices, indices.astype(np.uint64) * 0, rows=values)


def no_fives(value: int) -> int:
    if value == 5:
        raise ValueError("five")
    return value


STEPS = (FlatMapOp(range, "range"), MapOp(no_fives, "no_fives", 0, 0, False), FilterOp(bool, "bool"))


def test_results_know_the_input_that_they_came_from() -> None:
    out, origins = filter_step(STEPS, block([2, 0, 3]), None, WorkerContext(0))
    assert (out.rows(), origins.tolist()) == ([1, 1, 2], [0, 2, 2])


def test_a_failure_says_which_input_and_which_of_its_elements() -> None:
    with pytest.raises(ElementFailed) as failed:
        filter_step(STEPS, block([2, 7]), None, WorkerContext(0))
    assert (failed.value.offset, failed.value.inner, failed.value.stage) == (1, (1, 5), "no_fives")
    assert failed.value.key is not None
    assert failed.value.key[:2] == (0, 1)


def test_without_several_elements_per_input_the_input_itself_failed() -> None:
    with pytest.raises(ElementFailed) as failed:
        filter_step((FilterOp(bool, "bool"), FilterOp(no_fives, "no_fives")), block([0, 4, 5]), None, WorkerContext(0))
    assert (failed.value.offset, failed.value.inner) == (2, None)


def test_elements_are_left_out_one_after_the_other_before_the_step_where_they_fail() -> None:
    out, _ = filter_step(STEPS, block([8]), None, WorkerContext(0), [(1, 5), (1, 0)])
    assert out.rows() == [1, 2, 3, 4, 6, 7]
