"""What packed files were made of, beyond what their manifest says: whether a rerun may take them for its own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.source import FileSource
from penstock._plan.base import Node, sources, walk
from penstock.errors import PlanError, SourceError
from penstock.jobs.digest import Untold, digest_of
from penstock.sources.arrays import ArraySource, IndexableSource
from penstock.sources.files import ImageFolderSource
from penstock.sources.parquet import TableSource

__all__ = ["KEYS", "Inputs", "Origin", "changed", "check_apart", "look", "origin_of", "origin_of_stream"]

KEYS = ("form", "inputs", "functions", "data")
"""Of the record."""

_ORIGIN_FORM = 2
"""Version 1 hashed byte code."""

_WORDS = {
    "form": "another version of Penstock made it, which compares functions and data in another way: nothing tells whether it is the same",
    "inputs": "the input files have changed",
    "functions": "its functions are others by their source text, or by the values that they carry (or another Python ran them)",
    "data": "the arrays or objects in memory have changed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What the elements come from.

    Attributes:
        record: JSON-able; "inputs": number and digest of the input files, by sizes, times and inodes; "functions": a hash of the source
            text and values of all functions; "data": one of arrays and objects in memory. A hash is None where nothing tells it.
        untold: what could not be told, and why; "" for nothing.
    """

    record: dict[str, Any]
    untold: str = ""

    def of_another_form(self, found: dict[str, Any] | None) -> str:
        """Say that the record of an earlier packing cannot be compared with this one, "" if it can or if there is none."""
        return "" if found is None or found.get("form") == _ORIGIN_FORM else _WORDS["form"]

    def difference(self, found: dict[str, Any] | None) -> str:
        """Say in what an earlier packing was of another origin, "" if it was of this one.

        Args:
            found: its record, or more; None when nothing says.
        """
        if found is None:
            return "nothing says which input and functions it was made of"
        for key in KEYS:
            if self.record[key] != found.get(key):
                return _WORDS[key]
        return f"nothing tells whether it was made by the same: {self.untold}; version= would, given in both runs" if self.untold else ""


def origin_of(root: Node, inputs: Inputs, version: str | int = "") -> Origin:
    """Find out what the elements of a plan come from. Reads arrays and lists that are in memory; memory maps are input files.

    Blocks for about a second per gigabyte of these. With a `version`, which stands elsewhere, functions are not looked at.
    """
    untold: list[str] = []
    nodes = [] if version else [node for node in walk(root) if node.children and not node.is_hint]
    functions = [_told(node.line(), node.values(), untold) for node in nodes]
    data = [_told(node.source.label(), _held(node.source), untold) for node in sources(root)]
    record = {
        **origin_of_stream(inputs).record,
        "functions": None if version or None in functions else digest_of(functions),
        "data": None if None in data else digest_of(data),
    }
    return Origin(record=record, untold="" if version else "; ".join(untold))


def origin_of_stream(inputs: Inputs) -> Origin:
    """Return the origin of a stream: of its input files alone, as a rerun compares all that it gives."""
    return Origin(
        record={"form": _ORIGIN_FORM, "inputs": {"count": inputs.num_files, "digest": inputs.digest}, "functions": None, "data": None}
    )


def _told(words: str, value: Any, untold: list[str]) -> str | None:
    try:
        return digest_of(value, sources=True)
    except Untold as error:
        untold.append(f"{words} holds something that has no content to compare ({error})")
        return None


def _held(source: Any) -> tuple[Any, ...]:
    """Return what a source has in memory; the other sources read files, and their fingerprints say how."""
    if isinstance(source, (ArraySource, TableSource)):
        return (source.held(),)
    if isinstance(source, IndexableSource):
        own = source.fingerprint().get("fingerprint")
        return (source.held() if own is None else own,)
    return ()


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
