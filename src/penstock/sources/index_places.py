"""Where the index of a file may stand."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from penstock.formats.index import SUFFIX

__all__ = ["cached_catalogue", "cached_index", "rebuilt_mark", "user_folder"]


def user_folder() -> str:
    """Return "penstock" in the user's cache folder: that of XDG_CACHE_HOME, or ~/.cache. A relative path there counts as none."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".cache"), "penstock")


def rebuilt_mark() -> str:
    """Return the path of an empty file whose time says when this user last had indices built again: no older catalogue is trusted."""
    return os.path.join(user_folder(), "catalogue", "rebuilt")


def cached_catalogue(paths: bytes, kind: str, options: Mapping[str, Any]) -> str:
    """Return the path of the catalogue of files.

    Args:
        paths: of all of them, absolute.
        kind: of the format.
        options: of the format.
    """
    return os.path.join(user_folder(), "catalogue", _digest(paths, kind, options) + SUFFIX)


def cached_index(folder: str, name: str, kind: str, options: Mapping[str, Any]) -> str:
    """Return the path of the index of a file in a cache folder.

    Args:
        folder: as `user_folder` gives it.
        name: absolute path, or URL.
        kind: of the format.
        options: of the format.
    """
    digest = _digest(os.fsencode(name), kind, options)
    return os.path.join(folder, "index", digest[:2], digest + SUFFIX)


def _digest(name: bytes, kind: str, options: Mapping[str, Any]) -> str:
    key = json.dumps([kind, options], sort_keys=True)
    return hashlib.sha256(name + b"\0" + key.encode()).hexdigest()
