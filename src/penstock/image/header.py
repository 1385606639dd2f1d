"""What the first bytes of an image file say: format, size, channels, orientation. Nothing is decoded.

The orientation stands in EXIF bytes, where the camera wrote it.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import Literal, NamedTuple

import numpy as np

from penstock.errors import DecodeError
from penstock.kernels.library import Array

_ORIENTATION = 0x0112
_TIFF_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_WHOLE = {3: ("H", 2), 4: ("I", 4), 8: ("h", 2), 9: ("i", 4)}
"""For each TIFF type of whole numbers its letter for `struct` and its size."""
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
_MAX_SCANS = 500  # libjpeg-turbo's own limit for files of strangers; encoders make about ten


def read_orientation(exif: bytes, xmp: bytes = b"") -> int:
    """Return the orientation 1..8 of EXIF, a TIFF structure; of XMP where EXIF has none: Pillow's rule.

    Both are notes beside the pixels: one that is damaged, or has no valid orientation, means 1 (upright) and is no error.
    """
    value = _read_tags(exif.removeprefix(b"Exif\0\0").removeprefix(b"Exif\0\0")).get(_ORIENTATION)
    if value is None:
        found = _XMP_ORIENTATION.search(xmp)
        value = int(found[1]) if found else 1
    return value if 1 <= value <= 8 else 1


def _read_tags(tiff: Data) -> dict[int, int]:
    """Return the first number of each tag of the first directory that has whole numbers: the second is of the thumbnail."""
    order, tags = _TIFF_ORDERS.get(bytes(tiff[:4])), dict[int, int]()
    start = struct.unpack_from(order + "I", tiff, 4)[0] if order is not None and len(tiff) >= 10 else len(tiff)
    if order is None or start + 2 > len(tiff):
        return tags
    for at in range(start + 2, min(start + 2 + 12 * struct.unpack_from(order + "H", tiff, start)[0], len(tiff) - 11), 12):
        tag, kind, count = struct.unpack_from(order + "HHI", tiff, at)
        if kind in _WHOLE:
            code, size = _WHOLE[kind]
            place = at + 8 if count * size <= 4 else struct.unpack_from(order + "I", tiff, at + 8)[0]
            if count and place + count * size <= len(tiff):
                tags.setdefault(tag, struct.unpack_from(order + code, tiff, place)[0])
    return tags


def orient(pixels: Array, orientation: int) -> Array:
    """Return a view of `pixels` (height, width, channels) as it is meant to be seen; 5 to 8 swap height and width."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 6):
        return pixels[:, ::-1]
    if orientation in (3, 7):
        return pixels[::-1, ::-1]
    if orientation in (4, 8):
        return pixels[::-1]
    return pixels


Data = bytes | memoryview

_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_DEFLATE_LIMIT = 1032  # deflate cannot make more bytes than this out of one


class Header(NamedTuple):
    """What is known before anything is decoded.

    Attributes:
        kind: the format.
        height, width: size in pixels as stored, before the orientation is applied.
        channels: 1, 3 or 4.
        orientation: of EXIF, 1 to 8 (PNG: 1, see `verify_png`).
        height_at: where a sequential JPEG says its height (2 bytes, big end first); 0 for all others. Its rows come from top to bottom.
    """

    kind: Literal["JPEG", "PNG", "WebP", "BMP", "GIF", "TIFF", "AVIF", "JPEG 2000"]
    height: int
    width: int
    channels: int
    orientation: int
    height_at: int = 0


