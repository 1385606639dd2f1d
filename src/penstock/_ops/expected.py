"""What a map declares that its results are, checked on each of them."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from penstock._contracts.element import ArraySpec, flatten, kind_of, map_leaves, spec_of
from penstock.errors import SpecError

__all__ = ["Expected"]

_OBJECT = np.dtype(object)
_MOST_LETTERS = 300

Fits = Callable[[Any], bool]


class Expected:
    """A tree of specs that each result of one stage must fit: structure, dtype and every size that is not None.

    Keys of a dict may stand in any order. Frozen; shared by all workers.

    Args:
        tree: dict, tuple and list over `ArraySpec`.
        name: of the stage, for errors.
    """

    __slots__ = ("_name", "_tree", "fits")

    def __init__(self, tree: Any, name: str) -> None:
        self._tree = tree
        self._name = name
        self.fits: Fits = _fits(tree)
        """Tells whether a result is as declared, at the cost of one comparison in C per array. Never raises."""

    def check(self, value: Any) -> None:
        """Refuse a result that is not as declared.

        Raises:
            SpecError: naming the stage, the field, what was declared for it and what came.
        """
        if not self.fits(value):
            raise self._refusal(value)

    def around(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fn` with its result checked."""
        fits = self.fits

        def checked(element: Any, **rng: Any) -> Any:
            value = fn(element, **rng)
            if fits(value):
                return value
            raise self._refusal(value)

        return checked

    def around_async(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the async function `fn` with its result checked."""
        fits = self.fits

        async def checked(element: Any, **rng: Any) -> Any:
            value = await fn(element, **rng)
            if fits(value):
                return value
            raise self._refusal(value)

        return checked

    def _refusal(self, value: Any) -> SpecError:
        return SpecError(
            _difference(self._tree, value, ""),
            where=f"stage {self._name!r}",
            fix="return what output_spec declares (cast, resize, fill in the field), or declare what is returned: None stands for any size",
        )


def _fits(tree: Any) -> Fits:
    if isinstance(tree, ArraySpec):
        return _leaf(tree)
    if type(tree) is dict:
        return _dict({key: _fits(child) for key, child in tree.items()}, tree)
    children = [_fits(child) for child in tree]
    kind, count = kind_of(tree), len(children)

    def fits(value: Any) -> bool:
        return kind_of(value) is kind and len(value) == count and all(child(item) for child, item in zip(children, value, strict=True))

    return fits


def _dict(children: dict[Any, Fits], tree: dict[Any, Any]) -> Fits:
    count = len(children)
    nothing = object()
    parts = [(key, _whole(tree[key]), child) for key, child in children.items()]

    def fits(value: Any) -> bool:
        if not isinstance(value, dict) or len(value) != count:
            return False
        for key, wanted, child in parts:
            item = value.get(key, nothing)
            if type(item) is np.ndarray and (item.dtype, item.shape) == wanted:
                continue
            if item is nothing or not child(item):
                return False
        return True

    return fits


def _whole(tree: Any) -> Any:
    """Return what (dtype, shape) of an array must equal; nothing does when the shape is not all declared, or it is no array."""
    return (tree.dtype, tree.shape) if isinstance(tree, ArraySpec) else None


def _leaf(spec: ArraySpec) -> Fits:
    if None in spec.shape:
        return _loose_leaf(spec)
    wanted = _whole(spec)
    number = None if spec.shape else _NUMBERS.get(spec.dtype)
    scalar = None if spec.shape else spec.dtype.type

    def fits(value: Any) -> bool:
        if type(value) is np.ndarray and (value.dtype, value.shape) == wanted:
            return True
        if type(value) is number:
            return _in_range(value)
        if type(value) is scalar and value.dtype == spec.dtype:
            return True
        return kind_of(value) is None and spec_of(value) == spec and _in_range(value)

    return fits


_NUMBERS: dict[np.dtype[Any], type] = {np.dtype(np.bool_): bool, np.dtype(np.int64): int, np.dtype(np.float64): float}
"""What a number of Python becomes in a batch, the other way round: most labels are such."""


def _loose_leaf(spec: ArraySpec) -> Fits:
    """Compare the number of dimensions, and the sizes that are declared."""
    dtype, count = spec.dtype, len(spec.shape)
    places = [place for place, size in enumerate(spec.shape) if size is not None]
    pick = itemgetter(*places) if places else None
    wanted = None if pick is None else pick(spec.shape)

    def fits(value: Any) -> bool:
        if type(value) is np.ndarray and value.dtype == dtype:
            shape = value.shape
        elif kind_of(value) is not None:
            return False
        else:
            found = spec_of(value)
            if found.dtype != dtype:
                return False
            shape = found.shape
        return len(shape) == count and (pick is None or pick(shape) == wanted)

    return fits


def _in_range(value: Any) -> bool:
    return type(value) is not int or -(2**63) <= value < 2**63


def _difference(tree: Any, value: Any, path: str) -> str:
    """Say where the first field is that is not as declared, and how it is."""
    parts = _parts(tree, value)
    if parts is None:
        return f"{path or 'the result'} is declared as {_cut(repr(tree))} and came as {_came(value)}"
    differing = next((words for words in (_part(path, *part) for part in parts) if words), "")
    return differing or f"{path or 'the result'} is not as declared"


def _part(path: str, key: Any, tree: Any, value: Any) -> str:
    return "" if _fits(tree)(value) else _difference(tree, value, f"{path}[{key!r}]")


def _parts(tree: Any, value: Any) -> list[tuple[Any, Any, Any]] | None:
    """Return (key, declared, found) of each child; None when there are no children to compare one by one."""
    if isinstance(tree, dict):
        same = isinstance(value, dict) and value.keys() == tree.keys()
        return [(key, child, value[key]) for key, child in tree.items()] if same else None
    if isinstance(tree, ArraySpec) or kind_of(value) is not kind_of(tree) or len(value) != len(tree):
        return None
    return [(place, *pair) for place, pair in enumerate(zip(tree, value, strict=True))]


_SHOWN_BITS = 256


def _came(value: Any) -> str:
    if kind_of(value) is not None:
        return _cut(repr(map_leaves(spec_of, value))) if len(flatten(value)) <= _MOST_LETTERS else f"a {type(value).__name__}"
    spec = spec_of(value)
    if not _in_range(value):
        shown = str(value) if value.bit_length() <= _SHOWN_BITS else f"a number of {value.bit_length()} bits"  # Python shows no longer ones
        return f"{shown}, which does not fit int64"
    return type(value).__name__ if spec.dtype == _OBJECT and not isinstance(value, (np.ndarray, np.generic)) else repr(spec)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."
