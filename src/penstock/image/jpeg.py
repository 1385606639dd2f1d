"""JPEG files that TurboJPEG refuses or complains of, and that have every pixel all the same.

libjpeg reads on after whatever it only warns of, be it a version number that it does not know or half of the image missing, and it says
only its first complaint. So the file is copied without what is known to be harmless, and the copy has to decode without a complaint:

| The warning                         | Who writes such files          | In the copy |
|-------------------------------------|--------------------------------|-------------|
| unknown JFIF revision               | scanners (0.00), editors       | 1.02 |
| invalid SOS parameters              | phones of Samsung              | 0, 63, 0, as a sequential scan has them |
| unknown Adobe color transform       | converters of CMYK             | what libjpeg takes it for |
| extraneous bytes before a marker    | cameras, editors               | left out where they lie between two segments |

Bytes that are left over behind the data of a scan cannot be told from the data without decoding them. There, and where OpenCV decodes a
sampling that TurboJPEG does not know (OpenCV tells no warnings at all), the file is decoded a second time with other bytes behind the data
of each scan: where data are missing, these are taken for them, and the pixels differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.image.header import Data
from penstock.image.operator import load_cv2, load_simplejpeg

_Pixels = NDArray[np.uint8]


class Taken(NamedTuple):
    """Pixels of a file that TurboJPEG refused or complained of.

    Attributes:
        pixels: in the order of TurboJPEG; RGB or one channel where OpenCV decoded them.
        harmless: the complaint, where it was one.
    """

    pixels: _Pixels
    harmless: str


def take(data: Data, buffer: _Pixels, space: str, complaint: str) -> Taken:
    """Decode what TurboJPEG did not decode without a complaint.

    Args:
        data: the file.
        buffer: for the pixels, of the shape that `space` has.
        space: "RGB", "GRAY" or "CMYK", as simplejpeg calls them.
        complaint: what TurboJPEG said.

    Raises:
        ValueError: pixels are missing, or may be; it says why.
    """
    clean = _without_the_harmless(bytes(data))
    if _UNKNOWN_SAMPLING in complaint:
        pixels = _by_cv2(clean, space)
        if pixels is None or not _is_whole(clean, pixels, lambda other: _by_cv2(other, space)):
            raise ValueError("pixels are missing")
        return Taken(pixels, "")
    left = _complaint_of(clean, space, buffer)
    if left and _LEFT_OVER not in left:
        raise ValueError(left)
    if left and not _is_whole(clean, _forgiving(clean, space, buffer).copy(), lambda other: _forgiving(other, space, buffer)):
        raise ValueError(f"{left}, and pixels are missing")
    return Taken(buffer, complaint)


_UNKNOWN_SAMPLING = "Could not determine subsampling level"
_LEFT_OVER = "extraneous bytes before marker"


def _complaint_of(data: bytes, space: str, buffer: _Pixels) -> str:
    try:
        load_simplejpeg().decode_jpeg(data, space, buffer=buffer, strict=True)
    except ValueError as error:
        return str(error)
    return ""


def _forgiving(data: bytes, space: str, buffer: _Pixels) -> _Pixels:
    load_simplejpeg().decode_jpeg(data, space, buffer=buffer, strict=False)
    return buffer


def _by_cv2(data: bytes, space: str) -> _Pixels | None:
    """Decode with OpenCV, whose libjpeg is set as TurboJPEG's: the accurate transform, and smooth upsampling of colours."""
    cv2 = load_cv2()
    colour = cv2.IMREAD_GRAYSCALE if space == "GRAY" else cv2.IMREAD_COLOR_RGB
    try:
        pixels: Any = cv2.imdecode(np.frombuffer(data, np.uint8), colour | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None
    return None if pixels is None else pixels.reshape(*pixels.shape[:2], -1)


# -- the parts of a file ----------------------------------------------------------------------------------------------------------

_MARKER = re.compile(rb"\xff[\x02-\xcf\xd8-\xfe]")
_BEHIND_SCAN = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_RESTART = re.compile(rb"(?=\xff[\xd0-\xd7])")
_SEQUENTIAL = frozenset((0xC0, 0xC1, 0xC9))
_TRANSFORMS = {3: b"\0\1", 4: b"\0\2"}
"""The known colour transforms for so many channels; libjpeg takes any other for the last one."""
_FILLER = bytes(np.random.default_rng(0).integers(1, 255, 64, np.uint8))


def _segments(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield marker, segment and, behind the start of a scan, its data; without the bytes between segments."""
    at = 2
    while found := _MARKER.search(data, at):
        marker, begin = data[found.start() + 1], found.start()
        if marker == 0xD9:
            yield marker, found[0], b""
            return
        end = at = begin + 2 + int.from_bytes(data[begin + 2 : begin + 4], "big")
        if marker == 0xDA:
            behind = _BEHIND_SCAN.search(data, end)
            at = behind.start() if behind else len(data)
        yield marker, data[begin:end], data[end:at]


def _without_the_harmless(data: bytes) -> bytes:
    out, sequential, known = [data[:2]], False, b""
    for marker, segment, scan in _segments(data):
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            sequential, known = marker in _SEQUENTIAL, _TRANSFORMS.get(segment[9], b"")
        elif marker == 0xE0 and segment[4:9] == b"JFIF\0":
            segment = segment[:9] + b"\1\2" + segment[11:]
        elif marker == 0xDA and sequential:
            segment = segment[:-3] + b"\0\x3f\0"
        out += segment, scan
    return b"".join(_with_known_transform(part, known) for part in out)


def _with_known_transform(segment: bytes, known: bytes) -> bytes:
    adobe = segment[:2] == b"\xff\xee" and segment[4:9] == b"Adobe" and known and segment[15:16]
    return segment if not adobe or adobe in known else segment[:15] + known[-1:] + segment[16:]


def _is_whole(data: bytes, pixels: _Pixels, decode: Callable[[bytes], _Pixels | None]) -> bool:
    """Tell whether the pixels stay as they are with other bytes behind the data of each scan, and its restart marks are in order.

    With restart marks one more stretch follows. A lone scan goes without the mark of the end: OpenCV writes to stderr about bytes before it.
    """
    parts, restarts, scans = [data[:2]], False, 0
    for marker, segment, scan in _segments(data):
        restarts |= marker == 0xDD
        scans += marker == 0xDA
        if marker == 0xD9 and scans == 1:
            break
        stretches = _RESTART.split(scan)
        if any(stretch[1] != 0xD0 + number % 8 for number, stretch in enumerate(stretches[1:])):
            return False
        if restarts and scan:
            stretches.append(b"\xff%c" % (0xD0 + (len(stretches) - 1) % 8))
        parts += segment, *(stretch + _FILLER for stretch in stretches if scan)
    again = decode(b"".join(parts))
    return again is not None and np.array_equal(again, pixels)
