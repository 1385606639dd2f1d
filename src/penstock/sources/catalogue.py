"""The indices of all files of a source; of many files in one catalogue, in the cache folder, so that none is opened at the start."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage import Storage
from penstock._storage.local import LocalStorage
from penstock.errors import RecordError, SourceError
from penstock.formats.index import is_index
from penstock.formats.indices import Indices, catalogue_parts, joined, read_catalogue
from penstock.sources.index_places import cached_catalogue, rebuilt_mark
from penstock.sources.indexing import TICK_NS, Report, open_indices, published
from penstock.sources.paths import FileNames, shown
from penstock.sources.reading import read_file
from penstock.sources.record_format import RecordFormat

__all__ = ["open_all"]

_FEWEST_FILES = 256
_MOST_BYTES = 256 << 20
"""Where files have so many records, opening their indices one by one costs little beside reading them."""
_MOST_KEPT_BYTES = 512 << 20
_CLOCK_NS = 20_000_000
"""The times of files are that much behind the clock, at most."""


class _Known(NamedTuple):
    indices: Indices
    versions: NDArray[np.int64]
    notes: dict[str, Any]


def open_all(storage: Storage, format: RecordFormat, caller: str) -> Indices:
    """Return the indices of all files: from the catalogue those of files that are as they were, else as `open_indices` does.

    Blocks until all are there. Safe when other processes do the same.

    Raises:
        RecordError: a file that is not of this format; the first such one.
        SourceError, OSError: a file that cannot be read.
    """
    if not isinstance(storage, LocalStorage) or len(storage) < _FEWEST_FILES:
        return joined(open_indices(storage, format, caller), FileNames(storage))
    began, folders, versions = time.time_ns(), _folders(storage), storage.versions()
    path = cached_catalogue(storage.all_paths(), format.kind, format.options)
    known = _read(path, format)
    if known is not None and known.notes.get("folders") != folders:
        known = None  # an index may have come, or gone
    stale = np.arange(len(storage))
    if known is not None:
        stale = np.flatnonzero((known.indices.sizes != storage.sizes) | (known.versions != versions))
        if not len(stale):
            return known.indices
    reports: list[Report] = []
    opened = open_indices(storage, format, caller, files=stale, on_file=reports.append)
    indices = _merged(storage, format, known, dict(zip(stale.tolist(), opened, strict=True)))
    own = any(report.reason is not None for report in reports)  # we have written indices there: the folders are as we left them
    notes = {"folders": _folders(storage) if own else folders}
    # Of a file that was written to in these seconds, another change may leave no trace in its time: it is looked at again.
    versions = np.where(storage.mtimes > began - TICK_NS, -1, versions)
    body = catalogue_parts(indices, versions, format.kind, format.options, notes)
    if sum(map(len, body)) <= _MOST_BYTES and _rebuilt_ns() < began - _CLOCK_NS and published(path, body):
        _prune(path)
    return indices  # where no catalogue can be written, the indices are opened one by one again


def _merged(storage: LocalStorage, format: RecordFormat, known: _Known | None, opened: dict[int, Any]) -> Indices:
    """Put what was opened now beside what is known of the other files."""
    files, kind, options = range(len(storage)), format.kind, format.options
    if known is None:
        return joined([opened[file] for file in files], FileNames(storage))
    return joined([opened[file] if file in opened else known.indices.index(file, kind, options) for file in files], FileNames(storage))


def _folders(storage: LocalStorage) -> dict[str, int]:
    """Return the modification time of each folder that files stand in: it changes when an index comes, goes or is replaced there."""
    names = {path[: path.rfind(os.fsencode(os.sep)) + 1] for path in storage.all_paths().split(b"\0")[:-1]}
    times = {}
    for name in sorted(names):
        try:
            times[os.fsdecode(name)] = os.stat(name).st_mtime_ns
        except OSError:
            times[os.fsdecode(name)] = -1  # who reads a file there says what is wrong
    return times


def _read(path: str, format: RecordFormat) -> _Known | None:
    """Return a catalogue that is there and whole, and not older than the last time that the user had indices built again."""
    try:
        if os.stat(path).st_mtime_ns <= _rebuilt_ns():
            return None
        data: Any = read_file(path)
        return _Known(*read_catalogue(data, path, format.kind, format.options)) if is_index(data) else None
    except RecordError as error:
        warnings.warn(f"the catalogue {shown(path)} is damaged ({error.what}) and is made again", stacklevel=4)
        return None
    except (OSError, SourceError):
        return None


def _rebuilt_ns() -> int:
    try:
        return os.stat(rebuilt_mark()).st_mtime_ns
    except OSError:
        return -1


def _prune(newest: str) -> None:
    """Remove the oldest catalogues where all of them have too many bytes together."""
    with contextlib.suppress(OSError):  # another process removes them too
        with os.scandir(os.path.dirname(newest)) as entries:
            found = sorted(((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path) for entry in entries), reverse=True)
        total = 0
        for _, size, path in found:
            total += size
            if total > _MOST_KEPT_BYTES and path not in (newest, rebuilt_mark()):
                os.unlink(path)
