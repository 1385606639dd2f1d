"""Paths in messages."""

from __future__ import annotations

import sys

__all__ = ["shown"]

_ENCODING = sys.getfilesystemencoding()
_ERRORS = sys.getfilesystemencodeerrors()
_SHOWN_CHARS = 160


def shown(text: str | bytes) -> str:
    """Quote a path or line for a message: control characters and broken UTF-8 escaped, cut when it is long."""
    if isinstance(text, bytes):
        text = text.decode(_ENCODING, _ERRORS)
    return repr(text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "...")
