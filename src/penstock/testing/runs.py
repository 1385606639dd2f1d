"""Runs of a feed, and comparisons of elements: when two are the same, and how they differ in words."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.source import StreamSource
from penstock._plan import node as plan
from penstock._system.failing import failure_of
from penstock.dataset.builder import Dataset
from penstock.dataset.opening import from_source
from penstock.errors import FeedClosed, LawBroken, StateUnavailable
from penstock.feed import Feed

_MOST_CHARACTERS = 100


def plain(item: Any) -> Any:
    """Turn an element into lists, dicts and Python numbers that == can compare: what a reference in plain Python gives."""
    if isinstance(item, np.ndarray):
        return item.tolist()
    if isinstance(item, np.generic):
        return item.item()
    if isinstance(item, (tuple, list)):
        return [plain(part) for part in item]
    if isinstance(item, dict):
        return {key: plain(value) for key, value in item.items()}
    return item


def exact(item: Any) -> Any:
    """Copy an element into a value that is equal only to that of the same element: same nesting, types, dtypes, shapes and bits.

    Bytes may lie in working memory: `bytes`, `bytearray` and `memoryview` count as the same. An object of a class of yours is compared
    by its own `==`, or as an array where it offers `__array__`.
    """
    if isinstance(item, dict):
        return "dict", tuple((key, exact(value)) for key, value in item.items())
    if isinstance(item, (tuple, list)):
        return type(item).__name__, tuple(exact(part) for part in item)
    if isinstance(item, (bytes, bytearray, memoryview)):
        return "bytes", bytes(item)
    if isinstance(item, float):  # not a number is the same as not a number, and 0.0 is not -0.0
        return type(item).__name__, repr(item)
    if isinstance(item, np.ndarray) and item.dtype.hasobject:
        return "array", item.dtype.str, item.shape, exact(item.tolist())
    if isinstance(item, (np.ndarray, np.generic)) or hasattr(item, "__array__"):
        array = np.asarray(item)
        return type(item).__name__, str(array.dtype), array.shape, array.tobytes()
    return type(item).__name__, item


def alike(one: Any, other: Any) -> bool:
    """Tell whether two elements have the same values: an array is like a list of its numbers, and not a number is like itself."""
    one, other = plain(one), plain(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    return bool(one == other) or (one != one and other != other)


def same(one: Any, other: Any) -> bool:
    """Tell whether two elements are exactly the same."""
    return bool(exact(one) == exact(other))


def shown(item: Any) -> str:
    """Return an element in at most 100 characters."""
    text = " ".join(repr(item).split())
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


def words(error: BaseException | None) -> str:
    """Name an error in one line."""
    return "no error" if error is None else f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def require(holds: object, what: str, where: str, fix: str, cause: BaseException | None = None) -> None:
    """Raise LawBroken unless something holds."""
    if not holds:
        raise LawBroken(what, where=where, fix=fix) from cause


def require_same(
    got: Sequence[Any], wanted: Sequence[Any], law: str, *, where: str, fix: str, by: Callable[[Any, Any], bool] = same
) -> None:
    """Raise LawBroken unless two runs of elements are the same."""
    for place, (one, other) in enumerate(zip(got, wanted, strict=False)):
        if not by(one, other):
            raise LawBroken(f"{law}: element {place} is {shown(one)}, not {shown(other)}", where=where, fix=fix)
    require(len(got) == len(wanted), f"{law}: {len(got)} elements came instead of {len(wanted)}", where, fix)


WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "inline"},
    {"executor": "threads", "num_workers": 2},
    {},
    {"executor": "threads", "num_workers": 2, "memory_bytes": 1},
    {"executor": "threads", "num_workers": 5},
)
"""The options that must not change what is delivered; the first is the reference answer."""


class FeedRun(NamedTuple):
    """What a feed delivered.

    Attributes:
        items: as they came.
        error: that ended the run, or None.
        ended: whether it came to the end of the data.
        states: JSON of the state behind 0, 1, 2, ... items; empty when there are none.
    """

    items: list[Any]
    error: Exception | None
    ended: bool
    states: list[str]

    def most(self, begin: int) -> int | None:
        """Return how many elements another run from `begin` on is to take: all where this one came to an end or an error."""
        return None if self.ended or self.error is not None else len(self.items) - begin


class Case(NamedTuple):
    """A dataset, which is made for each run.

    Attributes:
        name: what errors call it.
        make: makes it.
        fix: of an element that differs between two runs.
        again: makes the one on which saved states resume; None is the same.
    """

    name: str
    make: Callable[[], Dataset]
    fix: str
    again: Callable[[], Dataset] | None = None

    def where(self, way: Mapping[str, Any], more: str = "") -> str:
        """Name a run by its options."""
        return f"{self.name}, feed({', '.join(f'{key}={value!r}' for key, value in way.items())}){more}"

    def run(self, way: Mapping[str, Any], *, most: int | None = None, state: str | None = None) -> FeedRun:
        """Run it in one way, from a state."""
        make = self.make if state is None else self.again or self.make
        return run(make().feed(**way), self.where(way), most=most, state=state)

    def require(self, got: FeedRun, whole: FeedRun, begin: int, law: str, where: str, fix: str | None = None) -> None:
        """Raise LawBroken unless a run has the elements of the whole one from `begin` on, and the same error."""
        fix = fix or self.fix
        other = "" if whole.error is None else f", and not with {words(whole.error)}"
        what = f"only this run failed: {words(got.error)}{other}"
        require(type(got.error) is type(whole.error), what, where, fix, got.error)  # first: missing elements say less than the error
        require_same(got.items, whole.items[begin:], law, where=where, fix=fix)

    def runs_alike(self, whole: FeedRun) -> None:
        """Run it in every way."""
        for way in WAYS:
            law = "a second run differs from the first" if way is WAYS[0] else "the elements depend on how the feed runs"
            self.require(self.run(way, most=whole.most(0)), whole, 0, law, self.where(way))

    def resumes(self, whole: FeedRun, places: Iterable[int]) -> None:
        """Stop behind each number of elements, and resume with other options."""
        for number, place in enumerate(place for place in places if place < len(whole.states)):
            way = WAYS[(number + 1) % len(WAYS)]
            tail = self.run(way, state=whole.states[place], most=whole.most(place))
            law, fix = "a resumed run is not the run that never stopped", f"keep in the state all that later elements depend on; {self.fix}"
            self.require(tail, whole, place, law, self.where(way, f", resumed behind element {place}"), fix)


def as_dataset(given: Any) -> Dataset:
    """Return a dataset as it is, and one over a source of any kind."""
    if isinstance(given, Dataset):
        return given
    if isinstance(given, StreamSource):
        return Dataset(plan.ReadStream(source=given))
    return from_source(given)


def run(feed: Feed, where: str, *, most: int | None = None, state: str | None = None) -> FeedRun:
    """Take up to `most` items of epoch 0 from a new feed, and close it. A feed that hangs fails by its own `stall_timeout_s`.

    Raises:
        LawBroken: an error does not end the feed.
    """
    items: list[Any] = []
    states: list[str] = []
    error, ended = None, False
    with feed:
        if state is not None:
            feed.load_state_dict(state)
            ended = feed.epoch > 0  # the state was saved behind the last element
        try:
            _save(feed, states)
            while not ended and (most is None or len(items) < most):
                items.append(next(feed))
                _save(feed, states)
        except StopIteration:
            ended = True
        except Exception as caught:
            error = caught
        what, fix = f"after the error {words(error)}, next() did not raise FeedClosed", "an error is raised once and ends the feed"
        require(error is None or isinstance(failure_of(next, feed), FeedClosed), what, where, fix, error)
    return FeedRun(items, error, ended, states)


def _save(feed: Feed, states: list[str]) -> None:
    try:
        states.append(json.dumps(feed.state_dict()))
    except StateUnavailable:
        states.clear()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warning of feeds that give nothing: the laws try such too."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="this dataset gave no elements")
        yield
