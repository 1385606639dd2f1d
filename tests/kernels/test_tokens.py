"""Windows of tokens from files: the C library and its twin give the same rows and name the same failures."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.kernels import tokens
from penstock.kernels.library import load_library

LIBRARY = load_library()
needs_library = pytest.mark.skipif(LIBRARY is None, reason="the C library was not built here")
DTYPES = [np.dtype(code) for code in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")]
SIZE = 40_000


@pytest.fixture(scope="module")
def descriptor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path: Path = tmp_path_factory.mktemp("tokens") / "random.bin"
    path.write_bytes(np.random.default_rng(5).bytes(SIZE))
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


def numbers(*values: int, dtype: Any = np.int64) -> NDArray[Any]:
    return np.array(values, dtype)


def read(descriptor: int, offset: int, length: int, dtype: str, bound: int = 0) -> tuple[list[int], tokens.TokenFailure | None]:
    out = np.zeros((1, length), np.int64)
    failure = tokens.read_windows(numbers(descriptor, dtype=np.int32), numbers(offset), np.dtype(dtype), bound, out)
    return out[0].tolist(), failure


@needs_library
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(DTYPES),
    st.one_of(st.integers(0, 70), st.sampled_from([4095, 4096, 4097, 32_769])),
    st.lists(st.one_of(st.integers(0, SIZE + 9), st.sampled_from([2**40])), max_size=6),
    st.sampled_from([0, 1, 128, 129, 255, 256, 32_768, 65_535, 65_536, 2**31, 2**32, 2**63]),
)
def test_the_library_equals_its_twin(descriptor: int, dtype: Any, length: int, places: list[int], bound: int) -> None:
    assert LIBRARY is not None
    results = []
    for function in (LIBRARY.read_windows, tokens.read_windows_twin):
        out, report = np.zeros((len(places), length), np.int64), np.zeros(2, np.int64)
        row = function(np.full(len(places), descriptor, np.int32), numbers(*places), dtype, bound, out, report)
        results.append((row, report.tolist(), out[: len(places) if row < 0 else row].tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_hold_the_tokens_of_the_file(descriptor: int, dtype: Any) -> None:
    whole = np.frombuffer(os.pread(descriptor, SIZE, 0), dtype)
    starts = numbers(0, 7, len(whole) - 1000, 7)
    out = np.zeros((4, 1000), np.int64)
    assert tokens.read_windows(np.full(4, descriptor, np.int32), starts * dtype.itemsize, dtype, 0, out) is None
    expected = whole.view(np.int64) if dtype.itemsize == 8 else whole
    assert all(row.tolist() == expected[start : start + 1000].tolist() for row, start in zip(out, starts.tolist(), strict=True))


def test_offsets_need_not_be_multiples_of_the_item_size(descriptor: int) -> None:
    row, failure = read(descriptor, 3, 5, "u2")
    assert failure is None
    assert row == np.frombuffer(os.pread(descriptor, 10, 3), "u2").tolist()


def test_a_file_that_ends_too_soon_is_a_short_row_with_the_bytes_that_are_there(descriptor: int) -> None:
    assert read(descriptor, SIZE - 6, 4, "u2")[1] == (0, tokens.SHORT, 6)
    assert read(descriptor, SIZE + 100, 1, "u2")[1] == (0, tokens.SHORT, 0)
    assert read(descriptor, 0, SIZE, "u2")[1] == (0, tokens.SHORT, SIZE)


def test_an_error_of_the_system_is_reported_with_its_number(descriptor: int, tmp_path: Path) -> None:
    assert read(2**31 - 1, 0, 4, "u2")[1] == (0, tokens.FAILED, errno.EBADF)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert read(folder, 0, 4, "u2")[1] == (0, tokens.FAILED, errno.EISDIR)
    finally:
        os.close(folder)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
def test_a_token_outside_the_bound_is_named_by_its_place(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "bounded.bin"
    values = np.arange(100).astype(dtype)
    values[60] = np.iinfo(dtype).min if dtype[0] == "i" else np.iinfo(dtype).max
    path.write_bytes(values.tobytes())
    opened = os.open(path, os.O_RDONLY)
    try:
        assert read(opened, 0, 60, dtype, bound=60)[1] is None
        assert read(opened, 0, 60, dtype, bound=59)[1] == (0, tokens.OUTSIDE, 59)
        assert read(opened, 0, 100, dtype, bound=100)[1] == (0, tokens.OUTSIDE, 60)
        assert read(opened, 0, 100, dtype)[1] is None
    finally:
        os.close(opened)


def test_arguments_that_the_c_could_not_survive_are_refused(descriptor: int) -> None:
    one = numbers(descriptor, dtype=np.int32)
    with pytest.raises(SpecError, match="offsets is 1-d float64"):
        tokens.read_windows(one, np.zeros(1), np.dtype("u2"), 0, np.zeros((1, 4), np.int64))
    with pytest.raises(SpecError, match="out has shape \\(2, 4\\), not \\(1, 4\\)"):
        tokens.read_windows(one, numbers(0), np.dtype("u2"), 0, np.zeros((2, 4), np.int64))
    with pytest.raises(SpecError, match="tokens of dtype >u2"):
        tokens.read_windows(one, numbers(0), np.dtype(">u2"), 0, np.zeros((1, 4), np.int64))
    with pytest.raises(SpecError, match="offsets from -1 to -1"):
        tokens.read_windows(one, numbers(-1), np.dtype("u2"), 0, np.zeros((1, 4), np.int64))
    with pytest.raises(SpecError, match="bound=-1 is outside"):
        tokens.read_windows(one, numbers(0), np.dtype("u2"), -1, np.zeros((1, 4), np.int64))
