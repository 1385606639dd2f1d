from __future__ import annotations

from dataclasses import fields
from typing import Any

from penstock._plan import node as plan

KINDS: list[Any] = [kind for kind in map(vars(plan).get, plan.__all__) if isinstance(kind, type) and not kind.__subclasses__()]


def test_a_field_without_a_default_must_be_given() -> None:
    """A property of a base class of the same name would be its default."""
    assert not [(kind, one.name) for kind in KINDS for one in fields(kind) if isinstance(one.default, property)]
