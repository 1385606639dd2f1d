"""How the rows of a batch become one element: stacked, padded, joined as ragged arrays, or packed into rows of one length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import (
    LEAF,
    ArraySpec,
    EmptyList,
    Structure,
    array_of,
    entries_of,
    is_masked,
    leaf_paths,
    sizes_of,
    spec_of,
    unflatten,
)
from penstock._ops.stack import BatchSpec, Names, columns_of_rows, flaw_of, let_go, stack_column, stack_rows, words_of
from penstock.errors import SpecError

_OBJECT = np.dtype(object)
_ONLY_SIZES = "give both the same number of dimensions in a map before padded_batch; only sizes may differ"
_ONLY_FIRST = (
    "make them equal in a map before ragged_batch, but for the first dimension of its ragged fields; images of several sizes are for "
    "padded_batch, or for batch(n, collate_fn=list), which gives a list of elements as they are"
)
_AT_ONCE = 1 << 20  # bytes of padding that are written before the items


class Collation(Protocol):
    """How rows are collated. Frozen; shared by all workers."""

    @property
    def words(self) -> str:
        """Say it for `explain`."""

    @property
    def in_place(self) -> bool:
        """Tell whether the shape of a batch is known from one of its rows, so that workers may write theirs before the others are done."""

    def collate(self, rows: list[Any], names: Names) -> Any:
        """Make one element of all rows of a batch (at least one). Raises SpecError when two of them do not fit each other.

        `rows` may be emptied once all of them fit: then each is let go when it is copied, and large ones do not lie in memory twice.
        """


@dataclass(frozen=True, slots=True)
class Stack:
    """Equal shapes along a new first dimension."""

    words: ClassVar[str] = "rows written straight into recycled batch slots"
    in_place: ClassVar[bool] = True

    def collate(self, rows: list[Any], names: Names) -> Any:
        return stack_rows(rows, names)


@dataclass(frozen=True, slots=True)
class Collate:
    """What a function of the user's makes of a list of rows."""

    words: ClassVar[str] = "batches made by collate_fn"
    in_place: ClassVar[bool] = False

    fn: Callable[[list[Any]], Any]

    def collate(self, rows: list[Any], names: Names) -> Any:
        return self.fn(rows)


@dataclass(frozen=True, slots=True)
class Pad:
    """Leaves that differ in length, each dimension padded to the longest of the batch or to what `shapes` says.

    `shapes` and `values` are None or a tree of the elements' structure, `values` also one for all leaves. A shape may hold None or -1 for
    "the longest of this batch". A key that is left out, or None, has the default.
    """

    words: ClassVar[str] = "padded batches"
    in_place: ClassVar[bool] = False

    shapes: Any = None
    values: Any = None
    multiple: int = 1
    """To which the first dimension that is padded is rounded up, where no shape says it."""

    def collate(self, rows: list[Any], names: Names) -> Any:
        spec = BatchSpec(rows[0], lambda: names(0))
        shapes = leaves_of(self.shapes, spec.structure, "padded_shapes")
        values = leaves_of(self.values, spec.structure, "padding_values")
        columns = columns_of_rows(rows, spec, names, lambda number, found, leaf: len(found.shape) == len(leaf.shape), _ONLY_SIZES)
        shaped = [
            _padded(number, column, spec, shapes[number], values[number], names, self.multiple) for number, column in enumerate(columns)
        ]
        rows.clear()
        for column, (array, fill) in zip(columns, shaped, strict=True):
            _pad_into(array, column, fill)
        return unflatten(spec.structure, (array for array, _ in shaped))


