"""Sequences put side by side in one row, with what a model needs to keep them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import EmptyList, array_of, is_masked
from penstock._ops.padding import fill_for
from penstock._ops.stack import flaw_of
from penstock.errors import SpecError

__all__ = ["pack_rows", "places_in_use", "sequence_length", "whole_sequence_length"]

Row = dict[str, NDArray[Any]]

_RESERVED = ("segment_ids", "positions")


def sequence_length(element: Any) -> int:
    """Return the length of a sequence: an array or list of one dimension, not masked, or a dict of such ones of equal lengths.

    Raises:
        SpecError: it is neither.
    """
    if _is_sequence(_array(element)):
        return len(element)
    if isinstance(element, dict) and element and not any(name in element for name in _RESERVED):
        lengths = {len(value) if _is_sequence(_array(value)) else -1 for value in element.values()}
        if len(lengths) == 1 and -1 not in lengths:
            return lengths.pop()
    raise SpecError(
        f"{_shown(element)} cannot be packed",
        where="pack_sequences()",
        fix="give one array of one dimension, or a dict of such arrays of equal lengths (not named segment_ids or positions; none masked)",
    )


def _is_sequence(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and not is_masked(value)


def _array(value: Any) -> Any:
    """Return the array of a list of numbers, and anything else as it is."""
    array = array_of(value) if isinstance(value, list) else None
    return value if array is None else array


def whole_sequence_length(length: int) -> Callable[[Any], int]:
    """Return `sequence_length` that refuses more than `length` tokens."""

    def measure(element: Any) -> int:
        found = sequence_length(element)
        if found > length:
            raise SpecError(
                f"a sequence of {found} tokens does not fit a row of {length}",
                where="pack_sequences()",
                fix=f"cut or split it in a map before, filter it out, or use pack_sequences({length}, split=True)",
            )
        return found

    return measure


def pack_rows(length: int, padding_value: Any) -> Callable[[tuple[Any, ...], Any], Row]:
    """Return the function that makes a packed row of sequences.

    The row is a dict of the sequences' fields ("tokens" for bare arrays), each [length] with `padding_value` behind the last token, and
    `segment_ids` int32 [length] (1, 2, ... per sequence, 0 for padding) and `positions` int32 [length] (0, 1, ... in each sequence's part).
    """
    counted = np.arange(length, dtype=np.int32)
    fills: dict[np.dtype[Any], NDArray[Any]] = {}

    def pack(values: tuple[Any, ...], layout: list[tuple[int, int]] | None) -> Row:
        sequences = [_fields(value) for value in values]
        spec = {name: _dtype_of(name, sequences) for name in sequences[0]}
        row = {name: np.empty(length, dtype) for name, dtype in spec.items()}
        segments, positions = np.empty(length, np.int32), np.empty(length, np.int32)
        start = 0
        for number, fields in enumerate(sequences):
            begin, end = (0, len(next(iter(fields.values())))) if layout is None else layout[number]
            stop = start + end - begin
            _check_fields(spec, fields)
            for name, array in row.items():
                array[start:stop] = fields[name][begin:end]
            segments[start:stop] = number + 1
            positions[start:stop] = counted[: stop - start]
            start = stop
        if start < length:
            segments[start:], positions[start:] = 0, 0
            for name, dtype in spec.items():
                if dtype not in fills:
                    fills[dtype] = _fill(name, dtype, padding_value)
                row[name][start:] = fills[dtype]
        return {**row, "segment_ids": segments, "positions": positions}

    return pack


def places_in_use(row: Row) -> tuple[int, int]:
    """Return how many tokens a packed row holds, and how many it has room for."""
    segments = row["segment_ids"]
    return int(np.count_nonzero(segments)), len(segments)


def _fields(value: Any) -> dict[str, NDArray[Any]]:
    return {name: _array(one) for name, one in value.items()} if isinstance(value, dict) else {"tokens": _array(value)}


def _dtype_of(name: str, sequences: list[dict[str, NDArray[Any]]]) -> np.dtype[Any]:
    """Return the dtype of the first sequence's field, or of the first that is no empty list."""
    arrays = [fields[name] for fields in sequences if name in fields]
    return next((array for array in arrays if type(array) is not EmptyList), arrays[0]).dtype


def _fill(name: str, dtype: np.dtype[Any], padding_value: Any) -> NDArray[Any]:
    fill = fill_for(padding_value, dtype)
    if fill is None:
        raise SpecError(
            f"padding_value={padding_value!r:.60} does not fit {name} {dtype}",
            where="pack_sequences()",
            fix="give a padding_value that all fields can hold as it is, or cast the fields in a map before",
        )
    return fill


def _check_fields(spec: dict[str, np.dtype[Any]], fields: dict[str, NDArray[Any]]) -> None:
    found = {name: spec.get(name, array.dtype) if type(array) is EmptyList else array.dtype for name, array in fields.items()}
    if found != spec:
        raise SpecError(
            f"sequences of one row differ: {_words(spec)} and {_words(found)}",
            where="pack_sequences()",
            fix="give all sequences the same fields and dtypes before pack_sequences",
        )


def _words(spec: dict[str, np.dtype[Any]]) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in spec.items())


def _shown(element: Any) -> str:
    if isinstance(element, dict):
        return "a dict of " + (", ".join(f"{name}: {_shown(value)}" for name, value in element.items()) or "nothing")
    element = _array(element)
    if isinstance(element, list) and array_of(element) is not None:
        return flaw_of(element)[0].removeprefix("is ")
    if isinstance(element, np.ndarray):
        return f"a{' masked' if is_masked(element) else 'n'} array {element.dtype}{list(element.shape)}"
    return f"a {type(element).__name__}"
