"""The one thread that calls the user's functions: feeds that hold the same function take turns, and other threads send it errands."""

from __future__ import annotations

import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, TypeVar

from penstock._engine.placing import functions_in
from penstock._engine.program import IN_PROGRAM, Program, SegmentPlan
from penstock._system.ownership import users_of
from penstock._system.parking import ParkingLot
from penstock._system.process import call_in_forked

T = TypeVar("T")
_READ = (-1, -1)


class Stopped(Exception):
    """The engine was stopped in the middle of a task, which nothing waits for any more."""


class _Turn:
    """Whose turn it is to call an object: that of one thread at a time. It keeps the object alive, so that its `id` stays its own."""

    def __init__(self, of: object, number: int) -> None:
        self.of, self.number = of, number
        self.waiters = ParkingLot()
        self._lock = threading.Lock()
        self.taken = False
        call_in_forked(self, _Turn._begin_again)

    def _begin_again(self) -> None:
        """Be free, in a process that was just forked: the thread that had the turn is not here."""
        self._lock, self.taken = threading.Lock(), False

    def take(self, wanted: Callable[[], bool]) -> bool:
        """Wait for the turn and take it; return False when it is no longer wanted."""
        while wanted():
            with self._lock:
                if not self.taken:
                    self.taken = True
                    return True
            self.waiters.park(lambda: self.taken and wanted())
        return False

    def give(self) -> None:
        """Give the turn back."""
        self.taken = False
        self.waiters.ring()


@functools.cache
def _known() -> tuple[threading.Lock, weakref.WeakValueDictionary[int, _Turn], Iterator[int]]:
    return threading.Lock(), weakref.WeakValueDictionary(), count()


def _turns_of(objects: Iterable[Any]) -> tuple[_Turn, ...]:
    """Return the turns of some objects, in the order in which all threads take them: so two never wait for each other."""
    lock, known, numbers = _known()
    found: dict[int, _Turn] = {}
    with lock:
        for one in objects:
            turn = known.get(id(one))
            if turn is None:
                turn = known[id(one)] = _Turn(one, next(numbers))
            found[id(one)] = turn
    return tuple(sorted(found.values(), key=lambda turn: turn.number))


_mine = threading.local()  # `turns`: those that this thread has


class Turns:
    """The turns that the thread of the user's functions of one feed takes. Empty where there is no such thread.

    A feed that a function of another feed runs has the turns of that function.
    """

    def __init__(self, program: Program) -> None:
        """Look at what runs in the program."""
        self._given: frozenset[_Turn] = getattr(_mine, "turns", frozenset())
        self._of = {
            (number, stage): _turns_of((*_called_in(segment, stage), *program.unsafe))
            for number, segment in enumerate(program.segments)
            for stage, plan in enumerate(segment.stages)
            if plan.workers == IN_PROGRAM or (segment.finisher and stage == len(segment.stages) - 1)
        }
        first = program.segments[0]
        if first.reader:
            self._of[_READ] = _turns_of((*users_of(first.stream), *program.unsafe))
        every = {turn for some in self._of.values() for turn in some}
        self._all = tuple(sorted(every, key=lambda turn: turn.number))

    def wake(self) -> None:
        """Let who waits for a turn see that it is no longer wanted. Takes no lock."""
        for turn in self._all:
            turn.waiters.ring_all()

    def of_task(self, segment: int, stage: int, *, reads: bool, wanted: Callable[[], bool]) -> AbstractContextManager[bool]:
        """Have the turns for a task in the `with` block; it gets False when they are no longer wanted."""
        return self._held(self._of.get(_READ if reads else (segment, stage), ()), wanted)

    def of_all(self, wanted: Callable[[], bool]) -> AbstractContextManager[bool]:
        """Have all turns, as `of_task`."""
        return self._held(self._all, wanted)

    @contextmanager
    def _held(self, turns: tuple[_Turn, ...], wanted: Callable[[], bool]) -> Iterator[bool]:
        before: frozenset[_Turn] = getattr(_mine, "turns", frozenset())
        missing = [turn for turn in turns if turn not in before and turn not in self._given]
        taken: list[_Turn] = []
        try:
            for turn in missing:
                if not turn.take(wanted):
                    break
                taken.append(turn)
            _mine.turns = before.union(self._given, taken)
            yield len(taken) == len(missing)
        finally:
            _mine.turns = before
            for turn in reversed(taken):
                turn.give()


