"""The file that holds the order of a run: JSON lines, a head and then [pass, begin, end] of each run of positions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from penstock._order.runs import Recording
from penstock.errors import StateDamaged, StateMismatch

__all__ = ["Recorder", "read_recording"]

_FORMAT = 1


class Recorder:
    """Writes a recording. Each call of `write` is one write to the file, so that a killed run leaves at most its last line cut."""

    __slots__ = ("_file",)

    def __init__(self, path: str | os.PathLike[str], plan: list[str], *, resumed: bool) -> None:
        """Open the file: a new one, or that of the run which is resumed.

        Raises:
            OSError: as the system says it.
        """
        new = not resumed or not os.path.exists(path) or os.path.getsize(path) == 0
        self._file = open(path, "w" if new else "a", encoding="utf-8")  # noqa: SIM115 - closed by `close`
        if new:
            self._file.write(json.dumps({"penstock_order": _FORMAT, "plan": plan}) + "\n")
            self._file.flush()

    def write(self, runs: Iterable[tuple[int, int, int]]) -> None:
        """Add runs."""
        text = "".join(f"[{number}, {begin}, {end}]\n" for number, begin, end in runs)
        if text:
            self._file.write(text)
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
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")
    whole = lines[:-1]  # what follows the last line end
    head = _parsed(whole[0], path, 1) if whole else None
    if not isinstance(head, dict) or head.get("penstock_order") != _FORMAT:
        raise StateDamaged(
            f"{os.fspath(path)!r} is no recording of an order", where=f"line 1 of {os.fspath(path)!r}", fix="give a file that record= wrote"
        )
    if head.get("plan") != plan:
        raise StateMismatch(
            f"the recording is of another plan: {_difference(head.get('plan'), plan)}",
            where=f"replay={os.fspath(path)!r}",
            fix="replay with the pipeline that was recorded",
        )
    return Recording(_run(_parsed(line, path, number), path, number) for number, line in enumerate(whole[1:], 2))


def _parsed(line: str, path: Any, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise _damaged(line, path, number) from error


def _run(value: Any, path: Any, number: int) -> tuple[int, int, int]:
    if isinstance(value, list) and len(value) == 3 and all(type(one) is int and one >= 0 for one in value):
        return value[0], value[1], value[2]
    raise _damaged(json.dumps(value), path, number)


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
