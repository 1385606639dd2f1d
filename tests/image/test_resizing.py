import math
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import penstock.image as image
from penstock._contracts.transform import Scratch
from penstock.errors import PlanError, SpecError
from penstock.image.resizing import crop_box

Photo = NDArray[np.uint8]
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
CODES = {"linear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA, "nearest": cv2.INTER_NEAREST, "cubic": cv2.INTER_CUBIC}


@pytest.mark.parametrize("interpolation", sorted(CODES))
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_resize_is_opencvs(photo: Photo, interpolation: Any, dtype: Any, channels: int) -> None:
    values = np.concatenate([photo, photo], axis=2)[..., :channels].astype(dtype)
    wanted = cv2.resize(values, (40, 30), interpolation=CODES[interpolation]).reshape(30, 40, channels)
    result = image.resize(values, (30, 40), interpolation=interpolation)
    assert result.dtype == dtype
    assert np.array_equal(result, wanted)
    assert np.array_equal(image.resize("x", (30, 40), interpolation=interpolation).apply(values, (), Scratch(), None), wanted)


@pytest.mark.parametrize(
    ("height", "width", "size", "wanted"),
    [(75, 100, 30, (30, 40)), (100, 75, 30, (40, 30)), (50, 50, 7, (7, 7)), (33, 100, 10, (10, 30)), (75, 100, (9, 8), (9, 8))],
)
def test_one_number_is_the_shorter_side(height: int, width: int, size: Any, wanted: tuple[int, int]) -> None:
    assert image.resize(np.zeros((height, width, 3), np.uint8), size).shape == (*wanted, 3)


def test_an_image_that_has_the_size_already_is_passed_on(photo: Photo) -> None:
    assert image.resize("x", 75).apply(photo, (), Scratch(), None) is photo
    assert np.array_equal(image.resize(photo, 75), photo)


def test_other_dtypes_are_spec_errors_that_name_those_that_work() -> None:
    with pytest.raises(SpecError) as caught:
        image.resize(np.zeros((4, 4, 3), np.int64), 2)
    assert "is int64[4, 4, 3], expected uint8 or float32 of shape" in caught.value.what


def test_an_unknown_interpolation_is_a_plan_error() -> None:
    for name, act in (
        ("resize", lambda: image.resize("x", 8, interpolation="lanczos")),  # type: ignore[call-overload]
        ("random_resized_crop", lambda: image.random_resized_crop("x", 8, interpolation="lanczos")),  # type: ignore[call-overload]
    ):
        with pytest.raises(PlanError) as caught:
            act()
        assert caught.value.what == "interpolation='lanczos' is not known"
        assert caught.value.where == f"image.{name}"
        assert caught.value.fix == "give one of area, cubic, linear, nearest"


def test_the_crop_is_the_resized_box(photo: Photo) -> None:
    for seed in range(20):
        draws = np.random.default_rng(seed).random(22).tolist()
        top, left, height, width = crop_box(75, 100, draws, SCALE, RATIO)
        wanted = cv2.resize(photo[top : top + height, left : left + width].copy(), (32, 24))
        assert np.array_equal(image.random_resized_crop(photo, (24, 32), rng=np.random.default_rng(seed)), wanted)


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=22, max_size=22),
    st.sampled_from([SCALE, (1.0, 1.0), (1e-6, 1e-6)]),
    st.sampled_from([RATIO, (1.0, 1.0), (0.01, 0.02), (50.0, 60.0)]),
)
def test_the_box_lies_inside_the_image(
    height: int, width: int, draws: list[float], scale: tuple[float, float], ratio: tuple[float, float]
) -> None:
    top, left, box_height, box_width = crop_box(height, width, draws, scale, ratio)
    assert top >= 0
    assert left >= 0
    assert box_height >= 1
    assert box_width >= 1
    assert top + box_height <= height
    assert left + box_width <= width


def test_the_first_try_that_fits_is_taken() -> None:
    high = math.nextafter(1.0, 0.0)
    fits = [0.5, 0.25, 0.4, 0.5] + 18 * [0.9]
    share = 0.08 + 0.92 * 0.4
    side = round(math.sqrt(100 * 100 * share))
    assert crop_box(100, 100, fits, SCALE, RATIO) == (int(0.5 * (101 - side)), int(0.25 * (101 - side)), side, side)
    second = [0.5, 0.25, high, high, 0.4, 0.5] + 16 * [0.9]  # the whole area at ratio 4:3 is wider than the image
    assert crop_box(100, 100, second, SCALE, RATIO) == crop_box(100, 100, fits, SCALE, RATIO)


def test_when_no_try_fits_the_central_box_of_the_nearest_ratio_is_taken() -> None:
    draws = 22 * [0.5]
    assert crop_box(10, 100, draws, (1.0, 1.0), RATIO) == (0, 43, 10, 13)
    assert crop_box(100, 10, draws, (1.0, 1.0), RATIO) == (43, 0, 13, 10)
    assert crop_box(90, 100, draws, (1.0, 1.0), (1.0, 1.2)) == (0, 0, 90, 100)


def test_area_and_ratio_of_many_boxes_are_spread_as_asked() -> None:
    rng = np.random.default_rng(4)
    boxes = np.array([crop_box(1000, 1000, rng.random(22).tolist(), (0.1, 0.5), RATIO) for _ in range(4000)])
    share = boxes[:, 2] * boxes[:, 3] / 1e6
    assert 0.099 <= share.min() < 0.11
    assert 0.49 < share.max() <= 0.501
    assert abs(share.mean() - 0.3) < 0.01
    ratio = np.log(boxes[:, 3] / boxes[:, 2])
    assert abs(ratio.mean()) < 0.01
    assert 0.27 < ratio.max() < 0.295
    place = boxes[:, 0] / (1000 - boxes[:, 2])
    assert abs(place.mean() - 0.5) < 0.02


@pytest.mark.parametrize(
    ("argument", "pair", "fix"),
    [
        ("scale", (0.0, 1.0), "at most 1"),
        ("scale", (0.5, 1.5), "at most 1"),
        ("scale", (0.9, 0.1), "least, greatest"),
        ("ratio", (0, 1), "above 0"),
        ("ratio", (1, math.inf), "above 0"),
        ("ratio", (1,), "least"),
        ("scale", 5, "least, greatest"),
        ("scale", None, "least, greatest"),
        ("scale", "ab", "least, greatest"),
        ("scale", (0.5, None), "least, greatest"),
    ],
)
def test_a_range_that_cannot_be_is_a_plan_error(argument: str, pair: Any, fix: str) -> None:
    with pytest.raises(PlanError) as caught:
        image.random_resized_crop("x", 8, **{argument: pair})
    assert caught.value.what == f"{argument}={pair!r} is not a range"
    assert caught.value.where == "image.random_resized_crop"
    assert fix in caught.value.fix
