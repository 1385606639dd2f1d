"""The laws of a source: the same elements in any order, from any thread, and names that a saved state can trust; the laws of streams."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.element import unflatten
from penstock._contracts.source import ColumnSource, IndexedSource, StreamSource, TransientSource
from penstock._contracts.transform import Scratch
from penstock._system.failing import failure_of
from penstock.errors import LawBroken, PlanError, SourceError
from penstock.sources import indexed_source
from penstock.sources.paths import spread
from penstock.testing.leaks import check_no_leaks
from penstock.testing.runs import WAYS, Case, alike, as_dataset, exact, quiet, require_same, shown, words

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_NUM_THREADS = 8
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
    index, and in eight threads at once, and appends them; `len(rows)` says which element failed; columns equal rows and are the
    caller's own; transient reads equal rows until the next call with their scratch. Of a stream: passes are equal, also behind one that was
    closed in the middle, and as long as declared. Of both: label, descriptions and fingerprint are stable and without addresses; every
    executor delivers the same; a saved feed resumes.

    Args:
        source: the object.
        expected: its elements, if you know them; lists stand for arrays.
        failing: indices whose elements cannot be read.
        again: makes the source once more from the same data; its fingerprint must be the same, and a state must resume on it.
        most_elements: how many elements are read; of a longer source, evenly spaced ones.

    Raises:
        LawBroken: naming the law and the values.
        PlanError: `failing` is given for a stream.
    """
    for kind, mark in ((IndexedSource, "gather"), (StreamSource, "open")):
        lacking = [f"{name}()" for name in _methods(kind) if not hasattr(source, name)]
        if hasattr(source, mark) and lacking:
            what = f"{type(source).__name__} has {mark}() but is no {kind.__name__}: it lacks {', '.join(lacking)}"
            raise LawBroken(what, where="check_source", fix="add it, as the protocol says")
    wanted = None if expected is None else list(expected)
    with quiet():
        if not isinstance(source, StreamSource):
            _indexed(indexed_source(source), wanted, set(failing), again, max(2, most_elements))
        elif failing:
            raise PlanError("a stream has no indices that could fail", where="check_source(failing=...)", fix="leave failing= out")
        else:
            _stream(source, wanted, again, most_elements)


def _methods(kind: type) -> list[str]:
    return [name for name in vars(kind) if callable(getattr(kind, name)) and (not name.startswith("_") or name == "__len__")]


def _names(source: IndexedSource | StreamSource, places: Iterable[int], again: Callable[[], Any] | None, where: str) -> None:
    """Check that label and descriptions are one line of text, and that the fingerprint is JSON and depends on nothing but the data."""
    for name, text in [("label()", source.label()), *((f"describe({place})", source.describe(place)) for place in places)]:
        if not isinstance(text, str) or not text or "\n" in text or _ADDRESS.search(text):
            raise LawBroken(f"{name} is {shown(text)}", where=where, fix="return one line of text, without the address of an object")
    where, record = f"{where}, fingerprint()", source.fingerprint()
    if not isinstance(record, dict) or failure_of(lambda: json.dumps(record, allow_nan=False)) is not None:
        raise LawBroken(f"{shown(record)} is no JSON record", where=where, fix="return a dict of text, whole numbers and lists")
    if _ADDRESS.search(json.dumps(record)):
        raise LawBroken(f"{shown(record)} holds the address of an object", where=where, fix="leave out `repr` of objects")
    others = {"the second time": source} if again is None else {"the second time": source, "of the source made again": _source(again())}
    for which, other in others.items():
        found = other.fingerprint()
        if found != record:
            key = next((key for key in {**record, **found} if record.get(key) != found.get(key)), "its form")
            what = f"{key} is {shown(record.get(key))}, and {which} {shown(found.get(key))}"
            raise LawBroken(what, where=where, fix="let it depend on the data alone; then a state resumes in another process")


def _source(given: Any) -> IndexedSource | StreamSource:
    return given if isinstance(given, StreamSource) else indexed_source(given)


def _feeds(source: Any, again: Callable[[], Any] | None, most: int, may_fail: bool, where: str) -> None:
    """Feed the source element by element and in batches, in every way; stop and resume on the source made again."""
    here, there = (as_dataset(one).take(most) for one in (source, source if again is None else again()))
    fix = "let an element depend on its index alone, whichever thread reads it and when"
    single = Case(where, lambda: here, fix, lambda: there)
    for case in (single, Case(f"{where}, batch(3)", lambda: here.batch(3), fix, lambda: there.batch(3))):
        whole = case.run(WAYS[0])
        if whole.error is not None and case is single and not may_fail:
            raise LawBroken(f"a feed failed: {words(whole.error)}", where=where, fix="mend the source") from whole.error
        case.runs_alike(whole)
        case.resumes(whole, spread(len(whole.states), 5))


