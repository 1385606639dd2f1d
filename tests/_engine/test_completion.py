from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock._engine.chunk import NOTHING_COMPLETED, Chunk, CompletedRuns, Failure, FoldState, Result, StreamState, Token
from penstock._engine.completion import Completion, refused
from penstock._engine.folding import DROP_END, OPEN, PASS_END, FoldRunner, size_of, unmeasured
from penstock._ops.block import Block
from penstock._ops.streams import Measured
from penstock._order.folds import BatchFold, EnumerateFold, Fold, RepeatFold, ResampleFold, ShardFold, SkipFold, TakeFold
from penstock._order.holding import BucketFold, ConcatenateFold, PackFold, ShuffleBufferFold, WindowFold

START = Token((0, 0))
BATCHES = BatchFold(4, drop_remainder=False)
BINS = PackFold(10, 2, size_of)
BUCKETS = BucketFold((3,), (3, 2), False, size_of)


def chunk_of(values: list[list[Any]], first: int, pass_number: int = 0, *, ends: bool = False, tail: Failure | None = None) -> Chunk:
    """Make a finished chunk: `values[i]` are the results of its input i."""
    flat = [value for results in values for value in results]
    zeros = np.zeros(len(flat), np.int64)
    block = Block(zeros, np.arange(len(flat), dtype=np.int64), zeros.astype(np.uint64), rows=flat)
    origins = [place for place, results in enumerate(values) for _ in results]
    chunk = Chunk(seq=0, pass_number=pass_number, first=first, sizes=None, num_rows=len(values), ends_pass=ends)
    chunk.result = Result(flat, origins, block)
    chunk.tail = tail
    return chunk


def weighed(number: int) -> Measured:
    return Measured(number, 1 + number * 7 % 6)


def values_of(item: Any) -> list[Any]:
    if isinstance(item, list):
        return [value for part in item for value in values_of(part)]
    value = item.value
    return list(value.values) if hasattr(value, "values") else [value]


FOLDS: dict[str, tuple[Fold, ...]] = {
    "nothing": (),
    "batches": (BATCHES,),
    "bins": (BINS,),
    "batches of bins": (BINS, BatchFold(2, drop_remainder=False)),
    "buckets": (BUCKETS,),
    "buffer": (ShuffleBufferFold(5, 1 << 40, 1, True, size_of), BATCHES),
}


def inputs(copies: int, count: int, weights: bool) -> list[list[Any]]:
    """Input i has between none and `copies` results; each result tells which it is."""
    return [[weighed(one) if weights else one for one in range(i * 10, i * 10 + (copies + i) % (copies + 1))] for i in range(count)]


def not_done(token: Token, results: list[list[Any]]) -> list[tuple[int, int]]:
    """List what a resume behind a token computes again."""
    done = {position for begin, end in token.done.runs for position in range(begin, end)}
    partial = dict(token.done.partial)
    return [
        (position, number)
        for position, some in enumerate(results)
        for number in range(len(some))
        if position >= token.source[1] and position not in done and number not in partial.get(position, ())
    ]


@given(st.sampled_from(sorted(FOLDS)), st.integers(0, 3), st.integers(0, 30), st.integers(1, 5), st.randoms(use_true_random=False))
def test_chunks_in_any_order_come_out_once_and_every_token_names_exactly_what_did_not(
    name: str, copies: int, count: int, size: int, chance: Any
) -> None:
    results = inputs(copies, count, weights=name not in ("nothing", "batches"))
    chunks = [chunk_of(results[first : first + size], first) for first in range(0, count, size)]
    chance.shuffle(chunks)
    chunks.append(chunk_of([], count, ends=True))
    everything = sorted(value if isinstance(value, int) else value.value for some in results for value in some)
    fold = Completion(FOLDS[name], START, None)
    seen: list[int] = []
    for chunk in chunks:
        out = fold.take(chunk)
        assert len(out.items) == len(out.tokens)
        assert out.ends_pass == chunk.ends_pass
        for item, token in zip(out.items, out.tokens, strict=True):
            seen += values_of(item)
            left = not_done(token, results)
            again = [results[position][number] for position, number in left]
            assert sorted(seen + [value if isinstance(value, int) else value.value for value in again]) == everything
            assert all(begin < end for begin, end in token.done.runs)
            assert list(token.done.runs) == sorted(token.done.runs)
            assert not token.done.runs or token.done.runs[0][0] > token.source[1]
    assert sorted(seen) == everything
    assert fold.start_of_next_pass(chunks[-1]).source == (1, 0)
    assert fold.start_of_next_pass(chunks[-1]).done == NOTHING_COMPLETED


