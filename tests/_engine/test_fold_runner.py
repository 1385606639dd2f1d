"""What the saved place of folds costs a resume, and which one is refused."""

from __future__ import annotations

import numpy as np
import pytest

from penstock._engine.chunk import Chunk, Counted, FoldState, Result, Token
from penstock._engine.error_policy import LossLedger
from penstock._engine.folding import OPEN, FoldRunner
from penstock._engine.program import Program, SegmentPlan, StagePlan
from penstock._ops.block import Block
from penstock._ops.streams import FilterOp, Measured
from penstock._order.folds import Fold
from penstock._order.holding import WindowFold

START = Token((0, 0))
WINDOWS = WindowFold(2, 2, 1, drop_remainder=False)


def chunk_of(counts: list[int], first: int = 0, *, ends: bool) -> Chunk:
    """Return a finished chunk whose inputs gave `counts[i]` results each."""
    origins = [number for number, count in enumerate(counts) for _ in range(count)]
    rows = [Measured(first + number, 1) for number in origins]
    zeros = np.zeros(len(rows), np.int64)
    places = Counted(Token((0, first)), len(counts))
    end = Token((1, 0))
    chunk = Chunk(seq=0, pass_number=0, first=first, sizes=None, num_rows=len(counts), tokens=places, ends_pass=ends, pass_token=end)
    chunk.result = Result(rows, origins, Block(zeros, zeros + first + origins, zeros.astype(np.uint64), rows=rows))
    return chunk


def runner_of(folds: tuple[Fold, ...], start: Token, record: FoldState | None) -> FoldRunner:
    """Make the fold runner of folds behind a filter."""
    segment = SegmentPlan(stages=(StagePlan(name="", filter_steps=(FilterOp(bool, "filter", None),)),), folds=folds)
    return FoldRunner(Program(segments=(segment,), prefetch=0), 0, start, record, LossLedger())


def test_a_long_pass_is_not_run_again_from_its_beginning() -> None:
    runner, tokens = runner_of((WINDOWS,), START, None), list[Token]()
    for first in range(0, 1000, 8):
        tokens += runner.take(chunk_of([1] * 8, first, ends=first == 992)).tokens
    assert tokens[-1].source[1] >= 1000 - 66
    assert max(token.fold_runners[0].drop for token in tokens) <= 33


@pytest.mark.parametrize(
    ("folds", "saved", "counts", "words"),
    [
        ((), FoldState(3, OPEN, ()), [1, 2], "3 results of one element were delivered, and it gives 1 now"),
        (
            (WINDOWS,),
            FoldState(0, OPEN, ({"gap": 0, "held": []},), 0, 9),
            [1, 1, 1],
            "9 results were delivered behind the last checkpoint, and 2 came again",
        ),
    ],
)
def test_a_record_of_more_results_than_come_again_is_an_error_and_not_a_short_pass(
    folds: tuple[Fold, ...], saved: FoldState, counts: list[int], words: str
) -> None:
    out = runner_of(folds, START, saved).take(chunk_of(counts, ends=True))
    assert out.tail is not None
    assert words in str(out.tail.error)
