"""JPEG files that TurboJPEG refuses or complains of, and that have every pixel all the same.

libjpeg reads on after whatever it only warns of, be it a version number that it does not know or half of the image missing, and it says
only its first complaint. So the file is copied without what is known to be harmless, and the copy has to decode without a complaint:

| The warning                         | Who writes such files          | In the copy |
|-------------------------------------|--------------------------------|-------------|
| unknown JFIF revision               | scanners (0.00), editors       | 1.02 |
| invalid SOS parameters              | phones of Samsung              | 0, 63, 0, as a sequential scan has them |
| unknown Adobe color transform       | converters of CMYK             | what libjpeg takes it for |
| extraneous bytes before a marker    | cameras, editors               | left out where they lie between two segments |

Bytes that are left over behind the data of a scan cannot be told from the data without decoding them. There, and where OpenCV decodes (a
sampling that TurboJPEG does not know, or any file without simplejpeg; OpenCV tells no warnings at all), the file is decoded a second time
with other bytes behind the data of each scan: where data are missing, these are taken for them, and the pixels differ.
"""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from penstock.image.header import FRAMES, Data, damaged
from penstock.image.operator import imdecode, load_cv2, load_simplejpeg
from penstock.kernels.library import Uint8s

_MARKER = re.compile(rb"\xff[\x02-\xcf\xd8-\xfe]")
_BEHIND_SCAN = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_RESTART = re.compile(rb"\xff\xff*([\xd0-\xd7])")  # a plain byte first: 0.1 ms for 55 kB; with `\xff*` it was 5
_SEQUENTIAL = (0xC0, 0xC1, 0xC9)
_ARITHMETIC = (0xC9, 0xCA)  # such a code may go on behind its data; libjpeg does not tell where it ends too early
_FILLER = bytes(254 - number * 89 % 254 for number in range(64))  # it begins with ones: libjpeg takes zeros for what is missing


def take(data: Data, buffer: Uint8s, space: str, complaint: ValueError | None, where: str) -> Uint8s:
    """Return the pixels of what TurboJPEG did not decode without a complaint.

    Args:
        data: the file.
        buffer: where they go, of the shape that `space` has; another array is returned where OpenCV has decoded them, in RGB for CMYK.
        space: "RGB", "GRAY" or "CMYK", as simplejpeg calls them.
        complaint: what TurboJPEG said; None where simplejpeg is not installed.
        where: for the error.

    Raises:
        DecodeError: pixels are missing, or may be.
    """
    clean = _copied(bytes(data), space)
    by_cv2 = complaint is None or "Could not determine subsampling level" in str(complaint)
    if by_cv2:
        cv2 = load_cv2()  # whose libjpeg is set as TurboJPEG's: the accurate transform, smooth upsampling of colours
        colours = cv2.IMREAD_GRAYSCALE if space == "GRAY" else cv2.IMREAD_COLOR_RGB
        decode = partial(imdecode, flags=cv2.IMREAD_IGNORE_ORIENTATION | colours)
    else:
        decode = partial(load_simplejpeg().decode_jpeg, colorspace=space, strict=False)
        try:
            load_simplejpeg().decode_jpeg(clean, space, buffer=buffer, strict=True)
        except ValueError as left:
            if "extraneous bytes before marker" not in str(left):
                raise damaged("JPEG", str(left), data, where) from left
        else:
            return buffer
    pixels, again = decode(clean), decode(_copied(clean, space, _FILLER))
    if pixels is None or not np.array_equal(pixels, again):
        raise damaged("JPEG", "pixels are missing", data, where) from complaint
    if by_cv2:
        return np.atleast_3d(pixels)
    buffer[...] = pixels
    return buffer


def _copied(data: bytes, space: str, filler: bytes = b"") -> bytes:
    """Copy a file without what libjpeg only warns of; with `filler` behind the data of each scan, and before each restart mark."""
    out, at, frame = [data[:2]], 2, 0
    while found := _MARKER.search(data, at):
        begin, marker = found.start(), found[0][1]
        if marker == 0xD9:
            if not filler or frame not in _SEQUENTIAL or data.count(b"\xff\xda") > 1:  # OpenCV writes to stderr about bytes before it
                out.append(found[0])
            break
        at = begin + 2 + int.from_bytes(data[begin + 2 : begin + 4], "big")
        frame = marker if marker in FRAMES else frame
        out.append(_harmless(data[begin:at], frame in _SEQUENTIAL, b"\2" if space == "CMYK" else b"\1"))
        if marker == 0xDA:
            behind = _BEHIND_SCAN.search(data, at)
            begin, at = at, behind.start() if behind else len(data)
            out.append(_filled(data[begin:at], filler) if filler and frame not in _ARITHMETIC else data[begin:at])
    return b"".join(out)


def _harmless(segment: bytes, sequential: bool, transform: bytes) -> bytes:
    """Return a segment with what the table says."""
    if segment[1] == 0xE0 and segment[4:9] == b"JFIF\0":
        return segment[:9] + b"\1\2" + segment[11:]
    if segment[1] == 0xEE and segment[4:9] == b"Adobe" and segment[15:16] not in (b"\0", transform):
        return segment[:15] + transform + segment[16:]
    return segment[:-3] + b"\0\x3f\0" if segment[1] == 0xDA and sequential else segment


def _filled(scan: bytes, filler: bytes) -> bytes:
    """Put the filler behind each stretch of a scan, and one more stretch where there are several; without them nothing stays."""
    marks = [mark[0] - 0xD0 for mark in _RESTART.findall(scan)]
    if marks != [number % 8 for number in range(len(marks))]:
        return b""
    after = b"\xff%c" % (0xD0 + len(marks) % 8) + filler if marks else b""
    return _RESTART.sub(lambda mark: filler + b"\xff" + mark[1], scan).rstrip(b"\xff") + filler + after
