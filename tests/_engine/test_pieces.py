from __future__ import annotations

import numpy as np

from penstock._engine.chunk import Chunk, KeyedElement, Result
from penstock._engine.folding import pieces_by_input, size_of, unmeasured, unwrapped
from penstock._ops.block import Block
from penstock._ops.streams import Gathered, Measured
from penstock._order.chain import BufferedElement
from penstock._order.holding import Group


def chunk_with(result: Result) -> Chunk:
    chunk = Chunk(seq=0, pass_number=0, first=0, sizes=None, num_rows=2)
    chunk.result = result
    return chunk


def block(count: int) -> Block:
    return Block(np.full(count, 4), np.arange(count) + 10, np.arange(count, dtype=np.uint64), rows=list("abc"[:count]))


def held(name: str, number: int = 0) -> BufferedElement:
    return BufferedElement(number, None, KeyedElement(Measured(name, len(name)), (0, number, 0)))


def test_each_item_gets_the_pieces_it_gave_with_their_keys() -> None:
    a, b, c = (KeyedElement(name, (4, 10 + number, number)) for number, name in enumerate("abc"))
    assert pieces_by_input(chunk_with(Result(list("ab"), None, block(2)))) == [[a], [b]]
    assert pieces_by_input(chunk_with(Result(list("abc"), [1, 1, 1], block(3)))) == [[], [a, b, c]]
    assert pieces_by_input(chunk_with(Result([], [], None))) == [[], []]


def test_a_weight_is_found_in_a_piece_and_in_what_a_fold_holds() -> None:
    assert size_of(held("abc")) == 3
    assert size_of(KeyedElement(Measured("x", "class 7"), (0, 0, 0))) == "class 7"


def test_a_piece_without_its_weight_keeps_its_key_and_one_that_has_none_stays() -> None:
    plain = KeyedElement("x", (1, 2, 3))
    assert unmeasured(KeyedElement(Measured("x", 9), (1, 2, 3))) == plain
    assert unmeasured(plain) is plain


def test_what_leaves_a_holding_fold_is_a_piece_a_list_for_a_batch_or_a_gathering_with_the_key_of_its_first() -> None:
    assert unwrapped(held("a", 3)) == KeyedElement("a", (0, 3, 0))
    assert unwrapped([held("a", 3), held("b", 5)]) == [KeyedElement("a", (0, 3, 0)), KeyedElement("b", (0, 5, 0))]
    group = Group([held("a", 3), held("b", 5)], [(0, 1), (0, 1)])
    assert unwrapped(group) == KeyedElement(Gathered(("a", "b"), [(0, 1), (0, 1)]), (0, 3, 0))


def test_a_batch_of_what_a_fold_held_is_unwrapped_part_by_part() -> None:
    assert unwrapped([[held("a", 1)], [held("b", 2)]]) == [[KeyedElement("a", (0, 1, 0))], [KeyedElement("b", (0, 2, 0))]]
