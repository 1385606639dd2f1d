from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock._plan import check
from penstock._plan.base import walk
from penstock._plan.node import (
    Batch,
    Enumerate,
    Filter,
    FlatMap,
    Interleave,
    Map,
    Node,
    PaddedBatch,
    RaggedBatch,
    Read,
    ReadStream,
    Repeat,
    Shard,
    Skip,
    Take,
    Unbatch,
    Window,
)
from penstock.errors import PlanError
from penstock.sources import ArraySource, GeneratorSource


def read(num_elements: int = 3) -> Node:
    return Read(source=ArraySource(np.arange(num_elements)))


ENDLESS = Repeat(child=read(), count=None)


def keep(value: Any) -> Any:
    return value


def refused(call: Callable[[], Any]) -> PlanError:
    with pytest.raises(PlanError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("value", [-1, 1.0, "3", None, True, False, np.True_, [1], np.array([1, 2]), np.array(1.5), 3 + 0j, keep])
def test_what_is_no_count_is_refused_with_its_value(value: Any) -> None:
    error = refused(lambda: check.count_argument(value, "count", "take"))
    assert error.what == f"count={value!r} is not a whole number >= 0"
    assert error.where == "take()"
    assert error.fix == "give count a whole number >= 0"


@pytest.mark.parametrize(
    "value", [slice(0, 2), "x", None, 1.5, [1, 2], (1, 2), True, np.True_, np.array([1]), np.float64(2), ..., "y" * 99]
)
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


STREAMS = [
    Filter(child=read(), fn=keep, name="keep"),
    FlatMap(child=read(), fn=keep, name="keep"),
    Unbatch(child=read()),
    ReadStream(source=GeneratorSource(lambda: iter([1]), fast_forward=True, length=None)),
]


@pytest.mark.parametrize("node", STREAMS, ids=lambda node: type(node).__name__)
def test_positions_that_only_reading_can_tell_are_refused_with_the_fix_of_the_caller(node: Node) -> None:
    check.indexable(read(), "shuffle", "shuffle first")
    error = refused(lambda: check.indexable(Repeat(child=node, count=2), "shuffle", "shuffle first"))
    assert error.what.startswith("shuffle needs positions that are known before reading")
    assert "filter, flat_map, unbatch, generator or compressed file stands before it" in error.what
    assert (error.where, error.fix) == ("shuffle()", "shuffle first")


def test_a_ragged_batch_cannot_be_split_into_rows() -> None:
    ragged = RaggedBatch(child=read(), batch_size=2, drop_remainder=False)
    check.splittable(Map(child=ragged, fn=keep, name="keep"))
    check.splittable(Batch(child=read(), batch_size=2, drop_remainder=False))
    for node in (ragged, Repeat(child=Take(child=ragged, count=1), count=2)):
        error = refused(lambda node=node: check.splittable(node))  # type: ignore[misc]
        assert error.what.startswith("unbatch splits every array along its first dimension, but a ragged batch has values and row_splits")
        assert error.where == "unbatch() after ragged_batch()"
        assert "values[row_splits[i]:row_splits[i + 1]]" in error.fix


@pytest.mark.parametrize(
    ("make", "where", "highest"),
    [
        (lambda: Enumerate(child=read(2), start=2**63 - 1), "enumerate()", 2**63),
        (lambda: Enumerate(child=Filter(child=read(), fn=keep, name="keep"), start=2**63 - 1), "enumerate()", 2**63 - 1 + 2**32),
        (lambda: Skip(child=ENDLESS, count=2**63 - 2**32), "skip()", 2**63),
        (lambda: Shard(child=read(), num_shards=2**63, index=0), "shard()", 2**63),
        (lambda: Window(child=ENDLESS, size=2, shift=2**31, stride=1, drop_remainder=False), "window()", 2**63 + 1),
        (lambda: PaddedBatch(child=ENDLESS, batch_size=2**31, drop_remainder=True), "padded_batch()", 2**63 + 2**31 - 1),
        (lambda: Interleave(children=(read(),), name="", cycle_length=1, block_length=2**63), "interleave()", 2**63),
    ],
)
def test_numbers_beyond_63_bits_are_refused(make: Callable[[], Node], where: str, highest: int) -> None:
    error = refused(lambda: check.bounded(make()))
    assert error.what == f"positions and numbers would get as large as {highest}, which is beyond 2**63 - 1"
    assert error.where == where
    assert error.fix == "give smaller numbers; where no end is known, the first 2**32 elements must fit"


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


def test_what_is_no_list_of_counts_is_refused() -> None:
    error = refused(lambda: check.counts_argument(5, "bucket_boundaries", "bucket_by_length", least=1))
    assert error.what == "bucket_boundaries=5 is not a list of whole numbers"
    assert error.where == "bucket_by_length()"
    assert error.fix == "give bucket_boundaries a list, such as [2]"
    assert (
        "bucket_boundaries=0 is not a whole number >= 1"
        in refused(lambda: check.counts_argument([3, 0], "bucket_boundaries", "bucket_by_length", least=1)).what
    )


@pytest.mark.parametrize("values", [[], [0, 0], [1, -1], [1, float("nan")], [1, float("inf")], ["x"], None, 3, "12", ["1"], {1, 2}, {1: 2}])
def test_what_is_no_list_of_shares_is_refused(values: Any) -> None:
    error = refused(lambda: check.shares_argument(values, "target_dist", "rejection_resample"))
    assert error.what == f"target_dist={values!r} is not a list of shares"
    assert error.where == "rejection_resample()"
    assert error.fix == "give numbers >= 0, not all of them 0"


def test_a_function_that_waits_for_an_rng_is_refused() -> None:
    def drawn(value: Any, rng: Any) -> Any:
        return rng

    check.no_rng(keep, "filter")
    error = refused(lambda: check.no_rng(drawn, "filter"))
    assert error.what == "filter gives no rng to its function"
    assert error.where.startswith("filter(")
    assert error.fix == "draw in a map(fn, seed=...) before it, and let filter look at what was drawn"


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


async def awaited(value: Any) -> Any:
    return value


async def two(value: Any) -> Any:
    yield value
    yield value


NUMBERS = ps.from_source(range(3))
REFUSED: dict[str, Callable[[], Any]] = {
    "path=5 is no path": lambda: NUMBERS.cache(5),  # type: ignore[arg-type]
    "missing=5 is a int": lambda: ps.read_csv("rows.csv", missing=5),  # type: ignore[arg-type]
    "7 is not callable": lambda: NUMBERS.map(7),  # type: ignore[arg-type]
    "filter does not await its function": lambda: NUMBERS.filter(awaited),
    "an async generator gives no single element": lambda: NUMBERS.map(two),
    "as_completed() stands in this plan already": lambda: NUMBERS.as_completed().as_completed(),
    "shard() after as_completed()": lambda: NUMBERS.as_completed().shard(2, 0),
    "an async function cannot be awaited inside a branch of zip": lambda: NUMBERS.zip(NUMBERS.map(awaited)),
    "concurrency= has no effect inside a branch of zip": lambda: NUMBERS.zip(NUMBERS.map(keep, concurrency=2)),
    "shuffle of an endless dataset": lambda: NUMBERS.repeat().shuffle(),
    "split after shuffle(": lambda: NUMBERS.shuffle(seed=1).split((0.5, 0.5)),
    f"{3 * 2**62} elements are more than 2**63": lambda: NUMBERS.repeat(2**62),
    "even='no' is not known": lambda: NUMBERS.shard_by_rank("no", rank=0, num_ranks=2),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_run_is_refused_where_it_is_written(what: str) -> None:
    assert what in refused(REFUSED[what]).what
