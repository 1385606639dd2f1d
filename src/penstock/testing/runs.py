"""Runs of a feed, and comparisons of elements: when two are the same, and how they differ in words.

A run goes to its end, its error or a number of elements, and its elements are kept. Here alone do the laws receive every error.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np

from penstock.errors import FeedClosed, LawBroken, StateUnavailable, StillRunning
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
    return _alike(plain(one), plain(other))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_alike(one[key], other[key]) for key in one)
    return bool(one == other) or (one != one and other != other)


def first_difference(got: Sequence[Any], wanted: Sequence[Any], same: Callable[[Any, Any], bool]) -> str | None:
    """Say where two runs of elements begin to differ, or None."""
    for place, (one, other) in enumerate(zip(got, wanted, strict=False)):
        if not same(one, other):
            return f"element {place} is {shown(one)}, not {shown(other)}"
    if len(got) < len(wanted):
        return f"{len(got)} elements came instead of {len(wanted)}; the first that is missing is {shown(wanted[len(got)])}"
    if len(got) > len(wanted):
        return f"{len(got)} elements came instead of {len(wanted)}; the first too many is {shown(got[len(wanted)])}"
    return None


def shown(item: Any) -> str:
    """Return an element in at most 100 characters."""
    text = " ".join(repr(item).split())
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


T = TypeVar("T")

TIMEOUT_S = 60.0
"""A feed of a few hundred small elements that takes so long does not come to an end."""

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
        states: JSON of the state behind 0, 1, 2, ... items; empty when states were not asked for or there are none.
    """

    items: list[Any]
    error: Exception | None
    ended: bool
    states: list[str]


def attempt(call: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Return (result, None) or (None, error)."""
    try:
        return call(), None
    except Exception as error:
        return None, error


def run(
    feed: Feed, where: str, *, most: int | None = None, saving: bool = False, state: str | None = None, timeout_s: float = TIMEOUT_S
) -> FeedRun:
    """Take up to `most` items of epoch 0 from a new feed, and close it.

    Raises:
        LawBroken: it does not come to an end, an error does not end it, or it cannot be closed.
    """
    items: list[Any] = []
    states: list[str] = []
    error, ended = None, False
    with _limited(feed, where, timeout_s):
        if state is not None:
            feed.load_state_dict(state)
            ended = feed.epoch > 0  # the state was saved behind the last element
        try:
            saving = saving and _save(feed, states)
            while not ended and (most is None or len(items) < most):
                items.append(next(feed))
                saving = saving and _save(feed, states)
        except StopIteration:
            ended = True
        except LawBroken:
            raise
        except Exception as caught:
            error = caught
        if error is not None and not isinstance(attempt(lambda: next(feed))[1], FeedClosed):
            raise LawBroken(
                f"after the error {words(error)}, next() did not raise FeedClosed",
                where=where,
                fix="an error is raised once and ends the feed; keep no element behind it",
            ) from error
        checked_close(feed, where)
    return FeedRun(items, error, ended, states)


def _save(feed: Feed, states: list[str]) -> bool:
    try:
        states.append(json.dumps(feed.state_dict()))
    except StateUnavailable:
        return False
    return True


def checked_close(feed: Feed, where: str) -> None:
    """Close a feed.

    Raises:
        LawBroken: workers are still running.
    """
    try:
        feed.close()
    except StillRunning as straggling:
        raise LawBroken(
            f"close() failed: {straggling.what}",
            where=where,
            fix="functions must return, and join() must wait for every worker and name only those that are alive",
        ) from straggling


@contextmanager
def _limited(feed: Feed, where: str, timeout_s: float) -> Iterator[None]:
    """Close the feed from outside when the block takes too long; the consumer that waits in it then gets FeedClosed."""
    late = threading.Event()

    def give_up() -> None:
        late.set()
        attempt(feed.close)

    timer = threading.Timer(timeout_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if late.is_set():
            raise LawBroken(
                f"the feed gave nothing more and did not end within {timeout_s} s",
                where=where,
                fix="look for a lock that is not released, a task that is claimed and not run, or a wait that nobody ends",
            )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warning of feeds that give nothing: the laws try such too."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="this dataset gave no elements")
        yield


def require_same(got: Sequence[Any], wanted: Sequence[Any], law: str, *, where: str, fix: str) -> None:
    """Raise LawBroken unless two runs of elements are exactly the same."""
    different = first_difference(got, wanted, lambda one, other: bool(exact(one) == exact(other)))
    if different is not None:
        raise LawBroken(f"{law}: {different}", where=where, fix=fix)


def words(error: BaseException | None) -> str:
    """Name an error in one line."""
    return "no error" if error is None else f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
