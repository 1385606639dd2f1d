from __future__ import annotations

import dataclasses

import pytest

from penstock._engine.program import BatchPlan, Program, SegmentPlan, StagePlan
from penstock._ops.collation import Stack


def test_a_segment_is_named_by_its_named_stages_or_by_its_batch() -> None:
    assert SegmentPlan(stages=(StagePlan(name="read+decode"), StagePlan(name=""), StagePlan(name="crop"))).name == "read+decode+crop"
    assert SegmentPlan(stages=(StagePlan(name=""),)).name == "batch"


def test_programs_are_values_that_nobody_changes() -> None:
    batch = BatchPlan(batch_size=3, length=10, collation=Stack(), shift=3)
    program = Program(segments=(SegmentPlan(batch=batch),), prefetch=0)
    assert program == Program(segments=(SegmentPlan(batch=BatchPlan(batch_size=3, length=10, collation=Stack(), shift=3)),), prefetch=0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        batch.batch_size = 4  # type: ignore[misc]
