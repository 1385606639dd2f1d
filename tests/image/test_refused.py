"""JPEG files that TurboJPEG refuses or complains of: those with every pixel are read as Pillow reads them, the others are errors."""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import cv2
import numpy as np
import pytest
from core import core
from image.odd_jpegs import odd_jpeg
from image.pixels import as_pillow, difference
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
import penstock.image as image
from penstock._plan.facts import identity
from penstock.errors import DecodeError
from penstock.image.header import read_header
from penstock.jobs.digest import digest_of

Encode = Callable[..., bytes]
Photo = NDArray[np.uint8]

COLOURS = {"YCbCr": (3, None), "RGB": (3, 0), "CMYK": (4, 0), "YCCK": (4, 2), "CMYK without Adobe's mark": (4, None)}
SAMPLINGS = (
    *("1x1,1x1,1x1", "2x1,1x1,1x1", "1x2,1x1,1x1", "2x2,1x1,1x1", "4x1,1x1,1x1", "1x4,1x1,1x1"),
    *("3x1,1x1,1x1", "1x3,1x1,1x1", "4x2,1x1,1x1", "2x4,1x1,1x1", "3x2,1x1,1x1", "2x3,1x1,1x1", "2x1,1x1,2x1", "1x1,2x2,2x2"),
    *("1x1,2x1,2x1", "2x2,2x1,1x2", "4x1,2x1,2x1", "2x2,2x1,2x1", "2x2,1x2,1x2", "1x2,1x2,1x2"),
)
FOURS = (
    "1x1,1x1,1x1,1x1",
    "2x2,1x1,1x1,2x2",
    "2x2,1x1,1x1,1x1",
    "2x1,1x1,1x1,1x1",
    "1x2,1x1,1x1,1x1",
    "2x2,2x1,1x2,1x1",
    "3x1,1x1,1x1,3x1",
)
CASES = [(s, name, t) for name, (n, t) in COLOURS.items() for s in (SAMPLINGS if n == 3 else FOURS)]
WIDEST = {"YCbCr": 0, "RGB": 0, "CMYK": 2, "YCCK": 2, "CMYK without Adobe's mark": 2}
"""The greatest difference to Pillow that docs/image.md states."""


def exif(orientation: int) -> bytes:
    body = b"Exif\0\0II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x112, 3, 1, orientation, 0, 0)
    return b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body


@pytest.mark.parametrize(("sampling", "colours", "transform"), core(CASES, CASES[::4]))
def test_every_sampling_of_every_kind_of_colour_is_read_as_pillow_does_whole_cropped_and_scaled(
    sampling: str, colours: str, transform: int | None
) -> None:
    crop, upright = image.random_resized_crop("image", 16), odd_jpeg(sampling, 60, 44, restart=len(sampling) % 3, transform=transform)
    for orientation in range(1, 9):
        data = put(upright, 2, exif(orientation))
        wanted = as_pillow(data)
        assert difference(image.decode(data), wanted) <= WIDEST[colours]
        for following, crop_only in ((crop, True), (crop, False), (image.resize("image", (20, 30)), False)):
            fused = ps.from_source([{"image": data}]).map(image.decode("image", crop_only=crop_only)).map(following, seed=orientation)
            pixels = ps.from_source([{"image": wanted}]).map(following, seed=orientation)
            assert difference(fused[0]["image"], pixels[0]["image"]) <= WIDEST[colours] + 1


@pytest.mark.parametrize(("sampling", "colours", "transform"), [case for case in CASES if not case[1].startswith(("RGB", "CMYK", "YCCK"))])
def test_grey_is_the_luma_of_the_file_in_every_sampling(sampling: str, colours: str, transform: int | None) -> None:
    data = odd_jpeg(sampling, transform=transform)
    luma = Image.open(io.BytesIO(data))
    luma.draft("L", luma.size)
    assert difference(image.decode(data, mode="GRAY"), np.asarray(luma.convert("L"))[..., None]) == 0


@pytest.mark.parametrize("sampling", ["3x1,1x1,1x1", "4x2,1x1,1x1", "2x2,1x1,1x1,1x1", "2x2,2x1,1x2,1x1"])
@pytest.mark.parametrize("restart", [0, 1, 5])
@pytest.mark.parametrize("end", [b"", b"\xff\xd9"], ids=["without its end", "with an end"])
def test_what_opencv_would_fill_with_grey_is_an_error(sampling: str, restart: int, end: bytes) -> None:
    data = odd_jpeg(sampling, restart=restart, transform=0 if len(sampling) > 12 else None)
    begin = data.index(b"\xff\xda") + 20
    places = [
        *range(begin, len(data) - 40, 97),
        *(begin + at for at in range(len(data) - begin) if data[begin + at : begin + at + 2] == b"\xff\xd1"),
    ]
    for cut in places:
        with pytest.raises(DecodeError) as caught:
            image.decode(data[:cut] + end)
        assert caught.value.what.startswith("JPEG image is damaged: ")
        assert "get the file again" in caught.value.fix


