"""Where a thread stands, in words: for reports about threads that do not end, or do not come."""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Iterable
from typing import Any

__all__ = ["where_stand", "words_of_threads"]

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PYTHONS = os.path.dirname(os.path.abspath(threading.__file__)) + os.sep
_INSTALLED = ("site-packages", "dist-packages")


def where_stand(threads: Iterable[threading.Thread]) -> dict[threading.Thread, str]:
    """Say for each thread in which line of the user's code it is, `file.py:12 in function: text`.

    One that is in no code of a user, as a runner that waits for room, is told by the function of this library. All stacks are looked at in
    one moment; a thread that is not running is said to be `not started` or `ended`.
    """
    frames = sys._current_frames()
    try:
        return {thread: _where(thread, frames) for thread in threads}
    finally:
        frames.clear()  # this function's own frame is among them: a cycle


def words_of_threads(threads: Iterable[threading.Thread]) -> str:
    """Return `name (where it is); name (where it is)`."""
    return "; ".join(f"{thread.name} ({where})" for thread, where in where_stand(threads).items())


def _where(thread: threading.Thread, frames: dict[int, Any]) -> str:
    frame = frames.get(thread.ident or 0)
    if frame is None or not thread.is_alive():
        return "not started" if thread.ident is None else "ended"
    entry: Any = None
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file.startswith(_OURS):
            entry = entry if name.startswith("_") else frame  # the outermost call of a public function
        elif not file.startswith(_PYTHONS) or any(part in file for part in _INSTALLED):
            return _words(frame)
        frame = frame.f_back
    return "in no code of a user" if entry is None else _words(entry)


def _words(frame: Any) -> str:
    code = frame.f_code
    line = frame.f_lineno or code.co_firstlineno
    text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return f"{os.path.basename(code.co_filename)}:{line} in {code.co_qualname}" + (f": {text}" if text else "")
