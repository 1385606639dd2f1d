"""In which groups the elements of a plan lie, as far as its source has groups and the operators above keep them together."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from penstock._contracts.source import GroupedSource
from penstock._plan.base import Ints, Node
from penstock.errors import PlanError, SourceError

__all__ = ["group_mark", "groups_of", "joined_groups", "source_groups"]


def groups_of(node: Node) -> Ints:
    """Return the borders of the groups of a plan's elements.

    Returns:
        int64 [groups + 1], ascending without repeats, from 0: the first element of each group that has one, then the length.

    Raises:
        PlanError: they lie in no groups.
        SourceError: a source says borders that are none.
    """
    found = node.group_starts()
    if found is None:
        raise PlanError(
            "shuffle(window_groups=...) needs elements that lie in groups: row groups of Parquet, files of records",
            where="shuffle()",
            fix="put it right above such a source (map, take, skip, shard, concatenate and cache may stand between), leave window_groups "
            "out, or give your source group_starts()",
        )
    return found


def group_mark(node: Node) -> str:
    """Return a short check sum of the borders, which a saved order depends on."""
    return f"{zlib.crc32(groups_of(node).astype('<i8').tobytes()):08x}"


def joined_groups(parts: list[Ints]) -> Ints:
    """Return the borders of several parts, one after the other."""
    ends = np.cumsum([int(part[-1]) for part in parts])
    return np.unique(np.concatenate([part + (end - int(part[-1])) for part, end in zip(parts, ends.tolist(), strict=True)]))


def source_groups(source: GroupedSource) -> Ints:
    """Return the borders of a source's groups.

    Raises:
        SourceError: they are none.
    """
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
