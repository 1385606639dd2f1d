from __future__ import annotations

import io
import itertools
import struct
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image.pixels import as_pillow, chunk, difference, exif
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
import penstock.image as image
from penstock.image.header import orient, read_orientation

Encode = Callable[..., bytes]
Photo = NDArray[np.uint8]


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


# -- the rule of Pillow -----------------------------------------------------------------------------------------------------------


def segment(body: bytes, marker: int = 0xE1) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


def directories(order: str, *entries: tuple[int, int, int, int], start: int = 8, second: int = 0) -> bytes:
    """Return EXIF with these entries (tag, kind, count, value) at byte `start`, and behind them, if asked for, one that says `second`."""
    packed = b"".join(
        struct.pack(order + "HHI", tag, kind, count) + struct.pack(order + ("HH" if kind == 3 else "I"), value, *[0] * (kind == 3))
        for tag, kind, count, value in entries
    )
    behind = start + 2 + len(packed) + 4
    other = struct.pack(order + "HHHIHHI", 1, 0x112, 3, 1, second, 0, 0) if second else b""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", start)
    return (
        head + bytes(start - 8) + struct.pack(order + "H", len(entries)) + packed + struct.pack(order + "I", behind if other else 0) + other
    )


def xmp(value: int | str, form: str = '="{}"') -> bytes:
    return b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation' + form.format(value).encode() + b"/></x:xmpmeta>"


SIDE = directories("<", (0x112, 3, 1, 6))
DAMAGED = [b"", b"II*\0", b"II*\0\xff\xff\xff\xff\0\0", SIDE[:-7], b"XX" + SIDE[2:]]
DAMAGED += [directories("<", entry) for entry in ((0x112, 3, 1, 9), (0x112, 3, 0, 6), (0x112, 2, 1, 6), (0x111, 3, 1, 6))]
LONG = SIDE + bytes(70_000 - len(SIDE))
XAP = b"http://ns.adobe.com/xap/1.0/\0"
BODIES = {
    "short": directories("<", (0x112, 3, 1, 8)),
    "big-endian": directories(">", (0x112, 3, 1, 8)),
    "long": directories("<", (0x112, 4, 1, 8)),
    "big-endian long": directories(">", (0x112, 4, 1, 8)),
    "signed": directories("<", (0x112, 9, 1, 8)),
    "two numbers": directories("<", (0x112, 3, 2, 8)),
    "many numbers, elsewhere": directories("<", (0x112, 3, 4, 26)) + struct.pack("<4H", 6, 1, 1, 1),
    "twice": directories("<", (0x112, 3, 1, 3), (0x112, 3, 1, 8)),
    "behind others": directories("<", (0x10F, 4, 1, 7), (0x110, 3, 1, 3), (0x112, 3, 1, 8), (0x8769, 4, 1, 8)),
    "of the thumbnail alone": directories("<", (0x10F, 4, 1, 7), second=6),
    "of the thumbnail too": directories("<", (0x112, 3, 1, 8), second=6),
    "far away": directories("<", (0x112, 3, 1, 8), start=5000),
    "9": directories("<", (0x112, 3, 1, 9)),
    "0": directories("<", (0x112, 3, 1, 0)),
    "none": directories("<", (0x10F, 4, 1, 7)),
    "named twice": b"Exif\0\0" + SIDE,
}
SEGMENTS = {
    **{f"EXIF: {name}": segment(b"Exif\0\0" + body) for name, body in BODIES.items()},
    "70 kB over two": segment(b"Exif\0\0" + LONG[:65527]) + segment(b"Exif\0\0" + LONG[65527:]),
    "a second without": segment(b"Exif\0\0" + SIDE) + segment(b"Exif\0\0" + BODIES["none"]),
    "a first without": segment(b"Exif\0\0" + BODIES["none"]) + segment(b"Exif\0\0" + SIDE),
    "a second with another": segment(b"Exif\0\0" + SIDE) + segment(b"Exif\0\0" + BODIES["short"]),
    "behind others": b"".join(segment(bytes(50), marker) for marker in (0xE2, 0xE5, 0xEC, 0xFE)) + segment(b"Exif\0\0" + SIDE),
    "beside those of several pictures": segment(b"Exif\0\0" + SIDE) + segment(b"MPF0" + bytes(40), 0xE2),
    "XMP": segment(XAP + xmp(6)),
    "XMP as an element": segment(XAP + xmp(8, ">{}</tiff:Orientation>")),
    "XMP beside EXIF": segment(b"Exif\0\0" + SIDE) + segment(XAP + xmp(3)),
    "XMP beside EXIF without": segment(XAP + xmp(3)) + segment(b"Exif\0\0" + BODIES["none"]),
    "XMP beside EXIF of 9": segment(XAP + xmp(3)) + segment(b"Exif\0\0" + BODIES["9"]),
    "XMP of 9": segment(XAP + xmp(9)),
    "two of XMP": segment(XAP + xmp(6)) + segment(XAP + xmp(3)),
    "nothing": b"",
}


