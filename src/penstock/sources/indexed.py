"""Objects with a length and an index: a list, a torch map-style dataset, a Hugging Face dataset, a Grain source."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import getitem
from typing import Any

import numpy as np

from penstock._contracts.failing import add_note, text_of
from penstock._contracts.source import IndexedSource
from penstock.errors import LengthMismatch, PlanError, SourceError
from penstock.sources.digest import crc_of_value, spread

__all__ = ["IndexableSource", "indexed_source"]

_SAMPLED = 64


class IndexableSource:
    """Serve `obj[0]` to `obj[len(obj) - 1]`; a whole block with one call where `obj` has `__getitems__`.

    The length is asked once. `obj` is indexed from worker threads, several at a time.

    Args:
        obj: an object with `__len__` and `__getitem__`. `__getitems__(list of int) -> list of elements` is optional.

    Raises:
        PlanError: `obj` cannot be indexed by position.
        SourceError: `len(obj)` fails.
    """

    def __init__(self, obj: Any) -> None:
        self._name = type(obj).__name__
        _check_kind(obj, self._name)
        try:
            self._length = len(obj)
        except (TypeError, ValueError, OverflowError) as error:
            raise SourceError(
                f"len() of {self._name} failed: {error}",
                where=f"from_source({self._name})",
                fix="let __len__ return the number of elements, an int >= 0",
            ) from error
        self._obj = obj
        self._many = getattr(obj, "__getitems__", None)

    def __len__(self) -> int:
        return self._length

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index.

        Raises:
            LengthMismatch: the object has no element at an index below its length, or `__getitems__` gave another number of them.
            Exception: whatever the object raises, as it is.
        """
        if self._many is not None:
            self._gather_block(list(indices), rows)
            return
        obj, first = self._obj, len(rows)
        try:
            # As the loop below, which needs 20 ns more per element: also what came before an error stays.
            rows.extend(map(getitem, repeat(obj), indices))
            while len(rows) - first < len(indices):  # a StopIteration of its own looks like the end there
                rows.append(obj[indices[len(rows) - first]])
        except IndexError as error:
            raise self.explained(indices[len(rows) - first], error) from error

    def subscripted(self) -> Any | None:
        """Return the object, unless it has `__getitems__`."""
        return self._obj if self._many is None else None

    def explained(self, index: int, error: Exception) -> Exception:
        """Return LengthMismatch for an IndexError of `obj[index]`, and other errors as they are."""
        if not isinstance(error, IndexError):
            return error
        return LengthMismatch(
            f"{self._name} declared {self._length} elements, but got no element {index}: IndexError: {text_of(error)}",
            where=f"{self.describe(index)}, __getitem__({index})",
            fix="let __len__ return the true number of elements; if the IndexError is a fault inside __getitem__, see the cause above",
        )

    def _gather_block(self, indices: list[int], rows: list[Any]) -> None:
        asked = f"__getitems__ with {len(indices)} indices from {indices[0]} to {indices[-1]}" if indices else "__getitems__([])"
        try:
            elements = self._many(indices) if self._many is not None else []
        except Exception as error:
            if len(indices) > 1:  # asked one by one, those before the one that fails come, and it is the one that is named
                for index in indices:
                    self._gather_block([index], rows)
                return
            if not isinstance(error, IndexError):
                add_note(error, f"raised by {self._name}.{asked}")
                raise
            raise LengthMismatch(
                f"{self._name} declared {self._length} elements, but got no element {indices[0]}: IndexError: {text_of(error)}",
                where=f"from_source({self._name}), {asked}",
                fix="let __len__ return the true number of elements; if the IndexError is a fault inside __getitems__, see the cause above",
            ) from error
        if not isinstance(elements, (list, tuple)) or len(elements) != len(indices):
            got = f"{len(elements)} elements" if isinstance(elements, (list, tuple)) else f"a {type(elements).__name__}"
            raise LengthMismatch(
                f"{self._name}.__getitems__ was asked for {len(indices)} elements and returned {got}",
                where=f"from_source({self._name}), {asked}",
                fix="return a list with one element per index, in the order of the indices",
            )
        rows.extend(elements)

    def describe(self, index: int) -> str:
        """Name the element."""
        return f"element {index} of {self._name}"

    def held(self) -> Any:
        """Return the object."""
        return self._obj

    def fingerprint(self) -> dict[str, Any]:
        """Return type, length, the object's own fingerprint if it has one, and a check sum of 64 elements of a list, tuple or range.

        Other objects are not read for it: an element may be a decoded video.
        """
        kind = type(self._obj)
        record: dict[str, Any] = {"kind": "indexed", "type": kind.__qualname__, "count": self._length}
        for attribute in ("fingerprint", "_fingerprint"):
            own = getattr(self._obj, attribute, None)
            if isinstance(own, str):
                record["fingerprint"] = own
                return record
        if isinstance(self._obj, (list, tuple, range, np.ndarray)):
            crc = 0
            for index in spread(self._length, _SAMPLED):
                crc = crc_of_value(self._obj[index], crc)
            record["sample_crc32"] = crc
        return record

    def label(self) -> str:
        """Return the call with the type and the number of elements."""
        return f"from_source({self._name}, {self._length} elements)"


def indexed_source(obj: Any) -> IndexedSource:
    """Return the source of an object's elements: itself, the rows of an Arrow table, or `obj[0]` to `obj[len(obj) - 1]`.

    Raises:
        PlanError, SourceError: as `IndexableSource`, and for a table whose columns have no conversion.
    """
    if isinstance(obj, IndexedSource):
        return obj
    arrow = sys.modules.get("pyarrow")
    if isinstance(obj, (getattr(arrow, "Table", ()), getattr(arrow, "RecordBatch", ()))):  # their own obj[index] is a column
        from penstock.sources.parquet import table_source

        return table_source(obj)
    return IndexableSource(obj)


def _check_kind(obj: Any, name: str) -> None:
    """Refuse what has a length and an index but no elements 0..n-1, and what has neither."""
    kind = type(obj)
    fix = ""
    if isinstance(obj, type):
        fix = f"give an instance: {obj.__name__}(...)"
    elif isinstance(obj, Mapping):
        fix = "give list(obj.items()), or from_arrays(obj) for a dict of arrays, or one split of a dict of datasets"
    elif isinstance(obj, (str, bytes, bytearray)):
        fix = "give the elements themselves; for a file or folder use read_list, read_files or read_images"
    elif hasattr(obj, "iloc"):
        fix = "give df.to_dict('records'), or from_arrays({name: df[name].to_numpy() for name in df})"
    elif hasattr(kind, "columns") and (hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__dataframe__")):  # such as polars
        fix = (
            "give from_source(pyarrow.table(df)), which is read by rows, or from_arrays({name: df[name].to_numpy() for name in df.columns})"
        )
    elif not hasattr(kind, "__getitem__") and hasattr(obj, "__iter__"):
        fix = "use from_stream(obj) for what can only be iterated, or list(obj)"
    elif not hasattr(kind, "__getitem__"):
        fix = "give it a __getitem__(index), or use from_generator"
    elif not hasattr(kind, "__len__"):
        fix = "give it a __len__(), or use from_generator for a stream of unknown length"
    if fix:
        raise PlanError(f"a {name} has no elements numbered from 0", where=f"from_source({name})", fix=fix)
