from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from _engine.lowering import double, numbers, program
from laws.plans import plain

import penstock as ps
from penstock._engine.lowering import check_completion, lower
from penstock._plan import node as plan
from penstock.errors import PlanError


def test_a_plain_pipeline_is_one_segment_with_one_stage() -> None:
    (segment,) = program(numbers().shuffle().map(double).batch(3)).segments
    assert len(segment.stages) == 1
    assert segment.stages[0].name == "read+double"
    assert segment.batch is not None
    assert segment.batch.batch_size == 3
    assert segment.folds is None
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
    assert refusal.value.what == "enumerate above a map with concurrency= above batch() is not possible"
    assert refusal.value.where == "map(concurrency=...) above batch()"
    assert refusal.value.fix == "put enumerate() below the batch or below this map"


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


def test_folded_batches_are_folds_over_what_the_first_segment_gives() -> None:
    first, second = lower(numbers().shuffle().map(double).batch(5).repeat(2)._root, folded=True).segments
    assert [type(fold).__name__ for fold in first.folds or ()] == ["BatchFold", "RepeatFold"]
    assert first.batch is None
    assert second.batch is not None
    (alone,) = lower(numbers().map(double)._root, folded=True).segments
    assert alone.folds == ()
    assert alone.transparent


def length(x: Any) -> int:
    return 1


REFUSED: list[tuple[str, Any, str]] = [
    ("take", numbers().filter(bool).take(3), "take"),
    ("take above batch", numbers().batch(3).take(3), "take"),
    ("skip", numbers().filter(bool).skip(3), "skip"),
    ("shard", numbers().filter(bool).shard(2, 0), "shard"),
    ("enumerate", numbers().filter(bool).enumerate(), "enumerate"),
    ("enumerate above batch", numbers().batch(2).enumerate(), "enumerate"),
    ("window", numbers().filter(bool).window(3), "window"),
    ("split", numbers().map(np.atleast_1d).pack_sequences(8, split=True), "pack_sequences(split=True)"),
    ("repeat below a batch", numbers().filter(bool).repeat(2).batch(3), "repeat below a batch or pack"),
    ("second batch", numbers().filter(bool).batch(3).batch(2), "a second batch"),
    ("bucket above", numbers().batch(3).bucket_by_length(length, [3], [2, 2]), "bucket_by_length above another fold"),
    ("pack above", numbers().batch(3).pack_sequences(8), "pack_sequences above another fold"),
    ("buffer above", numbers().filter(bool).batch(3).shuffle(4), "shuffle above another fold"),
    ("resample above", numbers().batch(3).rejection_resample(length, [1, 1]), "rejection_resample above another fold"),
    ("filter above", numbers().batch(3).filter(bool), "filter, flat_map or unbatch above another fold"),
    ("unbatch above", numbers().batch(3).unbatch().batch(2), "a second batch"),
]


@pytest.mark.parametrize(("ds", "name"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_counts_elements_in_their_order_is_refused_by_name(ds: ps.Dataset, name: str) -> None:
    with pytest.raises(PlanError) as refusal:
        ds.feed(ordered=False)
    assert refusal.value.what == f"ordered=False cannot run this plan: {name} needs its elements in order there"
    assert refusal.value.where == "feed(ordered=False)"
    assert refusal.value.fix == (
        "put it below the filter, flat_map or batch, where positions are known before reading; or use ordered=True"
    )
    check = ds.feed()
    check.close()


@pytest.mark.parametrize("ds", [numbers().batch(3).shuffle(), numbers().batch(3).shuffle(2)])
def test_a_shuffle_of_whole_batches_is_refused(ds: ps.Dataset) -> None:
    with pytest.raises(PlanError) as refusal:
        ds.feed(ordered=False)
    assert refusal.value.what == (
        "shuffle() above batch() cannot be combined with ordered=False or Skip: which batches there are is only known on the way"
    )
    assert refusal.value.where == "shuffle()"
    assert refusal.value.fix == "shuffle below the batch"


def test_what_counts_below_the_first_batch_or_filter_is_arithmetic_and_runs() -> None:
    ds = numbers(40).skip(1).take(30).shard(2, 0).enumerate().shuffle(seed=1).repeat(2).map(lambda pair: pair[1]).filter(bool).batch(4)
    check_completion(ds._root, recorded=False)


def test_a_generator_runs_in_completion_order() -> None:
    ds = ps.from_generator(lambda: iter([1])).batch(2)
    check_completion(ds._root, recorded=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unknown(plan.UnaryNode):
    """A kind of node that lowering has no case for."""

    def line(self, *, saved: bool = False) -> str:
        return "unknown()"


def test_a_node_that_there_is_no_way_to_run_is_an_error_and_is_not_left_out() -> None:
    for below in (ps.from_source([1, 2]), ps.from_source([1, 2]).filter(bool), ps.from_generator(lambda: iter([1, 2]))):
        with pytest.raises(PlanError, match=r"there is no way to run Unknown: unknown\(\)"):
            lower(Unknown(child=below._root))
