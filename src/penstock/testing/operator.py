"""The laws of an operator: what a part of a pipeline delivers does not depend on how it is run, stopped and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock._plan.facts import INFINITE, is_indexable, length_of
from penstock.dataset.builder import Dataset
from penstock.errors import FeedClosed, LawBroken, PlanError
from penstock.sources.paths import spread
from penstock.testing.executor import as_dataset, small_datasets
from penstock.testing.faults import Fault, InjectedError
from penstock.testing.leaks import check_no_leaks
from penstock.testing.runs import WAYS, FeedRun, alike, attempt, checked_close, first_difference, quiet, require_same, run, words

Build = Callable[[Dataset], Dataset]
Places = Literal["every"] | Iterable[int]

_MOST_ITEMS = 1000
_EVERY_UP_TO = 32
_NUM_PLACES = 8
_NUM_THOROUGH = 4
_PURE = "let elements depend on the element, its key and `rng` only: no counter, clock, global generator or shared buffer"


def check_operator(
    build: Build,
    on: Any = None,
    *,
    reference: Callable[[list[Any]], Iterable[Any]] | None = None,
    resume_at: Places = "every",
    faults: bool = True,
) -> None:
    """Check one operator, or any part of a pipeline, on small datasets. Takes about a second for a quick operator.

    The laws: every executor, number of workers and byte budget delivers what `inline` does; two runs are equal, and so are two builds; it
    equals the reference; `ds[i]` and `len(ds)` agree with the feed; saved anywhere and resumed with other options, twice, it is the
    run that never stopped; so are several passes; an error below it arrives once, as itself, behind everything before it, and the
    state saved then resumes when the cause is mended; it closes in every state and leaves nothing behind.

    Args:
        build: makes the pipeline on top of a dataset, such as `lambda ds: ds.batch(4)`. Called many times.
        on: a Dataset or a source, or a dict of several by name. By default about ten kinds of small datasets of whole numbers, from lists,
            arrays and a generator, shuffled, filtered, repeated, empty; those that `build` refuses with a PlanError are left out.
        reference: takes the list of all elements below and returns all elements of one pass, in plain Python: lists stand for arrays.
        resume_at: numbers of elements to stop behind. "every" is every place on the first four datasets, and eight places on the others
            and on more than 32 elements.
        faults: False for an operator that handles errors itself.

    Raises:
        LawBroken: naming the law, the dataset, the options and the first element that differs.
    """
    cases = small_datasets() if on is None else on if isinstance(on, Mapping) else {"the given dataset": on}
    with quiet(), check_no_leaks():
        _check_all(build, {name: as_dataset(below) for name, below in cases.items()}, on is None, reference, resume_at, faults)


def _check_all(
    build: Build,
    cases: Mapping[str, Dataset],
    may_refuse: bool,
    reference: Callable[[list[Any]], Iterable[Any]] | None,
    resume_at: Places,
    faults: bool,
) -> None:
    places = resume_at if resume_at == "every" else list(resume_at)
    refused: Exception | None = None
    num_checked = 0
    for name, below in cases.items():
        try:
            build(below)
        except PlanError as refusal:
            if not may_refuse:
                raise
            refused = refusal
            continue
        case = _Case(name=name, below=below, build=build)
        whole = _whole(case)
        _same_every_way(case, whole)
        if reference is not None:
            _same_as_reference(case, whole, reference)
        _indexed(case, whole)
        few = places == "every" and (num_checked >= _NUM_THOROUGH or len(whole.items) > _EVERY_UP_TO)
        _resumed(case, whole, spread(len(whole.items) + 1, _NUM_PLACES) if few else places)
        _several_passes(case, whole)
        if num_checked < 3:
            _closed(case, whole)
            if faults and whole.ended:
                _failed(case)
        num_checked += 1
    if not num_checked:
        raise LawBroken(
            f"the operator refused every dataset, the last one with {words(refused)}",
            where="check_operator",
            fix="give datasets that it takes with on=",
        ) from refused


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One dataset below the operator."""

    name: str
    below: Dataset
    build: Build

    def where(self, way: Mapping[str, Any], more: str = "") -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in way.items())
        return f"check_operator on {self.name}, feed({options}){more}"

    def run(self, way: Mapping[str, Any], more: str = "", **kwargs: Any) -> FeedRun:
        return run(self.build(self.below).feed(**way), self.where(way, more), **kwargs)


