"""Random access: a tree of arrays of one length, and objects with a length and an index.

Of arrays, element i is row i of each. Such objects are a list, a torch map-style dataset, a Hugging Face dataset, a Grain source.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import repeat
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import LEAF, Structure, array_of, flatten, is_masked, leaf_paths, structure_of
from penstock._contracts.source import IndexedSource, Leaves
from penstock._system.failing import add_note, text_of
from penstock.errors import LengthMismatch, PlanError, SourceError
from penstock.kernels.library import Array, Ints
from penstock.sources.paths import beyond, crc_of_array, crc_of_value, spread

_SAMPLED = 64
_STORED_MODULES = ("dask", "h5py", "tensorstore", "zarr")
_PLAIN_MODULES = ("array", "builtins", "collections", "datasets", "numpy", "pyarrow")


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
        self._kind = type(obj).__qualname__
        self._many = getattr(obj, "__getitems__", None)
        hugging_face = getattr(sys.modules.get("datasets"), "Dataset", ())
        if isinstance(obj, hugging_face) and obj.format["type"] not in (None, "python", "custom"):
            from penstock.sources.tables import DatasetRows

            self._many = DatasetRows(obj)  # the formatter's elements depend on all that are in a block

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for pickle, with a `_PackedList` in place of a list."""
        state = self.__dict__.copy()
        if type(self._obj) in (list, tuple):
            starts = range(0, len(self._obj), 1 << _PIECE_BITS)
            state["_obj"] = _PackedList(_packed(list(self._obj[start : start + (1 << _PIECE_BITS)])) for start in starts)
        return state

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

    @property
    def users_object(self) -> Any | None:
        """The object, unless it is of Python, NumPy, Arrow or Hugging Face datasets: reading these runs no code of the user's.

        A Hugging Face dataset with a function of its `set_transform` does.
        """
        form = getattr(self._obj, "format", None)
        has_transform = isinstance(form, dict) and form.get("type") == "custom"
        plain = type(self._obj).__module__.partition(".")[0] in _PLAIN_MODULES
        return None if plain and not has_transform else self._obj

    @property
    def in_memory(self) -> bool:
        """Whether an element is there already, and reading it is looking it up."""
        return type(self._obj) in (list, tuple, range)

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
        record: dict[str, Any] = {"kind": "indexed", "type": self._kind, "count": self._length}
        for attribute in ("fingerprint", "_fingerprint"):
            own = getattr(self._obj, attribute, None)
            if isinstance(own, str):
                record["fingerprint"] = own
                return record
        if isinstance(self._obj, (list, tuple, range, np.ndarray, _PackedList)):
            crc = 0
            for index in spread(self._length, _SAMPLED):
                crc = crc_of_value(self._obj[index], crc)
            record["sample_crc32"] = crc
        return record

    def label(self) -> str:
        """Return the call with the type and the number of elements."""
        return f"from_source({self._name}, {self._length} elements)"


_PIECE_BITS = 10
_AT_ONCE = 64


class _PackedList:
    """A list in another process, whose pieces lie in shared arrays; each element is unpickled when it is read.

    The pieces are packed while they are pickled. So a pickler with a limit stops in time, and no call holds the GIL for seconds, as that
    of pickle does for a long list.
    """

    def __init__(self, pieces: Any) -> None:
        self._pieces = pieces

    def __reduce__(self) -> tuple[Any, ...]:
        return _PackedList, ([],), None, iter(self._pieces)

    def append(self, piece: Any) -> None:
        """Append the next piece. Called by pickle."""
        self._pieces.append(piece)

    def __getitem__(self, index: int) -> Any:
        return self._pieces[index >> _PIECE_BITS][index & ((1 << _PIECE_BITS) - 1)]


class _Piece:
    """The pickles of some elements, one after the other. An element takes 0.5 us to read."""

    __slots__ = ("_borders", "_data")

    def __init__(self, data: NDArray[np.uint8], borders: NDArray[np.int64]) -> None:
        self._data, self._borders = data.data, borders.data

    def __reduce__(self) -> tuple[Any, ...]:
        return _Piece, (np.asarray(self._data), np.asarray(self._borders))

    def __getitem__(self, place: int) -> Any:
        return pickle.loads(self._data[self._borders[place] : self._borders[place + 1]])


