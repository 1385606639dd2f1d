from __future__ import annotations

import dataclasses

import pytest

from penstock._engine.program import BatchPlan, Program, SegmentPlan, StagePlan
from penstock._ops.collation import Stack
from penstock._order.folds import BatchFold, Fold, RepeatFold, TakeFold


def test_a_segment_is_named_by_its_named_stages_or_by_its_batch() -> None:
    assert SegmentPlan(stages=(StagePlan(name="read+decode"), StagePlan(name=""), StagePlan(name="crop"))).name == "read+decode+crop"
    assert SegmentPlan(stages=(StagePlan(name=""),)).name == "batch"


def test_programs_are_values_that_nobody_changes() -> None:
    batch = BatchPlan(batch_size=3, length=10, collation=Stack(), shift=3)
    program = Program(segments=(SegmentPlan(batch=batch),), prefetch=0)
    assert program == Program(segments=(SegmentPlan(batch=BatchPlan(batch_size=3, length=10, collation=Stack(), shift=3)),), prefetch=0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        batch.batch_size = 4  # type: ignore[misc]


def test_a_program_may_need_so_many_passes_and_may_cut_them() -> None:
    def program(*folds: Fold) -> Program:
        return Program(segments=(SegmentPlan(folds=folds[:1]), SegmentPlan(folds=folds[1:]), SegmentPlan()), prefetch=0)

    assert program().num_passes == 1
    assert program(RepeatFold(3), BatchFold(4, False), RepeatFold(2)).num_passes == 6
    assert program(RepeatFold(3), RepeatFold(None)).num_passes == float("inf")
    assert not program(TakeFold(4), RepeatFold(2)).may_cut
    assert program(RepeatFold(2), TakeFold(4, repeated=True)).may_cut