@pytest.mark.parametrize("notes", DAMAGED)
def test_exif_that_is_damaged_or_has_no_valid_orientation_means_upright(notes: bytes) -> None:
    assert read_orientation(notes) == 1


def seen(data: bytes) -> NDArray[np.uint8]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow, about the notes
        return as_pillow(data)


@pytest.mark.parametrize("notes", SEGMENTS.values(), ids=SEGMENTS)
@pytest.mark.parametrize("place", ["first", "behind JFIF", "behind the frame"])
def test_a_jpeg_is_turned_as_pillow_turns_it_wherever_its_notes_stand(encode: Encode, photo: Photo, notes: bytes, place: str) -> None:
    clean = encode(photo[:40, :64], "JPEG")
    at = {"first": 2, "behind JFIF": 20, "behind the frame": clean.index(b"\xff\xda")}[place]
    assert np.array_equal(image.decode(clean[:at] + notes + clean[at:]), seen(clean[:at] + notes + clean[at:]))


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from("<>"),
    st.lists(st.tuples(st.sampled_from([0x10F, 0x112]), st.sampled_from([(3, 1), (3, 2), (4, 1), (9, 1)]), st.integers(0, 12)), max_size=4),
    st.integers(8, 40),
    st.lists(st.integers(0, 120), max_size=2),
    st.sampled_from([b"", xmp(5)]),
)
def test_any_exif_in_any_number_of_segments_turns_as_pillow_does(
    order: str, entries: list[tuple[int, tuple[int, int], int]], start: int, cuts: list[int], also: bytes
) -> None:
    stream = io.BytesIO()
    Image.fromarray(np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)).save(stream, "JPEG")
    body, places = directories(order, *((tag, *kind, value) for tag, kind, value in entries), start=start), [0, *sorted(cuts), None]
    notes = b"".join(segment(b"Exif\0\0" + body[begin:end]) for begin, end in itertools.pairwise(places))
    data = stream.getvalue()[:2] + notes + (segment(XAP + also) if also else b"") + stream.getvalue()[2:]
    assert np.array_equal(image.decode(data), seen(data))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("also", [b"", xmp(5)], ids=["alone", "with XMP"])
def test_png_and_webp_are_turned_as_pillow_turns_them(encode: Encode, photo: Photo, body: bytes, also: bytes) -> None:
    clean = encode(photo[:40, :64], "PNG")
    text = chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + also) if also else b""
    for at in (33, len(clean) - 12):
        png = clean[:at] + chunk(b"eXIf", body) + text + clean[at:]
        assert np.array_equal(image.decode(png), seen(png))
        assert not text or np.array_equal(image.decode(clean[:at] + text + clean[at:]), seen(clean[:at] + text + clean[at:]))
    webp = encode(photo[:40, :64], "WEBP", lossless=True, exif=b"Exif\0\0" + body, **({"xmp": also} if also else {}))
    assert np.array_equal(image.decode(webp), seen(webp))
    webp = encode(photo[:40, :64], "WEBP", lossless=True, xmp=xmp(7))
    assert np.array_equal(image.decode(webp), seen(webp))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_the_orientation_is_applied_once_and_without_exif_the_pixels_are_those_of_the_file(
    encode: Encode, photo: Photo, kind: str, orientation: int
) -> None:
    turned, plain = encode(photo, kind, exif=exif(orientation)), encode(photo, kind)
    assert difference(image.decode(turned), as_pillow(turned)) <= (2 if kind in ("JPEG", "WEBP") else 0)
    for mode in ("RGB", "unchanged"):
        assert difference(image.decode(turned, mode=mode, exif=False), image.decode(plain, mode=mode)) == 0
    fused = ps.from_source([{"data": turned}]).map(image.decode("data", exif=False)).map(image.resize("data", (30, 40)))
    assert difference(next(iter(fused.batch(1)))["data"][0], image.resize(image.decode(plain), (30, 40))) == 0


def test_the_operator_is_written_as_in_states_of_before() -> None:
    line = "Decode(field='data', out_field='data', mode='RGB', max_pixels=89478485, crop_only=False"
    assert repr(image.decode("data")) == line + ")"
    assert repr(image.decode("data", exif=False)) == line + ", exif=False)"
