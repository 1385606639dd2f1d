from __future__ import annotations

import numpy as np
import pytest

from penstock.errors import SpecError
from penstock.kernels.library import block, integer, place, require, require_out

INT64 = np.dtype(np.int64)


def test_a_place_names_function_and_argument() -> None:
    assert place("permute", "key") == "penstock.kernels.permute, argument 'key'"


@pytest.mark.parametrize(
    ("array", "got"),
    [
        ([1, 2], "list"),
        (np.zeros(2, np.int32), "1-d int32"),
        (np.zeros(2, ">i8"), "1-d >i8"),
        (np.zeros((2, 1), np.int64), "2-d int64"),
        (np.float64(1), "float64"),
    ],
)
def test_another_type_dtype_or_rank_is_an_error_that_says_what_came(array: object, got: str) -> None:
    with pytest.raises(SpecError) as caught:
        require("permute", "positions", array, INT64, 1)
    assert f"positions is {got}" in caught.value.what
    assert "1-d int64" in caught.value.what
    assert "permute, argument 'positions'" in caught.value.where
    assert "dtype int64" in caught.value.fix


def test_a_block_that_is_strided_or_unaligned_is_copied_and_any_other_is_not() -> None:
    straight = np.arange(6)
    strided = straight[::2]
    unaligned = np.frombuffer(bytes(1) + straight.tobytes(), np.int64, offset=1)
    assert block("f", "a", straight, INT64) is straight
    for array in (strided, unaligned):
        copied = block("f", "a", array, INT64)
        assert copied.flags.c_contiguous
        assert copied.flags.aligned
        assert copied.tolist() == array.tolist()


def test_another_length_is_an_error_with_both_lengths() -> None:
    with pytest.raises(SpecError, match=r"a has shape \(3,\), not \(4,\)") as caught:
        block("f", "a", np.arange(3), INT64, 4)
    assert "f, argument 'a'" in caught.value.where
    assert "shape (4,)" in caught.value.fix


def test_a_subclass_of_array_is_taken_as_an_array() -> None:
    assert block("f", "a", np.arange(3).view(np.recarray), INT64, 3).tolist() == [0, 1, 2]


def test_integers_of_numpy_become_python_integers() -> None:
    assert type(integer("f", "a", np.uint8(3), 0, 5)) is int  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1, 6, np.int64(9)])
def test_a_number_out_of_range_is_an_error_with_the_range(value: int) -> None:
    with pytest.raises(SpecError, match=rf"a={value} is outside 0..5") as caught:
        integer("f", "a", value, 0, 5)
    assert "f, argument 'a'" in caught.value.where
    assert "0..5" in caught.value.fix


def test_a_float_is_an_error_even_when_it_is_whole() -> None:
    with pytest.raises(SpecError, match=r"a is 2.0, not an integer") as caught:
        integer("f", "a", 2.0, 0, 5)  # type: ignore[arg-type]
    assert "f, argument 'a'" in caught.value.where
    assert "pass an integer" in caught.value.fix


def test_an_output_must_be_one_writeable_block() -> None:
    values = np.zeros(4, np.uint8)
    read_only = np.zeros((2, 3), np.int64)
    read_only.flags.writeable = False
    unaligned = np.frombuffer(bytearray(49), np.int64, offset=1).reshape(2, 3)
    cases = {"C-contiguous False": np.zeros((3, 2), np.int64).T, "writeable False": read_only, "aligned False": unaligned}
    for words, out in cases.items():
        with pytest.raises(SpecError, match=words) as caught:
            require_out("f", out, INT64, (2, 3), values)
        assert "f, argument 'out'" in caught.value.where
        assert "fresh array or a whole row" in caught.value.fix


def test_an_output_of_another_shape_is_an_error_with_both_shapes() -> None:
    with pytest.raises(SpecError, match=r"out has shape \(2, 3\), not \(2, 4\)"):
        require_out("f", np.zeros((2, 3), np.int64), INT64, (2, 4), np.zeros(1))


def test_an_output_in_the_memory_of_the_input_is_an_error() -> None:
    memory = np.zeros(12, np.int64)
    with pytest.raises(SpecError, match="lies in the memory of values") as caught:
        require_out("f", memory[2:8].reshape(2, 3), INT64, (2, 3), memory[6:])
    assert "copy of values" in caught.value.fix
