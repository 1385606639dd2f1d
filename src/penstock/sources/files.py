"""Elements that are whole files: those that a pattern finds, and images in one sub-folder per class."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.failing import add_note
from penstock._contracts.transform import Scratch
from penstock._storage.listing import find_local, patterns_of, refuse_url
from penstock.errors import SourceError
from penstock.sources.paths import PathTable, common_folder, pack_paths, shown

__all__ = ["FilesSource", "ImageFolderSource", "WholeFiles"]


class WholeFiles(ABC):
    """Elements {"path": str, "data": bytes}, with "label" where there are labels. A subclass says where they come from, in `describe`."""

    def __init__(self, table: PathTable, labels: NDArray[np.int64] | None) -> None:
        """Serve the files of `table`, with `labels` (int64 [n]) or without."""
        self._table = table
        self._labels = labels

    @abstractmethod
    def describe(self, index: int) -> str:
        """Name an element's file and where it was named."""

    def __len__(self) -> int:
        return len(self._table)

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index.

        Raises:
            OSError: as the system says it, with a note that names the element.
            SourceError: it is no regular file.
        """
        before = len(rows)
        try:
            self._table.read_into(indices, rows, self._labels)
        except (OSError, SourceError) as error:
            add_note(error, f"reading {self.describe(indices[len(rows) - before])}")
            raise

    @property
    def transient_field(self) -> str:
        """Return the name of the bytes' field."""
        return "data"

    def read_transient(self, index: int, scratch: Scratch, ahead: NDArray[np.int64]) -> dict[str, Any]:
        """Return one element, its bytes in working memory; where reads wait for a disk, have the system begin with those `ahead`.

        Raises:
            OSError: as the system says it, with a note that names the element.
            SourceError: it is no regular file.
        """
        try:
            return self._table.read_transient(index, self._labels, scratch, ahead)
        except (OSError, SourceError) as error:
            add_note(error, f"reading {self.describe(index)}")
            raise

    def input_files(self) -> Iterator[str]:
        """Give the full path of each element's file."""
        return self._table.all_full()


# -- files that a pattern finds ---------------------------------------------------------------------------------------------------

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


# -- images in one sub-folder per class -------------------------------------------------------------------------------------------

_EXTENSIONS = frozenset((".jpg", ".jpeg", ".png", ".webp"))


class ImageFolderSource(WholeFiles):
    """Serve {"path": str, "data": bytes, "label": int} of every image in the sub-folders of a folder.

    The sub-folders are the classes, numbered in the order of the bytes of their names; images may lie deeper in them. Hidden
    folders, and links to folders below a class, are not entered. Elements come sorted by the bytes of their path, relative to the folder.

    Args:
        folder: the folder above the class folders.

    Raises:
        OSError: the folder cannot be read.
        PlanError: a URL in place of a path.
        SourceError: there is no class folder, or one without an image.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(folder)
        if not os.path.exists(self._folder):
            refuse_url(self._folder, "read_images")
        base = os.path.join(os.path.abspath(self._folder), "")
        names, self._num_ignored = _class_folders(base)
        if not names:
            raise SourceError(
                f"no sub-folder in {shown(self._folder)}",
                where=f"read_images({shown(self._folder)}), which is {shown(base)}",
                fix="put the images of each class into a sub-folder with its name, or use read_files or read_list",
            )
        self.class_names = names
        found: list[str] = []
        for name in names:
            before = len(found)
            found.extend(self._images(base, name))
            if len(found) == before:
                raise SourceError(
                    f"class folder {shown(name)} holds no image",
                    where=f"read_images({shown(self._folder)}), which is {shown(base)}",
                    fix=f"remove the folder, or put files ending in {', '.join(sorted(_EXTENSIONS))} into it",
                )
        table = pack_paths(found, base)
        numbers = {name: number for number, name in enumerate(names)}
        labels = (numbers[table.path(index).split(os.sep, 1)[0]] for index in range(len(table)))
        super().__init__(table, np.fromiter(labels, np.int64, len(table)))

    @property
    def folder(self) -> str:
        """Return the folder above the class folders, as it was given."""
        return self._folder

    def _images(self, base: str, relative: str) -> Iterator[str]:
        with os.scandir(base + relative) as entries:
            for entry in entries:
                path = os.path.join(relative, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith("."):
                        yield from self._images(base, path)
                elif os.path.splitext(entry.name)[1].lower() in _EXTENSIONS:
                    yield path
                else:
                    self._num_ignored += 1

    def describe(self, index: int) -> str:
        """Name the file and its folder."""
        return f"image {shown(self._table.path(index))} of {shown(self._folder)}"

    def fingerprint(self) -> dict[str, Any]:
        """Return class names' and paths' check sums, the count, and sizes and a check sum of both ends of up to 64 files."""
        return {**self._table.fingerprint("images"), "num_classes": len(self.class_names)}

    def label(self) -> str:
        """Return the call with the numbers of images, classes and ignored files."""
        ignored = f", {self._num_ignored} other files ignored" if self._num_ignored else ""
        return f"read_images({shown(self._folder)}, {len(self)} elements, {len(self.class_names)} classes{ignored})"


def _class_folders(base: str) -> tuple[list[str], int]:
    """List the class folders in the order of the bytes of their names, and count the files beside them."""
    names: list[str] = []
    num_files = 0
    with os.scandir(base) as entries:
        for entry in entries:
            if entry.is_dir():
                if not entry.name.startswith("."):
                    names.append(entry.name)
            else:
                num_files += 1
    return sorted(names, key=os.fsencode), num_files
