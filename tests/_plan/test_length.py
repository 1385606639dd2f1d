from __future__ import annotations

import pytest

import penstock as ps
from penstock._plan.facts import ROOM, highest_number, never_ends


def numbers(count: int) -> ps.Dataset:
    return ps.from_source(range(count))


ENDLESS = numbers(3).repeat()


def test_a_plan_never_ends_where_an_endless_repeat_is_not_cut_also_when_its_length_is_unknown() -> None:
    unknown = ps.from_generator(lambda: iter([]))
    for ds in (ENDLESS, unknown.repeat(), unknown.repeat().batch(2), unknown.repeat().repeat(2), ENDLESS.zip(ENDLESS)):
        assert never_ends(ds._root)
        assert not never_ends(ds.take(5)._root)
    for ds in (numbers(3), unknown, unknown.repeat(3), ENDLESS.zip(numbers(3))):
        assert not never_ends(ds._root)


@pytest.mark.parametrize(
    ("ds", "highest"),
    [
        (numbers(7), 6),
        (ENDLESS, ROOM),
        (ENDLESS.enumerate(5), ROOM + 5),
        (ENDLESS.shard(8, 3).skip(2), 8 * (ROOM + 2) + 3),
        (ENDLESS.batch(10, True), 10 * ROOM + 9),
        (ENDLESS.window(3, 100, 7, True), 100 * ROOM + 14),
        (numbers(4).concatenate(ENDLESS.skip(9)), ROOM + 9),
        (ENDLESS.shard(8, 3).filter(bool), ROOM),
    ],
    ids=repr,
)
def test_the_highest_number_is_that_of_the_last_element_that_matters(ds: ps.Dataset, highest: int) -> None:
    assert highest_number(ds._root) == highest
