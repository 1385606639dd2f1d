"""Images of all formats: the pixels of Pillow, or an error that says what it is."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cv2
import numpy as np
import pytest
from image.pixels import as_pillow, difference, exif
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
import penstock.image as image
from penstock.errors import DecodeError
from penstock.image.header import read_header

Encode = Callable[..., bytes]
Photo = NDArray[np.uint8]

FORMATS = {
    "JPEG": [{}, {"progressive": True}, {"subsampling": 0}],
    "PNG": [{}],
    "WEBP": [{"quality": 80}, {"lossless": True}, {"lossless": True, "exact": True, "exif": exif(1).tobytes()}],
    "BMP": [{}],
    "GIF": [{}, {"interlace": 1}, {"transparency": 3}],
    "TIFF": [{}, *({"compression": name} for name in ("tiff_lzw", "tiff_deflate", "tiff_adobe_deflate", "packbits", "jpeg"))],
    "AVIF": [{"quality": 90}, {"quality": 100, "subsampling": "4:4:4"}],
    "JPEG2000": [{}, {"no_jp2": True}, {"irreversible": True, "quality_layers": [20]}, {"tile_size": (32, 32)}],
}
MODES = {
    "JPEG": ("RGB", "L", "CMYK"),
    "PNG": ("RGB", "L", "1", "LA", "RGBA"),
    "WEBP": ("RGB", "L", "RGBA"),
    "BMP": ("RGB", "L", "1", "P", "RGBA"),
    "GIF": ("P", "L", "1"),
    "TIFF": ("RGB", "L", "1", "CMYK", "YCbCr"),
    "AVIF": ("RGB", "L", "RGBA"),
    "JPEG2000": ("RGB", "L", "RGBA"),
}
CASES = [
    (kind, mode, options)
    for kind in FORMATS
    for mode in MODES[kind]
    for options in FORMATS[kind]
    if (mode, options.get("compression")) != ("1", "jpeg")
]


def in_mode(photo: Photo, mode: str) -> Image.Image:
    picture = Image.fromarray(photo[:45, :61])
    if mode in ("RGBA", "LA"):
        picture = picture.convert(mode[:-1])
        picture.putalpha(Image.fromarray(np.arange(45 * 61, dtype=np.uint8).reshape(45, 61)))
        return picture
    return picture.quantize(40) if mode == "P" else picture.convert(mode)


@pytest.mark.parametrize(("kind", "mode", "options"), CASES, ids=str)
@pytest.mark.parametrize("wrap", [bytes, memoryview])
def test_the_pixels_are_those_of_pillow_and_a_cut_file_is_an_error(
    encode: Encode, photo: Photo, kind: str, mode: str, options: dict[str, Any], wrap: Callable[[bytes], Any]
) -> None:
    data = encode(in_mode(photo, mode), kind, **options)
    pixels = image.decode(wrap(data))
    strict = kind in ("JPEG", "PNG", "WEBP")
    assert difference(pixels, as_pillow(data)) <= (2 if kind in ("JPEG", "WEBP") else kind == "TIFF" and mode == "YCbCr")
    assert difference(image.decode(data, mode="GRAY")[..., 0], np.asarray(Image.fromarray(pixels).convert("L"))) <= (2 if strict else 1)
    for cut in [*range(0, len(data) - 1, len(data) // 16), len(data) - 2, len(data) - 1]:
        if strict and cut:
            with pytest.raises(DecodeError, match="image is damaged") as caught:
                image.decode("data")({"data": wrap(data[:cut])})
            assert f"image.decode('data'), {cut} bytes that begin with" in caught.value.where
            assert "get the file again or leave it out of the list" in caught.value.fix
        else:
            with suppress(DecodeError):  # or the same pixels: a TIFF may end with what nobody needs
                assert np.array_equal(image.decode(wrap(data[:cut])), pixels)


@pytest.mark.parametrize("transparent", [False, True])
def test_the_first_picture_of_a_gif_stands_where_it_belongs(encode: Encode, photo: Photo, transparent: bool) -> None:
    small = in_mode(photo, "P").crop((0, 0, 30, 20))
    data = bytearray(
        encode(small, "GIF", save_all=True, append_images=[in_mode(photo, "P")], **({"transparency": 3} if transparent else {}))
    )
    data[6:10] = struct.pack("<HH", 61, 45)
    at = data.index(b",\0\0\0\0")
    data[at + 1 : at + 5] = struct.pack("<HH", 5, 7)
    assert difference(image.decode(bytes(data)), as_pillow(bytes(data))) == 0


@pytest.mark.parametrize("channels", [1, 3])
def test_a_tiff_of_16_bits_becomes_8_by_a_shift(channels: int) -> None:
    deep = np.random.default_rng(2).integers(0, 65536, (30, 40, channels), np.uint16)
    data = cv2.imencode(".tiff", deep)[1].tobytes()
    shifted = (deep >> 8).astype(np.uint8)
    assert difference(image.decode(data), shifted.repeat(3, 2) if channels == 1 else shifted[..., ::-1]) == 0


def test_jpeg_2000_of_16_bits_is_stored_as_such_and_becomes_8_by_a_shift() -> None:
    deep = np.random.default_rng(2).integers(0, 65536, (96, 128, 3), np.uint16)
    data = cv2.imencode(".jp2", deep[..., ::-1], [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000])[1].tobytes()
    assert np.array_equal(image.decode(data, mode="unchanged"), deep)
    assert difference(image.decode(data), (deep >> 8).astype(np.uint8)) == 0


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "LAB", "F", "I"])
def test_a_tiff_whose_colours_opencv_would_change_is_an_error(encode: Encode, photo: Photo, mode: str) -> None:
    picture = (
        in_mode(photo, mode)
        if mode in ("P", "RGBA")
        else Image.fromarray(photo[:45, :61]).convert("L" if mode in "FI" else mode).convert(mode)
    )
    with pytest.raises(DecodeError) as caught:
        image.decode(encode(picture, "TIFF"))
    assert (
        caught.value.what == "TIFF image of 61 x 45 pixels that are not whole numbers of grey, RGB, CMYK or YCbCr without alpha or palette"
    )
    assert "convert the file to PNG" in caught.value.fix


@pytest.mark.parametrize("kind", FORMATS)
def test_the_pixel_limit_is_exact(encode: Encode, photo: Photo, kind: str) -> None:
    data = encode(photo, kind)
    assert image.decode(data, max_pixels=7500).shape == (75, 100, 3)
    with pytest.raises(DecodeError, match="100 x 75 = 7500 pixels is over the limit of 7499"):
        image.decode(data, max_pixels=7499)
    assert read_header(data, "here")[:4] == ({"JPEG2000": "JPEG 2000", "WEBP": "WebP"}.get(kind, kind), 75, 100, 3)


def test_a_bmp_from_top_to_bottom_is_read() -> None:
    rows = np.random.default_rng(1).integers(0, 256, (6, 8, 3), np.uint8)
    head = b"BM" + struct.pack("<IHHI", 54 + rows.nbytes, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, 8, -6, 1, 24, 0, 0, 0, 0, 0, 0)
    assert difference(image.decode(head + rows.tobytes()), rows[..., ::-1]) == 0


def test_a_folder_of_all_formats_is_decoded(tmp_path: Any, encode: Encode, photo: Photo) -> None:
    names = {
        "a.jfif": "JPEG",
        "b.jpe": "JPEG",
        "c.bmp": "BMP",
        "d.tif": "TIFF",
        "e.TIFF": "TIFF",
        "f.avif": "AVIF",
        "g.gif": "GIF",
        "h.webp": "WEBP",
        "i.jp2": "JPEG2000",
    }
    (tmp_path / "class").mkdir()
    for name, kind in names.items():
        (tmp_path / "class" / name).write_bytes(encode(photo, kind))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = list(ps.read_images(tmp_path).map(image.decode("data")))
    assert [row["path"] for row in found] == [f"class/{name}" for name in sorted(names)]
    assert {row["data"].shape for row in found} == {(75, 100, 3)}
