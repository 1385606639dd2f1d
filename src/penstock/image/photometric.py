"""Other colours, sharpness and contents for uint8 RGB images: what torchvision's transforms v2 compute, to one level of 256.

The functions above `Photometric` take an image and return one. Those on top are steps of the augmentations too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from operator import mul
from typing import Any, Concatenate, TypeAlias, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.arguments import real_number
from penstock._contracts.transform import Scratch
from penstock._system.lazy import dataclass
from penstock.errors import PlanError, SpecError
from penstock.image.fields import P, TwoForms, two_forms
from penstock.image.operator import ImageOperator, check_image, check_whole, hand_over, load_cv2, names, number_within

Image: TypeAlias = NDArray[np.uint8]
Draws: TypeAlias = Sequence[float]
Span: TypeAlias = tuple[float, float]
"""The lowest and the highest value of a factor."""


_LEVELS = np.arange(256)
_LUMA = (0.2989, 0.587, 0.114)
_TRIES = 10  # torchvision's number
_BINS = 30  # magnitudes are 0 to 30
_STRIP = 96  # rows whose float32 numbers stay in the cache


# torchvision cuts fractions off. OpenCV rounds, so that half a level is taken off before. The grey of a pixel is cut off as well:
# on average that is half a level.


def _by_table(image: Image, values: NDArray[Any]) -> Image:
    """Replace each level by its entry of `values` [256] or [256, 3], kept within 0 to 255 and cut off."""
    return load_cv2().LUT(image, np.clip(values, 0, 255).astype(np.uint8, "C")[None])  # type: ignore[no-any-return]


def _scaled(image: Image, factor: float, more: float) -> Image:
    if more >= 0:  # nothing is below -0.5, and OpenCV's absolute value, which is rounded, is a quarter faster
        return load_cv2().convertScaleAbs(image, alpha=factor, beta=more - 0.5)  # type: ignore[no-any-return]
    return load_cv2().addWeighted(image, factor, image, 0, more - 0.5)  # type: ignore[no-any-return]


def _brightness(image: Image, factor: float) -> Image:
    return _scaled(image, factor, 0)


def _contrast(image: Image, factor: float) -> Image:
    grey = sum(map(mul, _LUMA, load_cv2().mean(image)))
    return _scaled(image, factor, (grey - 0.5) * (1 - factor))


def _saturation(image: Image, factor: float) -> Image:
    red, green, blue, more = (*(part * (1 - factor) for part in _LUMA), factor / 2 - 1)
    rows = (red + factor, green, blue, more), (red, green + factor, blue, more), (red, green, blue + factor, more)
    return load_cv2().transform(image, np.array(rows))  # type: ignore[no-any-return]


def _hue(image: Image, turns: float) -> Image:
    cv2, made = load_cv2(), np.empty(image.shape, np.uint8)
    strip = np.empty((min(_STRIP, len(image)), *image.shape[1:]), np.float32)
    for top in range(0, len(image), _STRIP):
        part, target = strip[: len(image) - top], made[top : top + _STRIP]
        np.copyto(part, image[top : top + _STRIP])
        cv2.cvtColor(part, cv2.COLOR_RGB2HSV, dst=part)
        part[..., 0] += 360 * (turns % 1)
        cv2.cvtColor(part, cv2.COLOR_HSV2RGB, dst=part)
        cv2.convertScaleAbs(part, alpha=255.999 / 255, beta=-0.5, dst=target)
    return made


def _sharpness(image: Image, factor: float) -> Image:
    cv2 = load_cv2()
    smooth = cv2.filter2D(image, -1, np.array(((1, 1, 1), (1, 5, 1), (1, 1, 1))) / 13)
    made = cv2.addWeighted(image, factor, smooth, 1 - factor, -0.5)
    for edge in (np.s_[:: len(image) - 1 or 1], np.s_[:, :: image.shape[1] - 1 or 1]):
        made[edge] = image[edge]
    return made  # type: ignore[no-any-return]


def _posterize(image: Image, bits: int) -> Image:
    return image & np.uint8(256 - (1 << 8 - bits))


def _solarize(image: Image, threshold: float) -> Image:
    return image ^ -(image >= math.ceil(threshold)).view(np.uint8)


def _counts(image: Image) -> NDArray[np.int64]:
    """Return how many pixels have each level, [256, 3]."""
    counts = [load_cv2().calcHist([image], [channel], None, [256], [0, 256]) for channel in range(3)]
    return np.reshape(counts, (3, 256)).T.astype(np.int64)  # of shape [256], before OpenCV 5 [256, 1]


def _auto_contrast(image: Image) -> Image:
    cv2 = load_cv2()
    low, high = np.array([cv2.minMaxLoc(plane)[:2] for plane in cv2.split(image)]).T
    stretched = (_LEVELS[:, None] - low) * 255 / np.maximum(high - low, 1)
    return _by_table(image, np.where(high > low, stretched, _LEVELS[:, None]))


def _equalize(image: Image) -> Image:
    counts = _counts(image)
    below = np.cumsum(counts, axis=0) - counts
    step = below.max(axis=0, where=counts > 0, initial=0) // 255  # the pixels below the highest level that there is
    return _by_table(image, np.where(step > 0, (below + step // 2) // np.maximum(step, 1), _LEVELS[:, None]))


def _warp(image: Image, rows: Sequence[Sequence[float]], x: float, y: float) -> Image:
    """Take each pixel from where the matrix `rows` [2, 3], about the point (x, y), says: the nearest pixel, black outside."""
    cv2 = load_cv2()
    matrix = np.array(rows, np.float64)
    matrix[:, 2] += (x, y) - matrix[:, :2] @ (x, y)
    return cv2.warpAffine(image, matrix, image.shape[1::-1], flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP)  # type: ignore[no-any-return]


def _augment(image: Image, choice: float, share: float, sign: float, wide: bool) -> Image:
    """Do one of the 14 augmentations, at a share of the highest magnitude; the draw `sign` makes half of them negative."""
    height, width, _ = image.shape
    shift, shear, degrees, factor, bits = (150 / 331, 0.3, 30, 0.9, 4)
    right, down = shift * width, shift * height
    if wide:
        right, down, shear, degrees, factor, bits = (32, 32, 0.99, 135, 0.99, 6)
    signed = -share if sign <= 0.5 else share
    cos, sin = math.cos(math.radians(signed * degrees)), math.sin(math.radians(signed * degrees))
    steps: Sequence[tuple[Any, ...]] = (
        (np.asarray,),
        (_warp, ((1, signed * shear, 0), (0, 1, 0)), -0.5, -0.5),
        (_warp, ((1, 0, 0), (signed * shear, 1, 0)), -0.5, -0.5),
        (_warp, ((1, 0, -int(signed * right)), (0, 1, 0)), 0, 0),
        (_warp, ((1, 0, 0), (0, 1, -int(signed * down))), 0, 0),
        (_warp, ((cos, -sin, 0), (sin, cos, 0)), (width - 1) / 2, (height - 1) / 2),
        *((step, 1 + signed * factor) for step in (_brightness, _saturation, _contrast, _sharpness)),
        (_posterize, round(8 - share * bits)),
        (_solarize, 255 * (1 - share)),
        (_auto_contrast,),
        (_equalize,),
    )
    step, *options = steps[int(choice * len(steps))]
    return step(image, *options)  # type: ignore[no-any-return]


def _rand_augment(image: Image, draws: Draws, num_ops: int, magnitude: int) -> Image:
    for number in range(0, 2 * num_ops, 2):
        image = _augment(image, draws[number], magnitude / _BINS, draws[number + 1], False)
    return image


def _trivial_augment(image: Image, draws: Draws) -> Image:
    return _augment(image, draws[0], int(draws[1] * (_BINS + 1)) / _BINS, draws[2], True)


def _color_jitter(image: Image, draws: Draws, *spans: Span) -> Image:
    steps = _brightness, _contrast, _saturation, _hue
    for number in sorted(range(4), key=draws.__getitem__):
        low, high = spans[number]
        if low < high or low != (number < 3):  # what does not change anything costs nothing
            image = steps[number](image, low + draws[4 + number] * (high - low))
    return image


def _random_grayscale(image: Image) -> Image:
    cv2 = load_cv2()
    return cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)  # type: ignore[no-any-return]


def _gaussian_blur(image: Image, draws: Draws, size: int, sigma: Span) -> Image:
    cv2, width = load_cv2(), sigma[0] + draws[0] * (sigma[1] - sigma[0])
    size = min(size, 2 * math.ceil(3.5 * width) + 1)  # all weights outside are 0.0005, a tenth of a level
    kernel = cv2.getGaussianKernel(size, width, cv2.CV_32F)
    return cv2.sepFilter2D(image, -1, kernel, kernel)  # type: ignore[no-any-return]  # GaussianBlur is exact in all bits, and slower


def _random_erase(image: Image, draws: Draws, scale: Span, ratio: Span, value: Any) -> Image:
    height, width, _ = image.shape
    for share, stretch in zip(draws[2::2], draws[3::2], strict=False):
        area = height * width * (scale[0] + share * (scale[1] - scale[0]))
        stretch = ratio[0] * (ratio[1] / ratio[0]) ** stretch
        rows, columns = round(math.sqrt(area * stretch)), round(math.sqrt(area / stretch))
        if rows < height and columns < width:
            image = image.copy()
            top, left = int(draws[0] * (height - rows + 1)), int(draws[1] * (width - columns + 1))
            image[top : top + rows, left : left + columns] = value
            break
    return image


@dataclass(frozen=True, slots=True, kw_only=True)
class Photometric(ImageOperator):
    """Change a share of the uint8 RGB images (height, width, 3), and leave the others as they are.

    Attributes:
        name: of the function that makes it.
        step: what changes an image. It takes the image, then its draws if it has any, then `options`.
    """

    name: str  # type: ignore[misc]
    step: Callable[..., Image] = dataclasses.field(repr=False)
    own_draws: int
    options: tuple[Any, ...]
    probability: float

    @property
    def num_draws(self) -> int:  # type: ignore[override]
        """Return the numbers of the step, and one more below probability 1."""
        return self.own_draws + (self.probability < 1)

    def apply(self, value: Any, draws: Draws, scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        """Change one image, or not.

        Raises:
            SpecError: `value` is not a uint8 image of three channels.
        """
        check_image(self, value, (np.dtype(np.uint8),))
        if value.shape[2] != 3:
            raise SpecError(
                f"field {self.field!r} has {value.shape[2]} channels, expected red, green and blue",
                where=self.place_name(),
                fix='decode with mode="RGB", or repeat the channel of a grey image: np.repeat(array, 3, axis=2)',
            )
        made = value
        if self.probability == 1 or draws[-1] < self.probability:
            made = self.step(value, *((draws,) if self.own_draws else ()), *self.options)
        return made if out is None and made is not value else hand_over(made, scratch, out)


class Common(TypedDict, total=False):
    """The options that all operators here have."""

    probability: float
    out: str | None
    rng: np.random.Generator | None


def _operator(
    step: Callable[..., Image],
    own_draws: int,
    field: Any,
    options: tuple[Any, ...],
    *,
    out: str | None = None,
    probability: float = 1,
    rng: Any = None,
) -> Photometric:
    name = step.__name__[1:]
    share = number_within(probability, "probability", name, 1)
    return Photometric(**names(field, out), name=name, step=step, own_draws=own_draws, options=options, probability=share)


def _span(operator: str, option: str, value: Any, least: float, most: float, neutral: float | None = None) -> Span:
    """Return `value` as (low, high): that pair, a number twice, or the numbers that far from `neutral`."""
    given = [real_number(one) for one in (value if isinstance(value, (tuple, list)) else [value])]
    if len(given) == 1 and given[0] is not None:
        given = [given[0]] * 2 if neutral is None else [max(neutral - given[0], least), neutral + given[0]]
    low, high = given if len(given) == 2 else (None, None)
    if low is None or high is None or not least <= low <= high <= most:
        raise _refusal(operator, option, value, f"one number, or (low, high), within {least}..{most}")
    return low, high


def _refusal(operator: str, option: str, value: Any, fix: str) -> PlanError:
    return PlanError(f"{option}={value!r} cannot be", where=f"image.{operator}", fix=f"give {fix}")


def _two_forms(make: Callable[Concatenate[Any, P], Photometric], probability: float = 1) -> TwoForms[P, Photometric]:
    from inspect import Signature, signature  # which dataclasses have imported

    def made(field: Any, /, *args: P.args, **options: P.kwargs) -> Photometric:
        return make(field, *args, **{"probability": probability, **options})  # type: ignore[arg-type]

    call = two_forms(update_wrapper(made, make))
    own, shared = ([*signature(function).parameters.values()] for function in (make, _operator))
    shared = [one.replace(default=probability) if one.name == "probability" else one for one in shared if one.kind is one.KEYWORD_ONLY]
    call.__signature__ = Signature([*own[:-1], *shared])  # type: ignore[attr-defined]  # for help()
    return call


@_two_forms
def color_jitter(
    field: str | Image,
    brightness: float | Span = 0,
    contrast: float | Span = 0,
    saturation: float | Span = 0,
    hue: float | Span = 0,
    **common: Unpack[Common],
) -> Photometric:
    """Change brightness, contrast, saturation and hue of RGB images (height, width, 3), uint8, in random order; 8 draws per image.

    Args:
        field: the field with the image, or the image itself.
        brightness: the factor is uniform in [max(0, 1 - brightness), 1 + brightness], or in the given (low, high).
        contrast: as `brightness`.
        saturation: as `brightness`.
        hue: the turn of the colour circle is uniform in [-hue, hue], or in the given (low, high), within -0.5..0.5.
        common: `probability`, the share of the images that are changed, 0..1, 1 by default; below 1 it takes one more draw. `out`, the
            field for the result; the default is `field`. `rng`, the generator to draw from, needed when `field` is an image.

    Raises:
        PlanError: a number out of its range, or no `rng` for an image.
        SpecError: (on an array) not a uint8 RGB image.
    """
    name = "color_jitter"
    factors = (("brightness", brightness), ("contrast", contrast), ("saturation", saturation))
    spans = [_span(name, option, value, 0, 100, neutral=1) for option, value in factors]
    return _operator(_color_jitter, 8, field, (*spans, _span(name, "hue", hue, -0.5, 0.5, neutral=0)), **common)


@partial(_two_forms, probability=0.1)
def random_grayscale(field: str | Image, **common: Unpack[Common]) -> Photometric:
    """Turn RGB images (height, width, 3), uint8, grey, by default a tenth of them; all three channels stay. 1 draw per image.

    Arguments and errors are those of `color_jitter`.
    """
    return _operator(_random_grayscale, 0, field, (), **common)


@_two_forms
def gaussian_blur(
    field: str | Image,
    kernel_size: int,
    sigma: float | Span = (0.1, 2.0),
    **common: Unpack[Common],
) -> Photometric:
    """Blur RGB images (height, width, 3), uint8, with a square Gaussian kernel; 1 draw per image.

    `kernel_size` is its width in pixels, odd; `sigma` its standard deviation in pixels, or the (low, high) in which it is uniform. The
    image is mirrored at its edges. The other arguments and the errors are those of `color_jitter`.
    """
    check_whole(kernel_size, "kernel_size", "gaussian_blur", 1, 999)
    if kernel_size % 2 == 0:
        raise _refusal("gaussian_blur", "kernel_size", kernel_size, "an odd number of pixels")
    return _operator(_gaussian_blur, 1, field, (kernel_size, _span("gaussian_blur", "sigma", sigma, 0.01, 1000)), **common)


@partial(_two_forms, probability=0.5)
def random_erase(
    field: str | Image,
    scale: Span = (0.02, 0.33),
    ratio: Span = (0.3, 3.3),
    value: int | tuple[int, int, int] = 0,
    **common: Unpack[Common],
) -> Photometric:
    """Fill a random box of RGB images (height, width, 3), uint8, with `value`, 0..255: one number, or red, green and blue; 23 draws.

    `scale` is the area of the box as a share of the image's, uniform between the two, and `ratio` its height over its width,
    log-uniform. Where ten tries give no box that fits, the image stays as it is. The other arguments and the errors are those of
    `color_jitter`.
    """
    name = "random_erase"
    for level in value if isinstance(value, tuple) and len(value) == 3 else (value,):
        check_whole(level, "value", name, 0, 255)
    spans = _span(name, "scale", scale, 0, 1), _span(name, "ratio", ratio, 0.01, 100)
    return _operator(_random_erase, 2 + 2 * _TRIES, field, (*spans, value), **common)


@_two_forms
def auto_contrast(field: str | Image, **common: Unpack[Common]) -> Photometric:
    """Stretch the levels of each channel of RGB images (height, width, 3), uint8, to 0..255; no draws at probability 1.

    Arguments and errors are those of `color_jitter`.
    """
    return _operator(_auto_contrast, 0, field, (), **common)


@_two_forms
def equalize(field: str | Image, **common: Unpack[Common]) -> Photometric:
    """Equalize the histogram of each channel of RGB images (height, width, 3), uint8; no draws at probability 1.

    Arguments and errors are those of `color_jitter`.
    """
    return _operator(_equalize, 0, field, (), **common)


@_two_forms
def posterize(field: str | Image, bits: int, **common: Unpack[Common]) -> Photometric:
    """Keep the highest `bits`, 0..8, of each level of RGB images (height, width, 3), uint8; no draws at probability 1.

    The other arguments and the errors are those of `color_jitter`.
    """
    check_whole(bits, "bits", "posterize", 0, 8)
    return _operator(_posterize, 0, field, (int(bits),), **common)


@_two_forms
def solarize(field: str | Image, threshold: float, **common: Unpack[Common]) -> Photometric:
    """Invert the levels from `threshold`, 0..255, up in RGB images (height, width, 3), uint8; no draws at probability 1.

    The other arguments and the errors are those of `color_jitter`.
    """
    return _operator(_solarize, 0, field, (number_within(threshold, "threshold", "solarize", 255),), **common)


@_two_forms
def rand_augment(field: str | Image, num_ops: int = 2, magnitude: int = 9, **common: Unpack[Common]) -> Photometric:
    """Do `num_ops` random augmentations of RandAugment to RGB images (height, width, 3), uint8; 2 draws for each.

    They are torchvision's 14: none, shear and translation in x and y, rotation, brightness, colour, contrast, sharpness, posterize,
    solarize, auto contrast and equalize. `magnitude` is 0..30; 30 is a rotation by 30 degrees. Pixels from outside of the image are
    black. The other arguments and the errors are those of `color_jitter`.
    """
    check_whole(num_ops, "num_ops", "rand_augment", 1, 14)
    check_whole(magnitude, "magnitude", "rand_augment", 0, _BINS)
    return _operator(_rand_augment, 2 * int(num_ops), field, (int(num_ops), int(magnitude)), **common)


@_two_forms
def trivial_augment(field: str | Image, **common: Unpack[Common]) -> Photometric:
    """Do one augmentation of `rand_augment` to RGB images (height, width, 3), uint8, at a random magnitude; 3 draws per image.

    The ranges are those of torchvision's TrivialAugmentWide. Arguments and errors are those of `color_jitter`.
    """
    return _operator(_trivial_augment, 3, field, (), **common)
