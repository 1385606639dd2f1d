"""How much work to hand out at a time, how many workers are active, and what earlier runs of a dataset found: from measured costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from copy import copy
from typing import Any, Protocol

from penstock._engine.slots import KEEP_BYTES

__all__ = ["ELSEWHERE", "ActiveWorkers", "BlockSize", "ChunkSize", "TuningCache", "awaited_ns", "followed", "largest_block"]

_TARGET_NS = 8_000_000  # booking a task costs 0.17 ms where decoding has emptied the caches
_STEADY_TARGET_NS = 24_000_000  # of elements that all cost about the same, or in one thread: none keeps others waiting that are done
_STEADY_TASKS = 100  # so many in a row, none of them dear
_DEAR = 3  # times the usual cost of a row
_UNIT_TARGET_NS = 4_000_000
ELSEWHERE = 4  # times as long are tasks of workers elsewhere: one costs this process 0.6 ms
_GROWTH = 4
_LARGEST_BLOCK = 16_384
_ROWS_PER_BRANCH = 1024  # a branch costs some 15 us per task
_MOST_BRANCHED = 32_768
_BUSY = 0.9  # share of its time that an undisturbed worker is on a CPU
_GIL_BOUND = 0.5  # CPUs that workers use at least, all together, who wait for each other
_LARGEST_UNIT = 256
_UNIT_BYTES = 8 << 20  # of a chunk of several batches; chunks in flight should lie in the last cache together


def largest_block(num_branches: int) -> int:
    """Return the most rows of a task: more where they are dealt out to many sources, so that each is asked for several at once."""
    return max(_LARGEST_BLOCK, min(_ROWS_PER_BRANCH * num_branches, _MOST_BRANCHED))


def followed(expected_spec: float, found: float) -> float:
    """Return the guess of a size after one more was found: at once if it is larger, by halves if it is smaller."""
    return max(found, (expected_spec + found) / 2)


def awaited_ns(busy_ns: int, num_calls: int, concurrency: int, *, batched: bool) -> int:
    """Return what `num_calls` async calls that took `busy_ns` in all cost, `concurrency` of them being in flight, for the size of tasks.

    Slow ones count in full, so that an element goes on alone and waits for no other, unless all of its batch is waited for anyway.
    """
    return busy_ns // concurrency if batched or busy_ns <= _TARGET_NS * num_calls else busy_ns


class BlockSize:
    """Rows per task of one stage: a task costs about 8 ms, or 24 where all cost the same. Grows at most fourfold at once."""

    __slots__ = ("_cost_ns", "_least_rows", "_most_rows", "_num_steady", "_one_thread", "_size", "growing", "scale")

    def __init__(self, most_rows: int = _LARGEST_BLOCK, least_rows: int = 1, *, one_thread: bool = False, scale: int = 1) -> None:
        """Start with `least_rows`, one unless many rows wait no longer than one; a task never has more than `most_rows`."""
        self.scale = scale
        self._cost_ns = 0.0
        self._one_thread = one_thread
        self._num_steady = 0
        self._least_rows = min(least_rows, most_rows)
        self._size = self._least_rows
        self._most_rows = most_rows
        self.growing = False
        """Whether the last task was as large as it might be, and the next may be larger."""

    @property
    def size(self) -> int:
        """Rows of a task, where there are enough."""
        return self._size

    @property
    def found(self) -> tuple[float, int, int]:
        """What is known, for `begin`."""
        return self._cost_ns, self._num_steady, self._size

    def begin(self, found: tuple[float, int, int]) -> None:
        """Begin with what another run ended with."""
        self._cost_ns, self._num_steady, size = found
        self._size = max(self._least_rows, min(size, self._most_rows))

    def observe(self, num_rows: int, wall_ns: int) -> None:
        """Learn from one finished task."""
        cost = wall_ns / num_rows
        if self._cost_ns == 0.0:
            self._cost_ns = cost
        else:
            self._num_steady = 0 if cost > _DEAR * self._cost_ns else min(self._num_steady + 1, _STEADY_TASKS)
            weight = 0.5 if cost < self._cost_ns else 0.2
            self._cost_ns += weight * (cost - self._cost_ns)
        target = _STEADY_TARGET_NS if self._one_thread or self._num_steady >= _STEADY_TASKS else _TARGET_NS
        wanted = int(target * self.scale / max(self._cost_ns, 1.0))
        before = self._size
        ceiling = before * _GROWTH if num_rows >= before else before
        self._size = max(self._least_rows, min(wanted, ceiling, self._most_rows))
        self.growing = self._size > 2 * before

    def rows(self, remaining: int, num_workers: int) -> int:
        """Return how many of the `remaining` rows of a chunk the next task takes: less near its end, so that all finish together."""
        if self._size >= remaining:
            return remaining
        return max(1, min(self._size, -(-remaining // max(1, num_workers))))


class ChunkSize:
    """Items per chunk: one batch when batches are dear, many when they are tiny."""

    __slots__ = ("_least_items", "_most_bytes", "_size", "_target_ns", "growing")

    def __init__(self, least_items: int = 1, *, one_thread: bool = False, scale: int = 1) -> None:
        """Start with `least_items`."""
        self._target_ns = scale * (_STEADY_TARGET_NS if one_thread else _UNIT_TARGET_NS)
        self._most_bytes = scale * _UNIT_BYTES
        self._least_items = self._size = least_items
        self.growing = False
        """As of a `BlockSize`."""

    def bound(self, most_bytes: int) -> None:
        """Have chunks of more than `least_items` take `most_bytes` at most, so that the byte budget holds all that are in flight."""
        self._most_bytes = min(most_bytes, self._most_bytes)

    def observe(self, num_items: int, wall_ns: int, num_bytes: int) -> None:
        """Learn from one finished chunk: its cost over all tasks, and its size in memory."""
        cost = max(1.0, wall_ns / max(1, num_items))
        wanted = min(self._target_ns / cost, _LARGEST_UNIT, max(1.0, self._most_bytes / max(1.0, num_bytes / max(1, num_items))))
        before = self._size
        ceiling = before * _GROWTH if num_items >= before else before
        self._size = max(self._least_items, min(int(wanted), ceiling))
        self.growing = self._size > 2 * before

    @property
    def most_bytes(self) -> int:
        """What a chunk of several items should take at most, with some of it for a guess."""
        return 2 * self._most_bytes

    @property
    def items(self) -> int:
        """Items of the next chunk."""
        return self._size

    def begin(self, items: int) -> None:
        """Begin with what another run ended with."""
        self._size = max(self._least_items, items)


class _Probe:
    """Tasks whose cost per row is to be known: some that cost about the same a row, or more where they do not.

    Of tasks that read rows out of groups, one decodes a whole group and the next none: sixteen of them say little.
    """

    __slots__ = ("_rows_rows", "_wall_rows", "_wall_wall", "cpu_ns", "num_rows", "shares", "wall_ns")

    _FEW = 16
    _MANY = 48
    _EVEN = 0.05

    def __init__(self) -> None:
        self.num_rows = self.wall_ns = self.cpu_ns = 0
        self.shares: tuple[float, ...] = ()
        self._rows_rows = self._wall_rows = self._wall_wall = 0

    def add(self, num_rows: int, wall_ns: int, cpu_ns: int) -> None:
        """Add one task."""
        self.shares += (cpu_ns / wall_ns,)
        self.num_rows += num_rows
        self.wall_ns += wall_ns
        self.cpu_ns += cpu_ns
        self._rows_rows += num_rows * num_rows
        self._wall_rows += wall_ns * num_rows
        self._wall_wall += wall_ns * wall_ns

    @property
    def is_enough(self) -> bool:
        """Whether the cost is known to about a twentieth (the standard error of a ratio of sums), or there are many tasks."""
        if len(self.shares) < self._FEW:
            return False
        spread = self._wall_wall - 2 * self.cost * self._wall_rows + self.cost * self.cost * self._rows_rows
        return len(self.shares) >= self._MANY or spread <= (self._EVEN * self.wall_ns) ** 2

    @property
    def cost(self) -> float:
        """Nanoseconds per row."""
        return self.wall_ns / self.num_rows

    @property
    def share(self) -> float:
        """The share of a task's time that it is on a CPU: the median."""
        return sorted(self.shares)[len(self.shares) // 2]


class ActiveWorkers:
    """How many of the shared workers work: fewer when they only take the GIL from each other.

    When workers are on a CPU less than nine tenths of their time, though together for half of one at least (those who wait for a disk or a
    server are not), one of them alone is tried for some tasks. If it is not slower per row than several are together, before and after, it
    stays alone, and all are tried again later, ever more rarely: another program may have used the CPUs. If it is a little slower, it is
    tried again as rarely. Before and after, because the first rows of a run are dear: nothing that they touch has been touched before.
    Tasks whose size still grows do not count: a row of a small one costs more.
    """

    __slots__ = (
        "_cost_alone",
        "_cost_together",
        "_limit",
        "_most",
        "_num_cold",
        "_num_tasks",
        "_patience",
        "_probe",
        "_state",
        "notice",
        "subject",
    )

    _NUM_DROPPED = 8
    _FIRST = 2  # tasks of another run that are dropped
    _SHORTEST_NS = 200_000
    _FIRST_PATIENCE = 100
    _DOUBTFUL = 1.5

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = most
        self._state = "together" if most > 1 else "settled"
        self._cost_together = self._cost_alone = 0.0
        self._patience = self._FIRST_PATIENCE
        self.notice = ""
        self.subject = "workers"
        self._count_anew()

    @property
    def limit(self) -> int:
        """The number of workers that may claim."""
        return self._limit

    @property
    def found(self) -> dict[str, Any]:
        """What is known, and how far a trial has come, for `begin`."""
        return {name: copy(getattr(self, name)) for name in self.__slots__}

    def begin(self, found: dict[str, Any]) -> None:
        """Go on from where another run of the same work ended: short runs, too, come to the end of a trial."""
        for name, value in found.items():
            setattr(self, name, copy(value))
        self._num_cold = self._FIRST

    def observe(self, num_rows: int, wall_ns: int, cpu_ns: int) -> None:
        """Learn from one finished task; very short ones say nothing."""
        if self._state == "settled" or wall_ns < self._SHORTEST_NS:
            return
        self._num_tasks += 1
        if self._state in ("waiting", "doubtful"):
            if self._num_tasks >= self._patience:
                self._try_again()
            return
        if self._num_cold:
            self._num_cold -= 1
            return
        probe = self._probe
        probe.add(num_rows, wall_ns, cpu_ns)
        if not probe.is_enough:
            return
        cost = probe.cost
        if self._state == "together" and not self._cost_alone and probe.cpu_ns * self._most < _GIL_BOUND * probe.wall_ns:
            self._count_anew()  # they wait for something else than each other; that may change
        elif self._state == "together":
            self._judge_together(probe.share, cost / self._most)
        elif cost <= self._cost_together * 1.05:
            self._cost_alone = cost
            self._go("together", self._most, "all workers are tried once more: one alone was not slower")
        else:
            self._stay_together(cost / self._cost_together)

    def _judge_together(self, share: float, cost: float) -> None:
        self._cost_together = cost
        if self._cost_alone > cost * 1.05:
            self._stay_together(self._cost_alone / cost)
        elif self._cost_alone:
            self._patience *= 2
            self.subject = "alone"
            self._go("waiting", 1, self._words())
        elif share < _BUSY:
            self._go("alone", 1, "one worker alone is tried: together they are off the CPU more than a tenth of the time")
        else:
            self._state = "settled"

    def _stay_together(self, times: float) -> None:
        self._patience *= 2
        self.subject = "workers"
        state = "doubtful" if times < self._DOUBTFUL else "settled"
        self._go(state, self._most, f"all {self._most} workers work: one alone takes {times:.1f} times as long")

    def _try_again(self) -> None:
        if self._state == "waiting":
            self._go("together", self._most, "all workers are tried again")
        else:
            self._cost_alone = 0.0
            self._go("together", self._most, "it is measured again whether all workers are wanted")

    def _go(self, state: str, limit: int, notice: str) -> None:
        self._state, self._limit, self.notice = state, limit, notice
        self._count_anew()

    def _count_anew(self) -> None:
        self._num_tasks, self._num_cold = 0, self._NUM_DROPPED
        self._probe = _Probe()

    def _words(self) -> str:
        return (
            f"1 of {self._most} workers works: alone it needs {self._cost_alone / 1e3:.1f} us per element, {self._most} together "
            f"{self._cost_together / 1e3:.1f}, because they wait for the GIL or for CPUs that other programs use"
        )


class Tunable(Protocol):
    """A run as it begins with what earlier ones have found out, and as it ends."""

    failures: list[Any]

    @property
    def shape(self) -> Any:
        """What another run must have in common with it to learn from it."""

    @property
    def found(self) -> Any:
        """What it has found out."""

    def begin(self, found: Any) -> None:
        """Begin with what another run has found out."""


class TuningCache:
    """So that each epoch but the first begins with tasks that are worth their booking, and in memory that is there.

    Elements and their order do not depend on it. From any thread: what is kept is never changed, only replaced; a buffer is taken by one.
    """

    __slots__ = ("_found", "_spare")

    def __init__(self) -> None:
        self._found: dict[Any, Any] = {}
        self._spare: deque[Any] = deque()

    def __reduce__(self) -> tuple[type[TuningCache], tuple[()]]:
        """Leave all behind in a copy: memory has one owner, and elsewhere other sizes are best."""
        return TuningCache, ()

    def begin(self, run: Tunable) -> None:
        """Let a new run begin with what the last one of the same shape ended with."""
        found = self._found.get(run.shape)
        if found is not None:
            run.begin(found)

    def keep(self, run: Tunable) -> None:
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
