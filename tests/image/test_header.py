import struct
from collections.abc import Callable

import numpy as np
import pytest
from image.pixels import chunk, exif
from numpy.typing import NDArray
from PIL import Image

from penstock.errors import DecodeError
from penstock.image.header import read_header, verify_png

Encode = Callable[..., bytes]
Photo = NDArray[np.uint8]


def test_grey_and_cmyk_jpeg_have_one_and_four_channels(encode: Encode, photo: Photo) -> None:
    assert read_header(encode(Image.fromarray(photo).convert("L"), "JPEG"), "here").channels == 1
    assert read_header(encode(Image.fromarray(photo).convert("CMYK"), "JPEG"), "here").channels == 4


def test_fill_bytes_before_a_jpeg_marker_are_skipped(encode: Encode, photo: Photo) -> None:
    data = encode(photo, "JPEG")
    assert read_header(data[:2] + b"\xff\xff\xff" + data[2:], "here").width == 100


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_every_cut_header_is_an_error_that_says_so(encode: Encode, photo: Photo, kind: str) -> None:
    data = encode(photo, kind)
    for size in range(16, 30):
        with pytest.raises(DecodeError) as caught:
            read_header(data[:size], "image.decode('data')")
        assert "is damaged: it is cut" in caught.value.what
        assert f"image.decode('data'), {size} bytes that begin with" in caught.value.where
        assert "get the file again" in caught.value.fix


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: data.replace(b"\xff\xda", b"\xff\xd9", 1), "behind the frame header"),
        (lambda data: data[:2] + b"\xff\xda\0\x0c" + data[6:], "marker 0xda of length 12 at byte 2, before any frame header"),
        (lambda data: data[:4] + b"\0\0" + data[6:], "marker 0xe0 of length 0 at byte 2"),
    ],
)
def test_jpeg_markers_that_make_no_sense_are_errors_with_their_place(
    encode: Encode, photo: Photo, change: Callable[[bytes], bytes], text: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        read_header(change(encode(photo, "JPEG")), "here")
    assert text in caught.value.what


def test_bytes_before_a_jpeg_marker_are_left_for_the_decoder_to_judge(encode: Encode, photo: Photo) -> None:
    data = encode(photo, "JPEG")
    assert read_header(data[:20] + b"stray \xff\0 bytes" + data[20:], "here").width == 100
    assert read_header(data[:20] + b"\0" + data[21:], "here").width == 100


def test_a_jpeg_frame_of_height_0_or_12_bits_is_an_error(encode: Encode, photo: Photo) -> None:
    data = encode(photo, "JPEG")
    frame = data.index(b"\xff\xc0")
    for at, value, text in (
        (frame + 4, b"\x0c", "3 channels of 12 bits"),
        (frame + 5, b"\0\0", "100 x 0 pixels"),
        (frame + 9, b"\2", "2 channels"),
    ):
        with pytest.raises(DecodeError) as caught:
            read_header(data[:at] + value + data[at + len(value) :], "here")
        assert text in caught.value.what


def test_png_and_webp_headers_that_make_no_sense_are_errors(encode: Encode, photo: Photo) -> None:
    png, webp = encode(photo, "PNG"), encode(photo, "WEBP")
    for data, text in (
        (png[:16] + b"\0\0\0\0" + png[20:], "PNG image is damaged: its header says 0 x 75 pixels"),
        (png[:25] + b"\x05" + png[26:], "colour type 5"),
        (webp[:12] + b"ABCD" + webp[16:], "WebP image is damaged: unknown first chunk b'ABCD'"),
        (webp[:26] + b"\0\0" + webp[28:], "WebP image is damaged: its header says 0 x 75 pixels"),
    ):
        with pytest.raises(DecodeError) as caught:
            read_header(data, "here")
        assert text in caught.value.what


def test_an_empty_file_is_an_error_that_says_empty() -> None:
    with pytest.raises(DecodeError) as caught:
        read_header(b"", "image.decode('data')")
    assert caught.value.what == "no bytes: the file is empty"
    assert caught.value.where == "image.decode('data'), 0 bytes"


@pytest.mark.parametrize("page", [b"<!DOCTYPE html><html><body>404</body>", b"\n  <html lang='en'>", b"\xef\xbb\xbf<HTML>"])
def test_an_html_page_is_an_error_that_says_so_with_its_first_bytes(page: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        read_header(page, "here")
    assert caught.value.what == f"HTML page, not an image; it begins with {page[:40]!r}"
    assert "get it again" in caught.value.fix


READ = "JPEG, PNG, WebP, BMP, GIF, TIFF, AVIF or JPEG 2000"


@pytest.mark.parametrize(("magic", "kind"), [(b"\xff\x0a", "JPEG XL"), (b"%PDF", "PDF")])
def test_other_image_formats_are_errors_that_name_them_and_the_supported_ones(magic: bytes, kind: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read_header(magic + bytes(40), "here")
    assert caught.value.what == f"{kind} data, not {READ}"
    assert "convert the file to JPEG, PNG or WebP" in caught.value.fix


def test_heic_gzip_zeros_and_noise_are_named_as_what_they_are() -> None:
    for data, text in (
        (b"\0\0\0\x18ftypheic\0\0\0\0", f"heic (HEIC) data, not {READ}"),
        (b"\x1f\x8b\x08\0\0\0", f"gzip data, not {READ}"),
        (bytes(100), f"unknown data, not {READ}; it begins with {bytes(16)!r}"),
    ):
        with pytest.raises(DecodeError) as caught:
            read_header(data, "here")
        assert caught.value.what == text


def test_png_chunks_that_are_cut_or_changed_are_errors_with_their_place(encode: Encode, photo: Photo) -> None:
    data = encode(photo, "PNG")
    header = read_header(data, "here")
    changed = bytearray(data)
    changed[data.index(b"IDAT") + 50] ^= 1
    for damage, text in (
        (bytes(changed), "chunk b'IDAT' at byte 33 has a wrong CRC"),
        (data[:-1], f"it is cut at byte {len(data) - 1}, inside"),
    ):
        with pytest.raises(DecodeError) as caught:
            verify_png(damage, header, "here")
        assert text in caught.value.what


def test_a_damaged_note_in_a_png_is_ignored_and_a_whole_one_is_read(encode: Encode, photo: Photo) -> None:
    data = encode(photo, "PNG", exif=exif(3))
    assert verify_png(data, read_header(data, "here"), "here") == 3
    changed = bytearray(data)
    changed[data.index(b"eXIf") + 6] ^= 1
    assert verify_png(bytes(changed), read_header(data, "here"), "here") == 1


def test_a_png_header_that_promises_more_than_its_data_can_hold_is_an_error() -> None:
    data = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 9000, 9000, 8, 6, 0, 0, 0))
        + chunk(b"IDAT", bytes(10))
        + chunk(b"IEND", b"")
    )
    with pytest.raises(DecodeError, match="10 bytes of pixels for 9000 x 9000"):
        verify_png(data, read_header(data, "here"), "here")
