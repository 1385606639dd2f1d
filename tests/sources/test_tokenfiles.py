"""What files of tokens hold: .npy by their headers, raw ones as they are said to."""

from __future__ import annotations

import io
import struct
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import penstock as ps
from penstock._contracts.transform import Scratch
from penstock._storage import open_storage
from penstock.errors import PlanError, RecordError
from penstock.sources.tokens import Outside, find_tokens, read_spans


def found(folder: Path, dtype: Any = None, offset: int | None = None) -> Any:
    return find_tokens(open_storage(folder / "*", "read_tokens"), dtype, offset)


def test_npy_and_raw_files_of_one_dtype_go_together(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(5, dtype=np.int32))
    np.arange(7, dtype=np.int32).tofile(tmp_path / "b.bin")
    (tmp_path / "c.bin").touch()
    files = found(tmp_path, "int32")
    assert (files.dtype, files.offsets.tolist(), files.counts.tolist()) == (np.int32, [128, 0, 0], [5, 7, 0])


def test_an_npy_file_is_known_by_its_first_bytes_whatever_its_name(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(5, dtype=np.uint8))
    (tmp_path / "a.npy").rename(tmp_path / "a.bin")
    assert found(tmp_path).counts.tolist() == [5]
    (tmp_path / "b.npy").write_bytes(bytes(10))
    with pytest.raises(RecordError, match=r"not as an \.npy file does"):
        found(tmp_path, np.uint8)


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.zeros((4, 3), np.uint16), "has shape \\(4, 3\\) and dtype <u2, not one dimension of integers"),
        (np.uint16(3), "has shape \\(\\)"),
        (np.zeros(4), "dtype <f8"),
        (np.zeros(4, bool), "dtype |b1"),
        (np.zeros(4, ">u2"), "dtype >u2, not one dimension of integers in the byte order of this machine"),
        (np.zeros(4, "U3"), "dtype <U3"),
    ],
)
def test_an_array_that_is_no_row_of_tokens_is_refused(tmp_path: Path, array: Any, what: str) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(RecordError, match=what) as caught:
        found(tmp_path)
    assert caught.value.where == f"{str(tmp_path / 'a.npy')!r}, offset 10"


