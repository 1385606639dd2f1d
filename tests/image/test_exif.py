import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.image.header import orient, read_orientation


def tiff(order: str, tag: int, kind: int, count: int, value: int) -> bytes:
    mark = b"II*\0" if order == "<" else b"MM\0*"
    return (
        mark
        + struct.pack(order + "IHHHI", 8, 1, tag, kind, count)
        + struct.pack(order + ("HH" if kind == 3 else "I"), value, *[0] * (kind == 3))
    )


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [3, 4])
@pytest.mark.parametrize("value", range(1, 9))
def test_the_orientation_is_read_in_both_byte_orders_as_short_and_long(order: str, kind: int, value: int) -> None:
    assert read_orientation(tiff(order, 0x0112, kind, 1, value)) == value


@pytest.mark.parametrize(
    "exif",
    [
        b"",
        b"II*\0",
        b"II*\0\xff\xff\xff\xff\0\0",
        tiff("<", 0x0112, 3, 1, 9),
        tiff("<", 0x0112, 3, 2, 6),
        tiff("<", 0x0112, 2, 1, 6),
        tiff("<", 0x0111, 3, 1, 6),
        tiff("<", 0x0112, 3, 1, 6)[:-3],
        b"XX" + tiff("<", 0x0112, 3, 1, 6)[2:],
    ],
)
def test_exif_that_is_damaged_or_has_no_valid_orientation_means_upright(exif: bytes) -> None:
    assert read_orientation(exif) == 1


@given(st.binary(max_size=60).map(lambda tail: b"II*\0\x08\0\0\0" + tail))
def test_no_exif_bytes_raise(exif: bytes) -> None:
    assert 1 <= read_orientation(exif) <= 8


def test_each_orientation_moves_the_corners_where_the_standard_says() -> None:
    stored = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    seen = {orientation: orient(stored, orientation)[..., 0].tolist() for orientation in range(1, 9)}
    assert seen == {
        1: [[0, 1, 2], [3, 4, 5]],
        2: [[2, 1, 0], [5, 4, 3]],
        3: [[5, 4, 3], [2, 1, 0]],
        4: [[3, 4, 5], [0, 1, 2]],
        5: [[0, 3], [1, 4], [2, 5]],
        6: [[3, 0], [4, 1], [5, 2]],
        7: [[5, 2], [4, 1], [3, 0]],
        8: [[2, 5], [1, 4], [0, 3]],
    }
