"""The file of elements that were skipped or replaced: one line of JSON each."""

from __future__ import annotations

import json
import os
from typing import Any

from penstock._contracts.event import ElementLost, Event

__all__ = ["Quarantine", "encoded"]


def encoded(event: ElementLost) -> str:
    """Return the line of one element, without its end."""
    import traceback

    error = event.error
    record: dict[str, Any] = {
        "action": event.action,
        "keys": [list(key) for key in event.keys],
        "place": None if event.place is None else list(event.place),
        "where": event.where,
        "stage": event.stage,
        "error": type(error).__name__,
        "text": str(error),
        "notes": list(getattr(error, "__notes__", ())),
        "retries": event.retries,
        "traceback": "".join(traceback.format_exception(error)),
    }
    return json.dumps(record)


class Quarantine:
    """Writes a line for each element that is skipped or replaced, when that is settled in the order of the elements.

    A line is one `write` to the end of the file, so several processes may share it and a killed one leaves no half line. After a kill and a
    resume, an element may have two lines.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, event: Event) -> None:
        """Write the line; other events are none of its business. Thread-safe.

        Raises:
            OSError: the file cannot be written.
        """
        if not isinstance(event, ElementLost):
            return
        line = (encoded(event) + "\n").encode()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)
        try:
            written = os.write(descriptor, line)
            while written < len(line):
                written += os.write(descriptor, line[written:])
        except OSError as error:
            error.add_note(f"penstock: writing the quarantine file {self._path!r}")
            raise
        finally:
            os.close(descriptor)
