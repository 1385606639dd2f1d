from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

from penstock._plan import node as plan

KINDS: tuple[Any, ...] = get_args(plan.AnyNode)


def test_every_kind_of_node_is_exported() -> None:
    unions = {"AnyBatch", "AnyBranching", "AnyGroup", "AnyNode", "AnySelecting"}
    assert {kind.__name__ for kind in KINDS} | unions | {"Node", "mixes_of", "shards_of"} == set(plan.__all__)


def test_a_field_without_a_default_must_be_given() -> None:
    """A property of a base class of the same name would be its default."""
    assert not [(kind, one.name) for kind in KINDS for one in fields(kind) if isinstance(one.default, property)]
