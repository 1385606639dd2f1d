"""SequenceExample: a context and lists of steps, there and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from fuzz_examples import damaged
from penstock.errors import PlanError, RecordError, SpecError

CONTEXT: dict[str, Any] = {"id": ps.FixedLenFeature((), "int64"), "lang": ps.FixedLenFeature((), bytes, b"en")}
LISTS: dict[str, Any] = {
    "frames": ps.FixedLenSequenceFeature((2,), "float32"),
    "words": ps.VarLenFeature(bytes),
    "tags": ps.FixedLenSequenceFeature((), "int64", allow_missing=True),
}
DATA = ps.encode_sequence_example({"id": 7}, {"frames": [[1.0, 2.0], [3.0, 4.0]], "words": [[b"a"], [], [b"b", b"c"]]}, CONTEXT, LISTS)


def test_declared_lists_come_with_their_shapes() -> None:
    context, lists = ps.decode_sequence_example(DATA, CONTEXT, LISTS)
    assert context == {"id": 7, "lang": b"en"}
    assert lists["frames"].tolist() == [[1, 2], [3, 4]]
    assert [step.tolist() for step in lists["words"]] == [[b"a"], [], [b"b", b"c"]]
    assert (lists["tags"].shape, lists["tags"].dtype) == ((0,), np.int64)


def test_without_features_everything_is_read() -> None:
    context, lists = ps.decode_sequence_example(DATA)
    assert context["id"].tolist() == [7]
    assert [step.tolist() for step in lists["frames"]] == [[1, 2], [3, 4]]
    assert lists["words"] == [[b"a"], [], [b"b", b"c"]]
    assert ps.decode_sequence_example(b"") == ({}, {})


def test_one_kind_of_features_reads_only_what_it_names() -> None:
    assert ps.decode_sequence_example(DATA, {"id": ps.FixedLenFeature((), "int64")}) == ({"id": 7}, {})
    context, lists = ps.decode_sequence_example(DATA, None, {"words": ps.VarLenFeature(bytes)})
    assert context == {}
    assert list(lists) == ["words"]


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3), max_size=5))
def test_steps_come_back(steps: list[list[int]]) -> None:
    data = ps.encode_sequence_example({}, {"s": steps})
    assert [step.tolist() for step in ps.decode_sequence_example(data)[1]["s"]] == steps
    declared = ps.decode_sequence_example(data, None, {"s": ps.VarLenFeature("int64")})[1]["s"]
    assert [step.tolist() for step in declared] == steps


@pytest.mark.parametrize(
    ("lists", "match", "where"),
    [
        ({"frames": ps.FixedLenSequenceFeature((3,), "float32")}, "'frames' has 2 values", "step 0"),
        ({"frames": ps.VarLenFeature("int64")}, "'frames' holds float32", "step 0"),
        ({"words": ps.FixedLenSequenceFeature((), bytes)}, "'words' has 0 values", "step 1"),
        ({"gone": ps.FixedLenSequenceFeature((), bytes)}, "no feature 'gone'", "feature 'gone'"),
    ],
)
def test_lists_that_are_not_what_was_declared_are_an_error_with_the_step(lists: Any, match: str, where: str) -> None:
    with pytest.raises(RecordError, match=match) as caught:
        ps.decode_sequence_example(DATA, None, lists)
    assert where in caught.value.where


def test_a_context_that_is_not_what_was_declared_is_an_error() -> None:
    with pytest.raises(RecordError, match="no feature 'gone'"):
        ps.decode_sequence_example(DATA, {"gone": ps.FixedLenFeature((), bytes)})


@pytest.mark.parametrize(
    ("context", "lists", "match"),
    [
        ({"id": 1}, {"words": []}, "there is no sequence 'frames'"),
        ({}, {"frames": []}, "has no 'id'"),
        ({"id": 1}, {"frames": [[1.0]]}, "1 items"),
        ({"id": 1}, {"frames": [], "other": []}, "does not name 'other'"),
        ({"id": 1}, {"frames": "text"}, "the sequence is str"),
        ({"id": 1}, {"frames": 5}, "the sequence is int"),
    ],
)
def test_what_was_not_declared_is_not_written(context: Any, lists: Any, match: str) -> None:
    with pytest.raises(SpecError, match=match):
        ps.encode_sequence_example(context, lists, CONTEXT, LISTS)


def test_nested_texts_of_steps_keep_every_byte() -> None:
    steps = [[b"a\0", b"b"], [[b"c\0"]], b"d\0"]
    assert ps.decode_sequence_example(ps.encode_sequence_example({}, {"s": steps}))[1]["s"] == [[b"a\0", b"b"], [b"c\0"], [b"d\0"]]


@pytest.mark.parametrize(
    ("sequences", "match", "where"),
    [
        (None, "sequences is NoneType, not a dict", "argument 'sequences'"),
        ([1], "sequences is list", "argument 'sequences'"),
        ({3: [1]}, "the name 3 is no str", "argument 'sequences'"),
        ({"\ud800": [1]}, "is no UTF-8", "argument 'sequences'"),
        ({"s": np.array(3)}, "ndarray without a dimension", "sequence 's'"),
        ({"s": bytearray(b"abc")}, "the sequence is bytearray", "sequence 's'"),
        ({"s": memoryview(b"abc")}, "the sequence is memoryview", "sequence 's'"),
        ({"s": {"a": 1}}, "the sequence is dict", "sequence 's'"),
        ({"s": {1, 2}}, "the sequence is set", "sequence 's'"),
        ({"s": [np.ma.masked_array([1, 2], [0, 1])]}, "masked array", "step 0"),
        ({"s": [1, [1, "a"]]}, "int, str have no place", "step 1"),
    ],
)
def test_what_is_no_sequence_of_steps_is_refused(sequences: Any, match: str, where: str) -> None:
    with pytest.raises(SpecError, match=match) as caught:
        ps.encode_sequence_example({}, sequences)
    assert caught.value.where.endswith(where)


def test_a_sequence_cannot_be_of_fixed_length() -> None:
    with pytest.raises(PlanError, match="FixedLenSequenceFeature"):
        ps.decode_sequence_example(DATA, None, {"words": ps.FixedLenFeature((), bytes)})


@given(st.integers(0, 2**32))
def test_damaged_records_give_elements_or_the_documented_error(seed: int) -> None:
    data = damaged(np.random.default_rng(seed), DATA)
    for arguments in ((), (CONTEXT, LISTS)):
        try:
            ps.decode_sequence_example(data, *arguments)
        except RecordError:
            continue
