"""No ring may be lost: a lost one is a hang. The tests that drive threads join them with a limit and check that all came back."""

from __future__ import annotations

import gc
import signal
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from queues.crowd import together

from penstock._system.parking import WaitBell
from penstock.queues import ParkingLot

LIMIT_S = 30.0


def parked(lot: ParkingLot, count: int) -> None:
    """Wait until `count` threads are parked, for at most LIMIT_S."""
    watch, looked = ParkingLot(), 0
    while len(lot) != count and looked < LIMIT_S * 1000:
        watch.park(lambda: True, 0.001)
        looked += 1
    assert len(lot) == count


def test_who_is_not_idle_is_rung_or_has_no_time_does_not_stay() -> None:
    lot, enrolled = ParkingLot(), list[int]()
    assert not lot.ring()
    assert lot.park(lambda: bool(enrolled.append(len(lot))))  # asked after enrolling, and not idle
    assert enrolled == [1]
    assert lot.park(lot.ring)  # rung while it looks, and still idle: it wakes at once
    for timeout_s in (0.0, -1.0, 0.002):
        assert not lot.park(lambda: True, timeout_s)
    assert len(lot) == 0


def test_one_ring_wakes_one_and_only_who_is_parked_can_be_rung() -> None:
    lot, woken = ParkingLot(), []

    def waiter() -> None:
        woken.append(lot.park(lambda: True))

    def ringer() -> None:
        parked(lot, 2)
        assert lot.ring()
        parked(lot, 1)
        assert woken in ([], [True])
        assert lot.ring()

    together(waiter, waiter, ringer)
    assert woken == [True, True]
    assert not lot.ring()


def test_a_bell_in_a_finaliser_rings_ahead_and_silence_takes_it_back() -> None:
    lot = ParkingLot()
    lot.bell("a dead reference")
    assert lot.park(lambda: True, timeout_s=0)
    lot.bell("another")
    lot.silence(5)
    assert not lot.park(lambda: True, timeout_s=0)


def test_ring_all_wakes_everybody() -> None:
    lot = ParkingLot()
    together(*[lambda: lot.park(lambda: True)] * 8, lambda: (parked(lot, 8), lot.ring_all()))
    assert len(lot) == 0


class Turnstile:
    """A counter of permits over a lot, in the pattern of the engine: change the world, then ring; who takes and leaves some rings on."""

    def __init__(self) -> None:
        self.lot = ParkingLot()
        self.permits: deque[int] = deque()

    def give(self, number: int) -> None:
        self.permits.append(number)
        self.lot.ring()

    def take(self, timeout_s: float | None = None) -> int:
        while True:
            try:
                return self.permits.popleft()
            except IndexError:
                self.lot.park(lambda: not self.permits, timeout_s)


@pytest.mark.parametrize("timeout_s", [None, 0.0, 1e-5, 1e-4])
@pytest.mark.parametrize(("givers", "takers"), [(1, 1), (1, 4), (4, 1), (4, 4)])
def test_no_ring_is_lost_under_stress(nervous: None, givers: int, takers: int, timeout_s: float | None) -> None:
    turnstile, each = Turnstile(), 4800 // givers // takers * takers
    taken: list[list[int]] = [[] for _ in range(takers)]

    def giver(first: int) -> Callable[[], None]:
        return lambda: [turnstile.give(first + number) for number in range(each)] and None

    def taker(mine: list[int], impatient: bool) -> Callable[[], None]:
        # One taker of each group runs out of time again and again: the ring that it was given meanwhile must reach another.
        return lambda: [mine.append(turnstile.take(timeout_s if impatient else None)) for _ in range(givers * each // takers)] and None

    together(
        *[giver(1000 * number * 10) for number in range(givers)],
        *[taker(mine, number == 0) for number, mine in enumerate(taken)],
    )
    found = sorted(number for mine in taken for number in mine)
    assert found == sorted(10_000 * giver + number for giver in range(givers) for number in range(each))


def test_a_ping_pong_between_two_lots_never_stops(nervous: None) -> None:
    here, there = Turnstile(), Turnstile()

    def player(mine: Turnstile, other: Turnstile) -> Callable[[], None]:
        return lambda: [other.give(mine.take()) for _ in range(2000)] and None

    together(player(here, there), player(there, here), lambda: here.give(1))


def test_an_interrupted_waiter_passes_its_ring_on() -> None:
    lot, woken = ParkingLot(), []

    def other() -> None:
        lot.park(lambda: True)
        woken.append("other")

    def interrupted() -> None:
        parked(lot, 1)

        def idle() -> bool:
            assert lot.ring()  # takes the bell of this very thread: it parked last
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            lot.park(idle)

    together(other, interrupted)
    assert woken == ["other"]


def test_a_waiter_that_turns_out_not_to_be_idle_passes_its_ring_on() -> None:
    lot, woken = ParkingLot(), []

    def other() -> None:
        lot.park(lambda: True)
        woken.append("other")

    def busy() -> None:
        parked(lot, 1)
        assert lot.park(lambda: not lot.ring())

    together(other, busy)
    assert woken == ["other"]


def test_a_parked_main_thread_can_be_interrupted_and_leaves_the_lot() -> None:
    lot = ParkingLot()

    caught = threading.Event()

    def ring_up() -> None:
        parked(lot, 1)
        # CPython forgets to look at a signal that comes right before the thread sleeps.
        while not caught.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            caught.wait(1.0)

    thread = threading.Thread(target=ring_up, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        lot.park(lambda: True)
    caught.set()
    thread.join(LIMIT_S)
    assert len(lot) == 0


class RingsWhenGone:
    """Rings in its finaliser, as the buffer of a batch does."""

    def __init__(self, turnstile: Turnstile, number: int, gone: list[int]) -> None:
        self.turnstile, self.number, self.gone, self.itself = turnstile, number, gone, self

    def __del__(self) -> None:
        self.turnstile.give(self.number)
        self.gone.append(self.number)


def test_rings_from_finalisers_that_run_inside_park_and_ring_are_not_lost(nervous: None) -> None:
    turnstile, taken, gone = Turnstile(), [], []
    thresholds = gc.get_threshold()

    def dropper() -> None:
        for number in range(1500):
            RingsWhenGone(turnstile, number, gone)  # a cycle: only the collector ends it, in whatever the thread does then
        while len(gone) < 1500:
            gc.collect()

    def taker() -> None:
        while len(taken) < 1500:
            taken.append(turnstile.take())
            garbage: list[Any] = [[] for _ in range(10)]
            del garbage

    gc.set_threshold(5, 2, 2)
    try:
        together(dropper, taker)
    finally:
        gc.set_threshold(*thresholds)
    assert sorted(taken) == list(range(1500))


def test_a_bell_that_was_rung_before_lets_nobody_sit_and_one_that_is_not_lets_the_time_run_out() -> None:
    bell = WaitBell()
    bell.put(None)
    assert bell.sit(LIMIT_S)
    assert not bell.sit(0.0)
    assert not bell.sit(0.001)
    together(lambda: bell.put(None), lambda: bell.sit(LIMIT_S) or pytest.fail("not rung"))
