from __future__ import annotations

import penstock as ps
from penstock._plan.facts import never_ends


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
