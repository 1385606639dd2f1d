from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._plan.facts import (
    ROOM,
    highest_number,
    is_indexable,
    length_of,
    never_ends,
)
from penstock._plan.node import (
    Batch,
    Concatenate,
    Enumerate,
    Filter,
    Interleave,
    Map,
    Mix,
    Node,
    PaddedBatch,
    Prefetch,
    RaggedBatch,
    Read,
    ReadStream,
    Repeat,
    Shard,
    Shuffle,
    Skip,
    Take,
    Window,
    Zip,
)
from penstock.sources import ArraySource, GeneratorSource


def read(num_elements: int) -> Node:
    return Read(source=ArraySource(np.arange(num_elements)))


def stream(length: int | None) -> Node:
    return ReadStream(source=GeneratorSource(lambda: iter([]), fast_forward=False, length=length))


def keep(value: Any) -> Any:
    return value


SIZES = st.integers(0, 5)
WHOLE = st.integers(1, 4)


def above(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    shards = st.builds(lambda child, number, index: Shard(child=child, num_shards=number, index=index % number), children, WHOLE, SIZES)
    pairs = st.tuples(children, children)
    return st.one_of(
        shards,
        st.builds(lambda child, count: Take(child=child, count=count), children, SIZES),
        st.builds(lambda child, count: Skip(child=child, count=count), children, SIZES),
        st.builds(lambda child, count: Repeat(child=child, count=count), children, WHOLE),
        st.builds(lambda child: Map(child=child, fn=keep, name="keep"), children),
        st.builds(lambda child: Enumerate(child=child, start=0), children),
        st.builds(lambda child: Prefetch(child=child, buffer_size=1), children),
        st.builds(lambda child: Shuffle(child=child, buffer_size=None, seed=0, reshuffle_each_epoch=True), children),
        st.builds(lambda child, size, drop: Batch(child=child, batch_size=size, drop_remainder=drop), children, WHOLE, st.booleans()),
        st.builds(lambda child, size, drop: PaddedBatch(child=child, batch_size=size, drop_remainder=drop), children, WHOLE, st.booleans()),
        st.builds(lambda child, size, drop: RaggedBatch(child=child, batch_size=size, drop_remainder=drop), children, WHOLE, st.booleans()),
        st.builds(
            lambda child, size, shift, stride, drop: Window(child=child, size=size, shift=shift, stride=stride, drop_remainder=drop),
            *(children, WHOLE, WHOLE, WHOLE, st.booleans()),
        ),
        st.builds(lambda pair: Zip(children=pair), pairs),
        st.builds(lambda pair: Concatenate(children=pair), pairs),
        st.builds(lambda pair: Interleave(children=pair, name="open", cycle_length=1, block_length=1), pairs),
        st.builds(lambda pair: Mix(children=pair, history=((0, (1.0, 1.0)),), restart=False), pairs),
    )


PLANS = st.recursive(st.builds(read, st.integers(0, 9)), above, max_leaves=4)


def elements(node: Node) -> list[Any]:
    """Run a plan with lists; only the number of elements counts."""
    match node:
        case Read():
            return list(range(len(node.source)))
        case Shard():
            return elements(node.child)[node.index :: node.num_shards]
        case Take():
            return elements(node.child)[: node.count]
        case Skip():
            return elements(node.child)[node.count :]
        case Repeat():
            return elements(node.child) * (node.count or 0)
        case Batch() | PaddedBatch() | RaggedBatch():
            below = elements(node.child)
            parts = [below[at : at + node.batch_size] for at in range(0, len(below), node.batch_size)]
            return [part for part in parts if len(part) == node.batch_size or not node.drop_remainder]
        case Window():
            below = elements(node.child)
            parts = [below[at :: node.stride][: node.size] for at in range(0, len(below), node.shift)]
            return [part for part in parts if len(part) == node.size or not node.drop_remainder]
        case Zip():
            return list(zip(*map(elements, node.children), strict=False))
        case Mix():
            one, two = map(elements, node.children)  # the left one comes first
            return [*range(2 * len(two) + (len(one) > len(two)) if len(two) <= len(one) else 2 * len(one))]
        case Concatenate() | Interleave():
            return [item for child in node.children for item in elements(child)]
        case Map() | Enumerate() | Prefetch() | Shuffle():
            return elements(node.child)
    raise AssertionError(node)


@given(PLANS)
def test_the_length_of_a_plan_is_the_number_of_elements_that_it_gives(plan: Node) -> None:
    assert length_of(plan) == len(elements(plan))
    assert is_indexable(plan)


def test_a_plan_never_ends_where_an_endless_repeat_is_not_cut_also_when_its_length_is_unknown() -> None:
    def endless(child: Node) -> Node:
        return Repeat(child=child, count=None)

    three, unknown = read(3), stream(None)
    batches = Batch(child=endless(unknown), batch_size=2, drop_remainder=False)
    for node in (endless(three), endless(unknown), batches, Repeat(child=endless(unknown), count=2), Zip(children=(endless(three),) * 2)):
        assert never_ends(node)
        assert not never_ends(Take(child=node, count=5))
    for node in (three, unknown, Repeat(child=unknown, count=3), Zip(children=(endless(three), three))):
        assert not never_ends(node)


def doubled(value: Any) -> Any:
    return value


ENDLESS = Repeat(child=read(3), count=None)


@pytest.mark.parametrize(
    ("node", "highest"),
    [
        (read(7), 6),
        (ENDLESS, ROOM),
        (Enumerate(child=ENDLESS, start=5), ROOM + 5),
        (Skip(child=Shard(child=ENDLESS, num_shards=8, index=3), count=2), 8 * (ROOM + 2) + 3),
        (Batch(child=ENDLESS, batch_size=10, drop_remainder=True), 10 * ROOM + 9),
        (Window(child=ENDLESS, size=3, shift=100, stride=7, drop_remainder=True), 100 * ROOM + 14),
        (Concatenate(children=(read(4), Skip(child=ENDLESS, count=9))), ROOM + 9),
        (Filter(child=Shard(child=ENDLESS, num_shards=8, index=3), fn=doubled, name=""), ROOM),
    ],
)
def test_the_highest_number_is_that_of_the_last_element_that_matters(node: Node, highest: int) -> None:
    assert highest_number(node) == highest
