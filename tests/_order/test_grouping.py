from __future__ import annotations

from itertools import accumulate, pairwise
from threading import Barrier, Thread

import numpy as np
import pytest
from _order.references import group_shuffled
from hypothesis import given
from hypothesis import strategies as st

from penstock._order.arithmetic import GroupOrders

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def orders(sizes: list[int], window: int, seed: int = 7, *, reshuffle: bool = True) -> GroupOrders:
    return GroupOrders(np.array([0, *accumulate(sizes)], np.int64), window, seed=seed, reshuffle=reshuffle)


def whole(one: GroupOrders, num_elements: int, epoch: int = 0) -> list[int]:
    return one.shuffled(np.full(num_elements, epoch, np.int64), np.arange(num_elements, dtype=np.int64)).tolist()


@given(SIZES, st.integers(1, 14), st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_a_pass_is_what_plain_python_makes_of_the_groups(sizes: list[int], window: int, seed: int, epoch: int) -> None:
    groups = [list(range(start, stop)) for start, stop in pairwise([0, *accumulate(sizes)])]
    found = whole(orders(sizes, window, seed), sum(sizes), epoch)
    assert found == group_shuffled(groups, window, seed, epoch)
    assert sorted(found) == list(range(sum(sizes)))


def test_epochs_differ_unless_it_is_told_not_to_reshuffle() -> None:
    sizes = [5] * 8
    assert whole(orders(sizes, 2), 40, 0) != whole(orders(sizes, 2), 40, 1)
    assert whole(orders(sizes, 2, seed=8), 40) != whole(orders(sizes, 2), 40)
    fixed = orders(sizes, 2, reshuffle=False)
    assert whole(fixed, 40, 0) == whole(fixed, 40, 1) == whole(orders(sizes, 2), 40, 0)


def test_threads_that_ask_for_other_epochs_get_the_same_as_one() -> None:
    sizes = list(range(1, 40))
    one, alone = orders(sizes, 3), {epoch: whole(orders(sizes, 3), sum(sizes), epoch) for epoch in range(8)}
    barrier, wrong = Barrier(4), []

    def ask(number: int) -> None:
        barrier.wait(60)
        order = [(number + step) % 8 for step in range(40)]
        wrong.extend(epoch for epoch in order if whole(one, sum(sizes), epoch) != alone[epoch])

    threads = [Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("window", [1, 64])
def test_a_million_groups_cost_nothing_per_element(window: int) -> None:
    one = GroupOrders(np.arange(0, 10**9 + 1, 1000, dtype=np.int64), window, seed=1, reshuffle=True)
    positions = np.array([0, 1, 999, 10**9 - 1, 5 * 10**8], np.int64)
    places = one.shuffled(np.zeros(5, np.int64), positions)
    assert len(set(places.tolist())) == 5
    assert ((places >= 0) & (places < 10**9)).all()
    if window == 1:
        assert len({place // 1000 for place in places[:3].tolist()}) == 1


def test_no_group_gives_no_position() -> None:
    none = np.empty(0, np.int64)
    assert GroupOrders(np.zeros(1, np.int64), 3, seed=0, reshuffle=True).shuffled(none, none).tolist() == []
