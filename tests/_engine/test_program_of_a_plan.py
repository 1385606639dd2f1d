from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _engine.lowering import double, numbers, program

import penstock as ps
from penstock._engine.lowering import lower
from penstock._engine.program import in_completion_order
from penstock._plan import node as plan
from penstock._system.lazy import dataclass
from penstock.errors import PlanError


def test_enumerate_above_such_a_map_is_refused_in_words() -> None:
    with pytest.raises(PlanError) as refusal:
        program(numbers(4).batch(2).map(double, concurrency=2).enumerate(5))
    assert refusal.value.what == "enumerate after a map with concurrency= after batch() is not possible"
    assert refusal.value.where == "map(concurrency=...) after batch()"
    assert refusal.value.fix == "put enumerate() before the batch or before this map"


# -- completion order -------------------------------------------------------------------------------------------------------------


def length(x: Any) -> int:
    return 1


WITH_FOLDS = [
    numbers().filter(bool).take(3),
    numbers().filter(bool).skip(3),
    numbers().filter(bool).shard(2, 0),
    numbers().filter(bool).enumerate(),
    numbers().filter(bool).window(3),
    numbers().filter(bool).repeat(2),
    numbers().filter(bool).batch(3),
    numbers().batch(3).unbatch().batch(2),
    numbers().filter(bool).shuffle(4),
    numbers().bucket_by_length(length, [3], [2, 2]),
    numbers().map(np.atleast_1d).pack_sequences(8),
    numbers().rejection_resample(length, [1, 1]),
    ps.from_generator(lambda: iter([1])).batch(2),
]


@pytest.mark.parametrize("ds", WITH_FOLDS, ids=repr)
def test_what_a_fold_counts_in_its_order_keeps_it_and_the_feed_says_so_once(ds: ps.Dataset) -> None:
    assert in_completion_order(program(ds)) is None
    with ds.feed(executor="inline", ordered=False) as feed:
        list(feed)
        list(feed)
        (told,) = [notice for notice in feed.stats().notices if "ordered=False" in notice]
    assert "ordered=False changes nothing here: an operator counts elements in their order" in told
    assert "call as_completed() before that operator" in told


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unknown(plan.UnaryNode):
    """A kind of node that lowering has no case for."""

    def line(self, *, saved: bool = False) -> str:
        return "unknown()"


def test_a_node_that_there_is_no_way_to_run_is_an_error_and_is_not_left_out() -> None:
    for below in (ps.from_source([1, 2]), ps.from_source([1, 2]).filter(bool), ps.from_generator(lambda: iter([1, 2]))):
        with pytest.raises(PlanError, match=r"there is no way to run Unknown: unknown\(\)"):
            lower(Unknown(child=below._root))


def test_as_completed_is_the_completion_order_already() -> None:
    made = program(numbers().filter(bool).as_completed())
    assert in_completion_order(made) is made
