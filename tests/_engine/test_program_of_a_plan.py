from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from _engine.lowering import double, numbers, program
from laws.plans import plain

import penstock as ps
from penstock._engine.lowering import lower
from penstock._engine.program import in_completion_order
from penstock._plan import node as plan
from penstock.errors import PlanError


def test_a_plain_pipeline_is_one_segment_with_one_stage() -> None:
    (segment,) = program(numbers().shuffle().map(double).batch(3)).segments
    assert len(segment.stages) == 1
    assert segment.stages[0].name == "read+double"
    assert segment.batch is not None
    assert segment.batch.batch_size == 3
    assert segment.folds == ()
    assert segment.name == "read+double"


def test_a_concurrency_of_its_own_cuts_the_stages() -> None:
    (segment,) = program(numbers().map(double).map(double, concurrency=3, name="slow").map(double).batch(2)).segments
    assert [(stage.name, stage.concurrency) for stage in segment.stages] == [("read+double", None), ("slow", 3), ("double", None)]


def test_arithmetic_on_positions_does_not_cut_a_stage() -> None:
    (segment,) = program(numbers().map(double, concurrency=2).skip(1).shard(2, 0).map(double, concurrency=2).batch(2)).segments
    assert [stage.concurrency for stage in segment.stages] == [None, 2]


def test_a_batch_behind_a_filter_is_a_segment_of_its_own() -> None:
    first, second = program(numbers().filter(bool).batch(2)).segments
    assert first.folds
    assert first.batch is None
    assert second.leaf is None
    assert second.batch is not None


def test_numbering_behind_a_filter_is_folded_where_the_filter_is() -> None:
    for ds in (numbers().filter(bool).take(3), numbers().filter(bool).skip(1).shard(2, 0).repeat(2)):
        (segment,) = program(ds).segments
        assert segment.folds


def test_maps_above_the_batch_run_on_whole_batches() -> None:
    (segment,) = program(numbers().batch(3).map(double).shuffle()).segments
    assert [step.name for step in segment.batch_ops if step.name] == ["double"]


def test_a_map_with_workers_above_the_batch_is_a_segment_of_its_own() -> None:
    segments = program(numbers().batch(3).map(double, concurrency=2).map(double)).segments
    assert [stage.concurrency for segment in segments for stage in segment.stages] == [None, 2, None]
    assert [plain(batch) for batch in numbers(4).batch(2).map(double, concurrency=2).map(double)] == [[0, 4], [8, 12]]


def test_enumerate_above_such_a_map_is_refused_in_words() -> None:
    with pytest.raises(PlanError) as refusal:
        program(numbers(4).batch(2).map(double, concurrency=2).enumerate(5))
    assert refusal.value.what == "enumerate after a map with concurrency= after batch() is not possible"
    assert refusal.value.where == "map(concurrency=...) after batch()"
    assert refusal.value.fix == "put enumerate() before the batch or before this map"


def test_a_generator_is_a_stream_and_the_largest_prefetch_counts() -> None:
    made = program(ps.from_generator(lambda: iter([1])).prefetch(3).map(double).prefetch(9).prefetch(2))
    assert made.segments[0].stream is not None
    assert made.prefetch == 9
    assert program(numbers()).prefetch == 0


def test_a_batch_below_a_cache_is_part_of_the_leaf_and_one_above_is_written_into() -> None:
    below = lower(ps.from_source([1, 2, 3]).batch(2).cache()._root).segments[0]
    assert below.batch is None
    assert below.length == 2
    assert [stage.name for stage in below.stages] == ["cache"]
    above = lower(ps.from_source([1, 2, 3]).batch(2).cache().batch(2)._root).segments[0]
    assert above.batch is not None
    assert above.batch.length == 2


# -- completion order -------------------------------------------------------------------------------------------------------------


def length(x: Any) -> int:
    return 1


WITHOUT_FOLDS = [
    numbers().map(double),
    numbers().shuffle().map(double).batch(5).repeat(2),
    numbers(40).skip(1).take(30).shard(2, 0).enumerate().shuffle(seed=1).repeat(2).batch(4),
    numbers().batch(3).take(3),
    numbers().batch(3).batch(2),
    numbers().batch(3).shuffle(),
    numbers().batch(3).map(double, concurrency=2),
    numbers().filter(bool),
    numbers().batch(3).unbatch(),
    ps.from_generator(lambda: iter([1])).map(double),
]


@pytest.mark.parametrize("ds", WITHOUT_FOLDS, ids=repr)
def test_what_no_fold_counts_goes_on_as_it_is_finished(ds: ps.Dataset) -> None:
    ordered = program(ds)
    unordered = in_completion_order(ordered)
    assert unordered is not None
    assert [segment.unordered for segment in unordered.segments] == [True] + [False] * (len(ordered.segments) - 1)
    assert [replace(segment, unordered=False) for segment in unordered.segments] == list(ordered.segments)


WITH_FOLDS = [
    numbers().filter(bool).take(3),
    numbers().filter(bool).skip(3),
    numbers().filter(bool).shard(2, 0),
    numbers().filter(bool).enumerate(),
    numbers().filter(bool).window(3),
    numbers().filter(bool).repeat(2),
    numbers().filter(bool).batch(3),
    numbers().batch(3).unbatch().batch(2),
    numbers().filter(bool).shuffle(4),
    numbers().bucket_by_length(length, [3], [2, 2]),
    numbers().map(np.atleast_1d).pack_sequences(8),
    numbers().rejection_resample(length, [1, 1]),
    ps.from_generator(lambda: iter([1])).batch(2),
]


@pytest.mark.parametrize("ds", WITH_FOLDS, ids=repr)
def test_what_a_fold_counts_in_its_order_keeps_it_and_the_feed_says_so_once(ds: ps.Dataset) -> None:
    assert in_completion_order(program(ds)) is None
    with ds.feed(executor="inline", ordered=False) as feed:
        list(feed)
        list(feed)
        (told,) = [notice for notice in feed.stats().notices if "ordered=False" in notice]
    assert "ordered=False changes nothing here: an operator counts elements in their order" in told
    assert "call as_completed() before that operator" in told


def test_as_completed_is_the_order_of_the_first_segment_and_what_follows_folds() -> None:
    first, second = program(numbers().map(double).as_completed().map(double).batch(5).repeat(2)).segments
    assert (first.unordered, second.unordered) == (True, False)
    assert first.name == "read+double+double"
    assert [type(fold).__name__ for fold in first.folds] == ["BatchFold", "RepeatFold"]
    assert first.batch is None
    assert second.batch is not None
    made = program(numbers().filter(bool).as_completed())
    assert in_completion_order(made) is made


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unknown(plan.UnaryNode):
    """A kind of node that lowering has no case for."""

    def line(self, *, saved: bool = False) -> str:
        return "unknown()"


def test_a_node_that_there_is_no_way_to_run_is_an_error_and_is_not_left_out() -> None:
    for below in (ps.from_source([1, 2]), ps.from_source([1, 2]).filter(bool), ps.from_generator(lambda: iter([1, 2]))):
        with pytest.raises(PlanError, match=r"there is no way to run Unknown: unknown\(\)"):
            lower(Unknown(child=below._root))
