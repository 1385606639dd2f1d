"""What a command says of an error: what the user's own code did, and which element it was, without the frames of Penstock."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator
from traceback import TracebackException, extract_tb

import penstock
from penstock.errors import PenstockError

__all__ = ["SWITCH", "place_of", "told"]

SWITCH = "PENSTOCK_TRACEBACK"
"""A variable of the environment: with 1, errors are raised out of a command as they are."""

_HEAD = "Traceback (most recent call last):\n"
_STACK = re.compile(rf"^{re.escape(_HEAD)}((?:  .*\n)*)", re.MULTILINE)
_FRAME = re.compile(r'^(?=  File ")', re.MULTILINE)
_FILE = re.compile(r'  File "(.*)", line \d+')
_NOT_THE_USERS = tuple(
    os.path.join(folder, "")
    for folder in (os.path.dirname(penstock.__file__), *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
)


def told(error: Exception) -> str | None:
    """Return what is printed of an error; None for one of Penstock's own making, of which nothing must be hidden.

    Errors of Penstock are told in their own words, and so are those of the system in which no code of the user's was running; others by
    their traceback, here or in the worker process that they came from, from the first frame of the user's code on. The notes follow.
    """
    stack = next(filter(None, map(_from_the_user_on, _tracebacks(error))), "")
    if isinstance(error, PenstockError):
        text = _from_the_user_on(str(error)) or str(error)
    elif stack:
        text = f"an error of your own code ({SWITCH}=1 shows all of the traceback)\n{stack}"
    elif isinstance(error, OSError):
        text = f"{type(error).__name__}: {error}"
    else:
        return None
    return "\n".join([text, *(f"  note:  {note}" for note in dict.fromkeys(_notes(error)))])


def place_of(error: Exception) -> str:
    """Return file and line where the user's code failed last, or would not compile; "" for other code."""
    if isinstance(error, SyntaxError) and error.filename and _is_the_users(error.filename):
        return f"{error.filename}, line {error.lineno}"
    frames = [frame for frame in extract_tb(error.__traceback__) if _is_the_users(frame.filename)]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else ""


def _is_the_users(path: str) -> bool:
    return not path.startswith(("<frozen ", *_NOT_THE_USERS))


def _tracebacks(error: Exception) -> Iterator[str]:
    """Give the traceback of an error without its notes, then those of other processes that are in its notes."""
    here = TracebackException.from_exception(error)
    here.__notes__ = None
    yield "".join(here.format())
    for note in getattr(error, "__notes__", ()):
        _, head, rest = note.partition(_HEAD)
        yield head + "".join(line for line in rest.splitlines(keepends=True) if not line.startswith("penstock: "))


def _from_the_user_on(text: str) -> str:
    """Return a text with each stack in it cut to what begins with the first frame of the user's; "" when none of them has one."""
    cut = _STACK.sub(_cut, text)
    return cut.rstrip() if _HEAD in cut else ""


def _cut(stack: re.Match[str]) -> str:
    frames = _FRAME.split(stack[1])
    for number, frame in enumerate(frames):
        file = _FILE.match(frame)
        if file is not None and _is_the_users(file[1]):
            return _HEAD + "".join(frames[number:])
    return ""


def _notes(error: Exception) -> Iterator[str]:
    """Give the notes, of another process without its stack: what its own notes say, then which job it was."""
    for note in getattr(error, "__notes__", ()):
        head, stack, rest = note.partition(_HEAD)
        if stack:
            yield from (line for line in rest.splitlines() if line.startswith("penstock: "))
            head = head.rstrip().removesuffix("; there it was")
        yield head
