"""The indices of all files of a source; of many files in one catalogue, in the cache folder, so that none is opened at the start."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage import Storage
from penstock._storage.local import LocalStorage
from penstock.errors import RecordError, SourceError
from penstock.formats.index import is_index
from penstock.formats.indices import Indices, catalogue_parts, joined, read_catalogue
from penstock.sources.index_places import cached_index, rebuilt_mark, user_folder
from penstock.sources.indexing import TICK_NS, open_indices, published
from penstock.sources.paths import FileNames, shown
from penstock.sources.reading import read_file
from penstock.sources.record_format import RecordFormat

__all__ = ["open_all"]

_FEWEST_FILES = 256
_MOST_BYTES = 256 << 20
"""Where files have so many records, opening their indices one by one costs little beside reading them."""


def open_all(storage: Storage, format: RecordFormat, caller: str) -> Indices:
    """Return the indices of all files: from the catalogue those whose size and time are as they were, else as `open_indices` does.

    Blocks until all are there. Safe when other processes do the same.

    Raises:
        RecordError: a file that is not of this format; the first such one.
        SourceError, OSError: a file that cannot be read.
    """
    if not isinstance(storage, LocalStorage) or len(storage) < _FEWEST_FILES:
        return joined(open_indices(storage, format, caller), FileNames(storage))
    folder, began = user_folder(), time.time_ns()
    names = hashlib.sha256(storage.all_paths()).hexdigest()
    path = cached_index(folder, names, "catalogue of " + format.kind, format.options)
    known = _read(path, folder, format)
    sizes, mtimes = storage.versions()
    if known is None:
        stale = np.arange(len(storage))
    else:
        stale = np.flatnonzero((known[0].sizes != sizes) | (known[1] != mtimes))
        if not len(stale):
            return known[0]
    indices = _renewed(storage, format, caller, None if known is None else known[0], stale)
    # Of a file that was written to in these seconds, another change may leave no trace in its time: it is looked at again.
    mtimes = np.where(mtimes > began - TICK_NS, -1, mtimes)
    body = catalogue_parts(indices, mtimes, format.kind, format.options)
    if sum(map(len, body)) <= _MOST_BYTES:
        published(path, body)  # where that cannot be done, the indices are opened one by one again
    return indices


def _renewed(storage: LocalStorage, format: RecordFormat, caller: str, known: Indices | None, stale: NDArray[np.int64]) -> Indices:
    """Open the indices of some files, and take those of the others as they are known."""
    opened = open_indices(storage, format, caller, files=stale)
    if known is None:
        return joined(opened, FileNames(storage))
    new = dict(zip(stale.tolist(), opened, strict=True))
    kind, options = format.kind, format.options
    return joined([new[file] if file in new else known.index(file, kind, options) for file in range(len(storage))], FileNames(storage))


def _read(path: str, folder: str, format: RecordFormat) -> tuple[Indices, NDArray[np.int64]] | None:
    """Return a catalogue that is there and whole, and not older than the last time that the user had indices built again."""
    try:
        if os.stat(path).st_mtime_ns <= _rebuilt_ns(folder):
            return None
        data: Any = read_file(path)
        return read_catalogue(data, path, format.kind, format.options) if is_index(data) else None
    except RecordError as error:
        warnings.warn(f"the catalogue {shown(path)} is damaged ({error.what}) and is made again", stacklevel=4)
        return None
    except (OSError, SourceError):
        return None


def _rebuilt_ns(folder: str) -> int:
    try:
        return os.stat(rebuilt_mark(folder)).st_mtime_ns
    except OSError:
        return -1
