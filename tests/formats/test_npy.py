"""Headers of .npy files, as NumPy writes them and as it does not."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RecordError
from penstock.formats.npy import HEAD_BYTES, MAGIC, NpyHeader, parse_npy


def saved(array: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def parsed(data: bytes) -> NpyHeader:
    return parse_npy(data[:HEAD_BYTES], len(data), "ids.npy")


def crafted(text: str, *, extra: int = 0) -> bytes:
    return MAGIC + b"\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(extra)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("dtype", ["<u2", ">i4", "|u1", "<f8", "<c16", "|b1", "<M8[s]"])
def test_what_numpy_writes_is_read_as_numpy_reads_it(version: tuple[int, int], dtype: str) -> None:
    array = np.zeros((3, 5), dtype)
    data = saved(array, version)
    header = parsed(data)
    assert (header.dtype, header.shape, header.fortran_order) == (array.dtype, (3, 5), False)
    assert data[header.offset :] == array.tobytes()


def test_fortran_order_scalars_and_empty_arrays_are_known() -> None:
    assert parsed(saved(np.zeros((3, 5), order="F"))).fortran_order
    assert parsed(saved(np.float32(1))).shape == ()
    assert parsed(saved(np.zeros(0, np.uint16))).shape == (0,)


def test_an_array_of_objects_is_refused_and_nothing_is_unpickled(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    array = np.empty(1, object)
    array[0] = Payload()
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    events: list[str] = []
    watching = [True]

    def hook(event: str, args: Any) -> None:
        if watching[0] and event.startswith("pickle"):
            events.append(event)

    sys.addaudithook(hook)
    try:
        with pytest.raises(RecordError, match="Python objects, which needs allow_pickle") as caught:
            parsed(file.getvalue())
    finally:
        watching[0] = False
    assert caught.value.where == "'ids.npy', offset 10"
    assert not events
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("data", "what", "offset"),
    [
        (b"", "the file begins with b''", 0),
        (b"PK\x03\x04more", "not as an .npy file does", 0),
        (MAGIC, "its version is missing", 6),
        (MAGIC + b"\x09\x00\x00\x00", "its version is 9.0; 1.0, 2.0 and 3.0 are known", 6),
        (MAGIC + b"\x01\x00\x10", "the header says that it has 16 bytes, and the file has 9 in all", 8),
        (MAGIC + b"\x02\x00\xff\xff\xff\x7f" + bytes(99), "the header says that it has 2147483647 bytes, and the file has 111", 8),
        (MAGIC + b"\x02\x00\x00\x00\x01\x00" + bytes(70_000), "has 65536 bytes; 10000 are allowed", 8),
        (crafted("{'descr'"), "no Python literal \\(SyntaxError\\)", 10),
        (crafted("[" * 5000), "no Python literal", 10),
        (crafted("__import__('os')"), "no Python literal \\(ValueError\\)", 10),
        (crafted("[1]"), "does not say descr, fortran_order and shape", 10),
        (crafted("{'descr': '<u2', 'fortran_order': False}"), "does not say descr, fortran_order and shape", 10),
        (crafted("{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,)}"), "'nonsense' is no dtype", 10),
        (crafted("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (1,)}", extra=2), "the items are records", 10),
        (crafted("{'descr': '(2,)<u2', 'fortran_order': False, 'shape': (1,)}", extra=4), "is no dtype", 10),
        (crafted("{'descr': '<U0', 'fortran_order': False, 'shape': (1,)}"), "not plain values", 10),
        (crafted("{'descr': '<u2', 'fortran_order': False, 'shape': (-1,)}"), "shape \\(-1,\\) or fortran_order False is none", 10),
        (crafted("{'descr': '<u2', 'fortran_order': 0, 'shape': (1,)}"), "or fortran_order 0 is none", 10),
        (crafted("{'descr': '<u2', 'fortran_order': False, 'shape': (2**70,)}"), "no Python literal", 10),
        (crafted("{'descr': '<u2', 'fortran_order': False, 'shape': (4611686018427387904, 4)}"), "it is cut", 77),
    ],
)
def test_a_damaged_header_is_an_error_that_names_file_and_offset(data: bytes, what: str, offset: int) -> None:
    with pytest.raises(RecordError, match=what) as caught:
        parsed(data)
    assert caught.value.where.startswith("'ids.npy', offset ")
    if "cut" not in what:
        assert caught.value.where.endswith(f" {offset}")


def test_every_cut_of_a_file_and_every_byte_behind_it_is_found() -> None:
    data = saved(np.arange(20, dtype=np.uint16))
    for size in range(len(data)):
        with pytest.raises(RecordError):
            parsed(data[:size])
    with pytest.raises(RecordError, match="the file has 167: it is cut"):
        parsed(data[:-1])
    with pytest.raises(RecordError, match="1 bytes stand behind the array, which ends at byte 168"):
        parsed(data + b"\0")


@given(st.binary(max_size=60), st.integers(0, 127))
def test_any_bytes_give_a_header_or_the_documented_error(noise: bytes, place: int) -> None:
    data = bytearray(saved(np.arange(4, dtype=np.uint16)))
    data[place : place + len(noise)] = noise
    try:
        header = parsed(bytes(data))
    except RecordError:
        return
    assert header.offset + int(np.prod(header.shape)) * header.dtype.itemsize == len(data)
