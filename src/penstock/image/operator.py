"""What every image operator shares: the call on an element, the checks, and where a result is written."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from penstock import kernels
from penstock._contracts.arguments import flag, is_whole, real_number
from penstock._contracts.element import is_masked
from penstock._contracts.transform import Scratch
from penstock._system.lazy import dataclass
from penstock.errors import MissingExtra, PlanError, SpecError
from penstock.kernels.library import UINT8_DTYPE, Array, DType

BEFORE_BATCH = "put this map before batch(): image operators take one image at a time"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOperator(ABC):
    """Hold the two field names of an image operator; a `Transform` of the contracts.

    Attributes:
        field: the field that it reads.
        out_field: the field that it writes.
        tag: the name of its scratch buffer; equal operators share one, different ones never do.
    """

    name: ClassVar[str] = ""
    joins: ClassVar[bool] = False
    """Whether it takes fields=."""

    num_draws: ClassVar[int] = 0
    """How many uniform [0, 1) numbers one element uses."""

    field: str
    out_field: str
    tag: str = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", f"image.{self!r}")

    @abstractmethod
    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: Array | None) -> Array:
        """Compute the field's new value as `Transform.apply` says."""

    def __call__(self, element: Mapping[str, Any], rng: np.random.Generator | None = None) -> dict[str, Any]:
        """Return a new element dict with the result under `out_field`; the given element stays as it was.

        Args:
            element: a dict that holds `field`.
            rng: the generator that a random operator draws from; not used by the others.

        Raises:
            SpecError: the element is not a dict, has no such field, or the field is of a kind that this operator cannot take.
            PlanError: a random operator was given no `rng`.
            DecodeError: `decode` found bytes that are not a readable image.
        """
        value = self.take(element, self.field)
        return {**element, self.out_field: self.apply(value, self.draw(rng), None, None)}

    def take(self, element: Mapping[str, Any], field: str) -> Any:
        """Return a field of an element.

        Raises:
            SpecError: the element is not a dict, or has no such field.
        """
        if type(element) is not dict and not isinstance(element, Mapping):  # the second takes 0.3 us
            raise SpecError(
                f"{self.name} got a {type(element).__name__}, expected a dict with the field {field!r}",
                where=self.place_name(),
                fix="make the elements dicts, or call the operator on the array itself: ps.image." + self.name + "(array, ...)",
            )
        if field not in element:
            raise SpecError(
                f"the element has no field {field!r}; it has {', '.join(repr(key) for key in element) or 'none'}",
                where=self.place_name(),
                fix="name one of the fields that the element has, or map a function that makes this one first",
            )
        return element[field]

    def draw(self, rng: np.random.Generator | None) -> Sequence[float]:
        """Take this operator's numbers from `rng`.

        Raises:
            PlanError: the operator is random and there is no generator.
        """
        if self.num_draws == 0:
            return ()
        if rng is None:
            raise PlanError(
                f"{self.name} is random and was given no generator",
                where=self.place_name(),
                fix="pass rng=numpy.random.default_rng(seed), or let .map(operator, seed=...) supply it",
            )
        return rng.random(self.num_draws).tolist()  # type: ignore[no-any-return]

    def notice(self, seed: int, following: Sequence[tuple[Any, int]], right_behind: Any) -> str:
        """Say what of this operator is not what it looks like in a plan, or nothing.

        Args:
            seed: of its map.
            following: the functions of the maps above it, each with its seed.
            right_behind: the one that gets what this one gives, or None.
        """
        alike = [getattr(other, "operator", other) for other, its in following if self.num_draws and its == seed]
        other = next((one for one in alike if isinstance(one, ImageOperator) and one.name == self.name and one.field != self.field), None)
        if other is None:
            return getattr(self, "reminder", "")
        how = (
            f"for the same crop or flip of both, name the other one in fields=: {self.name}({self.field!r}, ..., "
            f'fields={{{other.field!r}: "mask"}}), docs/image.md'
        )
        return (
            f"image.{self.name} of {self.field!r} and of {other.field!r} have the same seed={seed}, and draw different numbers: "
            f"each map has its own; {how if self.joins else 'for the same ones, map one function that calls it for both'}"
        )

    def place_name(self) -> str:
        """Say which operator on which field this is, for error texts."""
        return f"image.{self.name}({self.field!r})"


