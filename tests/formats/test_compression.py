from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RecordError
from penstock.formats.compression import Decompressed, compression_of_head, compression_of_name, looks_like

TEXT = bytes(range(256)) * 40


PACK = {"GZIP": gzip.compress, "ZLIB": zlib.compress, "BZIP2": bz2.compress, "XZ": lzma.compress, "ZSTD": zstandard.compress}


def compressed(data: bytes, compression: str) -> bytes:
    return PACK[compression](data)


def everything(data: bytes, compression: str, size: int = 1000) -> bytes:
    stream = Decompressed(io.BytesIO(data), compression, "f")
    return b"".join(iter(lambda: stream.read(size), b""))


@pytest.mark.parametrize("compression", PACK)
@given(data=st.binary(max_size=2000), repeat=st.integers(1, 2000), size=st.integers(1, 100_000))
def test_what_was_compressed_comes_back_in_pieces_of_any_size(compression: str, data: bytes, repeat: int, size: int) -> None:
    whole = (data * repeat)[: 50 * size]
    packed = compressed(whole, compression)
    assert everything(packed, compression, size) == whole


@pytest.mark.parametrize("compression", [*PACK][1:])
def test_no_read_gives_more_than_was_asked_for(compression: str) -> None:
    stream = Decompressed(io.BytesIO(compressed(bytes(10_000_000), compression)), compression, "f")
    sizes = {len(stream.read(size)) for size in (1, 7, 1 << 16, 1 << 30)}
    assert sizes <= {1, 7, 1 << 16, *range((1 << 20) + 1)}
    assert stream.num_out == sum(sizes)
    assert 0 < stream.num_in <= 10_000


def test_the_end_may_be_asked_for_again() -> None:
    stream = Decompressed(io.BytesIO(compressed(TEXT, "GZIP")), "GZIP", "f")
    assert b"".join(iter(lambda: stream.read(9999), b"")) == TEXT
    assert stream.read(5) == stream.read(5) == b""


@pytest.mark.parametrize("compression", ["GZIP", *[*PACK][2:]])
def test_several_members_are_one_stream(compression: str) -> None:
    members = [compressed(text, compression) for text in (TEXT, b"", b"more")]
    assert everything(b"".join(members), compression) == TEXT + b"more"
    for size in range(1, len(members[2])):
        with pytest.raises(RecordError, match="it ends before its own end mark: the file is cut"):
            everything(b"".join(members)[:-size], compression)


def test_names_and_first_bytes_tell_the_compression() -> None:
    names = ["a.jsonl.gz", "A.TGZ", "a.tar.zst", "b.bz2", "b.txz", "https://host/a.csv.xz", "a.gz.txt", "gz", ".gz", "a.zip"]
    kinds = ["GZIP", "GZIP", "ZSTD", "BZIP2", "XZ", "XZ", None, None, None, None]
    assert [compression_of_name(name) for name in names] == kinds
    assert [compression_of_head(compressed(b"x", kind)) for kind in PACK] == [kind if kind != "ZLIB" else None for kind in PACK]
    assert [compression_of_head(head) for head in (b"", b"text", compressed(b"x", "ZLIB"), b"PK\x03\x04")] == [None] * 4


@pytest.mark.parametrize(
    ("data", "compression", "words"),
    [
        (compressed(TEXT, "GZIP") + b"garbage", "GZIP", "it is complete, and 67 61 72 62 61 67 65 ... stands behind it"),
        (compressed(TEXT, "GZIP") + bytes(100), "GZIP", "it is complete, and 00 00 00 00 00 00 00 00 ... stands behind it"),
        (compressed(TEXT, "ZLIB") * 2, "ZLIB", "it is complete, and 78 9c "),
        (compressed(TEXT, "GZIP")[:-1], "GZIP", "it ends before its own end mark: the file is cut"),
        (compressed(TEXT, "ZLIB")[:50], "ZLIB", "it ends before its own end mark: the file is cut"),
        (compressed(TEXT, "GZIP") + compressed(TEXT, "GZIP")[:1], "GZIP", "it ends before its own end mark: the file is cut"),
        (b"", "GZIP", "the file has 0 bytes"),
        (compressed(TEXT, "GZIP")[:-8] + bytes(8), "GZIP", "incorrect data check"),
    ],
)
def test_a_damaged_stream_is_an_error_that_says_how_far_it_went(data: bytes, compression: str, words: str) -> None:
    with pytest.raises(RecordError) as error:
        everything(data, compression)
    assert error.value.what.startswith(f"the {compression} stream of 'f' is damaged behind ")
    assert words in error.value.what
    assert error.value.where == f"'f', in the first {len(data)} bytes"
    assert "what stands before the damage can be read" in error.value.fix


@pytest.mark.parametrize(
    ("data", "compression", "looks", "fix"),
    [
        (compressed(TEXT, "ZLIB"), "GZIP", "this looks like ZLIB", "give compression='ZLIB', or \"auto\""),
        (compressed(TEXT, "GZIP"), "ZLIB", "this looks like GZIP", "give compression='GZIP', or \"auto\""),
        (b"plain text", "GZIP", "this does not look like GZIP", 'give compression=None, or "auto"'),
        (bytes(50), "ZLIB", "this does not look like ZLIB", 'give compression=None, or "auto"'),
    ],
)
def test_a_stream_of_another_kind_is_told_by_its_first_bytes(data: bytes, compression: str, looks: str, fix: str) -> None:
    with pytest.raises(RecordError) as error:
        everything(data, compression)
    assert error.value.what == f"'f' begins with {data[:4].hex(' ')}: {looks}"
    assert (error.value.where, error.value.fix) == ("'f', offset 0", fix)


def test_what_a_head_looks_like() -> None:
    assert looks_like(gzip.compress(b"")) == "GZIP"
    assert {looks_like(zlib.compress(b"x", level)) for level in range(10)} == {"ZLIB"}
    heads: list[Any] = [b"", b"\x1f", b"\x1f\x8b", b"\x78", b"PK\x03\x04", bytes(16), b"\x05" + bytes(15)]
    assert [looks_like(head) for head in heads] == [None] * len(heads)
