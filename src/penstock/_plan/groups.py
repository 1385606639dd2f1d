"""In which groups the elements of a plan lie, as far as its source has groups and the operators above keep them together."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.source import ChunkedSource, GroupedSource
from penstock._plan.length import walk
from penstock._plan.node import Cache, Concatenate, Enumerate, Map, Node, Prefetch, Read, Shard, Shuffle, Skip, Take
from penstock.errors import PlanError, SourceError

__all__ = ["find_groups", "group_mark", "groups_of", "reading_notes"]

Ints = NDArray[np.int64]


def groups_of(node: Node) -> Ints:
    """Return the borders of the groups of a plan's elements.

    Returns:
        int64 [groups + 1], ascending without repeats, from 0: the first element of each group that has one, then the length.

    Raises:
        PlanError: they lie in no groups.
        SourceError: a source says borders that are none.
    """
    found = find_groups(node)
    if found is None:
        raise PlanError(
            "shuffle(window_groups=...) needs elements that lie in groups: row groups of Parquet, files of records",
            where="shuffle()",
            fix="put it right above such a source (map, take, skip, shard, concatenate and cache may stand between), leave window_groups "
            "out, or give your source group_starts()",
        )
    return found


def find_groups(node: Node) -> Ints | None:
    """Return the borders as `groups_of`, or None."""
    match node:
        case Read():
            return _of_source(node.source) if isinstance(node.source, GroupedSource) else None
        case Map() | Enumerate() | Prefetch() | Cache():
            return find_groups(node.child)
        case Take() | Skip() | Shard():
            below = find_groups(node.child)
            return None if below is None or (isinstance(node, Shard) and node.even == "pad") else _moved(node, below)
        case Concatenate():
            parts = [find_groups(child) for child in node.children]
            return _joined([part for part in parts if part is not None]) if all(part is not None for part in parts) else None
    return None


def group_mark(node: Node) -> str:
    """Return a short check sum of the borders, which a saved order depends on."""
    return f"{zlib.crc32(groups_of(node).astype('<i8').tobytes()):08x}"


def reading_notes(root: Node) -> list[str]:
    """Say which shuffles make a source that decodes whole groups decode them again and again."""
    out = []
    for node in walk(root):
        if not isinstance(node, Shuffle):
            continue
        for source in [part.source for part in walk(node) if isinstance(part, Read)]:
            if not isinstance(source, ChunkedSource):
                continue
            kept, count = source.groups_kept(), len(_of_source(source)) - 1
            needed = count if node.window_groups is None else min(node.window_groups, count)
            if kept < needed:
                call = "this shuffle" if node.window_groups is None else f"shuffle(window_groups={node.window_groups})"
                out.append(
                    f"{call} reads {needed} groups of {source.label()} at a time, and about {kept} are kept decoded: groups are decoded "
                    f"again and again; shuffle(window_groups={max(1, kept // 2)}) reads each once, or raise cache_bytes"
                )
    return out


def _moved(node: Take | Skip | Shard, below: Ints) -> Ints:
    match node:
        case Take():
            return np.unique(np.minimum(below, min(node.count, int(below[-1]))))
        case Skip():
            return np.unique(np.maximum(below - min(node.count, int(below[-1])), 0))
        case Shard():
            ends = np.maximum((below - node.first - node.index + node.num_shards - 1) // node.num_shards, 0)
            return np.unique(ends if node.even is None else np.minimum(ends, (int(below[-1]) - node.first) // node.num_shards))


def _joined(parts: list[Ints]) -> Ints:
    ends = np.cumsum([int(part[-1]) for part in parts])
    return np.unique(np.concatenate([part + (end - int(part[-1])) for part, end in zip(parts, ends.tolist(), strict=True)]))


def _of_source(source: GroupedSource) -> Ints:
    given: Any = source.group_starts()
    starts = np.asarray(given)
    good = starts.ndim == 1 and starts.dtype.kind in "iu" and len(starts) > 0
    if not good or starts[0] != 0 or starts[-1] != len(source) or (np.diff(starts.astype(np.int64)) < 0).any():
        raise SourceError(
            f"group_starts() gave {starts.dtype.name}{list(starts.shape)}, which are no borders of groups of {len(source)} elements",
            where=source.label(),
            fix="return int64 [groups + 1]: the index of the first element of each group, ascending from 0, then len()",
        )
    return np.unique(starts.astype(np.int64))
