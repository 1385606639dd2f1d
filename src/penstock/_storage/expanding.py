"""Names of many shards written as one: `train-{000000..000146}.tar`, `train@10`. Pure: nothing is looked at, and no shell is asked."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator

from penstock._storage.redaction import shown
from penstock.errors import PlanError

__all__ = ["MOST_NAMES", "expand", "missing_shards", "refuse_commands"]

MOST_NAMES = 1_000_000
"""That one pattern may stand for."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})(?:\.\.(\d{1,18}))?")
_SHARDED = re.compile(r"(.+)@(\d{1,18}|\*)")
_SHARD = re.compile(r"(.*-)(\d+)(-of-)(\d+)(.*)", re.DOTALL)
_COMMANDS = ("pipe:", "file:")


def refuse_commands(pattern: str, caller: str) -> None:
    """Refuse patterns that other libraries run as a command or open as a URL of this machine.

    Raises:
        PlanError: the pattern begins with "pipe:" or "file:".
    """
    if pattern.lower().startswith(_COMMANDS):
        scheme = pattern[:5]
        raise PlanError(
            f"{shown(pattern)} begins with {scheme!r}, which is never run or opened",
            where=caller,
            fix=f"give the path itself; for a file whose name begins so, './{scheme}...'",
        )


def expand(pattern: str, caller: str, *, most: int = MOST_NAMES) -> list[str]:
    """Return the names or globs that a pattern stands for.

    `{a,b}` is one of the words, `{000..146}` one of the numbers (both ends included, with as many digits as the longer end if one of them
    begins with 0; `{0..9..3}` in steps); other braces stay as they are. `NAME@10` is NAME-00000-of-00010 to NAME-00009-of-00010, and
    `NAME@*` a glob for any number of them.

    Raises:
        PlanError: "pipe:" or "file:", or more than `most` names.
    """
    refuse_commands(pattern, caller)
    parts: list[list[str] | _Numbers] = []
    place = 0
    for match in _BRACES.finditer(pattern):
        choices = _choices(match[1])
        if choices is not None:
            parts += [[pattern[place : match.start()]], choices]
            place = match.end()
    parts.append([pattern[place:]])
    _limit(math.prod(map(len, parts)), pattern, caller, most)
    choices_of: list[Iterable[str]] = list(parts)
    names: list[str] = []
    for words in itertools.product(*choices_of):
        names += _shards("".join(words), caller, most)
        _limit(len(names), pattern, caller, most)  # `{0..999}@99999`: neither alone is too many
    return names


class _Numbers:
    """The numbers of a range as text; their count is known before any is written."""

    def __init__(self, low: str, high: str, step: str | None) -> None:
        begin, end, pace = int(low), int(high), max(1, int(step or 1))
        self._numbers = range(begin, end + 1, pace) if begin <= end else range(begin, end - 1, -pace)
        padded = any(number.lstrip("-").startswith("0") and len(number.lstrip("-")) > 1 for number in (low, high))
        self._width = max(len(low), len(high)) if padded else 0

    def __len__(self) -> int:
        return min(len(self._numbers), 1 << 40)

    def __iter__(self) -> Iterator[str]:
        return (str(number).zfill(self._width) for number in self._numbers)


def _choices(inside: str) -> list[str] | _Numbers | None:
    match = _RANGE.fullmatch(inside)
    if match:
        return _Numbers(match[1], match[2], match[3])
    return inside.split(",") if "," in inside else None


def _shards(name: str, caller: str, most: int) -> list[str]:
    match = _SHARDED.fullmatch(name)
    if match is None:
        return [name]
    if match[2] == "*":
        return [f"{match[1]}-*-of-*"]
    count = int(match[2])
    _limit(count, name, caller, most)
    if count == 0:
        raise PlanError(f"{shown(name)} names no shard", where=caller, fix="give the number of shards behind the @")
    return [f"{match[1]}-{number:05d}-of-{count:05d}" for number in range(count)]


def _limit(count: int, pattern: str, caller: str, most: int) -> None:
    if count > most:
        raise PlanError(
            f"{shown(pattern)} stands for {count} names or more, {most} at most", where=caller, fix="check its braces or number"
        )


def missing_shards(names: list[str]) -> Iterator[str]:
    """Return the names that are lacking where names are those of shards, "-00003-of-00010": at most the first of each set."""
    sets: dict[tuple[str, int, str, str], set[int]] = {}
    for name in names:
        match = _SHARD.fullmatch(name)
        if match:
            sets.setdefault((match[1], len(match[2]), match[4], match[5]), set()).add(int(match[2]))
    for (before, width, count, after), found in sets.items():
        number = next((number for number in range(len(found) + 1) if number not in found), len(found))
        if number < int(count):
            yield f"{before}{number:0{width}d}-of-{count}{after}"