class Gate:
    """Lets threads compute side by side, or one of them alone. There is one where elements are computed twice."""

    def __init__(self, wanted: Callable[[], bool]) -> None:
        """Serve as long as the computing is `wanted`."""
        self._wanted = wanted
        self._lock = threading.Lock()
        # Those who wait for the same share a waiters: in another one they might take a ring that was meant for others.
        self._for_shared, self._for_exclusive = ParkingLot(), ParkingLot()
        self._num_sharing = self._num_waiting = 0  # -1 is alone

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Compute in the `with` block beside others.

        Raises:
            Stopped: it is no longer wanted.
        """
        self._wait(self._for_shared, lambda: self._num_sharing >= 0 and not self._num_waiting, 1)
        try:
            yield
        finally:
            self._change(-1)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Compute in the `with` block while no other thread does. Inside of `shared`.

        Raises:
            Stopped: it is no longer wanted.
        """
        with self._lock:
            self._num_waiting += 1
        self._change(-1)
        held = False
        try:
            self._wait(self._for_exclusive, lambda: not self._num_sharing, -1)
            held = True
            yield
        finally:
            with self._lock:
                self._num_sharing += held
                self._num_waiting -= 1
            self._change(1)

    def _wait(self, waiters: ParkingLot, free: Callable[[], bool], num_sharing: int) -> None:
        """Wait until the gate is free and go in: beside others, or for `num_sharing` -1 alone."""
        while self._wanted():
            with self._lock:
                if free():
                    self._num_sharing += num_sharing
                    return
            waiters.park(lambda: not free() and self._wanted())
        raise Stopped

    def _change(self, num_sharing: int) -> None:
        with self._lock:
            self._num_sharing += num_sharing
        self.wake()

    def wake(self) -> None:
        """Let who waits look again. Takes no lock."""
        self._for_shared.ring_all()
        self._for_exclusive.ring_all()


def _called_in(segment: SegmentPlan, stage: int) -> Iterator[Any]:
    """Yield what of the user's a task of a stage may call: the reading is in the first, and the batches are in the last."""
    parts: list[Any] = [segment.stages[stage]]
    if stage == 0:
        parts.append(segment.leaf)
    if stage == len(segment.stages) - 1:
        parts += [segment.batch, segment.batch_ops]
    for part in parts:
        yield from functions_in(part)


class _Errand:
    """A call that another thread makes for the one that waits for it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.done = False
        self.waiters = ParkingLot()
        self.result: Any = None
        self.error: BaseException | None = None

    def wait(self, wanted: Callable[[], bool]) -> bool:
        """Wait until the call is made; return False when it is no longer wanted."""
        while not self.done and wanted():
            self.waiters.park(lambda: not self.done and wanted())
        return self.done


class Errands:
    """Calls that workers have made by the thread of the user's functions: an element takes the place of one that failed, say."""

    def __init__(self, waiters: ParkingLot | None, wanted: Callable[[], bool]) -> None:
        """Serve the thread that parks in `waiters`, as long as it is `wanted`."""
        self._waiters, self._wanted = waiters, wanted
        self.waiting: deque[_Errand] = deque()

    def do(self, call: Callable[[], T]) -> T:
        """Have `call` made there, and wait for it. From any other thread.

        Raises:
            Stopped: it is no longer wanted.
            BaseException: what the call raised.
        """
        errand = _Errand(call)
        self.waiting.append(errand)
        if self._waiters is not None:
            self._waiters.ring()
        if not errand.wait(self._wanted):
            raise Stopped
        error, errand.error = errand.error, None
        try:
            if error is not None:
                raise error
            result: T = errand.result
            return result
        finally:  # a frame that an error passes may not hold it
            del error, errand

    def run(self, turns: Turns) -> None:
        """Make the calls that wait, with all turns. By the thread of the user's functions."""
        while self.waiting:
            with turns.of_all(self._wanted) as held:
                if not held:
                    return
                errand = self.waiting[0]
                try:
                    errand.result = errand.call()
                except BaseException as error:
                    errand.error = error
                errand.done = True
                self.waiting.popleft()
                errand.waiters.ring()
                del errand

    def wake(self) -> None:
        """Let who waits see that it is no longer wanted. Takes no lock."""
        for errand in list(self.waiting):
            errand.waiters.ring_all()
