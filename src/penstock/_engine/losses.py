"""Elements that were left out or replaced: what is kept of each, how they are counted in their order, and what listeners are given."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from penstock._contracts.event import ElementLost, ElementRetried, Event
from penstock._ops.block import ElementFailed
from penstock.errors import TooManySkipped

__all__ = ["Entry", "LossAnnouncer", "LossCounts", "LossLedger", "LostElement", "merged", "tell_retry"]

SKIPPED = 0
_FEWEST = 100  # so many elements count as read for a rate: one bad element among the first ten says little


class LostElement(NamedTuple):
    """One element that was left out or replaced.

    Attributes:
        item: of its chunk.
        row: of its chunk; -1 for a whole item.
        how: 0 for left out, k for replaced by the k-th next one.
        site: whose limit it counts for: a stage with a policy of its own, or the feed's policies.
        limit: of that policy.
        key: epoch, index, lane.
        where: in words.
        keys: of the elements in it, when it is a group of several.
        place: its pass and number in the leaf of the plan, None when only its key is known.
        error: None when it is known from a saved state and was not tried again.
        inner: as that of `Known`.
        fixed: whether it is an element of a batch inside the leaf of the plan. It was replaced, so a resume that reads it again may try
            it once more: nothing behind it moves.
    """

    item: int
    row: int
    how: int
    site: str
    limit: int | float | None
    key: tuple[int, int, int]
    where: str
    keys: tuple[tuple[int, int, int], ...]
    place: tuple[int, int] | None
    stage: str
    worker: int
    error: BaseException | None
    retries: int
    inner: tuple[int, ...] = ()
    fixed: bool = False

    @property
    def action(self) -> str:
        """Say what was done about it."""
        return "replaced" if self.how else "skipped"

    def event(self, now_ns: int) -> ElementLost:
        """Return what is announced of it."""
        assert self.error is not None
        return ElementLost(now_ns, self.action, self.stage, self.worker, self.where, self.keys, self.place, self.error, self.retries)


class Entry(NamedTuple):
    """How many elements of one site were skipped, or replaced, in all and in one pass.

    `keys` has (index, lane) of each of them once, if the limit is a number of elements: one that fails in each epoch counts once.
    """

    action: str
    site: str
    total: int
    pass_number: int
    in_pass: int
    keys: frozenset[tuple[int, int]] = frozenset()


LossCounts = tuple[Entry, ...]


def merged(first: LossCounts, second: Iterable[Entry]) -> LossCounts:
    """Add up two tallies."""
    out = {(entry.action, entry.site): entry for entry in first}
    for entry in second:
        name = entry.action, entry.site
        other = out.get(name, Entry(*name, 0, entry.pass_number, 0))
        old, new = sorted((entry, other), key=lambda one: one.pass_number)
        in_pass = new.in_pass + (old.in_pass if old.pass_number == new.pass_number else 0)
        keys = other.keys if entry.keys <= other.keys else entry.keys | other.keys
        out[name] = Entry(*name, entry.total + other.total, new.pass_number, in_pass, keys)
    return tuple(out.values())


class LossLedger:
    """Counts the losses of one segment in their order. Its owner holds the lock.

    Attributes:
        tally: of this segment, and of the state that the run began with.
        fresh: what has not been announced yet, shared by all segments.
    """

    __slots__ = ("fresh", "loss_counts")

    def __init__(self, loss_counts: LossCounts = (), fresh: deque[LostElement] | None = None) -> None:
        self.loss_counts = loss_counts
        self.fresh: deque[LostElement] = deque() if fresh is None else fresh

    def book(self, loss: LostElement, below: LossCounts, pass_number: int, num_read: int) -> TooManySkipped | None:
        """Count one more; return the error of a limit that it exceeds.

        Args:
            loss: the next one in order.
            below: what earlier segments counted up to here.
            pass_number: of the source.
            num_read: elements of the pass up to here, this one included.
        """
        counted = isinstance(loss.limit, int)
        keys = frozenset([loss.key[1:]]) if counted else frozenset()
        self.loss_counts = merged(self.loss_counts, (Entry(loss.action, loss.site, 1, pass_number, 1, keys),))
        if loss.error is None:
            return None
        self.fresh.append(loss)
        if loss.limit is None:
            return None
        whole = merged(below, self.loss_counts)
        entry = next(entry for entry in whole if (entry.action, entry.site) == (loss.action, loss.site))
        error = _excess(loss, entry, num_read)
        if error is not None:
            error.__cause__ = loss.error
        return error


def _excess(loss: LostElement, entry: Entry, num_read: int) -> TooManySkipped | None:
    limit, name = loss.limit, "Replace" if loss.how else "Skip"
    assert limit is not None
    if isinstance(limit, int):
        if len(entry.keys) <= limit:
            return None
        found = f"{len(entry.keys)} elements were {loss.action}, the limit is {limit}"
    else:
        if entry.in_pass <= limit * max(num_read, _FEWEST):
            return None
        found = f"{entry.in_pass} of {num_read} elements of this pass were {loss.action}, the limit is {limit:.3g} of them"
    return TooManySkipped(
        found,
        where=f"{name}(limit={limit!r}) of {loss.site}; the last one: epoch {loss.key[0]} index {loss.key[1]}"
        + (f" ({loss.where})" if loss.where else ""),
        fix="look at the errors (a quarantine= file lists them all), mend the data or the function, or raise the limit",
    )


def tell_retry(
    announce: Callable[[Event], Any], failed: ElementFailed, key: tuple[int, int, int], worker: int, retry: int, wait_s: float
) -> None:
    """Announce that an element will be tried again."""
    announce(ElementRetried(time.perf_counter_ns(), failed.stage, worker, key, retry, wait_s, failed.error))


class LossAnnouncer:
    """Announces what was skipped and replaced. From any thread.

    Attributes:
        waiting: what was booked and is not announced yet.
        broken: the error of a listener that could not write it down; nothing may be delivered after it.
    """

    __slots__ = ("_announce", "_broke", "_telling", "broken", "waiting")

    def __init__(self, lost: deque[LostElement], announce: Callable[[Event], Any], broke: Callable[[BaseException], Any]) -> None:
        """Prepare.

        Args:
            lost: what was booked and not announced yet.
            announce: tells the listeners.
            broke: ends the run with an error.
        """
        self.waiting, self._announce, self._broke = lost, announce, broke
        self._telling = threading.Lock()
        self.broken: BaseException | None = None

    def tell(self) -> None:
        """Announce what was booked, in order; one thread at a time."""
        lost = self.waiting
        if not lost:
            return
        try:
            with self._telling:
                while lost:
                    try:
                        self._announce(lost[0].event(time.perf_counter_ns()))
                    finally:
                        lost.popleft()  # only now: where nothing is left, everything has been announced
        except OSError as error:  # of a file that cannot be written: nothing may be lost unseen
            self.broken = error
            self._broke(error)
