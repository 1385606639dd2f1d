"""Small datasets, and the check of a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import PenstockError, PlanError, SourceError

Row = tuple[str, Callable[[], Any], str, str, str]

LATER = "put it before the filter, flat_map or generator"
POSITIONS = "needs positions that are known before reading, but a filter, flat_map, unbatch, generator or compressed file stands before it"


def numbers(count: int) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def double(x: Any) -> Any:
    return x * 2


def noisy(x: int, rng: np.random.Generator) -> int:
    return x + int(rng.integers(0, 1000)) * 1000


def endless() -> ps.Dataset:
    return numbers(3).repeat()


def generated() -> ps.Dataset:
    return ps.from_generator(lambda: iter(range(4)))


def refusals(rows: list[Row]) -> Any:
    """Make a test parameter of each (name, call, what, where, fix)."""
    return pytest.mark.parametrize(("call", "what", "where", "fix"), [row[1:] for row in rows], ids=[row[0] for row in rows])


def assert_refused(call: Callable[[], Any], what: str, where: str, fix: str) -> None:
    with pytest.raises(PenstockError) as refusal:
        call()
    assert isinstance(refusal.value, (PlanError, SourceError))
    assert what in refusal.value.what
    assert where in refusal.value.where
    assert fix in refusal.value.fix
    assert refusal.value.what
    assert refusal.value.fix
