"""Image operators on one uint8 image in one thread, each beside OpenCV, Pillow, PyTorch and Albumentations, as far as installed.

All take turns in one process, some milliseconds each, and their CPU time counts; `beside` is Penstock's over the fastest one's. Each makes
a new array, as a function of an element does. A peer stands beside an operator when it gives the same picture to a level or two. Jitter and
blur are those of `color_jitter(0.4, 0.4, 0.4, 0.1)` and `gaussian_blur(23)`, with hue in float32.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import rounds
from data import Size
from numpy.typing import NDArray
from user_code import MEAN, STD

Pixels = NDArray[np.uint8]
Call = Callable[[Pixels, Sequence[float]], Any]
Case = tuple[tuple[int, int], Callable[[Any], Any], Mapping[str, Callable[[], Call]]]
"""The size of the image, what makes the operator of `penstock.image`, and its peers."""

_PHOTO, _CROP, _KERNEL = (375, 500), (224, 224), 23
_BOX = (31, 60, 300, 340)  # top, left, height and width of a random resized crop
_BOX_DRAWS = (31.5 / 76, 60.5 / 161, 300 * 340 / 375 / 500 / 0.92 - 0.08 / 0.92, np.log(340 / 300 * 4 / 3) / np.log(16 / 9))
_SLOT_S = 0.004


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


def _cv2() -> Any:
    import cv2

    cv2.setNumThreads(1)
    return cv2


def _torch() -> Any:
    import torch

    torch.set_num_threads(1)
    return torch


def _opencv(call: Callable[[Any, Pixels], Any]) -> Callable[[], Call]:
    def make() -> Call:
        cv2 = _cv2()
        return lambda pixels, draws: call(cv2, pixels)

    return make


def _pillow(call: Callable[[Any, Any], Any]) -> Callable[[], Call]:
    def make() -> Call:
        import PIL
        from PIL import Image, ImageOps  # noqa: F401  # which makes them attributes of the package

        return lambda pixels, draws: np.asarray(call(PIL, Image.fromarray(pixels)))

    return make


def _interpolated(size: tuple[int, int], mode: str = "bilinear", box: tuple[int, int, int, int] | None = None) -> Callable[[], Call]:
    """PyTorch's uint8 kernel for images whose channels are last, which torchvision calls, too."""

    def make() -> Call:
        torch = _torch()

        def call(pixels: Pixels, draws: Sequence[float]) -> Any:
            tensor = torch.from_numpy(pixels)
            if box is not None:
                top, left, height, width = box
                tensor = tensor[top : top + height, left : left + width]
            made = torch.nn.functional.interpolate(tensor.permute(2, 0, 1)[None], size, mode=mode, antialias=True)
            return made[0].permute(1, 2, 0).numpy()

        return call

    return make


def _tensor(call: Callable[[Any, Any], Any]) -> Callable[[], Call]:
    def make() -> Call:
        torch = _torch()
        return lambda pixels, draws: call(torch, torch.from_numpy(pixels))

    return make


def _albumentations(name: str, **options: Any) -> Callable[[], Call]:
    def make() -> Call:
        import albumentations

        _cv2()
        transform = getattr(albumentations, name)(p=1, **options)
        return lambda pixels, draws: transform(image=pixels)["image"]

    return make


def _cut() -> Call:
    return lambda pixels, draws: pixels[76:300, 138:362].copy()


def _jitter_of_opencv() -> Call:
    cv2 = _cv2()

    def contrast(pixels: Any, factor: float) -> Any:
        mean = cv2.mean(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))[0]
        return cv2.convertScaleAbs(pixels, alpha=factor, beta=(1 - factor) * mean)

    def saturated(pixels: Any, factor: float) -> Any:
        grey = cv2.cvtColor(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
        return cv2.addWeighted(pixels, factor, grey, 1 - factor, 0)

    def turned(pixels: Any, turns: float) -> Any:
        hsv = cv2.cvtColor(pixels.astype(np.float32) / np.float32(255), cv2.COLOR_RGB2HSV)
        hsv[..., 0] += 360 * (turns % 1)
        return cv2.convertScaleAbs(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), alpha=255)

    steps = (lambda pixels, factor: cv2.convertScaleAbs(pixels, alpha=factor), contrast, saturated, turned)

    def call(pixels: Any, draws: Sequence[float]) -> Any:
        factors = (*(0.6 + 0.8 * draw for draw in draws[4:7]), 0.2 * draws[7] - 0.1)
        for number in sorted(range(4), key=draws.__getitem__):
            pixels = steps[number](pixels, factors[number])
        return pixels

    return call


def _blur_of_opencv() -> Call:
    cv2 = _cv2()
    return lambda pixels, draws: cv2.GaussianBlur(pixels, (_KERNEL, _KERNEL), 0.1 + 1.9 * draws[0])


