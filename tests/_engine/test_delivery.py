from __future__ import annotations

import penstock as ps
from penstock._engine.chunk import Counted, Token
from penstock._engine.resume import Delivery, PlanPart
from penstock._engine.scheduler import Ready

PART = PlanPart(ps.from_source([1])._root)


def test_the_place_behind_each_item_is_that_of_its_token() -> None:
    tokens = [Token((0, 4)), Token((0, 7))]
    hand = Delivery.begin(10, Token((0, 3)), PART).then(Ready(["b", "a"], tokens, False, None))
    assert hand.now() == (10, Token((0, 3)))
    hand.items.pop()
    assert hand.now() == (11, tokens[0])
    hand.items.pop()
    assert hand.now() == (12, tokens[1])


def test_positions_that_count_on_by_one_need_one_token() -> None:
    hand = Delivery.begin(0, Token((2, 5)), PART).then(Ready(["c", "b", "a"], Counted(Token((2, 5))), False, None))
    hand.items.pop()
    hand.items.pop()
    assert hand.now() == (2, Token((2, 7)))


def test_places_of_batches_count_on_by_their_elements() -> None:
    hand = Delivery.begin(7, Token((2, 5)), PART).then(Ready(["b", "a"], Counted(Token((2, 5)), 4), False, None))
    assert hand.now() == (7, Token((2, 5)))
    hand.items.pop()
    assert hand.now() == (8, Token((2, 9)))
    hand.items.pop()
    assert hand.now() == (9, Token((2, 13)))


def test_a_hand_over_goes_on_where_the_one_before_ended_an_empty_one_too() -> None:
    hand = Delivery.begin(7, Token((2, 5)), PART).then(Ready(["b", "a"], Counted(Token((2, 5)), 4), False, None))
    hand.items.clear()
    for _ in range(3):
        hand = hand.then(Ready([], [], False, None))
        assert hand.now() == (9, Token((2, 13)))
    hand = hand.then(Ready(["c"], [Token((3, 0))], False, None))
    assert hand.now() == (9, Token((2, 13)))
    hand.items.pop()
    assert hand.now() == (10, Token((3, 0)))
