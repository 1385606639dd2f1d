"""What may be given, and how an iterator comes of it."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest
from enqueuer import feeding

from penstock.enqueuer.given import Given
from penstock.errors import PlanError, SourceError


@pytest.mark.parametrize(
    ("thing", "name", "is_iterator"),
    [
        (feeding.twenty, "twenty", False),
        (feeding.twenty(), "twenty", True),
        (list(range(20)), "list", False),
        (range(20), "range", False),
        (iter(range(20)), "range_iterator", True),
        (partial(range, 20), "partial", False),
    ],
)
def test_generators_iterators_iterables_and_callables_are_read(thing: Any, name: str, is_iterator: bool) -> None:
    given = Given(thing)
    assert (given.name, given.is_iterator) == (name, is_iterator)
    assert list(given.open()) == list(range(20))


@pytest.mark.parametrize("thing", [7, None, object()])
def test_anything_else_is_an_error(thing: Any) -> None:
    with pytest.raises(PlanError) as caught:
        Given(thing)
    assert caught.value.what == f"'{type(thing).__qualname__}' is neither a generator nor a function that makes one"


def test_a_callable_with_worker_and_num_workers_gets_them() -> None:
    assert Given(feeding.own_share).takes_share
    assert list(Given(feeding.own_share).open(1, 10)) == [(1, 1), (11, 1)]
    assert not Given(feeding.twenty).takes_share
    assert not Given(feeding.twenty()).takes_share
    assert not Given(dict).takes_share  # in C, without a signature


def test_what_is_at_its_end_is_not_opened() -> None:
    used = feeding.twenty()
    list(used)
    iterator = iter([1])
    given = Given(iterator)
    assert list(given.open()) == [1]
    given.note_end(iterator)
    for ended in (Given(used), Given(lambda: used), given):
        with pytest.raises(SourceError) as caught:
            ended.open()
        assert caught.value.what.endswith("is at its end and can be read only once")
    with pytest.raises(SourceError):
        given.check_fresh()
    Given(feeding.twenty()).check_fresh()


def test_a_copy_for_another_process_knows_nothing_of_this_ones_iterators() -> None:
    given = Given(feeding.twenty)
    iterator = given.open()
    given.note_end(iterator)
    assert list(pickle.loads(pickle.dumps(given)).open()) == list(range(20))


def test_only_what_was_made_here_is_closed() -> None:
    own = feeding.twenty()
    given = Given(own)
    given.close(given.open())
    assert next(own) == 0
    made = Given(feeding.twenty)
    iterator = made.open()
    made.close(iterator)
    assert list(iterator) == []
    made.close(iter([1]))  # a list's iterator has no close()
