"""A text file with one path and label per line."""

from __future__ import annotations

import os
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._storage.listing import refuse_url
from penstock.errors import ListFileError, PlanError, SourceError
from penstock.sources.files import WholeFiles
from penstock.sources.listparse import parse_list
from penstock.sources.paths import PADDING, PathTable, shown
from penstock.sources.reading import read_file

__all__ = ["ListSource"]

_POLICIES = ("keep", "drop", "error")


class ListSource(WholeFiles):
    """Serve {"path": str, "data": bytes, "label": int} of every line "path label" of a list file.

    UTF-8 with or without a byte order mark, LF or CRLF. Blank lines and lines that begin with '#' are skipped; spaces and tabs
    around a line are not part of it. The label is what stands behind the last tab, or behind the last space where there is no tab; the
    path may hold spaces. The file is read once, now: it takes its own size and 24 bytes per line in memory.

    Args:
        list_file: the list.
        root: folder that relative paths stand in, and that no path may leave; None is the list's own folder, without that check.
        label: False for a list of paths alone.
        duplicates: what to do with a path that stands in the list more than once: "keep" it, "drop" all but the first, or "error".

    Raises:
        OSError: the list cannot be read.
        ListFileError: a line is wrong, or there is none.
        SourceError: the list is no regular file, or `root` is no folder.
        PlanError: `duplicates` is not one of the three, or a URL in place of a path.
    """

    def __init__(
        self,
        list_file: str | os.PathLike[str],
        root: str | os.PathLike[str] | None = None,
        *,
        label: bool = True,
        num_classes: int | None = None,
        duplicates: str = "keep",
    ) -> None:
        if duplicates not in _POLICIES:
            raise PlanError(f"duplicates={duplicates!r} is not known", where="read_list", fix=f"give one of {', '.join(_POLICIES)}")
        self._name = os.fspath(list_file)
        full_name = os.path.abspath(self._name)
        for path in (self._name, os.fspath(root or "")):
            if not os.path.exists(path):
                refuse_url(path, "read_list")
        base = os.path.dirname(full_name) if root is None else os.path.abspath(os.fspath(root))
        if not os.path.isdir(base):
            raise SourceError(
                f"root {shown(base)} is not a folder", where=f"read_list({shown(self._name)})", fix="give the folder that holds the files"
            )
        base = os.path.join(base, "")
        try:
            blob = read_file(full_name) + PADDING
        except (OSError, SourceError) as error:
            error.add_note(f"reading the list of read_list({shown(self._name)})")
            raise
        lines = parse_list(blob, name=self._name, has_label=label, root=base if root is not None else None)
        super().__init__(PathTable(blob=blob, starts=lines.starts, ends=lines.ends, base=base), lines.labels if label else None)
        if num_classes is not None:
            self._check_labels(num_classes)
        self._duplicates: int | None = None
        if duplicates != "keep":
            self._settle_duplicates(duplicates)

    def _check_labels(self, num_classes: int) -> None:
        labels = self._labels if self._labels is not None else np.empty(0, np.int64)
        wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
        if wrong.size:
            index = int(wrong[0])
            raise ListFileError(
                f"line {self.line_number(index)}: label {labels[index]} is outside 0..{num_classes - 1}",
                where=f"line {self.line_number(index)} of {shown(self._name)}; {len(wrong)} such lines in all",
                fix=f"correct the labels, or num_classes={num_classes}",
            )

    def _settle_duplicates(self, policy: str) -> None:
        again = _repeated(self._table)
        self._duplicates = 0
        if not again.size:
            return
        if policy == "error":
            index = int(again[0])
            raise ListFileError(
                f"line {self.line_number(index)}: path {shown(self._table.path(index))} stands in the list a second time",
                where=f"line {self.line_number(index)} of {shown(self._name)}; {len(again)} such lines in all",
                fix='remove the line, or give duplicates="keep" or duplicates="drop"',
            )
        keep = np.ones(len(self._table), bool)
        keep[again] = False
        table = self._table
        self._table = PathTable(blob=table.blob, starts=table.starts[keep], ends=table.ends[keep], base=table.base)
        self._labels = self._labels[keep] if self._labels is not None else None

    @property
    def num_duplicates(self) -> int:
        """Count the elements whose path stood in the list before; found on first use, about 0.3 s per million lines."""
        if self._duplicates is None:
            self._duplicates = len(_repeated(self._table))
        return self._duplicates

    def line_number(self, index: int) -> int:
        """Return the line of element `index`, counted from 1 over all lines of the file."""
        return self._table.blob.count(b"\n", 0, int(self._table.starts[index])) + 1

    def describe(self, index: int) -> str:
        """Name line, list and path."""
        return f"line {self.line_number(index)} of {shown(self._name)} ({shown(self._table.path(index))})"

    def fingerprint(self) -> dict[str, Any]:
        """Return count, check sums of all paths and labels, and sizes and a check sum of both ends of up to 64 files."""
        record = self._table.fingerprint("list")
        if self._labels is not None:
            record["labels_crc32"] = zlib.crc32(self._labels.astype("<i8", copy=False).tobytes())
        return record

    def label(self) -> str:
        """Return the call with the numbers of lines and of repeated paths."""
        repeated = f", {self.num_duplicates} duplicates" if self.num_duplicates else ""
        return f"read_list({shown(self._name)}, {len(self)} elements{repeated})"


def _repeated(table: PathTable) -> NDArray[np.int64]:
    """Return the elements whose path an earlier element has, in order."""
    hashes = table.all_hashes()
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    return np.sort(order[1:][ordered[1:] == ordered[:-1]])
