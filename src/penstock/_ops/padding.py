"""What the user wrote of padding, for the leaves of elements: a value and a shape for each, and a value as an item of a dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import LEAF, Structure, is_masked, leaf_paths
from penstock._ops.stack import words_of
from penstock.errors import SpecError

__all__ = ["fill_for", "shapes_of", "values_of"]

_OBJECT = np.dtype(object)
_NUMBERS = "biufc"


def fill_for(value: Any, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return a padding value as one item of `dtype`, or None when the dtype does not hold it as it is.

    A float may be rounded to the width of the dtype's floats. The number 0 stands for the empty value of a dtype that is none of numbers.
    """
    if dtype == _OBJECT:
        fill = np.empty((), dtype)
        fill[()] = value
        return fill
    given = np.asarray(value)
    if given.ndim or is_masked(value):
        return None
    if given.dtype.kind not in _NUMBERS and type(value) is not int:  # NumPy makes objects of ints beyond 64 bits
        return _other(given, dtype)
    if dtype.kind in _NUMBERS or (dtype.kind == "V" and dtype.type is not np.void):  # such as bfloat16, of another package
        return _number(given, dtype)
    return np.zeros((), dtype) if given.item() == 0 else None


def _number(given: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    if given.dtype.kind == "c" and dtype.kind in "biuf":
        return None
    try:
        with np.errstate(all="ignore"):
            made = given.astype(dtype)
    except OverflowError:
        return None
    if given.dtype.kind in "fc" and np.asarray(0.5).astype(dtype) == 0.5:
        held = np.isfinite(made) == np.isfinite(given)
    else:
        held = made.item() == given.item()  # as Python's numbers: NumPy compares an int with a float rounded
    return made if held else None


def _other(given: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    if given.dtype.kind != dtype.kind and (given.dtype.kind, dtype.kind) != ("U", "T"):
        return None
    try:
        made = given.astype(dtype)
        same = bool(made == given)
    except (TypeError, ValueError, OverflowError):  # a record of other fields, a span of no fixed length
        return None
    return made if same or (dtype.kind in "mM" and np.isnat(given) and np.isnat(made)) else None


def values_of(given: Any, structure: Structure) -> list[Any]:
    """Return the padding value of each leaf, None for the default. A value in the place of a dict, tuple or list is that of all its leaves.

    Raises:
        SpecError: `given` has another structure.
    """
    return _leaves(given, structure, "padding_values", "")


def shapes_of(given: Any, structure: Structure) -> list[Any]:
    """Return the padded shape of each leaf; None for what is left out.

    Raises:
        SpecError: `given` has another structure.
    """
    return _leaves(given, structure, "padded_shapes", "")


def _leaves(given: Any, structure: Structure, argument: str, path: str) -> list[Any]:
    if given is None:
        return [None] * len(leaf_paths(structure))
    if argument == "padding_values" and not isinstance(given, (dict, list, tuple)):
        return [given] * len(leaf_paths(structure))
    if structure is LEAF:
        if argument == "padding_values" or not _is_shape(given):
            raise _refusal(given, structure, argument, path)
        return [given]
    keys = structure[1] if structure[0] == "dict" else range(len(structure[-1]))
    _check_keys(given, keys, structure, argument, path)
    parts = [given.get(key) for key in keys] if structure[0] == "dict" else given
    return [
        leaf
        for key, part, child in zip(keys, parts, structure[-1], strict=True)
        for leaf in _leaves(part, child, argument, f"{path}[{key!r}]")
    ]


def _is_shape(given: Any) -> bool:
    return isinstance(given, (tuple, list)) and not any(isinstance(size, (dict, list, tuple)) for size in given)


def _check_keys(given: Any, keys: Any, structure: Structure, argument: str, path: str) -> None:
    """Refuse other names than the elements have, and values that are not given for all of them."""
    if structure[0] != "dict":
        if not isinstance(given, (tuple, list)) or len(given) != len(keys):
            raise _refusal(given, structure, argument, path)
        return
    if not isinstance(given, dict):
        raise _refusal(given, structure, argument, path)
    unknown = [f"{path}[{key!r}]" for key in given if key not in keys]
    missing = [f"{path}[{key!r}]" for key in keys if key not in given] if argument == "padding_values" else []
    if unknown or missing:
        raise SpecError(
            f"{argument} names {', '.join(unknown)}, which the elements do not have"
            if unknown
            else f"{argument} has nothing for {', '.join(missing)}",
            where="padded_batch()",
            fix=f"give the structure of one element: {path or 'it'} is {words_of(structure)}",
        )


def _refusal(given: Any, structure: Structure, argument: str, path: str) -> SpecError:
    thing = "shape" if argument == "padded_shapes" else "value"
    return SpecError(
        f"{argument} gives {path or 'the element'} {given!r:.60}, but it is {'one array' if structure is LEAF else words_of(structure)}",
        where="padded_batch()",
        fix=f"give a dict for a dict, a tuple or list of as many entries for a tuple or list, and one {thing} for an array",
    )
