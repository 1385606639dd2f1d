"""The file of elements that were skipped or replaced: one line of JSON each."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from penstock._contracts.event import ElementLost, Event
from penstock._contracts.storage import RAW, write_all
from penstock._system.failing import notes_of, text_of, traceback_text_of
from penstock.errors import SourceError


def encoded(event: ElementLost) -> str:
    """Return the line of one element, without its end."""
    error = event.error
    record = {
        "action": event.action,
        "keys": [list(key) for key in event.keys],
        "place": None if event.place is None else list(event.place),
        "where": event.where,
        "stage": event.stage,
        "error": type(error).__name__,
        "text": text_of(error),
        "notes": list(notes_of(error)),
        "retries": event.retries,
        "traceback": traceback_text_of(error),
    }
    return json.dumps(record)


def keep(event: Event) -> None:
    """Write a line for an element that is skipped or replaced to the file that its policy names, when that is settled in the order.

    A line is one `write` to the end of the file, so several policies and processes may share it. A kill may cut it at the border of a page:
    what is written next then begins on a line of its own. After a kill and a resume, an element may have two lines. Thread-safe.

    Raises:
        OSError: the file cannot be written.
    """
    if not isinstance(event, ElementLost) or event.quarantine is None:
        return
    line = (encoded(event) + "\n").encode()
    try:
        descriptor = os.open(event.quarantine, os.O_RDWR | os.O_CREAT | os.O_APPEND | RAW, 0o666)
        try:
            write_all(descriptor, _behind_cut(descriptor) + line)
        finally:
            os.close(descriptor)
    except OSError as error:
        error.add_note(f"penstock: writing the quarantine file {os.fspath(event.quarantine)!r}")
        raise


def _behind_cut(descriptor: int) -> bytes:
    """Return what ends the last line of a file if a kill has cut it."""
    size = os.fstat(descriptor).st_size
    if size == 0 or os.lseek(descriptor, -1, os.SEEK_END) < 0:
        return b""
    return b"" if os.read(descriptor, 1) == b"\n" else b"\n"


class QuarantinedLine(NamedTuple):
    """The part of a line that leads back to its elements: their (epoch, index, lane), or the place in what the plan begins with."""

    number: int
    keys: tuple[tuple[int, int, int], ...]
    place: tuple[int, int] | None


def read_lines(path: str | os.PathLike[str]) -> list[QuarantinedLine]:
    """Read a quarantine file. Blank lines, and lines that a kill has cut, do not count.

    Raises:
        OSError: the file cannot be read.
        SourceError: with the number of the first line that is none.
    """
    out = []
    with open(path, "rb") as file:
        for number, text in enumerate(file, 1):
            if not text.strip() or _is_cut(text):
                continue
            keys: tuple[Any, ...] = ()
            place: Any = None
            try:
                record = json.loads(text)
                keys, place = tuple(_numbers(key, 3) for key in record["keys"]), _numbers(record["place"], 2)
                good = None not in keys and (place or record["place"]) == place
            except (ValueError, TypeError, KeyError):
                good = False
            if not good:
                raise SourceError(
                    f"line {number} is not a line of a quarantine file",
                    where=f"line {number} of {os.fsdecode(path)!r}: {text[:80]!r}",
                    fix="give a file that a feed wrote with ps.Skip(quarantine=), or take this line out",
                )
            out.append(QuarantinedLine(number, keys, place))
    return out


def _numbers(values: Any, count: int) -> Any:
    """Return so many numbers of a list as a tuple; None for anything else."""
    good = isinstance(values, list) and len(values) == count and all(type(value) is int and value >= 0 for value in values)
    return tuple(values) if good else None


def _is_cut(text: bytes) -> bool:
    """Tell whether a line begins like one of ours and does not end: its element was not delivered past, and a resume writes it again."""
    return text.startswith(_BEGIN[: len(text.strip())]) and not text.rstrip().endswith(b"}")


_BEGIN = b'{"action": "'
