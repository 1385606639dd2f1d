"""Samples of tar files, whole, cut, damaged, and made to mislead (C26, C27)."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from formats.archives import END, header, member, padded, pax, pieces, sample
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RecordError
from penstock.formats.tar import find_samples
from penstock.kernels.library import load_library

TWO = sample(b"a", {b"jpg": b"123", b"cls": b"7"}) + sample(b"d/b", {b"jpg": bytes(600)})


def find(data: bytes, size: int = 1 << 22) -> dict[str, Any]:
    return find_samples(iter(pieces(data, size)), len(data), "x.tar")


def spans(data: bytes) -> list[tuple[int, int]]:
    found = find(data)
    return list(zip(found["offsets"].tolist(), found["lengths"].tolist(), strict=True))


def refusal(data: bytes) -> str:
    with pytest.raises(RecordError) as caught:
        find(data)
    text = str(caught.value)
    assert "'x.tar'" in text
    assert "offset" in text
    return text


def test_members_side_by_side_with_one_key_are_a_sample() -> None:
    found = find(TWO + END)
    assert found["offsets"].tolist() == [0, 2048]
    assert found["lengths"].tolist() == [2048, 1536]
    assert found["meta"]["end"] == "blocks"


@given(size=st.integers(1, 5000))
def test_pieces_of_any_size_give_the_same(size: int) -> None:
    data = TWO + pax((b"path", b"p" * 900 + b"/c.jpg")) + member(b"x", b"1") + member(b"p" * 90 + b".txt", b"2") + bytes(10240)
    expected, found = find(data), find(data, size)
    assert len(expected["offsets"]) == 4
    for name in ("offsets", "lengths", "crc32c"):
        assert (found[name] == expected[name]).all()
    assert found["meta"] == expected["meta"]


def test_a_cut_at_any_byte_is_an_error_or_a_missing_end() -> None:
    data = TWO + END
    whole = {0: 0, 1024: 1, 2048: 1, 3584: 2}  # ends of members; the number of samples up to there
    for length in range(len(data)):
        if length in whole and length:
            found = find(data[:length])
            assert (found["meta"]["end"], len(found["offsets"])) == ("missing", whole[length])
        elif length > 3584 + 511:
            assert find(data[:length])["meta"]["end"] == "missing"
        else:
            assert "unexpected end" in refusal(data[:length]) or length == 0


def test_each_cut_is_named_for_what_it_cuts() -> None:
    assert "the file is empty" in refusal(b"")
    assert "cut in a header" in refusal(TWO[: 1024 + 100])
    assert "the member says that it has more bytes than the file has left, member 'd/b.jpg'" in refusal(TWO[: 2048 + 512 + 599])
    assert "cut in the padding behind the member's data, member 'd/b.jpg'" in refusal(TWO[: 2048 + 512 + 601])


def test_every_flipped_bit_of_a_header_is_found_or_means_the_same() -> None:
    data = TWO + END
    expected = find(data)
    found = 0
    for place in (*range(512), *range(1024, 1536), *range(2048, 2560)):
        for bit in range(8):
            flipped = data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
            try:
                other = find(flipped)
            except RecordError:
                found += 1
                continue
            # Of the check sum itself: another byte for the same number. The index's own check sum sees that.
            assert place % 512 in range(148, 156)
            assert other["offsets"].tolist() == expected["offsets"].tolist()
            assert other["crc32c"].tolist() != expected["crc32c"].tolist()
    assert found > 3 * 512 * 8 - 3 * 8 * 8


def test_every_flipped_bit_of_data_and_padding_changes_the_check_sum_and_of_the_end_is_an_error() -> None:
    data = TWO + END
    expected = find(data)["crc32c"].tolist()
    for place in (*range(512, 1024), *range(2560, 3584, 7)):
        flipped = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        assert find(flipped)["crc32c"].tolist() != expected
    for place in range(3584 + 512, len(data)):
        assert "bytes behind the first block of zeros" in refusal(data[:place] + b"\1" + data[place + 1 :])


def test_a_size_of_2_to_the_40_in_any_way_of_writing_it_is_compared_with_the_file() -> None:
    huge = 1 << 40
    for start in (
        header(b"a.jpg", b"\x80" + huge.to_bytes(11, "big")),
        pax((b"size", b"%d" % huge)) + header(b"a.jpg", 3),
        header(b"a.jpg", b"777777777777"),
    ):
        assert "the member says that it has more bytes than the file has left" in refusal(start + padded(b"123") + END)


@pytest.mark.parametrize(
    "field",
    [b"\xff" * 12, b"\xff" + bytes(11), b"\x80" + b"\xff" * 11, b"\x81" + bytes(11), b"0000000012x\0", b"-0000000001\0", b"00000000080\0"],
)
def test_a_size_that_is_negative_too_large_or_no_number_is_an_error(field: bytes) -> None:
    assert "the size of the member is no number, is negative or has more than 63 bits" in refusal(header(b"a.jpg", field) + END)


def test_sizes_are_read_as_octal_base_256_pax_and_blank() -> None:
    for start in (
        header(b"a.jpg", 600),
        header(b"a.jpg", b"       1130 "),
        header(b"a.jpg", b"\x80" + (600).to_bytes(11, "big")),
        pax((b"mtime", b"1.5"), (b"size", b"600")) + header(b"a.jpg", 0),
        pax((b"size", b"600"), kind=b"X") + header(b"a.jpg", 5),
    ):
        assert spans(start + bytes(1024) + TWO[2048:] + END) == [(0, len(start) + 1024), (len(start) + 1024, 1536)]
    assert spans(header(b"a.jpg", bytes(12)) + END) == [(0, 512)]


def test_check_sums_of_old_programs_that_add_signed_bytes_are_good_ones() -> None:
    name = "é.jpg".encode()
    assert spans(header(name, signed=True) + END) == [(0, 512)]
    assert "check sum does not fit" in refusal(TWO + header(name, checksum=b"000001\0 ") + END)


def test_names_come_from_prefix_gnu_and_pax_headers() -> None:
    long = b"d" * 200 + b"/x"
    for data in (
        header(b"y.jpg", prefix=long[:150]) + header(b"y.cls", prefix=long[:150]),
        member(b"././@LongLink", long + b".jpg\0", b"L") + header(b"z") + member(b"././@LongLink", long + b".cls\0", b"L") + header(b"z"),
        member(b"././@LongLink", b"to\0", b"K") + member(b"././@LongLink", long + b".jpg\0", b"L") + header(b"z") + header(long[:0] + b"z"),
        pax((b"path", long + b".jpg")) + header(b"z") + pax((b"path", long + b".cls"), (b"size", b"0")) + header(b"z"),
    ):
        assert len(spans(data + END)) == 1
    # GNU's own format has other fields where POSIX has the prefix.
    times = header(b"y.jpg", prefix=b"01234567012\0", magic=b"ustar  \0") + header(b"y.cls", prefix=b"7654321", magic=b"ustar  \0")
    assert len(spans(times + END)) == 1
    assert len(spans(header(b"y.jpg", magic=b"") + header(b"y.cls", magic=b"", kind=b"\0") + END)) == 1


REFUSED: list[tuple[str, bytes]] = [
    ("extended header", pax((b"path", b"a\0b")) + header(b"a.x")),
    ("extended header", member(b"p", b"5 a=b", b"x") + header(b"a.x")),
    ("extended header", member(b"p", b"99 a=b\n", b"x") + header(b"a.x")),
    ("extended header", member(b"p", b"6 a=b\n7 xx", b"x") + header(b"a.x")),
    ("extended header", member(b"p", b"4  \n", b"x") + header(b"a.x")),
    ("extended header", member(b"p", b"5 =b\n", b"x") + header(b"a.x")),
    ("extended header", member(b"p", b"\0", b"L") + header(b"a.x")),
    ("extended header", pax((b"a", b"b")) + pax((b"a", b"b"), kind=b"g") + header(b"a.x")),
    ("has more than 1048576 bytes", header(b"p", (1 << 20) + 1, b"x") + bytes(1 << 21)),
    ("has more than 4096 bytes", pax((b"path", b"n" * 4097)) + header(b"a.x")),
    ("has more than 4096 bytes", member(b"p", b"n" * 4097, b"L") + header(b"a.x")),
    ("stored sparse", header(b"a.x", 0, b"S")),
    ("stored sparse", pax((b"GNU.sparse.major", b"1")) + header(b"a.x")),
    ("two headers give the member a name", pax((b"path", b"b.x")) * 2 + header(b"a.x")),
    ("two headers give the member a name", member(b"p", b"b.x\0", b"L") * 2 + header(b"a.x")),
    ("two headers give the member a name", member(b"p", b"b.x\0", b"L") + pax((b"path", b"c.x")) + header(b"a.x")),
    ("two headers give the member a name", pax((b"path", b"b.x"), (b"path", b"c.x")) + header(b"a.x")),
    ("two headers give the member a name", pax((b"size", b"0"), (b"size", b"1")) + header(b"a.x")),
    ("without its member", pax((b"path", b"b.x"))),
    ("global PAX header sets the name", pax((b"path", b"b.x"), kind=b"g") + header(b"a.x")),
    ("global PAX header sets the name", pax((b"size", b"7"), kind=b"g") + header(b"a.x")),
    ("goes on in another volume", header(b"a.x", 0, b"M")),
    ("the size of the member", pax((b"size", b"-1")) + header(b"a.x")),
    ("the size of the member", pax((b"size", b"1" * 19)) + header(b"a.x")),
]


@pytest.mark.skipif(load_library() is None, reason="tarfile, which reads where there is no C library, takes some of these")
@pytest.mark.parametrize(("words", "data"), REFUSED)
def test_headers_that_are_wrong_or_mislead_are_refused_with_their_place(words: str, data: bytes) -> None:
    text = refusal(TWO + data + END)
    assert words in text
    assert int(text.partition("offset ")[2].split()[0]) >= len(TWO)


def test_members_that_are_no_part_of_a_sample_are_counted_by_kind() -> None:
    odd = [(b"l.jpg", b"1"), (b"s.jpg", b"2"), (b"c", b"3"), (b"b", b"4"), (b"f", b"6"), (b"v", b"V"), (b"?", b"Q")]
    data = b"".join(
        (
            pax((b"comment", b"c"), kind=b"g"),
            header(b"dir/", kind=b"5"),
            header(b"old/", 5, kind=b"\0", magic=b""),
            member(b"dump", b"listing", b"D"),
            member(b"README", b"text"),
            member(b"d/.hidden.jpg", b"1"),
            member(b"d.x/plain", b"1"),
            member(b"__meta__/a.json", b"{}"),
            member(b"__x__", b"{}"),
            TWO,
            *(header(name, 0, kind) for name, kind in odd),
        )
    )
    found = find(data + END)
    assert len(found["offsets"]) == 2
    assert found["meta"] == {
        "directories": 3, "links": 2, "special": 5, "global_headers": 1, "meta": 2, "nameless": 3, "end": "blocks",
        "first_odd": len(data) - 7 * 512,
    }  # fmt: skip


def test_a_directory_between_the_members_of_a_sample_does_not_part_them() -> None:
    data = member(b"a.jpg", b"1") + header(b"dir/", kind=b"5") + member(b"a.cls", b"2")
    assert spans(data + END) == [(0, len(data))]


def test_parts_that_do_not_lie_side_by_side_are_an_error_with_both_places() -> None:
    data = member(b"a.jpg") + member(b"b.jpg") + member(b"c.jpg") + member(b"b.cls") + member(b"a.cls")
    text = refusal(data + END)
    assert "members of one key stand at offset 512 and, with others between, at 1536 (2 such pairs in this file)" in text
    assert "tar --sort=name" in text
    assert "at offset 0 and, with others between, at 1024" in refusal(member(b"a.jpg") + member(b"b.jpg") + member(b"a.jpg") + END)


def test_two_members_with_one_extension_are_an_error_also_in_another_case() -> None:
    for other in (b"a.jpg", b"a.JPG"):
        assert "two members with the same extension, member 'a." in refusal(member(b"a.jpg") + member(b"a.cls") + member(other) + END)


def test_a_sample_has_at_most_256_members_and_its_bytes_fit_32_bits() -> None:
    parts = [member(b"a.%d" % number) for number in range(257)]
    assert spans(b"".join(parts[:256]) + END) == [(0, 256 * 512)]
    assert "more than 256 members" in refusal(b"".join(parts) + END)
    huge = 1 << 32
    with pytest.raises(RecordError, match=r"the member has more than 4294967295 bytes, member 'a\.x'"):
        find_samples(iter(pieces(header(b"a.x", b"\x80" + huge.to_bytes(11, "big")))), huge + 512, "x.tar")


def test_members_are_scanned_without_a_python_object_for_each() -> None:
    count = 20_000
    data = b"".join(header(b"%07d.%s" % (number // 2, (b"a", b"b")[number % 2])) for number in range(count)) + END
    given = pieces(data)
    tracemalloc.start()
    try:
        found = find_samples(iter(given), len(data), "x.tar")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found["offsets"]) == count // 2
    # Working tables for one piece, and 40 bytes a sample several times over while they are sorted.
    assert peak < 12_000_000 + 400 * count


def numbered(count: int) -> Iterator[np.ndarray]:
    """Give the headers of so many empty members, each a sample, in pieces of 512."""
    block = np.tile(np.frombuffer(header(b"0000000.a"), np.uint8), (512, 1))
    plain = int(block[0].sum()) - int(block[0, 148:156].sum()) + 8 * 32
    for start in range(0, count, 512):
        digits = np.arange(start, start + 512)[:, None] // 10 ** np.arange(6, -1, -1) % 10
        block[:, :7] = 48 + digits
        sums = plain + digits.sum(axis=1)
        block[:, 148:154] = 48 + sums[:, None] // 8 ** np.arange(5, -1, -1) % 8
        yield block.reshape(-1)


def calls_for(count: int) -> int:
    """Return how many functions, of Python and C, are called to find so many samples."""
    calls, pieces = 0, list(map(np.copy, numbered(count)))

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        found = find_samples(iter(pieces), count * 512, "x.tar")
    finally:
        sys.setprofile(None)
    assert len(found["offsets"]) == count
    return calls


def test_twice_as_many_members_are_twice_the_work() -> None:
    calls_for(512)  # what is made once
    one, two = calls_for(1 << 14), calls_for(1 << 15)
    assert two < 2.1 * one
    assert two < (1 << 15) / 4, "and not a call for each"
