"""The folds of a pipeline, run over chunks cut anywhere: what comes out does not depend on the cuts, and every token resumes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock._engine.chunk import Chunk, Failure, FoldState, KeyedElement, Result, Token
from penstock._engine.folding import OPEN, FoldRunner, Sequenced, size_of, unmeasured, unwrapped
from penstock._ops.block import Block
from penstock._ops.streams import Gathered, Measured
from penstock._order.chain import Chain
from penstock._order.folds import BatchFold, EnumerateFold, Fold, RepeatFold, ResampleFold, ShardFold, SkipFold, TakeFold
from penstock._order.holding import BucketFold, ConcatenateFold, PackFold, ShuffleBufferFold, WindowFold
from penstock.errors import StateMismatch

START = Token((0, 0))


def chunk_of(counts: list[int], first: int, pass_number: int, ends: bool, tail: Failure | None = None) -> Chunk:
    """Return a finished chunk whose inputs gave `counts[i]` results each, named "pass.input.result"."""
    origins = [number for number, count in enumerate(counts) for _ in range(count)]
    names = [f"{pass_number}.{first + number}.{copy}" for number, count in enumerate(counts) for copy in range(count)]
    size = len(names)
    block = Block(
        np.full(size, pass_number), np.array([first + origin for origin in origins], np.int64), np.zeros(size, np.uint64), rows=names
    )
    chunk = Chunk(seq=0, pass_number=pass_number, first=first, sizes=None, num_rows=len(counts), ends_pass=ends)
    chunk.result, chunk.tail = Result(names, origins, block), tail
    return chunk


def cut_up(counts: list[int], cuts: list[int], passes: int, start: tuple[int, int] = (0, 0)) -> list[Chunk]:
    """Cut `passes` passes over inputs with `counts` results into chunks, from position `start` on."""
    out = []
    for number in range(start[0], passes):
        position = start[1] if number == start[0] else 0
        borders = sorted({min(cut, len(counts)) for cut in cuts if cut > position} | {len(counts)})
        for border in borders:
            out.append(chunk_of(counts[position:border], position, number, border == len(counts)))
            position = border
    return out


def run(folds: list[Fold], chunks: list[Chunk], before: Token = START, saved: Any = None) -> list[Sequenced]:
    """Feed chunks until the end of everything goes on upwards."""
    fold_runner, out = FoldRunner(folds, before, saved), []
    cut = -1
    for chunk in chunks:
        out.append(fold_runner.take(chunk))
        cut = chunk.pass_number if out[-1].cut else cut
        if out[-1].ends_pass:
            break
    return out


def values(sequenced: list[Sequenced]) -> list[Any]:
    return [named(item) for part in sequenced for item in part.items]


def named(item: Any) -> Any:
    if isinstance(item, list):
        return [named(part) for part in item]
    if isinstance(item, KeyedElement) and isinstance(item.value, Gathered):
        return [item.value.values, item.value.layout]
    return item.value if hasattr(item, "value") else (item[0], named(item[1]))


def tokens(sequenced: list[Sequenced]) -> list[Token]:
    return [token for part in sequenced for token in part.tokens]


CUTS = st.lists(st.integers(1, 12), max_size=5)


# -- folds that hold items ------------------------------------------------------------------------------------------------------------


def weigh(name: str) -> int:
    """Give each item a size in 0..5 that depends on its name alone."""
    return sum(map(ord, name)) % 6


def weighed(chunks: list[Chunk]) -> list[Chunk]:
    for chunk in chunks:
        assert chunk.result is not None
        items = [Measured(name, weigh(name)) for name in chunk.result.items]
        chunk.result = chunk.result._replace(items=items)
    return chunks


HOLDING = st.one_of(
    st.booleans().map(lambda drop: BucketFold((2, 4), (2, 3, 2), drop, size_of)),
    st.integers(1, 3).map(lambda num_bins: PackFold(9, num_bins, size_of)),
    st.integers(1, 9).map(lambda capacity: ConcatenateFold(capacity, size_of)),
    st.tuples(st.integers(1, 5), st.booleans()).map(lambda pair: ShuffleBufferFold(pair[0], 12, 7, pair[1], size_of)),
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.booleans()).map(lambda triple: WindowFold(triple[0], triple[1], 1, triple[2])),
    st.just(ResampleFold((0.2, 0.2, 0.2, 0.2, 0.1, 0.1), None, 3, size_of, unmeasured)),
)
BELOW = st.lists(
    st.one_of(st.integers(0, 20).map(TakeFold), st.integers(0, 4).map(SkipFold), st.integers(1, 2).map(RepeatFold)),
    max_size=2,
)
ABOVE = st.lists(
    st.one_of(
        st.integers(0, 8).map(TakeFold),
        st.integers(0, 3).map(SkipFold),
        st.integers(1, 3).map(RepeatFold),
        st.just(ShardFold(2, 1)),
    ),
    max_size=3,
)
TOP = st.sampled_from([[], [EnumerateFold(3)], [BatchFold(3, False)], [BatchFold(2, True)]])
MANY_COUNTS = st.lists(st.integers(0, 3), max_size=40)


@st.composite
def holding_chains(draw: Any) -> list[Fold]:
    """Draw a chain with one holding fold; a take knows whether a repeat stands above it, as `lower` tells it."""
    folds = [*draw(BELOW), draw(HOLDING), *draw(ABOVE), *draw(TOP)]
    again = [any(isinstance(above, RepeatFold) for above in folds[place + 1 :]) for place in range(len(folds))]
    return [TakeFold(fold.count, repeated) if isinstance(fold, TakeFold) else fold for fold, repeated in zip(folds, again, strict=True)]


def num_passes(folds: list[Fold]) -> int:
    return int(np.prod([fold.count for fold in folds if isinstance(fold, RepeatFold)], dtype=int))


def uncut(folds: list[Fold], counts: list[int]) -> list[Any]:
    """Return what a chain gives of whole passes, never asked whether a pass could end early."""
    chain, out = Chain(folds, unwrap=unwrapped), []
    for number in range(num_passes(folds)):
        for place, count in enumerate(counts):
            for copy in range(count):
                name = f"{number}.{place}.{copy}"
                out.extend(chain.push(KeyedElement(Measured(name, weigh(name)), (number, place, copy))))
        outs, goes_on = chain.end()
        out.extend(outs)
    assert goes_on
    return [named(item) for item in out]


def resumed(chain: list[Fold], counts: list[int], cuts: list[int], token: Token) -> list[Sequenced]:
    record = FoldState(*json.loads(json.dumps(token.fold_runners[0])))
    return run(chain, weighed(cut_up(counts, cuts, num_passes(chain), token.source)), Token(token.source), record)


@given(holding_chains(), MANY_COUNTS, CUTS)
def test_a_chain_that_holds_items_gives_the_same_whatever_the_cuts(chain: list[Fold], counts: list[int], cuts: list[int]) -> None:
    out = run(chain, weighed(cut_up(counts, cuts, num_passes(chain))))
    assert values(out) == uncut(chain, counts)
    assert [part.ends_pass for part in out] == [False] * (len(out) - 1) + [True]
    assert len(tokens(out)) == len(values(out))


@settings(max_examples=300)
@given(holding_chains(), MANY_COUNTS, CUTS, CUTS, st.data())
def test_every_token_of_a_chain_that_holds_items_resumes_and_so_do_the_tokens_of_that_run(
    chain: list[Fold], counts: list[int], cuts: list[int], again: list[int], data: st.DataObject
) -> None:
    out = run(chain, weighed(cut_up(counts, cuts, num_passes(chain))))
    whole, saved = values(out), tokens(out)
    if not whole:
        return
    stop = data.draw(st.integers(0, len(whole) - 1))
    rest = resumed(chain, counts, again, saved[stop])
    assert values(rest) == whole[stop + 1 :]
    assert rest[-1].ends_pass
    if tokens(rest):
        further = data.draw(st.integers(0, len(tokens(rest)) - 1))
        last = resumed(chain, counts, cuts, tokens(rest)[further])
        assert values(last) == whole[stop + further + 2 :]
        assert last[-1].ends_pass


@given(holding_chains(), MANY_COUNTS, CUTS)
def test_a_record_is_small_json_and_a_resume_runs_few_items_again(chain: list[Fold], counts: list[int], cuts: list[int]) -> None:
    for token in tokens(run(chain, weighed(cut_up(counts, cuts, num_passes(chain))))):
        record = token.fold_runners[0]
        assert len(json.dumps(record)) < 250  # at most 13 items are held here
        assert record.drop <= 3 * (64 + 13)


def test_a_long_pass_is_not_run_again_from_its_beginning() -> None:
    chain: list[Fold] = [WindowFold(2, 2, 1, False)]
    out = tokens(run(chain, weighed(cut_up([1] * 1000, list(range(0, 1000, 7)), 1))))
    assert out[-1].source[1] >= 1000 - 66
    assert max(token.fold_runners[0].drop for token in out) <= 33


def test_data_that_end_before_the_held_items_came_again_are_an_error_and_not_an_end() -> None:
    chain: list[Fold] = [ShuffleBufferFold(3, 100, 0, True, size_of)]
    record = FoldState(0, OPEN, ({"pass": 0, "draws": 4, "held": [0, 1]},), 2)
    fold_runner = FoldRunner(chain, START, record)
    (chunk,) = weighed([chunk_of([1], 0, 0, ends=True)])
    out = fold_runner.take(chunk)
    assert out.tail is not None
    assert isinstance(out.tail.error, StateMismatch)
    assert "1 elements that were held when the state was saved did not come again" in out.tail.error.what
    assert (out.items, out.ends_pass) == ([], False)


def test_a_record_of_more_results_than_come_again_is_an_error_and_not_a_short_pass() -> None:
    (skipping,) = run([], [chunk_of([1, 2], 0, 0, ends=True)], saved=FoldState(3, OPEN, ()))
    assert skipping.tail is not None
    assert "3 results of one element were delivered, and it gives 1 now" in str(skipping.tail.error)
    fold = WindowFold(2, 2, 1, False)
    dropping = run([fold], [chunk_of([1, 1, 1], 0, 0, ends=True)], saved=FoldState(0, OPEN, ({"gap": 0, "held": []},), 0, 9))[-1]
    assert dropping.tail is not None
    assert "9 results were delivered behind the last checkpoint, and 2 came again" in str(dropping.tail.error)
