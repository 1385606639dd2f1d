"""What batches make of their elements: in NumPy, leaf by leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Unfit(Exception):
    """Elements of one batch do not fit each other."""


def together(items: list[Any], join: Callable[[list[Any]], Any]) -> Any:
    """Join the leaves of several elements of one structure."""
    first = items[0]
    if any(type(item) is not type(first) and isinstance(item, (tuple, dict)) != isinstance(first, (tuple, dict)) for item in items):
        raise Unfit
    if isinstance(first, dict):
        if any(list(item) != list(first) for item in items):
            raise Unfit
        return {key: together([item[key] for item in items], join) for key in first}
    if isinstance(first, tuple):
        if any(not isinstance(item, tuple) or len(item) != len(first) for item in items):
            raise Unfit
        return tuple(together([item[place] for item in items], join) for place in range(len(first)))
    arrays = [np.asarray(item, np.int64 if isinstance(item, list) else None) for item in items]  # lists of numbers are arrays in batches
    if len({(array.dtype, array.ndim) for array in arrays}) > 1:
        raise Unfit
    return join(arrays)


def stacked(items: list[Any]) -> Any:
    def join(arrays: list[Any]) -> Any:
        if len({array.shape for array in arrays}) > 1:
            raise Unfit
        return np.stack(arrays)

    return together(items, join)


def padded(value: int) -> Callable[[list[Any]], Any]:
    def join(arrays: list[Any]) -> Any:
        shape = np.max([array.shape for array in arrays], axis=0).astype(int) if arrays[0].ndim else ()
        out = np.full((len(arrays), *shape), value, arrays[0].dtype)
        for row, array in zip(out, arrays, strict=True):
            row[tuple(slice(size) for size in array.shape)] = array
        return out

    def join_all(arrays: list[Any]) -> Any:
        return join(arrays) if arrays[0].ndim else np.stack(arrays)

    return lambda items: together(items, join_all)


def ragged(items: list[Any]) -> Any:
    def join(arrays: list[Any]) -> Any:
        if not arrays[0].ndim:
            return np.stack(arrays)
        if len({array.shape[1:] for array in arrays}) > 1:
            raise Unfit
        return {"values": np.concatenate(arrays), "row_splits": np.cumsum([0, *map(len, arrays)])}

    return together(items, join)


def rows(item: Any) -> list[Any]:
    """Split an element along the first dimension of its arrays."""
    if isinstance(item, dict):
        parts = [rows(part) for part in item.values()]
        return [dict(zip(item, row, strict=True)) for row in zip(*parts, strict=True)]
    if isinstance(item, tuple):
        return list(zip(*[rows(part) for part in item], strict=True))
    return list(item)
