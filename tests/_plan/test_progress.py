from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest

import penstock as ps
from penstock._plan.node import Batch, Filter, Map, Node, Prefetch, Read, Repeat, Shard, Shuffle, Skip
from penstock._plan.saved import GlobalPosition, global_position, resharded, shard_of
from penstock.sources import ArraySource

EPOCHS = 2


def read(num_elements: int = 12) -> Node:
    return Read(source=ArraySource(np.arange(num_elements)))


def keep(value: Any) -> Any:
    return value


# -- a run on several ranks -----------------------------------------------------------------------------------------------------------


def noisy(number: Any, rng: np.random.Generator) -> dict[str, Any]:
    return {"number": number, "noise": rng.random()}


class Case(NamedTuple):
    """A plan with a shard in it."""

    kind: str
    num_elements: int
    batch_size: int

    def of_rank(self, num_shards: int, index: int) -> ps.Dataset:
        ds = ps.from_arrays(np.arange(self.num_elements)).shuffle(seed=3).map(noisy, seed=5).shard(num_shards, index)
        for word in self.kind.split("."):
            match word:
                case "batch":
                    ds = ds.batch(self.batch_size)
                case "repeat":
                    ds = ds.repeat(EPOCHS)
                case "map":
                    ds = ds.map(keep)
        return ds


def elements(item: Any) -> list[tuple[int, float]]:
    """List what one delivered element or batch holds, each with its random number."""
    return list(zip(np.atleast_1d(item["number"]).tolist(), np.atleast_1d(item["noise"]).tolist(), strict=True))


class Run(NamedTuple):
    """What some steps on all ranks delivered, step after step in the order of the ranks; the ranks' states; whether one ran out."""

    delivered: list[tuple[int, float]]
    states: list[str]
    over: bool


def run(case: Case, num_ranks: int, state: str | None = None, steps: int | None = None) -> Run:
    per_rank, states, over = [], [], False
    for rank in range(num_ranks):
        items: list[Any] = []
        with case.of_rank(num_ranks, rank).feed(executor="inline") as feed:
            if state is not None:
                feed.load_state_dict(state)
            while steps is None or len(items) < steps:
                item = None if feed.epoch > 0 else next(feed, None)
                if item is None:
                    over = True
                    break
                items.append(elements(item))
            states.append(json.dumps(feed.state_dict()))
        per_rank.append(items)
    longest = max(map(len, per_rank))
    out = []
    for step in range(longest):
        batches = [items[step] if step < len(items) else [] for items in per_rank]
        for row in range(max(map(len, batches))):
            out.extend(batch[row] for batch in batches if row < len(batch))
    return Run(out, states, over)


def place_of(state: str) -> Any:
    return json.loads(state)["global"]


EVEN = [Case("batch.repeat", 24, 2), Case("repeat.batch", 24, 2), Case("map.repeat.map", 12, 1), Case("repeat.map.batch", 12, 5)]
SINGLE_PASS = [Case("batch", 13, 2), Case("map", 11, 1), Case("batch.map", 10, 3)]


@pytest.mark.parametrize("case", [*EVEN, *SINGLE_PASS], ids=str)
@pytest.mark.parametrize("before", [1, 2, 3, 4])
def test_a_run_saved_at_any_step_goes_on_with_any_number_of_ranks(case: Case, before: int) -> None:
    whole = run(case, 1).delivered
    steps = 0
    while True:
        head = run(case, before, steps=steps)
        if head.over:
            break
        for after in (1, 2 + steps % 3):  # where each was saved, one rank and another number
            for state in {str(place_of(state)): state for state in head.states}.values():
                tail = run(case, after, state=state)
                assert Counter(head.delivered + tail.delivered) == Counter(whole), (steps, after)
                if after == 1:
                    assert tail.delivered == whole[len(head.delivered) :], steps
        steps += 1
    assert steps > 1


# -- the arithmetic -------------------------------------------------------------------------------------------------------------------


def shard(child: Node | None = None) -> Node:
    return Shard(child=read() if child is None else child, num_shards=3, index=1)


def batch(child: Node) -> Node:
    return Batch(child=child, batch_size=2, drop_remainder=False)


def mapped(child: Node) -> Node:
    return Map(child=child, fn=keep, name="keep")


@pytest.mark.parametrize(
    "root",
    [
        shard(),
        mapped(shard()),
        batch(shard()),
        Repeat(child=batch(mapped(shard())), count=2),
        Prefetch(child=batch(shard()), buffer_size=2),
    ],
)
def test_a_shard_below_maps_one_batch_and_one_repeat_can_be_moved(root: Node) -> None:
    found = shard_of(root)
    assert isinstance(found, Shard)
    assert found.num_shards == 3


@pytest.mark.parametrize(
    "root",
    [
        read(),
        batch(batch(shard())),
        Repeat(child=Repeat(child=shard(), count=2), count=2),
        Skip(child=shard(), count=1),
        Shuffle(child=shard(), buffer_size=None, seed=0, reshuffle_each_epoch=True),
        Filter(child=shard(), fn=keep, name="keep"),
    ],
)
def test_a_shard_below_anything_else_cannot_be_moved(root: Node) -> None:
    assert shard_of(root) is None


@pytest.mark.parametrize("element", range(12))
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_moved_plan_stands_where_it_was_moved_to_on_every_rank(element: int, index: int) -> None:
    root = Shard(child=read(), num_shards=3, index=index)
    for plan in (root, Repeat(child=root, count=3)):
        part = resharded(plan, GlobalPosition(0, element))[0]
        assert global_position(part, 0) == GlobalPosition(0, element)
