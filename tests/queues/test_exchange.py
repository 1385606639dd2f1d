"""The lines without threads: attempts are pending records, so every order of events can be tried."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.queues.exchange import ENDED, LEFT, SERVED, WAITING, Attempt, Exchange, FifoStore, RandomStore, Reading, Writing


def exchange(capacity: int, margin: int = 0) -> Exchange:
    return Exchange(FifoStore(), capacity, margin)


def read(of: Exchange, want: int, whole: bool = True) -> Reading:
    attempt = Reading(want, whole)
    of.read(attempt)
    return attempt


def write(of: Exchange, *entries: int) -> Writing:
    attempt = Writing(list(entries))
    of.write(attempt)
    return attempt


def test_writers_in_line_still_get_in_after_the_end_unless_they_are_cancelled() -> None:
    for cancel, states in ((False, (SERVED, SERVED)), (True, (ENDED, ENDED))):
        lines = exchange(1)
        first, second = write(lines, 1, 2), write(lines, 3)
        lines.close(False)
        assert write(lines, 9).state == ENDED
        if cancel:
            lines.close(True)
        readers = [read(lines, 1) for _ in range(4)]
        assert (first.state, second.state) == states
        assert [reader.entries for reader in readers] == ([[1], [], [], []] if cancel else [[1], [2], [3], []])
        assert first.num_done == (1 if cancel else 2)


def test_the_bell_of_each_who_is_decided_rings_once_and_no_other() -> None:
    lines, rung = exchange(1), []
    readers = [read(lines, 1) for _ in range(3)]
    for number, reader in enumerate(readers):
        reader.bell = lambda _, number=number: rung.append(number)
    write(lines, 1)
    assert rung == [0]
    lines.close(True)
    assert rung == [0, 1, 2]


def test_what_an_interrupted_thread_left_half_done_is_finished_by_the_next_who_comes() -> None:
    lines = exchange(2)
    writer = write(lines, 1, 2, 3)
    assert lines.store.take() == 1
    writer.num_done = 3
    lines.store.add(3)  # it is all in and not yet told
    assert lines.store.take() == 2
    lines.serve()
    assert (writer.state, [lines.store.take()]) == (SERVED, [3])
    reader, second = read(lines, 1), read(lines, 1)
    reader.entries.append(4)  # it has what it wants and is not yet told
    lines.store.add(5)
    lines.serve()
    assert (reader.state, reader.entries, second.state, second.entries) == (SERVED, [4], SERVED, [5])
    late = write(lines)
    lines.writers.append(late)  # all in, and not yet told
    late.state = WAITING
    lines.withdraw(late)
    assert late.state == SERVED
    third = read(lines, 1)
    lines.store.add(6)  # nobody was served with it
    lines.store.add(7)
    lines.serve()
    assert (third.entries, lines.store.take()) == ([6], 7)


def test_an_attempt_that_never_stood_in_line_or_is_decided_leaves_without_a_trace() -> None:
    lines = exchange(2)
    lines.withdraw(Reading(1, True))
    done = write(lines, 1)
    lines.withdraw(done)
    assert (done.state, list(lines.store)) == (SERVED, [1])


class Lines(RuleBasedStateMachine):
    """Every entry is in exactly one place, lines are served from the front, and nobody waits who could be served."""

    def __init__(self) -> None:
        super().__init__()
        self.capacity = 3
        self.lines = self.make()
        self.serial = 0
        self.readers: list[Reading] = []
        self.writers: list[Writing] = []
        self.order: list[tuple[str, Attempt]] = []  # as they were decided
        self.taken: list[int] = []

    def make(self) -> Exchange:
        return Exchange(FifoStore(), self.capacity)

    def ring(self, line: str, attempt: Attempt) -> Any:
        def bell(_: Any) -> None:
            self.order.append((line, attempt))
            if isinstance(attempt, Reading) and attempt.state == SERVED:
                self.taken += attempt.entries

        return bell

    @rule(want=st.integers(1, 7), whole=st.booleans())
    def read(self, want: int, whole: bool) -> None:
        attempt = Reading(want, whole)
        attempt.bell = self.ring("read", attempt)
        self.readers.append(attempt)
        self.lines.read(attempt)

    @rule(number=st.integers(0, 8))
    def write(self, number: int) -> None:
        attempt = Writing(list(range(self.serial, self.serial + number)))
        attempt.bell = self.ring("write", attempt)
        before = self.lines.closed
        self.lines.write(attempt)
        if before:
            assert (attempt.state, attempt.num_done) == (ENDED, 0)
        else:
            self.writers.append(attempt)
            self.serial += number

    @rule(number=st.integers(0, 30))
    def leave(self, number: int) -> None:
        waiting: list[Attempt] = [attempt for attempt in (*self.readers, *self.writers) if attempt.state == WAITING]
        if waiting:
            attempt = waiting[number % len(waiting)]
            self.lines.withdraw(attempt)
            assert attempt.state == LEFT

    @precondition(lambda self: self.serial > 20)
    @rule(cancel=st.booleans())
    def close(self, cancel: bool) -> None:
        self.lines.close(cancel)
        if cancel:
            assert not any(writer.state == WAITING for writer in self.writers)

    @invariant()
    def each_entry_is_in_one_place(self) -> None:
        entered = [entry for writer in self.writers for entry in writer.entries[: writer.num_done]]
        held = [entry for reader in self.readers if reader.state == WAITING for entry in reader.entries]
        inside = [self.lines.store[place] for place in range(len(self.lines.store))]  # type: ignore[index]
        assert sorted(self.taken + held + inside) == sorted(entered)
        self.check_order(self.taken + held + inside)

    def check_order(self, entries: list[int]) -> None:
        assert entries == sorted(entries)  # serial numbers go up

    @invariant()
    def nobody_waits_who_could_be_served(self) -> None:
        inside, margin = len(self.lines.store), self.lines.margin
        waiting = [reader for reader in self.readers if reader.state == WAITING]
        if waiting:
            head = waiting[0]
            assert len(head.entries) + max(0, inside - margin) < head.want
            assert not self.lines.closed or any(writer.state == WAITING for writer in self.writers)
        if any(writer.state == WAITING for writer in self.writers):
            assert inside >= self.capacity
            assert not waiting or inside <= margin

    @invariant()
    def lines_are_served_from_the_front(self) -> None:
        for line, attempts in (("read", self.readers), ("write", self.writers)):
            served = [attempt for kind, attempt in self.order if kind == line and attempt.state == SERVED]
            places = [attempts.index(attempt) for attempt in served]  # type: ignore[arg-type]
            assert places == sorted(places)
            waiting = [place for place, attempt in enumerate(attempts) if attempt.state == WAITING]
            assert not waiting or not places or places[-1] < waiting[0]


class LinesWithMargin(Lines):
    """The same with a rule that leaves two in, in random order."""

    def make(self) -> Exchange:
        return Exchange(RandomStore(1), self.capacity, margin=2)

    def check_order(self, entries: list[int]) -> None:
        assert len(set(entries)) == len(entries)


TestLines = Lines.TestCase
TestLines.settings = settings(max_examples=60, stateful_step_count=30)
TestLinesWithMargin = LinesWithMargin.TestCase
TestLinesWithMargin.settings = settings(max_examples=40, stateful_step_count=30)
