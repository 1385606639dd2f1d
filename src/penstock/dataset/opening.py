"""Where datasets begin: functions that open a source."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from penstock._contracts.arguments import whole_number
from penstock._contracts.source import IndexedSource, StreamSource
from penstock._plan import check
from penstock._plan import node as plan
from penstock.dataset.builder import Dataset
from penstock.errors import PlanError

__all__ = [
    "from_arrays",
    "from_generator",
    "from_source",
    "from_stream",
    "read_files",
    "read_images",
    "read_list",
]


def _read(source: IndexedSource) -> Dataset:
    return Dataset(plan.Read(source=source))


def from_arrays(tree: Any) -> Dataset:
    """Read elements from arrays: a tree of arrays whose first dimensions are equal; element i is the tree of their rows i.

    Memory-mapped arrays are read as they are used. Whole blocks are gathered at once.

    Raises:
        PlanError: when lengths differ or a field is no array.
    """
    from penstock.sources import ArraySource

    return _read(ArraySource(tree))


def from_source(source: Any) -> Dataset:
    """Read elements from anything with `__len__` and `__getitem__`: a list, a torch map-style dataset, a Hugging Face dataset.

    It is read from several threads at once. One with `__getitems__(indices) -> list` is asked for whole blocks. A `pyarrow.Table` or
    `RecordBatch` is read by rows: {column: value} as `read_parquet` gives them. An object that satisfies `IndexedSource` is used as it is.
    """
    from penstock.sources import indexed_source

    return _read(indexed_source(source))


def from_generator(fn: Callable[[], Any], *, fast_forward: bool = False, length: int | None = None) -> Dataset:
    """Read elements from `fn()`, a new iterator for each pass. One thread reads it, ahead of the consumer.

    Args:
        fn: a callable without arguments.
        fast_forward: allow a resume to read and drop what was already delivered; without it the feed has no state.
        length: how many elements a pass has, if known: then another number is an error.
    """
    from penstock.sources import GeneratorSource

    forward = check.flag_argument(fast_forward, "fast_forward", "from_generator")
    source: StreamSource = GeneratorSource(fn, fast_forward=forward, length=_plain(length))
    return Dataset(plan.ReadStream(source=source))


def from_stream(iterable: Iterable[Any], *, length: int | None = None, fast_forward: bool = False) -> Dataset:
    """Read elements from an object that can only be iterated: each pass is `iter(iterable)`. One thread reads it, ahead of the consumer.

    An object with `state_dict()` and `load_state_dict(state)`, such as a Hugging Face IterableDataset or a torchdata Loader, makes resuming
    exact and cheap: the feed notes its state once per block that it reads, and a resume loads the last note and drops the few elements
    behind it. The state must be JSON-able and exact to the element, and `load_state_dict` must act on the next `iter` only. One feed at a
    time can read such an object. An object with `set_epoch(number)` is given the number of each pass, from 0 in each feed.

    Args:
        iterable: a torch or Hugging Face IterableDataset, or anything with `__iter__` that begins again each time.
        length: how many elements a pass has, if known: then another number is an error.
        fast_forward: allow a resume to read and drop what was already delivered when the object has no states.

    Raises:
        PlanError: when it cannot be iterated.
    """
    from penstock.sources import stream_source

    forward = check.flag_argument(fast_forward, "fast_forward", "from_stream")
    return Dataset(plan.ReadStream(source=stream_source(iterable, fast_forward=forward, length=_plain(length))))


def read_list(
    list_file: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    *,
    label: bool = True,
    num_classes: int | None = None,
    duplicates: str = "keep",
) -> Dataset:
    """Read the files of a list: lines `path label` give elements {"path": str, "data": bytes, "label": int}.

    Args:
        list_file: text, UTF-8; blank lines and lines that begin with # are skipped.
        root: the folder that relative paths start from; the list's own folder by default.
        label: False for lines that are only paths.
        num_classes: refuse labels outside 0..num_classes-1 here, rather than in an assertion on the accelerator.
        duplicates: "keep" (they are counted in `print(ds)`), "drop" or "error".

    Raises:
        ListFileError: with the number of the first bad line.
    """
    from penstock.sources import ListSource

    labelled = check.flag_argument(label, "label", "read_list")
    for path, name in ((list_file, "list_file"), ("" if root is None else root, "root")):
        if not isinstance(path, (str, os.PathLike)):
            raise PlanError(f"{name}={path!r:.60} is no path", where="read_list()", fix=f"give {name} a str or a pathlib.Path")
    if num_classes is not None:
        num_classes = check.count_argument(num_classes, "num_classes", "read_list", least=1)
    return _read(ListSource(list_file, root, label=labelled, num_classes=num_classes, duplicates=duplicates))


def read_images(folder: str | os.PathLike[str]) -> Dataset:
    """Read a folder with one sub-folder of images per class: {"path": str, "data": bytes, "label": int}, classes in sorted order."""
    from penstock.sources import ImageFolderSource

    return _read(ImageFolderSource(folder))


def read_files(pattern: Any) -> Dataset:
    """Read whole files that match a glob pattern (`**` for any depth) or a list of patterns: {"path": str, "data": bytes}, sorted."""
    from penstock.sources import FilesSource

    return _read(FilesSource(pattern))


def _plain(number: Any) -> Any:
    """Return a whole number as an int, and anything else as it is: the source knows what to say of it."""
    whole = whole_number(number)
    return number if whole is None else whole
