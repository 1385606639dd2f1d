"""The photometric operators beside torchvision's transforms v2, whose formulas they have: at most one level apart on uint8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import penstock.image as image
from penstock.image import photometric

Photo = NDArray[np.uint8]
pytestmark = pytest.mark.slow

RNG = {"rng": np.random.default_rng(0)}
CASES: dict[str, tuple[Callable[[Photo, Any], Photo], tuple[Any, ...], Callable[[Any, Any, Any], Any]]] = {
    "hue": (photometric._hue, (-0.5, -0.1, 0.0, 0.03, 0.4), lambda v2, x, by: v2.adjust_hue(x, by)),
    "blur": (
        lambda x, by: image.gaussian_blur(x, 9, by, **RNG),
        (0.1, 0.7, 2.0, 5.0),
        lambda v2, x, by: v2.gaussian_blur(x, [9, 9], [by, by]),
    ),
    "grey": (lambda x, _: photometric._random_grayscale(x), (0,), lambda v2, x, _: v2.rgb_to_grayscale(x, 3)),
}


@pytest.fixture(scope="module")
def v2() -> Any:
    pytest.importorskip("torch")
    try:
        from torchvision.transforms import v2
    except (ImportError, RuntimeError) as error:  # a build for CUDA beside PyTorch for the CPU
        pytest.skip(f"torchvision cannot be imported: {error}")
    return v2


def tensor(pixels: Photo) -> Any:
    import torch

    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


def photos() -> list[Photo]:
    chance = np.random.default_rng(1)
    rows, columns = np.mgrid[0:60, 0:80]
    waves = np.stack([128 + 90 * np.sin(rows / 17 + k) * np.cos(columns / (23 - 4 * k)) for k in range(3)], axis=2)
    noise = chance.integers(0, 256, (60, 80, 3), np.uint8)
    return [waves.astype(np.uint8), noise, np.repeat(noise[..., :1], 3, axis=2), np.full((60, 80, 3), (200, 7, 90), np.uint8)]


@pytest.mark.parametrize("name", CASES)
def test_the_levels_are_those_of_torchvision(v2: Any, name: str) -> None:
    own, options, theirs = CASES[name]
    for pixels in photos():
        for option in options:
            wanted = theirs(v2.functional, tensor(pixels), option).numpy().transpose(1, 2, 0).astype(int)
            assert np.abs(own(pixels, option) - wanted).max() <= 1, option


@pytest.mark.parametrize(("interpolation", "mode", "most"), [("linear", "bilinear", 1), ("cubic", "bicubic", 2)])
def test_resizing_is_that_of_pytorch(interpolation: Any, mode: str, most: int) -> None:
    functional = pytest.importorskip("torch.nn.functional")  # whose cubic filter is two levels off Pillow's
    for pixels in photos():
        for size in ((17, 30), (60, 33), (75, 200), (5, 5)):
            wanted = functional.interpolate(tensor(pixels)[None], size, mode=mode, antialias=True)[0].numpy().transpose(1, 2, 0)
            assert np.abs(image.resize(pixels, size, interpolation=interpolation) - wanted.astype(int)).max() <= most, size


@pytest.mark.parametrize("wide", [False, True])
def test_each_augmentation_is_that_of_torchvision(v2: Any, wide: bool) -> None:
    policy = v2.TrivialAugmentWide() if wide else v2.RandAugment()
    space = policy._AUGMENTATION_SPACE
    for number, (name, (magnitudes, signed)) in enumerate(space.items()):
        for step in (0, 1, 9, 30):
            for sign in (0.4, 0.6):
                for pixels in photos():
                    strengths = magnitudes(31, *pixels.shape[:2])
                    strength = 0.0 if strengths is None else float(strengths[step]) * (-1 if signed and sign <= 0.5 else 1)
                    wanted = policy._apply_image_or_video_transform(tensor(pixels), name, strength, policy.interpolation, policy._fill)
                    made = photometric._augment(pixels, (number + 0.5) / len(space), step / 30, sign, wide)
                    apart = np.abs(made - wanted.numpy().transpose(1, 2, 0).astype(int)) > 1
                    # Where two pixels are equally near, torchvision may take the other one.
                    assert apart.mean() <= (0.01 if name in ("ShearX", "ShearY", "Rotate") else 0), (name, strength)
