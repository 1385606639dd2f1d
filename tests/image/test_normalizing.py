from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import penstock.image as image
from penstock.errors import PlanError, SpecError

Photo = NDArray[np.uint8]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def test_normalize_is_one_float32_product_and_one_sum(photo: Photo) -> None:
    operator = image.normalize("x", MEAN, STD, layout="HWC")
    assert np.array_equal(operator.apply(photo, (), None, None), photo.astype(np.float32) * operator.scale + operator.bias)


def test_one_number_serves_one_channel(photo: Photo) -> None:
    assert image.normalize(photo[..., :1], 0.5, 0.25).shape == (1, 75, 100)


@pytest.mark.parametrize("values", [np.zeros((4, 4, 1), np.uint8), np.zeros((4, 4, 4), np.uint8)])
def test_another_number_of_channels_is_a_spec_error(values: Photo) -> None:
    operator = image.normalize("x", MEAN, STD)
    for act in (lambda: operator.apply(values, (), None, None), lambda: operator.apply_block(values[None], np.zeros((1, 0)), None, None)):
        with pytest.raises(SpecError) as caught:
            act()
        assert caught.value.what == f"field 'x' has {values.shape[2]} channels, but mean and std have 3 numbers"
        assert caught.value.where == "image.normalize('x')"
        assert caught.value.fix == "give one mean and one std per channel"


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize(("dtype", "largest"), [(np.uint8, 255), (np.uint16, 65535), (np.int32, 2**31 - 1), (np.float64, 1), (bool, 1)])
@pytest.mark.parametrize("channels", [1, 3, 13])
def test_other_dtypes_and_many_channels_have_the_scale_of_their_largest_number(
    dtype: Any, largest: int, channels: int, layout: Any
) -> None:
    values = (np.random.default_rng(channels).random((9, 11, channels)) * largest).round().astype(dtype)
    mean, std = np.linspace(0.1, 0.9, channels).tolist(), np.linspace(0.2, 0.4, channels).tolist()
    found = image.normalize(values, mean, std, layout=layout)
    wanted = (values.astype(float) / largest - mean) / std
    assert found.dtype == np.float32
    assert abs(found - (wanted.transpose(2, 0, 1) if layout == "CHW" else wanted)).max() < 1e-5


def test_an_image_of_objects_is_a_spec_error() -> None:
    with pytest.raises(SpecError, match=r"is complex128\[4, 4, 3\], expected uint8 or float32 of shape"):
        image.normalize(np.zeros((4, 4, 3), complex), MEAN, STD)


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (MEAN, (0.2, 0.2), "one positive std is needed for each mean"),
        (MEAN, (0.2, 0.2, 0.0), "one positive std is needed for each mean"),
        (("a", "b"), (1, 1), "is not one number per channel"),
        ((float("nan"),), (1,), "is not one number per channel"),
        ((), (), "is not one number per channel"),
    ],
)
def test_means_and_stds_that_cannot_be_are_plan_errors(mean: Any, std: Any, text: str) -> None:
    with pytest.raises(PlanError) as caught:
        image.normalize("x", mean, std)
    assert text in caught.value.what
    assert caught.value.where == "image.normalize"
    assert "on the 0..1 scale" in caught.value.fix


def test_to_layout_moves_the_channels_to_the_front_and_keeps_the_values(photo: Photo) -> None:
    result = image.to_layout(photo)
    assert result.flags.c_contiguous
    assert np.array_equal(result, photo.transpose(2, 0, 1))
    assert np.array_equal(image.to_layout(photo, "HWC"), photo)


def test_an_unknown_layout_is_a_plan_error() -> None:
    for name, act in (
        ("normalize", lambda: image.normalize("x", 0.5, 0.5, layout="CWH")),  # type: ignore[call-overload]
        ("to_layout", lambda: image.to_layout("x", "CWH")),  # type: ignore[call-overload]
    ):
        with pytest.raises(PlanError) as caught:
            act()
        assert (caught.value.what, caught.value.where, caught.value.fix) == (
            "layout='CWH' is not known",
            f"image.{name}",
            'give "CHW" or "HWC"',
        )


def test_means_on_the_scale_of_bytes_are_refused_with_those_of_0_to_1() -> None:
    with pytest.raises(PlanError, match=r"is above 1.*\n.*\n.*mean=\(0\.4824, 0\.4588, 0\.4078\), std=\(0\.2275, 0\.2235, 0\.2235\)"):
        image.normalize("data", (123, 117, 104), (58, 57, 57))
    with pytest.raises(PlanError, match=r"mean=\(0\.4824, 0\.4588, 0\.4078\), std=\(0\.229, 0\.224, 0\.225\)"):
        image.normalize("data", (123, 117, 104), (0.229, 0.224, 0.225))
