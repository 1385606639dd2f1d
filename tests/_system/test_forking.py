from __future__ import annotations

import pytest
from _storage.forks import forked, held_by_another_thread

from penstock._system.process import OwnLocks


def test_a_lock_that_a_thread_holds_is_free_behind_a_fork_and_the_first_is_told() -> None:
    locks = OwnLocks()
    assert locks.own() is locks.own()
    assert not locks.is_new()

    def child() -> None:
        assert locks.own().acquire(timeout=30)
        assert [locks.is_new(), locks.is_new()] == [True, False]
        forked(grandchild)

    def grandchild() -> None:
        with locks.own():
            assert [locks.is_new(), locks.is_new()] == [True, False]

    with held_by_another_thread(locks.own()):
        forked(child)
        assert locks.own().locked()
    assert not locks.is_new()


def test_what_fails_behind_a_fork_is_seen_here() -> None:
    def fail() -> None:
        raise ValueError("seen")

    with pytest.raises(AssertionError):
        forked(fail)
