"""What other libraries keep in columns or in files: Hugging Face datasets, data frames, Arrow arrays, arrays of zarr and h5py.

A value is what is stored, dtype included, whatever stands beside it: no other library's formatter is asked, which looks at a whole block.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock._contracts.element import mapped
from penstock.errors import PlanError, RecordError
from penstock.formats.arrow import ColumnForm, Fixed, column_values, columns_of, one_line, pyarrow
from penstock.kernels.library import Array, Ints


def _values_of(column: Any, form: ColumnForm) -> tuple[Any, int | None]:
    """Return the values of a column of Arrow, and the first row with a null in place of a number: NumPy has none. Other nulls are None."""
    if form.form in ("str", "bytes"):
        return column.to_pylist(), None
    found = column_values(column, form)
    rows = np.arange(len(column))
    null = found.null_at(rows) if form.form in ("array", "ragged") else None
    if null is not None:
        return [], null[0]
    return found.array if isinstance(found, Fixed) and found.nulls is None else found.take(rows), None


class DatasetRows:
    """Reads rows of a Hugging Face dataset with a format of NumPy, PyTorch or Arrow out of its table. Read-only; from any thread.

    Features that are decoded, such as images, and a format with arguments are asked of the dataset, one row at a time.
    """

    def __init__(self, dataset: Any) -> None:
        form, decodes = dataset.format, sys.modules["datasets"].features.features.require_decoding
        self._dataset, self._is_torch = dataset, form["type"] == "torch"
        self._names = list(dataset.column_names if form["output_all_columns"] else form["columns"])
        asked = [name for name in self._names if form["format_kwargs"] or decodes(dataset.features[name])]
        kind = None if form["type"] in ("arrow", "pandas", "polars") else form["type"]
        self._asked = dataset.select_columns(asked).with_format(kind, **form["format_kwargs"]) if asked else None
        self._data = dataset.data.select([name for name in self._names if name not in asked])
        schema = self._data.schema
        shapes = {name: getattr(dataset.features[name], "shape", None) for name in schema.names}  # of an Array2D to Array5D
        self._kinds = {name: _fixed_lists(schema.field(name).type.storage_type, shape) for name, shape in shapes.items() if shape}
        declared = pyarrow()[0].schema([(field.name, self._kinds.get(field.name, field.type)) for field in schema])
        self._forms = columns_of(declared, None, "from_source(Dataset)") if len(schema) else ()
        self._mapping = None if dataset._indices is None else dataset._indices.column(0).to_numpy()

    def __reduce__(self) -> tuple[Any, ...]:
        return DatasetRows, (self._dataset,)

    def __call__(self, indices: list[int]) -> list[Any]:
        """Return a dict for each index.

        Raises:
            RecordError: a number is null, or an array has another shape than its feature.
        """
        if not indices:
            return []
        rows = indices if self._mapping is None else self._mapping[indices].tolist()
        is_run = rows == list(range(rows[0], rows[0] + len(rows)))
        part = self._data.fast_slice(rows[0], len(rows)) if is_run else self._data.fast_gather(rows)
        table = part.combine_chunks()
        columns: dict[str, Any] = {}
        for form in self._forms:
            name = form.name
            values, null = _values_of(self._column(table, name), form)
            if null is not None:
                raise RecordError(
                    f"the column {name!r} is null in row {indices[null]}, or holds a null, and NumPy has no null number",
                    where=f"from_source(Dataset), row {indices[null]}",
                    fix="give the dataset without a format, d.with_format(None), where it is None; or leave it out with on_error=ps.Skip()",
                )
            values = np.array(values) if isinstance(values, np.ndarray) else values  # of its own, not a view of the table
            columns[name] = mapped(values, _tensor, (np.ndarray, np.generic)) if self._is_torch else values
        if self._asked is not None:
            found = [self._asked[index] for index in indices]
            columns |= {name: [row[name] for row in found] for name in self._asked.column_names}
        return [dict(zip(self._names, values, strict=True)) for values in zip(*map(columns.get, self._names), strict=True)]

    def _column(self, table: Any, name: str) -> Any:
        """Return a column of a part of the table, whose arrays are of one shape where their feature says so."""
        kind = self._kinds.get(name)
        try:
            return table[name] if kind is None else _stored(table[name]).cast(kind)
        except pyarrow()[0].ArrowInvalid as error:
            raise RecordError(
                f"the column {name!r} holds an array that has another shape than its feature says: {one_line(error)}",
                where="from_source(Dataset)",
                fix="correct the shape of the feature, such as Array2D((2, 2), 'float32'), or leave it out with on_error=ps.Skip()",
            ) from error


def _fixed_lists(kind: Any, shape: Sequence[int | None]) -> Any:
    """Return the type of arrays of a shape for lists of lists, which may have any length."""
    if not shape:
        return kind
    return pyarrow()[0].list_(_fixed_lists(kind.value_type, shape[1:]), -1 if shape[0] is None else shape[0])


def _stored(column: Any) -> Any:
    """Return what an extension column is stored as, in memory of its own: Arrow casts the lists of all rows in the memory of a part."""
    return column.cast(column.type.storage_type).take(pyarrow()[0].array(np.arange(len(column))))


def _tensor(array: Any) -> Any:
    """Return the tensor of an array or number of NumPy that has one."""
    return sys.modules["torch"].from_numpy(np.asarray(array)) if array.dtype.kind in "biufc" else array


def columns_of_frame(frame: Any) -> Any:
    """Return the columns of a frame of pandas by name, and a frame of another library as an Arrow table.

    Raises:
        PlanError: two columns have one name, or Arrow has no type for the values of one.
    """
    where = f"from_arrays({type(frame).__name__})"
    if not hasattr(frame, "iloc"):
        return _in_arrow(pyarrow()[0].table, frame, getattr(frame, "dtypes", ()), where)
    columns = {name: frame[name] for name in frame.columns}
    if len(columns) < len(frame.columns):
        raise PlanError("two columns have one name", where=where, fix="rename them: df.columns = [...]")
    return columns


def column_array(leaf: Any, where: str) -> Any:
    """Return a column of Arrow or polars, or one of pandas with a dtype that is not NumPy's, as an array.

    Raises:
        PlanError: a number is null, or the values have no conversion.
    """
    pa, _ = pyarrow()
    column = _in_arrow(_chunked, leaf, [getattr(leaf, "dtype", "")], where)
    if hasattr(leaf, "isna") and isinstance(column.type, pa.BaseExtensionType):  # a period or an interval, which are numbers in Arrow
        raise _no_objects(where)
    values, null = _values_of(column, columns_of(pa.schema([(type(leaf).__name__, column.type)]), None, where)[0])
    if null is not None:
        raise PlanError(
            f"row {null} is null, or holds a null, and NumPy has no null number",
            where=where,
            fix="fill it, leave such rows out, or give the values and a column that says which are null",
        )
    if isinstance(values, np.ndarray):
        return values
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _chunked(leaf: Any) -> Any:
    pa, _ = pyarrow()
    return pa.chunked_array(leaf) if hasattr(leaf, "__arrow_c_stream__") else pa.chunked_array([pa.array(leaf)])


def _in_arrow(convert: Callable[[Any], Any], thing: Any, dtypes: Sequence[Any], where: str) -> Any:
    if "Object" in map(str, dtypes):  # of polars, which would give addresses
        raise _no_objects(where)
    try:
        return convert(thing)
    except (pyarrow()[0].ArrowException, TypeError, ValueError) as error:
        raise PlanError(
            f"a {type(thing).__name__} cannot be read as it is: {one_line(error)}",
            where=where,
            fix="give an array of NumPy, or a list to from_source",
        ) from error


def _no_objects(where: str) -> PlanError:
    return PlanError("it holds objects of Python", where=where, fix="give them as a list to from_source")


_GAP_BYTES = 64 << 10  # a shorter gap between two rows is read with them: each read opens a chunk


class StoredRows:
    """The rows of an array of zarr, h5py or dask, read when they are asked for. From any thread."""

    def __init__(self, leaf: Any) -> None:
        self._leaf = leaf
        self.shape, self.dtype, self.ndim, self.nbytes = leaf.shape, leaf.dtype, leaf.ndim, leaf.size * leaf.dtype.itemsize

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process open a dataset of h5py again: its objects cannot be sent."""
        file = getattr(self._leaf, "file", None)
        if file is not None and file.mode != "r":
            where, fix = f"from_arrays, dataset {self._leaf.name}", "open it to read: h5py.File(path, 'r')"
            raise PlanError(f"{file.filename!r} is open to write, so that another process cannot read it", where=where, fix=fix)
        return (StoredRows, (self._leaf,)) if file is None else (_opened, (type(file), file.filename, self._leaf.name))

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: Ints) -> Array:
        """Return new memory. Rows that lie near each other are read with one call."""
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        order = np.argsort(rows)
        gap = 1 + _GAP_BYTES * len(self) // max(1, self.nbytes)
        for members in np.split(order, np.flatnonzero(np.diff(rows[order]) > gap) + 1) if len(rows) else []:
            first = rows[members[0]]
            out[members] = np.asarray(self._leaf[first : rows[members[-1]] + 1])[rows[members] - first]
        return out


def _opened(file: Any, path: str, name: str) -> StoredRows:
    return StoredRows(file(path, "r")[name])