# -- streams ----------------------------------------------------------------------------------------------------------------------


def _stream(source: StreamSource, expected: list[Any] | None, again: Callable[[], Any] | None, most: int) -> None:
    where, declared = f"check_source({source.label()})", source.declared_length()
    _names(source, range(3), again, where)
    first, ended = _pass(source, most, where)
    if declared is not None and (declared != len(first) if ended else declared < len(first)):
        what = f"{declared} elements are declared, and a pass has {'' if ended else 'at least '}{len(first)}"
        raise LawBroken(what, where=f"{where}, declared_length()", fix="declare the true number, or None")
    if expected is not None:
        wanted = expected if ended else expected[: len(first)]
        law, fix = "the elements are not the expected ones", "give the right ones"
        require_same(first, wanted, law, where=f"{where}, open()", fix=fix, by=alike)
    if isinstance(failure_of(lambda: next(source.open(1), None)), SourceError):
        return  # it says that there is one pass only
    for taken in sorted({0, min(1, len(first)), len(first) // 2}):
        with check_no_leaks():
            iterator = source.open(0)
            for _ in range(taken):
                next(iterator)
            getattr(iterator, "close", int)()
            del iterator
        law = f"the pass behind one that was closed behind {taken} elements differs from the first"
        fix = "let open() start at the first element, whatever became of the passes before"
        require_same(_pass(source, len(first), where)[0], first, law, where=f"{where}, open()", fix=fix)
    _feeds(source, again, most, False, where)


def _pass(source: StreamSource, most: int, where: str) -> tuple[list[Any], bool]:
    """Return up to `most` elements of a new pass, and whether it ended."""
    iterator, elements = source.open(0), list[Any]()
    error = failure_of(lambda: elements.extend(islice(iterator, most + 1)))
    getattr(iterator, "close", int)()
    if error is not None:
        raise LawBroken(f"a pass failed: {words(error)}", where=f"{where}, open()", fix="mend the source") from error
    return elements[:most], len(elements) <= most


# -- sources with positions -------------------------------------------------------------------------------------------------------


class _Known(NamedTuple):
    """A source with some of its elements, and what they were when they came first: they may share a buffer that others are read into."""

    source: IndexedSource
    places: list[int]
    frozen: list[Any]
    shown: list[str]
    where: str

    def require(self, order: Iterable[int], got: Sequence[Any], law: str) -> None:
        for place, element in zip(order, got, strict=True):
            if exact(element) != self.frozen[place]:
                what = f"element {self.places[place]} is {shown(element)} here and {self.shown[place]} in the first reading"
                raise LawBroken(what, where=f"{self.where}, {law}", fix=_PURE)

    def read_again(self, order: Sequence[int], law: str) -> None:
        self.require(order, _gather(self.source, [self.places[place] for place in order], f"{self.where}, {law}"), law)


def _indexed(source: IndexedSource, expected: list[Any] | None, failing: set[int], again: Callable[[], Any] | None, most: int) -> None:
    count, where = len(source), f"check_source({source.label()})"
    places = [place for place in spread(count, most) if place not in failing]
    elements = _gather(source, places, f"{where}, gather() in order")
    known = _Known(source, places, [exact(element) for element in elements], [shown(element) for element in elements], where)
    if expected is not None:
        if len(expected) != count:
            what = f"the length is {count}, and {len(expected)} elements are expected"
            raise LawBroken(what, where=f"{where}, len()", fix="count what can be read")
        wanted = [expected[place] for place in places]
        law = "the elements are not the expected ones"
        require_same(elements, wanted, law, where=f"{where}, gather()", fix="read the right ones", by=alike)
    order = list(range(len(places)))
    known.read_again(order[::-1], "gather() backwards")
    known.read_again(random.Random(0).choices(order, k=len(order)) if order else [], "gather() in a random order with repeats")
    known.read_again([], "gather() for no index")
    for place in order:
        known.read_again([place], "gather() one by one")
    _fails(source, places[:1], failing, where)
    _in_threads(known)
    if isinstance(source, ColumnSource):
        _columns(known, source, elements)
    if isinstance(source, TransientSource):
        _transient(known, source)
    _names(source, spread(count, 8), again, where)
    _feeds(source, again, most, bool(failing), where)
    if len(source) != count:
        what = f"the length was {count} and is now {len(source)}"
        raise LawBroken(what, where=f"{where}, len()", fix="let it be constant: decide it in __init__")


def _gather(source: IndexedSource, indices: Sequence[int], where: str) -> list[Any]:
    before = object()
    rows: list[Any] = [before]
    error = failure_of(source.gather, indices, rows)
    if error is not None:
        bad = indices[len(rows) - 1] if 0 < len(rows) <= len(indices) else "?"
        fix = "give the indices of elements that cannot be read with failing=, or mend gather()"
        raise LawBroken(f"element {bad} could not be read: {words(error)}", where=where, fix=fix) from error
    if rows[:1] != [before] or len(rows) != len(indices) + 1:
        what = f"gather() of {len(indices)} indices left {len(rows)} rows where one stood before"
        fix = "append exactly one element per index to `rows`, and leave what stands there alone"
        raise LawBroken(what, where=where, fix=fix)
    return rows[1:]


def _fails(source: IndexedSource, good: list[int], failing: set[int], where: str) -> None:
    """Read a good element and a bad one. The engine asks for nothing beyond the end, so there any error will do: else `len` is wrong."""
    for bad in [*sorted(failing), len(source)]:
        asked, rows = [*good, bad, *good], list[Any]()
        where_asked = f"{where}, gather({asked})"
        error = failure_of(source.gather, asked, rows)
        if error is None:
            what = f"index {bad} is beyond the end and gave an element" if bad == len(source) else f"element {bad} did not fail"
            raise LawBroken(what, where=where_asked, fix="raise when an element is not there; never give another one")
        if bad in failing and len(rows) != len(good):
            blamed = f", so element {asked[len(rows)]} would be blamed" if len(rows) < len(asked) else ""
            what = f"element {bad} failed with {words(error)} and left {len(rows)} rows{blamed}"
            fix = "append every element that was read before the one that fails, and nothing for it"
            raise LawBroken(what, where=where_asked, fix=fix) from error


def _in_threads(known: _Known) -> None:
    """Read everything in eight threads at once, each in an order of its own."""
    from concurrent.futures import ThreadPoolExecutor

    def read(number: int) -> None:
        order = random.Random(number).sample(range(len(known.places)), len(known.places))
        for first in range(0, len(order), 7):
            known.read_again(order[first : first + 7], f"gather() in {_NUM_THREADS} threads at once")

    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        list(pool.map(read, range(_NUM_THREADS)))


def _columns(known: _Known, source: ColumnSource, elements: list[Any]) -> None:
    where, at = f"{known.where}, gather_columns()", np.array(known.places, np.int64)
    forms = [((len(at), *shape), np.dtype(dtype)) for shape, dtype in source.leaves()]
    out = [np.empty(shape, dtype) for shape, dtype in forms]
    own, given = source.gather_columns(at, None), source.gather_columns(at, out)
    if len(given) != len(out) or any(one is not other for one, other in zip(given, out, strict=True)):
        what = "gather_columns(indices, out) did not return the arrays of `out`"
        raise LawBroken(what, where=where, fix="write into `out` and return it")
    for columns in (own, out):
        found = [(column.shape, column.dtype) for column in columns]
        if found != forms:
            raise LawBroken(f"the columns are {found}, but leaves() says {forms}", where=where, fix="let both tell the same")
        rows = [unflatten(source.structure(), iter([column[number] for column in columns])) for number in range(len(at))]
        law = "the rows of the columns are not what gather() gives"
        require_same(rows, elements, law, where=where, fix="gather the same rows in both", by=alike)
    for column in own:
        column[...] = np.zeros((), column.dtype)
    error = failure_of(known.read_again, range(len(at)), "gather()")
    if error is not None:
        fix = "return copies: a batch belongs to its user"
        raise LawBroken("writing into a gathered column changed the source", where=where, fix=fix) from error


def _transient(known: _Known, source: TransientSource) -> None:
    law, mine, other, ahead = "read_transient()", Scratch(), Scratch(), np.array(known.places, np.int64)
    for number, place in enumerate(known.places):
        element = source.read_transient(place, mine, ahead)
        known.require([number], [element], law)
        source.read_transient(known.places[-1 - number], other, ahead[:0])
        known.require([number], [element], f"{law}, after a read into another scratch")