def test_an_array_of_objects_is_refused_and_nothing_is_unpickled(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    array = np.empty(1, object)
    array[0] = Payload()
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    events: list[str] = []
    watching = [True]

    def hook(event: str, args: Any) -> None:
        if watching[0] and event.startswith("pickle"):
            events.append(event)

    sys.addaudithook(hook)
    try:
        with pytest.raises(RecordError, match=r"dtype \|O, not one dimension of integers"):
            found(tmp_path)
    finally:
        watching[0] = False
    assert not events
    assert not (tmp_path / "ran").exists()


def saved(array: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_header_is_read(tmp_path: Path, version: tuple[int, int]) -> None:
    (tmp_path / "a.npy").write_bytes(saved(np.arange(5, dtype=np.int16), version))
    files = found(tmp_path)
    assert (files.dtype, files.counts.tolist()) == (np.int16, [5])


def crafted(text: str, *, extra: int = 0) -> bytes:
    return MAGIC + b"\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(extra)


MAGIC = b"\x93NUMPY"


@pytest.mark.parametrize(
    ("data", "what", "offset"),
    [
        (b"", "the file begins with b''", 0),
        (b"PK\x03\x04more", "not as an .npy file does", 0),
        (MAGIC, "expected 8 bytes got 6", 6),
        (MAGIC + b"\x09\x00\x00\x00", "of an unknown version: \\(9, 0\\)", 6),
        (MAGIC + b"\x01\x00\x10", "expected 2 bytes got 1", 6),
        (MAGIC + b"\x02\x00\xff\xff\xff\x7f" + bytes(99), "expected 2147483647 bytes got 99", 6),
        (MAGIC + b"\x02\x00\x00\x28\x00\x00" + bytes(70_000), "info length \\(10240\\) is large", 6),
        (crafted("{'descr'"), "header is damaged, ", 6),
        (crafted("[" * 5000), "header is damaged, ", 6),
        (crafted("__import__('os')"), "header is damaged, ", 6),
        (crafted("[1]"), "Header is not a dictionary", 6),
        (crafted("{'descr': '<u2', 'fortran_order': False}"), "does not contain the correct keys", 6),
        (crafted("{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,)}"), "not a valid dtype descriptor: 'nonsense'", 6),
        (crafted("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (1,)}", extra=2), "of integers", 10),
        (crafted("{'descr': '(2,)<u2', 'fortran_order': False, 'shape': (1,)}", extra=4), "of integers", 10),
        (crafted("{'descr': '<U0', 'fortran_order': False, 'shape': (1,)}"), "of integers", 10),
        (crafted("{'descr': '<u2', 'fortran_order': False, 'shape': (-1,)}"), "shape \\(-1,\\)", 10),
        (crafted("{'descr': '<u2', 'fortran_order': 0, 'shape': (1,)}"), "fortran_order is not a valid bool: 0", 6),
        (crafted("{'descr': '<u2', 'fortran_order': False, 'shape': (4611686018427387904, 4)}"), "not one dimension", 10),
    ],
)
def test_a_damaged_header_is_an_error_that_names_file_and_offset(tmp_path: Path, data: bytes, what: str, offset: int) -> None:
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(RecordError, match=what) as caught:
        found(tmp_path)
    assert caught.value.where == f"{str(tmp_path / 'a.npy')!r}, offset {offset}"


def test_every_cut_of_an_npy_file_and_every_byte_behind_it_is_found(tmp_path: Path) -> None:
    data, path = saved(np.arange(20, dtype=np.uint16)), tmp_path / "a.npy"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(RecordError):
            found(tmp_path)
    path.write_bytes(data[:-1])
    with pytest.raises(RecordError, match="the file has 167: it is cut"):
        found(tmp_path)
    path.write_bytes(data + b"\0")
    with pytest.raises(RecordError, match="the array ends at byte 168, and the file has 169"):
        found(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.integers(0, 127))
def test_any_header_is_read_as_numpy_reads_it_or_is_the_documented_error(tmp_path: Path, noise: bytes, place: int) -> None:
    data = bytearray(saved(np.arange(4, dtype=np.uint16)))
    data[place : place + len(noise)] = noise
    (tmp_path / "a.npy").write_bytes(data)
    try:
        files = found(tmp_path)
    except RecordError:
        return
    array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    assert (files.dtype, files.counts.tolist()) == (array.dtype, [len(array)])


@pytest.mark.parametrize(
    ("dtype", "what"),
    [
        (None, "is no .npy file, so it does not say what its tokens are"),
        ("float32", "dtype='float32' is <f4, not integers in the byte order of this machine"),
        (">u2", "dtype='>u2' is >u2, not integers"),
        ("word", "dtype='word' is none"),
    ],
)
def test_a_raw_file_needs_a_dtype_that_tokens_can_have(tmp_path: Path, dtype: Any, what: str) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(8))
    with pytest.raises(PlanError, match=what):
        found(tmp_path, dtype)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint8, None])
def test_an_archive_is_not_read_as_raw_tokens(tmp_path: Path, dtype: Any) -> None:
    np.savez(tmp_path / "a.npz", ids=np.arange(1000, dtype=np.uint16))
    with pytest.raises(RecordError, match="the file looks like a zip archive, not like tokens") as caught:
        found(tmp_path, dtype)
    assert caught.value.where.endswith("a.npz', offset 0")
    assert "which makes .npy files of an .npz" in caught.value.fix


@pytest.mark.parametrize("head", [b"PK\x03\x04", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"BZh9", b"\xff\xfe", b"PAR1"])
def test_tokens_may_begin_with_the_few_bytes_that_mark_an_archive(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "a.bin").write_bytes((head + b"\xfe" * 16)[:16])
    assert found(tmp_path, np.uint16).counts.tolist() == [8]