def _turn_of_opencv() -> Call:
    cv2 = _cv2()
    centre = ((_CROP[1] - 1) / 2, (_CROP[0] - 1) / 2)
    return lambda pixels, draws: cv2.warpAffine(pixels, cv2.getRotationMatrix2D(centre, 20 * draws[0] - 10, 1), _CROP)


def _boxed(pixels: Pixels) -> Pixels:
    top, left, height, width = _BOX
    return pixels[top : top + height, left : left + width]


def _normalized(cv2: Any, pixels: Pixels) -> Any:
    made = pixels.astype(np.float32)
    made -= np.array(MEAN, np.float32) * 255
    made *= 1 / (np.array(STD, np.float32) * 255)
    return made


_LEVELS = np.arange(256, dtype=np.uint8)
_INVERTED = np.where(_LEVELS < 128, _LEVELS, 255 - _LEVELS)
_LEFT, _TOP = _BOX[1], _BOX[0]
_CORNERS = (_LEFT, _TOP, _LEFT + _BOX[3], _TOP + _BOX[2])
CASES: dict[str, Case] = {
    "resize": (
        _PHOTO,
        lambda image: image.resize("x", _CROP),
        {"pillow": _pillow(lambda pil, one: one.resize(_CROP, pil.Image.BILINEAR)), "torch": _interpolated(_CROP)},
    ),
    "resize_cubic": (
        _PHOTO,
        lambda image: image.resize("x", _CROP, interpolation="cubic"),
        {"pillow": _pillow(lambda pil, one: one.resize(_CROP, pil.Image.BICUBIC)), "torch": _interpolated(_CROP, "bicubic")},
    ),
    "resize_large": (
        (1200, 1600),
        lambda image: image.resize("x", _CROP),
        {"pillow": _pillow(lambda pil, one: one.resize(_CROP, pil.Image.BILINEAR)), "torch": _interpolated(_CROP)},
    ),
    "resize_up": (
        _CROP,
        lambda image: image.resize("x", (448, 448)),
        {"pillow": _pillow(lambda pil, one: one.resize((448, 448), pil.Image.BILINEAR)), "torch": _interpolated((448, 448))},
    ),
    "resize_plain": (
        _PHOTO,
        lambda image: image.resize("x", _CROP, antialias=False),
        {
            "opencv": _opencv(lambda cv2, pixels: cv2.resize(pixels, _CROP)),
            "albumentations": _albumentations("Resize", height=224, width=224),
        },
    ),
    "random_resized_crop": (
        _PHOTO,
        lambda image: image.random_resized_crop("x", _CROP),
        {
            "pillow": _pillow(lambda pil, one: one.resize(_CROP, pil.Image.BILINEAR, box=_CORNERS)),
            "torch": _interpolated(_CROP, box=_BOX),
        },
    ),
    "random_resized_crop_plain": (
        _PHOTO,
        lambda image: image.random_resized_crop("x", _CROP, antialias=False),
        {"opencv": _opencv(lambda cv2, pixels: cv2.resize(_boxed(pixels), _CROP))},
    ),
    "center_crop": (
        _PHOTO,
        lambda image: image.center_crop("x", 224),
        {
            "numpy": _cut,
            "torch": _tensor(lambda torch, pixels: pixels[76:300, 138:362].clone().numpy()),
            "albumentations": _albumentations("CenterCrop", height=224, width=224),
        },
    ),
    "random_crop": (
        _PHOTO,
        lambda image: image.random_crop("x", 224),
        {"numpy": _cut, "albumentations": _albumentations("RandomCrop", height=224, width=224)},
    ),
    "random_flip": (
        _CROP,
        lambda image: image.random_flip("x", probability=1.0),
        {
            "opencv": _opencv(lambda cv2, pixels: cv2.flip(pixels, 1)),
            "torch": _tensor(lambda torch, pixels: pixels.flip(1).numpy()),
            "albumentations": _albumentations("HorizontalFlip"),
        },
    ),
    "pad_to": (
        (480, 640),
        lambda image: image.pad_to("x", 640),
        {
            "opencv": _opencv(lambda cv2, pixels: cv2.copyMakeBorder(pixels, 80, 80, 0, 0, cv2.BORDER_CONSTANT)),
            "albumentations": _albumentations("PadIfNeeded", min_height=640, min_width=640),
        },
    ),
    "random_affine": (
        _CROP,
        lambda image: image.random_affine("x", degrees=10),
        {"opencv": _turn_of_opencv, "albumentations": _albumentations("Affine", rotate=(-10, 10))},
    ),
    "normalize": (
        _CROP,
        lambda image: image.normalize("x", MEAN, STD, layout="HWC"),
        {"opencv": _opencv(_normalized), "albumentations": _albumentations("Normalize", mean=MEAN, std=STD)},
    ),
    "color_jitter": (
        _CROP,
        lambda image: image.color_jitter("x", 0.4, 0.4, 0.4, 0.1),
        {"opencv": _jitter_of_opencv},
    ),
    "gaussian_blur": (
        _CROP,
        lambda image: image.gaussian_blur("x", _KERNEL),
        {"opencv": _blur_of_opencv, "albumentations": _albumentations("GaussianBlur", blur_limit=(_KERNEL, _KERNEL), sigma_limit=(0.1, 2))},
    ),
    "random_grayscale": (
        _CROP,
        lambda image: image.random_grayscale("x", probability=1),
        {
            "opencv": _opencv(lambda cv2, pixels: cv2.cvtColor(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)),
            "albumentations": _albumentations("ToGray"),
        },
    ),
    "auto_contrast": (
        _CROP,
        lambda image: image.auto_contrast("x"),
        {
            "pillow": _pillow(lambda pil, one: pil.ImageOps.autocontrast(one)),
            "albumentations": _albumentations("AutoContrast", method="pil"),
        },
    ),
    "equalize": (
        _CROP,
        lambda image: image.equalize("x"),
        {"pillow": _pillow(lambda pil, one: pil.ImageOps.equalize(one)), "albumentations": _albumentations("Equalize", mode="pil")},
    ),
    "posterize": (
        _CROP,
        lambda image: image.posterize("x", 4),
        {
            "opencv": _opencv(lambda cv2, pixels: cv2.LUT(pixels, _LEVELS & 240)),
            "pillow": _pillow(lambda pil, one: pil.ImageOps.posterize(one, 4)),
            "torch": _tensor(lambda torch, pixels: (pixels & 240).numpy()),
            "albumentations": _albumentations("Posterize", num_bits=4),
        },
    ),
    "solarize": (
        _CROP,
        lambda image: image.solarize("x", 128),
        {
            "opencv": _opencv(lambda cv2, pixels: cv2.LUT(pixels, _INVERTED)),
            "pillow": _pillow(lambda pil, one: pil.ImageOps.solarize(one, 128)),
            "albumentations": _albumentations("Solarize", threshold_range=(0.5, 0.5)),
        },
    ),
}


