"""Colour jitter and Gaussian blur of one uint8 image of 224 x 224, in one thread: the operator, torchvision's functions and OpenCV's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import machine
import numpy as np
import rounds
from data import Size
from numpy.typing import NDArray

_KERNEL = 23
_DRAWS = 8

Call = Callable[[NDArray[np.uint8], Sequence[float]], Any]


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


def _factors(draws: Sequence[float]) -> tuple[float, float, float, float]:
    brightness, contrast, saturation = (0.6 + 0.8 * draw for draw in draws[4:7])
    return brightness, contrast, saturation, 0.2 * draws[7] - 0.1


def _sigma(draws: Sequence[float]) -> float:
    return 0.1 + 1.9 * draws[0]


def _penstock_jitter() -> Call:
    import penstock as ps

    operator = ps.image.color_jitter("image", 0.4, 0.4, 0.4, 0.1)
    return lambda pixels, draws: operator.apply(pixels, draws, None, None)


def _penstock_blur() -> Call:
    import penstock as ps

    operator = ps.image.gaussian_blur("image", _KERNEL)
    return lambda pixels, draws: operator.apply(pixels, draws, None, None)


def _cv2() -> Any:
    import cv2

    cv2.setNumThreads(1)
    return cv2


def _opencv_jitter(bits: int = 32) -> Call:
    """Return the steps with OpenCV; a hue of 8 bits is faster, and several levels away from torchvision's."""
    cv2 = _cv2()

    def bright(pixels: Any, factor: float) -> Any:
        return cv2.convertScaleAbs(pixels, alpha=factor)

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

    def turned_in_8_bits(pixels: Any, turns: float) -> Any:
        hsv = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV_FULL)
        hsv[..., 0] += np.uint8(int(turns * 256) % 256)
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)

    return _in_order((bright, contrast, saturated, turned if bits == 32 else turned_in_8_bits))


def _in_order(steps: Sequence[Callable[[Any, float], Any]]) -> Call:
    def call(pixels: Any, draws: Sequence[float]) -> Any:
        factors = _factors(draws)
        for number in np.argsort(draws[:4]).tolist():
            pixels = steps[number](pixels, factors[number])
        return pixels

    return call


def _opencv_blur() -> Call:
    cv2 = _cv2()
    return lambda pixels, draws: cv2.GaussianBlur(pixels, (_KERNEL, _KERNEL), _sigma(draws))


def _torchvision() -> tuple[Any, Any]:
    try:
        import torch
        from torchvision.transforms.v2 import functional
    except (ImportError, RuntimeError):
        raise rounds.Missing("torchvision is not installed, or not for this PyTorch") from None
    torch.set_num_threads(1)
    return torch, functional


def _on_tensor(call: Call, torch: Any) -> Call:
    return lambda pixels, draws: call(torch.from_numpy(pixels).permute(2, 0, 1), draws)


def _torchvision_jitter() -> Call:
    torch, functional = _torchvision()
    steps = functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation, functional.adjust_hue
    return _on_tensor(_in_order(steps), torch)


def _torchvision_blur() -> Call:
    torch, functional = _torchvision()
    return _on_tensor(lambda pixels, draws: functional.gaussian_blur(pixels, [_KERNEL, _KERNEL], [_sigma(draws)] * 2), torch)


def _measure(make: Callable[[], Call]) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        call, chance = make(), np.random.default_rng(3)
        ramp = np.add.outer(np.arange(224), np.arange(224))[..., None] // 3 + np.arange(3) * 30
        pixels = np.clip(ramp + chance.normal(0, 8, (224, 224, 3)), 0, 255).astype(np.uint8)
        draws = chance.random((256, _DRAWS)).tolist()
        for number in range(8):
            call(pixels, draws[number])
        everybody, own, start, done = machine.busy_s(), time.process_time(), time.perf_counter(), 0
        while done < len(draws) // 8 or time.perf_counter() - start < run.size.min_seconds:
            call(pixels, draws[done % len(draws)])
            done += 1
        seconds = time.perf_counter() - start
        other_s = machine.busy_s() - everybody - (time.process_time() - own)
        return {"rate": done / seconds, "image_us": seconds / done * 1e6, "other_cores": max(0.0, other_s / seconds)}

    return measure


CONTESTANTS: dict[str, Callable[[], Call]] = {
    "penstock_jitter": _penstock_jitter,
    "opencv_jitter": _opencv_jitter,
    "opencv_jitter_8_bits": lambda: _opencv_jitter(8),
    "vision_jitter": _torchvision_jitter,
    "penstock_blur": _penstock_blur,
    "opencv_blur": _opencv_blur,
    "vision_blur": _torchvision_blur,
}
CLAIM = rounds.Claim(
    name="photometric",
    title="color_jitter(0.4, 0.4, 0.4, 0.1) and gaussian_blur(23) of a uint8 image of 224 x 224, one thread",
    unit="images/s",
    prepare=_nothing,
    reference="opencv_jitter",
    references={name: "opencv_blur" for name in CONTESTANTS if name.endswith("blur")},
    also=("image_us",),
    targets=tuple(rounds.Target(contestant=name, metric="ratio", sense=">=", bound=0.91) for name in ("penstock_jitter", "penstock_blur")),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {name: _measure(make) for name, make in CONTESTANTS.items()})
