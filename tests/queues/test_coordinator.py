"""The coordinator against a plain model of it, with real threads, and case by case."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from queues.hands import LIMIT_S, Hand, hands, until

from penstock.errors import CoordinationError, PlanError, QueueClosed, StillRunning, StopRaised
from penstock.queues import Coordinator, FIFOQueue, QueueRunner, start_queue_runners


def closed(num_left: int = 0) -> QueueClosed:
    error = QueueClosed("closed", where="here", fix="none")
    error.num_left = num_left
    return error


def raised(call: Callable[[], Any]) -> BaseException | None:
    """Return what a call raises."""
    try:
        call()
    except BaseException as error:
        return error
    return None


class CoordinatorMachine(RuleBasedStateMachine):
    """Any order of calls, from the main thread (0) and up to five others, registered or not, ended or not."""

    def __init__(self) -> None:
        super().__init__()
        self.coord = Coordinator()
        self.hands: list[Hand] = []
        self.waited: set[Hand] = set()  # for which a join waits
        self.told: set[Hand] = set()  # that were told to stop before a clear_stop
        self.stopped = self.joined = False
        self.first: BaseException | None = None
        self.errors: list[BaseException] = []
        self.made = 0
        self.due: list[list[int]] = []  # callbacks that were not called
        self.called: list[list[int]] = []

    def alive(self, among: set[Hand]) -> set[Hand]:
        return {hand for hand in among if hand.thread.is_alive()}

    def caller(self, number: int) -> Hand | None:
        able = [None, *(hand for hand in self.hands if hand.thread.is_alive())]
        return able[number % len(able)]

    def done(self, caller: Hand | None, call: Callable[[], Any]) -> Any:
        return call() if caller is None else caller.do(call)

    def stop_of(self, caller: Hand | None) -> bool:
        return self.stopped or caller in self.told

    @precondition(lambda self: len(self.hands) < 5)
    @rule(registered=st.booleans())
    def a_thread_begins(self, registered: bool) -> None:
        hand = Hand(f"hand-{len(self.hands)}")
        self.hands.append(hand)
        if registered:
            self.register(hand)

    @precondition(lambda self: self.hands)
    @rule(number=st.integers(0, 4))
    def a_thread_is_registered(self, number: int) -> None:
        self.register(self.hands[number % len(self.hands)])

    def register(self, hand: Hand) -> None:
        self.coord.register_thread(hand.thread)
        self.waited.add(hand)
        self.told.discard(hand)
        self.joined = False

    @precondition(lambda self: self.hands)
    @rule(number=st.integers(0, 4))
    def a_thread_ends(self, number: int) -> None:
        self.hands[number % len(self.hands)].end()

    @rule(caller=st.integers(0, 5), kind=st.sampled_from(["nothing", "error", "triple", "clean", "too few", "end", "no error"]))
    def a_stop(self, caller: int, kind: str) -> None:
        who, self.made = self.caller(caller), self.made + 1
        error = {
            "error": ValueError(self.made),
            "triple": ValueError(self.made),
            "clean": closed(),
            "too few": closed(3),
            "end": StopIteration(),
        }.get(kind)
        ex: Any = (ValueError, error, None) if kind == "triple" else (None, None, None) if kind == "no error" else error
        bad = kind in ("error", "triple", "end") or (kind == "too few" and not self.stop_of(who))
        got = raised(lambda: self.done(who, lambda: self.coord.request_stop(ex)))
        if bad and self.joined:
            assert got is error or got.__cause__ is error
        else:
            assert got is None
        if bad and not self.joined:
            self.errors.append(error)
            self.first = self.first or error
        if bad or who not in self.told:
            self.stopped = True
            self.called, self.due = self.called + self.due, []

    @rule(caller=st.integers(0, 5))
    def a_callback(self, caller: int) -> None:
        calls: list[int] = []
        self.done(self.caller(caller), lambda: self.coord.on_stop(lambda: calls.append(1)))
        (self.called if self.stopped else self.due).append(calls)

    @rule(caller=st.integers(0, 5))
    def a_question(self, caller: int) -> None:
        who = self.caller(caller)
        assert self.done(who, self.coord.should_stop) is self.stop_of(who)
        assert self.done(who, lambda: self.coord.wait_for_stop(0)) is self.stop_of(who)
        got = raised(lambda: self.done(who, self.coord.raise_requested_exception))
        assert got is self.first or got.__cause__ is self.first

    @rule()
    def a_clear_stop(self) -> None:
        got = raised(self.coord.clear_stop)
        self.expect_first(got)
        self.joined = False
        if self.stopped:
            self.told = self.alive(self.told | self.waited)
            self.waited, self.errors, self.first, self.stopped = set(), [], None, False

    @rule(caller=st.integers(0, 5), ignore=st.booleans())
    def a_join(self, caller: int, ignore: bool) -> None:
        who = self.caller(caller)
        join = partial(self.coord.join, stop_grace_period_s=0, ignore_live_threads=ignore)
        if who in self.waited:
            assert isinstance(raised(lambda: self.done(who, join)), CoordinationError)
            return
        alive = self.alive(self.waited)
        if alive and not self.stopped:
            return  # it would wait
        got = raised(lambda: self.done(who, join))
        if self.errors:
            self.expect_first(got)
            self.expect_note(got, alive)
        elif alive and not ignore:
            assert isinstance(got, StillRunning)
            assert all(hand.name in str(got) for hand in alive)
        else:
            assert got is None
        self.waited, self.errors, self.joined = alive, [], True

    def expect_first(self, got: BaseException | None) -> None:
        if not self.errors:
            assert got is None
            return
        first = self.errors[0]
        assert got is first or got.__cause__ is first
        notes = [note for note in getattr(got, "__notes__", ()) if note.startswith("penstock: also failed")]
        assert len(notes) >= len(self.errors) - 1

    def expect_note(self, got: BaseException, alive: set[Hand]) -> None:
        notes = "".join(note for note in getattr(got, "__notes__", ()) if note.startswith("penstock: still running"))
        assert all(hand.name in notes for hand in alive)

    @invariant()
    def it_agrees(self) -> None:
        assert self.coord.should_stop() is self.stopped
        assert self.coord.joined is self.joined
        assert all(calls == [1] for calls in self.called)
        assert not any(self.due)

    def teardown(self) -> None:
        for hand in self.hands:
            hand.end()
        raised(self.coord.clear_stop)


CoordinatorMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=30)
TestCoordinator = CoordinatorMachine.TestCase


# -- the stop ------------------------------------------------------------------------------------------------------------------------------


def test_who_waited_for_a_stop_that_is_cleared_at_once_hears_of_it_all_the_same() -> None:
    coord = Coordinator()
    with hands("waiter") as (waiter,):
        for _ in range(50):
            waiter.begin(coord.wait_for_stop)
            until(lambda: len(coord._run.lot) == 1)
            coord.request_stop()
            coord.clear_stop()
            assert waiter.result() is True
            assert coord.wait_for_stop(0) is False


def test_a_stop_in_a_signal_handler_ends_a_join_of_the_same_thread() -> None:
    coord = Coordinator()
    before = signal.signal(signal.SIGUSR1, lambda *_: coord.request_stop())
    try:
        with hands("worker", "sender") as (worker, sender):
            worker.begin(coord.wait_for_stop)
            coord.register_thread(worker.thread)
            coord.on_stop(worker.end_soon)
            sender.begin(lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1))
            coord.join()
            assert coord.should_stop()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_stops_in_a_signal_handler_between_any_two_instructions_hold_up_nobody() -> None:
    coord, calls, registered = Coordinator(), [], threading.Thread()
    before = signal.signal(signal.SIGALRM, lambda *_: coord.request_stop())
    time_limit = signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0003)  # that of the test itself
    try:
        for number in range(3000):
            coord.on_stop(partial(calls.append, number))
            coord.register_thread(registered)
            coord.request_stop()
            coord.join()
            coord.clear_stop()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *time_limit)
    assert sorted(calls) == list(range(3000))


def test_callbacks_run_in_the_thread_that_stops_in_the_order_in_which_they_came() -> None:
    coord, calls = Coordinator(), []
    for number in range(3):
        coord.on_stop(lambda number=number: calls.append((number, threading.current_thread().name)))
    with hands("asker") as (asker,):
        asker.do(coord.request_stop)
    coord.on_stop(lambda: calls.append((3, threading.current_thread().name)))
    assert calls == [(0, "asker"), (1, "asker"), (2, "asker"), (3, threading.current_thread().name)]


def test_an_error_of_a_callback_keeps_no_other_from_running_and_is_raised_by_join() -> None:
    coord, calls = Coordinator(), []

    def fail() -> None:
        raise OSError("callback")

    for callback in (fail, lambda: calls.append(1), fail, lambda: calls.append(2)):
        coord.on_stop(callback)
    coord.request_stop()
    assert calls == [1, 2]
    with pytest.raises(OSError) as caught:
        coord.join()
    assert caught.value.__notes__ == ["penstock: also failed: OSError: callback"]


def test_a_callback_that_ctrl_c_interrupts_is_called_again_by_the_next_request() -> None:
    coord, calls = Coordinator(), []

    def first() -> None:
        calls.append("first")
        if calls == ["first"]:
            raise KeyboardInterrupt

    coord.on_stop(first)
    coord.on_stop(lambda: calls.append("second"))
    with pytest.raises(KeyboardInterrupt):
        coord.request_stop()
    assert calls == ["first", "second"]
    coord.request_stop()
    assert calls == ["first", "second", "first"]
    coord.join()


# -- errors --------------------------------------------------------------------------------------------------------------------------------


def test_the_same_error_reported_twice_is_no_note_of_itself() -> None:
    coord, error = Coordinator(), OSError("one")
    coord.request_stop(error)
    coord.request_stop(error)
    with pytest.raises(OSError):
        coord.join()
    assert not hasattr(error, "__notes__")


def test_what_is_no_exception_is_refused() -> None:
    coord = Coordinator()
    with pytest.raises(PlanError) as caught:
        coord.request_stop("failed")  # type: ignore[arg-type]
    assert caught.value.what == "request_stop got 'failed', which is no exception"
    with pytest.raises(PlanError) as caught:
        Coordinator(clean_stop_exception_types=["QueueClosed"])  # type: ignore[list-item]
    assert caught.value.what == "'QueueClosed' is no exception type"


# -- stop_on_exception and with ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration()])
def test_what_would_end_a_thread_in_silence_is_an_error(error: BaseException) -> None:
    coord = Coordinator()

    def work() -> None:
        with coord.stop_on_exception():
            raise error

    with hands("worker") as (worker,):
        worker.do(work)
    with pytest.raises(StopRaised) as caught:
        coord.join()
    assert caught.value.__cause__ is error
    assert caught.value.what.startswith(f"thread 'worker' raised {type(error).__name__}")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_is_for_the_main_thread_itself_goes_on_there_and_stops_the_others(error: BaseException) -> None:
    coord = Coordinator()
    with pytest.raises(type(error)), coord.stop_on_exception():
        raise error
    assert coord.should_stop()
    coord.join()


def test_an_error_of_the_block_is_raised_behind_that_of_a_thread_which_came_first() -> None:
    with pytest.raises(OSError) as caught, Coordinator() as coord:  # noqa: PT012
        coord.request_stop(OSError("thread"))
        raise closed(5)
    assert not hasattr(caught.value, "__notes__")
    with pytest.raises(OSError) as caught, Coordinator() as coord:  # noqa: PT012
        coord.request_stop(OSError("thread"))
        raise ValueError("loop")
    assert caught.value.__notes__ == ["penstock: also failed: ValueError: loop"]


def test_ctrl_c_in_the_block_goes_on_at_once_with_the_errors_as_its_notes() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, Coordinator() as coord:  # noqa: PT012
        coord.request_stop(OSError("thread"))
        raise KeyboardInterrupt
    assert caught.value.__notes__ == ["penstock: also failed: OSError: thread"]


# -- join ----------------------------------------------------------------------------------------------------------------------------------


def test_join_waits_for_given_and_registered_threads_and_for_those_registered_meanwhile() -> None:
    coord, go, late = Coordinator(), threading.Event(), []

    def first() -> None:
        assert go.wait(LIMIT_S)
        thread = threading.Thread(target=lambda: late.append(until(lambda: not given.is_alive())))
        coord.register_thread(thread)
        thread.start()

    given = threading.Thread(target=first)
    registered = threading.Thread(target=lambda: go.wait(LIMIT_S))
    for thread in (given, registered):
        thread.start()
    coord.register_thread(registered)
    with hands("joiner") as (joiner,):
        joiner.begin(lambda: coord.join([given]))
        go.set()
        joiner.result()
    assert late == [None]
    assert not given.is_alive()
    assert not registered.is_alive()


def test_a_stop_during_a_join_begins_the_grace_period() -> None:
    coord, go = Coordinator(), threading.Event()
    with hands("deaf", "joiner") as (deaf, joiner):
        deaf.begin(lambda: go.wait(LIMIT_S))
        joiner.begin(lambda: coord.join([deaf.thread], stop_grace_period_s=0.05))
        coord.request_stop()
        with pytest.raises(StillRunning):
            joiner.result()
        with pytest.raises(StillRunning):  # again, as long as it lives
            coord.join(stop_grace_period_s=0)
        coord.join(stop_grace_period_s=0, ignore_live_threads=True)
        go.set()
        deaf.end()
        coord.join(stop_grace_period_s=0)


def test_the_grace_period_of_a_stop_long_ago_begins_with_the_join() -> None:
    coord = Coordinator()
    with hands("slow", "joiner") as (slow, joiner):
        slow.begin(lambda: until(lambda: in_join(joiner.thread)))
        slow.begin(slow.end_soon)
        coord.register_thread(slow.thread)
        coord.request_stop()
        assert coord._run.stopped_s is not None
        coord._run.stopped_s -= 2 * LIMIT_S
        joiner.do(lambda: coord.join(stop_grace_period_s=LIMIT_S))
    assert not slow.thread.is_alive()


def test_join_from_a_thread_that_it_waits_for_is_an_error_and_no_deadlock() -> None:
    coord = Coordinator()
    with hands("worker") as (worker,):
        for call in (lambda: coord.join([worker.thread]), lambda: (coord.register_thread(worker.thread), coord.join())):
            with pytest.raises(CoordinationError) as caught:
                worker.do(call)
            assert caught.value.what == "thread 'worker' would wait for itself"
    coord.join()


def test_a_thread_that_was_never_started_is_named_unless_a_stop_was_requested() -> None:
    coord, thread, ended = Coordinator(), threading.Thread(name="idle"), threading.Thread()
    ended.start()
    with pytest.raises(CoordinationError) as caught:
        coord.join([thread, ended])
    assert caught.value.what == "1 thread(s) were never started: idle"
    assert not coord.should_stop()
    assert not coord.joined
    coord.request_stop()
    coord.join([thread])


def test_a_thread_that_another_one_is_about_to_start_is_no_error() -> None:
    coord = Coordinator()
    with hands("starter", "joiner") as (starter, joiner):
        thread = threading.Thread(name="late")
        coord.register_thread(starter.thread)
        coord.register_thread(thread)
        joiner.begin(coord.join)
        until(lambda: in_join(joiner.thread))
        starter.do(thread.start)
        starter.end()
        joiner.result()
    assert coord.joined


def in_join(thread: threading.Thread) -> bool:
    frame = sys._current_frames()[thread.ident or 0]
    while frame is not None and frame.f_code is not Coordinator._wait.__code__:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def interrupt_join() -> None:
    """Send Ctrl-C as soon as the main thread is in a join."""
    main = threading.main_thread()
    until(lambda: in_join(main))
    signal.pthread_kill(main.ident or 0, signal.SIGINT)


def test_ctrl_c_in_join_has_the_errors_as_its_notes_and_leaves_them_to_the_next_join() -> None:
    coord, go = Coordinator(), threading.Event()
    with hands("deaf", "sender") as (deaf, sender):
        deaf.begin(lambda: go.wait(LIMIT_S))
        coord.register_thread(deaf.thread)
        coord.request_stop(OSError("disk"))
        sender.begin(interrupt_join)
        with pytest.raises(KeyboardInterrupt) as caught:
            coord.join()
        sender.result()
        go.set()
    assert caught.value.__notes__ == ["penstock: also failed: OSError: disk"]
    with pytest.raises(OSError):
        coord.join()


@pytest.mark.parametrize("grace_s", [-1, float("nan"), "long"])
def test_a_grace_period_that_is_no_time_is_refused(grace_s: Any) -> None:
    with pytest.raises(PlanError) as caught:
        Coordinator().join(stop_grace_period_s=grace_s)
    assert caught.value.what == f"stop_grace_period_s is {grace_s!r}"


def test_what_is_no_thread_is_refused() -> None:
    coord = Coordinator()
    for call in (lambda: coord.join([print]), lambda: coord.register_thread(print), lambda: coord.join(print)):  # type: ignore[arg-type, list-item]
        with pytest.raises(PlanError) as caught:
            call()
        assert caught.value.what == f"{print!r} is no thread"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Coordinator().join(stop_grace_period_secs=3), "its name is stop_grace_period_s here, an argument of Coordinator.join()"),
        (lambda: Coordinator(stop_grace_period_secs=3), "its name is stop_grace_period_s here, an argument of Coordinator.join()"),
        (lambda: Coordinator().wait_for_stop(timeout=3), "its name is timeout_s here"),
        (lambda: start_queue_runners(sess=None, coord=Coordinator()), "there is no session here: leave it out"),
        (lambda: QueueRunner(FIFOQueue(3), [int]).create_threads(sess=None), "there is no session here: leave it out"),
        (lambda: QueueRunner(FIFOQueue(3), [int], cancel_op=None), "the stop of the coordinator cancels by itself: leave it out"),
        (lambda: Coordinator(grace=3), "look at the arguments in its docstring"),
    ],
)
def test_a_keyword_of_tensorflow_is_refused_with_our_word(call: Callable[[], object], words: str) -> None:
    with pytest.raises(PlanError) as caught:
        call()
    assert "has no argument '" in caught.value.what
    assert caught.value.fix == words
