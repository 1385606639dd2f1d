"""Files by byte ranges, local and remote; which files patterns and URLs name; how finished files get their names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock._contracts.storage import RemoteFiles, Storage, storage_options
from penstock._storage.listing import find_local
from penstock._storage.local import LocalStorage
from penstock.errors import PlanError

if TYPE_CHECKING:
    from penstock._storage.remote import RemoteStorage

__all__ = ["Patterns", "open_storage"]

Pattern = str | os.PathLike[str]
Patterns = Pattern | Sequence[Pattern] | RemoteFiles


def open_storage(patterns: Patterns, caller: str) -> Storage:
    """List the files of one or several glob patterns or URLs, in the order of the bytes of their names; each file once.

    Args:
        patterns: a path, a glob, a URL (`s3://`, `gs://`, `https://`), or several: all of this machine, or all remote; or `RemoteFiles`.
        caller: the function that the user called, for errors.

    Raises:
        PlanError: no pattern, or one that is neither path nor URL; paths and URLs together; options that make no sense.
        SourceError: a pattern finds no file; a file that is no regular one.
        StorageError: a remote file that cannot be found.
        MissingExtra: obstore is not installed.
        OSError: as the system says it.
    """
    storage = open_urls(patterns, caller)
    return LocalStorage(find_local(patterns, caller), caller) if storage is None else storage


def open_urls(patterns: Patterns, caller: str) -> RemoteStorage | None:
    """Do what `open_storage` does for URLs; return None for patterns of this machine."""
    options = None
    if isinstance(patterns, RemoteFiles):
        options, patterns = patterns.options, patterns.urls
    given: list[Any] = list(patterns) if isinstance(patterns, (list, tuple)) else [patterns]
    num_urls = sum(isinstance(item, str) and ("://" in item or item.startswith("pipe:")) for item in given)
    if not num_urls:
        return None
    if num_urls < len(given):
        raise PlanError("paths and URLs stand in one list", where=caller, fix="make one dataset of each, and join them")
    from penstock._storage.remote import open_remote

    return open_remote(given, storage_options(options, caller), caller)