@dataclass(frozen=True, slots=True)
class Ragged:
    """Leaves of `fields` joined along their first dimension, which may differ; the others stacked.

    A field is a key of the elements' dict, or a place in their tuple or list; None stands for every leaf that has a first dimension. A
    joined leaf is {"values": all rows one after the other, "row_splits": int64 array of n + 1 borders in it}.
    """

    words: ClassVar[str] = "ragged batches"
    in_place: ClassVar[bool] = False

    fields: tuple[str | int, ...] | None = None

    def collate(self, rows: list[Any], names: Names) -> Any:
        spec = BatchSpec(rows[0], lambda: names(0))
        ragged = self._ragged_leaves(spec, names)

        def fits(number: int, found: ArraySpec, leaf: ArraySpec) -> bool:
            free = 1 if ragged[number] else 0
            return len(found.shape) == len(leaf.shape) and found.shape[free:] == leaf.shape[free:]

        columns = columns_of_rows(rows, spec, names, fits, _ONLY_FIRST)
        rows.clear()
        out = [(_join if ragged[number] else stack_column)(column, spec.leaves[number]) for number, column in enumerate(columns)]
        return unflatten(spec.structure, iter(out))

    def _ragged_leaves(self, spec: BatchSpec, names: Names) -> list[bool]:
        """Tell of each leaf whether it is joined."""
        if self.fields is None:
            return [bool(leaf.shape) for leaf in spec.leaves]
        tops = _tops(spec.structure)
        for field in self.fields:
            if field not in tops:
                raise SpecError(
                    f"ragged names the field {field!r}, but the element is {words_of(spec.structure)}",
                    where=f"stage 'ragged_batch', element {names(0)}",
                    fix="name keys of the element's dict, or places in its tuple; leave ragged out to join every array",
                )
        for top, leaf, path in zip(tops, spec.leaves, leaf_paths(spec.structure), strict=True):
            if top in self.fields and not leaf.shape:
                raise SpecError(
                    f"{path} is {leaf}, which has no first dimension to join along",
                    where=f"stage 'ragged_batch', element {names(0)}",
                    fix="name only fields that are arrays in ragged=; numbers and texts are stacked",
                )
        return [top in self.fields for top in tops]


def _tops(structure: Structure) -> list[Any]:
    """Return the key or place in the whole element that each leaf belongs to; None for a bare leaf."""
    if structure is LEAF:
        return [None]
    return [key for key, child in zip(structure[1], structure[2], strict=True) for _ in leaf_paths(child)]


def _join(column: list[Any], leaf: ArraySpec) -> dict[str, NDArray[Any]]:
    splits = np.zeros(len(column) + 1, np.int64)
    np.cumsum([len(item) for item in column], out=splits[1:])
    values = np.empty((int(splits[-1]), *sizes_of(leaf)[1:]), leaf.dtype)
    borders = splits.tolist()
    for row, item in let_go(column):
        values[borders[row] : borders[row + 1]] = item
    return {"values": values, "row_splits": splits}


