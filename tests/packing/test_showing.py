"""Values as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.packing.reencode import EncodeJpeg
from penstock.packing.showing import is_image, shown, spec_words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"ab\x1b[31m", r"b'ab\x1b[31m'"),
        (b"x" * 30, "b'xxxxxxxxxxxxxxxxxxxxxxxx'... (30 bytes)"),
        ("\x1b]0;title\x07 \u202e", r"'\x1b]0;title\x07 \u202e'"),
        ("é" * 70, f"'{'é' * 60}'... (70 characters)"),
        (np.int64(3), "3"),
        (2.5, "2.5"),
        (None, "None"),
        (np.arange(3, dtype=np.uint8), "uint8[3] 0, 1, 2"),
        (np.zeros((2, 4), np.float32), "float32[2, 4] 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ..."),
        ([b"a", b"b", b"c", b"d"], "[b'a', b'b', b'c', ... (4)]"),
        ([b"a"], "[b'a']"),
        (np.array([b"\x1b", "a"], object), r"object[2] b'\x1b', 'a'"),
        ({"a": "x" * 200}, "{'a': '" + "x" * 113 + "..."),
    ],
)
def test_values_are_one_short_line_without_control_characters(value: Any, text: str) -> None:
    assert shown(value) == text
    assert shown(value).isprintable()


def test_images_are_told_by_their_headers() -> None:
    pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    data = EncodeJpeg("data")({"data": np.zeros((30, 40, 3), np.uint8)})["data"]
    assert shown(data) == f"JPEG 40x30 ({len(data)} bytes)"
    assert is_image(data)
    assert not is_image(b"<html>")
    assert shown(data[:12]).startswith("a damaged image (12 bytes): ")


def test_kinds_are_said_with_sizes() -> None:
    values: list[Any] = [b"", "x", [b"a", b"b"], [], np.zeros((2, 3)), np.int32(1), 1.5]
    assert [spec_words(value) for value in values] == ["bytes", "str", "bytes [2]", "nothing [0]", "float64[2, 3]", "int32", "float"]
