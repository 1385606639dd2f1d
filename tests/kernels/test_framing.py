from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.formats.tfrecord import frame
from penstock.kernels.framing import UNKNOWN, FrameStatus, check_frames, crc32c, find_frame, masked, scan_frames

RECORDS = [b"", b"a", b"bc" * 700, b"\0" * 12]
FILE = b"".join(map(frame, RECORDS))
STARTS = np.cumsum([0, *(len(record) + 16 for record in RECORDS[:-1])])
LENGTHS = np.array([len(record) + 16 for record in RECORDS])


def places(count: int = 8) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.zeros(count, np.int64), np.zeros(count, np.int64)


def header(length: int) -> bytes:
    """A length field with its right check sum."""
    field = struct.pack("<Q", length)
    return field + struct.pack("<I", masked(crc32c(field)))


def test_the_check_sums_are_those_of_rfc_3720() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(bytes(range(31, -1, -1))) == 0x113FDB5C
    assert crc32c(b"") == 0


def test_the_mask_is_the_one_of_tensorflow() -> None:
    # lib/hash/crc32c_test.cc of TensorFlow asks that masking changes the sum and can be undone; these bytes stand in a file that it wrote.
    assert masked(crc32c(struct.pack("<Q", 0))) == 0x07980329
    assert masked(crc32c(b"")) == 0xA282EAD8


@given(st.binary(max_size=500), st.integers(0, 500), st.integers(0, 2**32 - 1))
def test_a_check_sum_goes_on_from_the_one_of_the_bytes_before(data: bytes, cut: int, value: int) -> None:
    assert crc32c(data[cut:], crc32c(data[:cut], value)) == crc32c(data, value)
    array = np.frombuffer(data, np.uint8)
    assert crc32c(array, value) == crc32c(memoryview(data), value) == crc32c(bytearray(data), value) == crc32c(data, value)


def test_long_data_have_the_sum_of_their_pieces_whatever_their_length_and_place() -> None:
    data = np.random.default_rng(1).bytes(100_100)
    for length in [*range(180, 1200), 2047, 2048, 2049, 3071, 3072, 3073, 4096, 99_999]:
        begin, value = length % 67, length * 2654435761 % 2**32
        whole, pieces = data[begin : begin + length], value
        for at in range(0, len(whole), 100):  # so short ones are summed in another way
            pieces = crc32c(whole[at : at + 100], pieces)
        assert crc32c(whole, value) == pieces, f"{length} bytes at {begin}"


@pytest.mark.parametrize("data", [5, np.zeros((4, 4), np.uint8)[:, 1], "text"])
def test_what_has_no_contiguous_bytes_is_refused(data: Any) -> None:
    with pytest.raises(SpecError) as refusal:
        crc32c(data)
    assert refusal.value.what.startswith(f"data is a {type(data).__name__} that cannot be read as bytes: ")
    assert refusal.value.where == "penstock.kernels.crc32c, argument 'data'"
    assert "C-contiguous uint8" in refusal.value.fix


def test_all_frames_of_a_file_are_found_with_their_whole_lengths() -> None:
    for whole, check in ((True, True), (True, False), (False, False)):
        offsets, lengths = places()
        scan = scan_frames(FILE, offsets, lengths, left=len(FILE), check_data=check, whole=whole, base=1000)
        assert scan == (4, len(FILE), FrameStatus.GOOD, 0)
        assert offsets[:4].tolist() == (STARTS + 1000).tolist()
        assert lengths[:4].tolist() == LENGTHS.tolist()


@given(st.integers(0, len(FILE)), st.booleans())
def test_a_piece_says_how_much_it_needs_to_go_on(cut: int, whole: bool) -> None:
    offsets, lengths = places()
    scan = scan_frames(FILE[:cut], offsets, lengths, left=len(FILE), whole=whole)
    assert scan.status is (FrameStatus.GOOD if scan.position == len(FILE) else FrameStatus.MORE)
    assert scan.position in (*STARTS.tolist(), len(FILE))
    if scan.status is FrameStatus.MORE:
        assert scan.position + scan.detail > cut
    else:
        assert scan.detail == 0
    rest = scan_frames(FILE[scan.position :], offsets[scan.num_frames :], lengths[scan.num_frames :], base=scan.position)
    assert scan.num_frames + rest.num_frames == 4
    assert offsets[:4].tolist() == STARTS.tolist()
    assert lengths[:4].tolist() == LENGTHS.tolist()


def test_full_arrays_are_no_end() -> None:
    offsets, lengths = places(2)
    assert scan_frames(FILE, offsets, lengths) == (2, int(STARTS[2]), FrameStatus.FULL, 0)
    assert scan_frames(FILE, *places(4), left=len(FILE)) == (4, len(FILE), FrameStatus.GOOD, 0)
    assert scan_frames(FILE, *places(4)) == (4, len(FILE), FrameStatus.FULL, 0)
    assert scan_frames(b"", *places(0), left=0) == (0, 0, FrameStatus.GOOD, 0)


