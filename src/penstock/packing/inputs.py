"""Which files a dataset is read from, and whether they are still those that they were."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.source import FileSource
from penstock._plan.base import sources
from penstock._plan.node import Node
from penstock.errors import PlanError, SourceError
from penstock.sources.files import ImageFolderSource

__all__ = ["Inputs", "changed", "check_apart", "look"]


class Inputs(NamedTuple):
    """What the files of a dataset were like at one moment.

    Attributes:
        num_files: how many there are.
        digest: of paths, sizes, inodes and modification times.
        marks: uint64 [num_files], a hash of these for each file.
    """

    num_files: int
    digest: str
    marks: NDArray[np.uint64]


def look(root: Node) -> Inputs:
    """Look at all files that the sources of a plan know of; about 5 us each. One that cannot be looked at has a mark of its own."""
    data = b"".join(map(_mark, _files(root)))
    return Inputs(len(data) // 8, hashlib.sha256(data).hexdigest()[:32], np.frombuffer(data, np.uint64))


def changed(root: Node, before: Inputs) -> SourceError | None:
    """Return what is to be raised when a file is not what it was; None when all are."""
    now = look(root)
    if now.digest == before.digest:
        return None
    at = np.flatnonzero(now.marks != before.marks) if now.num_files == before.num_files else np.arange(1)
    path = next((path for number, path in enumerate(_files(root)) if number == at[0]), "")
    others = f" and {len(at) - 1} more files" if len(at) > 1 else ""
    return SourceError(
        f"{path!r}{others} changed while it was packed: it has another size, time or inode than at the beginning",
        where="pack()",
        fix="remove the destination and pack again, when nobody writes to the input any more",
    )


def check_apart(root: Node, dest: str) -> None:
    """Refuse a destination inside a folder that a source lists whole: in the next run it would be input.

    Raises:
        PlanError: it is.
    """
    for node in sources(root):
        folder = node.source.folder if isinstance(node.source, ImageFolderSource) else ""
        inside = os.path.relpath(os.path.realpath(dest), os.path.realpath(folder or dest))
        if not inside.startswith("."):
            raise PlanError(
                f"the destination lies inside {folder!r}, which is read: it would be one more class",
                where=f"pack() to {dest!r}",
                fix="give a folder outside of it",
            )


def _files(root: Node) -> Iterator[str]:
    for node in sources(root):
        if isinstance(node.source, FileSource):
            yield from node.source.input_files()


def _mark(path: str) -> bytes:
    try:
        status = os.stat(path)
        words = f"{path}\0{status.st_size} {status.st_mtime_ns} {status.st_ino} {status.st_dev}"
    except OSError as error:
        words = f"{path}\0{error.errno}"
    return hashlib.blake2b(words.encode("utf-8", "surrogateescape"), digest_size=8).digest()
