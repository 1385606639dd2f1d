"""The piece of work: a run of elements with their keys; and what a failing element leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import length_hint
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import LEAF, WEIGHTLESS, Structure, bytes_of, unflatten
from penstock._contracts.policy import Policy
from penstock._contracts.source import ColumnSource, RowFailed, TransientSource
from penstock._contracts.transform import Scratch
from penstock.errors import LengthMismatch

Ints = NDArray[np.int64]
Keys = tuple[Ints, Ints, NDArray[np.uint64]]
"""Epochs, indices and lanes."""


UNLIMITED = 1 << 62
"""The room of a block that is computed whole, whatever it holds."""


LEFT_OUT: Any = object()
"""Stands for an element of a batch inside a leaf that a policy leaves out."""


class EmptyBatch(Exception):
    """Policies left nothing of a batch inside a leaf. Internal: it is left out itself."""


class ElementFailed(Exception):
    """A user's function, or a read, failed on one element of a block. Internal: the engine unwraps it."""

    def __init__(
        self,
        offset: int,
        stage: str,
        error: BaseException,
        policy: Policy | None = None,
        *,
        element: int | None = None,
        whole: bool = False,
    ) -> None:
        super().__init__(offset, stage, error)
        self.offset = offset
        self.stage = stage
        self.error = error
        self.policy = policy  # of the operator; None for the feed's
        self.element = offset if element is None else element  # in the block, where `offset` is that of an input which gave several
        self.whole = whole  # the block failed as one: which element it was is not known
        self.inner: tuple[int, int] | None = None  # step, and number among the elements that its input gave
        self.key: tuple[int, int, int] | None = None
        self.inside_batch = False  # one element of a batch inside the leaf failed, and the block counts batches
        self.of_batch = False  # a step above a batch inside the leaf failed, and what it failed on is a whole batch
        self.final = False  # no policy acts on it (again)
        self.fatal = False  # it ended or stalled its worker process: it is not tried again
        self.step = -1  # of a run of filters, flat_maps and the maps among them, which one failed; -1 below them

    def moved(self, offset: int) -> ElementFailed:
        """Return the same failure at another offset, as the block of a parent counts."""
        out = ElementFailed(offset, self.stage, self.error, self.policy, whole=self.whole)
        out.inside_batch, out.of_batch, out.final = self.inside_batch, self.of_batch, self.final
        return out