def _whole(case: _Case) -> FeedRun:
    """Return the reference answer: inline, with a state behind every element."""
    whole = case.run(WAYS[0], most=_MOST_ITEMS, saving=True)
    if whole.error is not None:
        raise LawBroken(
            f"the operator failed: {words(whole.error)}",
            where=case.where(WAYS[0]),
            fix="mend it, or give datasets whose elements it can take with on=",
        ) from whole.error
    return whole


def _most(whole: FeedRun) -> int | None:
    return None if whole.ended else len(whole.items)


def _same_every_way(case: _Case, whole: FeedRun) -> None:
    for way in WAYS:
        again = case.run(way, most=_most(whole))
        law = "a second run differs from the first" if way is WAYS[0] else "the elements depend on how the feed runs"
        _require_no_error(again, case.where(way))
        require_same(again.items, whole.items, law, where=case.where(way), fix=_PURE)


def _require_no_error(done: FeedRun, where: str) -> None:
    if done.error is not None:
        raise LawBroken(f"only this run failed: {words(done.error)}", where=where, fix=_PURE) from done.error


def _same_as_reference(case: _Case, whole: FeedRun, reference: Callable[[list[Any]], Iterable[Any]]) -> None:
    below = run(case.below.feed(**WAYS[0]), case.where(WAYS[0], ", the dataset below"), most=_MOST_ITEMS)
    wanted = list(reference(below.items))
    got = whole.items if whole.ended else whole.items[: len(wanted)]
    different = first_difference(got, wanted, alike)
    if different is not None:
        raise LawBroken(
            f"the operator differs from its reference: {different}", where=case.where(WAYS[0]), fix="correct the one that is wrong"
        )


def _indexed(case: _Case, whole: FeedRun) -> None:
    above = case.build(case.below)
    length = length_of(above._root)
    where = f"check_operator on {case.name}, len(ds)"
    if length is not None and (length != len(whole.items) if whole.ended else length <= len(whole.items)):
        num = f"{len(whole.items)}" if whole.ended else f"more than {len(whole.items)}"
        raise LawBroken(
            f"the length is {length}, but a pass has {num} elements",
            where=where,
            fix="give the true length, or None when only reading can tell",
        )
    if length == INFINITE and whole.ended:
        raise LawBroken("the length is endless, but the feed ended", where=where, fix="give the true length")
    if not is_indexable(above._root):
        return
    places = spread(len(whole.items), 100)
    where = f"check_operator on {case.name}, ds[i]"
    got = [above[place] for place in places]
    fix = "compute element i from its position alone, in the feed and by index alike"
    for place, one in zip(places, got, strict=True):
        require_same([one], [whole.items[place]], f"ds[{place}] is not what the feed delivers there", where=where, fix=fix)
    if whole.ended and not isinstance(attempt(lambda: above[len(whole.items)])[1], IndexError):
        raise LawBroken(f"ds[{len(whole.items)}] is beyond the end and no IndexError", where=where, fix="raise OutOfRange there")


def _resumed(case: _Case, whole: FeedRun, places: Places) -> None:
    """Stop at each place, resume with other options, take a few, stop again, resume with yet others."""
    if not whole.states:
        return
    count = len(whole.items)
    if places == "every":
        places = range(count + 1)
    threaded = case.run(WAYS[1], most=_most(whole), saving=True).states
    for number, place in enumerate(place for place in places if place <= count):
        state = (whole.states if number % 2 else threaded)[place]
        first, second = WAYS[(number + 1) % len(WAYS)], WAYS[(2 * number) % len(WAYS)]
        few = min(number % 4, count - place)
        words_of = f", resumed behind element {place}"
        head = case.run(first, words_of, state=state, most=few, saving=True)
        _require_no_error(head, case.where(first, words_of))
        again = words_of + f" and again behind {place + few}"
        tail = case.run(second, again, state=head.states[-1], most=None if whole.ended else count - place - few)
        _require_no_error(tail, case.where(second, again))
        fix = "keep in the state all that later elements depend on, and nothing of what was read ahead"
        law = "a resumed run is not the run that never stopped"
        require_same(head.items + tail.items, whole.items[place:], law, where=case.where(second, again), fix=fix)


