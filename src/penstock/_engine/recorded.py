"""The file that holds the order of a run: JSON lines, a head and then [pass, begin, end] of each run of positions.

Where a run was resumed stands {"resumed": [pass, runs]}: of that pass these runs were delivered before, and of what stands above it nothing
else. A stopped run had written more than it delivered, and the resumed one gave that in an order of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from penstock._order.runs import Recording, Run, kept
from penstock.errors import StateDamaged, StateMismatch

__all__ = ["Recorder", "Resumed", "read_recording"]

_FORMAT = 1
_TAIL_BYTES = 4096


Resumed = tuple[int, tuple[Run, ...]]
"""A pass, and the positions of it that were delivered; those of earlier passes all were."""


class Recorder:
    """Writes a recording. Each call of `write` is one write to the file, so that a killed run leaves at most its last line cut."""

    __slots__ = ("_file",)

    def __init__(self, path: str | os.PathLike[str], plan: list[str], *, resumed: Resumed | None) -> None:
        """Open the file: a new one, or that of the run which is resumed.

        Raises:
            OSError: as the system says it.
            StateMismatch: the file to go on in is of another plan.
            StateDamaged: the file to go on in is no recording.
        """
        new = resumed is None or not os.path.exists(path) or os.path.getsize(path) == 0
        if not new:
            _whole_lines(path, plan, "record")
        self._file = open(path, "wb" if new else "r+b")  # noqa: SIM115 - closed by `close`
        if new:
            self._line({"penstock_order": _FORMAT, "plan": plan})
        else:
            self._go_behind_the_last_line()
        if resumed is not None:
            self._line({"resumed": [resumed[0], [list(run) for run in resumed[1]]]})
        self._file.flush()

    def _line(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value).encode() + b"\n")

    def _go_behind_the_last_line(self) -> None:
        """Cut off what a kill left of a line."""
        end = self._file.seek(0, os.SEEK_END)
        rest = b""
        while b"\n" not in rest:  # the head is a whole line
            begin = max(0, end - _TAIL_BYTES)
            self._file.seek(begin)
            rest, end = self._file.read(end - begin), begin
        self._file.seek(end + rest.rfind(b"\n") + 1)
        self._file.truncate()

    def write(self, runs: Iterable[tuple[int, int, int]]) -> None:
        """Add runs."""
        text = "".join(f"[{number}, {begin}, {end}]\n" for number, begin, end in runs)
        if text:
            self._file.write(text.encode())
            self._file.flush()

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._file.close()


def read_recording(path: str | os.PathLike[str], plan: list[str]) -> Recording:
    """Read the order of an earlier run of the same plan. A last line that is cut, by a kill, counts as not written.

    Raises:
        OSError: as the system says it.
        StateMismatch: it is of another plan.
        StateDamaged: a line is none that `Recorder` writes.
    """
    runs: list[tuple[int, int, int]] = []
    for number, line in enumerate(_whole_lines(path, plan, "replay"), 2):
        value = _parsed(line, path, number)
        if isinstance(value, dict):
            pass_number, done = _resumed(value, line, path, number)
            runs = kept(runs, pass_number, done)
        elif _is_numbers(value, 3):
            runs.append((value[0], value[1], value[2]))
        else:
            raise _damaged(line, path, number)
    return Recording(runs)


def _whole_lines(path: str | os.PathLike[str], plan: list[str], option: str) -> list[str]:
    """Return the lines behind the head, which is checked; what follows the last line end is left out."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")[:-1]
    try:
        head = json.loads(lines[0]) if lines else None
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("penstock_order") != _FORMAT:
        raise StateDamaged(
            f"{os.fspath(path)!r} is no recording of an order", where=f"line 1 of {os.fspath(path)!r}", fix="give a file that record= wrote"
        )
    if head.get("plan") != plan:
        raise StateMismatch(
            f"the recording is of another plan: {_difference(head.get('plan'), plan)}",
            where=f"{option}={os.fspath(path)!r}",
            fix="replay with the pipeline that was recorded" if option == "replay" else "give another file, or take this one away",
        )
    return lines[1:]


def _resumed(value: dict[str, Any], line: str, path: Any, number: int) -> Resumed:
    mark = value.get("resumed")
    if not isinstance(mark, list) or len(mark) != 2 or not isinstance(mark[1], list):
        raise _damaged(line, path, number)
    if _is_numbers([mark[0]], 1) and all(_is_numbers(run, 2) for run in mark[1]):
        return mark[0], tuple((run[0], run[1]) for run in mark[1])
    raise _damaged(line, path, number)


def _parsed(line: str, path: Any, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise _damaged(line, path, number) from error


def _is_numbers(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(type(one) is int and one >= 0 for one in value)


def _damaged(line: str, path: Any, number: int) -> StateDamaged:
    return StateDamaged(
        f"line {number} is {line[:60]!r}, not [pass, begin, end]",
        where=f"line {number} of {os.fspath(path)!r}",
        fix="use another recording; this one was changed",
    )


def _difference(was: Any, now: list[str]) -> str:
    lines = was if isinstance(was, list) else []
    for before, here in zip(lines, now, strict=False):
        if before != here:
            return f"it has {str(before).strip()!r} where this one has {here.strip()!r}"
    return f"it has {len(lines)} operators, this one {len(now)}"