class Gathers(Protocol):
    """What rows can be read from."""

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index; when one cannot be read, `len(rows)` tells which."""


_ALIKE = 64  # numbers that are read before one of them is looked at


class _Enough(BaseException):
    """Ends a `gather` in the middle: what it has appended has no room for more. No source may take it for an error of its own."""


class _Bounded(list[Any]):
    """Rows that end a `gather` when they hold more than `room` bytes, behind the element with which they do."""

    __slots__ = ("room",)

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def append(self, row: Any) -> None:
        super().append(row)
        if type(row) not in WEIGHTLESS:
            self.room -= bytes_of(row)
            if self.room < 0:
                raise _Enough

    def extend(self, rows: Iterable[Any]) -> None:
        left, append, room = iter(rows), super().append, self.room
        try:
            for row in left:
                append(row)
                if type(row) is np.ndarray:
                    room -= row.nbytes
                elif type(row) in WEIGHTLESS:
                    break
                else:
                    room -= bytes_of(row)
                if room < 0:
                    raise _Enough
            else:
                return
        finally:
            self.room = room
        self._extend_alike(left)

    def _extend_alike(self, left: Iterator[Any]) -> None:
        """Append behind a number: the next are numbers too, and measuring each would cost as much as reading it."""
        kind, begin = type(self[-1]), -_ALIKE
        while type(self[-1]) is kind and len(self) >= begin + _ALIKE:
            begin = len(self)
            super().extend(islice(left, _ALIKE))
        if type(self[-1]) is not kind:
            self._measure(begin)
            if len(self) == begin + _ALIKE:
                self.extend(left)

    def _measure(self, begin: int) -> None:
        self.room -= sum(map(bytes_of, self[begin:]))
        if self.room < 0:
            raise _Enough

    def __iadd__(self, rows: Iterable[Any]) -> Self:  # type: ignore[misc]  # as a list's own, whose rows may be of any iterable
        self.extend(rows)
        return self


class _Written(list[Any]):
    """Rows that are written where they belong, one after the other while each is still in the cache; the list only counts them."""

    __slots__ = ("kept", "put", "room", "row")

    def __init__(self, put: Callable[[int, Any], int], row: int, room: int) -> None:
        super().__init__()
        self.put, self.row, self.room, self.kept = put, row, room, 0

    def append(self, row: Any) -> None:
        self.extend((row,))

    def extend(self, rows: Iterable[Any]) -> None:
        put, count = self.put, super().append
        for place, row in enumerate(rows, self.row + len(self)):
            self.kept += put(place, row)
            count(None)
            if self.kept > self.room:
                raise _Enough

    def __iadd__(self, rows: Iterable[Any]) -> Self:  # type: ignore[misc]  # as a list's own, whose rows may be of any iterable
        self.extend(rows)
        return self


class Block:
    """Elements with their keys, as rows or as columns, or still to be gathered from an array source.

    A key is (epoch, index, lane): the pass, the number in the source, and what tells apart elements that share both.

    A block may turn out shorter when it is read, and what an operator makes of it may be shorter than it: they stop behind the element
    with which they hold more than `room`. At least one element is there.

    Attributes:
        room: how many bytes it, and what is made of it, may hold before that.
        num_bytes: of its rows, as far as they were read or made for this block: 0 of those that were there before.
        taken: how many inputs it was made of, where one may give several elements, or none; None for all.
    """

    __slots__ = (
        "_column_source",
        "_columns",
        "_progress",
        "_rows",
        "_source",
        "_structure",
        "_transient",
        "epochs",
        "indices",
        "lanes",
        "num_bytes",
        "origins",
        "room",
        "taken",
    )

    def __init__(
        self,
        epochs: Ints,
        indices: Ints,
        lanes: NDArray[np.uint64],
        *,
        rows: list[Any] | None = None,
        source: Gathers | None = None,
        column_source: ColumnSource | None = None,
        transient: TransientSource | None = None,
        columns: tuple[Structure, list[NDArray[Any]]] | None = None,
    ) -> None:
        self.epochs = epochs
        self.indices = indices
        self.lanes = lanes
        self.origins: Ints | None = None  # behind a filter or flat_map: the offset of the input that each element came from
        self.room = UNLIMITED
        self.num_bytes = 0
        self.taken: int | None = None
        self._progress: Any = None  # what grows or shrinks with each element: see `begun`
        self._rows = rows
        self._source = source
        self._column_source = column_source
        self._transient = transient
        self._structure: Structure = LEAF if columns is None else columns[0]
        self._columns: list[NDArray[Any]] | None = None if columns is None else columns[1]

    def __len__(self) -> int:
        return len(self.indices)

    def __reduce__(self) -> tuple[Any, ...]:
        """Cross to another process: with its elements, read now if need be, and without its source."""
        columns = None if self._columns is None else (self._structure, self._columns)
        rows = list(self.rows()) if columns is None and (self._rows is not None or self._source is not None) else None
        return _crossed, (self.epochs, self.indices, self.lanes, rows, columns, self.origins, self.room, self.num_bytes, self.taken)

    def with_rows(self, rows: list[Any], num_bytes: int = 0) -> Block:
        """Return other elements under the same keys; of fewer, those of the first keys."""
        if len(rows) != len(self.indices):
            here = slice(0, len(rows))
            out = Block(self.epochs[here], self.indices[here], self.lanes[here], rows=rows)
        else:
            out = Block(self.epochs, self.indices, self.lanes, rows=rows)
        out.room, out.num_bytes = self.room, num_bytes
        return out

    def with_columns(self, structure: Structure, columns: list[NDArray[Any]]) -> Block:
        """Return other columns under the same keys."""
        out = Block(self.epochs, self.indices, self.lanes, columns=(structure, columns))
        out.room = self.room
        return out

    def select(self, offsets: Any) -> Block:
        """Return the elements at `offsets` (a slice or an int64 array); rows only."""
        rows = self.rows()
        part = rows[offsets] if isinstance(offsets, slice) else [rows[offset] for offset in offsets.tolist()]
        out = Block(self.epochs[offsets], self.indices[offsets], self.lanes[offsets], rows=part)
        out.origins = None if self.origins is None else self.origins[offsets]
        out.room = self.room
        return out

    def rows(self) -> list[Any]:
        """Return the elements one by one, reading or splitting them now if need be.

        Raises:
            ElementFailed: when the source could not read one of them.
        """
        if self._rows is None:
            if self._columns is not None:
                self._rows = split(self._structure, self._columns)
            else:
                self._rows = self._gather()
        return self._rows

    @property
    def unread(self) -> bool:
        """Tell whether the elements are still to be asked of the source one by one."""
        return self._rows is None and self._columns is None and self._source is not None

    def read_into(self, put: Callable[[int, Any], int], row: int) -> int:
        """Read the elements and give each to `put` with its row, from `row` on; return the bytes that `put` says it has kept.

        Raises:
            ElementFailed: when the source could not read one of them.
        """
        written = _Written(put, row, self.room)
        self._fill(written)
        return written.kept

    def let_go(self) -> None:
        """Forget elements that were read or made for this block: an operator has made others of them, and callers still hold the block."""
        if self.num_bytes and self._columns is None:
            self._rows, self._progress = [], None

    def each(self) -> Iterator[Any]:
        """Iterate over the elements so that `begun` tells how far it is. Free of cost per element: a list's iterator knows what is left."""
        self._progress = left = iter(self.rows())
        return left

    def key_of(self, offset: int) -> tuple[int, int, int]:
        """Return the key of one element."""
        return int(self.epochs[offset]), int(self.indices[offset]), int(self.lanes[offset])

    @property
    def begun(self) -> int | None:
        """The offset of the element that is being read, or was taken from `each` last; None when that is not known. From any thread."""
        progress = self._progress
        if progress is None or isinstance(progress, int):
            return progress
        if isinstance(progress, tuple):
            return int(progress[0] + progress[1][0])
        count = len(progress) if isinstance(progress, list) else len(self) - length_hint(progress) - 1
        return min(max(count, 0), len(self) - 1)

    @property
    def reading(self) -> bool:
        """Tell whether the source is being asked for elements now."""
        return isinstance(self._progress, list)

    def transient(self, field: str) -> bool:
        """Tell whether `each_transient` can read this block, with `field` in working memory."""
        return self._transient is not None and self._rows is None and self._transient.transient_field == field

    def read_transient(self, offset: int, scratch: Scratch) -> Any:
        """Read one element; its bytes are valid until the next call with this scratch.

        Raises:
            ElementFailed: when the source could not read it.
        """
        assert self._transient is not None
        scratch.ahead[0] = 0
        self._progress = offset, scratch.ahead
        try:
            element = self._transient.read_transient(int(self.indices[offset]), scratch, self.indices[offset + 1 :])
        except BaseException as error:
            raise ElementFailed(offset, "read", error) from error
        self._progress = offset
        return element

    def first(self) -> Any:
        """Return the first element of a columnar block, without the others."""
        if self._columns is not None:
            return split(self._structure, [column[:1] for column in self._columns])[0]
        return Block(self.epochs[:1], self.indices[:1], self.lanes[:1], source=self._source).rows()[0]

    @property
    def columnar(self) -> bool:
        """Tell whether `columns` can give whole arrays."""
        return self._rows is None and (self._columns is not None or self._column_source is not None)

    def structure(self) -> Structure:
        """Return the structure of a columnar block's elements."""
        if self._columns is not None or self._column_source is None:
            return self._structure
        return self._column_source.structure()

    def leaf_types(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shape and dtype of each leaf of one element of a columnar block."""
        if self._columns is not None:
            return [(column.shape[1:], column.dtype) for column in self._columns]
        assert self._column_source is not None
        return self._column_source.leaves()

    def columns(self, out: list[NDArray[Any]] | None = None) -> list[NDArray[Any]]:
        """Return one array per leaf, the block's length first; written into `out` when it is given.

        Raises:
            ElementFailed: when the source could not read one of them; `whole` when it does not say which.
        """
        if self._columns is None:
            assert self._column_source is not None
            try:
                return self._column_source.gather_columns(self.indices, out)
            except RowFailed as failed:
                raise ElementFailed(min(failed.row, len(self) - 1), "read", failed.error) from failed.error
            except BaseException as error:
                raise ElementFailed(0, "read", error, whole=True) from error
        if out is None:
            return self._columns
        for target, column in zip(out, self._columns, strict=True):
            np.copyto(target, column)
        return out

    def _gather(self) -> list[Any]:
        source = self._column_source  # where all elements take the same, who made the block has seen to that
        even = self.room >= UNLIMITED or (source is not None and not any(dtype.hasobject for _, dtype in source.leaves()))
        bounded = None if even else _Bounded(self.room)
        rows: list[Any] = [] if bounded is None else bounded
        self._fill(rows)
        if bounded is not None:
            self.num_bytes = self.room - bounded.room
        return rows

    def _fill(self, rows: list[Any]) -> None:
        """Let the source append the elements to `rows`, which may end that."""
        assert self._source is not None
        self._progress = rows
        try:
            self._source.gather(self.indices.tolist(), rows)
        except _Enough:
            here = slice(0, len(rows))
            self.epochs, self.indices, self.lanes = self.epochs[here], self.indices[here], self.lanes[here]
        except BaseException as error:
            raise ElementFailed(min(len(rows), len(self) - 1), "read", error) from error
        self._progress = None
        if len(rows) != len(self):
            raise ElementFailed(min(len(rows), len(self) - 1), "read", _miscounted(len(rows), len(self)))


def _crossed(
    epochs: Ints, indices: Ints, lanes: NDArray[np.uint64], rows: list[Any] | None, columns: Any, origins: Ints | None, *others: Any
) -> Block:
    out = Block(epochs, indices, lanes, rows=rows, columns=columns)
    out.origins = origins
    out.room, out.num_bytes, out.taken = others
    return out


def _miscounted(num_rows: int, num_asked: int) -> LengthMismatch:
    return LengthMismatch(
        f"the source was asked for {num_asked} elements at once and gave {num_rows}",
        where="gather() of the source",
        fix="let it append one element per index, or raise",
    )


def split(structure: Structure, columns: Sequence[NDArray[Any]]) -> list[Any]:
    """Return the elements that lie in arrays, one leaf each."""
    if structure is LEAF:
        return list(columns[0])
    if structure[0] == "dict" and all(child is LEAF for child in structure[2]):
        keys = structure[1]
        return [dict(zip(keys, leaves, strict=True)) for leaves in zip(*columns, strict=True)]
    return [unflatten(structure, iter(leaves)) for leaves in zip(*columns, strict=True)]


def part_of(block: Block, begin: int, end: int) -> Block:
    """Return what came of the inputs begin..end of a block."""
    if block.origins is None:
        return block.select(slice(begin, end))
    first, last = np.searchsorted(block.origins, (begin, end)).tolist()
    out = block.select(slice(first, last))
    assert out.origins is not None
    out.origins = out.origins - begin
    return out