def _several_passes(case: _Case, whole: FeedRun) -> None:
    """Let a repeat stand above: the first pass is the same as alone, and the second is the same every way."""
    if not whole.ended:
        return
    repeated = _Case(name=f"{case.name}, repeat(2) above", below=case.below, build=lambda ds: case.build(ds).repeat(2))
    twice = _whole(repeated)
    law = "the first of two passes is not the pass alone"
    require_same(twice.items[: len(whole.items)], whole.items, law, where=repeated.where(WAYS[0]), fix=_PURE)
    for way in WAYS[1:4]:
        again = repeated.run(way, most=_most(twice))
        _require_no_error(again, repeated.where(way))
        require_same(again.items, twice.items, "the elements depend on how the feed runs", where=repeated.where(way), fix=_PURE)
    _resumed(repeated, twice, spread(len(twice.items) + 1, _NUM_PLACES))


def _closed(case: _Case, whole: FeedRun) -> None:
    """Close new, running and ended feeds, and drop one that was not closed."""
    count = len(whole.items)
    for way in WAYS[:2]:
        for taken in sorted({0, min(1, count), count // 2, count}):
            where = case.where(way, f", closed behind element {taken}")
            feed = case.build(case.below).feed(**way)
            for _ in range(taken):
                next(feed)
            checked_close(feed, where)
            checked_close(feed, where)
            if not isinstance(attempt(lambda feed=feed: next(feed))[1], FeedClosed):  # type: ignore[misc]
                raise LawBroken("next() after close() did not raise FeedClosed", where=where, fix="deliver nothing after close()")
        dropped = case.build(case.below).feed(**way)
        next(dropped, None)
        del dropped


def _failed(case: _Case) -> None:
    """Let the first, a middle and the last element below fail."""
    below = run(case.below.feed(**WAYS[0]), case.where(WAYS[0], ", the dataset below")).items
    for place in spread(len(below), 3):
        fault = Fault(below[place])
        failing = _Case(name=f"{case.name}, element {place} failing", below=case.below.map(fault, name="injected fault"), build=case.build)
        fault.armed = False
        clean = _whole(failing)
        fault.armed = True
        inline = failing.run(WAYS[0], saving=True)
        _require_fault(failing, inline, clean)
        for way in WAYS[1:4]:
            other = failing.run(way)
            law = "what is delivered before the error depends on how the feed runs"
            fix = "let the lowest position that fails win, and deliver everything before it first"
            require_same(other.items, inline.items, law, where=failing.where(way), fix=fix)
            if type(other.error) is not type(inline.error):
                raise LawBroken(
                    f"{words(other.error)} came instead of {words(inline.error)}", where=failing.where(way), fix=fix
                ) from other.error
        fault.armed = False
        if inline.states:
            _resumed(failing, clean._replace(states=inline.states + clean.states[len(inline.states) :]), [len(inline.items)])


def _require_fault(case: _Case, failed: FeedRun, clean: FeedRun) -> None:
    where = case.where(WAYS[0])
    require_same(
        failed.items,
        clean.items[: len(failed.items)] if failed.error is not None else clean.items,
        "with a failing element below, other elements came" if failed.error is not None else "an error became the end of the data",
        where=where,
        fix="deliver what comes before the error, then the error; catch only what you can handle, or give faults=False",
    )
    if failed.error is not None and type(failed.error) is not InjectedError:
        raise LawBroken(
            f"the error below arrived as {words(failed.error)}", where=where, fix="let exceptions of others through as they are"
        ) from failed.error