def _padded(
    number: int,
    column: list[Any],
    spec: BatchSpec,
    wanted: Sequence[int | None] | None,
    value: Any,
    names: Names,
    multiple: int,
) -> tuple[NDArray[Any], Any]:
    """Return an array for a padded leaf, and what is to stand where no element does."""
    leaf = spec.leaves[number]
    found = [sizes_of(spec_of(item)) for item in column]
    longest = tuple(max(sizes) for sizes in zip(*found, strict=True)) if leaf.shape else ()
    if wanted is not None:
        longest = _fit(number, wanted, found, longest, spec, names)
    elif longest:
        longest = (-(-longest[0] // multiple) * multiple, *longest[1:])
    return np.empty((len(column), *longest), leaf.dtype), _fill(number, value, spec) if leaf.shape else None


def _pad_into(array: NDArray[Any], column: list[Any], fill: Any) -> None:
    at_once = array.ndim > 1 and array.nbytes <= _AT_ONCE
    if at_once:
        array[...] = fill
    for row, item in let_go(column):
        if array.ndim > 1 and not at_once:
            array[row] = fill  # now: its pages take the place of the items before
        corner: tuple[int | slice, ...] = (row, *(slice(0, size) for size in sizes_of(spec_of(item))))
        array[corner] = item


def _fill(number: int, value: Any, spec: BatchSpec) -> Any:
    dtype = spec.leaves[number].dtype
    if value is None:
        return None if dtype == _OBJECT else 0
    fill = fill_for(value, dtype)
    if fill is None:
        path = leaf_paths(spec.structure)[number] or "the element"
        raise SpecError(
            f"padding_values gives {path} {value!r:.60}, which {dtype} does not hold as it is",
            where="padded_batch()",
            fix="give a value of the field's dtype, with a tree like the element where fields differ; or cast the field in a map before",
        )
    return fill


def _fit(
    number: int,
    wanted: Sequence[int | None],
    found: list[tuple[int, ...]],
    longest: tuple[int, ...],
    spec: BatchSpec,
    names: Names,
) -> tuple[int, ...]:
    path = leaf_paths(spec.structure)[number] or "the element"
    if len(wanted) != len(longest):
        raise SpecError(
            f"padded_shapes gives {path} {len(wanted)} dimensions, but it has {len(longest)}",
            where=f"stage 'padded_batch', element {names(0)}",
            fix="give one size per dimension, None for the longest of the batch",
        )
    sizes = tuple(size if want in (None, -1) else int(want) for want, size in zip(wanted, longest, strict=True))
    for row, shape in enumerate(found):
        if any(have > size for have, size in zip(shape, sizes, strict=True)):
            raise SpecError(
                f"{path} has shape {list(shape)}, longer than the padded shape {list(sizes)}",
                where=f"stage 'padded_batch', element {names(row)}",
                fix="cut it in a map before padded_batch, or give a larger padded_shapes",
            )
    return sizes


# -- padding ----------------------------------------------------------------------------------------------------------------------

_NUMBERS = "biufc"


def fill_for(value: Any, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return a padding value as one item of `dtype`, or None when the dtype does not hold it as it is.

    A float may be rounded to the width of the dtype's floats. The number 0 stands for the empty value of a dtype that is none of numbers.
    """
    if dtype == _OBJECT:
        fill = np.empty((), dtype)
        fill[()] = value
        return fill
    given = np.asarray(value)
    if given.ndim or is_masked(value):
        return None
    if given.dtype.kind not in _NUMBERS and type(value) is not int:  # NumPy makes objects of ints beyond 64 bits
        return _other(given, dtype)
    if dtype.kind in _NUMBERS or (dtype.kind == "V" and dtype.type is not np.void):  # such as bfloat16, of another package
        return _number(given, dtype)
    return np.zeros((), dtype) if given.item() == 0 else None


def _number(given: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    if given.dtype.kind == "c" and dtype.kind in "biuf":
        return None
    try:
        with np.errstate(all="ignore"):
            made = given.astype(dtype)
    except OverflowError:
        return None
    if given.dtype.kind in "fc" and np.asarray(0.5).astype(dtype) == 0.5:
        held = np.isfinite(made) == np.isfinite(given)
    else:
        held = made.item() == given.item()  # as Python's numbers: NumPy compares an int with a float rounded
    return made if held else None


def _other(given: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    if given.dtype.kind != dtype.kind and (given.dtype.kind, dtype.kind) != ("U", "T"):
        return None
    try:
        made = given.astype(dtype)
        same = bool(made == given)
    except (TypeError, ValueError, OverflowError):  # a record of other fields, a span of no fixed length
        return None
    return made if same or (dtype.kind in "mM" and np.isnat(given) and np.isnat(made)) else None


def leaves_of(given: Any, structure: Structure, argument: str, path: str = "") -> list[Any]:
    """Return the padded shape, or the padding value, of each leaf; None for the default: of a key that is left out, too.

    A value in the place of a dict, tuple or list is that of all its leaves.

    Raises:
        SpecError: `given` has another structure.
    """
    if given is None:
        return [None] * len(leaf_paths(structure))
    if argument == "padding_values" and not isinstance(given, (dict, list, tuple)):
        return [given] * len(leaf_paths(structure))
    if structure is LEAF:
        if argument == "padding_values" or not _is_shape(given):
            raise _refusal(given, structure, argument, path)
        return [given]
    kind, keys, children = structure
    _check_keys(given, keys, structure, argument, path)
    parts = map(given.get, keys) if kind == "dict" else given
    return [
        leaf
        for key, part, child in zip(keys, parts, children, strict=True)
        for leaf in leaves_of(part, child, argument, f"{path}[{key!r}]")
    ]


def _is_shape(given: Any) -> bool:
    return isinstance(given, (tuple, list)) and not any(isinstance(size, (dict, list, tuple)) for size in given)


def _check_keys(given: Any, keys: Any, structure: Structure, argument: str, path: str) -> None:
    """Refuse other names than the elements have."""
    if structure[0] != "dict":
        if not isinstance(given, (tuple, list)) or len(given) != len(keys):
            raise _refusal(given, structure, argument, path)
        return
    if not isinstance(given, dict):
        raise _refusal(given, structure, argument, path)
    unknown = [f"{path}[{key!r}]" for key in given if key not in keys]
    if unknown:
        raise SpecError(
            f"{argument} names {', '.join(unknown)}, which the elements do not have",
            where="padded_batch()",
            fix=f"give the structure of one element: {path or 'it'} is {words_of(structure)}",
        )


def _refusal(given: Any, structure: Structure, argument: str, path: str) -> SpecError:
    thing = "shape" if argument == "padded_shapes" else "value"
    return SpecError(
        f"{argument} gives {path or 'the element'} {given!r:.60}, but it is {'one array' if structure is LEAF else words_of(structure)}",
        where="padded_batch()",
        fix=f"give a dict for a dict, a tuple or list of as many entries for a tuple or list, and one {thing} for an array",
    )


# -- packing ----------------------------------------------------------------------------------------------------------------------

Row = dict[str, NDArray[Any]]

_RESERVED = ("segment_ids", "positions")
_OF_NUMBER = -2
_NUMBER_TYPES = (bool, int, float, complex, np.generic, np.ndarray)


def sequence_length(element: Any) -> int:
    """Return the length of a sequence: an array or list of one dimension, or a dict of such ones of equal lengths, and of numbers.

    Raises:
        SpecError: it is neither, or a part of it is masked.
    """
    fields = entries_of(element)
    if fields is None:
        sizes = {_size(element)}
    else:
        sizes = set(map(_size, fields.values())) - {_OF_NUMBER} if fields.keys().isdisjoint(_RESERVED) else set()
    if len(sizes) == 1 and (size := sizes.pop()) >= 0:
        return size
    raise SpecError(
        f"{_shown(element)} cannot be packed",
        where="pack_sequences()",
        fix="give one array of one dimension, or a dict of such arrays of equal lengths and of numbers "
        "(none masked, none named segment_ids or positions)",
    )


def _size(value: Any) -> int:
    """Return the length of what has one dimension, or _OF_NUMBER; -1 of what cannot be packed."""
    array = _array(value)
    if isinstance(array, np.ndarray) and array.ndim == 1 and not is_masked(array):
        return len(array)
    is_number = isinstance(array, _NUMBER_TYPES) and not np.ndim(array) and not is_masked(array)
    return _OF_NUMBER if is_number and np.asarray(array).dtype.kind not in "OSTU" else -1


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


def pack_rows(length: int, padding_value: Any, positions: str) -> Callable[[tuple[Any, ...], Any], Row]:
    """Return the function that makes a packed row of sequences.

    The row is a dict of the sequences' fields ("tokens" for bare arrays), each [length] with `padding_value` behind the last token, and
    `segment_ids` int32 [length] (1, 2, ... per sequence, 0 for padding) and `positions` int32 [length] (0, 1, ... in each sequence's part,
    or with "document" from the beginning of the sequence).
    """
    counted = np.arange(length, dtype=np.int32)
    fills: dict[tuple[str, np.dtype[Any]], NDArray[Any]] = {}

    def pack(values: tuple[Any, ...], layout: list[tuple[int, int]] | None) -> Row:
        sequences = [_fields(value) for value in values]
        spec = {name: _dtype_of(name, sequences) for name in sequences[0]}
        _check_padding_names(padding_value, spec)
        row = {name: np.empty(length, dtype) for name, dtype in spec.items()}
        segments, places = np.zeros(length, np.int32), np.zeros(length, np.int32)
        start = 0
        for number, fields in enumerate(sequences):
            begin, end = (0, len(next(iter(fields.values())))) if layout is None else layout[number]
            stop = start + end - begin
            _check_fields(spec, fields)
            for name, array in row.items():
                array[start:stop] = fields[name][begin:end]
            segments[start:stop] = number + 1
            places[start:stop] = counted[: stop - start]
            if positions == "document":
                places[start:stop] += begin
            start = stop
        if start < length:
            for name, dtype in spec.items():
                if (name, dtype) not in fills:
                    value = padding_value.get(name, 0) if isinstance(padding_value, dict) else padding_value
                    fills[name, dtype] = _fill_row(name, dtype, value)
                row[name][start:] = fills[name, dtype]
        return {**row, "segment_ids": segments, "positions": places}

    return pack


@dataclass(frozen=True, slots=True)
class Pack:
    """A packed row of (sequence, tokens that it is known to have, begin, end): its part from begin to end; all of it where end is -1."""

    words: ClassVar[str] = "packed rows"
    in_place: ClassVar[bool] = False

    length: int
    padding_value: Any
    positions: str

    def collate(self, rows: list[Any], names: Names) -> Any:
        for number, (sequence, known, _, _) in enumerate(rows):
            found = sequence_length(sequence)
            if found != known:
                raise SpecError(
                    f"{names(number)} has {found} tokens, and measure() has found {known}",
                    where="pack_sequences(by=...)",
                    fix="put measure() behind the maps that change lengths, or measure again into a new folder; use Skip() "
                    "in place of Replace(), which gives a sequence of another length",
                )
        layout = [(begin, known if end < 0 else end) for _, known, begin, end in rows]
        return pack_rows(self.length, self.padding_value, self.positions)(tuple(row[0] for row in rows), layout)


def places_in_use(row: Row) -> tuple[int, int]:
    """Return how many tokens a packed row holds, and how many it has room for."""
    segments = row["segment_ids"]
    return int(np.count_nonzero(segments)), len(segments)


def _fields(value: Any) -> dict[str, NDArray[Any]]:
    fields = entries_of(value)
    if fields is None:
        return {"tokens": _array(value)}
    arrays = {name: _array(one) for name, one in fields.items()}
    for name in [name for name, array in arrays.items() if not getattr(array, "ndim", 0)]:
        arrays[name] = np.full(max(map(np.size, arrays.values())), arrays[name])  # a number's size is 1
    return arrays


def _dtype_of(name: str, sequences: list[dict[str, NDArray[Any]]]) -> np.dtype[Any]:
    """Return the dtype of the first sequence's field, or of the first that is no empty list."""
    arrays = [fields[name] for fields in sequences if name in fields]
    return next((array for array in arrays if type(array) is not EmptyList), arrays[0]).dtype


def _check_padding_names(given: Any, spec: dict[str, np.dtype[Any]]) -> None:
    if isinstance(given, dict) and (unknown := [other for other in given if other not in spec]):
        raise SpecError(
            f"padding_value names {unknown[0]!r}, and the sequences have {_words(spec)}",
            where="pack_sequences()",
            fix="name the fields of the sequences",
        )


def _fill_row(name: str, dtype: np.dtype[Any], padding_value: Any) -> NDArray[Any]:
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
    fields = entries_of(element)
    if fields is not None:
        return "a dict of " + (", ".join(f"{name}: {_shown(value)}" for name, value in fields.items()) or "nothing")
    element = _array(element)
    if isinstance(element, list) and array_of(element) is not None:
        return flaw_of(element)[0].removeprefix("is ")
    if isinstance(element, np.ndarray):
        return f"a{' masked' if is_masked(element) else 'n'} array {element.dtype}{list(element.shape)}"
    return f"a {type(element).__name__}"
