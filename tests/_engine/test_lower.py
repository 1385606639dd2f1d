from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from laws.plans import plain

import penstock as ps
from penstock._engine.lower import evaluator, lower
from penstock._engine.program import Program
from penstock._ops.map import MapOp
from penstock._ops.transforms import TransformsOp
from penstock._ops.worker import WorkerContext
from penstock.errors import PlanError


def program(dataset: ps.Dataset) -> Program:
    return lower(dataset._root)


def numbers(count: int = 12) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def pictures() -> ps.Dataset:
    return ps.from_arrays({"image": np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), np.uint8), "label": np.arange(12)})


def double(x: Any) -> Any:
    return x * 2


def steps(ds: ps.Dataset, between: bool = False) -> ps.Dataset:
    """Add three transforms, with a plain function between them that keeps them from being fused."""
    for number, operator in enumerate(
        (ps.image.random_crop("image", 6, padding=1), ps.image.random_flip("image"), ps.image.normalize("image", (0.5,) * 3, (0.2,) * 3))
    ):
        ds = ds.map(operator, seed=number)
        if between:
            ds = ds.map(dict)
    return ds


def test_a_plain_pipeline_is_one_segment_with_one_stage() -> None:
    (segment,) = program(numbers().shuffle().map(double).batch(3)).segments
    assert len(segment.stages) == 1
    assert segment.stages[0].name == "read+double"
    assert segment.batch is not None
    assert segment.batch.batch_size == 3
    assert segment.folds is None
    assert segment.name == "read+double"


def test_neighbouring_transforms_are_one_operator_and_a_function_between_keeps_them_apart() -> None:
    (fused,) = program(steps(pictures()).batch(2)).segments
    assert [type(operator) for operator in fused.stages[0].operators] == [TransformsOp]
    (apart,) = program(steps(pictures(), between=True).batch(2)).segments
    assert [type(operator) for operator in apart.stages[0].operators] == [TransformsOp, MapOp] * 3


@pytest.mark.parametrize("batch", [None, 1, 5])
@pytest.mark.parametrize("options", [{"executor": "inline"}, {"num_workers": 3}])
def test_fused_transforms_give_the_elements_of_one_operator_at_a_time(batch: int | None, options: dict[str, Any]) -> None:
    fused, apart = steps(pictures().shuffle(seed=2)), steps(pictures().shuffle(seed=2), between=True)
    if batch is not None:
        fused, apart = fused.batch(batch), apart.batch(batch)
    one, other = list(fused.repeat(2).feed(**options)), list(apart.repeat(2).feed(**options))
    assert len(one) == len(other) == len(fused) * 2
    for left, right in zip(one, other, strict=True):
        assert left["image"].dtype == right["image"].dtype == np.float32
        assert np.array_equal(left["image"], right["image"])
        assert np.array_equal(left["label"], right["label"])


def test_only_the_last_step_of_a_field_writes_into_the_batch() -> None:
    ds = pictures().map(ps.image.random_flip("image", out="flipped")).map(ps.image.normalize("flipped", (0,) * 3, (1,) * 3))
    operator = program(ds.batch(2)).segments[0].stages[0].operators[0]
    assert isinstance(operator, TransformsOp)
    assert [step.last for step in operator.steps] == [False, True]


def test_random_operators_are_numbered_from_the_source_up_and_others_are_not() -> None:
    def noisy(x: int, rng: np.random.Generator) -> int:
        return x

    operators = program(numbers().map(noisy).map(double).map(noisy).batch(2)).segments[0].stages[0].operators
    assert [operator.stage for operator in operators if isinstance(operator, MapOp)] == [1, 0, 2]


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
    assert [step.name for step in segment.top if step.name] == ["double"]


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


def test_the_evaluator_computes_any_position_of_a_plan() -> None:
    ds = numbers().shuffle(seed=4).map(double).batch(5).concatenate(numbers(5).batch(5)).repeat(2)
    chain = evaluator(ds._root)
    expected = [plain(item) for item in ds]
    places = np.array([5, 0, 3, 7, 3], np.int64)
    block = chain.run(np.zeros(5, np.int64), places, WorkerContext(0))
    assert [plain(row) for row in block.rows()] == [expected[place] for place in places]


def test_parts_of_one_dataset_share_their_random_numbers_and_other_branches_do_not() -> None:
    def noisy(x: int, rng: np.random.Generator) -> int:
        return int(rng.integers(0, 10**9))

    ds = numbers(20).map(noisy, seed=1)
    both = list(ds.concatenate(ds))
    assert both[:20] != both[20:]