@pytest.mark.parametrize("length", [2**34, 2**40, 2**63 - 1, 2**63, 2**64 - 1, 2**63 - 16])
def test_a_length_beyond_the_end_is_named_before_anything_is_done_with_it(length: int) -> None:
    as_int64 = (length + 2**63) % 2**64 - 2**63
    for whole in (True, False):
        data = header(length) + bytes(9)
        assert scan_frames(data, *places(), left=len(data), whole=whole) == (0, 0, FrameStatus.CUT, as_int64)
        status = scan_frames(data, *places(), limit=1 << 30, whole=whole).status
        assert status is (FrameStatus.LIMIT if length <= UNKNOWN - 16 else FrameStatus.CUT)


def test_a_limit_is_inclusive() -> None:
    assert scan_frames(frame(b"abc"), *places(), limit=3, left=19).status is FrameStatus.GOOD
    assert scan_frames(frame(b"abcd"), *places(), limit=3, left=20) == (0, 0, FrameStatus.LIMIT, 4)


def test_every_prefix_but_those_that_end_between_frames_is_cut() -> None:
    borders = {*STARTS.tolist(), len(FILE)}
    for cut in range(len(FILE)):
        scan = scan_frames(FILE[:cut], *places(), left=cut)
        assert (scan.status is FrameStatus.GOOD) == (cut in borders)
        if cut not in borders:
            number = sum(border <= cut for border in borders) - 1
            assert scan[:3] == (number, STARTS[number], FrameStatus.CUT)
            assert scan.detail == (-1 if cut - STARTS[number] < 12 else len(RECORDS[number]))


def test_the_first_bad_data_stop_a_scan_that_checks_them() -> None:
    data = bytearray(FILE)
    data[STARTS[2] + 12] ^= 1
    assert scan_frames(data, *places(), left=len(data)) == (2, STARTS[2], FrameStatus.DATA_CRC, 1400)
    assert scan_frames(data, *places(), left=len(data), check_data=False).num_frames == 4


def test_the_next_place_where_a_frame_may_begin_is_found() -> None:
    for start in range(len(FILE) + 1):
        behind = [border for border in STARTS.tolist() if border >= start]
        assert find_frame(FILE, start, left=len(FILE)) == (behind[0] if behind else max(start, len(FILE) - 11))
    assert find_frame(header(2**40), 0, left=12) == 1
    assert find_frame(header(2**40), 0) == 0
    assert find_frame(b"", 0) == 0


def test_frames_anywhere_in_a_buffer_are_checked() -> None:
    assert check_frames(FILE, STARTS, LENGTHS) is None
    assert check_frames(FILE, STARTS[::-1], LENGTHS[::-1]) is None
    data = bytearray(FILE)
    data[STARTS[0] + 3] ^= 1
    data[STARTS[1] + 12] ^= 4
    starts, lengths = np.append(STARTS, STARTS[2:]), np.append(LENGTHS, LENGTHS[2:] - 1)
    for check_data, bad in ((True, FrameStatus.DATA_CRC), (False, FrameStatus.GOOD)):
        out = np.empty(6, np.uint8)
        statuses = check_frames(data, starts, lengths, check_data=check_data, out=out)
        assert statuses is out
        other = FrameStatus.OTHER_LENGTH
        assert out.tolist() == [FrameStatus.LENGTH_CRC, bad, FrameStatus.GOOD, FrameStatus.GOOD, other, other]


def test_a_span_that_does_not_lie_in_the_buffer_is_never_read() -> None:
    starts = [0, -1, len(FILE) - 15, len(FILE) + 1, 2**63 - 1, 0, 0, -(2**63), 5]
    lengths = [15, 16, 16, 16, 2**63 - 1, 2**63 - 1, -1, 16, -(2**63)]
    statuses = check_frames(FILE, np.array(starts), np.array(lengths))
    assert statuses is not None
    assert statuses.tolist() == [FrameStatus.CUT] * 9


def test_arrays_of_other_kinds_are_refused() -> None:
    offsets, lengths = places()
    for call, name in (
        (lambda: scan_frames(FILE, offsets.astype(np.int32), lengths), "out"),
        (lambda: scan_frames(FILE, offsets[:3], lengths), "out"),
        (lambda: scan_frames(FILE, offsets, lengths, left=len(FILE) - 1), "left"),
        (lambda: check_frames(FILE, STARTS, LENGTHS[:2]), "lengths"),
        (lambda: check_frames(FILE, STARTS, LENGTHS, out=np.empty(3, np.uint8)), "out"),
    ):
        with pytest.raises(SpecError) as refusal:
            call()
        assert f"argument {name!r}" in refusal.value.where
        assert refusal.value.what
        assert refusal.value.fix
