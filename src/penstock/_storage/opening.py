"""Opens what patterns and URLs name."""

from __future__ import annotations

import os
from collections.abc import Sequence

from penstock._contracts.storage import Storage
from penstock._storage.listing import find_local
from penstock._storage.local import LocalStorage

__all__ = ["Patterns", "open_storage"]

Pattern = str | os.PathLike[str]
Patterns = Pattern | Sequence[Pattern]


def open_storage(patterns: Patterns, caller: str) -> Storage:
    """List the files of one or several glob patterns, in the order of the bytes of their paths; each file once.

    Args:
        patterns: a path, a glob, or several.
        caller: the function that the user called, for errors.

    Raises:
        PlanError: no pattern, or one that is no path.
        SourceError: a pattern finds no file; a file that is no regular one.
        OSError: as the system says it.
    """
    return LocalStorage(find_local(patterns, caller), caller)
