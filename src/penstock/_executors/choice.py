"""Which executor a feed runs on: the one that it was told, or with "auto" the one that proves the fastest while it runs."""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock._contracts.options import Options
from penstock._contracts.policy import Replace, Skip, final
from penstock._engine.engine import Engine
from penstock._engine.lowering import lower
from penstock._engine.policies import policies_in
from penstock._engine.program import Program
from penstock._engine.resume import PlanVariant
from penstock._engine.tuning import TuningCache
from penstock._executors.contract import Executor
from penstock._executors.inline import InlineExecutor
from penstock._executors.threads import Stopped, ThreadsExecutor
from penstock._plan.base import Node
from penstock._plan.facts import lines
from penstock._storage.local import publish
from penstock.errors import PlanError, WorkerDied

if TYPE_CHECKING:
    from penstock._executors.elsewhere import RemoteWorkers
    from penstock._executors.processes import WorkerProcesses
    from penstock._executors.ray import RayWorkers

__all__ = ["ExecutorChoice"]

_WARM_UP_NS, _WINDOW_NS = 300_000_000, 500_000_000
_FEWEST = 6  # hand-overs in a window
_WAITS = 0.5  # of the time: below that the training loop is the bottleneck, and no executor changes much
_WAITS_ALWAYS = 0.95  # there is nothing that threads could run beside
_COMPUTES = 0.4  # of a CPU: below that workers wait for disks and servers, which threads do as well
_BETTER = 1.02
_FOUND = {name: name for name in ("threads", "processes", "placed", "inline")}
_MOST_BYTES = 256 << 20  # of a dataset that is copied for a trial


class _Window:
    """Hand-overs of one executor, over as many epochs as it takes. The time between epochs does not count."""

    __slots__ = ("_count", "_cpu_ns", "_elapsed_ns", "_items", "_last", "_left_ns", "_waited_ns")

    def __init__(self, warm_up_ns: int = _WARM_UP_NS) -> None:
        self._left_ns = warm_up_ns
        self._last: tuple[int, int] | None = None
        self._count = self._items = self._waited_ns = self._cpu_ns = self._elapsed_ns = 0

    def pause(self) -> None:
        """Begin again behind the next hand-over: an epoch has ended."""
        self._last = None

    def add(self, now_ns: int, waited_ns: int, num_items: int) -> tuple[float, float, float] | None:
        """Count a hand-over; return (items per second, the share of waiting, CPUs in use by this process) when it is enough."""
        last, self._last = self._last, (now_ns, time.process_time_ns())
        if last is None:
            return None
        elapsed_ns, cpu_ns = now_ns - last[0], self._last[1] - last[1]
        if self._left_ns > 0:
            self._left_ns -= elapsed_ns
            return None
        self._count += 1
        self._items += num_items
        self._waited_ns += waited_ns
        self._elapsed_ns += elapsed_ns
        self._cpu_ns += cpu_ns
        if self._elapsed_ns < _WINDOW_NS or self._count < _FEWEST:
            return None
        return self._items / self._elapsed_ns * 1e9, self._waited_ns / self._elapsed_ns, self._cpu_ns / self._elapsed_ns


