"""Paths and kinds of files in messages."""

from __future__ import annotations

import stat
import sys

__all__ = ["kind_of_file", "shown"]

_ENCODING = sys.getfilesystemencoding()
_ERRORS = sys.getfilesystemencodeerrors()
_SHOWN_CHARS = 160
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe (FIFO)",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}


def kind_of_file(mode: int) -> str:
    """Say what a mode of `stat` is, if it is no regular file."""
    return _KINDS.get(stat.S_IFMT(mode), "of an unknown kind")


def shown(text: str | bytes) -> str:
    """Quote a path or line for a message: control characters and broken UTF-8 escaped, cut when it is long."""
    if isinstance(text, bytes):
        text = text.decode(_ENCODING, _ERRORS)
    return repr(text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "...")
