"""The laws of an operator: what a part of a pipeline delivers does not depend on how it is run, stopped and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from penstock._plan.facts import is_indexable, length_of
from penstock._system.failing import failure_of
from penstock.dataset.builder import Dataset
from penstock.dataset.opening import from_arrays, from_generator, from_source
from penstock.errors import PlanError
from penstock.sources.paths import spread
from penstock.testing.leaks import check_no_leaks
from penstock.testing.runs import WAYS, Case, FeedRun, alike, as_dataset, exact, quiet, require, require_same, run, shown, words

Build = Callable[[Dataset], Dataset]
Places = Literal["every"] | Iterable[int]

_MOST_ITEMS = 1000
_EVERY_UP_TO = 20
_NUM_PLACES = 8
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
    equals the reference; `ds[i]` and `len(ds)` agree with the feed; saved anywhere and resumed with other options, it is the run that never
    stopped; the first of two passes is the pass alone; an error below it arrives as itself, behind everything before it; nothing is left
    behind.

    Args:
        build: makes the pipeline on top of a dataset, such as `lambda ds: ds.batch(4)`. Called many times.
        on: a Dataset or a source, or a dict of several by name. By default about ten kinds of small datasets of whole numbers, from lists,
            arrays and a generator, shuffled, filtered, repeated, empty; those that `build` refuses with a PlanError are left out.
        reference: takes the list of all elements below and returns all elements of one pass, in plain Python: lists stand for arrays.
        resume_at: numbers of elements to stop behind. "every" is every place, and eight places of more than 20 elements.
        faults: False for an operator that handles errors itself.

    Raises:
        LawBroken: naming the law, the dataset, the options and the first element that differs.
    """
    datasets = _small_datasets() if on is None else on if isinstance(on, Mapping) else {"the given dataset": on}
    refusal: PlanError | None = None
    num_checked = 0
    with quiet(), check_no_leaks():
        for name, given in datasets.items():
            below = as_dataset(given)
            try:
                build(below)
            except PlanError as error:
                if on is not None:
                    raise
                refusal = error
                continue
            _check(f"check_operator on {name}", below, build, reference, resume_at if resume_at == "every" else list(resume_at), faults)
            num_checked += 1
    what = f"the operator refused every dataset, the last one with {words(refusal)}"
    require(num_checked, what, "check_operator", "give datasets that it takes with on=", refusal)


class InjectedError(Exception):
    """The error of an element below the operator that fails on purpose."""


def _whole(case: Case) -> FeedRun:
    """Return the reference answer: inline, with a state behind every element."""
    whole = case.run(WAYS[0], most=_MOST_ITEMS)
    what, fix = f"the operator failed: {words(whole.error)}", "mend it, or give datasets whose elements it can take with on="
    require(whole.error is None, what, case.where(WAYS[0]), fix, whole.error)
    return whole


def _check(
    name: str,
    below: Dataset,
    build: Build,
    reference: Callable[[list[Any]], Iterable[Any]] | None,
    resume_at: Places,
    faults: bool,
) -> None:
    case = Case(name, lambda: build(below), _PURE)
    whole = _whole(case)
    case.runs_alike(whole)
    if reference is not None:
        inputs = run(below.feed(**WAYS[0]), name, most=_MOST_ITEMS).items
        wanted = list(reference(inputs))
        got = whole.items if whole.ended else whole.items[: len(wanted)]
        law = "the operator differs from its reference"
        require_same(got, wanted, law, where=case.where(WAYS[0]), fix="correct the one that is wrong", by=alike)
    _indexed(case, whole)
    count = len(whole.items)
    every = spread(count + 1, _EVERY_UP_TO + 1 if count <= _EVERY_UP_TO else _NUM_PLACES)
    case.resumes(whole, every if resume_at == "every" else resume_at)
    if whole.ended:
        twice = Case(f"{name}, repeat(2) after", lambda: build(below).repeat(2), _PURE)
        both = _whole(twice)
        law = "the first of two passes is not the pass alone"
        require_same(both.items[:count], whole.items, law, where=twice.where(WAYS[0]), fix=_PURE)
        twice.runs_alike(both)
        twice.resumes(both, spread(len(both.items) + 1, _NUM_PLACES))
        if faults:
            _failed(name, below, build)


