"""Bytes of samples become keys and fields."""

from __future__ import annotations

import numpy as np
from formats.archives import END, member, pax, pieces, sample
from numpy.typing import NDArray

from penstock.errors import RecordError
from penstock.formats.tar import TarSample, find_samples, split_samples

DATA = (
    sample(b"a", {b"jpg": b"123", b"CLS": b"7", b"seg.PNG": b""})
    + sample("d/ü".encode(), {b"x": b"one"})
    + pax((b"path", b"\xff/c.x"))
    + member(b"c", b"two")
    + END
)


def split(data: bytes, crcs: NDArray[np.uint32] | None = None) -> tuple[list[TarSample], RecordError | None]:
    found = find_samples(iter(pieces(DATA)), len(DATA), "x.tar")
    samples: list[TarSample] = []
    crcs = found["crc32c"] if crcs is None else crcs
    array = np.frombuffer(data, np.uint8)
    error = split_samples(array, found["offsets"], found["lengths"], crcs, samples, lambda number: ("x.tar", 1000 * number))
    return samples, error


def test_fields_come_in_the_order_of_the_file_in_lower_case_as_views() -> None:
    samples, error = split(DATA)
    assert error is None
    assert [sample.key for sample in samples] == ["a", "d/ü", "\udcff/c"]
    assert [{name: bytes(data) for name, data in sample.fields.items()} for sample in samples] == [
        {"jpg": b"123", "cls": b"7", "seg.png": b""},
        {"x": b"one"},
        {"x": b"two"},
    ]
    assert all(data.readonly for sample in samples for data in sample.fields.values())


def test_no_sample_gives_none() -> None:
    samples: list[TarSample] = []
    empty = np.empty(0, np.int64)
    assert split_samples(np.empty(0, np.uint8), empty, empty, None, samples, lambda number: ("x", 0)) is None
    assert samples == []


def test_a_flipped_bit_in_any_byte_of_a_sample_is_found() -> None:
    found = find_samples(iter(pieces(DATA)), len(DATA), "x.tar")
    spans = (found["offsets"], found["lengths"], found["crc32c"])
    data, end = np.frombuffer(DATA, np.uint8).copy(), len(DATA) - len(END)
    for place in range(end):
        for bit in range(8) if place < 512 else (place % 8,):
            data[place] ^= 1 << bit
            samples: list[TarSample] = []
            error = split_samples(data, *spans, samples, lambda number: ("x.tar", 10_000 * number))
            data[place] ^= 1 << bit
            assert len(samples) == (place >= 2560) + (place >= 3584)
            assert error is not None
            assert int(error.where.removeprefix("'x.tar', offset ")) // 10_000 == len(samples)


def test_of_two_bad_samples_the_first_is_named_whatever_is_wrong_with_it() -> None:
    data = bytearray(DATA)
    data[600] ^= 1  # data of the first, and below a header of the second
    data[2560] ^= 1
    samples, error = split(bytes(data))
    assert (samples, error is not None and "the bytes of the sample are not those" in error.what) == ([], True)


def test_a_span_that_is_another_file_s_is_refused() -> None:
    samples: list[TarSample] = []
    array = np.frombuffer(DATA, np.uint8)
    error = split_samples(array, np.array([512]), np.array([512]), None, samples, lambda number: ("x.tar", 512))
    assert error is not None
    assert "no tar header" in error.what
    error = split_samples(array, np.array([0]), np.array([3584]), None, samples, lambda number: ("x.tar", 0))
    assert error is not None
    assert "the bytes are not one sample" in error.what
