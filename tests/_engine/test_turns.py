"""The thread that calls the user's functions: turns between feeds, and errands of other threads."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

import penstock as ps
from penstock._engine.lowering import lower
from penstock._engine.placing import apart
from penstock._engine.turns import Errands, Stopped, Turns
from penstock.queues import ParkingLot


def mine(element: Any) -> Any:
    return element


def turns_of(*functions: Any) -> Turns:
    dataset = ps.from_source([1])
    for function in functions:
        dataset = dataset.map(function)
    return Turns(apart(lower(dataset._root)))


def always() -> bool:
    return True


def test_two_feeds_with_the_same_functions_in_another_order_never_wait_for_each_other() -> None:
    done: list[int] = []

    def work(turns: Turns) -> None:
        for _ in range(300):
            with turns.of_all(always) as held:
                assert held
        done.append(1)

    threads = [threading.Thread(target=work, args=(turns,)) for turns in (turns_of(mine, abs), turns_of(abs, mine))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert done == [1, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_a_turn_that_was_taken_at_a_fork_is_free_in_the_child() -> None:
    turns = turns_of(mine)
    with turns.of_all(always):
        pid = os.fork()
        if pid == 0:
            with turns_of(mine).of_all(always) as held:
                os._exit(0 if held else 1)
        assert os.waitpid(pid, 0)[1] == 0


def test_an_errand_is_run_there_and_its_result_or_error_comes_back() -> None:
    errands, turns = Errands(ParkingLot(), always), turns_of(mine)
    found: list[Any] = []

    def fail() -> None:
        raise KeyError("no")

    def ask() -> None:
        found.append(errands.do(threading.get_ident))
        with pytest.raises(KeyError, match="no"):
            errands.do(fail)

    asking = threading.Thread(target=ask)
    asking.start()
    while asking.is_alive():
        errands.run(turns)
    assert found == [threading.get_ident()]


def test_a_feed_inside_a_function_has_the_turns_of_that_function() -> None:
    inner = ps.from_source([1, 2]).map(mine)

    def outer(element: Any) -> Any:
        return element + sum(inner.feed())

    assert list(ps.from_source([10, 20]).map(mine).map(outer).feed(stall_timeout_s=30)) == [13, 23]


def test_a_turn_that_another_feed_has_is_waited_for_until_it_is_not_wanted_any_more() -> None:
    first, second = turns_of(mine), turns_of(mine)
    wanted = [True]
    found: list[bool] = []

    def take() -> None:
        with second.of_task(0, 0, reads=False, wanted=lambda: wanted[0]) as held:
            found.append(held)

    with first.of_task(0, 0, reads=False, wanted=always) as held:
        assert held
        waiting = threading.Thread(target=take)
        waiting.start()
        wanted[0] = False
        while waiting.is_alive():
            second.wake()
    assert found == [False]
    with second.of_all(always) as held:
        assert held


def test_an_errand_that_is_not_wanted_any_more_ends() -> None:
    wanted = [True]
    errands = Errands(None, lambda: wanted[0])
    found: list[type[BaseException]] = []

    def ask() -> None:
        try:
            errands.do(os.getpid)
        except Stopped:
            found.append(Stopped)

    asking = threading.Thread(target=ask)
    asking.start()
    wanted[0] = False
    while asking.is_alive():
        errands.wake()
    assert found == [Stopped]
