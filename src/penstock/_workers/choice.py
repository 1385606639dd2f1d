"""Where the work of a feed runs: decided before its first element, by a rule, and never changed while it runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._contracts.frameworks import Pin
from penstock._contracts.options import Options, OwnExecutor, Processes, Ray, Threads
from penstock._engine.engine import Engine
from penstock._engine.placing import apart, functions_in, names_of_users, seeds_generators, stays, together
from penstock._engine.program import Program
from penstock._engine.turns import Stopped
from penstock._plan.base import Node
from penstock._system.memory import available_cpus
from penstock._system.process import uninterrupted, why_no_processes
from penstock._workers.inline import Executor, InlineExecutor
from penstock._workers.sharing import Sharing, Survey
from penstock._workers.threads import ThreadsExecutor
from penstock.errors import PlanError

if TYPE_CHECKING:
    from penstock._workers.arena import Arena
    from penstock._workers.nursery import Nursery
    from penstock._workers.processes import WorkerProcesses
    from penstock._workers.ray import RayWorkers


_MOST_NAMES = 3
_POOLED = ("threads", "processes", "ray")  # which have worker processes for stages that ask for some
_MOST_IN_THREADS = 4
"""On so many CPUs threads read and decode as fast as processes: native code lets go of the interpreter lock. With 16 they fall behind."""


_MOST_THREADS = 64
"""So many work at a time at most where the number is ours to choose, and elements wait without a CPU."""


class Place(NamedTuple):
    """Where the work of a feed runs.

    Attributes:
        executor: of the shared workers: "inline", "threads", "processes" or "ray"; one of the user's own by its type.
        apart: whether functions of the user's are called by one thread of the program, and not by the shared workers.
        hindrance: why it is not as the options ask for; empty where it is.
        most_workers: up to which the number of shared threads that work is searched. Processes share no lock, so all of them work.
    """

    executor: str
    apart: bool = False
    hindrance: str = ""
    most_workers: int = 0


def place_of(options: Options, *, has_functions: bool, num_cpus: int, hindrance: str = "") -> Place:
    """Return where the work runs, by the rule.

    Args:
        options: of the feed.
        has_functions: whether the plan runs functions of the user's, beside a generator or stream.
        num_cpus: that are available.
        hindrance: why no worker process can be started, or given what it needs; empty where it can.
    """
    if options.num_workers == 0:
        return Place("inline")
    if options.executor != "auto":
        return Place(options.executor_name)
    if options.num_workers == "auto":
        return Place("processes" if num_cpus > _MOST_IN_THREADS and not hindrance else "threads", apart=True)
    if has_functions:
        return Place("threads", apart=True, hindrance=hindrance) if hindrance else Place("processes")
    return Place("processes" if options.num_workers > _MOST_IN_THREADS and not hindrance else "threads")


def is_isolated(program: Program, options: Options, num_cpus: int) -> bool:
    """Tell whether a feed runs in a process of its own: with worker processes, or where the options say so, unless a part of it stays."""
    if isinstance(options.executor, (Threads, Processes)):
        wanted = options.executor.isolate and options.num_workers != 0
    elif options.executor != "auto" or options.num_workers in (0, "auto"):
        return False
    else:
        wanted = place_of(options, has_functions=_has_functions(program), num_cpus=num_cpus).executor == "processes"
    return wanted and not stays(program) and not why_no_processes()


def placed(program: Program, options: Options) -> tuple[Program, str]:
    """Return a program with the place of each stage, as far as the options tell, and what the shared workers are, in words."""
    place = place_of(options, has_functions=_has_functions(program), num_cpus=available_cpus())
    count = available_cpus() if options.num_workers == "auto" else options.num_workers
    names = {"threads": f"{count} thread(s)", "processes": f"{count} worker process(es)", "ray": "Ray workers"}
    words = "the consumer's thread" if place.executor == "inline" else names.get(place.executor, f"{count} worker(s) of {place.executor}")
    return apart(program) if place.apart else together(program), words


def _has_functions(program: Program) -> bool:
    return next(functions_in(program.segments), None) is not None


def _words(names: list[str], place: Place, options: Options) -> str:
    """Say where functions of the user's run, and why."""
    some = ", ".join(map(repr, names[:_MOST_NAMES])) + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")
    if place.hindrance:
        there = "the thread of the training loop" if place.executor == "inline" else "this program, one call at a time"
        return f"{some}: called in {there}, and not in worker processes: {place.hindrance}"
    if place.apart:
        return f"{some}: called in this program, one call at a time; feed(num_workers=N) uses N worker processes"
    return f"{some}: called in {options.num_workers} worker processes; what they change there stays there"


def _checked_executor(made: object, own: OwnExecutor) -> Executor:
    """Return what a method `executor` of the user's gave, if it is an executor."""
    if isinstance(made, Executor):
        return made
    what = f"{type(own).__name__}.executor() gave a {type(made).__name__}, which is no executor"
    raise PlanError(what, where="feed(executor=...)", fix="return an object with start(), wait() and join(grace_period_s)")


class Apart(NamedTuple):
    """What a feed that runs in a process of its own has there.

    Attributes:
        arena: the memory of batches, which the program maps too.
        nursery: what worker processes are forked from; None where that cannot be a fork of this process.
    """

    arena: Arena
    nursery: Nursery | None


