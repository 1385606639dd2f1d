"""Photometric operators against Pillow, an independent implementation; tests/interop compares them with torchvision."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

import penstock as ps
import penstock.image as image
from penstock.errors import PlanError, SpecError
from penstock.image import photometric

Photo = NDArray[np.uint8]
FACTORS = (0.0, 0.4, 1.0, 1.7)


@pytest.fixture(scope="module")
def photos(photo: Photo) -> list[Photo]:
    """Return the photo, noise, one colour, grey, and shapes at the limits of the kernels."""
    chance = np.random.default_rng(1)
    shapes = [(40, 60, 3), (1, 7, 3), (9, 2, 3)]
    noise = [chance.integers(0, 256, shape, np.uint8) for shape in shapes]
    return [photo, *noise, np.full((20, 30, 3), (200, 7, 90), np.uint8), np.repeat(photo[..., :1], 3, axis=2), photo[:, ::-1]]


def enhanced(kind: Any) -> Callable[[Image.Image, float], Image.Image]:
    return lambda picture, factor: kind(picture).enhance(factor)


AS_PILLOW: dict[str, tuple[Any, Any, tuple[Any, ...]]] = {
    "brightness": (photometric._brightness, enhanced(ImageEnhance.Brightness), FACTORS),
    "contrast": (photometric._contrast, enhanced(ImageEnhance.Contrast), FACTORS),
    "saturation": (photometric._saturation, enhanced(ImageEnhance.Color), FACTORS),
    "sharpness": (photometric._sharpness, enhanced(ImageEnhance.Sharpness), FACTORS),
    "posterize": (image.posterize, ImageOps.posterize, (1, 3, 8)),
    "solarize": (image.solarize, ImageOps.solarize, (0, 100, 255)),
    "auto_contrast": (lambda pixels, _: image.auto_contrast(pixels), lambda picture, _: ImageOps.autocontrast(picture), (0,)),
    "equalize": (lambda pixels, _: image.equalize(pixels), lambda picture, _: ImageOps.equalize(picture), (0,)),
    "grayscale": (lambda pixels, _: photometric._random_grayscale(pixels), lambda picture, _: picture.convert("L").convert("RGB"), (0,)),
}


@pytest.mark.parametrize("name", AS_PILLOW)
def test_the_levels_are_those_of_pillow(photos: list[Photo], name: str) -> None:
    own, pillow, options = AS_PILLOW[name]
    for pixels in photos:
        for option in options:
            wanted = np.asarray(pillow(Image.fromarray(pixels), option)).astype(int)
            assert np.abs(own(pixels, option) - wanted).max() <= (2 if name == "saturation" else 1), option  # Pillow rounds the grey


def test_a_hue_turned_by_a_third_moves_the_channels_on_and_a_whole_turn_changes_nothing(photos: list[Photo]) -> None:
    for pixels in photos:
        moved = image.color_jitter(pixels, hue=(1 / 3, 1 / 3), rng=np.random.default_rng(0))
        assert np.abs(moved.astype(int) - pixels[..., [2, 0, 1]]).max() <= 1
        assert np.abs(photometric._hue(pixels, 1.0).astype(int) - pixels).max() <= 1


def test_a_blur_is_the_gaussian_of_pillow_and_keeps_one_colour(photo: Photo) -> None:
    blurred = image.gaussian_blur(photo, 13, 1.5, rng=np.random.default_rng(0))
    wanted = np.asarray(Image.fromarray(photo).filter(ImageFilter.GaussianBlur(1.5))).astype(int)  # Pillow's is made of three boxes
    assert np.abs(blurred - wanted)[7:-7, 7:-7].max() <= 3
    assert np.array_equal(image.gaussian_blur(np.full_like(photo, 77), 23, 5.0, rng=np.random.default_rng(0)), np.full_like(photo, 77))


def test_jitter_does_its_steps_in_the_order_of_the_draws(photo: Photo) -> None:
    operator = image.color_jitter("image", 0.5, (0.2, 0.4), 0, 0)
    made = operator.apply(photo, [0.9, 0.1, 0.5, 0.7, 1.0, 0.5, 0.3, 0.2], None, None)
    assert np.array_equal(made, photometric._brightness(photometric._contrast(photo, 0.30000000000000004), 1.5))
    assert operator.num_draws == 8


def test_an_erased_box_has_the_area_the_ratio_and_the_value_that_were_asked_for(photo: Photo) -> None:
    value, shares, ratios = (1, 255, 3), [], []
    for seed in range(200):
        made = image.random_erase(photo, (0.1, 0.3), (0.5, 2.0), value, probability=1, rng=np.random.default_rng(seed))
        rows, columns = (np.flatnonzero((made != photo).any(axis=axis).any(axis=-1)) for axis in (1, 0))
        height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
        box = made[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        assert (box == value).all()
        assert (made != photo).any(axis=2).sum() == height * width
        shares.append(height * width / photo[..., 0].size)
        ratios.append(height / width)
    assert 0.09 < min(shares) < 0.12 < 0.27 < max(shares) < 0.31
    assert 0.45 < min(ratios) < 0.6 < 1.7 < max(ratios) < 2.2


def test_an_erased_box_that_never_fits_leaves_the_image(photo: Photo) -> None:
    assert np.array_equal(image.random_erase(photo, (1, 1), rng=np.random.default_rng(0), probability=1), photo)


@pytest.mark.parametrize("wide", [False, True])
def test_each_augmentation_keeps_the_shape_and_only_the_first_one_the_image(photos: list[Photo], wide: bool) -> None:
    for pixels in photos:
        made = [photometric._augment(pixels, (number + 0.5) / 14, 1.0, sign, wide) for number in range(14) for sign in (0.1, 0.9)]
        assert all(one.shape == pixels.shape and one.dtype == np.uint8 for one in made)
    same = [np.array_equal(photometric._augment(photos[0], (n + 0.5) / 14, 1.0, 0.1, wide), photos[0]) for n in range(14)]
    assert same == [True] + 13 * [False]


def test_a_quarter_turn_and_a_shift_are_those_of_numpy(photo: Photo) -> None:
    square = photo[:75, :75]
    turned = photometric._warp(square, ((0, -1, 0), (1, 0, 0)), 37, 37)
    assert np.array_equal(turned, np.rot90(square))
    shift = int(0.3 * 150 / 331 * 100)
    moved = image.rand_augment("x", 1, 9).apply(photo, [3.5 / 14, 0.9], None, None)
    assert np.array_equal(moved[:, shift:], photo[:, :-shift])
    assert not moved[:, :shift].any()


def test_only_equal_operators_on_two_fields_with_one_seed_are_a_notice() -> None:
    jitter = image.color_jitter("image", 0.4)
    assert jitter.notice(1, [(image.gaussian_blur("mask", 3), 1)], None) == ""
    assert "image.color_jitter of 'image' and of 'mask'" in jitter.notice(1, [(image.color_jitter("mask", 0.4), 1)], None)


def test_below_probability_1_the_last_draw_decides(photo: Photo) -> None:
    operator = image.solarize("image", 100, probability=0.25)
    assert operator.num_draws == 1
    assert not np.array_equal(operator.apply(photo, [0.2499], None, None), photo)
    assert np.array_equal(operator.apply(photo, [0.25], None, None), photo)


REFUSED = [
    (lambda: image.color_jitter("x", -0.1), "brightness=-0.1 cannot be"),
    (lambda: image.color_jitter("x", hue=0.6), "hue=0.6 cannot be"),
    (lambda: image.color_jitter("x", saturation=float("nan")), "saturation=nan cannot be"),
    (lambda: image.gaussian_blur("x", 4), "kernel_size=4 cannot be"),
    (lambda: image.gaussian_blur("x", 3, 0.0), "sigma=0.0 cannot be"),
    (lambda: image.random_erase("x", value=(0, 0, 256)), "value=256 is out of range"),
    (lambda: image.random_grayscale("x", probability=1.5), "probability=1.5 is not in 0..1"),
    (lambda: image.posterize("x", 2.5), "bits=2.5 is out of range"),  # type: ignore[arg-type]
    (lambda: image.rand_augment("x", magnitude=31), "magnitude=31 is out of range"),
    (lambda: image.rand_augment("x", 0), "num_ops=0 is out of range"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_an_option_out_of_its_range_is_a_plan_error(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(PlanError) as caught:
        make()
    assert caught.value.what == words
    assert str(caught.value.where).startswith("image.")
    assert "give" in str(caught.value.fix)


@pytest.mark.parametrize("channels", [1, 4])
def test_an_image_of_other_channels_is_a_spec_error(photo: Photo, channels: int) -> None:
    with pytest.raises(SpecError, match=f"field 'image' has {channels} channels") as caught:
        image.equalize("image")({"image": np.resize(photo, (20, 20, channels))})
    assert "np.repeat" in str(caught.value.fix)
    with pytest.raises(SpecError, match="field 'image' is float32"):
        image.equalize("image")({"image": np.zeros((9, 9, channels), np.float32)})


def test_help_shows_the_options_that_all_have() -> None:
    assert str(signature(image.random_grayscale)).startswith(
        "(field: 'str | Image', *, out: 'str | None' = None, probability: 'float' = 0.1,"
    )


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="bogus"):
        image.equalize("x", bogus=1)  # type: ignore[call-overload]


@pytest.mark.parametrize("way", [{"executor": "threads", "num_workers": 3}, {"executor": "processes", "num_workers": 2}], ids=str)
def test_workers_give_what_the_program_gives(photo: Photo, way: dict[str, Any]) -> None:
    ds = ps.from_source([{"image": np.roll(photo, number, axis=1)} for number in range(24)]).shuffle(seed=1)
    steps = (
        image.rand_augment("image"),
        image.trivial_augment("image"),
        image.color_jitter("image", 0.4, 0.4, 0.4, 0.1, probability=0.8),
        image.random_erase("image"),
    )
    for number, step in enumerate(steps):
        ds = ds.map(step, seed=number)
    ds = ds.batch(5).repeat(2)
    wanted = [batch["image"] for batch in ds.feed(executor="inline")]
    assert len({one.tobytes() for one in wanted}) == len(wanted)
    with ds.feed(**way) as feed:
        assert all(np.array_equal(batch["image"], one) for batch, one in zip(feed, wanted, strict=True))
