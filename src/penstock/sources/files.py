"""Files that a pattern finds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from penstock._storage.listing import find_local, patterns_of
from penstock.sources.paths import common_folder, pack_paths, shown
from penstock.sources.whole_files import WholeFiles

__all__ = ["FilesSource"]

_Pattern = str | os.PathLike[str]


class FilesSource(WholeFiles):
    """Serve {"path": str, "data": bytes} of every file that a pattern finds, sorted by the bytes of the path.

    Folders are left out, and a file that several patterns find comes once. Names that begin with a dot need a pattern that does so too.
    Relative patterns are resolved against the working directory of now; the paths stay as the pattern gives them.

    Args:
        pattern: glob pattern, or several; `**` stands for any number of folders.

    Raises:
        PlanError: no pattern was given, or one that is not a path.
        SourceError: a pattern finds no file.
    """

    def __init__(self, pattern: _Pattern | Sequence[_Pattern]) -> None:
        self._patterns = patterns_of(pattern, "read_files")
        super().__init__(pack_paths(find_local(self._patterns, "read_files"), os.path.join(os.getcwd(), "")), None)

    def describe(self, index: int) -> str:
        """Name the file."""
        return f"file {shown(self._table.path(index))}"

    def fingerprint(self) -> dict[str, Any]:
        """Return count, a check sum of all paths below their common folder, and one of both ends of up to 64 files."""
        first, last = (os.fsencode(self._table.path(index)) for index in (0, len(self) - 1))
        return self._table.fingerprint("files", skip=common_folder(first, last))

    def label(self) -> str:
        """Return the call with the number of files."""
        return f"read_files({', '.join(map(shown, self._patterns))}, {len(self)} elements)"
