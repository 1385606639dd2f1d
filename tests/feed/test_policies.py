from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.errors import PlanError
from penstock.feed.compiled import Compiled


def numbers() -> ps.Dataset:
    return ps.from_source(list(range(12)))


def generated() -> ps.Dataset:
    return ps.from_generator(lambda: iter(range(12)))


NOWHERE = "Replace needs the positions of elements, and there are none behind a batch, a stateful operator or a generator"
SHARDS = "Skip would leave out a whole batch, and beside shard() every rank must make as many steps"

WRONG: list[tuple[Callable[[], Any], str, str, str]] = [
    (
        lambda: generated().map(abs, on_error=ps.Replace()),
        NOWHERE,
        "on_error= of stage 'abs'",
        "use Skip there, or put the operator before",
    ),
    (lambda: numbers().batch(2).map(abs, on_error=ps.Retry(1, then=ps.Replace())), NOWHERE, "stage 'abs'", "use Skip"),
    (lambda: numbers().filter(bool).take(3).map(abs, on_error=ps.Replace()), NOWHERE, "stage 'abs'", "use Skip"),
    (lambda: numbers().filter(bool).batch(2).unbatch().filter(bool, name="b", on_error=ps.Replace()), NOWHERE, "stage 'b'", "use Skip"),
    (
        lambda: numbers().shard(2, 0).batch(2).map(abs, on_error=ps.Skip()),
        SHARDS,
        "stage 'abs'",
        "put 'abs' before the batch, where Skip shortens it and Replace() takes another element",
    ),
]


@pytest.mark.parametrize(("build", "what", "where", "fix"), WRONG)
def test_a_policy_that_cannot_work_where_it_stands_is_refused_before_anything_runs(
    build: Callable[[], Any], what: str, where: str, fix: str
) -> None:
    with pytest.raises(PlanError) as refused:
        build().feed()
    assert refused.value.what == what
    assert where in refused.value.where
    assert fix in refused.value.fix


def test_shards_of_known_positions_must_make_as_many_steps() -> None:
    skip = ps.Options(on_error=ps.Skip())
    for ds, equal in (
        (numbers().shard(2, 0).batch(2), True),
        (numbers().zip(numbers().shard(2, 0)), True),
        (numbers().filter(bool).shard(2, 0), False),
        (generated().shard(2, 0), False),
        (numbers(), False),
    ):
        policies = Compiled(ds._root, skip).policies
        assert policies.equal_steps == equal
        assert policies.skips
    one = numbers().shard(2, 0).map(abs, on_error=ps.Replace())
    assert not Compiled(one._root, ps.Options()).policies.skips
    assert Compiled(numbers().map(abs, on_error=ps.Retry(1, then=ps.Skip()))._root, ps.Options()).policies.skips
