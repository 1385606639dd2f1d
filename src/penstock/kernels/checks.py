"""What the kernels require of their arguments. The C reads and writes only what was measured here."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError

__all__ = ["block", "integer", "place", "require", "require_integers", "require_out", "require_shape"]


def place(function: str, argument: str) -> str:
    """Return the `where` of an error about one argument."""
    return f"penstock.kernels.{function}, argument {argument!r}"


def require(function: str, argument: str, array: object, dtype: np.dtype[Any], num_dims: int) -> None:
    """Refuse anything but an array of this dtype and number of dimensions."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != num_dims:
        got = f"{array.ndim}-d {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise SpecError(
            f"{argument} is {got}, not a {num_dims}-d {dtype} array",
            where=place(function, argument),
            fix=f"pass a {num_dims}-d NumPy array of dtype {dtype} in native byte order",
        )


def require_shape(function: str, argument: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Refuse another shape."""
    if array.shape != shape:
        raise SpecError(
            f"{argument} has shape {array.shape}, not {shape}", where=place(function, argument), fix=f"pass an array of shape {shape}"
        )


def require_integers(function: str, argument: str, array: object) -> None:
    """Refuse anything but a 1-d array of integers."""
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
        got = f"{array.ndim}-d {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise SpecError(
            f"{argument} is {got}, not a 1-d array of integers",
            where=place(function, argument),
            fix="pass a 1-d NumPy array of integers of 1, 2, 4 or 8 bytes",
        )


def require_out(function: str, out: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...], values: NDArray[Any]) -> None:
    """Refuse an output that is not one writeable block of this dtype and shape, or that overlaps `values`."""
    require(function, "out", out, dtype, len(shape))
    require_shape(function, "out", out, shape)
    if not out.flags.carray:
        flags = out.flags
        raise SpecError(
            f"out cannot be written as one block: C-contiguous {flags.c_contiguous}, aligned {flags.aligned}, writeable {flags.writeable}",
            where=place(function, "out"),
            fix="pass a fresh array or a whole row of a batch",
        )
    if np.may_share_memory(values, out):
        raise SpecError(
            "out lies in the memory of values, which would be overwritten before it is read",
            where=place(function, "out"),
            fix="pass another array as out, or a copy of values",
        )


def block(function: str, argument: str, array: NDArray[Any], dtype: np.dtype[Any], length: int | None = None) -> NDArray[Any]:
    """Check a 1-d array and return it (or a copy) contiguous and aligned."""
    # Said twice, because this line costs 0.1 us and the call 0.3: a subclass or an equal dtype object still passes below.
    if type(array) is not np.ndarray or array.dtype is not dtype or array.ndim != 1:
        require(function, argument, array, dtype, 1)
    if length is not None and array.shape[0] != length:
        require_shape(function, argument, array, (length,))
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=("C", "A"))


def integer(function: str, argument: str, value: int, low: int, high: int) -> int:
    """Check a number and return it as a Python integer, which is what ctypes takes."""
    if type(value) is int and low <= value <= high:
        return value
    try:
        number = index(value)
    except TypeError as error:
        raise SpecError(
            f"{argument} is {value!r}, not an integer", where=place(function, argument), fix=f"pass an integer in {low}..{high}"
        ) from error
    if not low <= number <= high:
        raise SpecError(
            f"{argument}={number} is outside {low}..{high}", where=place(function, argument), fix=f"pass an integer in {low}..{high}"
        )
    return number
