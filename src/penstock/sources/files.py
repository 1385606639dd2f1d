"""Files that a pattern finds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from penstock._contracts.transform import Scratch
from penstock.errors import PlanError, SourceError
from penstock.sources.paths import pack_paths, shown

__all__ = ["FilesSource"]

_Pattern = str | os.PathLike[str]


class FilesSource:
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
        given: list[Any] = list(pattern) if isinstance(pattern, (list, tuple)) else [pattern]
        if not given or not all(isinstance(item, (str, os.PathLike)) for item in given):
            raise PlanError(
                f"{pattern!r} is no pattern and no list of patterns", where="read_files", fix='give a path such as "images/**/*.jpg"'
            )
        patterns = [os.fspath(item) for item in given]
        self._patterns = patterns
        self._table = pack_paths((path for item in patterns for path in _find(item)), os.path.join(os.getcwd(), ""))

    def __len__(self) -> int:
        return len(self._table)

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append {"path", "data"} per index.

        Raises:
            OSError: as the system says it, with a note that names the element.
            SourceError: it is no regular file.
        """
        before = len(rows)
        try:
            self._table.read_into(indices, rows, None)
        except (OSError, SourceError) as error:
            error.add_note(f"reading {self.describe(indices[len(rows) - before])}")
            raise

    @property
    def transient_field(self) -> str:
        """Return the name of the bytes' field."""
        return "data"

    def read_transient(self, index: int, scratch: Scratch) -> dict[str, Any]:
        """Return one element, its bytes in working memory.

        Raises:
            OSError: as the system says it, with a note that names the element.
            SourceError: it is no regular file.
        """
        try:
            return self._table.read_transient(index, None, scratch)
        except (OSError, SourceError) as error:
            error.add_note(f"reading {self.describe(index)}")
            raise

    def describe(self, index: int) -> str:
        """Name the file."""
        return f"file {shown(self._table.path(index))}"

    def input_files(self) -> Iterator[str]:
        """Give the full path of each element's file."""
        return self._table.all_full()

    def fingerprint(self) -> dict[str, Any]:
        """Return count, a check sum of all paths below their common folder, and one of both ends of up to 64 files."""
        # Sorted by bytes, so the folder that the first and the last path share, all of them share.
        first, last = (os.fsencode(self._table.path(index)) for index in (0, len(self) - 1))
        common = 0
        for place, (one, other) in enumerate(zip(first, last, strict=False), start=1):
            if one != other:
                break
            if one in b"/\\":
                common = place
        return self._table.fingerprint("files", skip=common)

    def label(self) -> str:
        """Return the call with the number of files."""
        return f"read_files({', '.join(map(shown, self._patterns))}, {len(self)} elements)"


def _find(pattern: str) -> Iterator[str]:
    """List the files of one pattern; a file whose very name is the pattern counts when the pattern finds nothing."""
    import glob  # 4 ms with re, and only this source needs it

    found = False
    for path in glob.iglob(pattern, recursive=True):
        if not os.path.isdir(path):
            found = True
            yield path
    if not found and os.path.isfile(pattern):
        found = True
        yield pattern
    if not found:
        is_folder = os.path.isdir(pattern)
        raise SourceError(
            f"no file matches {shown(pattern)}{', which is a folder' if is_folder else ''}",
            where=f"read_files, in the working directory {shown(os.getcwd())}",
            fix=f"write {shown(os.path.join(pattern, '**', '*'))} for all files in it" if is_folder else _hint(pattern),
        )


def _hint(pattern: str) -> str:
    if pattern.startswith("~"):
        return "write the home folder out: '~' is not expanded (use os.path.expanduser)"
    return "check the pattern and the working directory; '**' is needed to look into sub-folders"
