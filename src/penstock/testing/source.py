"""The laws of a source: the same elements in any order, from any thread, and names that a saved state can trust."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock._contracts.element import flatten, structure_of, unflatten
from penstock._contracts.source import ColumnSource, IndexedSource, StreamSource, TransientSource
from penstock._contracts.transform import Scratch
from penstock._plan.check import count_argument
from penstock.errors import LawBroken, PlanError
from penstock.sources import indexed_source
from penstock.sources.paths import spread
from penstock.testing.faults import check_places, places_argument
from penstock.testing.feeding import check_feeds
from penstock.testing.naming import check_fingerprint, check_names
from penstock.testing.runs import alike, attempt, exact, first_difference, quiet, require_same, shown, words
from penstock.testing.stream import check_stream

__all__ = ["check_source"]

_NUM_THREADS = 8
_TIMEOUT_S = 60.0
_PURE = "let element i depend on i alone; keep no position and no buffer that calls share"


def check_source(
    source: Any,
    *,
    expected: Iterable[Any] | None = None,
    failing: Collection[int] = (),
    again: Callable[[], Any] | None = None,
    most_elements: int = 256,
) -> None:
    """Check a source of yours: an IndexedSource (ColumnSource, TransientSource), a StreamSource, or whatever `ps.from_source` takes.

    The laws of an indexed source: its length is constant; `gather` gives the same elements in any order, with repeats, one by one, for no
    index, and in eight threads at once, and appends them; an element that fails is told by `len(rows)`; columns equal rows and are the
    caller's own; transient reads equal rows until the next call with their scratch. Of a stream: passes are equal, also behind one that was
    closed in the middle, and as long as declared. Of both: label, descriptions and fingerprint are stable, without addresses and times;
    every executor delivers the same; a saved feed resumes.

    Args:
        source: the object.
        expected: its elements, if you know them; lists stand for arrays.
        failing: indices whose elements cannot be read.
        again: makes the source once more from the same data; its fingerprint must be the same, and a state must resume on it.
        most_elements: how many elements are read; of a longer source, evenly spaced ones.

    Raises:
        LawBroken: naming the law and the values.
        PlanError: `failing` names an element that is not there, or is given for a stream; `most_elements` is no number >= 1.
    """
    failing = places_argument(failing, "failing", "check_source")
    most_elements = count_argument(most_elements, "most_elements", "check_source", least=1)
    for kind, mark in ((IndexedSource, "gather"), (StreamSource, "open")):
        if hasattr(source, mark) and not isinstance(source, kind):
            raise LawBroken(
                f"{type(source).__name__} has {mark}() but is no {kind.__name__}: it lacks {_lacking(source, kind)}",
                where="check_source",
                fix="add it, as the protocol says",
            )
    with quiet():
        if isinstance(source, StreamSource):
            if failing:
                raise PlanError("a stream has no indices that could fail", where="check_source(failing=...)", fix="leave failing= out")
            check_stream(source, None if expected is None else list(expected), again, most_elements)
            return
        _check_indexed(source, None if expected is None else list(expected), failing, again, most_elements)


def _lacking(source: Any, kind: type) -> str:
    names = [name for name in vars(kind) if callable(getattr(kind, name)) and (not name.startswith("_") or name == "__len__")]
    return ", ".join(f"{name}()" for name in names if not hasattr(source, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A source with some of its elements, and what they were when they came first: they may share a buffer that others are read into."""

    source: IndexedSource
    places: list[int]
    elements: list[Any]
    frozen: list[Any]
    shown: list[str]

    def where(self, more: str) -> str:
        return f"check_source({self.source.label()}), {more}"


