from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock._contracts.transform import Scratch

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
