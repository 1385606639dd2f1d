"""The words of a queue that could not do what it was asked."""

from __future__ import annotations

from penstock.errors import EnqueueCancelled, QueueClosed, QueueError, QueueStarved, QueueTimeout
from penstock.queues.exchange import ENDED, Attempt, Reading, Writing
from penstock.queues.starving import Users

__all__ = ["refusal", "starved", "waits_long"]


def refusal(attempt: Attempt, limit_s: float | None, label: str, state: str) -> QueueError:
    """Return the error of an attempt that was not served: it ended with the queue, or its time was over."""
    where = f"{label}, {state}"
    error: QueueError
    if isinstance(attempt, Writing):
        error = _of_write(attempt, limit_s, label, where)
        error.num_done = attempt.num_done
        return error
    assert isinstance(attempt, Reading)
    if attempt.state == ENDED:
        left = (
            "no element is" if attempt.num_left == 0 else f"only {_elements(attempt.num_left)} {'is' if attempt.num_left == 1 else 'are'}"
        )
        end = QueueClosed(
            f"the queue is closed, and {left} left of the {attempt.want} asked for",
            where=where,
            fix="this is the end of its data" + ("" if attempt.num_left == 0 else "; dequeue_up_to(n) takes what is left"),
        )
        end.num_left = attempt.num_left
        return end
    return QueueTimeout(
        f"{_elements(attempt.want)} did not come within {limit_s} s; nothing was taken",
        where=where,
        fix="look at what fills the queue, or wait longer",
    )


def _of_write(attempt: Writing, limit_s: float | None, label: str, where: str) -> QueueError:
    num = len(attempt.entries)
    went = "" if num == 1 else f"; {attempt.num_done} of {num} elements are in"
    rest = "" if num == 1 else "; go on with the rest, from error.num_done on"
    if attempt.state == ENDED:
        return EnqueueCancelled(
            f"the queue is closed and takes nothing more{went}",
            where=where,
            fix="stop producing, or close the queue only when everything is in",
        )
    return QueueTimeout(
        f"there was no room within {limit_s} s{went}", where=where, fix=f"look at what reads the queue, or wait longer{rest}"
    )


def starved(attempt: Attempt, users: Users, label: str, state: str) -> QueueStarved:
    """Return the error of a wait that nobody can end; `users` are those at the other end."""
    doing, whom = ("fill", "its producers") if isinstance(attempt, Reading) else ("read", "its readers")
    error = QueueStarved(
        f"this wait for {_wish(attempt)} would never end: no other thread is alive that could {doing} the queue",
        where=f"{label}, {state}; {whom}: {users.words()}",
        fix=f"start the threads that {doing} it first, or close it when everything is in; with timeout_s it waits all the same",
    )
    error.num_done = attempt.num_done if isinstance(attempt, Writing) else 0
    return error


def waits_long(attempt: Attempt, waited_s: float, users: Users, label: str, state: str) -> str:
    """Return the warning of a wait that is long; `users` are those at the other end."""
    whom = "its producers" if isinstance(attempt, Reading) else "its readers"
    return (
        f"{label} has kept a call waiting for {_wish(attempt)} for {waited_s:.0f} s\n"
        f"  where: {state}; {whom}: {users.words()}\n"
        f"  fix:   look at what they do; timeout_s makes it an error"
    )


def _wish(attempt: Attempt) -> str:
    if isinstance(attempt, Reading):
        return _elements(attempt.want)
    assert isinstance(attempt, Writing)
    return f"room for {_elements(len(attempt.entries) - attempt.num_done)}"


def _elements(number: int) -> str:
    return "1 element" if number == 1 else f"{number} elements"
