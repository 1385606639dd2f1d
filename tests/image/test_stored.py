"""decode(mode="unchanged"): what the file stores, compared with what Pillow, OpenCV and tifffile have written."""

from __future__ import annotations

import io
import warnings
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
import tifffile
from PIL import Image

import penstock as ps
from penstock import image
from penstock.errors import DecodeError

RNG = np.random.default_rng(1)


def unchanged(data: bytes, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return image.decode(data, mode="unchanged", **options)


def pillow(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def tiff(pixels: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, pixels, **options)
    return file.getvalue()


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("transparent", [False, True])
def test_a_palette_gives_its_numbers(bits: int, transparent: bool) -> None:
    numbers = RNG.integers(0, 2**bits, (23, 37), np.uint8)
    picture = Image.fromarray(numbers, "P")
    picture.putpalette(RNG.integers(0, 256, 3 * 2**bits).tolist())
    data = pillow(picture, bits=bits, **({"transparency": 0} if transparent else {}))
    assert (data[24], data[25]) == (bits, 3)
    assert np.array_equal(unchanged(data)[..., 0], numbers)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_grey_of_few_bits_gives_its_numbers(bits: int) -> None:
    numbers = RNG.integers(0, 2**bits, (9, 37), np.uint8)
    picture = Image.fromarray(numbers, "P")
    picture.putpalette(list(range(3 * 2**bits)))
    data = bytearray(pillow(picture, bits=bits))
    data[25] = 0  # the same rows, said to be grey
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    assert np.array_equal(unchanged(bytes(data))[..., 0], numbers)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_depth_and_alpha_of_a_png_stay(dtype: Any, channels: int) -> None:
    pixels = RNG.integers(0, np.iinfo(dtype).max + 1, (11, 17, channels), dtype)
    data = cv2.imencode(".png", pixels[..., [2, 1, 0, 3][:channels]] if channels > 1 else pixels)[1].tobytes()
    found = unchanged(data)
    assert found.dtype == dtype
    assert np.array_equal(found, pixels)


def test_grey_with_alpha_has_two_channels_and_webp_keeps_alpha() -> None:
    pixels = RNG.integers(0, 256, (11, 17, 2), np.uint8)
    assert np.array_equal(unchanged(pillow(Image.fromarray(pixels, "LA"))), pixels)
    colours = RNG.integers(0, 256, (11, 17, 4), np.uint8)
    assert np.array_equal(unchanged(pillow(Image.fromarray(colours, "RGBA"), "WEBP", lossless=True, exact=True)), colours)


def test_other_formats_are_as_decoded_by_default() -> None:
    photo = cv2.resize(RNG.integers(0, 256, (5, 6, 3), np.uint8), (40, 30))
    for kind, options in (("JPEG", {}), ("BMP", {}), ("WEBP", {"lossless": True})):
        data = pillow(Image.fromarray(photo), kind, **options)
        assert np.array_equal(unchanged(data), image.decode(data))
    grey = pillow(Image.fromarray(photo[..., 0]), "JPEG")
    assert np.array_equal(unchanged(grey), image.decode(grey, mode="GRAY"))
    turned = Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3), "L")
    exif = Image.Exif()
    exif[274] = 6
    assert unchanged(pillow(turned, exif=exif))[..., 0].tolist() == [[3, 0], [4, 1], [5, 2]]


@pytest.mark.parametrize(
    ("shape", "dtype", "options", "wanted"),
    [
        ((7, 9), np.uint16, {}, (7, 9, 1)),
        ((7, 9), np.float32, {}, (7, 9, 1)),
        ((7, 9, 3), np.uint8, {"photometric": "rgb"}, (7, 9, 3)),
        ((13, 7, 9), np.int16, {"photometric": "minisblack", "planarconfig": "separate"}, (7, 9, 13)),  # bands of a satellite
        ((5, 7, 9), np.uint16, {"photometric": "minisblack"}, (7, 9, 5)),  # pages of a microscope
        ((7, 9), np.uint8, {"compression": "zlib"}, (7, 9, 1)),
    ],
)
def test_a_tiff_keeps_dtype_bands_and_pages(shape: Any, dtype: Any, options: dict[str, Any], wanted: Any) -> None:
    pixels = RNG.integers(0, 100, shape).astype(dtype)
    found = unchanged(tiff(pixels, **options))
    assert (found.shape, found.dtype) == (wanted, dtype)
    moved = pixels.reshape(wanted) if wanted[:2] == shape[:2] else np.moveaxis(pixels, 0, 2)
    assert np.array_equal(found, moved)


def test_what_is_damaged_or_too_large_is_an_error_that_says_so() -> None:
    data = tiff(np.zeros((70, 90), np.uint16))
    with pytest.raises(DecodeError, match="with a limit of 100 pixels"):
        unchanged(data, max_pixels=100)
    with pytest.raises(DecodeError, match="TIFF image is damaged: tifffile says"):
        unchanged(data[:60])
    png = pillow(Image.fromarray(np.zeros((70, 90), np.uint8), "P"))
    with pytest.raises(DecodeError, match="PNG image is damaged"):
        unchanged(png[:-20])


def test_a_deep_image_and_its_mask_are_cropped_together() -> None:
    deep = RNG.integers(0, 65536, (40, 50), np.uint16)
    mask = Image.fromarray((deep >> 12).astype(np.uint8), "P")
    mask.putpalette(list(range(256)) * 3)
    element = {"image": cv2.imencode(".png", deep)[1].tobytes(), "mask": pillow(mask)}
    ds = ps.from_source([element] * 4).map(image.decode("image", mode="unchanged")).map(image.decode("mask", mode="unchanged"))
    for one in ds.map(image.random_crop("image", 20, fields={"mask": "mask"}), seed=1).feed(num_workers=1, executor="threads"):
        assert np.array_equal(one["image"] >> 12, one["mask"])
