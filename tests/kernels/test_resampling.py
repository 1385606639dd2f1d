"""Antialiased resizing: the C library and its twin give the same bytes, whatever the sizes, dtypes and strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.kernels.resampling import DTYPES, resample, resample_twin, way

EDGES = st.one_of(st.integers(1, 12), st.integers(1, 90))


def by_twin(values: NDArray[Any], out: NDArray[Any], interpolation: str) -> NDArray[Any]:
    rows, columns = (
        way(values.shape[axis], out.shape[axis], interpolation, values.dtype == np.uint8, bool(axis) and interpolation == "cubic")
        for axis in (0, 1)
    )
    resample_twin(values, 0, rows, columns, np.empty(0, np.uint8), out)
    return out


def picture(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> NDArray[Any]:
    noise = np.random.default_rng(seed).integers(0, 256, (*shape, dtype.itemsize), np.uint8)
    if dtype.kind in "bf":  # any bytes are whole numbers, but no others
        return (noise[..., 0] * 1.5 > 99).astype(dtype) if dtype.kind == "b" else (noise[..., 0] * 1.7 - 99).astype(dtype)
    return np.where(noise[..., :1] < 60, np.uint8(255), noise).view(dtype)[..., 0]


@given(
    st.tuples(EDGES, EDGES),
    st.tuples(EDGES, EDGES),
    st.integers(1, 6),
    st.sampled_from(DTYPES),
    st.sampled_from(["linear", "cubic"]),
    st.sampled_from([1, -1]),
    st.integers(0, 9),
)
@example((300, 7), (2, 200), 3, DTYPES[0], "cubic", 1, 0)
def test_the_library_equals_its_twin(
    before: tuple[int, int], after: tuple[int, int], channels: int, dtype: np.dtype[Any], interpolation: str, step: int, seed: int
) -> None:
    big = picture((before[0] + 2, before[1] + 3, channels), dtype, seed)
    values = big[1:-1, 2:-1][::step]
    memory = np.full(after[0] * after[1] * channels * dtype.itemsize + 128, 0xA5, np.uint8)
    ours = memory[64:-64].view(dtype).reshape(*after, channels)
    assert resample(values, ours, interpolation) is ours
    assert ours.tobytes() == by_twin(values.copy(), np.empty_like(ours), interpolation).tobytes()
    assert set(memory[:64]) == set(memory[-64:]) == {0xA5}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_a_picture_of_one_value_stays_that_and_a_size_that_stays_changes_nothing(dtype: np.dtype[Any], interpolation: str) -> None:
    for before in (1, 2, 7, 499):
        for after in (1, 3, 8, 224):
            plain = np.full((before, 2, 3), 251).astype(dtype)
            assert np.allclose(resample(plain, np.empty((after, 5, 3), dtype), interpolation), plain[0, 0])
    noise = picture((20, 30, 3), dtype, 1)
    assert np.array_equal(resample(noise, np.empty_like(noise), interpolation), noise)


def test_arguments_that_the_c_could_not_survive_are_refused() -> None:
    good = np.zeros((4, 4, 3), np.uint8)
    for values, out, text in (
        (good.astype(np.int64), good, r"values is int64\[4, 4, 3\]"),
        (good, good.copy()[:, :0], r"and out \[4, 0, 3\]"),
        (good, np.zeros((2, 2, 4), np.uint8), r"out has shape \(2, 2, 4\), not \(2, 2, 3\)"),
        (good, good[:2], "out lies in the memory of values"),
    ):
        with pytest.raises(SpecError, match=text):
            resample(values, out, "linear")
