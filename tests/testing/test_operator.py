from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from testing.breaking import assert_broken

import penstock as ps
from penstock.feed import Feed
from penstock.feed.compiled import Compiled
from penstock.testing import check_operator
from penstock.testing import operator as laws
from penstock.testing.operator import InjectedError

PURE = "depend on the element"


def noisy(x: Any, rng: np.random.Generator) -> Any:
    return x + int(rng.integers(0, 1000))


def even(x: Any) -> bool:
    return int(x) % 2 == 0


OPERATORS: dict[str, tuple[Any, Any]] = {
    "map with rng": (lambda ds: ds.map(noisy, seed=3), None),
    "filter": (lambda ds: ds.filter(even), lambda below: [x for x in below if even(x)]),
    "batch": (lambda ds: ds.batch(4), lambda below: [below[at : at + 4] for at in range(0, len(below), 4)]),
    "take and batch": (lambda ds: ds.filter(even).take(5).batch(2), None),
    "shuffle": (lambda ds: ds.shuffle(seed=4), None),
    "concatenate": (lambda ds: ds.concatenate(ds), lambda below: below + below),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_our_operators_keep_the_laws(name: str) -> None:
    build, reference = OPERATORS[name]
    check_operator(build, reference=reference)


@pytest.mark.slow
def test_datasets_of_ones_own_are_checked_too_endless_ones_included() -> None:
    check_operator(lambda ds: ds.repeat(), on={"three": [1, 2, 3], "rows": ps.from_arrays(np.zeros((2, 3)))}, resume_at=[0, 1, 7])
    check_operator(lambda ds: ds.map(np.sum), on=ps.from_arrays(np.ones((4, 3))), reference=lambda below: [float(sum(x)) for x in below])


def test_an_operator_that_refuses_everything_has_not_been_checked() -> None:
    def refuse(ds: ps.Dataset) -> ps.Dataset:
        raise ps.errors.PlanError("not on", where="here", fix="go")

    assert_broken(lambda: check_operator(refuse), "refused every dataset, the last one with PlanError: not on", "check_operator", "on=")
    with pytest.raises(ps.errors.PlanError):
        check_operator(refuse, on=[1])


class Wrong(ps.Dataset):
    """A dataset with one fault, which its class names."""

    __slots__ = ()
    make_feed: type[Feed] = Feed

    def feed(self, *, listeners: Any = (), **options: Any) -> Feed:
        return self.make_feed(Compiled(self._root, ps.Options(**options)))


def wrong(kind: type[Wrong]) -> Any:
    return lambda ds: kind(ds._root)


class WrongIndex(Wrong):
    __slots__ = ()

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) + (index == 3)


class NoEnd(Wrong):
    __slots__ = ()

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(min(index, len(self) - 1))


class SkippingRepeat(Wrong):
    __slots__ = ()

    def repeat(self, count: int | None = None) -> Any:
        return super().repeat(count).skip(1)


class _Forgetful(Feed):
    def load_state_dict(self, state: Any, *, strict: bool = True) -> None:
        super().load_state_dict(state, strict=strict)
        next(self, None)


class Forgetful(Wrong):
    __slots__ = ()
    make_feed = _Forgetful


def rebuilt(ds: ps.Dataset, error: Any) -> ps.Dataset:
    """Read a dataset through a generator, and do with an injected error what `error` says."""

    def rows() -> Iterator[Any]:
        try:
            yield from ds.feed(executor="inline")
        except InjectedError:
            if error is not None:
                raise error from None

    return ps.from_generator(rows, fast_forward=True)


def in_main_thread(x: Any) -> bool:
    return threading.current_thread() is threading.main_thread()


def picky(x: Any) -> Any:
    if not in_main_thread(x):
        raise OSError("not here")
    return x


calls = iter(range(10**6))


@pytest.mark.parametrize(
    ("build", "what", "where", "fix"),
    [
        (wrong(WrongIndex), "ds[3] is not what the feed delivers there: element 0 is 4, not 3", "a list, ds[i]", "position alone"),
        (wrong(NoEnd), "ds[23] is beyond the end and no IndexError", "a list, ds[i]", "OutOfRange"),
        (
            wrong(SkippingRepeat),
            "the first of two passes is not the pass alone: element 0 is 1, not 0",
            "a list, repeat(2) after",
            PURE,
        ),
        (wrong(Forgetful), "a resumed run is not the run that never stopped", "resumed behind element 0", "keep in the state"),
        (lambda ds: ds.map(lambda x: next(calls)), "a second run differs from the first: element 0 is 23, not 0", "a list", PURE),
        (
            lambda ds: ds.map(in_main_thread),
            "depend on how the feed runs: element 0 is False, not True",
            "a list, feed(executor='threads', num_workers=2)",
            PURE,
        ),
        (lambda ds: ds.map(picky), "only this run failed: OSError: not here", "num_workers=2", PURE),
        (lambda ds: rebuilt(ds, None), "an error became the end of the data: 0 elements came", "element 0 failing", "faults=False"),
        (lambda ds: rebuilt(ds, KeyError("mine")), "the error before it arrived as KeyError", "element 0 failing", "catch only"),
    ],
)
def test_an_operator_with_one_fault_is_named(build: Any, what: str, where: str, fix: str) -> None:
    assert_broken(lambda: check_operator(build), what, where, fix)


def test_an_operator_that_fails_is_named_with_its_error_and_one_that_handles_errors_may_say_so() -> None:
    broken = assert_broken(
        lambda: check_operator(lambda ds: ds.map(lambda x: 1 // 0)),
        "the operator failed: ZeroDivisionError",
        "a list, feed(executor='inline')",
        "on=",
    )
    assert isinstance(broken.__cause__, ZeroDivisionError)
    check_operator(lambda ds: rebuilt(ds, None), on=[1, 2], faults=False)


def test_another_reference_is_named_with_the_first_element_that_differs() -> None:
    assert_broken(
        lambda: check_operator(lambda ds: ds.skip(1), reference=lambda below: below[2:]),
        "differs from its reference: element 0 is 1, not 2",
        "a list",
        "the one that is wrong",
    )


@pytest.mark.parametrize(
    ("length", "what"), [(7, "the length is 7, but a pass has 23 elements"), (float("inf"), "the length is inf, but a pass has 23")]
)
def test_a_wrong_length_is_named(length: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "length_of", lambda node: length)
    assert_broken(lambda: check_operator(lambda ds: ds), what, "a list, len(ds)", "give the true length")