class _PlainPickler(pickle.Pickler):
    """Pickles numbers, texts, bytes, and tuples, lists, dicts and sets of these."""

    def reducer_override(self, value: Any) -> Any:
        raise pickle.PicklingError(f"a {type(value).__name__} is of another kind")


def _packed(elements: list[Any]) -> Any:
    """Return a `_Piece`, or the elements themselves where they are of other kinds or share large objects."""
    file = BytesIO()
    try:
        _PlainPickler(file, protocol=5).dump(elements)
    except pickle.PicklingError:
        return elements
    most_bytes = 2 * file.tell() + 256 * len(elements)
    data, lengths = bytearray(), [0]
    for start in range(0, len(elements), _AT_ONCE):
        pickles = [pickle.dumps(element, 5) for element in elements[start : start + _AT_ONCE]]
        data += b"".join(pickles)
        lengths += map(len, pickles)
        if len(data) > most_bytes:
            return elements
    return _Piece(np.frombuffer(data, np.uint8), np.cumsum(lengths))


def indexed_source(obj: Any) -> IndexedSource:
    """Return the source of an object's elements: itself, the rows of an Arrow table, or `obj[0]` to `obj[len(obj) - 1]`.

    Raises:
        PlanError, SourceError: as `IndexableSource`, and for a table whose columns have no conversion.
    """
    if isinstance(obj, IndexedSource):
        return obj
    if _is_stored(obj):
        return ArraySource(obj)
    arrow = sys.modules.get("pyarrow")
    if isinstance(obj, (getattr(arrow, "Table", ()), getattr(arrow, "RecordBatch", ()))):  # their own obj[index] is a column
        from penstock.sources.parquet import table_source

        return table_source(obj)
    return IndexableSource(obj)


def arrays_source(tree: Any) -> IndexedSource:
    """Return the source of a tree of arrays, of a data frame or of an Arrow table.

    Raises:
        PlanError: as `ArraySource`, and where two columns of a frame have one name or one of a table has no conversion.
    """
    if not hasattr(tree, "columns") or not (hasattr(tree, "iloc") or hasattr(tree, "__arrow_c_stream__")):
        return ArraySource(tree)
    from penstock.sources.tables import columns_of_frame

    columns = columns_of_frame(tree)
    return ArraySource(columns) if isinstance(columns, dict) else indexed_source(columns)


