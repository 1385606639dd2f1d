from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import pytest
from _engine.lowering import double, numbers, pictures, program, steps
from laws.plans import plain

import penstock as ps
from penstock._engine.lowering import evaluator
from penstock._ops.map import MapOp, TransformsOp
from penstock._ops.worker import WorkerContext


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


@dataclass(frozen=True)
class Times:
    """Multiplies; `fuse` takes all following ones that multiply as well."""

    factor: int
    num_draws: int = 0
    field: str = "x"
    out_field: str = "x"

    def __call__(self, element: Any) -> Any:
        return {**element, "x": self.apply(element["x"], (), None, None)}

    def apply(self, value: Any, draws: Any, scratch: Any, out: Any) -> Any:
        return np.asarray(value * self.factor + sum(draws))

    def fuse(self, following: Any) -> Any:
        parts = [self, *takewhile(lambda one: isinstance(one, Times), following)]
        return Product(tuple(parts)) if len(parts) > 1 else None


@dataclass(frozen=True)
class Product:
    parts: tuple[Times, ...]
    field: str = "x"
    out_field: str = "x"

    @property
    def num_draws(self) -> int:
        return sum(part.num_draws for part in self.parts)

    def apply(self, value: Any, draws: Any, scratch: Any, out: Any) -> Any:
        used = 0
        for part in self.parts:
            value = part.apply(value, draws[used : used + part.num_draws], None, None)
            used += part.num_draws
        return value


def chained(*steps: Any, apart: bool = False) -> ps.Dataset:
    ds = ps.from_source([{"x": np.float64(number)} for number in range(6)])
    for number, step in enumerate(steps):
        ds = ds.map(step, seed=number, name=f"step{number}")
        ds = ds.map(dict) if apart else ds
    return ds


def test_a_transform_that_knows_how_does_those_behind_it_too_each_with_its_own_random_numbers() -> None:
    steps = (Times(2, 1), Times(3), Times(5, 2))
    (operator,) = program(chained(*steps)).segments[0].stages[0].operators
    assert isinstance(operator, TransformsOp)
    (step,) = operator.steps
    assert step.name == operator.name == "step0+step1+step2"
    assert [part.transform for part in step.parts] == list(steps)
    assert [(part.seed, part.stage) for part in step.parts] == [(0, 1), (1, 0), (2, 2)]
    for batched in (False, True):
        one, other = chained(*steps), chained(*steps, apart=True)
        rows = [list((ds.batch(2) if batched else ds).shuffle(seed=1)) for ds in (one, other)]
        assert [plain(row) for row in rows[0]] == [plain(row) for row in rows[1]]


def test_a_transform_in_between_ends_what_is_done_in_one() -> None:
    flip = ps.image.random_flip("image")
    ds = ps.from_source([{}]).map(Times(2)).map(Times(3)).map(flip).map(Times(5))
    (operator,) = program(ds).segments[0].stages[0].operators
    assert isinstance(operator, TransformsOp)
    assert [len(step.parts or ()) for step in operator.steps] == [2, 0, 0]
    assert [step.last for step in operator.steps] == [False, True, True]


@pytest.mark.parametrize(("declared", "parts"), [((), [3]), ((2,), [3]), ((1,), [2, 0]), ((0,), [0, 2]), ((0, 1, 2), [0, 0, 0])])
def test_transforms_are_done_in_one_up_to_where_a_result_is_declared(declared: tuple[int, ...], parts: list[int]) -> None:
    spec = {"x": ps.ArraySpec((), np.dtype(np.float64))}
    bare = declaring = ps.from_source([{"x": np.float64(number)} for number in range(6)])
    for number, step in enumerate((Times(2, 1), Times(3), Times(5, 2))):
        bare = bare.map(step, seed=number)
        declaring = declaring.map(step, seed=number, output_spec=spec if number in declared else None)
    (operator,) = program(declaring).segments[0].stages[0].operators
    assert isinstance(operator, TransformsOp)
    assert [len(step.parts) for step in operator.steps] == parts
    assert [step.expected is not None for step in operator.steps].count(True) == len(declared)
    assert [plain(row) for row in declaring] == [plain(row) for row in bare]


def test_an_endless_dataset_may_stand_behind_others() -> None:
    both = numbers(3).concatenate(numbers(2).repeat()).batch(4)
    with both.feed(executor="inline") as feed:
        assert [np.asarray(next(feed)).tolist() for _ in range(2)] == [[0, 1, 2, 0], [1, 0, 1, 0]]
