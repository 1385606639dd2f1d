"""Results as JSON and back, the same to the type: for the lines of a done-list. Never pickle."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

__all__ = ["NoForm", "as_json", "from_json"]


class NoForm(ValueError):
    """A value, or a part of it, has no form here. Internal."""


def as_json(value: Any) -> tuple[Any] | None:
    """Return what `json` can write for a result, in a tuple of one; None for a result that has no form here."""
    try:
        return (_form(value),)
    except (NoForm, RecursionError):
        return None


def _form(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_form(child) for child in value]
    if kind is tuple:
        return {"tuple": [_form(child) for child in value]}
    if kind is dict:
        return {"dict": [[_form(key), _form(child)] for key, child in value.items()]}
    if kind is bytes:
        return {"bytes": _text(value)}
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return {"array": [value.dtype.str, list(value.shape), _text(value.tobytes())]}
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return {"scalar": [value.dtype.str, _text(value.tobytes())]}
    raise NoForm


def from_json(form: Any) -> Any:
    """Return the result.

    Raises:
        ValueError: it is no form of `as_json`; a TypeError says the same.
    """
    if isinstance(form, list):
        return [from_json(child) for child in form]
    if not isinstance(form, dict):
        return form
    ((kind, content),) = form.items()
    match kind:
        case "tuple":
            return tuple(from_json(child) for child in content)
        case "dict":
            return {from_json(key): from_json(child) for key, child in content}
        case "bytes":
            return base64.b64decode(content, validate=True)
        case "array":
            dtype, shape, data = content
            return np.frombuffer(base64.b64decode(data, validate=True), dtype).reshape(shape).copy()
        case "scalar":
            dtype, data = content
            return np.frombuffer(base64.b64decode(data, validate=True), dtype)[0]
    raise NoForm


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
