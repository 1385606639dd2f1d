"""Which files patterns name."""

from __future__ import annotations

import glob
import os
from typing import Any

from penstock.errors import PlanError, SourceError

__all__ = ["find_local"]


def find_local(patterns: Any, caller: str) -> list[str]:
    """List the files of glob patterns, sorted by the bytes of the path; each once.

    Raises:
        PlanError: no pattern, or one that is no path.
        SourceError: a pattern finds no file.
    """
    given = list(patterns) if isinstance(patterns, (list, tuple)) else [patterns]
    if not given or not all(isinstance(item, (str, os.PathLike)) for item in given):
        raise PlanError(f"{patterns!r} is no path, pattern or list of them", where=caller, fix='give a path such as "data/train-*"')
    found: set[str] = set()
    for pattern in map(os.fspath, given):
        found_now = glob.iglob(pattern, recursive=True)
        files = [path for path in found_now if not path.endswith(".psidx") and not os.path.isdir(path)]
        if not files and os.path.isfile(pattern):
            files = [pattern]
        if not files:
            raise SourceError(f"no file matches {pattern!r}", where=f"{caller}, in {os.getcwd()!r}", fix="check the pattern")
        found.update(files)
    return sorted(found, key=os.fsencode)
