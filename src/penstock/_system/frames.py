"""Where a thread stands, in words: the line of the user's code, whatever Python or this library does inside it."""

from __future__ import annotations

import linecache
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

from penstock._system.process import current_frames

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(threading.__file__)) + os.sep
_PACKAGES = ("site-packages", "dist-packages")


class Frame(NamedTuple):
    """One call of a Python stack."""

    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}" + (f": {self.text}" if self.text else "")


def frames_of(frame: Any) -> Iterator[Any]:
    """Yield the frames of a stack, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def call_of_frame(frame: Any) -> Frame:
    """Return the call that stands in a frame."""
    code = frame.f_code
    line = frame.f_lineno or code.co_firstlineno
    return Frame(code.co_filename, line, code.co_qualname, linecache.getline(code.co_filename, line, frame.f_globals).strip())


def is_ours(file: str) -> bool:
    """Tell whether a file is of this library."""
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
        if is_ours(frame.f_code.co_filename):
            name = frame.f_code.co_name
            call = name if not name.startswith("_") or name == "__init__" else call
        elif not _is_pythons(frame.f_code.co_filename):
            return call, place_of(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return call, ""


def warn(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn in the name of the innermost call outside this library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
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
    for one in frames_of(frame):
        if is_ours(one.f_code.co_filename):
            entry = entry if one.f_code.co_name.startswith("_") else one  # the outermost call of a public function
        elif not _is_pythons(one.f_code.co_filename):
            return _words(one)
    return "in no code of a user" if entry is None else _words(entry)


def _words(frame: Any) -> str:
    call = call_of_frame(frame)
    return str(call).replace(f"{call.file}:{call.line}", place_of(call.file, call.line), 1)
