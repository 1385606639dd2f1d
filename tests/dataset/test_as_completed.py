"""Elements in the order in which they are finished: a slow one holds up none, and each comes once."""

from __future__ import annotations

import threading

from dataset.small import double, numbers


def test_it_changes_the_order_and_nothing_else_of_a_plan() -> None:
    ds = numbers(7).map(double).as_completed()
    assert sorted(map(int, ds.feed(executor="threads", num_workers=2))) == [2 * value for value in range(7)]
    assert "as_completed()" in repr(numbers(7).as_completed()) or "as_completed()" in numbers(7).as_completed().explain()
    assert len(numbers(7).as_completed()) == 7
    assert numbers(7).as_completed()._root.batch_size_each() == numbers(7)._root.batch_size_each()
    assert sorted(numbers(7).shard(2, 0).as_completed().prefetch(2).feed(executor="threads", num_workers=2)) == [0, 2, 4, 6]


def test_an_element_that_takes_long_is_overtaken_by_those_behind_it() -> None:
    gate = threading.Event()

    def held_back(value: int) -> int:
        if value == 0:
            assert gate.wait(60)
        return value

    with numbers(9).map(held_back, concurrency=3).as_completed().batch(4).feed(executor="threads", num_workers=2) as feed:
        first = next(feed).tolist()
        assert 0 not in first
        gate.set()
        others = [batch.tolist() for batch in feed]
    assert [len(batch) for batch in (first, *others)] == [4, 4, 1]
    assert sorted([*first, *(value for batch in others for value in batch)]) == list(range(9))


def test_the_end_of_a_pass_waits_for_all_its_elements() -> None:
    gate = threading.Event()

    def held_back(value: int) -> int:
        if value == 0:
            assert gate.wait(60)
        return value

    with numbers(5).map(held_back, concurrency=3).as_completed().repeat(2).feed(executor="threads", num_workers=2) as feed:
        first = [int(next(feed)) for _ in range(4)]
        assert sorted(first) == [1, 2, 3, 4]
        gate.set()
        assert [int(next(feed)), *sorted(map(int, feed))] == [0, *range(5)]