def names(value: object, out: str | None) -> dict[str, str]:
    """Return the field names for an operator whose first argument was `value`: a field name, or an array to work on at once.

    Raises:
        PlanError: `out` came with an array, or a field name is empty.
    """
    if not isinstance(value, str):
        if out is not None:
            raise PlanError(
                f"out={out!r} names a field, but the first argument is a {type(value).__name__}",
                where="an image operator called on an array",
                fix="leave out= away: the result is returned",
            )
        return {"field": "image", "out_field": "image"}
    if not value or out == "":
        raise PlanError(
            f"field {value!r} with out={out!r} is not a pair of field names",
            where="an image operator",
            fix='give the name of a field of the element, such as "data"',
        )
    return {"field": value, "out_field": value if out is None else out}


def as_size(size: int | Sequence[int], operator: str) -> tuple[int, int]:
    """Return `size` as (height, width); one number is a square.

    Raises:
        PlanError: not one or two positive whole numbers.
    """
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2 or not all(is_whole(edge, 1) for edge in pair):
        raise PlanError(
            f"size={size!r} is not a size in pixels",
            where=f"image.{operator}",
            fix="give one positive whole number or (height, width)",
        )
    return int(pair[0]), int(pair[1])


def check_whole(number: Any, argument: str, operator: str, least: int, highest: int | None = None) -> None:
    """Refuse what is no whole number from `least` to `highest`.

    Raises:
        PlanError: it is not.
    """
    if not is_whole(number, least) or (highest is not None and number > highest):
        raise PlanError(
            f"{argument}={number!r} is out of range",
            where=f"image.{operator}",
            fix=f"give a whole number of at least {least}" + ("" if highest is None else f" and at most {highest}"),
        )


def number_within(value: Any, argument: str, operator: str, most: float) -> float:
    """Return a number from 0 to `most`.

    Raises:
        PlanError: it is none.
    """
    number = real_number(value)
    if number is None or not 0 <= number <= most:
        raise PlanError(f"{argument}={value!r} is not in 0..{most}", where=f"image.{operator}", fix=f"give a number from 0 to {most}")
    return number


def as_flag(value: Any, argument: str, operator: str) -> bool:
    """Return an argument that is True or False as a bool.

    Raises:
        PlanError: it is neither.
    """
    wanted = flag(value)
    if wanted is None:
        raise PlanError(f"{argument}={value!r} is neither True nor False", where=f"image.{operator}", fix=f"give {argument} True or False")
    return wanted


def check_image(operator: ImageOperator, value: Any, dtypes: tuple[DType, ...] | None = None, field: str | None = None) -> None:
    """Let `value` pass when it is an array (height, width, channels), not empty nor masked, of one of `dtypes` (None: of any).

    `field` is where it comes from, the field of the operator if None.

    Raises:
        SpecError: it is not; the text names field, got and expected.
    """
    if type(value) is np.ndarray and is_image(value.shape, value.dtype, dtypes):
        return
    field = operator.field if field is None else field
    if is_masked(value):
        raise SpecError(
            f"field {field!r} is a masked array, whose mask would be lost",
            where=operator.place_name(),
            fix="give array.filled(value), and the mask as a field of its own",
        )
    if isinstance(value, np.ndarray) and is_image(value.shape, value.dtype, dtypes):
        return
    wanted = "an array" if dtypes is None else " or ".join(kind.name for kind in dtypes)
    got, fix = _got_and_fix(value)
    raise SpecError(
        f"field {field!r} is {got}, expected {wanted} of shape (height, width, channels) and not empty",
        where=operator.place_name(),
        fix=fix,
    )


