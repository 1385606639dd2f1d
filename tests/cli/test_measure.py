"""How `penstock bench` takes its figures."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import penstock as ps
from penstock.cli.bench_source import Opened, Operator
from penstock.cli.measure import Figures, _calling, measure


def plain(element: Any) -> Any:
    return {"data": element["data"] + 1}


def noisy(element: Any, rng: np.random.Generator) -> Any:
    return {"data": element["data"] + rng.random()}


def measured(*operators: Operator, length: int = 40) -> Figures:
    dataset = ps.from_arrays({"data": np.arange(length, dtype=np.float64)})
    opened = Opened(dataset=dataset, kind="arrays", operators=operators, side=None)
    return measure(opened, batch_size=8, num_workers=2, budget_s=0.05, steps_ms=(1.0,))


def test_every_operator_reading_and_stacking_have_a_cost() -> None:
    figures = measured(Operator(name="plain", function=plain), Operator(name="noisy", function=noisy))
    assert [cost.name for cost in figures.costs] == ["read", "plain", "noisy", "stack"]
    assert all(cost.us > 0 for cost in figures.costs)
    assert figures.in_line_per_s == 1e6 / sum(cost.us for cost in figures.costs)


def test_the_flow_is_measured_over_more_than_one_pass() -> None:
    figures = measured(length=9)
    assert figures.snapshot.consumer.num_batches >= 3
    assert figures.ceiling_per_s > 0
    assert figures.first_batch_s > 0
    assert [wait.step_ms for wait in figures.waits] == [1.0]


def test_a_generator_is_given_only_to_functions_that_want_one() -> None:
    element, rng = {"data": np.float64(1.0)}, np.random.default_rng(0)
    assert _calling(plain)(element, rng) == {"data": 2.0}
    assert 1.0 < _calling(noisy)(element, rng)["data"] < 2.0
    assert _calling(ps.image.random_flip("image"))({"image": np.zeros((2, 2, 3), np.uint8)}, rng)["image"].shape == (2, 2, 3)
    assert _calling(dict)({"a": 1}, rng) == {"a": 1}


def test_the_figures_can_be_written_as_json() -> None:
    record = json.loads(json.dumps(measured().as_json()))
    assert record["num_workers"] == 2
    assert record["snapshot"]["consumer"]["num_batches"] >= 3