@given(st.sampled_from(sorted(FOLDS)), st.integers(0, 3), st.integers(1, 20), st.randoms(use_true_random=False), st.data())
def test_what_comes_behind_a_token_at_any_place_is_what_had_not_come(name: str, copies: int, count: int, chance: Any, data: Any) -> None:
    results = inputs(copies, count, weights=name not in ("nothing", "batches"))
    seen = run_three_times(FOLDS[name], results, [False] * 3, chance, data)
    assert sorted(seen) == sorted(value if isinstance(value, int) else value.value for some in results for value in some)


@settings(max_examples=10 * settings.default.max_examples)
@given(
    st.sampled_from(["nothing", "batches"]),
    st.integers(2, 4),
    st.integers(1, 8),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_so_it_is_where_runs_in_order_and_runs_that_are_not_follow_each_other(
    name: str, copies: int, count: int, orders: list[bool], chance: Any, data: Any
) -> None:
    results = inputs(copies, count, weights=False)
    seen = run_three_times(FOLDS[name], results, orders, chance, data)
    assert sorted(seen) == sorted(value for some in results for value in some)


def run_three_times(folds: tuple[Fold, ...], results: list[list[Any]], orders: list[bool], chance: Any, data: Any) -> list[int]:
    """Run, save and resume at drawn places, each run in order or not; return all that was delivered."""
    seen: list[int] = []
    token = START
    for place, ordered in enumerate(orders):
        record = token.fold_runners[0] if token.fold_runners else None
        fold = (FoldRunner if ordered else Completion)(folds, token._replace(fold_runners=()), record)
        done = {position for begin, end in token.done.runs for position in range(begin, end)}
        chunks = [chunk_of([results[place]], place) for place in range(token.source[1], len(results)) if place not in done]
        for chunk in chunks:
            chunk.beyond = token.done
        if not ordered:
            chance.shuffle(chunks)
        outs: list[tuple[Any, Token]] = []
        for chunk in [*chunks, chunk_of([], len(results), ends=True)]:
            out = fold.take(chunk)
            assert isinstance(out.tokens, Sequence)
            outs += zip(out.items, out.tokens, strict=True)
        stop = len(outs) if place == 2 else data.draw(st.integers(0, len(outs)))
        for item, token in outs[:stop]:  # noqa: B007 - the last one is where it is saved
            seen += values_of(item)
    return seen


def test_a_new_pass_begins_with_nothing_done_and_counts_go_on() -> None:
    fold = Completion((BATCHES, RepeatFold(3)), START, None)
    fold.take(chunk_of([[1], [2]], 4))
    ended = fold.take(chunk_of([[0]], 0, ends=True))
    assert [values_of(item) for item in ended.items] == [[1, 2, 0]]
    assert not ended.ends_pass
    (token,) = fold.take(chunk_of([[1], [2], [3], [4]], 2, 1)).tokens
    assert token == Token((1, 0), (FoldState(0, OPEN, ([], 1)),), CompletedRuns(((2, 6),)))


def test_a_failure_goes_on_behind_what_came_before_it_and_the_pass_does_not_end() -> None:
    tail = Failure(1, ValueError("bad"), "map", 0)
    fold = Completion((), START, None, transparent=True)
    out = fold.take(chunk_of([["a"]], 3, ends=True, tail=tail))
    assert (values_of(out.items), out.ends_pass, out.tail) == (["a"], False, tail)
    assert list(out.tokens) == [Token((0, 0), (), CompletedRuns(((3, 4),)))]


@pytest.mark.parametrize(("mode", "ends"), [(DROP_END, False), (PASS_END, True)])
def test_the_rest_of_a_pass_that_was_over_where_an_ordered_run_was_saved_is_left_out(mode: int, ends: bool) -> None:
    fold = Completion((RepeatFold(2),), Token((0, 5)), FoldState(0, mode, (1,)))
    assert fold.take(chunk_of([[9]], 5))[:3] == ([], [], False)
    assert fold.take(chunk_of([], 6, ends=True)).ends_pass is ends
    assert [values_of(item) for item in fold.take(chunk_of([[1]], 0, 1)).items] == [[1]]


def test_results_that_an_ordered_run_had_taken_of_the_next_input_are_left_out() -> None:
    fold = Completion((), Token((0, 5)), FoldState(2, OPEN, ()))
    assert values_of(fold.take(chunk_of([["a", "b", "c"], ["d"]], 5)).items) == ["c", "d"]


def test_the_next_input_of_an_ordered_run_lies_behind_what_was_done_already() -> None:
    before = Token(
        (0, 5), (), CompletedRuns(((5, 8),), ((3, (0,)), (8, (2,))))
    )  # a token behind input 4 was saved in the middle of input 8
    fold = Completion((), before, FoldState(1, OPEN, ()))
    out = fold.take(chunk_of([["a", "b", "c"], ["d"]], 8))
    assert values_of(out.items) == ["b", "d"]
    assert list(out.tokens) == [Token((0, 9), (FoldState(0, OPEN, ()),)), Token((0, 10), (FoldState(0, OPEN, ()),))]


def test_an_endless_pass_that_gave_nothing_is_told() -> None:
    fold = Completion((BATCHES, RepeatFold(None)), START, None)
    assert not fold.take(chunk_of([[1]], 0, ends=True)).empty_pass
    assert fold.take(chunk_of([[]], 0, 1, ends=True)).empty_pass
    assert not Completion((RepeatFold(None),), START, FoldState(0, OPEN, (0,))).take(chunk_of([], 0, ends=True)).empty_pass


def test_a_token_has_the_last_note_before_its_watermark() -> None:
    def noted(first: int, pass_number: int = 0) -> Chunk:
        chunk = chunk_of([[first], [first + 1]], first, pass_number)
        chunk.tokens = [Token((pass_number, first + 1 + place), note=StreamState(pass_number, first + 1, first)) for place in range(2)]
        return chunk

    fold = Completion((), Token((0, 2), note=StreamState(0, 1, "old")), None)
    assert [token.note.state for token in fold.take(noted(4)).tokens if token.note] == ["old", "old"]
    assert [token.note.state for token in fold.take(noted(2)).tokens if token.note] == [2, 4]
    assert [token.note.state for token in fold.take(noted(8)).tokens if token.note] == [4, 4]
    assert [token.note.state for token in fold.take(noted(2, 1)).tokens if token.note] == [8, 8]
    assert fold.start_of_next_pass(noted(2, 1)).note == StreamState(1, 3, 2)
    assert Completion((), START, None).take(noted(3)).tokens[0].note is None


RESAMPLING = ResampleFold((0.5, 0.5), None, 1, size_of, unmeasured)


@pytest.mark.parametrize(
    ("folds", "wanted"),
    [
        ((), None),
        ((BATCHES, RepeatFold(2), RepeatFold(3)), None),
        ((RESAMPLING, BATCHES, RepeatFold(2)), None),
        ((BINS, BATCHES), None),
        ((BUCKETS, RepeatFold(None)), None),
        ((TakeFold(3),), TakeFold(3)),
        ((BATCHES, SkipFold(3)), SkipFold(3)),
        ((ShardFold(2, 0), BATCHES), ShardFold(2, 0)),
        ((EnumerateFold(5), BATCHES), EnumerateFold(5)),
        ((ConcatenateFold(8, size_of),), ConcatenateFold(8, size_of)),
        ((WindowFold(2, 1, 1, False),), WindowFold(2, 1, 1, False)),
        ((RepeatFold(2), BATCHES), RepeatFold(2)),
        ((RepeatFold(2), BINS), RepeatFold(2)),
    ],
)
def test_folds_that_need_an_order_or_keep_elements_of_two_passes_are_refused(folds: tuple[Fold, ...], wanted: Fold | None) -> None:
    assert refused(folds) == wanted