def _indexed(case: Case, whole: FeedRun) -> None:
    dataset, count, where = case.make(), len(whole.items), f"{case.name}, len(ds)"
    length = length_of(dataset._root)
    true = length is None or (length == count if whole.ended else length > count)
    what = f"the length is {length}, but a pass has {'' if whole.ended else 'more than '}{count} elements"
    require(true, what, where, "give the true length, or None when only reading can tell")
    if not is_indexable(dataset._root):
        return
    where, fix = f"{case.name}, ds[i]", "compute element i from its position alone, in the feed and by index alike"
    for place in spread(count, 100):
        require_same([dataset[place]], [whole.items[place]], f"ds[{place}] is not what the feed delivers there", where=where, fix=fix)
    bounded = not whole.ended or isinstance(failure_of(lambda: dataset[count]), IndexError)
    require(bounded, f"ds[{count}] is beyond the end and no IndexError", where, "raise OutOfRange there")


class _Fault:
    """A map function that raises InjectedError at one element."""

    def __init__(self, element: Any) -> None:
        self.armed = False
        self._bad, self._words = exact(element), shown(element)

    def __call__(self, element: Any) -> Any:
        if self.armed and exact(element) == self._bad:
            raise InjectedError(f"injected at {self._words}")
        return element


def _failed(name: str, below: Dataset, build: Build) -> None:
    """Let the first, a middle and the last element below fail."""
    elements = run(below.feed(**WAYS[0]), name).items
    fix = "deliver what comes before the error, then the error; catch only what you can handle, or give faults=False"
    for place in spread(len(elements), 3):
        fault = _Fault(elements[place])
        case = Case(f"{name}, element {place} failing", partial(_with_fault, build, below, fault), fix)
        clean = _whole(case).items
        fault.armed = True
        inline = case.run(WAYS[0])
        for way in WAYS[:3]:
            got, where = case.run(way), case.where(way)
            if got.error is None:
                require_same(got.items, clean, "an error became the end of the data", where=where, fix=fix)
            whose = type(got.error) in (type(None), InjectedError)
            require(whose, f"the error before it arrived as {words(got.error)}", where, fix, got.error)
            law = "with a failing element before it, other elements came"
            require_same(got.items, clean[: len(inline.items)], law, where=where, fix=fix)


def _with_fault(build: Build, below: Dataset, fault: _Fault) -> Dataset:
    return build(below.map(fault, name="injected fault"))


def _small_datasets() -> dict[str, Dataset]:
    """Return datasets of whole numbers by name: every kind of source, and orders and folds below."""
    return {
        "a list": from_source(list(range(23))),
        "a list behind a filter": from_source(list(range(25))).filter(_two_of_three),
        "a generator": from_generator(_some, fast_forward=True),
        "arrays": from_arrays(np.arange(20)),
        "no element": from_source([]),
        "one element": from_source([7]),
        "a shuffled shard": from_source(list(range(31))).shuffle(seed=5).shard(2, 1),
        "two shuffled passes": from_source(list(range(9))).shuffle(seed=2).repeat(2),
        "a stage with workers of its own": from_source(list(range(19))).map(_same, concurrency=2),
        "a list behind a flat_map": from_source(list(range(12))).flat_map(_copies),
        "a long list": from_source(list(range(400))),
    }


def _same(x: Any) -> Any:
    return x


def _two_of_three(x: Any) -> bool:
    return int(np.sum(x)) % 3 != 1


def _copies(x: Any) -> list[Any]:
    return [x] * (int(np.sum(x)) % 3)


def _some() -> Iterator[int]:
    return iter(range(21))
