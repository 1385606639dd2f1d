from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import penstock.image as image
from penstock.errors import PlanError, SpecError

Photo = NDArray[np.uint8]


def test_the_centre_is_cut_as_torchvision_rounds(photo: Photo) -> None:
    # (75 - 32) / 2 = 21.5 goes to the even 22, (75 - 34) / 2 = 20.5 to 20
    assert np.array_equal(image.center_crop(photo, 32), photo[22:54, 34:66])
    assert np.array_equal(image.center_crop(photo, (34, 100)), photo[20:54])
    assert np.array_equal(image.center_crop(photo, (75, 100)), photo)


@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(0, 5),
    st.integers(1, 14),
    st.integers(1, 14),
    st.tuples(*2 * [st.floats(0, 1, exclude_max=True)]),
)
def test_a_random_crop_is_a_window_of_the_padded_image(
    rows: int, columns: int, padding: int, height: int, width: int, draws: tuple[float, float]
) -> None:
    height, width = min(height, rows + 2 * padding), min(width, columns + 2 * padding)
    values = np.random.default_rng(0).integers(0, 256, (rows, columns, 3), np.uint8)
    padded = np.pad(values, ((padding, padding), (padding, padding), (0, 0)), constant_values=77)
    top = int(draws[0] * (padded.shape[0] - height + 1))
    left = int(draws[1] * (padded.shape[1] - width + 1))
    wanted = padded[top : top + height, left : left + width]
    operator = image.random_crop("x", (height, width), padding=padding, fill=77)
    assert np.array_equal(operator.apply(values, draws, None, None), wanted)
    block = operator.apply_block(values[None], np.array([draws]), None, None)
    assert block is not None
    assert np.array_equal(block[0], wanted)


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        (image.center_crop("x", 80), "height 75, width 100, smaller than the crop 80 x 80"),
        (
            image.random_crop("x", (80, 20), padding=2),
            "height 79, width 104 (with 2 pixels of padding on each side), smaller than the crop 80 x 20",
        ),
    ],
)
def test_an_image_smaller_than_the_crop_is_a_spec_error(photo: Photo, operator: Any, text: str) -> None:
    with pytest.raises(SpecError) as caught:
        operator({"x": photo}, np.random.default_rng(0))
    assert caught.value.what == f"field 'x' is an image of {text}"
    assert caught.value.where == f"image.{operator.name}('x')"
    assert "put ps.image.resize before" in caught.value.fix


def test_a_block_smaller_than_the_crop_is_the_same_error(photo: Photo) -> None:
    with pytest.raises(SpecError, match="smaller than the crop 80 x 80"):
        image.random_crop("x", 80).apply_block(photo[None], np.zeros((1, 2)), None, None)


@pytest.mark.parametrize(("argument", "number"), [("padding", -1), ("padding", 1.5), ("fill", 256), ("fill", -1), ("fill", True)])
def test_padding_and_fill_out_of_range_are_plan_errors(argument: str, number: Any) -> None:
    with pytest.raises(PlanError) as caught:
        image.random_crop("x", 8, **{argument: number})
    assert caught.value.what == f"{argument}={number!r} is out of range"
    assert caught.value.where == "image.random_crop"
    assert "whole number of at least 0" in caught.value.fix
