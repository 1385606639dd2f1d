"""The laws of what a source says of itself: a state is compared with it in another process, on another day."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock._contracts.source import IndexedSource, StreamSource
from penstock.errors import LawBroken
from penstock.sources import indexed_source
from penstock.testing.runs import attempt, shown

__all__ = ["as_source", "check_fingerprint", "check_names"]

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_MOST_JSON = 64 << 10
_RECENT_S = 3600.0
"""A number that reads as a time of the last hour is a time stamp: one of 2 ** 32 check sums in a million does so by chance."""


def as_source(given: Any) -> IndexedSource | StreamSource:
    """Return a source as it is, and one over any other object."""
    return given if isinstance(given, StreamSource) else indexed_source(given)


def check_names(source: IndexedSource | StreamSource, where: str, places: Iterable[int]) -> None:
    """Check that `label` and `describe` give one stable line without an address.

    Raises:
        LawBroken: naming the method and its text.
    """
    calls: list[tuple[str, Callable[[], Any]]] = [("label()", source.label)]
    calls += [(f"describe({place})", lambda place=place: source.describe(place)) for place in places]  # type: ignore[misc]
    for name, call in calls:
        text, again = call(), call()
        if not isinstance(text, str) or not text or "\n" in text or _ADDRESS.search(text):
            raise LawBroken(f"{name} is {shown(text)}", where=where, fix="return one line of text, without the address of an object")
        if text != again:
            raise LawBroken(f"{name} is {shown(text)} and then {shown(again)}", where=where, fix="return the same text each time")


def check_fingerprint(source: IndexedSource | StreamSource, where: str, again: Callable[[], Any] | None) -> None:
    """Check that the fingerprint is a small JSON record that depends on nothing but the data.

    Raises:
        LawBroken: naming the entry.
    """
    where = f"{where}, fingerprint()"
    record = source.fingerprint()
    text, error = attempt(lambda: json.dumps(record, allow_nan=False, sort_keys=True))
    if text is None or not isinstance(record, dict) or json.loads(text) != json.loads(json.dumps(record)):
        raise LawBroken(f"{shown(record)} is no JSON record", where=where, fix="return a dict of text, whole numbers and lists") from error
    if len(text) > _MOST_JSON:
        raise LawBroken(
            f"it has {len(text)} characters",
            where=where,
            fix=f"hash what is long: {_MOST_JSON} characters at most, since every state holds it",
        )
    for path, value in _leaves(record):
        if isinstance(value, str) and _ADDRESS.search(value):
            raise LawBroken(f"{path} holds an address: {shown(value)}", where=where, fix="leave out `repr` of objects")
        if _is_now(value):
            raise LawBroken(
                f"{path} is a time stamp: {value}", where=where, fix="use sizes, counts and hashes of the data: a copy is the same data"
            )
    for other, words in (
        (source.fingerprint(), "the second time"),
        (as_source(again()).fingerprint() if again else record, "of the source made again"),
    ):
        if json.dumps(other, sort_keys=True) != text:
            key = next((key for key in sorted({*record, *other}) if record.get(key) != other.get(key)), "its form")
            what = f"{key} is {shown(record.get(key))}, and {words} {shown(other.get(key))}"
            raise LawBroken(what, where=where, fix="let it depend on the data alone; then a state resumes in another process")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for place, part in enumerate(value):
            yield from _leaves(part, f"{path}[{place}]")
    else:
        yield path, value


def _is_now(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    now_s = time.time()
    return any(now_s - _RECENT_S <= value / unit <= now_s + 1 for unit in (1, 1e3, 1e6, 1e9))