class ExecutorChoice:
    """The executor of a feed over its epochs, and the worker processes, which are kept.

    With "auto" a feed begins on threads. When the training loop waits more than half of the time while the threads compute, worker
    processes are started beside them and tried, for the Python functions alone where the dataset cannot be sent as a whole. Where they are
    not faster, one thread alone is as fast as several and the loop does nothing but wait, its own thread is tried. What was fastest stays,
    and later feeds of the dataset begin with it, also in another program where `executor_file` is given. To move, the feed goes on behind
    the last element that was delivered, as from a saved state.

    Attributes:
        name: "threads", "processes", "ray", "inline", or "placed" for threads with Python functions in processes.
        moves: whether the feed should go on with `name`, between two hand-overs, because it differs from what runs.
        notice: why, for a Notice; empty when there is nothing to say.
    """

    def __init__(self, owner: object, root: Node, options: Options, num_cpus: int, cache: TuningCache | None, *, may_move: bool) -> None:
        """Choose what to begin with. `may_move` tells whether what was computed ahead may be computed again.

        Raises:
            PlanError: `executor_file` cannot be read.
        """
        self._owner, self._root, self._options, self._cache = weakref.ref(owner), root, options, cache
        self._most_workers = num_cpus if options.num_workers == "auto" else options.num_workers
        self._processes: WorkerProcesses | None = None
        self._ray: RayWorkers | None = None
        self._form: PlanVariant | None = None
        self._engine: Engine | None = None
        self._window: _Window | None = None
        self._rates: dict[str, float] = {}
        self._placed: tuple[PlanVariant, PlanVariant] | None = None
        self._names = ""
        self._inline_may_pay = self._starts = self._places = self._shares = False
        self._starter: threading.Thread | None = None
        self._failed, self._may_place = "", False
        self.moves, self.notice = False, ""
        auto = options.executor == "auto"
        self._open = auto and may_move and self._most_workers > 1
        self._file = None if options.executor_file is None else str(options.executor_file)
        found = None if self._file is None else self._read(self._file)
        if found is None and cache is not None and cache.executor is not None and self._open:
            found = cache.executor[0]
        if found is not None:
            self._open = False
        self.name: str = options.executor if not auto else found or "threads"
        if options.num_workers == 0:
            self.name = "inline"

    @property
    def num_workers(self) -> int:
        """The number of shared workers; 0 for the consumer's own thread."""
        if self.name == "inline":
            return 0
        return self._most_workers if self._ray is None or self._options.num_workers != "auto" else self._ray.num_workers

    @property
    def allocate(self) -> Callable[[int], Any] | None:
        """What gives the memory of batches, where worker processes write them."""
        return self._processes.arena.allocate if self._shares and self._processes is not None else None

    def placed(self, form: PlanVariant) -> PlanVariant:
        """Return the form of a plan whose functions have worker processes."""
        from penstock._executors.processes import sendable

        if self._placed is None or self._placed[0] != form:
            self._placed = form, form._replace(root=form.root.placed(partial(sendable, most_bytes=_MOST_BYTES)))
        return self._placed[1]

    def begin(self, form: PlanVariant, program: Program) -> None:
        """Prepare to run a plan, lowered to a program."""
        self._form = form
        if self._window is None or self.moves:
            self._window, self.moves = _Window(), False
        else:
            self._window.pause()
        stages = [stage for segment in program.segments for stage in segment.stages]
        names = [stage.name for stage in stages if stage.workers and stage.workers.executor == "processes"]
        self._names, self._places = ", ".join(map(repr, names)) or self._names, bool(names) and self.name != "inline"
        # A generator cannot be read again; and where the user has said what runs in processes, that is the choice.
        self._open = self._open and program.segments[0].stream is None and (not self._places or self.name == "placed")
        self._shares = self.name == "processes" or (self._places and self.name != "ray")
        if self._shares:
            self._made()
        if self.name == "ray" and self._ray is None:
            from penstock._executors.ray import RayWorkers

            self._ray = RayWorkers(self._owner(), self._options.ray_options)

    def _made(self) -> WorkerProcesses:
        from penstock._executors.processes import WorkerProcesses  # 20 ms, which `import penstock` does not pay

        if self._processes is None:
            self._processes = WorkerProcesses(self._owner())
        return self._processes

    def executor(self, engine: Engine) -> Executor:
        """Make the executor of an engine.

        Raises:
            PlanError: with executor="processes", something cannot be sent to another process.
        """
        self._engine = engine
        if self._ray is not None:
            self._run(self._ray, engine)
            return self._remote(engine, self._ray)
        if self._shares:
            try:
                self._share(self._made(), engine)
            except Stopped:  # another thread has closed the feed meanwhile
                pass
            except PlanError as error:
                if self._options.executor == "processes" or (self._places and self.name != "placed"):
                    raise
                self.name, self._open, self.notice = "threads", False, f"worker processes cannot run this: {error.what}"
            else:
                return self._remote(engine, self._made())
        return InlineExecutor(engine) if self.name == "inline" else ThreadsExecutor(engine)

    def _share(self, processes: WorkerProcesses, engine: Engine) -> None:
        """Send what processes compute; where threads compute too, nothing but that if the whole is too large or cannot be sent.

        Raises:
            PlanError: it cannot be sent.
        """
        may_part = self.name != "processes" and not self._replaces(engine)
        if self.name != "placed" or not may_part:  # else the whole has been tried
            try:
                self._run(processes, engine, _MOST_BYTES if may_part else None)
            except PlanError:
                if not may_part:
                    raise
            else:
                return
        self._run(processes, engine, placed=True)

    def _replaces(self, engine: Engine) -> bool:
        """Tell whether another element may take the place of one that fails: it is read where that one failed."""
        kinds = (Replace, Skip) if engine.error_handler.policies.keeps_positions else (Replace,)
        return any(isinstance(final(policy), kinds) for policy in (self._options.on_error, *policies_in(self._root)))

    def _remote(self, engine: Engine, workers: RemoteWorkers) -> Executor:
        from penstock._executors.elsewhere import RemoteExecutor

        return RemoteExecutor(engine, workers, "threads" if self.name == "placed" else self.name)

    def _run(self, workers: RemoteWorkers, engine: Engine, most_bytes: int | None = None, *, placed: bool = False) -> None:
        assert self._form is not None
        policies, count = engine.error_handler.policies, self.num_workers
        workers.run(engine.plans, policies, self._form, most_bytes, placed=placed, num_workers=count)

    def delivered(self, now_ns: int, waited_ns: int, num_items: int) -> None:
        """Learn from a hand-over."""
        if not self._open or self._window is None or self.moves:
            return
        if self._starts:
            if self._failed or (self._processes is not None and self._processes.ready):
                self._end_start()
            return
        found = self._window.add(now_ns, waited_ns, num_items)
        if found is None:
            return
        self._window = _Window(0)
        self._judge(*found)

    def _judge(self, rate: float, waits: float, cpus: float) -> None:
        """Say what is done next, by the figures of a window."""
        self._rates[self.name] = rate
        if self.name in ("processes", "placed") and rate < _BETTER * self._rates["threads"] and self._inline_may_pay:
            self._go("inline", "the training loop's own thread is tried")
        elif self.name != "threads":
            self._settle()
        elif waits >= _WAITS and cpus >= _COMPUTES:
            alone = self._engine is not None and self._engine.num_active < self._most_workers
            self._inline_may_pay, self._starts = alone and waits >= _WAITS_ALWAYS, True
            self._starter = threading.Thread(target=self._start, name="penstock-start", daemon=True)
            self._starter.start()

    def _start(self) -> None:
        """Start worker processes while threads go on. In a thread of its own."""
        assert self._engine is not None
        try:
            processes = self._made()
            self._run(processes, self._engine, _MOST_BYTES)
            processes.start(self._most_workers)
        except (PlanError, WorkerDied, OSError, Stopped) as error:  # said in a notice: the feed goes on as it is
            self._may_place = isinstance(error, PlanError) and self._can_place()
            self._failed = f"worker processes cannot run this: {getattr(error, 'what', error)}"

    def _can_place(self) -> bool:
        assert self._form is not None
        form = self.placed(self._form)
        try:
            program = lower(form.root, folded=form.folded, skips=form.skips)
        except PlanError:  # something above the function counts elements
            return False
        stages = [stage for segment in program.segments for stage in segment.stages]
        return any(stage.workers and stage.workers.executor == "processes" for stage in stages)

    def _end_start(self) -> None:
        self._starts = False
        if not self._failed:
            self._go("processes", "worker processes are tried: the training loop waits, and threads share one interpreter lock")
        elif self._may_place:
            self._go("placed", f"{self._failed}; its functions are tried there, and the rest stays on threads")
        elif self._inline_may_pay:
            self._go("inline", f"{self._failed}; the training loop's own thread is tried")
        else:
            self.notice, self._open = self._failed, False

    def _settle(self) -> None:
        """Stay with, or go back to, what was fastest."""
        best = max(self._rates, key=lambda name: self._rates[name] * (1.0 if name == self.name else 1 / _BETTER))
        self._open = False
        rates = ", ".join(f"{rate:,.0f} a second {self._words(name)}" for name, rate in self._rates.items())
        said = f"executor={best!r}" if best != "placed" else f"executor='threads' {self._words(best)}"
        self.notice, self.moves = f"{said} is used from now on: {rates}", best != self.name
        self.name = best
        if self._cache is not None:
            root = self._placed[1].root if best == "placed" and self._placed is not None else self._root
            self._cache.executor = best, self.notice, root
        if self._file is not None:
            self._write(self._file)

    def _words(self, name: str) -> str:
        return f"with {self._names} in processes" if name == "placed" else f"on {name}"

    def _read(self, path: str) -> str | None:
        """Return what a file says of this plan; None where there is no file yet, or it is of another plan."""
        try:
            with open(path, encoding="utf-8") as file:
                saved = json.load(file)
            if saved["plan"] != lines(self._root, saved=True):
                self.notice = f"{path} was written for another plan; executor='auto' measures again"
                return None
            return _FOUND[saved["executor"]]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise PlanError(
                f"executor_file={path!r} cannot be read: {type(error).__name__}: {error}",
                where="feed options",
                fix='remove the file, and executor="auto" writes it anew; or give another path',
            ) from error

    def _write(self, path: str) -> None:
        saved = {"executor": self.name, "why": self.notice, "plan": lines(self._root, saved=True)}
        try:
            publish(path, json.dumps(saved, indent=1).encode())
        except OSError as error:  # the feed needs no file
            self.notice += f"; {path} could not be written: {error}"

    def _go(self, name: str, notice: str) -> None:
        self.name, self.notice, self.moves = name, notice, True

    def end(self) -> None:
        """End the worker processes."""
        if self._starter is not None:
            self._starter.join(self._options.grace_period_s)  # 0.3 s, but for a dataset that takes long to pickle: it ends with that
            self._starter = None
        for workers in filter(None, (self._processes, self._ray)):
            workers.end()
        self._processes = self._ray = None

    def leave(self) -> Any:
        """Return what a forked process must not touch."""
        found = self._processes, self._ray
        for workers in filter(None, found):
            workers.end.detach()
        self._processes = self._ray = None
        return found