def test_a_restart_mark_that_is_missing_is_an_error_in_a_sampling_that_opencv_decodes() -> None:
    data = odd_jpeg("3x1,1x1,1x1", restart=1)
    at = data.index(b"\xff\xd1")
    with pytest.raises(DecodeError, match="JPEG image is damaged: pixels are missing"):
        image.decode(data[:at] + data[data.index(b"\xff\xd3") :])


# -- warnings ---------------------------------------------------------------------------------------------------------------------


def parts(data: bytes) -> dict[str, int]:
    scan = data.index(b"\xff\xda")
    return {
        "scan": scan,
        "behind": scan + 2 + struct.unpack_from(">H", data, scan + 2)[0],
        "table": data.index(b"\xff\xc4"),
        "frame": data.index(b"\xff\xc0") if b"\xff\xc0" in data else data.index(b"\xff\xc2"),
        "end": data.rindex(b"\xff\xd9"),
        "jfif": data.find(b"JFIF\0"),
        "adobe": data.find(b"Adobe"),
    }


def put(data: bytes, at: int, new: bytes, instead: int = 0) -> bytes:
    return data[:at] + new + data[at + instead :]


HARMLESS: dict[str, Callable[[bytes, dict[str, int]], bytes]] = {
    "SOS parameters of Samsung": lambda data, at: put(data, at["behind"] - 3, b"\0\0\0", 3),
    "other SOS parameters": lambda data, at: put(data, at["behind"] - 3, b"\1\x3f\x11", 3),
    "JFIF 0.00": lambda data, at: put(data, at["jfif"] + 5, b"\0\0", 2),
    "JFIF 2.01": lambda data, at: put(data, at["jfif"] + 5, b"\2\1", 2),
    "a byte before a table": lambda data, at: put(data, at["table"], b"\0"),
    "bytes before the frame": lambda data, at: put(data, at["frame"], b"stray \xff\0 bytes"),
    "bytes before the scan": lambda data, at: put(data, at["scan"], bytes(300)),
    "zeros before the end": lambda data, at: put(data, at["end"], bytes(100)),
    "bytes before the end": lambda data, at: put(data, at["end"], bytes(range(1, 251))),
    "several at once": lambda data, at: put(put(put(data, at["end"], b"left"), at["behind"] - 3, b"\0\0\0", 3), at["table"], b"xy"),
}


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_what_libjpeg_only_warns_of_is_read_with_a_warning_that_counts(
    encode: Encode, photo: Photo, change: Callable[..., bytes], mode: str
) -> None:
    clean = encode(Image.fromarray(photo).convert(mode), "JPEG")
    odd, operator = change(clean, parts(clean)), image.decode("data")
    with pytest.warns(RuntimeWarning) as caught:
        results = [operator({"data": odd})["data"] for _ in range(12)]
    assert all(np.array_equal(pixels, image.decode(clean)) for pixels in results)
    texts = [str(one.message) for one in caught]
    assert [text.partition(" JPEG that libjpeg warns of, at last: ")[0] for text in texts] == [
        f"image.decode('data') read every pixel of {count}" for count in (1, 10)
    ]


