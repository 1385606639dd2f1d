from __future__ import annotations

import tracemalloc
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from sources.gathering import gathered

from penstock._contracts.source import ColumnSource
from penstock.errors import LengthMismatch, PlanError
from penstock.sources.arrays import ArraySource
from penstock.testing import check_source

Pair = namedtuple("Pair", ["left", "right"])


def test_elements_are_rows_of_every_leaf_in_the_structure_of_the_tree() -> None:
    source = ArraySource({"image": np.arange(24).reshape(4, 3, 2), "more": (np.arange(4), [np.arange(4.0)])})
    assert isinstance(source, ColumnSource)
    assert len(source) == 4
    first, second = gathered(source, [3, 0])
    np.testing.assert_array_equal(first["image"], [[18, 19], [20, 21], [22, 23]])
    assert first["more"] == (3, [3.0])
    assert isinstance(first["more"][0], np.int64)
    assert second["more"] == (0, [0.0])


@pytest.mark.parametrize(
    "tree",
    [
        np.arange(10),
        {"one": np.arange(10)},
        {"a": np.arange(10), "b": np.arange(20).reshape(10, 2)},
        {"a": np.arange(10), "b": np.arange(10), "c": {"d": np.arange(10)}},
        Pair(np.arange(10), np.arange(10) * 2),
        [np.arange(10), (np.arange(10),)],
    ],
)
def test_trees_of_every_form_keep_the_laws_of_a_source(tree: Any) -> None:
    check_source(ArraySource(tree), again=lambda: ArraySource(tree))


@given(indices=st.lists(st.integers(0, 49), max_size=30), step=st.sampled_from([1, 2, -1]), wide=st.booleans())
def test_contiguous_and_strided_arrays_gather_alike_with_and_without_out(indices: list[int], step: int, wide: bool) -> None:
    base = np.arange(50 * 100 * 3).reshape(50 * (2 if step == 2 else 1), -1, 3)[::step]
    base = base if wide else base[:, :2]
    source = ArraySource(base)
    at = np.array(indices, np.int64)
    target = np.empty((len(indices), *base.shape[1:]), base.dtype)
    assert source.gather_columns(at, [target])[0] is target
    np.testing.assert_array_equal(target, base[at])
    np.testing.assert_array_equal(source.gather_columns(at, None)[0], base[at])


def test_sliding_windows_over_a_token_file_are_gathered_without_copying_the_file(tmp_path: Path) -> None:
    num_tokens, width = 4_000_000, 513
    np.save(tmp_path / "tokens.npy", np.arange(num_tokens, dtype=np.uint32))
    windows = sliding_window_view(np.load(tmp_path / "tokens.npy", mmap_mode="r"), width)
    source = ArraySource(windows)
    indices = np.random.default_rng(0).integers(0, len(windows), 300)
    out = [np.empty((300, width), np.uint32)]
    tracemalloc.start()
    try:
        source.gather_columns(indices, out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(out[0], indices[:, None] + np.arange(width))
    assert peak < 1_000_000
    assert type(gathered(source, [5])[0]) is np.ndarray


def test_columns_are_cast_when_out_has_another_dtype() -> None:
    out = [np.empty(3, np.float32)]
    ArraySource(np.arange(5)).gather_columns(np.array([4, 0, 1]), out)
    assert out[0].tolist() == [4.0, 0.0, 1.0]


@pytest.mark.parametrize("bad", [5, -1])
def test_an_index_outside_the_arrays_is_an_error_and_never_another_row(bad: int) -> None:
    source = ArraySource({"x": np.arange(5)})
    with pytest.raises(LengthMismatch, match="5 rows") as caught:
        source.gather_columns(np.array([0, bad]), None)
    assert str(bad) in caught.value.what
    assert "from_arrays" in caught.value.where
    assert "0..4" in caught.value.fix


def test_a_row_cannot_be_written_to_so_the_data_stay_as_they_are() -> None:
    data = np.zeros((3, 2))
    row = gathered(ArraySource(data), [1])[0]
    with pytest.raises(ValueError, match="read-only"):
        row += 1
    assert data.flags.writeable
    assert not data.any()


def test_columns_are_copies_that_may_be_written_to() -> None:
    data = np.zeros((3, 2))
    column = ArraySource(data).gather_columns(np.array([1]), None)[0]
    column += 1
    assert not data.any()


def test_an_object_array_gives_its_objects() -> None:
    data = np.array(["a", b"b", None], object)
    assert gathered(ArraySource(data), [2, 0]) == [None, "a"]


def test_a_list_of_numbers_is_one_array_and_whatever_has_array_is_taken() -> None:
    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return np.arange(3)

    assert gathered(ArraySource([[1, 2], [3, 4]]), [1])[0].tolist() == [3, 4]
    assert gathered(ArraySource([True, False]), [0]) == [np.True_]
    assert gathered(ArraySource({"x": Tensor()}), [2]) == [{"x": 2}]


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        ([-1, 2**63 - 1], np.int64),
        ([2**53, 0.5], np.float64),
        ([np.float32(0.1), np.float32(3)], np.float32),
    ],
)
def test_the_numbers_of_a_list_stay_what_they_are(numbers: list[Any], dtype: Any) -> None:
    rows = gathered(ArraySource(numbers), [0, len(numbers) - 1])
    assert [row.dtype for row in rows] == [dtype, dtype]
    assert [row.tolist() for row in rows] == [np.array(numbers[place], dtype).tolist() for place in (0, -1)]


