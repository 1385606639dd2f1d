"""What `penstock bench` advises, from hand-made figures."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli.bench import Cost, Figures, advise
from penstock.observe import ConsumerStats, Snapshot, StageStats

STAGE = StageStats(name="decode", num_elements=10_000, num_blocks=100, busy_s=19.7, cpu_s=19.5, workers=(0, 1))
CONSUMER = ConsumerStats(num_batches=150, first_wait_s=0.1, wait_s=9.8, span_s=9.9, mean_ready=0.1)
IMAGES = {"ceiling_per_s": 2_000, "side": 224}
READ_DECODE = {"read": 50.0, "decode": 950.0}
STORED = (
    "the images have 2.00 million pixels, of which 224x224 are kept: stored once with about 291 pixels a side they would give about 22,167 "
    "elements/s"
)


@pytest.mark.parametrize(
    ("costs", "measured", "said", "not_said"),
    [
        ({"read": 50.0, "decode": 450.0}, {}, "a training step of 27.5 ms or longer for 100 elements need not wait", ""),
        ({"read": 50.0, "decode": 450.0}, {}, "down to 25 ms per batch", ""),
        (
            {"read": 50.0, "decode": 450.0},
            {},
            "without a training step stage 'decode' is the bottleneck, CPU-bound: its 2 workers were busy 98 %",
            "",
        ),
        (
            {"read": 50.0, "augment": 450.0},
            {},
            "'augment' takes 90 % of an element's time (450 us): at half its cost the ceiling would be about 7,273 elements/s",
            "",
        ),
        (READ_DECODE, {**IMAGES, "pixels": 2_000_000.0}, STORED, ""),
        (READ_DECODE, {**IMAGES, "pixels": 90_000.0}, "", "stored once"),
        # stacking is the in-line loop's alone
        ({"read": 50.0, "augment": 450.0, "stack": 900.0}, {}, "'augment' takes 90 % of an element's time", "'stack'"),
        (
            {"read": 50.0, "tokenize": 450.0},
            {"ceiling_per_s": 2_100},
            "2 threads are only 1.05 times as fast as one: an operator holds the GIL or waits for a lock",
            "",
        ),
        ({"read": 50.0, "tokenize": 450.0}, {"ceiling_per_s": 3_800}, "", "times as fast as one"),
        ({"read": 5.0}, {"ceiling_per_s": 400_000}, "", "at half its cost"),
    ],
)
def test_the_advice_is_that_of_the_figures(costs: dict[str, float], measured: dict[str, Any], said: str, not_said: str) -> None:
    figures = Figures(
        costs=tuple(Cost(name=name, us=us) for name, us in costs.items()),
        first_batch_s=0.1,
        waits=(),
        batch_size=100,
        num_workers=2,
        snapshot=Snapshot(elapsed_s=10.0, num_cpus=2, stages=(STAGE,), consumer=CONSUMER, notices=()),
        **{"ceiling_per_s": 4_000, "pixels": None, "side": None, **measured},
    )
    text = " ".join(advise(figures))
    assert said in text
    assert not not_said or not_said not in text
