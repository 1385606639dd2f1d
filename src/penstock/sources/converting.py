"""From values of JSON and fields of CSV to numbers of declared types: integers exactly or not at all, floats rounded to their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import ArraySpec
from penstock.errors import PlanError

__all__ = ["DoesNotFit", "declared_dtype", "number_in", "number_of", "numbers_into"]

_ALWAYS_FITS = 65504.0
"""The largest float16: no float of at most this size is too large for any dtype."""
_FITS = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}
_UNBOUNDED: dict[str, set[type]] = {"b": set(), "i": {int}, "u": {int}, "f": {int, float}}
_TRUE, _FALSE = frozenset(("true", "True", "TRUE", "1")), frozenset(("false", "False", "FALSE", "0"))


class DoesNotFit(ValueError):
    """A value is no number of the dtype; the text says why."""


def declared_dtype(dtype: Any, name: str, caller: str) -> np.dtype[Any]:
    """Return a dtype that values can be converted to: bool, integers, floats.

    Raises:
        PlanError: it is another one, or none.
    """
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):  # ValueError: of an object that has a dtype, such as an ArraySpec
        found = np.dtype(object)
    if found.kind not in _FITS or not found.isnative:
        fix = "declare a bool, an integer or a float such as np.float32; text needs no dtype"
        if isinstance(dtype, ArraySpec):
            fix = f"declare the dtype alone, {{{name!r}: {np.dtype(dtype.dtype).name!r}}}: shapes are those of the values"
        raise PlanError(f"{dtype!r} is declared for {name!r}", where=caller, fix=fix)
    return found


def number_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a JSON number, or lists of them, as a NumPy scalar or array.

    Raises:
        DoesNotFit: it is something else, is ragged, or does not fit: integers are never cut, what is too large is not made infinite, and
            true is no 1, also not among numbers.
    """
    array = _array_of(value, dtype.kind)
    if array is None or (array.size and dtype.kind != "b" and array.ndim and _has_bool(value)):
        raise DoesNotFit("ragged lists, null, text or numbers of another kind")
    return _cast(array, dtype)[()]


def _array_of(value: Any, kind: str) -> np.ndarray[Any, Any] | None:
    """Return numbers that a dtype of this kind can stand for, whatever their size; None where something else is among them."""
    try:
        array = np.array(value)
        if not array.size or array.dtype.kind in _FITS[kind]:
            return array
        # NumPy makes floats of int64 beside uint64, and objects of what is beyond 64 bits.
        objects = np.array(value, object)
        if not set(map(type, objects.ravel().tolist())) <= _UNBOUNDED[kind]:
            return None
        return objects.astype(np.float64) if kind == "f" else objects
    except OverflowError as error:
        raise DoesNotFit("the number is too large") from error
    except ValueError:  # ragged
        return None


def _has_bool(value: list[Any]) -> bool:
    """Tell whether a bool stands anywhere in nested lists: NumPy makes numbers of those among numbers."""
    kinds = set(map(type, value))
    return bool in kinds or (list in kinds and any(_has_bool(inner) for inner in value))


def _cast(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if dtype.kind in "iu" and array.size:
        limits = np.iinfo(dtype)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise DoesNotFit(f"only {limits.min} to {limits.max} fit")
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    if dtype.kind == "f" and not np.array_equal(np.isinf(cast), np.isinf(array)):
        raise DoesNotFit("the number is too large")
    return cast


def number_in(text: str, dtype: np.dtype[Any]) -> Any:
    """Return the number that a field of a CSV file is.

    White space around it does not count. nan and inf are floats.

    Raises:
        ValueError: it is none, or (DoesNotFit) does not fit.
    """
    if "_" in text or not text.isascii():  # which Python's int and float would take
        raise DoesNotFit("it is no number")
    if dtype.kind == "b":
        word = text.strip()
        if word not in _TRUE and word not in _FALSE:
            raise DoesNotFit("it is neither true nor false, 1 nor 0")
        return np.bool_(word in _TRUE)
    if dtype.kind == "f":
        number = float(text)
        if abs(number) < _ALWAYS_FITS:  # errstate would take longer than all the rest
            return dtype.type(number)
        with np.errstate(over="ignore"):
            value = dtype.type(number)
        if np.isinf(value) and "inf" not in text.lower():
            raise DoesNotFit("it is too large")
        return value
    whole = int(text)
    limits = np.iinfo(dtype)
    if not limits.min <= whole <= limits.max:
        raise DoesNotFit(f"only {limits.min} to {limits.max} fit")
    return dtype.type(whole)


def numbers_into(texts: list[str], out: NDArray[Any]) -> bool:
    """Write what `number_in` gives for each text into `out`; False where one of them needs a closer look, or is no number."""
    joined = "".join(texts)
    if "_" in joined or not joined.isascii():
        return False
    try:
        if out.dtype.kind == "f":
            with np.errstate(over="ignore"):
                out[:] = list(map(float, texts))
            return not np.isinf(out).any()
        if out.dtype.kind == "b":
            out[:] = [number_in(text, out.dtype) for text in texts]
            return True
        values, limits = list(map(int, texts)), np.iinfo(out.dtype)
    except ValueError:
        return False  # number_in names the one that is none
    if values and (min(values) < limits.min or max(values) > limits.max):
        return False
    out[:] = values
    return True