@pytest.mark.parametrize(("transform", "num_channels"), [(1, 4), (3, 4), (255, 4), (2, 3), (9, 3)])
def test_an_unknown_transform_of_adobe_is_what_libjpeg_takes_it_for(transform: int, num_channels: int) -> None:
    odd = odd_jpeg("2x2,1x1,1x1" + ",2x2" * (num_channels - 3), transform=transform)
    with pytest.warns(RuntimeWarning, match=f"Unknown Adobe color transform code {transform}"):
        pixels = image.decode(odd)
    assert difference(pixels, as_pillow(odd)) == 0


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"optimize": True}, {"restart_marker_blocks": 2}], ids=str)
def test_bytes_behind_the_data_of_any_scan_are_harmless(encode: Encode, photo: Photo, options: dict[str, Any]) -> None:
    clean = encode(photo, "JPEG", **options)
    marks = [at for at in range(clean.index(b"\xff\xda") + 14, len(clean) - 1) if clean[at] == 0xFF and clean[at + 1] != 0]
    assert len(marks) == 1 or len(marks) > 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for at in marks[:: max(1, len(marks) // 12)]:
            assert np.array_equal(image.decode(put(clean, at, b"left over" * 3)), image.decode(clean))


def test_missing_pixels_stay_errors_beside_what_is_harmless(encode: Encode, photo: Photo) -> None:
    clean = encode(photo, "JPEG", restart_marker_blocks=2)
    at = parts(clean)
    samsung = put(clean, at["behind"] - 3, b"\0\0\0", 3)
    mark = samsung.index(b"\xff\xd3")
    for damage, text in (
        (samsung[:-200], "Premature end of JPEG file"),
        (put(samsung, mark, b"\xff\xd6", 2), "found marker 0xd6 instead of RST3"),
        (put(put(samsung, mark, b"\xff\xd6", 2), at["behind"] + 40, b""), "found marker 0xd6 instead of RST3"),
        (put(put(samsung, at["end"] - 60, b"", 60), at["table"], b"\0"), "premature end of data segment"),
        (put(put(clean, mark + 2, b"", 60), clean.index(b"\xff\xd0"), bytes(60)), "missing"),
    ):
        with pytest.raises(DecodeError) as caught:
            image.decode(damage)
        assert caught.value.what.startswith("JPEG image is damaged: ")
        assert text in caught.value.what


@pytest.mark.parametrize("way", [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "executor": "processes"}], ids=str)
def test_a_feed_takes_them_and_warns(encode: Encode, photo: Photo, way: dict[str, Any]) -> None:
    clean = encode(photo, "JPEG")
    odd = HARMLESS["SOS parameters of Samsung"](clean, parts(clean))
    dataset = ps.from_source([{"data": odd}] * 40).map(image.decode("data")).map(image.resize("data", 8)).batch(8)
    words = r"read every pixel of 10? JPEG that libjpeg warns of, at last: Invalid SOS parameters"
    with pytest.warns(RuntimeWarning, match=words), dataset.feed(**way) as feed:
        batches = list(feed)
    wanted = image.resize(image.decode(clean), 8)
    assert all((batch["data"] == wanted).all() for batch in batches)
    assert len(batches) == 5


# -- scans ------------------------------------------------------------------------------------------------------------------------


def bomb(num_scans: int, frame: int) -> bytes:
    """Return a JPEG of 4,096 x 4,096 whose scans hold next to nothing."""
    symbols = (0xE0 if frame == 0xC2 else 0,)
    tables = b"".join(
        b"\xff\xc4" + struct.pack(">HB", 20, 0x10 * kind) + b"\1" + bytes(15) + bytes(symbols if kind else (0,)) for kind in (0, 1)
    )
    names = b"".join(bytes((name, 0x11, 0)) for name in (1, 2, 3))
    head = (
        b"\xff\xd8\xff\xdb\0\x43\0"
        + bytes([1] * 64)
        + b"\xff"
        + bytes((frame,))
        + struct.pack(">HBHHB", 17, 8, 4096, 4096, 3)
        + names
        + tables
    )
    first = b"\xff\xda" + struct.pack(">HBBBBBB", 8, 1, 1, 0, 0, 0 if frame == 0xC2 else 63, 0) + bytes(512 * 512 // 8)
    more = b"\xff\xda" + struct.pack(">HBBBBBB", 8, 1, 1, 0, 1 if frame == 0xC2 else 0, 63, 0) + b"\0\0"
    return head + first + more * (num_scans - 1) + b"\xff\xd9"


@pytest.mark.parametrize("frame", [0xC0, 0xC2])
def test_a_file_of_many_scans_is_refused_before_anything_is_decoded(frame: int) -> None:
    data = bomb(20_000, frame)  # which takes a minute to decode
    with pytest.raises(DecodeError) as caught:
        image.decode(data)
    assert caught.value.what == "JPEG image of 20000 scans is over the limit of 500"
    assert caught.value.where == f"image.decode('image'), {len(data)} bytes"
    assert "leave the file out of the list" in caught.value.fix
    assert read_header(bomb(500, frame), "here").width == 4096


def test_the_scans_of_a_usual_file_are_not_counted(encode: Encode, photo: Photo) -> None:
    data = encode(photo, "JPEG")
    assert read_header(data + b"\xff\xda" * 600, "here").width == 100
    assert np.array_equal(image.decode(data + b"\xff\xda" * 600), image.decode(data))


def test_what_a_cache_is_known_by_names_the_decoders() -> None:
    (read, decoded) = identity(ps.from_source([{"image": b""}]).map(image.decode("image"))._root, "")["plan"]
    assert decoded.endswith(f" simplejpeg {version('simplejpeg')}, cv2 {cv2.__version__}")
    assert "simplejpeg" not in read


def test_an_operator_that_has_counted_is_the_same_operator(encode: Encode, photo: Photo) -> None:
    operator, other = image.decode("data"), image.decode("data")
    clean = encode(photo, "JPEG")
    with pytest.warns(RuntimeWarning):
        operator({"data": HARMLESS["JFIF 0.00"](clean, parts(clean))})
    assert (operator, hash(operator), repr(operator)) == (other, hash(other), repr(other))
    assert digest_of(operator) == digest_of(other)
