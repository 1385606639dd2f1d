"""How `penstock bench` takes its figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.cli.bench import Device, Figures, _calling, measure
from penstock.cli.bench_source import Opened


def plain(element: Any) -> Any:
    return {"data": element["data"] + 1}


def noisy(element: Any, rng: np.random.Generator) -> Any:
    return {"data": element["data"] + rng.random()}


def measured(length: int = 40, **operators: Callable[..., Any]) -> Figures:
    dataset = ps.from_arrays({"data": np.arange(length, dtype=np.float64)})
    opened = Opened(dataset=dataset, kind="arrays", operators=operators, side=None)
    return measure(opened, batch_size=8, num_workers=2, budget_s=0.05, steps_ms=(1.0,))


def test_every_operator_reading_and_stacking_have_a_cost() -> None:
    figures = measured(plain=plain, noisy=noisy)
    assert [cost.name for cost in figures.costs] == ["read", "plain", "noisy", "stack"]
    assert all(cost.us > 0 for cost in figures.costs)
    assert figures.in_line_per_s == 1e6 / sum(cost.us for cost in figures.costs)


def test_the_flow_is_measured_over_more_than_one_pass() -> None:
    figures = measured(length=9)
    assert figures.snapshot.consumer.num_batches >= 3
    assert figures.ceiling_per_s > 0
    assert figures.first_batch_s > 0
    assert [wait.step_ms for wait in figures.waits] == [1.0]


class Machine:
    """A clock that the test turns, and a sleep on it that ends too late."""

    def __init__(self, late_s: float) -> None:
        self.now_s, self._late_s = 100.0, late_s

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + self._late_s

    def run(self, step_s: float, made_s: Sequence[float]) -> tuple[float, float]:
        """Take batches that are made at these times; return how long it took for a step, without the waits, and the share of waits."""
        device, begin_s = Device(step_s), self.now_s
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("penstock.cli.bench.time", self)
            for one_s in made_s:
                self.now_s = max(self.now_s, begin_s + one_s)
                device.take(self.now_s)
                device.step()
        return (self.now_s - begin_s) * (1 - device.wait_share) / len(made_s), device.wait_share


@pytest.mark.parametrize("step_s", [2e-6, 1e-4, 2e-2])
@pytest.mark.parametrize("late_s", [8e-5, 1.5e-3])
@pytest.mark.parametrize(("batches_per_step", "share"), [(0.5, 0.5), (0.8, 0.2), (2, 0.0)])
def test_a_device_waits_where_it_is_faster_than_the_feed_however_late_a_sleep_ends(
    step_s: float, late_s: float, batches_per_step: float, share: float
) -> None:
    num_batches = max(5000, int(0.2 / step_s))
    took_s, wait_share = Machine(late_s).run(step_s, [step_s / batches_per_step * number for number in range(num_batches)])
    assert took_s == pytest.approx(step_s, rel=0.02)
    assert wait_share == pytest.approx(share, abs=0.02)


def test_what_a_device_has_waited_is_not_made_up_for() -> None:
    # Ten batches, none for a second, and then as many as it likes.
    _, wait_share = Machine(late_s=8e-5).run(1e-2, [0.0] * 10 + [1.1] * 90)
    assert wait_share == pytest.approx(0.5, abs=0.01)


def test_nothing_taken_is_nothing_waited_for() -> None:
    assert Device(0.5).wait_share == 0.0


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
