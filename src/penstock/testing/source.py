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
from penstock.sources.arrays import indexed_source
from penstock.sources.paths import spread
from penstock.testing.leaks import check_no_leaks
from penstock.testing.runs import WAYS, Case, alike, as_dataset, exact, quiet, require, require_same, shown, words

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
        methods = [name for name in vars(kind) if callable(getattr(kind, name)) and (name[0] != "_" or name == "__len__")]
        lacking = ", ".join(f"{name}()" for name in methods if not hasattr(source, name))
        what = f"{type(source).__name__} has {mark}() but is no {kind.__name__}: it lacks {lacking}"
        require(not hasattr(source, mark) or not lacking, what, "check_source", "add it, as the protocol says")
    if failing and isinstance(source, StreamSource):
        raise PlanError("a stream has no indices that could fail", where="check_source(failing=...)", fix="leave failing= out")
    wanted = None if expected is None else list(expected)
    with quiet():
        if isinstance(source, StreamSource):
            _stream(source, wanted, again, most_elements)
        else:
            _indexed(indexed_source(source), wanted, set(failing), again, max(2, most_elements))


def _names(source: IndexedSource | StreamSource, places: Iterable[int], again: Callable[[], Any] | None, where: str) -> None:
    """Check that label and descriptions are one line of text, and that the fingerprint is JSON and depends on nothing but the data."""
    for name, text in [("label()", source.label()), *((f"describe({place})", source.describe(place)) for place in places)]:
        good = isinstance(text, str) and text and "\n" not in text and not _ADDRESS.search(text)
        require(good, f"{name} is {shown(text)}", where, "return one line of text, without the address of an object")
    where, record = f"{where}, fingerprint()", source.fingerprint()
    plain = isinstance(record, dict) and failure_of(lambda: json.dumps(record, allow_nan=False)) is None
    require(plain, f"{shown(record)} is no JSON record", where, "return a dict of text, whole numbers and lists")
    named = _ADDRESS.search(json.dumps(record))
    require(not named, f"{shown(record)} holds the address of an object", where, "leave out `repr` of objects")
    others = {"the second time": source, "of the source made again": source if again is None else _source(again())}
    for which, other in others.items():
        found = other.fingerprint()
        key = next((key for key in {**record, **found} if record.get(key) != found.get(key)), "its form")
        what = f"{key} is {shown(record.get(key))}, and {which} {shown(found.get(key))}"
        require(found == record, what, where, "let it depend on the data alone; then a state resumes in another process")


def _source(given: Any) -> IndexedSource | StreamSource:
    return given if isinstance(given, StreamSource) else indexed_source(given)


def _feeds(source: Any, again: Callable[[], Any] | None, most: int, may_fail: bool, where: str) -> None:
    """Feed the source element by element and in batches, in every way; stop and resume on the source made again."""
    here, there = (as_dataset(one).take(most) for one in (source, source if again is None else again()))
    fix = "let an element depend on its index alone, whichever thread reads it and when"
    single = Case(where, lambda: here, fix, lambda: there)
    for case in (single, Case(f"{where}, batch(3)", lambda: here.batch(3), fix, lambda: there.batch(3))):
        whole = case.run(WAYS[0])
        good = whole.error is None or case is not single or may_fail
        require(good, f"a feed failed: {words(whole.error)}", where, "mend the source", whole.error)
        case.runs_alike(whole)
        case.resumes(whole, spread(len(whole.states), 5))


# -- streams ----------------------------------------------------------------------------------------------------------------------


def _stream(source: StreamSource, expected: list[Any] | None, again: Callable[[], Any] | None, most: int) -> None:
    where, declared = f"check_source({source.label()})", source.declared_length()
    _names(source, range(3), again, where)
    first, ended = _pass(source, most, where)
    true = declared is None or (declared == len(first) if ended else declared >= len(first))
    what = f"{declared} elements are declared, and a pass has {'' if ended else 'at least '}{len(first)}"
    require(true, what, f"{where}, declared_length()", "declare the true number, or None")
    if expected is not None:
        _expected(first, expected if ended else expected[: len(first)], f"{where}, open()")
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


def _expected(elements: list[Any], expected: list[Any], where: str) -> None:
    require_same(elements, expected, "the elements are not the expected ones", where=where, fix="read the right ones", by=alike)


def _pass(source: StreamSource, most: int, where: str) -> tuple[list[Any], bool]:
    """Return up to `most` elements of a new pass, and whether it ended."""
    iterator, elements = source.open(0), list[Any]()
    error = failure_of(lambda: elements.extend(islice(iterator, most + 1)))
    getattr(iterator, "close", int)()
    require(error is None, f"a pass failed: {words(error)}", f"{where}, open()", "mend the source", error)
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
        law = f"gather() {law}"
        self.require(order, _gather(self.source, [self.places[place] for place in order], f"{self.where}, {law}"), law)


