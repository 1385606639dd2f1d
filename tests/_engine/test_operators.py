from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
from _engine.lowering import program
from laws.plans import plain

import penstock as ps
from penstock._ops.map import TransformsOp


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
