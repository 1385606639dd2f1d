"""What stands for null in a column: an error, None, or a value that the column holds as it is. Needs pyarrow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.errors import PlanError
from penstock.formats.arrow import ColumnForm, column_values, pyarrow, type_at


def fills_of(nulls: Any, schema: Any, columns: Sequence[ColumnForm], where: str) -> dict[str, Any]:
    """Return what stands for null, by column: None or a value as the column gives it. In other columns a null is an error of its row.

    Args:
        nulls: "error", "none", or a value, which stands in the columns that hold it; or a dict of these by column.
        schema: pyarrow's.
        columns: those that are read.
        where: the call and the file, for errors.

    Raises:
        PlanError: a column is not there, or does not hold the value as it is; or no column does.
    """
    by_name = {column.name: column for column in columns}
    wanted: Mapping[str, Any] = nulls if isinstance(nulls, Mapping) else dict.fromkeys(by_name, nulls)
    out: dict[str, Any] = {}
    refused: dict[str, tuple[str, str]] = {}
    for name, value in wanted.items():
        column = by_name.get(name)
        if column is not None and isinstance(value, str) and value in ("error", "none"):
            out.update({name: None} if value == "none" else {})
        elif column is None or not column.is_single:
            refused[name] = f"{name!r} is no column of single values that is read", "name columns of numbers or strings"
        elif (element := _element(value, kind := _kind(schema, column), column)) is None:
            refused[name] = f"{value!r} is no value of the column, which is {kind}", "give one that it holds as it is"
        else:
            out[name] = element
    # One value for all stands in the columns that hold it.
    for name, (what, fix) in refused.items() if wanted is nulls or not out else ():
        raise PlanError(what, where=f"{where}, nulls[{name!r}]", fix=fix)
    return out


def _kind(schema: Any, column: ColumnForm) -> Any:
    """Return the type of Arrow that holds what the column has in all files."""
    pa, _ = pyarrow()
    kind = type_at(schema, column.path or (column.name,))
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if column.dtype and (np.dtype(column.dtype).kind in "iuf" or pa.types.is_null(kind)):
        return pa.from_numpy_dtype(np.dtype(column.dtype))
    return {"str": pa.string(), "bytes": pa.binary()}.get(column.form, kind) if pa.types.is_null(kind) else kind


def _element(value: Any, kind: Any, column: ColumnForm) -> Any:
    """Return a value as the column would give it; None if the type does not hold it as it is."""
    pa, _ = pyarrow()
    try:
        scalar = pa.scalar(value, kind)
        if scalar.is_valid and _is_kept(value, scalar):
            return column_values(pa.array([value], kind), replace(column, path=())).take(np.array([0]))[0]
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        pass
    return None


def _is_kept(value: Any, scalar: Any) -> bool:
    """Tell whether Arrow made a scalar that is the value given: it cuts off fractions, hours and zones without a word.

    Only a float may be rounded, to the nearest that the type has, if that is neither an infinity nor a zero made of another number.
    """
    pa, _ = pyarrow()
    if pa.types.is_temporal(scalar.type):
        given = pa.scalar(value)
        if not pa.types.is_temporal(given.type) or (_zone(given.type) and not _zone(scalar.type)):
            return False
        return bool(scalar.cast(given.type).equals(given))
    given, kept = value.item() if isinstance(value, np.generic) else value, scalar.as_py()
    if isinstance(given, float) and pa.types.is_floating(scalar.type):
        return all(of(given) == of(float(kept)) for of in (math.isnan, math.isinf, bool))
    return isinstance(given, bool) == isinstance(kept, bool) and bool(kept == given)


def _zone(kind: Any) -> str | None:
    """Return the time zone of a type, if it has one."""
    zone: str | None = getattr(kind, "tz", None)
    return zone
