"""One draw for all fields of an element: what an image operator does to masks, boxes and points."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, get_args, overload

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.arguments import listed, real_number
from penstock._contracts.element import is_masked
from penstock._system.lazy import dataclass
from penstock.errors import PlanError, SpecError
from penstock.image.geometry import CENTRE, NO_BOXES, Coordinates, Crop, Geometric, Size, Steps
from penstock.image.operator import check_image

BoxFormat = Literal["xyxy", "xywh", "cxcywh"]

_FORMATS = get_args(BoxFormat)
_CORNERS = [0, 1, 2, 1, 2, 3, 0, 3]  # x and y of the four corners of a box


class Move(NamedTuple):
    """What is done to the fields of one element: the steps of an operator, which give a picture of `size`."""

    operator: Geometric
    steps: Steps
    size: Size


# Each of the kinds has `checked(value, field, operator)`, which refuses what is not of this kind and gives the value as an array with the
# size of the picture, None where it does not say; and `moved(value, move)`, which gives the new value.


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """An image (height, width, channels), or with `stacked` several of one size, (images, height, width, channels)."""

    stacked: bool = False

    def checked(self, value: Any, field: str, operator: Geometric) -> tuple[Any, Size | None]:
        """Check an image."""
        if self.stacked and not (isinstance(value, np.ndarray) and value.ndim == 4 and value.size):
            raise _wrong(field, operator, value, "an array of shape (images, height, width, channels) and not empty", "stack the images")
        check_image(operator, value[0] if self.stacked else value, operator.dtypes, field)
        return value, value.shape[-3:-1]

    def moved(self, value: Any, move: Move) -> Any:
        """Do the steps with the interpolation and the fill of the operator."""
        how = CENTRE if getattr(move.operator, "interpolation", "") == "nearest" else None
        if not self.stacked:
            return move.operator.moved(value, move.steps, None, None, how)
        out = np.empty((len(value), *move.size, value.shape[3]), value.dtype)
        for one, target in zip(value, out, strict=True):
            move.operator.moved(one, move.steps, None, target, how)
        return out


@dataclasses.dataclass(frozen=True, slots=True)
class Mask:
    """Say that a field is a mask: each pixel of the result is one of the mask, never a mixture.

    Args:
        fill: the value of what comes from outside of the mask, such as 255 for "ignore".
        stacked: the masks of several objects, (masks, height, width), in place of (height, width) or (height, width, channels).
    """

    fill: float = 0
    stacked: bool = False

    def __post_init__(self) -> None:
        if real_number(self.fill) is None and not isinstance(self.fill, bool):
            raise PlanError(f"fill={self.fill!r} is no number", where="image.Mask", fix="give a number that the masks can hold")

    def checked(self, value: Any, field: str, operator: Geometric) -> tuple[Any, Size | None]:
        """Check a mask, and that its dtype can hold `fill`."""
        dims, expected = ((3,), "(masks, height, width)") if self.stacked else ((2, 3), "(height, width) or (height, width, channels)")
        good = isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.ndim in dims and not is_masked(value)
        if not good or 0 in value.shape[self.stacked :][:2]:
            raise _wrong(
                field, operator, value, f"a mask of numbers or bools, not empty, of shape {expected}", "convert it before this operator"
            )
        if value.dtype.kind != "f" and not (math.isfinite(self.fill) and np.array(self.fill).astype(value.dtype) == self.fill):
            raise _wrong(field, operator, value, f"a dtype that can hold fill={self.fill}", "convert it, or give another fill")
        return value, value.shape[self.stacked :][:2]

    def moved(self, value: Any, move: Move) -> Any:
        """Take pixels."""
        made = move.operator.moved(value.transpose(1, 2, 0) if self.stacked else value, move.steps, None, None, CENTRE, self.fill)
        return np.ascontiguousarray(made.transpose(2, 0, 1)) if self.stacked else made


@dataclasses.dataclass(frozen=True, slots=True)
class Points:
    """Points [..., 2] as x, y, floating; or [..., 3] as x, y, visibility."""

    def checked(self, value: Any, field: str, operator: Geometric) -> tuple[Any, Size | None]:
        """Check points."""
        points = _numbers(value, field, operator)
        if points.shape == (0,):
            points = points.reshape(0, 2)
        if points.ndim and (points.shape[-1], points.dtype.kind) in {(2, "f"), (3, "f"), (3, "i"), (3, "u")}:
            return points, None
        fix = "make the numbers floating: a point that leaves the picture becomes NaN; or add a third number, the visibility"
        raise _wrong(field, operator, points, "points [..., 2] of floating numbers, or [..., 3] of x, y, visibility", fix)

    def moved(self, value: Any, move: Move) -> Any:
        """Move the points, and mark those outside: NaN, or 0, 0, 0 where there is a visibility."""
        out = value.astype(np.float64)
        for step in move.steps:
            out[..., :2] = step.points(out[..., :2])
        seen = ((out[..., :2] >= 0) & (out[..., :2] <= move.size[::-1])).all(-1)
        if value.shape[-1] == 3:
            seen &= out[..., 2] > 0
        out[~seen] = 0 if value.shape[-1] == 3 else np.nan
        return _as_dtype(out, value.dtype, move.operator)


@dataclasses.dataclass(frozen=True, slots=True)
class Boxes:
    """Say how the boxes [n, 4] of a field are written, in pixels, and when one is dropped.

    An operator clips the boxes to the new picture and drops those of which too little is left. A box of no area is always dropped.

    Args:
        format: "xyxy" (left, top, right, bottom), "xywh" (left, top, width, height) or "cxcywh" (centre, width, height).
        per_box: the fields that hold one entry for each box, such as ("labels", "iscrowd"): those of dropped boxes go as well.
        min_area: least area of what is left, in pixels of the new picture.
        min_visible: least share of the box that is left, 0..1.

    Raises:
        PlanError: an argument that cannot be.
    """

    format: BoxFormat = "xyxy"
    per_box: Sequence[str] = ()
    min_area: float = 1.0
    min_visible: float = 0.0

    def __post_init__(self) -> None:
        names, area, share = listed(self.per_box), real_number(self.min_area), real_number(self.min_visible)
        if names is None or self.format not in _FORMATS or area is None or not area >= 0 or share is None or not 0 <= share <= 1:
            raise PlanError(
                f"{self!r} has an argument that cannot be",
                where="image.Boxes",
                fix=f"give one of {', '.join(_FORMATS)}, a list of field names for per_box, min_area from 0 and min_visible from 0 to 1",
            )
        object.__setattr__(self, "per_box", tuple(names))

    def checked(self, value: Any, field: str, operator: Geometric) -> tuple[Any, Size | None]:
        """Check boxes."""
        boxes = _numbers(value, field, operator)
        if boxes.size == 0:
            boxes = boxes.reshape(0, 4)
        if boxes.ndim != 2 or boxes.shape[1] != 4 or boxes.dtype.kind not in "iuf":
            raise _wrong(field, operator, boxes, "boxes [n, 4] of numbers", "give one row of four numbers for each box")
        corners = self.corners(boxes)
        bad = ~(np.isfinite(corners).all(1) & (corners[:, 2:] >= corners[:, :2]).all(1))
        if bad.any():
            number = int(bad.argmax())
            raise SpecError(
                f"box {number} of field {field!r} is {boxes[number].tolist()}, which is no {self.format} box: "
                "a number is not finite, or an edge lies beyond the opposite one",
                where=operator.place_name(),
                fix='give ps.image.Boxes("xywh") or "cxcywh" in fields= where that is the format, or mend the boxes before this operator',
            )
        if boxes.dtype.kind == "f" and self.min_area >= 1 and (boxes >= 0).all() and boxes.max(initial=0) <= 1 and (boxes % 1).any():
            raise SpecError(
                f"the boxes of field {field!r} lie between 0 and {boxes.max():.3g}: they are shares of the picture, not pixels",
                where=operator.place_name(),
                fix="multiply them by the width and the height of the image before this operator",
            )
        return boxes, None

    def corners(self, boxes: NDArray[Any]) -> Coordinates:
        """Return the boxes as float64 [n, 4]: x1, y1, x2, y2."""
        out = boxes.astype(np.float64)
        if self.format == "cxcywh":
            out[:, :2] -= out[:, 2:] / 2
        if self.format != "xyxy":
            out[:, 2:] += out[:, :2]
        return out

    def moved(self, value: Any, move: Move) -> Any:
        """Return the boxes that stay, and bool [n] that tells which."""
        corners = self.corners(value)[:, _CORNERS].reshape(-1, 4, 2)
        keep = np.ones(len(value), bool)
        for step in move.steps:
            corners = step.points(corners)
            if isinstance(step, Crop) and step.by_centre:
                centres = corners.mean(1)
                keep &= ((centres >= 0) & (centres <= step.size[::-1])).all(1)
        whole = np.concatenate([corners.min(1), corners.max(1)], axis=1)
        left = whole.clip(0, 2 * move.size[::-1])
        if value.dtype.kind != "f":
            left = np.rint(left)
        area = area_of(left)
        keep &= (area > 0) & (area >= self.min_area) & (area >= self.min_visible * area_of(whole))
        left = left[keep]
        if self.format != "xyxy":
            left[:, 2:] -= left[:, :2]
        if self.format == "cxcywh":
            left[:, :2] += left[:, 2:] / 2
        return _as_dtype(left, value.dtype, move.operator), keep


Fields = Mapping[str, str | Mask | Boxes]
"""Names of fields, and what they hold: "image", "images", "mask", "masks", "boxes", "points", a `Mask` or a `Boxes`."""

_KINDS: dict[str, Any] = {
    "image": Image(),
    "images": Image(stacked=True),
    "mask": Mask(),
    "masks": Mask(stacked=True),
    "points": Points(),
    "boxes": Boxes(),
}


@dataclass(frozen=True, slots=True)
class JointOperator:
    """An image operator on several fields of an element, with one draw for all. Made by the operators' `fields=`.

    Attributes:
        operator: what is done.
        kinds: the fields, and what they hold; the first says how large the picture is.
        boxes: those that are boxes.
    """

    operator: Geometric
    kinds: tuple[tuple[str, Any], ...]
    boxes: tuple[tuple[str, Boxes], ...] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "boxes", tuple((name, kind) for name, kind in self.kinds if isinstance(kind, Boxes)))

    @property
    def name(self) -> str:
        """Return the name of the operator."""
        return self.operator.name

    @property
    def num_draws(self) -> int:
        """Return how many uniform [0, 1) numbers one element uses, whatever fields it has."""
        return self.operator.num_draws

    def notice(self, seed: int, following: Sequence[tuple[Any, int]], right_behind: Any) -> str:
        """Say what its operator says."""
        return self.operator.notice(seed, following, right_behind)

    def __call__(self, element: Mapping[str, Any], rng: np.random.Generator | None = None) -> dict[str, Any]:
        """Return a new element dict in which all fields are changed alike; the given element stays as it was.

        Args:
            element: a dict that holds the fields.
            rng: the generator that a random operator draws from; not used by the others.

        Raises:
            SpecError: the element is not a dict, a field is missing, is not of its kind, or has another size than the image.
            PlanError: a random operator was given no `rng`.
        """
        operator = self.operator
        values, size = self._taken(element)
        draws, boxes = operator.draw(rng), NO_BOXES
        if operator.by_boxes:
            boxes = np.concatenate([kind.corners(values[name]) for name, kind in self.boxes])
        steps = operator.steps(*size, draws, boxes)
        move = Move(operator, steps, steps[-1].size if steps else size)
        out = {**element}
        for name, kind in self.kinds:
            out[name] = kind.moved(values[name], move)
        for name, kind in self.boxes:
            out[name], keep = out[name]
            out |= {of: _kept(operator.take(out, of), keep, of, name, operator) for of in kind.per_box}
        return out

    def _taken(self, element: Mapping[str, Any]) -> tuple[dict[str, Any], Size]:
        """Return the fields as they are moved, and the size of the picture, which the first of them has."""
        operator, values, size = self.operator, dict[str, Any](), (0, 0)
        for name, kind in self.kinds:
            values[name], its = kind.checked(operator.take(element, name), name, operator)
            size = size if any(size) else its
            if its not in (None, size):
                raise SpecError(
                    f"field {name!r} has {its[0]} x {its[1]} pixels, and {operator.field!r} {size[0]} x {size[1]}",
                    where=operator.place_name(),
                    fix="bring both to one size before this operator, or leave the field out of fields=",
                )
        return values, size


Encoded = bytes | bytearray | memoryview | NDArray[np.uint8]
P = ParamSpec("P")
Made_co = TypeVar("Made_co", covariant=True)


class TwoForms(Protocol[P, Made_co]):
    """Makes an operator for the name of a field, and does it at once to an image in the place of a name."""

    @overload
    def __call__(self, field: str, *args: P.args, **options: P.kwargs) -> Made_co: ...
    @overload
    def __call__(self, field: Encoded | NDArray[Any], *args: P.args, **options: P.kwargs) -> NDArray[Any]: ...


def two_forms(make: Callable[Concatenate[Any, P], Made_co]) -> TwoForms[P, Made_co]:
    """Return what calls `make`, makes its operator one on several fields where `fields` is given, and takes images with `rng`."""

    @wraps(make)
    def call(field: Any, *args: P.args, **options: P.kwargs) -> Any:
        operator: Any
        operator, more = make(field, *args, **options), dict[str, Any](options)
        fields: Any = more.get("fields")
        if fields is not None:
            return on_fields(operator, field, fields)
        return operator if isinstance(field, str) else operator.apply(field, operator.draw(more.get("rng")), None, None)

    return call


def on_fields(operator: Geometric, field: Any, fields: Fields) -> JointOperator:
    """Return `operator` as one on several fields.

    Raises:
        PlanError: `fields` cannot be.
    """
    given: dict[Any, Any] = {operator.field: "image", **fields} if isinstance(fields, Mapping) and isinstance(field, str) else {}
    kinds = {name: _KINDS.get(kind) if isinstance(kind, str) else kind for name, kind in given.items()}
    good = all(isinstance(name, str) and isinstance(kind, (Image, Mask, Points, Boxes)) for name, kind in kinds.items())
    if not good or operator.out_field != operator.field or not isinstance(kinds.get(operator.field), (Image, Mask)):
        raise PlanError(
            f"fields={fields!r} does not say what {operator.field!r}, written to {operator.out_field!r}, and the others hold",
            where=f"image.{operator.name}",
            fix='name an image or mask that is written back to its field, and the others such as fields={"mask": "mask"}: '
            f"the kinds are {', '.join(_KINDS)}, ps.image.Mask(...) and ps.image.Boxes(...)",
        )
    return JointOperator(operator, tuple(kinds.items()))


def _kept(value: Any, keep: NDArray[np.bool_], field: str, boxes: str, operator: Geometric) -> Any:
    if not isinstance(value, (np.ndarray, list, tuple)) or len(value) != len(keep):
        raise _wrong(field, operator, value, f"{len(keep)} entries, one for each box of {boxes!r}", "give as many as there are boxes")
    return value[keep] if isinstance(value, np.ndarray) else [one for one, stays in zip(value, keep, strict=True) if stays]


def area_of(corners: NDArray[Any]) -> Coordinates:
    """Return the areas [...] of boxes [..., 4]: x1, y1, x2, y2."""
    return (corners[..., 2:] - corners[..., :2]).prod(-1)  # type: ignore[no-any-return]


def _as_dtype(numbers: Coordinates, dtype: np.dtype[Any], operator: Geometric) -> NDArray[Any]:
    if dtype.kind == "f":
        return numbers.astype(dtype)
    limits, largest = np.iinfo(dtype), float(np.abs(numbers).max(initial=0))
    if largest > limits.max:
        raise SpecError(
            f"a coordinate of boxes or points becomes {largest:g}, and {dtype.name} holds at most {limits.max}",
            where=operator.place_name(),
            fix="convert them to int64 or float32 before this operator",
        )
    return np.rint(numbers).astype(dtype)


def _numbers(value: Any, field: str, operator: Geometric) -> NDArray[Any]:
    """Return a list or array of numbers as an array."""
    try:
        if not is_masked(value):
            return np.asarray(value)
    except ValueError:  # lists of unequal lengths
        pass
    raise _wrong(field, operator, value, "an array of numbers, not masked, or lists of equal lengths", "mend it before this operator")


def _wrong(field: str, operator: Geometric, value: Any, expected: str, fix: str) -> SpecError:
    got = f"{value.dtype.name}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
    return SpecError(f"field {field!r} is {got}, expected {expected}", where=operator.place_name(), fix=fix)
