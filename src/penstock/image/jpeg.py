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
from functools import partial

import numpy as np
from numpy.typing import NDArray

from penstock.image.header import FRAMES, Data
from penstock.image.operator import imdecode, load_cv2, load_simplejpeg

_MARKER = re.compile(rb"\xff[\x02-\xcf\xd8-\xfe]")
_BEHIND_SCAN = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_RESTART = re.compile(rb"\xff*(\xff[\xd0-\xd7])")
_SEQUENTIAL = (0xC0, 0xC1, 0xC9)
_ARITHMETIC = (0xC9, 0xCA)
_FILLER = bytes(np.random.default_rng(0).integers(1, 255, 64, np.uint8))


def take(data: Data, buffer: NDArray[np.uint8], space: str, complaint: str) -> NDArray[np.uint8]:
    """Return the pixels of what TurboJPEG did not decode without a complaint.

    Args:
        data: the file.
        buffer: where they go, of the shape that `space` has; another array is returned where OpenCV has decoded them, in RGB for CMYK.
        space: "RGB", "GRAY" or "CMYK", as simplejpeg calls them.
        complaint: what TurboJPEG said.

    Raises:
        ValueError: pixels are missing, or may be; it says why.
    """
    clean = _copied(bytes(data), space)
    if "Could not determine subsampling level" in complaint:
        cv2 = load_cv2()  # whose libjpeg is set as TurboJPEG's: the accurate transform, smooth upsampling of colours
        decode = partial(
            imdecode, flags=cv2.IMREAD_IGNORE_ORIENTATION | (cv2.IMREAD_GRAYSCALE if space == "GRAY" else cv2.IMREAD_COLOR_RGB)
        )
    else:
        decode = partial(load_simplejpeg().decode_jpeg, colorspace=space, strict=False)
        try:
            load_simplejpeg().decode_jpeg(clean, space, buffer=buffer, strict=True)
        except ValueError as left:
            if "extraneous bytes before marker" not in str(left):
                raise
        else:
            return buffer
        complaint = ""
    pixels, again = decode(clean), decode(_copied(clean, space, _FILLER))
    if pixels is None or not np.array_equal(pixels, again):
        raise ValueError("pixels are missing")
    if complaint:
        return np.atleast_3d(pixels)
    buffer[...] = pixels
    return buffer


def _copied(data: bytes, space: str, filler: bytes = b"") -> bytes:
    """Copy a file without what libjpeg only warns of; with `filler` behind the data of each scan, and before each restart mark.

    Raises:
        ValueError: with a filler, restart marks are missing.
    """
    out, at, sequential, known = [data[:2]], 2, False, b"\2" if space == "CMYK" else b"\1"
    while found := _MARKER.search(data, at):
        begin, marker = found.start(), found[0][1]
        if marker == 0xD9:
            if not (filler and sequential and data.count(b"\xff\xda") == 1):  # OpenCV writes to stderr about bytes before it
                out.append(found[0])
            break
        at = begin + 2 + int.from_bytes(data[begin + 2 : begin + 4], "big")
        segment = data[begin:at]
        if marker in FRAMES:
            sequential = marker in _SEQUENTIAL
            filler = b"" if marker in _ARITHMETIC else filler  # such a code may go on behind the data; libjpeg does not tell either
        elif marker == 0xE0 and segment[4:9] == b"JFIF\0":
            segment = segment[:9] + b"\1\2" + segment[11:]
        elif marker == 0xEE and segment[4:9] == b"Adobe" and segment[15:16] not in (b"\0", known):
            segment = segment[:15] + known + segment[16:]
        elif marker == 0xDA:
            segment = segment[:-3] + b"\0\x3f\0" if sequential else segment
            behind = _BEHIND_SCAN.search(data, at)
            begin, at = at, behind.start() if behind else len(data)
            segment += _filled(data[begin:at], filler)
        out.append(segment)
    return b"".join(out)


def _filled(scan: bytes, filler: bytes) -> bytes:
    if not filler:
        return scan
    marks = [mark[1] - 0xD0 for mark in _RESTART.findall(scan)]
    if marks != [number % 8 for number in range(len(marks))]:
        raise ValueError("restart marks are missing")
    after = b"\xff%c" % (0xD0 + len(marks) % 8) + filler if marks else b""
    return _RESTART.sub(lambda mark: filler + mark[1], scan).rstrip(b"\xff") + filler + after
