"""The laws of a source: the same elements in any order, from any thread, names that a saved state can trust; the laws of streams.

A state is compared with the name of a source in another process, on another day. Epochs of a stream are equal, as long as declared, and
may be closed at any element. Every executor delivers the same, and a saved feed resumes.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from penstock._contracts.element import flatten, structure_of, unflatten
from penstock._contracts.source import ColumnSource, IndexedSource, StreamSource, TransientSource
from penstock._contracts.transform import Scratch
from penstock._plan.check import count_argument
from penstock.dataset.builder import Dataset
from penstock.errors import LawBroken, PlanError, SourceError, StateUnavailable
from penstock.sources import indexed_source
from penstock.sources.paths import spread
from penstock.testing.executor import as_dataset
from penstock.testing.faults import RowsOnly, check_places, places_argument
from penstock.testing.leaks import Held, left_behind
from penstock.testing.runs import WAYS, FeedRun, alike, attempt, exact, first_difference, quiet, require_same, run, shown, words

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
    for other, which in (
        (source.fingerprint(), "the second time"),
        (as_source(again()).fingerprint() if again else record, "of the source made again"),
    ):
        if json.dumps(other, sort_keys=True) != text:
            key = next((key for key in sorted({*record, *other}) if record.get(key) != other.get(key)), "its form")
            what = f"{key} is {shown(record.get(key))}, and {which} {shown(other.get(key))}"
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


_NUM_PLACES = 5


def check_feeds(source: IndexedSource | StreamSource, again: Callable[[], Any] | None, most_elements: int, may_fail: bool) -> None:
    """Feed the source element by element and in batches, in every way; stop and resume on the source made again.

    Raises:
        LawBroken: naming the options and the first element that differs.
    """
    here = as_dataset(source).take(most_elements)
    there = here if again is None else as_dataset(again()).take(most_elements)
    for batch_size in (None, 3):
        dataset = here if batch_size is None else here.batch(batch_size)
        other = there if batch_size is None else there.batch(batch_size)
        where = f"check_source({source.label()}){'' if batch_size is None else f', batch({batch_size})'}"
        whole = run(dataset.feed(**WAYS[0]), where, saving=True)
        if whole.error is not None and batch_size is None and not may_fail:
            raise LawBroken(f"a feed failed: {words(whole.error)}", where=where, fix="mend the source") from whole.error
        for way in WAYS[1:]:
            _require_same_run(run(dataset.feed(**way), where), whole, f"{where}, feed({way})")
        if batch_size is not None and isinstance(source, ColumnSource):
            rows = as_dataset(RowsOnly(source)).take(most_elements).batch(batch_size)
            _require_same_run(run(rows.feed(**WAYS[0]), where), whole, f"{where}, row by row")
        _resumes(dataset, other, whole, where)


def _require_same_run(got: FeedRun, whole: FeedRun, where: str) -> None:
    law, fix = "the elements depend on how the feed runs", "let an element depend on its index alone, whichever thread reads it and when"
    if type(got.error) is not type(whole.error):  # first: elements that are missing behind an error say less than the error
        raise LawBroken(f"{words(got.error)} came instead of {words(whole.error)}", where=where, fix=fix) from got.error
    require_same(got.items, whole.items, law, where=where, fix=fix)


def _resumes(dataset: Dataset, other: Dataset, whole: FeedRun, where: str) -> None:
    if not whole.states:
        _, error = attempt(dataset.feed().state_dict)
        if not isinstance(error, StateUnavailable):
            raise LawBroken("a state could not be saved", where=where, fix="see the cause above") from error
        return
    for number, place in enumerate(spread(len(whole.states), _NUM_PLACES)):
        way = WAYS[number % len(WAYS)]
        words_of = f"{where}, feed({way}) resumed behind element {place}"
        tail = run(other.feed(**way), words_of, state=whole.states[place])
        _require_same_run(tail, whole._replace(items=whole.items[place:]), words_of)


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
