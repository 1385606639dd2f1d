"""Images in one sub-folder per class."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock._storage.listing import refuse_url
from penstock.errors import SourceError
from penstock.sources.paths import pack_paths, shown
from penstock.sources.whole_files import WholeFiles

__all__ = ["ImageFolderSource"]

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
