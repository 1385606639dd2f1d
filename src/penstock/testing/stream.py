"""The laws of a stream source: passes are equal, as long as declared, and may be closed at any element."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from penstock._contracts.source import StreamSource
from penstock.errors import LawBroken, SourceError
from penstock.testing.feeding import check_feeds
from penstock.testing.leaks import Held, left_behind
from penstock.testing.naming import check_fingerprint, check_names
from penstock.testing.runs import alike, attempt, first_difference, require_same, shown, words

__all__ = ["check_stream"]

_GRACE_S = 2.0


def check_stream(source: StreamSource, expected: list[Any] | None, again: Callable[[], Any] | None, most_elements: int) -> None:
    """Check a stream; the arguments are those of `check_source`.

    Raises:
        LawBroken: naming the law and the values.
    """
    where = f"check_source({source.label()})"
    check_names(source, where, range(3))
    check_fingerprint(source, where, again)
    declared, forward = source.declared_length(), source.can_fast_forward()
    if declared is not None and (type(declared) is not int or declared < 0):
        raise LawBroken(f"declared_length() is {shown(declared)}", where=where, fix="return a whole number >= 0, or None")
    if not isinstance(forward, bool):
        raise LawBroken(f"can_fast_forward() is {shown(forward)}", where=where, fix="return True or False")
    first, ended = _pass(source, where, most_elements)
    if declared is not None and (len(first) != declared if ended else declared < len(first)):
        raise LawBroken(
            f"{declared} elements are declared, and a pass has {'' if ended else 'at least '}{len(first)}",
            where=f"{where}, declared_length()",
            fix="declare the true number, or None",
        )
    if expected is not None:
        different = first_difference(first, expected if ended else expected[: len(first)], alike)
        if different is not None:
            raise LawBroken(f"the elements are not the expected ones: {different}", where=f"{where}, open()", fix="give the right ones")
    if isinstance(attempt(lambda: next(source.open(1), None))[1], SourceError):
        return  # it says that there is one pass only
    _passes(source, first, where)
    check_feeds(source, again, most_elements, False)


def _pass(source: StreamSource, where: str, most: int) -> tuple[list[Any], bool]:
    """Return up to `most` elements of a new pass, and whether it ended."""
    iterator = source.open(0)
    elements, error = attempt(lambda: list(islice(iterator, most + 1)))
    _close(iterator)
    if elements is None:
        raise LawBroken(f"a pass failed: {words(error)}", where=f"{where}, open()", fix="mend the source") from error
    return elements[:most], len(elements) <= most


def _close(iterator: Iterator[Any]) -> None:
    close = getattr(iterator, "close", None)
    if close is not None:
        close()


def _passes(source: StreamSource, first: list[Any], where: str) -> None:
    """Close a pass at its start, behind one element and in the middle; each time the next pass is a whole one, and nothing is left open."""
    fix = "let open() start at the first element, whatever became of the passes before"
    for taken in sorted({0, min(1, len(first)), len(first) // 2}):
        before = Held.now()
        iterator = source.open(0)
        for _ in range(taken):
            next(iterator)
        _close(iterator)
        del iterator
        left = left_behind(before, _GRACE_S)
        if left:
            raise LawBroken(
                f"a pass closed behind {taken} elements left {', '.join(left)}",
                where=f"{where}, close()",
                fix="free it in `finally`, or in close()",
            )
        law = f"the pass behind one that was closed behind {taken} elements differs from the first"
        require_same(_pass(source, where, len(first))[0], first, law, where=f"{where}, open()", fix=fix)