def _got_and_fix(value: Any) -> tuple[str, str]:
    if not isinstance(value, np.ndarray):
        if isinstance(value, (bytes, bytearray, memoryview)):  # what a user gave as bytes may come as a view of them
            return "bytes" if isinstance(value, memoryview) else type(value).__name__, "put ps.image.decode before this operator"
        return type(value).__name__, "give a NumPy array"
    got = f"{value.dtype}{list(value.shape)}"
    if value.ndim == 4 or value.dtype == object:
        return got, BEFORE_BATCH
    if is_channels_first(value.shape):
        fix = "give array.transpose(1, 2, 0); normalize and to_layout, the last operators, make the channels come first"
        return f"{got}, which looks like (channels, height, width)", fix
    return got, "add the channel axis: array[..., None]" if value.ndim == 2 else "convert the array before this operator"


_CHANNELS = (1, 3, 4)


@lru_cache(maxsize=4096)
def is_image(shape: tuple[int, ...], dtype: DType, dtypes: tuple[DType, ...] | None) -> bool:
    """Tell whether arrays of this layout are images, not empty, of one of `dtypes`; None: of any."""
    return len(shape) == 3 and 0 not in shape and (dtypes is None or dtype in dtypes) and not is_channels_first(shape)


def is_channels_first(shape: tuple[int, ...]) -> bool:
    """Tell whether a shape is unmistakably (channels, height, width)."""
    return len(shape) == 3 and shape[0] in _CHANNELS and min(shape[1:]) > max(_CHANNELS)


def is_block(values: Array) -> bool:
    """Tell whether these are uint8 images (n, height, width, channels), one behind the other in memory."""
    good = values.dtype == UINT8_DTYPE and values.ndim == 4 and values.size and values.flags.c_contiguous
    return bool(good) and not is_channels_first(values.shape[1:])


def place(tag: str, shape: tuple[int, ...], dtype: DType, value: Array | None, scratch: Scratch | None, out: Array | None) -> Array:
    """Return the array that a result goes to: `out` when it fits, else scratch that `value` does not live in, else a new array."""
    if out is not None:
        return out if out.shape == shape and out.dtype == dtype else np.empty(shape, dtype)
    if scratch is None:
        return np.empty(shape, dtype)
    buffer = scratch.take(tag, shape, dtype)
    if value is not None and np.may_share_memory(buffer, value):  # the same operator twice in one chain: its input is in its own buffer
        buffer = scratch.take(tag + " again", shape, dtype)
    return buffer


def hand_over(view: Array, scratch: Scratch | None, out: Array | None) -> Array:
    """Return `view`, a part of the input or of scratch: as it is when the caller lends scratch, else copied, to `out` when it fits."""
    if out is None and scratch is not None:
        return view
    out = place("", view.shape, view.dtype, None, None, out)
    if view.ndim == 3 and view.strides[1] < 0:
        kernels.crop_image(view[:, ::-1], 0, 0, True, 0, out)  # mirrored pixels in a thirtieth of the time
    else:
        np.copyto(out, view)
    return out


@cache
def load_cv2() -> ModuleType:
    """Import OpenCV with its own threads off: Penstock's workers are the threads, and a second pool only gets in their way.

    Raises:
        MissingExtra: OpenCV is not installed.
    """
    module = _load("cv2", "OpenCV")
    module.setNumThreads(1)
    return module


def imdecode(data: bytes | memoryview, flags: int) -> Any:
    """Return what OpenCV decodes, None where it cannot."""
    cv2 = load_cv2()
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        return None


@cache
def load_simplejpeg() -> ModuleType:
    """Import simplejpeg.

    Raises:
        MissingExtra: it is not installed.
    """
    return _load("simplejpeg", "simplejpeg")


@cache
def by_opencv() -> bool:
    """Tell whether OpenCV decodes JPEG files because simplejpeg cannot be imported.

    Raises:
        MissingExtra: OpenCV cannot be imported either.
    """
    try:
        load_simplejpeg()
    except MissingExtra:
        load_cv2()
        return True
    return False


def _load(module: str, title: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(f"{title} cannot be imported: {error}", where="penstock.image", fix='pip install "penstock[image]"') from error
