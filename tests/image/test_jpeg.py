from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
import penstock.image as image
from penstock._contracts.transform import Scratch
from penstock.errors import DecodeError
from penstock.image import decoding
from penstock.image.decoding import upper_rows
from penstock.image.header import Header, read_header

Encode = Callable[..., bytes]
simplejpeg = pytest.importorskip("simplejpeg")

COLOURS = ("444", "422", "420", "440", "411")


def upper(data: bytes, num_rows: int, scratch: Scratch | None = None) -> NDArray[np.uint8] | None:
    return upper_rows(data, read_header(data, "here"), num_rows, scratch or Scratch(), "tag")


def noise(height: int, width: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(17, 150), st.integers(1, 60), st.sampled_from(COLOURS), st.integers(0, 99), st.data())
def test_the_pixels_are_those_of_the_whole_image(height: int, width: int, colours: str, seed: int, data: Any) -> None:
    encoded = simplejpeg.encode_jpeg(noise(height, width, seed), quality=85, colorsubsampling=colours)
    whole = simplejpeg.decode_jpeg(encoded)
    scratch = Scratch()
    for _ in range(3):
        num_rows = data.draw(st.integers(1, height))
        rows = upper(encoded, num_rows, scratch)
        if num_rows <= height - 18:
            assert rows is not None
            assert num_rows <= len(rows) < height
        if rows is not None:
            assert np.array_equal(rows[:num_rows], whole[:num_rows])


@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"restart_marker_rows": 1}, {"restart_marker_blocks": 3}], ids=str)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_files_of_every_sequential_kind_are_cut(encode: Encode, options: dict[str, Any], mode: str) -> None:
    encoded = encode(Image.fromarray(noise(200, 90, 1)).convert(mode), "JPEG", **options)
    for end in (b"", b"junk \xff\xd9 behind the end"):
        rows = upper(encoded + end, 60)
        assert rows is not None
        assert len(rows) == 62
        assert np.array_equal(rows[:60], simplejpeg.decode_jpeg(encoded)[:60])


def test_what_does_not_come_from_top_to_bottom_or_is_not_worth_it_is_left_to_the_whole_image(encode: Encode) -> None:
    progressive = encode(noise(200, 90, 1), "JPEG", progressive=True)
    assert read_header(progressive, "here").height_at == 0
    assert upper(progressive, 10) is None
    usual = encode(noise(200, 90, 1), "JPEG")
    at = read_header(usual, "here").height_at
    assert usual[at : at + 4] == bytes((0, 200, 0, 90))
    assert upper(usual, 182) is not None
    assert upper(usual, 183) is None
    assert upper(usual, 200) is None


@pytest.mark.parametrize("share", [n / 16 for n in range(2, 16)])
def test_a_file_without_its_end_is_never_taken_for_whole(encode: Encode, share: float) -> None:
    encoded = encode(noise(200, 90, 1), "JPEG")
    assert upper(encoded[: int(len(encoded) * share)], 40) is None  # the whole image then says what is missing


def test_a_code_that_cannot_be_in_the_rows_that_are_wanted_is_found(encode: Encode) -> None:
    encoded = encode(noise(200, 90, 1), "JPEG", quality=95)
    hurt = bytearray(encoded)
    at = encoded.index(b"\xff\xda") + 2000
    hurt[at : at + 2] = b"\xff\xc4"  # a table of codes in the middle of the data
    assert upper(bytes(hurt), 100) is None


def test_the_bytes_that_were_given_stay_as_they_are(encode: Encode) -> None:
    encoded = bytearray(encode(noise(200, 90, 1), "JPEG"))
    before = bytes(encoded)
    assert upper_rows(memoryview(encoded), read_header(before, "here"), 40, Scratch(), "tag") is not None
    assert encoded == before


def test_a_decoder_that_speaks_otherwise_costs_time_and_nothing_else(encode: Encode, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = encode(noise(200, 90, 1), "JPEG")
    operator = image.decode("image", crop_only=True)
    header = operator.usual(encoded)
    assert isinstance(header, Header)
    short = operator.upper_rows(encoded, header, 40, Scratch()).copy()
    monkeypatch.setattr(decoding, "_LEFT_OVER", decoding.re.compile("words of another version"))
    long = operator.upper_rows(encoded, header, 40, Scratch())
    assert (len(short), len(long)) == (42, 200)
    assert np.array_equal(short[:40], long[:40])


@pytest.mark.parametrize("crop_only", [False, True])
def test_only_who_asks_for_it_gets_less_than_the_whole_image(encode: Encode, crop_only: bool) -> None:
    encoded = encode(noise(200, 90, 1), "JPEG")
    operator = image.decode("image", crop_only=crop_only)
    header = operator.usual(encoded)
    assert header is not None
    assert len(operator.upper_rows(encoded, header, 40, Scratch())) == (42 if crop_only else 200)
    assert image.decode(encoded, crop_only=crop_only).shape == (200, 90, 3)


@pytest.mark.parametrize("way", [{"executor": "inline"}, {"num_workers": 2}], ids=str)
def test_a_feed_of_crops_raises_for_a_cut_file_wherever_the_crop_lies(encode: Encode, way: dict[str, Any]) -> None:
    good = encode(noise(300, 120, 1), "JPEG")
    kinds = [good, good[: len(good) - 40]]
    ds = ps.from_source([{"data": kinds[number == 70]} for number in range(100)]).map(image.decode("data", crop_only=True))
    ds = ds.map(image.random_resized_crop("data", 16), seed=3).batch(10)
    with ds.feed(**way) as feed, pytest.raises(DecodeError, match="damaged") as caught:
        list(feed)
    assert "70" in "".join(caught.value.__notes__)