class Placement:
    """Where a feed runs, and the worker processes or actors, which are kept over its epochs.

    Attributes:
        notices: what is to be announced; the feed takes them.
        hindrance: why no worker process can be started, or given what it needs; empty where it can, or that was not tried.
    """

    def __init__(
        self, owner: object, options: Options, num_cpus: int, pin: Pin | None = None, apart: Apart | None = None, hindrance: str = ""
    ) -> None:
        """Decide nothing yet. Memory of worker processes is pinned with `pin`; `apart` is what there is in an engine process.

        Raises:
            MissingExtra: Ray is asked for, and not installed.
        """
        if isinstance(options.executor, Ray) and options.num_workers != 0:
            from penstock._workers.ray import imported

            imported()
        self._owner, self._options, self._num_cpus, self._pin = weakref.ref(owner), options, num_cpus, pin
        self._apart = apart
        self._processes: WorkerProcesses | None = None
        self._ray: RayWorkers | None = None
        self._root: Node | None = None
        self._place: Place | None = None
        self.hindrance = hindrance
        self._own_pools = False
        self._sharing = Sharing()
        self.notices: list[str] = []

    @property
    def num_workers(self) -> int:
        """The number of shared workers; 0 for the consumer's own thread."""
        if self.name == "inline":
            return 0
        if self._options.num_workers != "auto":
            return self._options.num_workers
        return self._num_cpus if self._ray is None else self._ray.num_workers

    @property
    def allocate(self) -> Callable[[int], Any] | None:
        """What gives the memory of batches, where worker processes write them."""
        return None if self._processes is None else self._processes.arena.allocate

    @property
    def name(self) -> str:
        """The executor that runs it."""
        return "inline" if self._place is None else self._place.executor

    def begin(self, root: Node, program: Program) -> Program:
        """Prepare to run a plan, lowered to a program; return it with the place of each stage."""
        self._root, before = root, program
        if self._place is None:
            self._place = self._decided(program)
        place = self._place
        program = apart(program) if place.apart else together(program)
        stages = [stage for segment in program.segments for stage in segment.stages]
        if place.executor == "processes" and all(stage.workers is not None for stage in stages):
            place = self._place = place._replace(executor="threads")  # nothing is left for them
        self._own_pools = place.executor in _POOLED and any(stage.workers and stage.workers.executor == "processes" for stage in stages)
        if (place.executor == "processes" or self._own_pools) and self._processes is None and place.executor != "ray":
            try:
                self._processes = self._new_processes()
            except PlanError as error:
                self._in_threads(error)
                return self.begin(root, before)
        if place.executor == "ray" and self._ray is None:
            from penstock._workers.ray import RayWorkers

            assert isinstance(self._options.executor, Ray)
            self._ray = RayWorkers(self._owner(), self._options.executor)
        unsafe = tuple(one.thing for one in Survey(functions_in(program.segments)).held.values()) if place.apart else ()
        return replace(program, elsewhere=place.executor in ("processes", "ray"), unsafe=unsafe, most_workers=place.most_workers)

    def _in_threads(self, error: PlanError) -> None:
        """Have threads take the place of worker processes, where the user has not asked for these by name; else raise the error."""
        if self._options.executor != "auto" or self.name != "processes" or self.hindrance:
            raise error
        self.hindrance, self._place = f"{error.what}; {error.fix}", None

    def _new_processes(self) -> WorkerProcesses:
        if why := why_no_processes():
            raise PlanError(f"no worker processes can be started: {why}", where='executor="processes"', fix='give executor="threads"')
        return uninterrupted(self._make_processes)  # Ctrl-C amid an import can leave Python's import lock taken, for ever

    def _make_processes(self) -> WorkerProcesses:
        from penstock._workers import elsewhere, processes  # noqa: F401 - 20 ms, which `import penstock` does not pay

        try:
            return processes.WorkerProcesses(self._owner(), self._pin, *(self._apart or ()))
        except OSError as error:
            raise processes.no_system_resources(error) from error

    def _decided(self, program: Program) -> Place:
        self.hindrance = self.hindrance or why_no_processes()
        place = place_of(self._options, has_functions=_has_functions(program), num_cpus=self._num_cpus, hindrance=self.hindrance)
        if place.hindrance and seeds_generators(program):  # beside the loop it would draw from the generators that the loop draws from
            place = Place("inline", hindrance=place.hindrance)
        names = names_of_users(program)
        if names and self._options.executor == "auto" and (place.executor != "inline" or place.hindrance):
            self.notices = [_words(names, place._replace(hindrance=self.hindrance), self._options)]
        most = _MOST_THREADS if self._options.num_workers == "auto" else self._options.num_workers
        return place if place.executor != "threads" else place._replace(most_workers=most)

    def executor(self, engine: Engine) -> Executor | None:
        """Make the executor of an engine; None where another place was decided meanwhile, and the feed has to begin again.

        Raises:
            PlanError: the user has asked for worker processes, and something cannot be sent there; or for an executor that is none.
        """
        if self.name != "inline":
            self._sharing.begin(engine, self.name)
        if self._sharing.notice:
            self.notices.append(self._sharing.notice)
            self._sharing.notice = ""
        own = self._options.own_executor
        if own is not None and self.name != "inline":
            return _checked_executor(own.executor(engine), own)
        workers = self._ray or (self._processes if self.name == "processes" or self._own_pools else None)
        if workers is None:
            return InlineExecutor(engine) if self.name == "inline" else ThreadsExecutor(engine, self._sharing.computer)
        from penstock._workers.elsewhere import RemoteExecutor

        assert self._root is not None
        try:
            workers.run(engine, self._root, self.name, self.num_workers)
        except Stopped:  # another thread has closed the feed meanwhile
            return ThreadsExecutor(engine)
        except PlanError as error:
            self._in_threads(error)
            return None
        return RemoteExecutor(engine, workers, self.name, self._sharing.computer)

    def end(self) -> None:
        """End the worker processes."""
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
