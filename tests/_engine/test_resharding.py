from __future__ import annotations

import numpy as np
import pytest

import penstock as ps
from penstock._engine.chunk import FoldState, Token
from penstock._engine.resume import PlanVariant, ResumeStep, folded_part, parts_at
from penstock._plan.saved import GlobalPosition
from penstock.errors import StateMismatch


def numbers(count: int = 40) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def test_a_place_between_batches_is_one_between_elements_in_a_pass() -> None:
    root = numbers().batch(8).map(len).repeat(3)._root  # 5 batches a pass
    part = folded_part(root, ResumeStep(PlanVariant(root, False, False), Token((0, 7))), ordered=False)
    assert part == ResumeStep(PlanVariant(root, True, False), Token((1, 16), (FoldState(0, 0, ([], 1)),)))


def test_the_end_of_everything_is_the_end_of_the_last_pass() -> None:
    root = numbers().batch(8).repeat(3)._root
    part = folded_part(root, ResumeStep(PlanVariant(root, False, False), Token((0, 15))), ordered=False)
    assert part.token == Token((2, 40), (FoldState(0, 0, ([], 2)),))


def test_what_cannot_be_said_between_elements_is_refused_in_words() -> None:
    root = numbers().batch(8).shuffle(seed=1)._root
    with pytest.raises(StateMismatch) as caught:
        folded_part(root, ResumeStep(PlanVariant(root, False, False), Token((0, 2))), ordered=False)
    assert "something other than map, prefetch and repeat stands above the batch" in caught.value.what
    assert caught.value.where == "load_state_dict()"
    assert "ordered=True" in caught.value.fix


def test_a_place_that_all_shards_have_reached_is_a_position_of_this_one() -> None:
    root = numbers().shard(2, 1).batch(4).repeat(2)._root
    ((form, token),) = parts_at(root, GlobalPosition(1, 16))
    assert form == PlanVariant(root, False, False)
    assert token == Token((0, 5 + 2))


@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 10**12])
@pytest.mark.parametrize("passes", [1, 3])
def test_a_dataset_of_more_elements_than_a_pass_counts_moves_to_other_shards(count: int, passes: int) -> None:
    elements = np.broadcast_to(np.zeros(1, np.int8), (count,))

    def shard(num_shards: int) -> ps.Dataset:
        return ps.from_arrays(elements).shuffle(seed=1).shard(num_shards, 0).repeat(passes)

    with shard(4).feed(num_workers=0) as feed:
        next(feed)
        state = feed.state_dict()
    with shard(3).feed(num_workers=0) as feed:
        feed.load_state_dict(state)
        assert feed.state_dict()["global"] == state["global"]
