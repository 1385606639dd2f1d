"""Timing a training loop."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from penstock.observe.diagnose import judge
from trial import InLine, digest_of, run_trial


class Squares:
    """Seven elements whose pixels are the square of their index."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"data": np.full((3, 2, 2), index**2, np.float32), "label": index}


def test_the_in_line_loop_stacks_elements_in_order_and_drops_the_rest() -> None:
    with InLine(Squares(), 3) as batches:
        found = list(batches)
    assert [batch["label"].tolist() for batch in found] == [[0, 1, 2], [3, 4, 5]]
    assert found[1]["data"].shape == (3, 3, 2, 2)
    assert found[1]["data"][2, 0, 0, 0] == 25
    assert found[1]["label"].dtype == np.int64


def test_steps_follow_each_other_and_the_first_one_starts_after_its_batch() -> None:
    seen: list[list[int]] = []
    trial = run_trial(InLine(Squares(), 2), lambda batch: seen.append(batch["label"].tolist()), what="squares", num_steps=3)
    assert seen == [[0, 1], [2, 3], [4, 5]]
    assert len(trial.steps) == 3
    times = [time for step in trial.steps for time in step]
    assert times == sorted(times)
    assert trial.first_batch_s > 0
    assert trial.total_s == times[-1]
    assert 0 < trial.busy_share_after_first <= 1
    assert trial.busy_s == pytest.approx(sum(end - start for start, end in trial.steps))
    assert trial.lane("squares").steps == trial.steps


def test_the_in_line_loop_is_diagnosed_as_taking_turns() -> None:
    class SlowSquares(Squares):
        def __getitem__(self, index: int) -> dict[str, Any]:
            time.sleep(0.002)
            return super().__getitem__(index)

    trial = run_trial(InLine(SlowSquares(), 1), lambda batch: None, what="squares", num_steps=7)
    assert trial.ready == ()
    assert judge(trial.snapshot).kind == "inline"


def test_the_digest_of_a_batch_sees_every_byte_of_images_and_labels() -> None:
    batch = {"data": np.zeros((2, 3, 4, 4), np.float32), "label": np.array([0, 1])}
    same = digest_of({"data": np.zeros((2, 3, 4, 4), np.float32), "label": np.array([0, 1], np.int32)})
    pixel = {"data": batch["data"].copy(), "label": batch["label"]}
    pixel["data"][1, 2, 3, 3] = np.float32(1e-40)
    assert digest_of(batch) == same
    assert digest_of(pixel) != same
    assert digest_of({"data": batch["data"], "label": np.array([1, 0])}) != same