@pytest.mark.parametrize(("written", "dtype"), [("<i4", np.uint16), ("<i8", np.uint16), ("<i8", np.int32)])
def test_tokens_are_not_read_as_narrower_integers(tmp_path: Path, written: str, dtype: Any) -> None:
    np.arange(100, dtype=written).tofile(tmp_path / "a.bin")
    with pytest.raises(RecordError, match="every second token is 0, as in a file of wider integers"):
        found(tmp_path, dtype)
    assert found(tmp_path, dtype, 0).counts.tolist() == [100 * np.dtype(written).itemsize // np.dtype(dtype).itemsize]
    assert found(tmp_path, written).counts.tolist() == [100]


def test_a_raw_file_that_is_no_whole_number_of_tokens_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(11))
    with pytest.raises(RecordError, match="the file has 11 bytes, 3 more than a whole number of uint32 tokens") as caught:
        found(tmp_path, np.uint32)
    assert caught.value.where.endswith("a.bin', offset 8")


def test_kinds_that_do_not_fit_each_other_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(4, np.uint16))
    with pytest.raises(PlanError, match="dtype=uint32 was given, and the header says uint16"):
        found(tmp_path, np.uint32)
    np.save(tmp_path / "b.npy", np.zeros(4, np.uint32))
    with pytest.raises(PlanError, match=r"a.npy' holds uint16 and .*b.npy' holds uint32"):
        found(tmp_path)


def shard(dtype: str, count: int, *, magic: int = 0, version: int = 1) -> bytes:
    """A shard of llm.c, of fewer or more tokens than its header says."""
    header = np.zeros(256, "<i4")
    header[:3] = magic or {"u2": 20240520, "u4": 20240801}[dtype], version, 1000
    return header.tobytes() + np.arange(count, dtype=dtype).tobytes()


@pytest.mark.parametrize(("dtype", "version"), [("u2", 1), ("u4", 7)])
def test_the_header_of_a_shard_of_llm_c_is_no_token(tmp_path: Path, dtype: str, version: int) -> None:
    for number in range(2):
        (tmp_path / f"{number}.bin").write_bytes(shard(dtype, 1000, version=version))
    for declared in (None, dtype):
        files = found(tmp_path, declared)
        assert (files.dtype, files.offsets.tolist(), files.counts.tolist()) == (np.dtype(dtype), [1024] * 2, [1000] * 2)
    tokens = ps.read_tokens(tmp_path / "*.bin", 99)
    assert [tokens[k]["tokens"].tolist() for k in (0, 10)] == [list(range(100))] * 2
    assert tokens[0]["tokens"].tolist() == ps.read_tokens(tmp_path / "0.bin", 99, dtype=dtype, offset=1024)[0]["tokens"].tolist()
    with pytest.raises(PlanError, match=f"dtype=int32 was given, and the header says {np.dtype(dtype)}"):
        found(tmp_path, "int32")
    (tmp_path / "0.bin").write_bytes(shard(dtype, 999, version=version))
    with pytest.raises(RecordError, match=r"the header says 1000 .* tokens, which end at byte .*, and the file has ") as caught:
        found(tmp_path)
    assert caught.value.where.endswith("0.bin', offset 8")


def test_tokens_that_only_begin_like_a_shard_are_tokens(tmp_path: Path) -> None:
    for data in (shard("u2", 0, version=1000), shard("u2", 0)[:8], b"LITPKDS!" * 8):
        (tmp_path / "a.bin").write_bytes(data)
        assert found(tmp_path, "u1").counts.tolist() == [len(data)]


