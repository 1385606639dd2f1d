"""Lays out what the commands print: bars, numbers and sentences that fit a terminal of 100 columns."""

from __future__ import annotations

import textwrap
from typing import TextIO

__all__ = ["COLUMNS", "Screen", "percent", "seconds", "size"]

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
        self._fancy = _can_print(stream, "█░")

    def heading(self, text: str) -> None:
        """Print an empty line and a heading, wrapped."""
        self._write("")
        for line in textwrap.wrap(text, COLUMNS):
            self._write(line)

    def fact(self, name: str, text: str) -> None:
        """Print a name and what there is to say about it, wrapped under itself."""
        lead = " " * _INDENT + f"{name:<{self._name_columns}}"
        for line in textwrap.wrap(text, COLUMNS, initial_indent=lead, subsequent_indent=" " * len(lead)) or [lead.rstrip()]:
            self._write(line)

    def point(self, text: str) -> None:
        """Print one sentence of a list, wrapped under itself."""
        for line in textwrap.wrap(text, COLUMNS, initial_indent=" " * _INDENT + "- ", subsequent_indent=" " * _INDENT + "  "):
            self._write(line)

    def bar(self, name: str, text: str, full: float, empty: float) -> None:
        """Print a bar: `full` and `empty` are its filled and pale parts as shares of the widest bar."""
        width = 34
        dark = max(1, round(width * full)) if full > 0 else 0
        pale = max(0, min(round(width * (full + empty)), width) - dark)
        marks = ("█", "░") if self._fancy else ("#", "-")
        self._write(f"{' ' * _INDENT}{name:<{self._name_columns}}{marks[0] * dark + marks[1] * pale:<{width}}  {text}")

    def line(self, text: str = "") -> None:
        """Print one line as it is."""
        self._write(text)

    def _write(self, line: str) -> None:
        print(line.rstrip(), file=self._stream, flush=True)


def percent(share: float) -> str:
    """Return a share as per cent: one decimal below 10 and above 90, where it matters."""
    return f"{100 * share:.1f} %" if share < 0.1 or share > 0.9 else f"{100 * share:.0f} %"


def seconds(value: float) -> str:
    """Return a time in a unit that suits it."""
    return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms" if value >= 0.01 else f"{1000 * value:.1f} ms"


def size(num_bytes: int) -> str:
    """Return a number of bytes in MB, or in kB below one."""
    return f"{num_bytes / 1e6:,.0f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:,.0f} kB"


def _can_print(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
