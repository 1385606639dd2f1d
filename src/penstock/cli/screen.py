"""Lays out what the commands print: bars, numbers and sentences that fit a terminal of 100 columns; and an error without Penstock's frames.

An error says what the user's own code did, and which element it was.
"""

from __future__ import annotations

import os
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from traceback import TracebackException, extract_tb
from typing import TextIO

import penstock
from penstock._system.failing import attempt
from penstock.errors import PenstockError

COLUMNS = 100
_INDENT = 3


class Screen:
    """Print headings, facts, bars and sentences.

    Args:
        stream: where to; characters outside its encoding are replaced by plain ones.
        name_columns: the width of the names on the left.
    """

    def __init__(self, stream: TextIO, *, name_columns: int = 15) -> None:
        self._stream = stream
        self._name_columns = name_columns
        self._fancy = attempt("█░".encode, stream.encoding or "ascii") is not None

    def heading(self, text: str) -> None:
        """Print an empty line and a heading, wrapped."""
        self.line()
        for line in textwrap.wrap(text, COLUMNS):
            self.line(line)

    def fact(self, name: str, text: str) -> None:
        """Print a name and what there is to say about it, wrapped under itself."""
        lead = " " * _INDENT + f"{name:<{self._name_columns}}"
        for line in textwrap.wrap(text, COLUMNS, initial_indent=lead, subsequent_indent=" " * len(lead)) or [lead]:
            self.line(line)

    def point(self, text: str) -> None:
        """Print one sentence of a list, wrapped under itself."""
        for line in textwrap.wrap(text, COLUMNS, initial_indent=" " * _INDENT + "- ", subsequent_indent=" " * _INDENT + "  "):
            self.line(line)

    def bar(self, name: str, text: str, full: float, empty: float) -> None:
        """Print a bar: `full` and `empty` are its filled and pale parts as shares of the widest bar."""
        width = 34
        dark = max(1, round(width * full)) if full > 0 else 0
        pale = max(0, min(round(width * (full + empty)), width) - dark)
        marks = ("█", "░") if self._fancy else ("#", "-")
        self.line(f"{' ' * _INDENT}{name:<{self._name_columns}}{marks[0] * dark + marks[1] * pale:<{width}}  {text}")

    def line(self, text: str = "") -> None:
        """Print one line, without white space at its end."""
        print(text.rstrip(), file=self._stream, flush=True)


def percent(share: float) -> str:
    """Return a share as per cent: one decimal below 10 and above 90, where it matters."""
    return f"{100 * share:.1f} %" if share < 0.1 or share > 0.9 else f"{100 * share:.0f} %"


def seconds(value: float) -> str:
    """Return a time in a unit that suits it."""
    return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms" if value >= 0.01 else f"{1000 * value:.1f} ms"


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