@pytest.mark.parametrize(("code", "dtype"), [(1, "u1"), (2, "i1"), (3, "i2"), (4, "i4"), (5, "i8"), (8, "u2")])
def test_a_chunk_of_lit_gpt_says_its_dtype_and_the_index_of_megatron_that_of_its_data(tmp_path: Path, code: int, dtype: str) -> None:
    head = b"LITPKDS" + struct.pack("<QBQ", 1, code, 50)
    (tmp_path / "a.bin").write_bytes(head + np.arange(100, dtype=dtype).tobytes())
    assert ps.read_tokens(tmp_path / "a.bin", 99)[0]["tokens"].tolist() == list(range(100))
    (tmp_path / "a.bin").unlink()
    for mark, kind in ((b"MMIDIDX", "<QBQQ"), (b"TNTIDX", "<QQQQ")):
        (tmp_path / "a.idx").write_bytes(mark + bytes(2) + struct.pack(kind, 1, code, 1, 2) + bytes(40))
        with pytest.raises(RecordError, match="the file looks like an index of Megatron, not like tokens") as caught:
            found(tmp_path, np.uint8)
        assert caught.value.fix.startswith("read the documents with read_megatron")
        assert caught.value.fix.endswith(f"dtype=np.{np.dtype(dtype)}")


@pytest.mark.parametrize("offset", [0, 1, 7, 24, 1000])
def test_a_header_of_another_writer_is_left_out_by_its_bytes(tmp_path: Path, offset: int) -> None:
    (tmp_path / "a.npy").write_bytes(b"h" * offset + np.arange(100, dtype=np.uint32).tobytes())
    tokens = ps.read_tokens(tmp_path / "a.npy", 9, dtype=np.uint32, offset=offset)
    assert [element["tokens"].tolist() for element in tokens] == [list(range(k, k + 10)) for k in range(0, 91, 9)]
    with pytest.raises(RecordError, match="bytes, 1 more than a whole number of uint32 tokens behind the first"):
        ps.read_tokens(tmp_path / "a.npy", 9, dtype=np.uint32, offset=offset + 3)
    with pytest.raises(RecordError, match=f"the file has {offset + 400} bytes, and its tokens begin at 2000"):
        ps.read_tokens(tmp_path / "a.npy", 9, dtype=np.uint32, offset=2000)
    np.save(tmp_path / "a.npy", np.arange(100))
    with pytest.raises(PlanError, match=r"offset=24 is given for an \.npy file"):
        ps.read_tokens(tmp_path / "a.npy", 9, offset=24)
    with pytest.raises(PlanError, match="offset=-1 is not a whole number >= 0"):
        ps.read_tokens(tmp_path / "a.npy", 9, offset=-1)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, None])
def test_text_and_shards_of_other_libraries_are_no_tokens(tmp_path: Path, dtype: Any) -> None:
    (tmp_path / "index.json").write_text('{"shards": [{"column_names": ["tokens"], "basename": "shard.00000.mds"}]}')
    with pytest.raises(RecordError, match="the file looks like text, not like tokens") as caught:
        found(tmp_path, dtype)
    assert "offset=0 reads this one all the same" in caught.value.fix
    assert found(tmp_path, np.uint8).counts.tolist() == [73]
    (tmp_path / "index.json").rename(tmp_path / "shard.00000.mds")
    with pytest.raises(RecordError, match="the file looks like a shard of Mosaic Streaming, not like tokens"):
        found(tmp_path, dtype)


class Elsewhere:
    """A storage whose files are not local."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage

    def read_spans(self, *arguments: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        assert isinstance(arguments[3], Scratch | None)
        return self.storage.read_spans(*arguments)  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", ["u1", "u2", "i4", "u8"])
def test_files_of_any_storage_give_the_same_windows_as_local_ones(tmp_path: Path, dtype: str) -> None:
    np.random.default_rng(3).integers(0, 100, 1000).astype(dtype).tofile(tmp_path / "a.bin")
    storage = open_storage(tmp_path / "*", "read_tokens")
    kind = np.dtype(dtype)
    starts = np.array([0, 7, 300, 7], np.int64) * kind.itemsize
    results = []
    for one in (storage, Elsewhere(storage)):
        out = np.zeros((4, 50), np.int64)
        read: Any = partial(read_spans, one, kind, np.zeros(4, np.int64), starts)
        assert read(0, out) is None
        outside = read(60, np.zeros((4, 50), np.int64))
        results.append((out.tolist(), outside))
    assert results[0] == results[1]
    assert isinstance(results[0][1], Outside)
