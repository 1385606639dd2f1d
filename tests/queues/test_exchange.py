"""The lines without threads: attempts are pending records, so what an interrupt leaves half done can be made."""

from __future__ import annotations

import pytest

from penstock.queues.exchange import SERVED, WAITING, Exchange, FifoStore, PriorityStore, Reading, Writing


def read(of: Exchange, want: int) -> Reading:
    attempt = Reading(want, True)
    of.read(attempt)
    return attempt


def write(of: Exchange, *entries: int) -> Writing:
    attempt = Writing(list(entries))
    of.write(attempt)
    return attempt


def test_what_an_interrupted_thread_left_half_done_is_finished_by_the_next_who_comes() -> None:
    lines = Exchange(FifoStore(), 2)
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


def test_an_entry_is_not_lost_when_a_comparison_fails_while_it_is_taken() -> None:
    failing = []

    class Priority(int):
        def __lt__(self, other: int) -> bool:
            if failing:
                raise failing.pop()
            return int(self) < int(other)

    store = PriorityStore()
    for number in (3, 1, 2):
        store.add((Priority(number), number, number))
    failing.append(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        store.take()
    assert [store.take()[2] for _ in range(len(store))] == [1, 2, 3]
