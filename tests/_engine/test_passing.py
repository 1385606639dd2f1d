"""What a fold runner lets through becomes the chunks of the next segment."""

from __future__ import annotations

import numpy as np
import pytest

from penstock._engine.chunk import Chunk, Counted, KeyedElement, Result, Token
from penstock._engine.committing import chunks_of, given_chunk, passed_on
from penstock._engine.folding import Sequenced
from penstock._ops.block import Block


@pytest.mark.parametrize("batched", [True, False])
def test_a_given_chunk_keeps_values_keys_and_tokens(batched: bool) -> None:
    pieces = [[KeyedElement(f"v{number}", (1, number, 2**63 + number)) for number in group] for group in ([0, 1], [2])]
    if not batched:
        pieces = [[piece] for group in pieces for piece in group]
    tokens = [Token((1, number)) for number in range(len(pieces))]
    chunk = given_chunk(pieces, batched, tokens, 1, 0)
    assert chunk.given is not None
    assert chunk.given.rows() == ["v0", "v1", "v2"]
    assert chunk.given.lanes.tolist() == [2**63, 2**63 + 1, 2**63 + 2]
    assert chunk.given.indices.tolist() == [0, 1, 2]
    assert (chunk.sizes, chunk.num_items, chunk.num_rows) == (([2, 1], 2, 3) if batched else (None, 3, 3))
    assert chunk.token_after(1) == tokens[1]


def test_single_elements_go_on_as_they_are() -> None:
    chunk = Chunk(seq=3, pass_number=0, first=0, sizes=None, num_rows=2)
    block = Block(np.zeros(2, np.int64), np.arange(2), np.zeros(2, np.uint64), rows=["a", "b"])
    block.origins = np.arange(2)
    chunk.result = Result(["a", "b"], None, block)
    given = passed_on(chunk, [Token((0, 1)), Token((0, 2))])
    assert (given.sizes, given.num_items, given.buffer.delivered) == (None, 2, False)
    assert given.given is not None
    assert given.given.rows() == ["a", "b"]
    assert given.given.origins is None


def through(whole: bool) -> tuple[Chunk, Sequenced]:
    """Return a chunk of three elements, and what a fold runner says of it that lets it through, at once or piece by piece."""
    chunk = Chunk(seq=3, pass_number=1, first=4, sizes=None, num_rows=3)
    chunk.result = Result(["a", "b", "c"], None, Block(np.full(3, 1), np.arange(4, 7), np.zeros(3, np.uint64), rows=["a", "b", "c"]))
    if whole:
        return chunk, Sequenced(["a", "b", "c"], Counted(Token((1, 4))), False, None, False, False, None, True)
    pieces = [KeyedElement(value, (1, 4 + number, 0)) for number, value in enumerate("abc")]
    return chunk, Sequenced(pieces, [Token((1, 5 + number)) for number in range(3)], False, None, False, False)


@pytest.mark.parametrize("whole", [True, False])
def test_elements_go_on_in_one_chunk_or_where_they_are_awaited_in_one_each(whole: bool) -> None:
    (together,) = chunks_of(*through(whole), batched=False, one_batch_per_chunk=False)
    assert together.given is not None
    assert together.given.rows() == ["a", "b", "c"]
    single = chunks_of(*through(whole), batched=False, one_batch_per_chunk=True)
    assert [chunk.given.rows() for chunk in single if chunk.given is not None] == [["a"], ["b"], ["c"]]
    assert [chunk.given.indices.tolist() for chunk in single if chunk.given is not None] == [[4], [5], [6]]
    assert [chunk.token_after(0) for chunk in single] == [together.token_after(number) for number in range(3)]
    assert [chunk.token_after(0).source for chunk in single] == [(1, 5), (1, 6), (1, 7)]


def test_the_mark_of_an_end_goes_on_in_a_chunk_of_nothing() -> None:
    chunk = Chunk(seq=3, pass_number=1, first=4, sizes=None, num_rows=0)
    (empty,) = chunks_of(chunk, Sequenced([], [], True, None, False, False), batched=True, one_batch_per_chunk=True)
    assert (empty.num_items, empty.num_rows, empty.sizes) == (0, 0, [])