@pytest.mark.parametrize("numbers", [[2**63, 1], [2**63, -1], [2**64, 0.5], [2**53 + 1, 0.5], [2**53 + 1, 1j], [[1, 2], [3]]])
def test_a_list_whose_numbers_no_array_holds_is_refused(numbers: list[Any]) -> None:
    with pytest.raises(PlanError, match="no array holds the numbers of the list of 2 rows as they are") as caught:
        ArraySource(numbers)
    assert caught.value.where == "from_arrays"
    assert "np.array(list, dtype)" in caught.value.fix


def test_a_list_of_another_class_is_a_list() -> None:
    class Row(list[Any]):
        pass

    assert gathered(ArraySource({"a": Row([np.arange(3), np.arange(3.0)])}), [2]) == [{"a": [2, 2.0]}]
    assert gathered(ArraySource(Row([5, 6])), [1]) == [6]


@pytest.mark.parametrize(
    ("tree", "what", "fix"),
    [
        ({"x": np.zeros(3), "y": np.zeros(4)}, "['x'] has 3 rows, ['y'] has 4", "same first dimension"),
        ({"x": np.zeros(3), "y": np.array(1)}, "['y'] has shape ()", "first dimension counts"),
        (np.float32(1), "the tree has shape ()", "first dimension counts"),
        ({}, "empty dict", "at least one array"),
        ([], "empty list", "at least one array"),
        ({"x": [1, 2**70]}, "['x'] is of type list, not an array", "np.asarray"),
        ({"x": "abc"}, "['x'] is of type str, not an array", "toarray() of a sparse matrix"),
        (["a", "b"], "leaf [0] is of type str, not an array", "from_source"),
        (3, "the tree is of type int, not an array", "from_source"),
        (np.ma.masked_array([1, 2], [True, False]), "masked array", "filled"),
    ],
)
def test_what_is_no_tree_of_equally_long_arrays_is_an_error_that_names_the_leaf(tree: Any, what: str, fix: str) -> None:
    with pytest.raises(PlanError) as caught:
        ArraySource(tree)
    assert what in caught.value.what
    assert "from_arrays" in caught.value.where
    assert fix in caught.value.fix


def test_no_rows_are_a_source_of_length_zero() -> None:
    source = ArraySource({"x": np.zeros((0, 3))})
    assert len(source) == 0
    assert gathered(source, []) == []
    assert source.gather_columns(np.array([], np.int64), None)[0].shape == (0, 3)
    assert source.fingerprint()["count"] == 0


def test_the_fingerprint_changes_with_values_shape_dtype_names_and_length() -> None:
    data = np.arange(12)
    changed = data.copy()
    changed[5] = 0
    trees: list[Any] = [data, changed, data.reshape(6, 2), data.astype(np.int32), {"x": data}, {"y": data}, data[:11], data.astype("M8[s]")]
    prints = [ArraySource(tree).fingerprint() for tree in trees]
    assert all(one != other for place, one in enumerate(prints) for other in prints[:place])
    assert prints[0] == ArraySource(data.copy()).fingerprint()


def test_the_fingerprint_of_a_large_array_reads_first_and_last_row_and_a_bounded_part() -> None:
    data = np.zeros((100, 100_000), np.uint8)
    before = ArraySource(data).fingerprint()
    for row in (0, 99):
        data[row, 0] = 1
        assert ArraySource(data).fingerprint() != before
        data[row, 0] = 0
    words = np.array([f"word {number}" for number in range(5000)], object)
    changed = words.copy()
    changed[-1] = "another"
    assert ArraySource(words).fingerprint() != ArraySource(changed).fingerprint()


def test_label_and_describe_say_what_it_is() -> None:
    source = ArraySource({"x": np.zeros((4, 2), np.uint8), "y": np.zeros(4)})
    assert source.label() == "from_arrays(['x']: uint8[2], ['y']: float64[], 4 elements)"
    assert source.describe(3) == "row 3 of the arrays"
    assert source.leaves() == [((2,), np.dtype(np.uint8)), ((), np.dtype(np.float64))]