def _is_stored(thing: Any) -> bool:
    """Tell whether an object is an array whose numbers are not in memory."""
    return type(thing).__module__.partition(".")[0] in _STORED_MODULES and hasattr(thing, "dtype") and bool(thing.shape)


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
        fix = "give from_arrays(df), or df.to_dict('records')"
    elif hasattr(kind, "columns") and (hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__dataframe__")):  # such as polars
        fix = "give from_arrays(df), or from_source(pyarrow.table(df))"
    elif hasattr(obj, "__iter__") and not (hasattr(kind, "__getitem__") and hasattr(kind, "__len__")):
        fix = "use from_stream(obj) for what can only be iterated, or list(obj)"
    elif not hasattr(kind, "__getitem__"):
        fix = "give it a __getitem__(index), or use from_generator"
    elif not hasattr(kind, "__len__"):
        fix = "give it a __len__(), or use from_generator for a stream of unknown length"
    if fix:
        raise PlanError(f"a {name} has no elements numbered from 0", where=f"from_source({name})", fix=fix)


_SAMPLE_BYTES = 256 * 1024
_MAX_SAMPLED_ROWS = 1024
_STRIDED_PART_BYTES = 256 * 1024
"""Rows of a strided view pass through a temporary of this size, so that it stays in the L2 cache (each part costs 3 us)."""


class ArraySource:
    """Serve rows of arrays; the arrays are never copied as a whole and never written to.

    Args:
        tree: dict, tuple and list over arrays (or memory maps, or whatever has `__array__`, or lists of numbers) with an equal first
            dimension. A tree that is one list of numbers is int64 where it holds whole ones.

    Raises:
        PlanError: a leaf is no array, has no first dimension, is masked, or the lengths differ; or there is no leaf; or no dtype holds
            the numbers of a list as they are.
    """

    def __init__(self, tree: Any) -> None:
        array = array_of(tree) if isinstance(tree, list) and tree else None
        if isinstance(array, list):
            raise PlanError(
                f"no array holds the numbers of the list of {len(tree)} rows as they are: it is ragged, beyond int64, or would be rounded",
                where="from_arrays",
                fix="give np.array(list, dtype) with the dtype that you mean, or use from_source(list) for elements of different shapes",
            )
        tree = tree if array is None else array
        self._structure: Structure = structure_of(tree)
        names = leaf_paths(self._structure)
        if not names or (isinstance(tree, list) and not tree):
            raise PlanError(f"from_arrays got an empty {type(tree).__name__}", where="from_arrays", fix="give at least one array")
        self._arrays: list[Any] = [_as_rows(leaf, name) for leaf, name in zip(flatten(tree), names, strict=True)]
        self._length = len(self._arrays[0])
        for array, name in zip(self._arrays, names, strict=True):
            if len(array) != self._length:
                raise PlanError(
                    f"the arrays differ in length: {_shown(names[0])} has {self._length} rows, {_shown(name)} has {len(array)}",
                    where=f"from_arrays, leaf {_shown(name)} of shape {array.shape}",
                    fix="give arrays with the same first dimension",
                )

    def __len__(self) -> int:
        return self._length

    def structure(self) -> Structure:
        """Return the structure that `element.unflatten` needs."""
        return self._structure

    def leaves(self) -> Leaves:
        """Return shape and dtype of one row of every leaf."""
        return [(array.shape[1:], array.dtype) for array in self._arrays]

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index: read-only views of the rows, NumPy scalars where the array has one dimension."""
        index_array: Ints | None = None
        columns: list[list[Any]] = []
        for array in self._arrays:
            if array.ndim == 1 or not isinstance(array, np.ndarray):
                if index_array is None:
                    index_array = np.asarray(indices, np.int64)
                columns.append(list(array[index_array]))
            else:
                columns.append(list(map(array.__getitem__, indices)))
        rows.extend(_join(self._structure, iter(columns)))

    def gather_columns(self, indices: Ints, out: list[Array] | None) -> list[Array]:
        """Gather rows `indices` of every leaf: into `out` (arrays of shape (n, *leaf shape)) or into new arrays.

        Raises:
            LengthMismatch: an index is not in 0..len-1.
        """
        # Seen as unsigned, a negative index is a huge one: one reduction (2 us) checks both ends, which mode="clip" would hide.
        if indices.size and int(indices.view(np.uint64).max()) >= self._length:
            raise beyond(indices, self._length, "rows", self.label())
        if out is None:
            return [
                array.take(indices, 0) if isinstance(array, np.ndarray) and array.flags.c_contiguous else array[indices]
                for array in self._arrays
            ]
        for array, target in zip(self._arrays, out, strict=True):
            if not isinstance(array, np.ndarray):
                target[...] = array[indices]
            elif array.flags.c_contiguous and target.dtype == array.dtype:
                # mode="raise" would gather into a buffer first; the indices are known to be good.
                np.take(array, indices, axis=0, out=target, mode="clip")
            else:
                _gather_strided(array, indices, target)
        return out

    def describe(self, index: int) -> str:
        """Name the row."""
        return f"row {index} of the arrays"

    @property
    def in_memory(self) -> bool:
        """Whether no array lies in files."""
        return len(self.held()) == len(self._arrays)

    def input_files(self) -> Iterator[str]:
        """Give the path of each memory map's file."""
        return (path for path in map(_mapped_file, self._arrays) if path is not None)

    def held(self) -> list[Array]:
        """Return the arrays that do not lie in files."""
        return [array for array in self._arrays if isinstance(array, np.ndarray) and _mapped_file(array) is None]

    def fingerprint(self) -> dict[str, Any]:
        """Return shapes, dtypes and a check sum of at most 256 kB: first, last and evenly spaced rows (all of a small array)."""
        crc = 0
        budget = _SAMPLE_BYTES // len(self._arrays)
        for array in self._arrays:
            if not isinstance(array, np.ndarray):
                crc = crc_of_array(array[np.array(spread(self._length, _SAMPLED), np.int64)], crc, budget)
                continue
            row_bytes = max(1, array.nbytes // max(1, self._length)) if not array.dtype.hasobject else 1024
            num_rows = max(2, min(budget // row_bytes, _MAX_SAMPLED_ROWS))
            if self._length * row_bytes <= budget and not array.dtype.hasobject:
                crc = crc_of_array(array, crc, budget)
                continue
            for index in spread(self._length, num_rows):
                crc = crc_of_array(np.asarray(array[index]), crc, budget // num_rows)
        return {
            "kind": "arrays",
            "count": self._length,
            "leaves": [
                [name, list(array.shape[1:]), _dtype_name(array.dtype)]
                for name, array in zip(leaf_paths(self._structure), self._arrays, strict=True)
            ],
            "sample_crc32": crc,
        }

    def label(self) -> str:
        """Return the call with the spec of one element and the number of them."""
        specs = iter([f"{dtype.name}{list(shape)}" for shape, dtype in self.leaves()])
        parts = [f"{name}: {spec}" if name else spec for name, spec in zip(leaf_paths(self._structure), specs, strict=True)]
        return f"from_arrays({', '.join(parts)}, {self._length} elements)"


def _as_rows(leaf: Any, name: str) -> Any:
    """Return a read-only plain view of an array, so that no map function can write into the data through a row, or a `StoredRows`."""
    if _is_stored(leaf):
        from penstock.sources.tables import StoredRows

        return StoredRows(leaf)
    has_arrow = any(hasattr(leaf, f"__arrow_{name}__") for name in ("array", "c_array", "c_stream"))
    if not isinstance(getattr(leaf, "dtype", None), np.dtype) and (has_arrow or hasattr(leaf, "iloc")):
        from penstock.sources.tables import column_array

        leaf = column_array(leaf, f"from_arrays, leaf {_shown(name)}")
    if is_masked(leaf):
        raise PlanError(
            f"leaf {_shown(name)} is a masked array, whose mask would be lost",
            where="from_arrays",
            fix="give leaf.filled(value), and the mask as an array of its own",
        )
    if not isinstance(leaf, np.ndarray) and not hasattr(leaf, "__array__"):
        raise PlanError(
            f"leaf {_shown(name)} is {_article(type(leaf).__name__)}, not an array",
            where="from_arrays",
            fix="convert it with np.asarray(...), or use from_source(...) for a list of elements",
        )
    try:
        array = np.asarray(leaf)
    except (TypeError, ValueError, RuntimeError) as error:  # a tensor in bfloat16, with a gradient, or on another device
        raise PlanError(
            f"leaf {_shown(name)} is {_article(type(leaf).__name__)} that gives no array: {error}",
            where="from_arrays",
            fix="give a tensor as tensor.detach().cpu(), and bfloat16 as tensor.float()",
        ) from error
    if array.ndim == 0:
        raise PlanError(
            f"leaf {_shown(name)} has shape (), so it has no rows (dtype {array.dtype})",
            where="from_arrays",
            fix="give an array whose first dimension counts the elements",
        )
    # A memmap's rows would be memmaps, each of which costs a Python call to make.
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def _shown(name: str) -> str:
    return name or "the array"


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return str(dtype.descr) if dtype.names else dtype.str


def _gather_strided(array: Array, indices: Ints, target: Array) -> None:
    """Gather from a view that is not contiguous, in parts that stay in the cache.

    `np.take` would first make a contiguous copy of the whole view: terabytes for sliding windows over a token file.
    """
    row_bytes = max(1, target.nbytes // max(1, len(target)))
    step = max(1, _STRIDED_PART_BYTES // row_bytes)
    for begin in range(0, len(indices), step):
        target[begin : begin + step] = array[indices[begin : begin + step]]


def _join(structure: Structure, columns: Any) -> list[Any]:
    """Turn one list per leaf into one list of elements, a column at a time (no Python call per element and leaf)."""
    if structure is LEAF:
        column: list[Any] = next(columns)
        return column
    kind, keys, inner = structure
    children = [_join(child, columns) for child in inner]
    if kind == "dict":
        if len(keys) == 2:  # the usual element: a third of the time of the general line
            one, other = keys
            return [{one: left, other: right} for left, right in zip(*children, strict=True)]
        return [dict(zip(keys, values, strict=True)) for values in zip(*children, strict=True)]
    rows = list(zip(*children, strict=True))
    return rows if kind is tuple else list(map(list, rows)) if kind is list else [kind(*values) for values in rows]


def _mapped_file(array: Array) -> str | None:
    """Return the path of the file that an array is a memory map of, or a part of one."""
    base: Any = array
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    return None if base is None or base.filename is None else os.path.abspath(base.filename)
