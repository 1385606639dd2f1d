from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock._plan import check
from penstock._plan.base import walk
from penstock.errors import PlanError

NUMBERS = ps.from_source(range(3))


def keep(value: Any) -> Any:
    return value


def refused(call: Callable[[], Any]) -> PlanError:
    with pytest.raises(PlanError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("value", [-1, 1.0, "3", None, True, np.True_, np.array([1, 2]), np.array(1.5), 3 + 0j])
def test_what_is_no_count_is_refused_with_its_value(value: Any) -> None:
    error = refused(lambda: check.count_argument(value, "count", "take"))
    assert error.what == f"count={value!r} is not a whole number >= 0"
    assert error.where == "take()"
    assert error.fix == "give count a whole number >= 0"


@pytest.mark.parametrize("value", [None, 1.5, (1, 2), np.True_, np.array([1]), np.float64(2), "y" * 99])
def test_what_is_no_index_is_refused_with_what_to_do(value: Any) -> None:
    error = refused(lambda: check.index_argument(value))
    assert error.what == f"the index {repr(value)[:60]} is not a whole number"
    assert error.where == "ds[i]"
    assert "ds.skip(a).take(b - a) for ds[a:b]" in error.fix


def test_a_seed_has_at_most_64_bits() -> None:
    assert check.seed_argument(2**64 - 1, "shuffle") == 2**64 - 1
    error = refused(lambda: check.seed_argument(2**64, "shuffle"))
    assert error.what == f"seed={2**64} does not fit 64 bits"
    assert error.where == "shuffle()"
    assert "below 2**64" in error.fix
    assert "seed=-1 is not a whole number" in refused(lambda: check.seed_argument(-1, "map")).what


def test_a_ragged_batch_cannot_be_split_into_rows() -> None:
    ragged = NUMBERS.ragged_batch(2)
    for ds in (ragged.map(keep), NUMBERS.batch(2)):
        check.splittable(ds._root)
    for ds in (ragged, ragged.take(1).repeat(2)):
        error = refused(ds.unbatch)
        assert error.what.startswith("unbatch splits every array along its first dimension, but a ragged batch has values and row_splits")
        assert error.where == "unbatch() after ragged_batch()"
        assert "values[row_splits[i]:row_splits[i + 1]]" in error.fix


@pytest.mark.parametrize("value", ["no", 2, -1, None, np.array([1, 2])])
def test_what_only_counts_as_a_flag_is_refused(value: Any) -> None:
    error = refused(lambda: check.flag_argument(value, "drop_remainder", "batch"))
    assert error.what == f"drop_remainder={value!r} is neither True nor False"
    assert (error.where, error.fix) == ("batch()", "give drop_remainder True or False")


@pytest.mark.parametrize("values", [5, None, "abc", [5], keep, {keep}])
def test_what_are_no_listeners_is_refused(values: Any) -> None:
    assert check.listeners_argument([keep, print]) == (keep, print)
    error = refused(lambda: check.listeners_argument(values))
    assert error.what == f"listeners={values!r} is no list of functions"
    assert error.where == "feed()"
    assert "callables that take one event" in error.fix


@pytest.mark.parametrize("values", ["12", b"12", {1, 2}, ["1", "2"], [True, True], [1, 2, "x"], [1, 10**400]])
def test_weights_without_an_order_or_that_are_no_numbers_are_refused(values: Any) -> None:
    assert check.weights_argument(None, 2, "mix") == ((0, (1.0, 1.0)),)
    error = refused(lambda: check.weights_argument(values, 2, "mix"))
    assert error.what == f"weights={values!r} are not 2 positive finite numbers"
    assert error.where == "mix()"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "weights={} are not weights from position 0 on"),
        ({-1: [1, 1], 0: [1, 1]}, "weights={-1: [1, 1], 0: [1, 1]} are not weights from position 0 on"),
        ({0: [1, 1], "9": [1, 1]}, "weights={0: [1, 1], '9': [1, 1]} are not weights from position 0 on"),
        ({0: [1, 1], 5: [0, 0]}, "weights=[0, 0] are not 2 finite numbers >= 0, not all of them 0"),
        ({0: [1, 0], 5: [1, 0]}, "dataset 1 has the weight 0 from position 0 on"),
    ],
)
def test_what_is_no_schedule_of_weights_is_refused(values: Any, words: str) -> None:
    assert check.weights_argument({5: [1, 2], np.int64(0): [1, 0]}, 2, "mix") == ((0, (1.0, 0.0)), (5, (1.0, 2.0)))
    error = refused(lambda: check.weights_argument(values, 2, "mix"))
    assert error.what == words
    assert error.where == "mix()"


@pytest.mark.parametrize("values", [[], [0, 0], [1, -1], [1, float("nan")], [1, float("inf")], ["x"], None, 3, "12", ["1"], {1, 2}, {1: 2}])
def test_what_is_no_list_of_shares_is_refused(values: Any) -> None:
    error = refused(lambda: check.shares_argument(values, "target_dist", "rejection_resample"))
    assert error.what == f"target_dist={values!r} is not a list of shares"
    assert error.where == "rejection_resample()"
    assert error.fix == "give numbers >= 0, not all of them 0"


def test_where_a_function_runs_and_with_how_many_workers() -> None:
    assert check.workers_argument(None, None, asynchronous=False) is None
    assert check.workers_argument(3, None, asynchronous=True) == 3
    assert check.workers_argument(2, "threads", asynchronous=False) == 2
    assert check.workers_argument(None, "processes", asynchronous=False) == 0
    with pytest.raises(PlanError, match="executor='gpu' is not known"):
        check.workers_argument(None, "gpu", asynchronous=False)
    with pytest.raises(PlanError, match="an async function runs on an event loop"):
        check.workers_argument(None, "processes", asynchronous=True)


def notices_of(ds: ps.Dataset, output: str = "numpy") -> list[str]:
    return check.notices(walk(ds._root), output)


def test_a_shuffle_of_batches_is_told_and_one_before_batch_or_behind_unbatch_is_not() -> None:
    numbers = ps.from_source(range(20))
    said = ["shuffle() after batch() moves whole batches, and the elements of each stay together: put it before batch()"]
    for made in (numbers.batch(4), numbers.padded_batch(4), numbers.batch(4).map(keep).take(3), numbers.batch(4).filter(bool)):
        assert notices_of(made.shuffle(4, seed=1)) == said
    for plain in (
        numbers.shuffle(seed=1).batch(4), numbers.batch(4).unbatch().shuffle(4, seed=1), numbers.batch(4).flat_map(list).shuffle(4, seed=1),
        numbers.batch(4).zip(numbers.shuffle(seed=1)),
    ):  # fmt: skip
        assert notices_of(plain) == []


def test_tensors_without_a_batch_are_told() -> None:
    numbers = ps.from_source(range(20))
    (text,) = notices_of(numbers, "torch")
    assert text == 'output="torch" without batch() gives single elements: put batch(n) last, unless each element is a batch already'
    assert notices_of(numbers) == notices_of(numbers.batch(4), "torch") == notices_of(numbers.batch(4).map(keep), "torch") == []
