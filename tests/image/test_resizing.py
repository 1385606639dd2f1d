import math
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from feeds import state_behind
from hypothesis import given
from hypothesis import strategies as st
from image.pixels import difference
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
import penstock.image as image
from penstock._contracts.transform import Scratch
from penstock.errors import PackError, PlanError, SpecError, StateMismatch
from penstock.image.resizing import crop_box
from penstock.kernels.resampling import DTYPES

Photo = NDArray[np.uint8]
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
CODES = {"linear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA, "nearest": cv2.INTER_NEAREST, "cubic": cv2.INTER_CUBIC}


@pytest.mark.parametrize("interpolation", sorted(CODES))
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_without_antialias_resize_is_opencvs(photo: Photo, interpolation: Any, dtype: Any, channels: int) -> None:
    values = np.concatenate([photo, photo], axis=2)[..., :channels].astype(dtype)
    wanted = cv2.resize(values, (40, 30), interpolation=CODES[interpolation]).reshape(30, 40, channels)
    result = image.resize(values, (30, 40), interpolation=interpolation, antialias=False)
    assert result.dtype == dtype
    assert np.array_equal(result, wanted)
    operator = image.resize("x", (30, 40), interpolation=interpolation, antialias=False)
    assert np.array_equal(operator.apply(values, (), Scratch(), None), wanted)


@pytest.mark.parametrize("interpolation", sorted(CODES))
def test_without_antialias_dtypes_and_channels_that_opencv_refuses_are_resized_alike(photo: Photo, interpolation: Any) -> None:
    resized = partial(image.resize, size=(30, 40), interpolation=interpolation, antialias=False)
    numbers = photo.astype(float) * 16_000_000 - 2**31  # what overshoots is cut off
    assert np.array_equal(resized(numbers.astype(np.int32)), np.rint(resized(numbers)).clip(-(2**31), 2**31 - 1))
    assert np.array_equal(resized(photo > 99), resized((photo > 99) * 1.0) > 0.5)
    many = np.concatenate([photo, photo[::-1]], axis=2)
    assert np.array_equal(resized(many), np.concatenate([resized(photo), resized(many[..., 3:])], axis=2))


MODES = {"L": (1, np.uint8), "RGB": (3, np.uint8), "CMYK": (4, np.uint8), "I;16": (1, np.uint16), "I": (1, np.int32), "F": (1, np.float32)}
FILTERS = {"linear": Image.Resampling.BILINEAR, "cubic": Image.Resampling.BICUBIC}


@pytest.mark.parametrize("interpolation", sorted(FILTERS))
@pytest.mark.parametrize("mode", MODES)
def test_antialiased_the_pixels_are_pillows_to_one_level(photo: Photo, interpolation: Any, mode: str) -> None:
    channels, dtype = MODES[mode]
    chance = np.random.default_rng(3)
    smooth = np.concatenate([photo, photo], axis=2)[..., :channels]
    for values in (smooth, chance.integers(0, 256, smooth.shape), chance.integers(0, 2, smooth.shape) * 255):
        pixels = (values.astype(int) * 100 + 9000 if dtype == np.uint16 else values).astype(dtype)  # nothing that Pillow cuts off
        picture = Image.frombytes(mode, (100, 75), pixels.tobytes())
        for size in ((30, 40), (75, 33), (10, 100), (75, 101), (7, 5), (1, 1), (74, 99), (150, 211), (300, 20)):
            rows = picture.resize((size[1], 75), FILTERS[interpolation])  # Pillow 13 may begin with the columns
            wanted = np.asarray(rows.resize(size[::-1], FILTERS[interpolation])).reshape(*size, channels)
            made = image.resize(pixels, size, interpolation=interpolation)
            assert made.dtype == dtype
            apart = np.abs(made.astype(np.float64) - wanted)
            assert apart.max() <= (1e-3 if dtype == np.float32 else 1), size
            assert dtype != np.uint8 or (apart > 0).mean() < 0.01, size  # of others Pillow rounds the rows


def test_a_crop_is_a_view_and_gives_what_its_copy_gives(photo: Photo) -> None:
    for view in (photo[5:70, 10:97], photo[::-1, 3:50], photo[::2, ::3, ::-1]):
        for dtype in (np.uint8, np.float32):
            assert np.array_equal(image.resize(view.astype(dtype), 31), image.resize(view.astype(dtype).copy(), 31))
            assert np.array_equal(image.resize(view, 31), image.resize(view.copy(), 31))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_channel_of_any_dtype_is_resized_by_itself(photo: Photo, dtype: Any) -> None:
    many = (np.concatenate([photo, photo[::-1]], axis=2) // (128 if dtype.kind == "b" else 1)).astype(dtype)
    for made in (image.resize(many, (30, 140)), image.resize("x", (30, 140), fields={})({"x": many})["x"]):
        assert made.dtype == dtype
        for channel in range(6):
            assert np.array_equal(made[..., channel], image.resize(many[..., channel : channel + 1], (30, 140))[..., 0])


@pytest.mark.parametrize(
    ("height", "width", "size", "wanted"),
    [(75, 100, 30, (30, 40)), (100, 75, 30, (40, 30)), (50, 50, 7, (7, 7)), (33, 100, 10, (10, 30)), (75, 100, (9, 8), (9, 8))],
)
def test_one_number_is_the_shorter_side(height: int, width: int, size: Any, wanted: tuple[int, int]) -> None:
    assert image.resize(np.zeros((height, width, 3), np.uint8), size).shape == (*wanted, 3)


def test_other_dtypes_are_spec_errors_that_name_those_that_work() -> None:
    with pytest.raises(
        SpecError, match=r"is int64\[4, 4, 3\], expected uint8 or bool or uint16 or int16 or int32 or float32 or float64 of shape"
    ):
        image.resize(np.zeros((4, 4, 3), np.int64), 2)


def test_an_array_of_the_other_byte_order_is_named_as_that(photo: Photo) -> None:
    with pytest.raises(SpecError, match=r"is >u2\[75, 100, 3\], expected uint8"):
        image.resize(photo.astype(">u2"), 20)


def test_nan_does_not_spread_along_an_edge_that_stays() -> None:
    depth = np.ones((8, 9, 1), np.float32)
    depth[3, 4] = np.nan
    for interpolation in ("linear", "cubic"):
        made = image.resize(depth, (8, 30), interpolation=interpolation)  # type: ignore[call-overload]
        assert np.isnan(made).any(axis=(1, 2)).tolist() == [row == 3 for row in range(8)]


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("size", [(16, 18), (24, 40), (8, 4), (3, 3)])
@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_nan_and_inf_reach_the_pixels_that_are_mixed_with_them_and_no_others(odd: float, size: Any, interpolation: Any) -> None:
    for place in ((0, 0), (1, 1), (3, 4), (7, 8), (6, 1)):
        depth, marked = np.ones((8, 9, 1), np.float32), np.zeros((8, 9, 1), np.float64)
        depth[place], marked[place] = odd, 1
        made, share = image.resize(depth, size, interpolation=interpolation), image.resize(marked, size, interpolation=interpolation)
        assert np.array_equal(np.isfinite(made), abs(share) < 1e-12)
        assert np.allclose(made[np.isfinite(made)], 1)


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
        box = photo[top : top + height, left : left + width].copy()
        plain = image.random_resized_crop(photo, (24, 32), antialias=False, rng=np.random.default_rng(seed))
        assert np.array_equal(plain, cv2.resize(box, (32, 24)))
        wanted = np.asarray(Image.fromarray(box).resize((32, height), 2).resize((32, 24), Image.Resampling.BILINEAR))
        assert difference(image.random_resized_crop(photo, (24, 32), rng=np.random.default_rng(seed)), wanted) <= 1


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


# -- the default of earlier releases -------------------------------------------------------------------------------------------------

BEFORE = {
    "Resize(field='x', out_field='x', size=8, interpolation='linear')": lambda **more: image.resize("x", 8, **more),
    "RandomResizedCrop(field='x', out_field='x', size=(8, 8), scale=(0.08, 1.0), ratio=(0.75, 1.25), interpolation='cubic')": (
        lambda **more: image.random_resized_crop("x", 8, ratio=(0.75, 1.25), interpolation="cubic", **more)
    ),
}


@pytest.mark.parametrize(("line", "make"), BEFORE.items())
def test_without_antialias_an_operator_prints_what_it_printed_in_earlier_releases(line: str, make: Any) -> None:
    assert repr(make(antialias=False)) == line
    assert repr(make()) == repr(make(antialias=True)) == f"{line[:-1]}, antialias=True)"
    assert make() == make(antialias=True) != make(antialias=False)
    assert "antialias" not in repr(image.resize("x", 8, interpolation="area"))
    with pytest.raises(PlanError, match="antialias='no' is neither True nor False"):
        make(antialias="no")


def photos(**more: Any) -> ps.Dataset:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    return ps.from_source([{"x": pixels}] * 6).map(image.resize("x", (8, 9), **more)).map(image.random_resized_crop("x", 4, **more), seed=1)


def test_a_feed_says_once_that_the_default_is_another_one_and_not_where_antialias_is_given() -> None:
    joint = image.resize("x", 8, fields={})
    for dataset, count in (
        (photos(), 1),
        (photos(antialias=True), 0),
        (photos(antialias=False), 0),
        (ps.from_source([{"x": np.zeros((9, 9, 3), np.uint8)}]).map(joint), 1),
    ):
        with dataset.feed() as feed:
            next(feed)
            said = [text for text in feed.stats().notices if "antialias" in text]
        assert len(said) == count
        assert all("antialias=False gives the pixels of earlier ones" in text for text in said)


def test_a_state_and_a_pack_of_earlier_releases_name_antialias(tmp_path: Path) -> None:
    state = state_behind(photos(antialias=False))
    with photos().feed() as feed, pytest.raises(StateMismatch) as caught:
        feed.load_state_dict(state)
    assert "antialias=True" in caught.value.what
    assert caught.value.fix.startswith("give antialias=False, as it was then, or load_state_dict(state, strict=False)")
    ps.pack(photos(antialias=False), tmp_path)
    with pytest.raises(PackError, match="give antialias=False, as it was then"):
        ps.pack(photos(), tmp_path)