def _check_indexed(
    given: Any, expected: list[Any] | None, failing: Collection[int], again: Callable[[], Any] | None, most_elements: int
) -> None:
    source = indexed_source(given)
    where = f"check_source({type(given).__name__})"
    count = attempt(lambda: len(source))[0]
    check_names(source, where, range(0) if count is None else spread(count, 8))
    check_places(failing, "failing", "check_source", len(source))
    places = [place for place in spread(len(source), max(2, most_elements)) if place not in failing]
    known = _known(source, places)
    _equals_expected(known, expected)
    _gathers(known)
    _fails(known, failing)
    _in_threads(known)
    if isinstance(source, ColumnSource):
        _columns(known, source)
    if isinstance(source, TransientSource):
        _transient(known, source, failing)
    check_fingerprint(source, where, again)
    check_feeds(source, again, most_elements, bool(failing))
    if len(source) != count or (given is not source and len(given) != count):
        raise LawBroken(
            f"the length was {count} and is now {len(given)}", where=known.where("len()"), fix="let it be constant: decide it in __init__"
        )


def _gather(source: IndexedSource, indices: Sequence[int], where: str) -> list[Any]:
    before = object()
    rows: list[Any] = [before]
    _, error = attempt(lambda: source.gather(indices, rows))
    if error is not None:
        raise LawBroken(
            f"element {_at(indices, len(rows) - 1)} could not be read: {words(error)}",
            where=where,
            fix="give the indices of elements that cannot be read with failing=, or mend gather()",
        ) from error
    if rows[:1] != [before] or len(rows) != len(indices) + 1:
        raise LawBroken(
            f"gather() of {len(indices)} indices left {len(rows)} rows where one stood before",
            where=where,
            fix="append exactly one element per index to `rows`, and leave what stands there alone",
        )
    return rows[1:]


def _at(indices: Sequence[int], place: int) -> str:
    return str(indices[place]) if 0 <= place < len(indices) else "?"


def _known(source: IndexedSource, places: list[int]) -> _Known:
    elements = _gather(source, places, f"check_source({source.label()}), gather() in order")
    frozen, words_of = [exact(element) for element in elements], [shown(element) for element in elements]
    return _Known(source=source, places=places, elements=elements, frozen=frozen, shown=words_of)


def _equals_expected(known: _Known, expected: list[Any] | None) -> None:
    if expected is None:
        return
    if len(expected) != len(known.source):
        raise LawBroken(
            f"the length is {len(known.source)}, and {len(expected)} elements are expected",
            where=known.where("len()"),
            fix="count what can be read",
        )
    different = first_difference(known.elements, [expected[place] for place in known.places], alike)
    if different is not None:
        raise LawBroken(f"the elements are not the expected ones: {different}", where=known.where("gather()"), fix="read the right ones")


def _gathers(known: _Known) -> None:
    """Read in other orders, with repeats, one by one, and nothing."""
    count = len(known.places)
    mixed = random.Random(0).choices(range(count), k=count) if count else []
    orders = {"backwards": list(range(count))[::-1], "in a random order with repeats": mixed, "for no index": []}
    for words_of, order in orders.items():
        where = known.where(f"gather() {words_of}")
        got = _gather(known.source, [known.places[place] for place in order], where)
        _require(known, order, got, where)
    where = known.where("gather() one by one")
    _require(known, range(count), [row for place in known.places for row in _gather(known.source, [place], where)], where)


def _require(known: _Known, order: Sequence[int], got: list[Any], where: str) -> None:
    for place, element in zip(order, got, strict=True):
        if exact(element) != known.frozen[place]:
            raise LawBroken(
                f"element {known.places[place]} is {shown(element)} here and {known.shown[place]} in the first reading",
                where=where,
                fix=_PURE,
            )


def _fails(known: _Known, failing: Collection[int]) -> None:
    """Read a good element and a bad one. The engine asks for nothing beyond the end, so there any error will do: else `len` is wrong."""
    good = known.places[:1]
    for bad in [*failing, len(known.source)]:
        where = known.where(f"gather([{', '.join(map(str, [*good, bad, *good]))}])")
        for _ in range(2):
            rows: list[Any] = []
            _, error = attempt(lambda rows=rows, bad=bad: known.source.gather([*good, bad, *good], rows))  # type: ignore[misc]
            if error is None:
                what = f"index {bad} is beyond the end and gave an element" if bad == len(known.source) else f"element {bad} did not fail"
                raise LawBroken(what, where=where, fix="raise when an element is not there; never give another one")
            if bad in failing and len(rows) != len(good):
                blamed = _at([*good, bad], len(rows))
                raise LawBroken(
                    f"element {bad} failed with {words(error)} and left {len(rows)} rows, so element {blamed} would be blamed",
                    where=where,
                    fix="append every element that was read before the one that fails, and nothing for it",
                ) from error


