from __future__ import annotations

from typing import Any

import numpy as np
from laws.turns import interleaved_turns, mix_turns

from penstock._ops.leaves import ReadLeaf
from penstock._ops.mixing import InterleaveLeaf, MixLeaf
from penstock._ops.operator import ChainOp
from penstock._ops.worker import WorkerContext
from penstock._order.interleaving import interleaving
from penstock._order.mixing import mixing
from penstock.sources import IndexableSource

WORDS = ["abc", "defgh", "ij"]


def read(values: Any) -> ChainOp:
    return ChainOp(ReadLeaf(IndexableSource(values), None, None), ())


BRANCHES = tuple(read(list(word)) for word in WORDS)


def test_a_mix_takes_elements_of_its_branches_by_their_weights_and_starts_over() -> None:
    weights, lengths = (1.0, 1.0, 2.0), [3, 5, 2]
    leaf = MixLeaf(BRANCHES, mixing(((0, weights),), lengths, restart=True))
    turns = mix_turns(weights, lengths, "all_exhausted")
    found = leaf.run(np.ones(len(turns), np.int64), np.arange(len(turns)), WorkerContext(0))
    assert found.rows() == [WORDS[turn.child][turn.place] for turn in turns]
    assert found.epochs.tolist() == [turn.epoch(1) for turn in turns]
    assert found.lanes.tolist() == [turn.child for turn in turns]
    last = turns[-1]
    assert leaf.key(1, len(turns) - 1) == (last.epoch(1), last.place)


def test_an_interleave_takes_elements_of_its_branches_in_turn() -> None:
    leaf = InterleaveLeaf(BRANCHES, interleaving([3, 5, 2], 2, 2))
    order = interleaved_turns([3, 5, 2], 2, 2)
    places = np.arange(len(order))[::-1].copy()
    found = leaf.run(np.full(len(order), 4), places, WorkerContext(0))
    assert found.rows() == [WORDS[member][place] for member, place in reversed(order)]
    assert set(found.epochs.tolist()) == {4}
    assert leaf.where(4, 0) == BRANCHES[0].where(4, 0)
