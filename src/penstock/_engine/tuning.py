"""How much work to hand out at a time, how many workers are active, and what earlier runs of a dataset found: from measured costs."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from copy import copy
from typing import Any, NamedTuple

from penstock._engine.program import SHARED
from penstock._engine.slots import KEEP_BYTES

_TARGET_NS = 8_000_000  # booking a task costs 0.17 ms where decoding has emptied the caches
_STEADY_TARGET_NS = 24_000_000  # of elements that all cost about the same, or in one thread: none keeps others waiting that are done
_STEADY_TASKS = 100  # so many in a row, none of them dear
_DEAR = 3  # times the usual cost of a row
_UNIT_TARGET_NS = 4_000_000
_LOCK_TARGET_NS = 3_400_000  # times the number of workers: so long tasks leave 95 % of the interpreter lock to others than their booking
ELSEWHERE = 4  # times as long are tasks of workers elsewhere: one costs this process 0.6 ms
_GROWTH = 4
_LARGEST_BLOCK = 16_384
_ROWS_PER_BRANCH = 1024  # a branch costs some 15 us per task
_MOST_BRANCHED = 32_768
_LARGEST_UNIT = 256
_UNIT_BYTES = 8 << 20  # of a chunk of several batches; chunks in flight should lie in the last cache together


def largest_block(num_branches: int) -> int:
    """Return the most rows of a task: more where they are dealt out to many sources, so that each is asked for several at once."""
    return max(_LARGEST_BLOCK, min(_ROWS_PER_BRANCH * num_branches, _MOST_BRANCHED))


def go_on(mine: object, other: object) -> None:
    """Take over all that the same object of an earlier run has found out."""
    vars(mine).update({name: copy(value) for name, value in vars(other).items()})


def followed(expected_spec: float, found: float) -> float:
    """Return the guess of a size after one more was found: at once if it is larger, by halves if it is smaller."""
    return max(found, (expected_spec + found) / 2)


def awaited_ns(busy_ns: int, num_calls: int, concurrency: int, *, batched: bool) -> int:
    """Return what `num_calls` async calls that took `busy_ns` in all cost, `concurrency` of them being in flight, for the size of tasks.

    Slow ones count in full, so that an element goes on alone and waits for no other, unless all of its batch is waited for anyway.
    """
    return busy_ns // concurrency if batched or busy_ns <= _TARGET_NS * num_calls else busy_ns


class BlockSize:
    """Rows per task of one stage: a task costs about 8 ms, 24 where all cost the same, more with many workers. Grows at most fourfold."""

    def __init__(self, most_rows: int = _LARGEST_BLOCK, least_rows: int = 1, *, one_thread: bool = False, scale: int = 1) -> None:
        """Start with `least_rows`, one unless many rows wait no longer than one; a task never has more than `most_rows`."""
        self.scale, self.num_workers = scale, 1
        self.cost_ns = 0.0
        self._one_thread = one_thread
        self._num_steady = 0
        self._least_rows = min(least_rows, most_rows)
        self.size = self._least_rows
        """Rows of a task, where there are enough."""
        self._most_rows = most_rows
        self.growing = False
        """Whether the last task was as large as it might be, and the next may be larger."""

    @property
    def bounds(self) -> Any:
        """What another one must have in common with it to go on from it."""
        return self.scale, self._one_thread, self._least_rows, self._most_rows

    def observe(self, num_rows: int, wall_ns: int, num_workers: int = 1) -> None:
        """Learn from one finished task of so many workers."""
        cost, self.num_workers = wall_ns / num_rows, num_workers
        if self.cost_ns == 0.0:
            self.cost_ns = cost
        else:
            self._num_steady = 0 if cost > _DEAR * self.cost_ns else min(self._num_steady + 1, _STEADY_TASKS)
            weight = 0.5 if cost < self.cost_ns else 0.2
            self.cost_ns += weight * (cost - self.cost_ns)
        target = _STEADY_TARGET_NS if self._one_thread or self._num_steady >= _STEADY_TASKS else _TARGET_NS
        wanted = int(max(target, num_workers * _LOCK_TARGET_NS) * self.scale / max(self.cost_ns, 1.0))
        before = self.size
        ceiling = before * _GROWTH if num_rows >= before else before
        self.size = max(self._least_rows, min(wanted, ceiling, self._most_rows))
        self.growing = self.size > 2 * before

    def rows(self, remaining: int, num_workers: int) -> int:
        """Return how many of the `remaining` rows of a chunk the next task takes: less near its end, so that all finish together."""
        if self.size >= remaining:
            return remaining
        return max(1, min(self.size, -(-remaining // max(1, num_workers))))


class ChunkSize:
    """Items per chunk: one batch when batches are dear, many when they are tiny."""

    def __init__(self, least_items: int = 1, *, one_thread: bool = False, scale: int = 1) -> None:
        """Start with `least_items`."""
        self._scale, self._target_ns = scale, _STEADY_TARGET_NS if one_thread else _UNIT_TARGET_NS
        self._most_bytes = scale * _UNIT_BYTES
        self._least_items = self.items = least_items
        """Items of the next chunk."""
        self.growing = False
        """As of a `BlockSize`."""

    def bound(self, most_bytes: int) -> None:
        """Have chunks of more than `least_items` take `most_bytes` at most, so that the byte budget holds all that are in flight."""
        self._most_bytes = min(most_bytes, self._most_bytes)

    def observe(self, num_items: int, wall_ns: int, num_bytes: int, num_workers: int = 1) -> None:
        """Learn from one finished chunk of so many workers: its cost over all tasks, and its size in memory."""
        cost = max(1.0, wall_ns / max(1, num_items))
        target = self._scale * max(self._target_ns, num_workers * _LOCK_TARGET_NS)
        wanted = min(target / cost, _LARGEST_UNIT, max(1.0, self._most_bytes / max(1.0, num_bytes / max(1, num_items))))
        before = self.items
        ceiling = before * _GROWTH if num_items >= before else before
        self.items = max(self._least_items, min(int(wanted), ceiling))
        self.growing = self.items > 2 * before

    @property
    def most_bytes(self) -> int:
        """What a chunk of several items should take at most, with some of it for a guess."""
        return 2 * self._most_bytes


_MOST_STEPS = 256


class _Window:
    """Tasks and steps while one number of threads works: what they cost, once there are enough of them."""

    _NUM_TASKS = 48  # of tasks that read rows out of groups, one decodes a whole group and the next none
    _LEAST_NS = 150_000_000  # of elapsed time

    def __init__(self) -> None:
        self.num_rows: Counter[str] = Counter()
        self.wall_ns: Counter[str] = Counter()
        self.shares: list[float] = []
        self.steps_ns: deque[float] = deque(maxlen=_MOST_STEPS)

    def add(self, pool: str, num_rows: int, wall_ns: int, cpu_ns: int) -> None:
        """Add one task."""
        self.num_rows[pool] += num_rows
        self.wall_ns[pool] += wall_ns
        if pool == SHARED:
            self.shares.append(cpu_ns / wall_ns)

    def is_enough(self, num_threads: int) -> bool:
        """Whether the cost of a row is known."""
        return len(self.shares) >= self._NUM_TASKS and self.wall_ns[SHARED] >= self._LEAST_NS * num_threads

    @property
    def share(self) -> float:
        """The share of a task's time that it is on a CPU: the median."""
        return sorted(self.shares)[len(self.shares) // 2]

    @property
    def step_ns(self) -> float:
        """What the training loop itself takes for an item: the median, for now and then it evaluates or saves."""
        return sorted(self.steps_ns)[len(self.steps_ns) // 2] if self.steps_ns else 0.0


class _Estimate(NamedTuple):
    """What an item takes with a number of threads.

    Attributes:
        ns: in all: the longest of what the threads, the workers of other stages and the training loop take, which go on side by side.
        by_threads: whether the threads are what takes longest.
        share: of a task's time that it is on a CPU.
    """

    ns: float
    by_threads: bool
    share: float


class ActiveWorkers:
    """How many of the shared worker threads work: as many as make the training loop fastest.

    Threads take the interpreter lock from each other and from the training step, so more of them may be slower. Half as many and twice as
    many are tried, each for some tasks, as long as that is better; then the number is held. It is looked for again when what an item takes
    has changed by a quarter, and otherwise ever more rarely: another program may have used the CPUs.

    Where the number is the engine's to choose, it may be larger than that of the CPUs: while the loop waits, and the threads are off them.

    Tasks whose size still grows do not count, for a row of a small one costs more; nor do the first tasks after a change, which others
    have run beside, and the first window of a run, in which nothing has been touched before.

    Attributes:
        limit: the number of workers that may claim.
        ceiling: the largest number that is tried; less than 2 where all work, always.
        has_room: whether there is memory for more.
        num_items: how many items were made. (How many were taken tells less: they are made ahead.)
        num_rows: how many rows each pool has computed.
        steps: nanoseconds and items of the last steps of the training loop; the engine adds to it, from the consumer's thread.
        notice, subject: what is announced.
    """

    _NUM_DROPPED, _SHORTEST_NS = 8, 200_000
    _FIRST_PATIENCE, _MOST_PATIENCE = 8, 512  # windows
    _BUSY, _OFF_CPU = 0.9, 0.5  # shares of its time that a thread is on a CPU
    _NO_WORSE, _CHANGED = 1.02, 1.25
    _NUM_STEPS = 4

    def __init__(self, most: int, ceiling: int = 0) -> None:
        """Begin with `most`; never have more than `ceiling`."""
        self._most, self.ceiling, self.limit = most, ceiling, most
        self._estimates: dict[int, _Estimate] = {}
        self._held_ns = 0.0
        self._num_held, self._before, self.has_room = 0, most, True
        self._patience = self._FIRST_PATIENCE
        self._at_rest = self._warm = False
        self.num_rows: defaultdict[str, int] = defaultdict(int)
        self.num_items = 0
        self.steps: deque[tuple[int, int]] = deque(maxlen=_MOST_STEPS)
        self.notice = ""
        self.subject = "workers"
        self._window, self._num_cold = _Window(), self._NUM_DROPPED

    def begin(self, other: ActiveWorkers) -> None:
        """Go on from where another run of the same work ended: short runs, too, come to the end of a search."""
        go_on(self, other)
        self.steps.clear()
        self._num_cold = self._NUM_DROPPED

    def observe(self, pool: str, size: int, num_rows: int, times_ns: tuple[int, int]) -> None:
        """Learn from one finished task, whose size grows no more.

        Args:
            pool: whose task it was.
            size: how many workers that has.
            num_rows: of the task.
            times_ns: how long it took, and how much of that on a CPU.
        """
        if self.ceiling < 2:
            return
        while self.steps:
            step_ns, num_items = self.steps.popleft()
            self._window.steps_ns.append(step_ns / num_items)
        if times_ns[0] < self._SHORTEST_NS:
            return
        if pool == SHARED and self._num_cold:
            self._num_cold -= 1
            return
        self._window.add(pool, num_rows, times_ns[0] // (1 if pool == SHARED else size), times_ns[1])
        if pool == SHARED and self.num_items and self._window.is_enough(self.limit):
            self._judge()

    def _judge(self) -> None:
        """End a window."""
        window, threads = self._window, self._cost_of_item(SHARED) / self.limit
        others = max((self._cost_of_item(pool) for pool in window.num_rows if pool != SHARED), default=0.0)
        if len(window.steps_ns) < self._NUM_STEPS and window.step_ns > threads:
            return  # some more
        found = _Estimate(max(threads, others, window.step_ns), threads >= max(others, window.step_ns), window.share)
        if not self._warm:
            self._warm = True
        elif not self._at_rest:
            self._estimates[self.limit] = found
            self._search()
        else:
            self._hold(found)
        self._window = _Window()

    def _cost_of_item(self, pool: str) -> float:
        return self._window.wall_ns[pool] / self._window.num_rows[pool] * self.num_rows[pool] / self.num_items

    def _search(self) -> None:
        """Try the next number of threads, or hold the best of those tried."""
        best = self._best()
        others = [other for other in self._beside(best) if other not in self._estimates]
        if others:
            self._go(others[0], f"trying {others[0]} active worker threads; with {self.limit} an item takes {self._ms(self.limit)}")
            return
        self._patience = min(2 * self._patience, self._MOST_PATIENCE) if best == self._before else self._FIRST_PATIENCE
        self._held_ns, self._num_held, self._before, self._at_rest = self._estimates[best].ns, 0, best, True
        self.subject = "alone" if best < self._most else "workers"
        tried = ", ".join(f"with {number} {self._ms(number)}" for number in sorted(self._estimates) if number != best)
        of = f" of {self._most}" if best <= self._most else f", more than {self._most}, for elements wait"
        self._go(best, f"active worker threads: {best}{of}; an item takes {self._ms(best)}{tried and ', '}{tried}")

    def _best(self) -> int:
        """Return the best number: of about equal ones the fewest, or that before where the threads are not what limits."""
        lowest = min(found.ns for found in self._estimates.values())
        good = [number for number, found in self._estimates.items() if found.ns <= self._NO_WORSE * lowest]
        return self._before if self._before in good and not self._estimates[self._before].by_threads else min(good)

    def _beside(self, number: int) -> list[int]:
        """Return the numbers to be tried beside the best one, the more promising first."""
        found, most = self._estimates[number], self._most
        if found.by_threads and found.share < self._OFF_CPU and self.has_room:
            most = self.ceiling
        fewer = [number // 2] if number > 1 and (not found.by_threads or found.share < self._BUSY) else []
        more = [min(2 * number, most)] if number < most else []
        return more + fewer if found.by_threads else fewer + more

    def _hold(self, found: _Estimate) -> None:
        """See whether it is time to search again."""
        self._num_held += 1
        changed = not 1 / self._CHANGED < found.ns / self._held_ns < self._CHANGED
        if self._num_held >= self._patience or (changed and self._num_held > self._patience // 8):
            self._estimates, self._at_rest = {self.limit: found}, False
            self._search()

    def _go(self, limit: int, notice: str) -> None:
        self._num_cold, self.limit, self.notice = max(self._NUM_DROPPED, self.limit), limit, notice

    def _ms(self, number: int) -> str:
        return f"{self._estimates[number].ns / 1e6:.2f} ms"


class TuningCache:
    """So that each epoch but the first begins with tasks that are worth their booking, and in memory that is there.

    Elements and their order do not depend on it. From any thread: what is kept is never changed, only replaced; a buffer is taken by one.
    """

    def __init__(self) -> None:
        self._found: dict[Any, Any] = {}
        self._spare: deque[Any] = deque()

    def __reduce__(self) -> tuple[type[TuningCache], tuple[()]]:
        """Leave all behind in a copy: memory has one owner, and elsewhere other sizes are best."""
        return TuningCache, ()

    def begin(self, run: Any) -> None:
        """Let a new run, a `Scheduler`, begin with what the last one of the same shape ended with."""
        found = self._found.get(run.shape)
        if found is not None:
            run.begin(found)

    def keep(self, run: Any) -> None:
        """Keep what a run has found out; its workers have ended."""
        if not run.failures:
            self._found[run.shape] = run.found

    @property
    def spare_bytes(self) -> int:
        """The bytes of the free buffers of earlier runs."""
        return sum(map(len, tuple(self._spare)))

    def take_spare(self) -> list[Any]:
        """Return the free buffers of earlier runs; they belong to the caller now."""
        spare = []
        while True:
            try:
                spare.append(self._spare.pop())
            except IndexError:
                return spare

    def keep_spare(self, buffers: Iterable[Any]) -> None:
        """Keep free buffers for the next run, no more bytes than a pool keeps."""
        room = KEEP_BYTES - self.spare_bytes
        for buffer in buffers:
            if len(buffer) <= room:
                room -= len(buffer)
                self._spare.append(buffer)
