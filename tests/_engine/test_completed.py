"""Positions that go on as they are finished: every token names exactly what is left, and in what order a resume begins."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock._engine.chunk import Chunk, Completed, FoldState, KeyedElement, Result, Token
from penstock._engine.committing import CompletionOrder
from penstock._engine.folding import FoldRunner, size_of, unmeasured
from penstock._ops.block import Block
from penstock._ops.streams import Gathered, Measured
from penstock._order.folds import BatchFold, EnumerateFold, Fold, RepeatFold, ResampleFold, ShardFold, SkipFold, TakeFold
from penstock._order.holding import BucketFold, ConcatenateFold, PackFold, ShuffleBufferFold, WindowFold

START = Token((0, 0))
Position = tuple[int, int]


def chunk_of(first: int, count: int, pass_number: int = 0, *, ends: bool = False) -> Chunk:
    """Make a chunk of positions; nothing is computed of them."""
    return Chunk(seq=0, pass_number=pass_number, first=first, sizes=None, num_rows=count, ends_pass=ends)


def positions(chunk: Chunk) -> list[Position]:
    return [(chunk.pass_number, chunk.first + number) for number in range(chunk.num_items)]


def spread(runs: Any) -> list[Position]:
    return [(number, position) for number, begin, end in runs for position in range(begin, end)]


def left_of(token: Token, length: int, passes: int) -> list[Position]:
    """List what a resume behind a token takes, apart from the order."""
    number, watermark = token.source
    done = {(number, position) for begin, end in [(0, watermark), *token.done.runs] for position in range(begin, end)}
    return [(one, place) for one in range(number, passes) for place in range(length) if (one, place) not in done]


# -- with folds behind them -------------------------------------------------------------------------------------------------------------

BATCHES = BatchFold(3, drop_remainder=False)
FOLDS: dict[str, tuple[Fold, ...]] = {
    "nothing": (),
    "batches": (BATCHES,),
    "full batches of some": (SkipFold(2), ShardFold(2, 1), BatchFold(2, drop_remainder=True)),
    "numbers": (EnumerateFold(3),),
    "the first of each pass": (TakeFold(5, repeated=True), RepeatFold(2)),
    "passes": (RepeatFold(2), BATCHES),
    "bins": (PackFold(10, 2, size_of),),
    "batches of bins": (PackFold(10, 2, size_of), BatchFold(2, drop_remainder=False), RepeatFold(2)),
    "buckets": (BucketFold((3,), (3, 2), False, size_of), RepeatFold(2)),
    "buffer": (ShuffleBufferFold(4, 1 << 40, 1, True, size_of), BATCHES),
    "windows": (WindowFold(3, 2, 1, False),),
    "split": (ConcatenateFold(8, size_of),),
    "resampled": (ResampleFold((0.2, 0.2, 0.2, 0.2, 0.1, 0.1), None, 3, size_of, unmeasured), BATCHES),
}


def results_of(position: Position, copies: int) -> list[str]:
    """Name the results of a position: none up to `copies`, by its number."""
    number, place = position
    return [f"{number}.{place}.{copy}" for copy in range((copies + place) % (copies + 1) if copies != 1 else 1)]


def weigh(name: str) -> int:
    return sum(map(ord, name)) % 6


def computed(chunk: Chunk, copies: int) -> Chunk:
    per_item = [results_of(position, copies) for position in positions(chunk)]
    names = [name for some in per_item for name in some]
    zeros = np.zeros(len(names), np.int64)
    values = [Measured(name, weigh(name)) for name in names]
    origins = [number for number, some in enumerate(per_item) for _ in some]
    chunk.result = Result(values, origins, Block(zeros, zeros, zeros.astype(np.uint64), rows=values))
    return chunk


def named(item: Any) -> Any:
    if isinstance(item, list):
        return [named(part) for part in item]
    if isinstance(item, tuple) and not isinstance(item, KeyedElement):
        return [item[0], named(item[1])]
    if isinstance(item, KeyedElement):
        return [list(item.value.values), item.value.layout] if isinstance(item.value, Gathered) else named(item.value)
    return item.value if isinstance(item, Measured) else item


class Run:
    """What a run took of its positions, and what came out of its folds, with the place in the order behind each."""

    def __init__(self, folds: tuple[Fold, ...], start: Token, length: int, passes: int, copies: int, chance: Any) -> None:
        record = start.fold_runners[0] if start.fold_runners else None
        order = CompletionOrder(start._replace(fold_runners=()))
        runner = FoldRunner(folds, order.start, record)
        again, left = spread(start.done.taken), left_of(start, length, passes)
        assert set(again) <= set(left)
        self.taken: list[Position] = []
        self.outs: list[tuple[Any, Token]] = []
        for number in range(start.source[0], passes):
            first = [position for one, position in again if one == number]
            rest = [position for one, position in left if one == number and position not in first]
            chance.shuffle(rest)
            for position in [*first, *rest, None]:
                chunk = chunk_of(length, 0, number, ends=True) if position is None else chunk_of(position, 1, number)
                order.put(chunk)
                out = runner.take(computed(chunk, copies))
                assert out.tail is None
                self.taken += positions(chunk)
                self.outs += zip(map(named, out.items), out.tokens, strict=True)  # type: ignore[arg-type]
                if out.ends_pass:
                    return
                if out.cut:  # nothing more of this pass is wanted: its end comes at once
                    end = chunk_of(length, 0, number, ends=True)
                    order.put(end)
                    runner.take(computed(end, copies))
                    break


def in_order(folds: tuple[Fold, ...], taken: list[Position], copies: int, passes: int) -> list[Any]:
    """Return what the folds make of positions in this order."""
    runner, out = FoldRunner(folds, START, None), []
    groups = {number: list(group) for number, group in groupby(taken, key=lambda position: position[0])}
    for number in range(passes):
        for _, position in groups.get(number, ()):
            out += runner.take(computed(chunk_of(position, 1, number), copies)).items
        ended = runner.take(computed(chunk_of(1000, 0, number, ends=True), copies))
        out += ended.items
        if ended.ends_pass:
            break
    return list(map(named, out))


@settings(max_examples=4 * settings.default.max_examples)
@given(
    st.sampled_from(sorted(FOLDS)),
    st.integers(0, 3),
    st.integers(0, 14),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_runs_that_are_saved_and_resumed_are_one_run_over_the_positions_in_the_order_in_which_they_went_on(
    name: str, copies: int, length: int, chance: Any, data: st.DataObject
) -> None:
    folds, token = FOLDS[name], START
    passes = int(np.prod([fold.count for fold in folds if isinstance(fold, RepeatFold) and fold.count], dtype=int))
    seen: list[Any] = []
    taken: list[Position] = []
    for place in range(3):
        run = Run(folds, token, length, passes, copies, chance)
        taken += run.taken if not place else run.taken[len(spread(token.done.taken)) :]
        stop = len(run.outs) if place == 2 else data.draw(st.integers(0, len(run.outs)))
        seen += [item for item, _ in run.outs[:stop]]
        if stop:
            token = run.outs[stop - 1][1]
        elif place == 0:
            taken = []
            continue
        saved = json.loads(json.dumps([token.source, token.done.runs, token.done.taken, token.fold_runners]))
        source, runs, again, records = saved
        token = Token(
            tuple(source),
            tuple(FoldState(*record) for record in records),
            Completed(tuple(map(tuple, runs)), tuple(map(tuple, again))),
        )
        done = set(left_of(token, length, passes)) - set(spread(token.done.taken))
        if place < 2:
            taken = [position for position in taken if position not in done]
    assert seen == in_order(folds, taken, copies, passes)
