from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _contracts.test_element import Tensor

from penstock._ops.block import Block, ElementFailed
from penstock._ops.streams import FlatMapOp, rows_of
from penstock.errors import SpecError
from penstock.testing.runs import plain


def block(rows: list[Any]) -> Block:
    return Block(np.zeros(len(rows), np.int64), np.arange(len(rows)) + 50, np.zeros(len(rows), np.uint64), rows=rows)


def origins(rows: list[Any]) -> Any:
    return np.arange(len(rows)) * 10


@pytest.mark.parametrize("element", [{"x": 7}, "text"])
def test_one_element_from_a_flat_map_is_refused_and_not_taken_for_its_keys_or_characters(element: Any) -> None:
    with pytest.raises(ElementFailed) as failed:
        FlatMapOp(lambda n: element, "one").filter_step(block([7]), origins([7]))
    assert isinstance(failed.value.error, SpecError)
    assert "[element]" in failed.value.error.fix


def test_unbatch_takes_what_batch_takes_as_an_array() -> None:
    element = {"tensor": Tensor(np.arange(4).reshape(2, 2)), "list": [1.5, 2], "lists": [[True], [False]], "texts": np.array(["a", "b"])}
    rows = FlatMapOp(rows_of, "unbatch").filter_step(block([element]), origins([0]))[0].rows()
    assert [type(row["tensor"]) for row in rows] == [np.ndarray, np.ndarray]
    assert [plain(row) for row in rows] == [
        {"tensor": [0, 1], "list": 1.5, "lists": [True], "texts": "a"},
        {"tensor": [2, 3], "list": 2.0, "lists": [False], "texts": "b"},
    ]
    assert FlatMapOp(rows_of, "unbatch").filter_step(block([{"x": []}]), origins([0]))[0].rows() == []


@pytest.mark.parametrize(
    ("element", "words"),
    [
        ({"x": np.zeros(2), "y": np.zeros(3)}, "[(2,), (3,)]"),
        (Tensor(np.array(3)), "[()]"),
        ({"x": [1, 2], "y": [1, 2, 3]}, "[(2,), (3,)]"),
        ({"x": [[1], [2, 3]]}, "['list']"),
        ({"x": ["a"], "y": [1]}, "['str', (1,)]"),
        ({"x": np.zeros(2), "y": 3}, "[(2,), 'int']"),
        (np.array(3), "[()]"),
        ({}, "[]"),
    ],
)
def test_unbatch_refuses_what_has_no_common_first_dimension(element: Any, words: str) -> None:
    with pytest.raises(ElementFailed) as caught:
        FlatMapOp(rows_of, "unbatch").filter_step(block([element]), origins([0]))
    error = caught.value.error
    assert isinstance(error, SpecError)
    assert error.what == f"unbatch needs arrays with equal first dimensions, got {words}"
    assert error.where == "unbatch()"
    assert "unbatch what batch() made" in error.fix
