from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from penstock._plan import node as plan
from penstock.sources import ArraySource

READ = plan.Read(source=ArraySource(np.arange(3)))
KINDS: tuple[Any, ...] = get_args(plan.Node)


def test_every_kind_of_node_is_exported() -> None:
    assert {kind.__name__ for kind in KINDS} | {"AnyBatch", "Node", "children_of", "with_children"} == set(plan.__all__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_node_cannot_be_changed(kind: Any) -> None:
    values = dict.fromkeys(kind.__annotations__, READ)
    made = kind(**values)
    with pytest.raises(AttributeError):
        setattr(made, next(iter(values)), None)


def test_a_node_is_given_other_children_and_stays_itself_with_its_own() -> None:
    other = plan.Read(source=READ.source)
    pair = plan.Zip(children=(READ, other))
    assert plan.with_children(READ, []) is READ
    assert plan.with_children(pair, [READ, other]) is pair
    assert plan.children_of(plan.with_children(pair, [other, READ])) == (other, READ)
    taken = plan.with_children(plan.Take(child=READ, count=2), [other])
    assert isinstance(taken, plan.Take)
    assert (taken.child, taken.count) == (other, 2)


def test_a_node_reads_from_its_children_and_a_source_from_none() -> None:
    other = plan.Read(source=ArraySource(np.arange(4)))
    assert plan.children_of(READ) == ()
    assert plan.children_of(plan.Take(child=READ, count=2)) == (READ,)
    assert plan.children_of(plan.Zip(children=(READ, other))) == (READ, other)
    assert plan.children_of(plan.Concatenate(children=(READ, other, READ))) == (READ, other, READ)
