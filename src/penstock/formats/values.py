"""Values as texts say them: numbers, JSON, and text itself. One rule for a format, wherever it stands: a file of its own, or in a tar."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib import format as npy

from penstock.kernels.library import Array

_ALWAYS_FITS = 65504.0
"""The largest float16: no float of at most this size is too large for any dtype."""
_TRUE, _FALSE = frozenset(("true", "True", "TRUE", "1")), frozenset(("false", "False", "FALSE", "0"))
_SHOWN_CHARS = 80


_NPY_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0, (3, 0): npy.read_array_header_2_0}
"""By version. The third differs from the second in the encoding of the names of fields alone."""


def npy_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, whether it is in Fortran order, and dtype of an .npy file. What is none is whatever error NumPy's parser raises."""
    return _NPY_HEADERS[npy.read_magic(stream)](stream)


class DoesNotFit(ValueError):
    """A value is no number of the dtype, or no text; the message says why."""


def text_in(data: memoryview | bytes) -> str:
    """Return the text that UTF-8 is, without a byte order mark.

    Raises:
        ValueError: it is none, or has NUL bytes.
    """
    text = str(data, "utf-8-sig")
    if "\0" in text:
        raise DoesNotFit(nul_in(text))
    return text


def nul_in(text: str) -> str:
    """Say where a NUL byte is, which UTF-16 without a mark is full of."""
    return f"character {text.index(chr(0))} is a NUL byte, which is in no text of this encoding; UTF-16 looks so"


def integer_in(text: str) -> int:
    """Return the integer of any size that a text is; white space around it does not count.

    Raises:
        ValueError: it is none.
    """
    if "_" in text or not text.isascii():  # which Python's int would take
        raise DoesNotFit("it is no number")
    return int(text)


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


def numbers_into(texts: list[str], out: Array) -> bool:
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


# -- JSON -------------------------------------------------------------------------------------------------------------------------


def json_decoder(*, allow_nan: bool = False) -> json.JSONDecoder:
    """Return the decoder of JSON; what it refuses is a ValueError, for which `json_fix` knows what to do.

    Args:
        allow_nan: take NaN, Infinity and -Infinity, and numbers beyond the floats as infinite.
    """
    constant, number = (None, None) if allow_nan else (_refuse_constant, _finite)
    return _Decoder(object_pairs_hook=_object, parse_constant=constant, parse_float=number)


class _Decoder(json.JSONDecoder):
    scan_once: Callable[[str, int], tuple[Any, int]]

    def decode(self, text: str) -> Any:  # type: ignore[override]  # the other parameter is not meant for users
        """Return the value of a text; that of `json` looks for white space around it, which takes 0.8 us."""
        try:
            value, end = self.scan_once(text, 0)
        except StopIteration:  # no value begins there
            return super().decode(text)
        return value if end == len(text) else super().decode(text)


class NotTaken(ValueError):
    """A text that is not taken; the message says why, `fix` what to do."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; one that has a key twice would lose a value without a word."""
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotTaken(f"the key {key[:_SHOWN_CHARS]!r} stands twice in one object", "give each key once")
            seen.add(key)
    return value


def _refuse_constant(name: str) -> Any:
    raise NotTaken(f"{name} is no JSON", "give allow_nan=True to take what Python's json writes")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        fix = "mend the number, or give allow_nan=True to take it as infinite"
        raise NotTaken(f"{text[:_SHOWN_CHARS]} is too large for a float", fix)
    return number


def json_fix(error: ValueError, text: str) -> str:
    """Return what to do about an error of the decoder."""
    if not isinstance(error, json.JSONDecodeError):
        return error.fix if isinstance(error, NotTaken) else "mend the line"
    if text[:1] == "[" and not text.rstrip().endswith("]"):
        return "this looks like one array over many lines: write one value a line (jq -c '.[]')"
    if text.rstrip() in ("{", "["):
        return "this looks like one value over many lines: write each on one line (jq -c .)"
    return "mend the line, or leave such lines out with on_error="
