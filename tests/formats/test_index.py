from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RecordError
from penstock.formats.index import Index, decode, is_index, parts
from penstock.kernels.framing import crc32c


def encode(index: Index) -> bytes:
    return b"".join(parts(index))


def small(**changes: Any) -> Index:
    columns = {
        "offsets": np.array([0, 5, 9], np.int64),
        "lengths": np.array([5, 4, 0], np.uint32),
        "file_note": np.arange(3, dtype=np.uint8),
    }
    given = {
        "kind": "text",
        "options": {"a": 1},
        "size": 9,
        "crc32c": 7,
        "samples": 8,
        "identity": {"size": 9},
        "meta": {},
        "columns": columns,
    }
    return Index(**{**given, **changes})


def refusal(data: bytes) -> str:
    with pytest.raises(RecordError) as caught:
        decode(data, "a.psidx")
    assert caught.value.where == "a.psidx"
    assert "rebuilt" in caught.value.fix
    return caught.value.what


def forged(data: bytes, contents: bytes | None = None, **numbers: int) -> bytes:
    """Write an index whose check sums are right and whose statements are not."""
    names = ("columns", "text", "total", "count", "size", "crc32c", "samples", "body")
    values = dict(zip(names, struct.unpack("<IQQQQIII", data[12:60]), strict=True))
    old_text, old_body = data[64 : 64 + values["text"]], data[64 + values["text"] :]
    text = old_text if contents is None else contents + b" " * (-len(contents) % 8)
    rest = text + old_body
    values.update(text=len(text), total=64 + len(rest), body=crc32c(rest))
    values.update(numbers)
    header = data[:12] + struct.pack("<IQQQQIII", *values.values())
    return header + struct.pack("<I", crc32c(header)) + rest


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=20),
    st.sampled_from([np.uint32, np.int64]),
    st.dictionaries(st.text(max_size=5), st.one_of(st.integers(-5, 5), st.text(max_size=5)), max_size=3),
    st.sampled_from(["u1", "i2", "u4", "f4", "f8"]),
)
def test_what_is_written_is_read(spans: list[tuple[int, int]], kind: Any, meta: dict[str, Any], dtype: str) -> None:
    own = np.arange(len(spans)).astype(dtype)
    offsets, lengths = (np.array([span[side] for span in spans], np.int64) for side in (0, 1))
    given = Index(
        kind="k", options=meta, size=2000, crc32c=1, meta=meta, columns={"offsets": offsets, "lengths": lengths.astype(kind), "own": own}
    )
    data = encode(given)
    assert is_index(data)
    assert b"".join(parts(given)) == data
    read = decode(data, "x")
    assert len(read) == len(spans)
    assert (read.kind, read.options, read.size, read.crc32c, read.samples, read.meta) == ("k", meta, 2000, 1, 0, meta)
    for name, values in given.columns.items():
        assert read.columns[name].dtype == values.dtype
        assert read.columns[name].tolist() == values.tolist()


def test_columns_are_views_and_take_twelve_bytes_a_record() -> None:
    count = 10_000
    columns = {"offsets": np.arange(count, dtype=np.int64), "lengths": np.ones(count, np.uint32)}
    data = encode(small(size=count, columns=columns))
    assert 12 * count < len(data) < 12 * count + 500
    read = decode(data, "x")
    assert not read.columns["offsets"].flags.owndata
    assert not read.columns["offsets"].flags.writeable


def test_a_column_that_is_not_contiguous_is_written_as_it_reads() -> None:
    columns = {"offsets": np.arange(8, dtype=np.int64)[::2], "lengths": np.zeros(4, np.uint32)}
    assert decode(encode(small(columns=columns)), "x").columns["offsets"].tolist() == [0, 2, 4, 6]


def test_every_bit_flip_is_found() -> None:
    data = encode(small())
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            assert refusal(bytes(flipped))


def test_every_cut_and_every_added_byte_is_found() -> None:
    data = encode(small())
    for length in range(len(data)):
        assert refusal(data[:length])
    assert "says that it has" in refusal(data + b"\0")
    assert refusal(data + data)


def test_another_magic_or_version_is_no_damage() -> None:
    data = encode(small())
    assert is_index(data)
    assert not is_index(b"")
    assert not is_index(b"0 17\n17 33\n")
    other = data[:8] + struct.pack("<I", 2) + data[12:]
    assert not is_index(other)
    header = other[:60]
    assert "version 2, not 1" in refusal(header + struct.pack("<I", crc32c(header)) + other[64:])
    assert "does not begin as" in refusal(b"0 17\n17 33\n")


def description(data: bytes) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(data[64 : 64 + struct.unpack("<Q", data[16:24])[0]])
    return record


@pytest.mark.parametrize(
    "columns",
    [
        [],
        [["offsets", "<i8", 3]],
        [["offsets", "<i8", 2**62], ["lengths", "<u4", 3], ["file_note", "|u1", 3]],
        [["offsets", "<i8", -1], ["lengths", "<u4", 3], ["file_note", "|u1", 3]],
        [["offsets", "<i8", 3], ["lengths", "<u4", 3], ["file_note", "|u1", 2**40]],
        [["offsets", "<i8", 3], ["offsets", "<i8", 3], ["file_note", "|u1", 3]],
        [["offsets", "<i8", 3], ["lengths", "<u4", 2], ["file_note", "|u1", 3]],
        [["offsets", "|O", 3], ["lengths", "<u4", 3], ["file_note", "|u1", 3]],
        [["offsets", "<i8", 3], ["lengths", "<u4", 3], [5, "|u1", 3]],
        [["offsets", "<f8", 3], ["lengths", "<u4", 3], ["file_note", "|u1", 3]],
        [["offsets", "<i8", 3], ["lengths", "<i4", 3], ["file_note", "|u1", 3]],
        ["offsets", 3],
        {"offsets": 3},
    ],
)
def test_columns_that_do_not_fit_are_refused_although_the_check_sums_are_right(columns: Any) -> None:
    data = encode(small())
    assert refusal(forged(data, json.dumps({**description(data), "columns": columns}).encode()))


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"nonsense", b"[" * 100_000, b'{"kind": 5}', b"\xff"])
def test_a_description_that_is_none_is_refused_although_the_check_sums_are_right(text: bytes) -> None:
    assert "description" in refusal(forged(encode(small()), text))


def test_counts_that_are_wrong_are_refused_although_the_check_sums_are_right() -> None:
    data = encode(small())
    assert decode(forged(data), "x").columns["lengths"].tolist() == [5, 4, 0]
    assert "columns" in refusal(forged(data, count=2))
    assert "columns" in refusal(forged(data, columns=2))
    assert "says that it has" in refusal(forged(data, total=2**63))
    assert "description" in refusal(forged(data, text=2**63))


@pytest.mark.parametrize(("offsets", "lengths"), [([0, -1], [1, 1]), ([0, 10], [1, 0]), ([0, 5], [1, 5]), ([0, 2**62], [1, 2**62])])
def test_a_record_outside_its_file_is_refused(offsets: list[int], lengths: list[int]) -> None:
    columns = {"offsets": np.array(offsets, np.int64), "lengths": np.array(lengths, np.int64)}
    assert "described file" in refusal(encode(small(columns=columns)))
