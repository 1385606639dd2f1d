"""Indexed datasets of Megatron-LM: the bytes of the format, documents and sequences, damage, rows packed by the index."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import PlanError, RecordError, SourceError
from penstock.sources.megatron import MegatronSource, encode_index
from penstock.testing import check_source

DOCUMENTS = [np.arange(number, number * 2 % 13 + number, dtype=np.int64) for number in range(50)]


def index_of(lengths: list[int], documents: list[int], code: int, size: int) -> bytes:
    """Write an index by the description of the format alone."""
    begins = [sum(lengths[:number]) * size for number in range(len(lengths))]
    out = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(documents))
    for kind, numbers in (("i", lengths), ("q", begins), ("q", documents)):
        out += struct.pack(f"<{len(numbers)}{kind}", *numbers)
    return out


def write(path: Path, tokens: list[Any] = DOCUMENTS, dtype: str = "u2", code: int = 8, documents: list[int] | None = None) -> str:
    """Write a dataset and return its path, without an ending."""
    path.with_suffix(".bin").write_bytes(b"".join(one.astype(f"<{dtype}").tobytes() for one in tokens))
    lengths = [len(one) for one in tokens]
    index = index_of(lengths, [*range(len(tokens) + 1)] if documents is None else documents, code, np.dtype(dtype).itemsize)
    path.with_suffix(".idx").write_bytes(index)
    return str(path)


def tokens(ds: Any) -> list[list[int]]:
    return [element["tokens"].tolist() for element in ds]


@pytest.mark.parametrize(("dtype", "code"), [("i4", 4), ("i8", 5), ("u2", 8)])
def test_documents_of_each_dtype_are_int64(tmp_path: Path, dtype: str, code: int) -> None:
    ds = ps.read_megatron(write(tmp_path / "a", dtype=dtype, code=code))
    assert tokens(ds) == tokens({"tokens": one} for one in DOCUMENTS)
    assert ds[-1]["tokens"].dtype == np.int64
    lengths = np.array([len(one) for one in DOCUMENTS], np.int32)
    assert encode_index(lengths, np.dtype(dtype)) == (tmp_path / "a.idx").read_bytes()


def test_the_source_keeps_the_laws(tmp_path: Path) -> None:
    write(tmp_path / "a", DOCUMENTS[:20])
    write(tmp_path / "b", DOCUMENTS[20:])

    def source() -> MegatronSource:
        return ps.read_megatron(tmp_path / "*")._root.source  # type: ignore[attr-defined, no-any-return]

    check_source(source(), expected=[{"tokens": one} for one in DOCUMENTS], again=source)
    assert source().describe(21).startswith("document 1 of ")
    numbers = source().known_numbers()
    assert numbers["num_tokens"].gather_columns(np.arange(50), None)[0].tolist() == [len(one) for one in DOCUMENTS]


def test_a_pattern_may_name_either_file_or_both(tmp_path: Path) -> None:
    for name in ("a", "a.c", "z"):
        write(tmp_path / f"{name}.bin", DOCUMENTS[:5])
    for pattern in ("*", "*.bin", "*.idx"):
        assert len(ps.read_megatron(str(tmp_path / pattern))) == 15
    assert len(ps.read_megatron([tmp_path / "a.bin", tmp_path / "z"])) == 10
    (tmp_path / "z.bin").unlink()
    with pytest.raises(SourceError, match=r"z.* has only one of its two files"):
        ps.read_megatron(str(tmp_path / "*"))
    write(tmp_path / "a.c", dtype="i4", code=4)
    with pytest.raises(PlanError, match="the files hold tokens of int32 and uint16"):
        ps.read_megatron([tmp_path / "a", tmp_path / "a.c"])


def test_a_document_of_several_sequences_is_one_element_or_each_is(tmp_path: Path) -> None:
    path = write(tmp_path / "a", DOCUMENTS[:6], documents=[0, 2, 2, 6])
    joined = [np.concatenate(DOCUMENTS[:2]), DOCUMENTS[0][:0], np.concatenate(DOCUMENTS[2:6])]
    assert tokens(ps.read_megatron(path)) == tokens({"tokens": one} for one in joined)
    assert tokens(ps.read_megatron(path, sequences=True)) == tokens({"tokens": one} for one in DOCUMENTS[:6])
    with open(f"{path}.idx", "ab") as file:
        file.write(bytes(6))  # the modes of multimodal data
    assert len(ps.read_megatron(path)) == 3


GOOD = index_of([2, 3], [0, 1, 2], 8, 2)
DAMAGED = {
    "another file": (b"P" + GOOD[1:], "not as an index of Megatron-LM", "offset 0"),
    "a header that is cut": (GOOD[:20], "the file of 20 bytes", "offset 0"),
    "an index that is cut": (GOOD[:-8], "the header says 2 sequences and 3 document indices, which end at byte 82", "offset 74"),
    "a count beyond all files": (GOOD[:25] + b"\x7f" + GOOD[26:], "and the file has 82", "offset 82"),
    "floats": (index_of([2, 3], [0, 1, 2], 7, 2), "code 7, which is none of integers", "offset 17"),
    "a wrong place": (GOOD[:50] + b"\6" + GOOD[51:], "sequence 1 .* does not begin where the one before it ends", "offset 50"),
    "the index of other tokens": (index_of([2, 4], [0, 1, 2], 8, 2), "end at byte 12 of the .bin file, and it has 10", "offset 82"),
    "documents without an end": (index_of([2, 3], [0], 8, 2), "do not ascend from 0 to 2", "offset 58"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_index_is_an_error_with_file_and_offset(tmp_path: Path, name: str) -> None:
    data, what, where = DAMAGED[name]
    (tmp_path / "a.bin").write_bytes(bytes(10))
    (tmp_path / "a.idx").write_bytes(data)
    with pytest.raises(RecordError, match=what) as caught:
        ps.read_megatron(tmp_path / "a")
    assert caught.value.where.endswith(f"a.idx', {where}")


def test_each_rank_reads_the_documents_of_its_own_rows_only(tmp_path: Path) -> None:
    whole = [np.full(len(one), number) for number, one in enumerate(DOCUMENTS) if len(one)]
    read: list[int] = []

    def noted(element: dict[str, Any]) -> dict[str, Any]:
        read.append(int(element["tokens"][0]))
        return element

    ds = ps.read_megatron(write(tmp_path / "a", whole)).map(noted)
    rows = ds.pack_sequences(16, by="num_tokens").shuffle(seed=1)
    assert not read
    count = len(rows)  # a row for each rank
    found = [row for rank in range(count) for row in rows.shard_by_rank(rank=rank, num_ranks=count).feed(executor="inline")]
    assert Counter(int(token) for row in found for token in row["tokens"][row["segment_ids"] > 0]) == Counter(
        np.concatenate(whole).tolist()
    )
    assert sorted(read) == sorted(int(one[0]) for one in whole)
