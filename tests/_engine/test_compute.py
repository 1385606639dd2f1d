from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock._engine.chunk import BatchItem, Chunk, Claim, Token
from penstock._engine.compute import compute, compute_batches
from penstock._engine.error_policy import ErrorHandler
from penstock._engine.lowering import lower
from penstock._engine.program import Policies
from penstock._engine.segment import Segment
from penstock._ops.collation import Stack
from penstock._ops.rows import Rows
from penstock._ops.worker import WorkerContext
from penstock.errors import WorkerDied


def opened(dataset: ps.Dataset, rows: int) -> tuple[Segment, Chunk]:
    """Open a chunk of `rows` rows of the first segment, with memory for its batches."""
    segment = Segment(lower(dataset._root), 0, Token((0, 0)), at_once=False)
    for _ in range(20):
        segment.blocks[0].observe(segment.blocks[0].rows(1 << 40, 1), 1)
    chunk = segment.open()
    assert chunk.num_rows == rows
    if chunk.sizes is not None:
        chunk.rows = Rows(chunk.sizes, None, lambda leaves: [np.empty(*leaf) for leaf in leaves], str, Stack())
    return segment, chunk


def numbers(count: int) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def fails_at(*bad: int) -> Any:
    def look(x: Any) -> Any:
        if bad and x in bad:
            raise ValueError(x)
        return 10 * x

    return look


@pytest.mark.parametrize("batch", [None, 3])
def test_a_row_that_ended_worker_processes_fails_unseen_and_each_other_row_is_announced(batch: int | None) -> None:
    ds = numbers(6).map(fails_at(), name="look", on_error=ps.Skip())
    segment, chunk = opened(ds if batch is None else ds.batch(batch), 6 if batch is None else 3)
    worker, announced = WorkerContext(0), []
    worker.announce_row = announced.append
    item = Claim(0, 0, chunk, 0, chunk.num_rows, None).item._replace(fatal={1: WorkerDied("it was killed", where="here", fix="mend it")})
    handler = ErrorHandler(policies=Policies(), pause=lambda seconds: False, retrying=lambda *what: None)
    outcome = compute(segment.plan, item, chunk.rows, worker, handler)
    assert (outcome.end, outcome.failure, announced) == (chunk.num_rows, None, [row for row in range(chunk.num_rows) if row != 1])
    assert [(lost.row, str(lost.error).partition("\n")[0], lost.site) for lost in outcome.lost] == [(1, "it was killed", "stage 'look'")]


def test_a_batch_that_ended_worker_processes_fails_unseen_and_names_what_runs_above_batches() -> None:
    plan = lower(numbers(6).batch(2).map(fails_at(), name="above")._root).segments[0]
    batches = [np.array([number, number + 1]) for number in (0, 2, 4)]
    epochs, positions = np.zeros(3, np.int64), np.arange(3)
    item = BatchItem(batches, None, None, [(epochs, positions)] * 2, {}, 0, frozenset(), {2: WorkerDied("it was killed", where="", fix="")})
    worker, announced = WorkerContext(0), []
    worker.announce_row = announced.append
    plan = replace(plan, batch_ops=tuple(op for op in plan.batch_ops if getattr(op, "name", "") == "above"))
    outcome = compute_batches(plan, item, worker)
    assert announced == [0, 1]
    assert outcome.failure is not None
    assert (outcome.end, outcome.failure.stage, type(outcome.failure.error)) == (2, "above", WorkerDied)
