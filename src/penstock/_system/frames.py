"""Where a thread stands, in words: the line of the user's code, whatever Python or this library does inside it."""

from __future__ import annotations

import linecache
import os
import sys
import threading
import warnings
from collections.abc import Iterable
from functools import lru_cache
from types import FrameType
from typing import Any

from penstock._system.process import current_frames

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(threading.__file__)) + os.sep
_PACKAGES = ("site-packages", "dist-packages")


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE)


@lru_cache(4096)
def _is_pythons(file: str) -> bool:
    """Return whether a file is of the standard library. A cell of a notebook and a string that is run are the user's."""
    return file.startswith((_STANDARD, "<frozen ")) and not any(part in file for part in _PACKAGES)


def place_of(file: str, line: int) -> str:
    """Return a line as `file.py:12`, or as `In[3]:12` for one of a notebook's cell, whose file has a number for a name."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    cell = getattr(getattr(shell, "compile", None), "_filename_map", {}).get(file)
    return f"{os.path.basename(file)}:{line}" if cell is None else f"In[{cell}]:{line}"


def call_and_place() -> tuple[str, str]:
    """Return the function of this library that the user has called, and the line that called it, as `file.py:12`; "" for none."""
    frame: FrameType | None = sys._getframe(1)
    call = ""
    while frame is not None:
        if _is_ours(frame.f_code.co_filename):
            name = frame.f_code.co_name
            call = name if not name.startswith("_") or name == "__init__" else call
        elif not _is_pythons(frame.f_code.co_filename):
            return call, place_of(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return call, ""


def warn(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn in the name of the innermost call outside this library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def where_stand(threads: Iterable[threading.Thread]) -> dict[threading.Thread, str]:
    """Say for each thread in which line of the user's code it is, `file.py:12 in function: text`.

    For one that is in no code of a user, as a runner that waits for room, it is the function of this library. All stacks are looked at in
    one moment; a thread that is not running is said to be `not started` or `ended`.
    """
    frames = current_frames()
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
        if _is_ours(frame.f_code.co_filename):
            entry = entry if frame.f_code.co_name.startswith("_") else frame  # the outermost call of a public function
        elif not _is_pythons(frame.f_code.co_filename):
            return _words(frame)
        frame = frame.f_back
    return "in no code of a user" if entry is None else _words(entry)


def _words(frame: Any) -> str:
    code = frame.f_code
    line = frame.f_lineno or code.co_firstlineno
    text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return f"{place_of(code.co_filename, line)} in {code.co_qualname}" + (f": {text}" if text else "")
