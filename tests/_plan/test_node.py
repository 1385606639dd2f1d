from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

import numpy as np
import pytest

from penstock._plan import node as plan
from penstock.sources import ArraySource

READ = plan.Read(source=ArraySource(np.arange(3)))
KINDS: tuple[Any, ...] = get_args(plan.AnyNode)


def test_every_kind_of_node_is_exported() -> None:
    unions = {"AnyBatch", "AnyBranching", "AnyGroup", "AnyNode", "AnySelecting"}
    assert {kind.__name__ for kind in KINDS} | unions | {"Node", "mixes_of", "shards_of"} == set(plan.__all__)


def test_a_field_without_a_default_must_be_given() -> None:
    """A property of a base class of the same name would be its default."""
    assert not [(kind, one.name) for kind in KINDS for one in fields(kind) if isinstance(one.default, property)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_node_cannot_be_changed(kind: Any) -> None:
    values = dict.fromkeys((one.name for one in fields(kind)), READ)
    made = kind(**values)
    with pytest.raises(AttributeError):
        setattr(made, next(iter(values)), None)


def test_a_node_is_given_other_children_and_stays_itself_with_its_own() -> None:
    other = plan.Read(source=READ.source)
    pair = plan.Zip(children=(READ, other))
    assert READ.with_children([]) is READ
    assert pair.with_children([READ, other]) is pair
    assert pair.with_children([other, READ]).children == (other, READ)
    taken = plan.Take(child=READ, count=2).with_children([other])
    assert isinstance(taken, plan.Take)
    assert (taken.child, taken.count) == (other, 2)


def test_a_node_reads_from_its_children_and_a_source_from_none() -> None:
    other = plan.Read(source=ArraySource(np.arange(4)))
    assert READ.children == ()
    assert plan.Take(child=READ, count=2).children == (READ,)
    assert plan.Zip(children=(READ, other)).children == (READ, other)
    assert plan.Concatenate(children=(READ, other, READ)).children == (READ, other, READ)