def _in_threads(known: _Known) -> None:
    """Read everything in eight threads at once, each in an order of its own."""
    start, wrong = threading.Barrier(_NUM_THREADS), list[LawBroken]()
    where = known.where(f"gather() in {_NUM_THREADS} threads at once")

    def read(number: int) -> None:
        order = list(range(len(known.places)))
        random.Random(number).shuffle(order)
        start.wait(_TIMEOUT_S)
        try:
            for first in range(0, len(order), 7):
                part = order[first : first + 7]
                _require(known, part, _gather(known.source, [known.places[place] for place in part], where), where)
        except LawBroken as broken:
            wrong.append(broken)

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(_NUM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_TIMEOUT_S)
    if wrong:
        raise wrong[0]
    if any(thread.is_alive() for thread in threads):
        raise LawBroken(f"threads still read after {_TIMEOUT_S} s", where=where, fix="look for a lock that is taken twice or not released")


def _columns(known: _Known, source: ColumnSource) -> None:
    where = known.where("gather_columns()")
    at, types = np.array(known.places, np.int64), source.leaves()
    own = source.gather_columns(at, None)
    out = [np.empty((len(at), *shape), dtype) for shape, dtype in types]
    given = source.gather_columns(at, out)
    if len(given) != len(out) or any(one is not other for one, other in zip(given, out, strict=True)):
        raise LawBroken(
            "gather_columns(indices, out) did not return the arrays of `out`", where=where, fix="write into `out` and return it"
        )
    for columns in (own, out):
        found = [(column.shape, column.dtype) for column in columns]
        if found != [((len(at), *shape), dtype) for shape, dtype in types]:
            raise LawBroken(f"the columns are {found}, but leaves() says {types} for one row", where=where, fix="let both tell the same")
        _rows_of(known, source, columns, where)
    for column in own:
        if column.size and not column.dtype.hasobject:
            column.view(np.uint8)[...] ^= 255 if column.flags.c_contiguous else 0
    require_same(
        _gather(source, known.places, where),
        known.elements,
        "writing into a gathered column changed the source",
        where=where,
        fix="return copies: a batch belongs to its user",
    )


def _rows_of(known: _Known, source: ColumnSource, columns: list[Any], where: str) -> None:
    for number, element in enumerate(known.elements):
        row = unflatten(source.structure(), iter([column[number] for column in columns]))
        if (
            structure_of(row) != structure_of(element)
            or not alike(row, element)
            or [np.shape(leaf) for leaf in flatten(row)] != [np.shape(leaf) for leaf in flatten(element)]
        ):
            raise LawBroken(
                f"row {known.places[number]} of the columns is {shown(row)}, but gather() gives {shown(element)}",
                where=where,
                fix="gather the same rows in both",
            )


def _transient(known: _Known, source: TransientSource, failing: Collection[int]) -> None:
    where = known.where("read_transient()")
    mine, other, ahead = Scratch(), Scratch(), np.array(known.places, np.int64)
    fix = "take the bytes' memory from the scratch that was given, and keep none of your own"
    for place, wanted in zip(known.places, known.frozen, strict=True):
        element = source.read_transient(place, mine, ahead)
        if source.transient_field not in element:
            raise LawBroken(
                f"element {place} has no field {source.transient_field!r}", where=where, fix="let transient_field name the field of bytes"
            )
        first = exact(element) == wanted
        source.read_transient(known.places[-1 - place % len(known.places)], other, ahead[:0])
        if not first or exact(element) != wanted:
            when = "changed when another scratch was read into" if first else "differs from what gather() gives"
            raise LawBroken(f"element {place} {when}", where=where, fix=fix)
    for bad in failing:
        if attempt(lambda bad=bad: source.read_transient(bad, mine, ahead[:0]))[1] is None:  # type: ignore[misc]
            raise LawBroken(f"element {bad} did not fail", where=where, fix="raise as gather() does")
