"""What the engine asks of a source of elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.transform import Scratch

Leaves: TypeAlias = list[tuple[tuple[int, ...], np.dtype[Any]]]
"""Shape and dtype of each leaf of an element."""


@runtime_checkable
class IndexedSource(Protocol):
    """A source whose elements can be read in any order, from any thread, at the same time."""

    def __len__(self) -> int:
        """Count the elements; constant for the life of the source."""

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index to `rows`, in the order of `indices` (each in 0..len-1, plain ints).

        When an element cannot be read, raise: `len(rows)` then tells the engine which one it was.
        """

    def describe(self, index: int) -> str:
        """Say in a few words where element `index` comes from, such as 'line 8 of train.txt (cat/0007.jpg)'."""

    def fingerprint(self) -> dict[str, Any]:
        """Return a small JSON-able record that changes when the data change: names, sizes, counts, hashes.

        Never `repr` of an object, never a time stamp. May read a bounded sample of the data; the caller caches it.
        """

    def label(self) -> str:
        """Say in one line what this is, for `print(ds)`, such as "read_list('train.txt', 4000 elements)"."""


@runtime_checkable
class SubscriptedSource(IndexedSource, Protocol):
    """An indexed source that looks into an object: elements of many such sources can be read in turn, without a call for each source."""

    def subscripted(self) -> Any | None:
        """Return the object whose `obj[index]` is element `index`; None when several are better asked for at once."""

    def explained(self, index: int, error: Exception) -> Exception:
        """Return what is to be raised for an exception of `obj[index]`."""


class RowFailed(Exception):
    """Raised by `gather_columns` to say which row it was: the rows before it can be gathered, and `error` is what is raised for it.

    Any other exception of `gather_columns` says that some row cannot be read, and they are asked for one by one.
    """

    def __init__(self, row: int, error: Exception) -> None:
        super().__init__(row, error)
        self.row, self.error = row, error


@runtime_checkable
class ColumnSource(IndexedSource, Protocol):
    """An indexed source over arrays: whole blocks are gathered with one call per field."""

    def leaves(self) -> Leaves:
        """Return shape and dtype of one element's leaves, in the order of `element.flatten`."""

    def structure(self) -> Any:
        """Return the structure that `element.unflatten` needs (as `element.flatten` gave it)."""

    def gather_columns(self, indices: NDArray[np.int64], out: list[NDArray[Any]] | None) -> list[NDArray[Any]]:
        """Gather rows `indices` of every leaf: into `out` (arrays of shape (n, *leaf shape)) or into new arrays.

        When an element cannot be read, raise `RowFailed`, or any exception when it is not known which one it was.
        """


@runtime_checkable
class GroupedSource(IndexedSource, Protocol):
    """An indexed source whose elements lie in groups: row groups, or the files of a dataset in shards."""

    def group_starts(self) -> NDArray[np.int64]:
        """Return int64 [groups + 1]: the index of the first element of each group, then the length. The fingerprint changes with it."""


@runtime_checkable
class ChunkedSource(GroupedSource, Protocol):
    """A grouped source that decodes whole groups: one element of a group costs as much as all of it."""

    def groups_kept(self) -> int:
        """Return about how many decoded groups it keeps in memory."""


@runtime_checkable
class TransientSource(IndexedSource, Protocol):
    """An indexed source of bytes that can read them into working memory, for an operator that turns them into something else at once."""

    @property
    def transient_field(self) -> str:
        """The field whose bytes may lie in working memory."""

    def read_transient(self, index: int, scratch: Scratch, ahead: NDArray[np.int64]) -> dict[str, Any]:
        """Return element `index` as `gather` does, its `transient_field` a memoryview that is valid until the next call with `scratch`.

        The elements `ahead`, if any, will be read next: a source whose reads wait may begin to fetch them. One that reads some of them at
        once counts up `scratch.ahead[0]`, 0 for this element, as it comes to them.
        """


@runtime_checkable
class DistantSource(IndexedSource, Protocol):
    """An indexed source whose every call waits, for many elements no longer than for one."""

    @property
    def rows_at_once(self) -> int:
        """How many elements should be asked for at once, at least; 1 when it makes no difference."""


@runtime_checkable
class NumberedSource(IndexedSource, Protocol):
    """An indexed source that knows whole numbers of its elements without reading them: operators with `by=` take them by name."""

    def known_numbers(self) -> Mapping[str, ColumnSource]:
        """Return a source of int64 scalars, as long as this one, for each name. Nothing is looked up yet."""


@runtime_checkable
class StreamSource(Protocol):
    """A source that can only be read from its beginning, one element after the other."""

    def open(self, pass_number: int) -> Iterator[Any]:
        """Start pass `pass_number` (from 0). Raises SourceError when a second pass is not possible."""

    def declared_length(self) -> int | None:
        """Return the number of elements that a pass promises, or None when it promises nothing."""

    def can_fast_forward(self) -> bool:
        """Tell whether a resume may read and drop elements again to get to its position."""

    def describe(self, index: int) -> str:
        """Say where element `index` of a pass comes from."""

    def fingerprint(self) -> dict[str, Any]:
        """Return what is known of the data without reading it."""

    def label(self) -> str:
        """Say in one line what this is."""


@runtime_checkable
class StatefulStream(StreamSource, Protocol):
    """A stream that can say where it is, and go on there: a resume reads little again, and nothing of earlier passes."""

    def state(self) -> Any:
        """Return where the open pass is: behind the element that it gave last. JSON-able, and a copy that later reading does not change.

        Called from the thread that reads. Raises StateUnavailable when there is no such state; the reading goes on.
        """

    def open_at(self, pass_number: int, state: Any) -> Iterator[Any]:
        """Start pass `pass_number` behind a place that `state` said in it."""


@runtime_checkable
class IndependentPasses(StatefulStream, Protocol):
    """A stream with states, no pass of which depends on how an earlier one ended: a resume does not read that to its end."""

    def open_next(self, pass_number: int, state: Any) -> Iterator[Any]:
        """Start pass `pass_number`; `state` was said in an earlier one."""


@runtime_checkable
class FileSource(Protocol):
    """A source that reads files of this machine: who has to know whether they stay as they are asks for them."""

    def input_files(self) -> Iterator[str]:
        """Give the full path of each file, once, in the same order each time."""


@runtime_checkable
class SplitSource(FileSource, IndexedSource, Protocol):
    """A source of files, each element of which depends on one file and on nothing of the others."""

    def by_file(self) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Say which elements are of which file.

        Returns:
            int64 [files + 1]: the first element of each file, in the order of `input_files`, then the length. And a JSON-able record of
            what else the elements depend on, such as options: equal for other files that are read in the same way.
        """
