"""What packed files were made of, beyond what their manifest says: whether a rerun may take them for its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock._plan.base import Node, sources, walk
from penstock.packing.digest import Untold, digest_of
from penstock.packing.inputs import Inputs
from penstock.sources.arrays import ArraySource
from penstock.sources.counted import Counted
from penstock.sources.indexed import IndexableSource
from penstock.sources.kept import KeptSource
from penstock.sources.parquet import TableSource

__all__ = ["KEYS", "Origin", "origin_of"]

KEYS = ("inputs", "functions", "data")
"""Of the record."""

_WORDS = {
    "inputs": "the input files have changed",
    "functions": "its functions are others by their code, or by the values that they carry or use (or another Python ran them)",
    "data": "the arrays or objects in memory, or the elements of a stream, have changed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What the elements come from.

    Attributes:
        record: JSON-able; "inputs": number and digest of the input files, by sizes, times and inodes; "functions": a hash of the code and
            values of all functions; "data": one of arrays and objects in memory. A hash is None where nothing tells it.
        untold: what could not be told, and why; "" for nothing.
    """

    record: dict[str, Any]
    untold: str = ""

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
        return f"nothing tells whether it was made by the same: {self.untold}" if self.untold else ""


def origin_of(root: Node, inputs: Inputs) -> Origin:
    """Find out what the elements of a plan come from. Reads arrays and lists that are in memory; memory maps are input files.

    Blocks for about a second per gigabyte of these.
    """
    untold: list[str] = []
    functions = [_told(node.line(), node.values(), untold) for node in walk(root) if node.children and not node.is_hint]
    data = [_told(node.source.label(), _held(node.source), untold) for node in sources(root)]
    return Origin(
        record={
            "inputs": {"count": inputs.num_files, "digest": inputs.digest},
            "functions": None if None in functions else digest_of(functions),
            "data": None if None in data else digest_of(data),
        },
        untold="; ".join(untold),
    )


def _told(words: str, values: tuple[Any, ...], untold: list[str]) -> str | None:
    try:
        return digest_of(*values)
    except Untold as error:
        untold.append(f"{words} holds something that has no content to compare ({error})")
        return None


def _held(source: Any) -> tuple[Any, ...]:
    """Return what a source has in memory; the other sources read files, and their fingerprints say how."""
    if isinstance(source, (ArraySource, Counted, KeptSource, TableSource)):
        return (source.held(),)
    if isinstance(source, IndexableSource):
        own = source.fingerprint().get("fingerprint")
        return (source.held() if own is None else own,)
    return ()
