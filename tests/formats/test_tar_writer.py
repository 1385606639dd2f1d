"""What is written is plain tar, the same bytes each time, and read back as it was given."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import numpy as np
import pytest
from formats.archives import pieces
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SpecError
from penstock.formats.tar import TarSample, TarWriter, find_samples, split_samples


def written(samples: list[tuple[str, dict[str, Any]]]) -> tuple[bytes, list[tuple[int, int]]]:
    out = io.BytesIO()
    with TarWriter(out) as writer:
        spans = [writer.write_sample(key, fields) for key, fields in samples]
    assert writer.num_bytes == len(out.getvalue())
    return out.getvalue(), spans


def read(data: bytes) -> list[tuple[str, dict[str, bytes]]]:
    found = find_samples(iter(pieces(data)), len(data), "x.tar")
    samples: list[TarSample] = []
    array = np.frombuffer(data, np.uint8)
    assert split_samples(array, found["offsets"], found["lengths"], found["crc32c"], samples, lambda number: ("x", 0)) is None
    return [(sample.key, {name: bytes(value) for name, value in sample.fields.items()}) for sample in samples]


LETTERS = st.text("ab7_ -\\\nü\u2028\U0001f600", min_size=1, max_size=60)
KEYS = st.lists(LETTERS, min_size=1, max_size=5).map("/".join).filter(lambda key: not key.startswith("__"))
FIELDS = st.text("abc.7ü", min_size=1, max_size=8)


@given(st.dictionaries(KEYS, st.dictionaries(FIELDS, st.binary(max_size=1500), min_size=1, max_size=4), max_size=5))
def test_samples_come_back_as_they_were_given(samples: dict[str, dict[str, bytes]]) -> None:
    data, spans = written(list(samples.items()))
    assert read(data) == list(samples.items())
    found = find_samples(iter(pieces(data)), len(data), "x.tar")
    assert spans == list(zip(found["offsets"].tolist(), found["lengths"].tolist(), strict=True))
    assert found["meta"]["end"] == "blocks"


@pytest.mark.parametrize(
    ("key", "style"),
    [
        ("000001", tarfile.USTAR_FORMAT),
        ("f" * 96, tarfile.USTAR_FORMAT),
        ("d" * 150 + "/" + "f" * 90, tarfile.USTAR_FORMAT),
        ("a/" * 70 + "f", tarfile.USTAR_FORMAT),
        ("f" * 97, tarfile.PAX_FORMAT),
        ("d" * 156 + "/f", tarfile.PAX_FORMAT),
        ("d" * 300 + "/" + "f" * 300, tarfile.PAX_FORMAT),
        ("ü", tarfile.PAX_FORMAT),
    ],
)
def test_the_bytes_are_those_that_tarfile_writes_without_times_and_owners(key: str, style: int) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=style) as file:
        info = tarfile.TarInfo(f"{key}.jpg")
        info.mode, info.size = 0o444, 700
        file.addfile(info, io.BytesIO(b"x" * 700))
    ours = written([(key, {"jpg": b"x" * 700})])[0]
    if style == tarfile.PAX_FORMAT:  # but for the mode of the extended header, which tells nobody anything
        assert ours[512:] == out.getvalue()[512:]
        with tarfile.open(fileobj=io.BytesIO(ours)) as file:
            assert file.getnames() == [f"{key}.jpg"]
    else:
        assert ours == out.getvalue()


def test_values_may_be_any_bytes_and_are_padded() -> None:
    data, _ = written([("k", {"a": bytearray(b"1"), "b": memoryview(b"22"), "c": np.arange(3, dtype=np.uint8), "d": b""})])
    assert read(data) == [("k", {"a": b"1", "b": b"22", "c": b"\0\1\2", "d": b""})]
    assert len(data) % 10240 == 0


@pytest.mark.parametrize(
    ("key", "fields", "words"),
    [
        ("a.b", {"x": b""}, "a name up to its first dot"),
        ("", {"x": b""}, "a name up to its first dot"),
        ("a/", {"x": b""}, "a name up to its first dot"),
        ("a\0", {"x": b""}, "a name up to its first dot"),
        (7, {"x": b""}, "a name up to its first dot"),
        ("__meta__/a", {"x": b""}, "are skipped by readers"),
        ("first", {"x": b""}, "it was written before"),
        ("a", {}, "it has 0 fields"),
        ("a", {str(number): b"" for number in range(257)}, "it has 257 fields"),
        ("a", {"": b""}, "is no extension"),
        ("a", {"x/y": b""}, "is no extension"),
        ("a", {"__key__": b""}, "is no extension"),
        ("a", {"JPG": b""}, "not in lower case"),
        ("a", {"x": "text"}, "is a str"),
        ("a", {"x": np.zeros((4, 4))[:, ::2]}, "is a ndarray"),
        ("a\ud800", {"x": b""}, "no Unicode text"),
        ("n" * 5000, {"x": b""}, "the name has 5002 bytes"),
    ],
)
def test_what_readers_would_take_for_something_else_is_refused_and_nothing_of_it_is_written(key: Any, fields: Any, words: str) -> None:
    out = io.BytesIO()
    writer = TarWriter(out)
    writer.write_sample("first", {"x": b"1"})
    before = out.getvalue()
    with pytest.raises(SpecError) as caught:
        writer.write_sample(key, fields)
    assert words in str(caught.value)
    assert out.getvalue() == before
    writer.write_sample("last", {"x": b"2"})
    writer.close()
    assert [key for key, _ in read(out.getvalue())] == ["first", "last"]


def test_a_sample_of_more_than_32_bits_is_refused_before_a_byte_is_written() -> None:
    half = np.zeros(1 << 31, np.uint8)  # never touched, so it is no memory
    out = io.BytesIO()
    with pytest.raises(SpecError, match="it has 4294968320 bytes"):
        TarWriter(out).write_sample("a", {"x": half, "y": half})
    assert out.getvalue() == b""


def test_a_closed_archive_takes_no_more_and_an_error_leaves_it_without_its_end() -> None:
    out = io.BytesIO()
    writer = TarWriter(out)
    writer.close()
    writer.close()
    assert out.getvalue() == bytes(10240)
    with pytest.raises(SpecError, match="the archive is closed"):
        writer.write_sample("a", {"x": b""})
    out = io.BytesIO()
    with pytest.raises(SpecError), TarWriter(out) as writer:
        assert [writer.write_sample(key, {"x": b""}) for key in ("a", "a")]
    assert find_samples(iter(pieces(out.getvalue())), len(out.getvalue()), "x.tar")["meta"]["end"] == "missing"