def _penstock(make: Callable[[Any], Any]) -> Call:
    import penstock as ps

    operator = make(ps.image)
    if not hasattr(operator, "apply"):  # of several fields
        rng = np.random.default_rng(3)
        return lambda pixels, draws: operator({"x": pixels}, rng)["x"]
    if operator.name == "random_resized_crop":
        draws_of_box = [*_BOX_DRAWS, *[0.5] * 18]
        assert operator.box(*_PHOTO, draws_of_box)[:4] == _BOX
        return lambda pixels, draws: operator.apply(pixels, draws_of_box, None, None)
    return lambda pixels, draws: operator.apply(pixels, draws, None, None)


def _measure(case: Case) -> Callable[[rounds.Run], dict[str, Any]]:
    (height, width), make, peers = case

    def measure(run: rounds.Run) -> dict[str, Any]:
        calls = {"penstock": _penstock(make)}
        for name, peer in peers.items():
            try:
                calls[name] = peer()
            except ImportError:
                continue  # not installed: the figures tell which were there
        chance = np.random.default_rng(3)
        ramp = np.add.outer(np.arange(height), np.arange(width))[..., None] * 200 // (height + width) + np.arange(3) * 20
        pixels = np.clip(ramp + chance.normal(0, 8, (height, width, 3)), 0, 255).astype(np.uint8)
        draws = chance.random((64, 32)).tolist()
        spent: dict[str, list[float]] = {name: [] for name in calls}
        count, begun, turn = 1, time.perf_counter(), 0
        while turn < 3 or time.perf_counter() - begun < run.size.min_seconds:
            for name in calls if turn % 2 else reversed(calls):
                call, before = calls[name], time.process_time()
                for number in range(count):
                    call(pixels, draws[number % len(draws)])
                spent[name].append((time.process_time() - before) / count)
            if turn == 0:
                count = max(1, int(_SLOT_S / max(spent["penstock"][0], 1e-6)))
                spent = {name: [] for name in calls}
            turn += 1
        image_us = {name: statistics.median(times) * 1e6 for name, times in spent.items()}
        fastest = min((name for name in calls if name != "penstock"), key=image_us.__getitem__)
        figures = {f"{name}_us": value for name, value in image_us.items()}
        return {"rate": 1e6 / image_us["penstock"], "beside": image_us["penstock"] / image_us[fastest], "is": fastest, **figures}

    return measure


CLAIM = rounds.Claim(
    name="images",
    title="Operators on one uint8 image, one thread: CPU time beside the fastest of NumPy, OpenCV, Pillow, PyTorch and Albumentations",
    unit="images/s",
    prepare=_nothing,
    reference="",
    also=("beside", "penstock_us", "numpy_us", "opencv_us", "pillow_us", "torch_us", "albumentations_us"),
    targets=tuple(rounds.Target(contestant=name, metric="beside", sense="<=", bound=1.1) for name in CASES),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {name: _measure(case) for name, case in CASES.items()})
