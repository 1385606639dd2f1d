from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock._plan.node import Batch, Filter, Map, Node, Prefetch, Read, Repeat, Shard, Shuffle, Skip
from penstock._plan.saved import GlobalPosition, global_position, resharded, shard_of
from penstock.sources import ArraySource


def read(num_elements: int = 12) -> Node:
    return Read(source=ArraySource(np.arange(num_elements)))


def keep(value: Any) -> Any:
    return value


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
