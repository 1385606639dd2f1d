from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock._contracts.source import ColumnSource, IndexedSource
from penstock.errors import PlanError
from penstock.sources import ArraySource
from penstock.testing import FailingSource, InjectedError, check_source
from penstock.testing.faults import Fault, RowsOnly


def test_the_indices_that_were_named_fail_and_the_others_are_those_of_the_source() -> None:
    source = FailingSource(range(10), {3, 7})
    assert isinstance(source, IndexedSource)
    check_source(source, expected=range(10), failing={3, 7})
    assert source.label() == "from_source(range, 10 elements)"
    assert source.describe(3) == "element 3 of range"


def test_it_fails_with_the_error_that_was_asked_for_and_heals_after_so_many_times() -> None:
    source = FailingSource(ArraySource(np.arange(5)), 2, lambda: OSError("gone"), times=2)
    assert not isinstance(source, ColumnSource)
    rows: list[Any] = []
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            source.gather([1, 2, 3], rows)
    source.gather([1, 2, 3], rows)
    assert rows == [1, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "options", "what"),
    [
        ((-1,), {}, "at=-1 is not a whole number >= 0"),
        ((5,), {}, "at= has 5, which is no index of 5 elements"),
        (([0, 50],), {}, "at= has 50, which is no index of 5 elements"),
        (([],), {}, "at=[] names no element"),
        ((1.5,), {}, "at=1.5 is not a whole number >= 0"),
        ((1, "x"), {}, "error='x' makes no exception"),
        ((1, int), {}, "error=<class 'int'> makes no exception"),
        ((1,), {"times": 0}, "times=0 is not a whole number >= 1"),
    ],
)
def test_a_fault_that_could_not_happen_is_refused(arguments: Any, options: Any, what: str) -> None:
    with pytest.raises(PlanError) as caught:
        FailingSource(range(5), *arguments, **options)
    assert caught.value.what == what


def test_indices_may_be_numbers_of_numpy() -> None:
    for at in (np.int64(3), np.array([3]), [np.int32(3)]):
        check_source(FailingSource(range(10), at), failing=at)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_state_saved_in_front_of_the_fault_resumes_on_the_source_without_it(num_workers: int) -> None:
    with ps.from_source(FailingSource(range(10), 6)).feed(executor="threads", num_workers=num_workers) as feed:
        got = [next(feed) for _ in range(6)]
        with pytest.raises(InjectedError):
            next(feed)
        state = feed.state_dict()
    with ps.from_source(range(10)).feed(executor="threads", num_workers=num_workers) as feed:
        feed.load_state_dict(state)
        assert got + list(feed) == list(range(10))


def test_rows_only_are_the_elements_of_a_source_without_its_columns() -> None:
    source = RowsOnly(ArraySource(np.arange(5)))
    assert not isinstance(source, ColumnSource)
    check_source(source, expected=range(5))
    assert (source.label(), source.fingerprint()) == (ArraySource(np.arange(5)).label(), ArraySource(np.arange(5)).fingerprint())


def test_a_fault_is_armed_until_it_is_mended() -> None:
    fault = Fault(np.arange(3))
    assert fault(1) == 1
    with pytest.raises(InjectedError, match=r"injected at array\(\[0, 1, 2\]\)"):
        fault(np.arange(3))
    fault.armed = False
    assert fault(np.arange(3)).tolist() == [0, 1, 2]