def read_header(data: Data, where: str) -> Header:
    """Read the header of an image file, told apart by content.

    Raises:
        DecodeError: no bytes, another format, or a header that is cut or makes no sense.
    """
    start = bytes(data[:16])
    if start[:3] == b"\xff\xd8\xff":
        return _read_jpeg(data, where)
    if start[:8] == b"\x89PNG\r\n\x1a\n":
        return _read_png(data, where)
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return _read_webp(data, where)
    for kind, order, pattern in _SIZES:
        if found := pattern.match(data):
            width, height = struct.unpack(order, found[1] + found[2])
            if kind == "JPEG 2000" and bytes(data).find(b"\xff\xd9", found.end()) < 0:  # OpenJPEG fills up what is cut
                raise damaged(kind, f"it is cut, {len(data)} bytes", data, where)
            return Header(kind, abs(height), width, 3, _avif_orientation(data) if kind == "AVIF" else 1)
    if start[:4] in _TIFF_ORDERS:
        return _read_tiff(data, where)
    raise _not_an_image(data, where)


def damaged(kind: str, what: str, data: Data, where: str) -> DecodeError:
    """Make the error for bytes that begin like `kind` and then go wrong."""
    return DecodeError(
        f"{kind} image is damaged: {what}",
        where=f"{where}, {len(data)} bytes that begin with {bytes(data[:12])!r}",
        fix="get the file again or leave it out of the list",
    )


def _read_jpeg(data: Data, where: str) -> Header:
    at, size, exif, xmp, frame = 2, len(data), b"", b"", 0
    while at + 10 <= size:
        marker = data[at + 1]
        if data[at] != 0xFF or marker in _NO_MARKERS:  # a fill byte, or one that belongs to nothing, which is left for the decoder to judge
            at += 1
            continue
        length = data[at + 2] << 8 | data[at + 3]
        if marker == 0xDA and frame:
            return _jpeg_frame(data, frame, at, read_orientation(exif, xmp), where)
        if marker in (0xD8, 0xD9, 0xDA) or length < 2:
            place = "behind the frame header" if frame else "before any frame header"
            raise damaged("JPEG", f"marker {marker:#04x} of length {length} at byte {at}, {place}", data, where)
        if marker in FRAMES:
            frame = frame or at
        elif marker == 0xE1:
            exif, xmp = _joined(bytes(data[at + 4 : at + 2 + length]), exif, xmp)
        at += 2 + length
    raise damaged("JPEG", f"it is cut in its header, {size} bytes", data, where)


def _joined(note: bytes, exif: bytes, xmp: bytes) -> tuple[bytes, bytes]:
    """Return EXIF and XMP with one more note. EXIF of more than 64 kB goes on in the next segment."""
    if note.startswith(b"Exif\0\0"):
        return exif + (note[6:] if exif else note), xmp
    return exif, note if note.startswith(_XMP) else xmp


FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The markers of frame headers."""
_NO_MARKERS = frozenset((0x00, 0x01, *range(0xD0, 0xD8), 0xFF))
_PROGRESSIVE = (0xC2, 0xCA)


def _check_scans(data: Data, where: str) -> None:
    """Refuse a file whose scans, each over the whole picture, are there to take time: 424 kB took 13 s."""
    pairs = np.frombuffer(data, np.uint8)
    num_scans = np.count_nonzero((pairs[:-1] == 0xFF) & (pairs[1:] == 0xDA))  # 10 us for 70 kB; bytes.count takes 200
    if num_scans > _MAX_SCANS:
        raise DecodeError(
            f"JPEG image of {num_scans} scans is over the limit of {_MAX_SCANS}",
            where=f"{where}, {len(data)} bytes",
            fix="leave the file out of the list: each scan takes the time of a picture, and encoders make about ten",
        )


def _jpeg_frame(data: Data, at: int, scan: int, orientation: int, where: str) -> Header:
    bits, channels = data[at + 4], data[at + 9]
    height, width = data[at + 5] << 8 | data[at + 6], data[at + 7] << 8 | data[at + 8]
    if height == 0 or width == 0 or bits != 8 or channels not in (1, 3, 4):
        raise damaged("JPEG", f"its header says {width} x {height} pixels, {channels} channels of {bits} bits", data, where)
    if data[at + 1] in _PROGRESSIVE or data[scan + 4] < channels:
        _check_scans(data, where)
    return Header("JPEG", height, width, channels, orientation, at + 5 if data[at + 1] in (0xC0, 0xC1) else 0)


def _read_png(data: Data, where: str) -> Header:
    if len(data) < 33:
        raise damaged("PNG", f"it is cut in its header, {len(data)} bytes", data, where)
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    channels = _PNG_CHANNELS.get(data[25])
    if bytes(data[8:16]) != b"\0\0\0\rIHDR" or channels is None or data[24] not in (1, 2, 4, 8, 16) or not (width and height):
        raise damaged("PNG", f"its header says {width} x {height} pixels, {data[24]} bits, colour type {data[25]}", data, where)
    return Header("PNG", height, width, channels, 1)


def verify_png(data: Data, header: Header, where: str) -> int:
    """Check that all chunks are there and that those which carry pixels have the right CRC; return the EXIF orientation.

    Decoders differ in what they forgive; after this check there is nothing left to forgive. About 0.1 ms per 100 kB.

    Raises:
        DecodeError: a chunk is cut or changed, or there is too little data for the size that the header says.
    """
    view, at, num_pixel_bytes, exif, xmp = memoryview(data), 8, 0, b"", b""
    while True:
        length = int.from_bytes(view[at : at + 4], "big")
        end = at + 12 + length
        if end > len(view):
            raise damaged("PNG", f"it is cut at byte {len(view)}, inside the chunk at byte {at}", data, where)
        name = bytes(view[at + 4 : at + 8])
        intact = zlib.crc32(view[at + 4 : end - 4]) == int.from_bytes(view[end - 4 : end], "big")
        if not intact and not name[0] & 0x20:  # a capital: a chunk that the pixels depend on
            raise damaged("PNG", f"chunk {name!r} at byte {at} has a wrong CRC", data, where)
        if name == b"IDAT":
            num_pixel_bytes += length
        elif name == b"eXIf" and intact:
            exif = bytes(view[at + 8 : end - 4])
        elif name == b"iTXt" and intact and bytes(view[at + 8 : at + 26]) == b"XML:com.adobe.xmp\0":
            xmp = bytes(view[at + 26 : end - 4])
        elif name == b"IEND":
            break
        at = end
    num_bits = header.width * data[24] * (1 if data[25] == 3 else header.channels)
    if header.height * ((num_bits + 7) // 8) > _DEFLATE_LIMIT * (num_pixel_bytes + 1):
        raise damaged("PNG", f"{num_pixel_bytes} bytes of pixels for {header.width} x {header.height}", data, where)
    return read_orientation(exif, xmp)


def _read_webp(data: Data, where: str) -> Header:
    riff_end = 8 + int.from_bytes(data[4:8], "little")
    if len(data) < 30 or riff_end > len(data):
        raise damaged("WebP", f"it is cut: {len(data)} bytes of {riff_end}", data, where)
    chunk, orientation = bytes(data[12:16]), 1
    if chunk == b"VP8 " and bytes(data[23:26]) == b"\x9d\x01\x2a":
        width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (26, 28))
    elif chunk == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif chunk == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        orientation = _webp_orientation(data, riff_end) if data[20] & 0x0C else 1
    else:
        raise damaged("WebP", f"unknown first chunk {chunk!r}", data, where)
    if not (width and height):
        raise damaged("WebP", f"its header says {width} x {height} pixels", data, where)
    return Header("WebP", height, width, 3, orientation)


def _webp_orientation(data: Data, end: int) -> int:
    at, notes = 12, dict[bytes, bytes]()
    while at + 8 <= end:
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        notes.setdefault(bytes(data[at : at + 4]), bytes(data[at + 8 : at + 8 + length]))
        at += 8 + length + (length & 1)
    has_exif, has_xmp = data[20] & 0x08, data[20] & 0x04
    return read_orientation(notes.get(b"EXIF", b"") if has_exif else b"", notes.get(b"XMP ", b"") if has_xmp else b"")


_SIZES: tuple[tuple[Literal["BMP", "GIF", "AVIF", "JPEG 2000"], str, re.Pattern[bytes]], ...] = (
    ("BMP", "<ii", re.compile(rb"BM.{16}(....)(....)", re.DOTALL)),
    ("GIF", "<HH", re.compile(rb"GIF8..(..)(..)", re.DOTALL)),
    ("AVIF", ">II", re.compile(rb"....ftypavi[fs].*?ispe....(....)(....)", re.DOTALL)),
    ("JPEG 2000", ">II", re.compile(rb"(?:\0\0\0\x0cjP  .*?)?\xffO\xffQ....(....)(....)", re.DOTALL)),
)
"""For each format how its width and height are written, and where they stand."""


def _avif_orientation(data: Data) -> int:
    head = bytes(data).partition(b"mdat")[0]
    turn, mirror = re.search(rb"irot([\0-\3])", head), re.search(rb"imir([\0\1])", head)
    return _TURNED[1 + mirror[1][0] if mirror else 0][turn[1][0] if turn else 0]


_TURNED = (1, 8, 3, 6), (4, 5, 2, 7), (2, 7, 4, 5)
"""The orientation for no mirror, one from top to bottom, one from left to right, then for so many quarter turns against the clock."""


def is_tiff(data: Data) -> bool:
    """Tell whether a file begins as TIFF does."""
    return bytes(data[:4]) in _TIFF_ORDERS


def tiff_orientation(data: Data) -> int:
    """Return the orientation of a TIFF image, 1 to 8."""
    found = _read_tags(data).get(_ORIENTATION, 1)
    return found if 1 <= found <= 8 else 1


def _read_tiff(data: Data, where: str) -> Header:
    tags = _read_tags(data)
    size = tags.get(257, 0), tags.get(256, 0)
    known = tags.get(262) in _TIFF_COLOURS.get(tags.get(258, 1), ()) and tags.get(284, 1) == tags.get(339, 1) == 1
    if not known or 338 in tags or not all(size):
        raise DecodeError(
            f"TIFF image of {size[1]} x {size[0]} pixels that are not whole numbers of grey, RGB, CMYK or YCbCr without alpha or palette",
            where=f"{where}, {len(data)} bytes",
            fix="convert the file to PNG, or map a function of your own that decodes it",
        )
    return Header("TIFF", *(size if tags.get(_ORIENTATION, 1) < 5 else size[::-1]), 3, 1)  # OpenCV turns it, unasked


_TIFF_COLOURS = {1: (0, 1), 4: (0, 1), 8: (0, 1, 2, 5, 6), 16: (1, 2)}
"""For so many bits what colours OpenCV gives as they are stored. It multiplies with alpha, and tells of no cut with a palette."""

_OTHERS = {
    b"\xff\x0a": "JPEG XL",
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"%PDF": "PDF",
}


_NOT_READ = "not JPEG, PNG, WebP, BMP, GIF, TIFF, AVIF or JPEG 2000"


def _not_an_image(data: Data, where: str) -> DecodeError:
    start = bytes(data[:64])
    where = f"{where}, {len(data)} bytes"
    if not start:
        return DecodeError("no bytes: the file is empty", where=where, fix="get the file again or leave it out of the list")
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")):
        return DecodeError(
            f"HTML page, not an image; it begins with {start[:40]!r}",
            where=where,
            fix="the server sent an error page when this file was fetched: get it again",
        )
    kind = next((name for magic, name in _OTHERS.items() if start.startswith(magic)), None)
    if start[4:8] == b"ftyp":
        kind = f"{start[8:12].decode('latin-1')} (HEIC)"
    return DecodeError(
        f"{kind} data, {_NOT_READ}" if kind else f"unknown data, {_NOT_READ}; it begins with {start[:16]!r}",
        where=where,
        fix="convert the file to JPEG, PNG or WebP, or map a function of your own that decodes it",
    )