def _indexed(source: IndexedSource, expected: list[Any] | None, failing: set[int], again: Callable[[], Any] | None, most: int) -> None:
    count, where = len(source), f"check_source({source.label()})"
    places = [place for place in spread(count, most) if place not in failing]
    elements = _gather(source, places, f"{where}, gather() in order")
    known = _Known(source, places, [exact(element) for element in elements], [shown(element) for element in elements], where)
    if expected is not None:
        what = f"the length is {count}, and {len(expected)} elements are expected"
        require(len(expected) == count, what, f"{where}, len()", "count what can be read")
        _expected(elements, [expected[place] for place in places], f"{where}, gather()")
    order = list(range(len(places)))
    known.read_again(order[::-1], "backwards")
    known.read_again(random.Random(0).choices(order, k=len(order)) if order else [], "in a random order with repeats")
    known.read_again([], "for no index")
    for place in order:
        known.read_again([place], "one by one")
    _fails(source, places[:1], failing, where)
    _in_threads(known)
    if isinstance(source, ColumnSource):
        _columns(known, source, elements)
    if isinstance(source, TransientSource):
        _transient(known, source)
    _names(source, spread(count, 8), again, where)
    _feeds(source, again, most, bool(failing), where)
    what = f"the length was {count} and is now {len(source)}"
    require(len(source) == count, what, f"{where}, len()", "let it be constant: decide it in __init__")


def _gather(source: IndexedSource, indices: Sequence[int], where: str) -> list[Any]:
    before = object()
    rows: list[Any] = [before]
    error = failure_of(source.gather, indices, rows)
    bad = indices[len(rows) - 1] if 0 < len(rows) <= len(indices) else "?"
    fix = "give the indices of elements that cannot be read with failing=, or mend gather()"
    require(error is None, f"element {bad} could not be read: {words(error)}", where, fix, error)
    what = f"gather() of {len(indices)} indices left {len(rows)} rows where one stood before"
    fix = "append exactly one element per index to `rows`, and leave what stands there alone"
    require(rows[:1] == [before] and len(rows) == len(indices) + 1, what, where, fix)
    return rows[1:]


def _fails(source: IndexedSource, good: list[int], failing: set[int], where: str) -> None:
    """Read a good element and a bad one. The engine asks for nothing beyond the end, so there any error will do: else `len` is wrong."""
    for bad in [*sorted(failing), len(source)]:
        asked, rows = [*good, bad, *good], list[Any]()
        where_asked = f"{where}, gather({asked})"
        error = failure_of(source.gather, asked, rows)
        what = f"index {bad} is beyond the end and gave an element" if bad == len(source) else f"element {bad} did not fail"
        require(error, what, where_asked, "raise when an element is not there; never give another one")
        blamed = f", so element {asked[len(rows)]} would be blamed" if len(rows) < len(asked) else ""
        what = f"element {bad} failed with {words(error)} and left {len(rows)} rows{blamed}"
        fix = "append every element that was read before the one that fails, and nothing for it"
        require(bad not in failing or len(rows) == len(good), what, where_asked, fix, error)


def _in_threads(known: _Known) -> None:
    """Read everything in eight threads at once, each in an order of its own."""
    from concurrent.futures import ThreadPoolExecutor

    def read(number: int) -> None:
        order = random.Random(number).sample(range(len(known.places)), len(known.places))
        for first in range(0, len(order), 7):
            known.read_again(order[first : first + 7], f"in {_NUM_THREADS} threads at once")

    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        list(pool.map(read, range(_NUM_THREADS)))


def _columns(known: _Known, source: ColumnSource, elements: list[Any]) -> None:
    where, at = f"{known.where}, gather_columns()", np.array(known.places, np.int64)
    forms = [((len(at), *shape), np.dtype(dtype)) for shape, dtype in source.leaves()]
    out = [np.empty(shape, dtype) for shape, dtype in forms]
    own, given = source.gather_columns(at, None), source.gather_columns(at, out)
    what = "gather_columns(indices, out) did not return the arrays of `out`"
    require([*map(id, given)] == [*map(id, out)], what, where, "write into `out` and return it")
    for columns in (own, out):
        found = [(column.shape, column.dtype) for column in columns]
        require(found == forms, f"the columns are {found}, but leaves() says {forms}", where, "let both tell the same")
        rows = [unflatten(source.structure(), iter([column[number] for column in columns])) for number in range(len(at))]
        law = "the rows of the columns are not what gather() gives"
        require_same(rows, elements, law, where=where, fix="gather the same rows in both", by=alike)
    for column in own:
        column[...] = np.zeros((), column.dtype)
    error = failure_of(known.read_again, range(len(at)), "once more")
    require(error is None, "writing into a gathered column changed the source", where, "return copies: a batch belongs to its user", error)


def _transient(known: _Known, source: TransientSource) -> None:
    law, mine, other, ahead = "read_transient()", Scratch(), Scratch(), np.array(known.places, np.int64)
    for number, place in enumerate(known.places):
        element = source.read_transient(place, mine, ahead)
        known.require([number], [element], law)
        source.read_transient(known.places[-1 - number], other, ahead[:0])
        known.require([number], [element], f"{law}, after a read into another scratch")
