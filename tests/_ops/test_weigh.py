from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock._ops.block import Block, ElementFailed
from penstock._ops.streams import Gathered, GatherOp, WeighOp, whole_number
from penstock._ops.worker import WorkerContext
from penstock.errors import SpecError

NONE = np.zeros(0, np.int64)


def block(rows: list[Any]) -> Block:
    return Block(np.zeros(len(rows), np.int64), np.arange(len(rows)) + 50, np.zeros(len(rows), np.uint64), rows=rows)


def test_the_element_whose_weight_failed_is_named() -> None:
    with pytest.raises(ElementFailed) as caught:
        WeighOp(len, "len").apply(block(["a", 3]), NONE, NONE, WorkerContext(0))
    assert (caught.value.offset, caught.value.stage) == (1, "len")
    assert isinstance(caught.value.error, TypeError)


def test_a_group_becomes_an_element_and_the_places_in_use_are_counted() -> None:
    worker = WorkerContext(0)
    op = GatherOp(lambda values, layout: "".join(values), "join", lambda text: (len(text), 4))
    found = op.apply(block([Gathered(("a", "b"), None), Gathered(("c",), None)]), NONE, NONE, worker)
    assert found.rows() == ["ab", "c"]
    assert worker.take_packed() == (3, 8)
    assert worker.take_packed() == (0, 0)


def test_a_group_that_fails_is_named_and_its_block_is_not_counted() -> None:
    worker = WorkerContext(0)
    op = GatherOp(lambda values, layout: values[1], "second", lambda text: (1, 4))
    with pytest.raises(ElementFailed) as caught:
        op.apply(block([Gathered(("a", "b"), None), Gathered(("c",), None)]), NONE, NONE, worker)
    assert (caught.value.offset, caught.value.stage) == (1, "second")
    assert isinstance(caught.value.error, IndexError)
    assert worker.take_packed() == (0, 0)


@pytest.mark.parametrize("value", [0, 3, np.int64(2), np.uint8(3), np.array(1)])
def test_a_whole_number_of_any_kind_is_one(value: Any) -> None:
    number = whole_number(value, "a class", 4, "there()")
    assert type(number) is int
    assert number == value


@pytest.mark.parametrize("value", [-1, 4, 1.0, "1", None, True, [1], np.array([1, 2])])
def test_what_is_no_class_is_refused(value: Any) -> None:
    with pytest.raises(SpecError) as caught:
        whole_number(value, "a class", 4, "rejection_resample(f)")
    assert caught.value.what == f"{value!r} is not a class"
    assert caught.value.where == "rejection_resample(f)"
    assert caught.value.fix == "return a whole number in 0..3"


def test_a_length_has_no_upper_bound() -> None:
    assert whole_number(10**12, "a length", None, "there()") == 10**12
    with pytest.raises(SpecError) as caught:
        whole_number(-1, "a length", None, "there()")
    assert caught.value.fix == "return a whole number >= 0"
