from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock._contracts.transform import BlockTransform, Scratch, Transform

SHAPES = st.lists(st.integers(0, 40), max_size=3).map(tuple)
DTYPES = st.sampled_from(["u1", "f4", "f8", "i8", ">i2", "c16"])


@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), SHAPES, DTYPES), min_size=1, max_size=10))
def test_scratch_gives_contiguous_arrays_of_any_shape_and_dtype_from_one_buffer_per_tag(
    requests: list[tuple[str, tuple[int, ...], str]],
) -> None:
    scratch = Scratch()
    for tag, shape, dtype in requests:
        array = scratch.take(tag, shape, dtype)
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.flags.c_contiguous
        assert array.flags.writeable
        array[...] = 1
        assert array.size == 0 or (array == 1).all()


def test_a_tag_gets_the_same_memory_again_and_two_tags_never_share() -> None:
    scratch = Scratch()
    first = scratch.take("decode", (100, 3), np.uint8)
    again = scratch.take("decode", (50, 2), np.float32)
    other = scratch.take("resize", (100, 3), np.uint8)
    assert np.shares_memory(first, again)
    assert not np.shares_memory(first, other)


def test_a_buffer_that_is_too_small_is_replaced_and_the_old_array_stays_valid() -> None:
    scratch = Scratch()
    small = scratch.take("decode", (10,), np.uint8)
    small[:] = 7
    large = scratch.take("decode", (100_000,), np.uint8)
    large[:] = 9
    assert (small == 7).all()
    assert not np.shares_memory(small, large)
    assert np.shares_memory(scratch.take("decode", (10,), np.uint8), large)


def test_an_array_of_scratch_is_a_view_so_that_the_engine_sees_that_it_must_be_copied() -> None:
    assert Scratch().take("decode", (3, 4), np.uint8).base is not None
    assert Scratch().take("decode", (4096,), np.uint8).base is not None


class Add:
    """The smallest transform."""

    field = out_field = "x"
    num_draws = 0

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        return np.asarray(value + 1)


class AddBlocks(Add):
    def apply_block(self, values: Any, draws: Any, scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any] | None:
        return np.asarray(values + 1)


def test_any_object_with_the_right_parts_is_a_transform() -> None:
    assert isinstance(Add(), Transform)
    assert not isinstance(Add(), BlockTransform)
    assert isinstance(AddBlocks(), BlockTransform)
    assert not isinstance(np.sqrt, Transform)
