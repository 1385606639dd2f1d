"""Contact sheets."""

from __future__ import annotations

import numpy as np
import pytest

import penstock as ps
from penstock.packing.inspect import contact_sheet, images_of
from penstock.packing.reencode import EncodeJpeg

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")


def flat(height: int, width: int, colour: tuple[int, int, int]) -> np.ndarray:
    return np.full((height, width, 3), colour, np.uint8)


def test_images_are_found_encoded_or_as_pixels_and_a_damaged_one_is_red() -> None:
    data = EncodeJpeg("data")({"data": flat(30, 40, (1, 2, 3))})["data"]
    samples = [
        {"a": data, "label": 3, "text": "x"},
        {"a": [data], "b": b"no image"},
        {"a": data[:100]},
        {"a": np.zeros((5, 6), np.uint8), "b": np.zeros((5, 6, 1), np.uint8), "c": np.zeros((5, 6, 3), np.uint8)},
        {"a": np.zeros((5, 6, 7), np.uint8), "b": np.zeros((5, 6, 3), np.float32)},
    ]
    found = images_of(samples)
    assert [one.shape for one in found] == [(30, 40, 3), (30, 40, 3), (128, 128, 3), (5, 6, 3), (5, 6, 3), (5, 6, 3)]
    assert found[2][0, 0].tolist() == [200, 60, 60]


def test_a_sheet_shows_each_image_in_its_place_in_its_colours() -> None:
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    pixels = ps.image.decode(contact_sheet([flat(300, 100, colours[0]), flat(64, 64, colours[1]), flat(10, 500, colours[2])], columns=2))
    assert pixels.shape == (2 * 132 + 4, 2 * 132 + 4, 3)
    assert pixels[68, 68].tolist() == [255, 0, 0]
    assert pixels[68, 200].tolist() == [0, 255, 0]
    assert pixels[200, 68].tolist() == [0, 0, 255]
    assert pixels[200, 200].tolist() == [255, 255, 255]
