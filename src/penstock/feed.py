"""A running dataset: the iterator that delivers it, its state, its figures, its end."""

from __future__ import annotations

import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from penstock._contracts.event import BatchDelivered, Event, Listener, Notice
from penstock._contracts.options import Options
from penstock._contracts.version import VERSION
from penstock._engine.bounds import lost_before
from penstock._engine.engine import Engine
from penstock._engine.failing import add_note, attach_others, let_go, words_of
from penstock._engine.hand import HandOver
from penstock._engine.learned import Learned
from penstock._engine.lower import check_completion, lower
from penstock._engine.moving import Form, Part, check_positions
from penstock._engine.policies import check_policies, check_stalls, policies_of
from penstock._engine.recorded import Recorder, read_recording
from penstock._engine.resume import restored, saved
from penstock._engine.slots import anonymous_memory
from penstock._engine.unit import Failure, Token
from penstock._engine.watch import Watch
from penstock._executors.abandoning import abandon
from penstock._executors.contract import Executor
from penstock._executors.inline import InlineExecutor
from penstock._executors.threads import ThreadsExecutor
from penstock._ops.stack import BatchSpec
from penstock._order.runs import Recording
from penstock._plan.describe import describe, lines, sources
from penstock._plan.length import is_indexable
from penstock._plan.node import Node
from penstock._plan.progress import below_batches, epoch_at
from penstock.errors import FeedClosed, SpecError, StillRunning
from penstock.formats.quarantine import Quarantine
from penstock.observe.diagnose import explain
from penstock.observe.stats import Snapshot, Stats, available_cpus

__all__ = ["Feed"]

_AUTO_MEMORY_BYTES = 256 << 20


class Feed:
    """Delivers a dataset, element by element or batch by batch, in its order.

    An iterator and a context manager. Nothing runs before the first `next()`; nothing runs after `close()`, after the end, or after an
    error. The first error of a user's function is raised once, as its own exception, behind everything that comes before it in order;
    after it, `next()` raises FeedClosed.

    Thread-safe: several threads may call `next()`, and each element goes to one of them. `state_dict()`, `stats()` and `close()` may be
    called from any thread and from signal handlers.
    """

    def __init__(
        self,
        root: Node,
        options: Options,
        listeners: Sequence[Listener] = (),
        make_executor: Callable[[Engine], Executor] | None = None,
        learned: Learned | None = None,
    ) -> None:
        """Prepare a feed of the plan `root`. Use `Dataset.feed()`; `make_executor` replaces the options' executor in tests of one."""
        self._root, self._learned = root, learned
        self._options = options
        self._stats = Stats()
        keeping = [] if options.quarantine is None else [Quarantine(options.quarantine)]
        self._listeners: list[Listener] = [*keeping, self._stats, *listeners]
        self._lock = threading.Lock()
        self._policies = policies_of(root, options)
        completion = not options.ordered or options.replay is not None
        self._folded = completion or self._policies.skips
        check_policies(root, self._policies, folded=self._folded)
        check_stalls(root, options)
        if completion:
            check_completion(root, recorded=options.record is not None or options.replay is not None)
        self._recorder: Recorder | None = None
        self._parts = [Part(Form(root, self._folded, self._policies.skips), Token((0, 0)))]
        self._hand = HandOver.begin(0, Token((0, 0)), self._parts[0].form)
        self._engine: Engine | None = None
        self._make_executor = make_executor
        self._executor: Executor | None = None
        self._finalizer: Any = None
        self._pending: Failure | None = None
        self._part_ended = False
        self._condition = "new"
        self.warns_when_empty = True
        """Whether it is worth a warning that there was no element: not of a part of a dataset, where it is nobody's mistake."""
        self._watch_spec = False
        self._spec: BatchSpec | None = None
        self._dataset: list[dict[str, Any]] | None = None

    def __iter__(self) -> Self:
        """Return itself: a feed is one pass over its dataset."""
        return self

    def __next__(self) -> Any:
        """Return the next element or batch; block until it is there.

        Raises:
            StopIteration: at the end, and again at each later call.
            FeedClosed: after `close()` or after an error.
            FeedStalled: an element ran longer than `stall_timeout_s` while this call waited, or nothing ran at all. With
                `on_stall="skip"` only when it cannot be skipped.
        """
        with self._lock:
            items = self._hand.items
            if not items or self._condition != "running":
                if not self._refill():
                    raise StopIteration
                items = self._hand.items
            if self._watch_spec:
                self._check_spec(items[-1])
            return items.pop()

    # -- state --------------------------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """How many elements or batches were delivered, those before a resume included."""
        return self._hand.now()[0]

    @property
    def epoch(self) -> int:
        """The number of the pass that the next element belongs to, from 0, counted by `repeat`."""
        hand = self._hand
        token = hand.now()[1]
        if not is_indexable(self._root):
            return token.source[0]
        root, folded, _ = hand.form
        return epoch_at(below_batches(root), token.source[1], token.source[0]) if folded else epoch_at(root, token.source[1])

    def state_dict(self) -> dict[str, Any]:
        """Return what resumes right behind the last delivered element: a small JSON-able dict. Does not block.

        Raises:
            StateUnavailable: when the source is a generator without `fast_forward=True`.
        """
        hand = self._hand
        step, token = hand.now()
        return saved(self._root, hand.form, token, step, self._fingerprints(), VERSION)

    def load_state_dict(self, state: Any, *, strict: bool = True) -> None:
        """Continue behind a saved state: a dict of `state_dict()`, or its JSON. What runs now is closed first.

        Valid for any number of workers, block size and executor; for another `shard(num_shards, index)` where nothing but map, batch,
        repeat and prefetch stands above it. With strict=False the plan and the data are not compared.

        Raises:
            StateDamaged: when the state is cut, changed or out of bounds.
            StateMismatch: when it belongs to another plan, dataset or version; the text names the first difference.
        """
        dataset = self._fingerprints() if strict else []
        parts, step = restored(
            self._root, state, dataset, strict=strict, folded=self._folded, skips=self._policies.skips, ordered=self._options.ordered
        )
        if self._options.record is not None or self._options.replay is not None:
            check_positions(self._root, parts)
        self._shut("new")
        self._parts = parts
        self._hand = HandOver.begin(step, parts[0].token, parts[0].form)
        self._pending = None
        self._stats.begin_from(*lost_before(parts[0].token))

    def _fingerprints(self) -> list[dict[str, Any]]:
        if self._dataset is None:
            self._dataset = [node.source.fingerprint() for node in sources(self._root)]
        return self._dataset

    # -- figures ------------------------------------------------------------------------------------------------------------------

    def stats(self) -> Snapshot:
        """Return what was measured so far: work per stage, waiting of the consumer, notices."""
        return self._stats.snapshot()

    def report(self) -> str:
        """Say in words what limited the run so far, by how much, and what to change."""
        return explain(self.stats())

    # -- spec ---------------------------------------------------------------------------------------------------------------------

    def finalize(self) -> None:
        """Lock the element spec to that of the next delivered element: any later one of another shape or dtype is a SpecError.

        So a compiled training step is never compiled again. Use `batch(..., drop_remainder=True)`, or the last batch will differ.
        """
        self._watch_spec = True

    def _check_spec(self, item: Any) -> None:
        if self._spec is None:
            self._spec = BatchSpec(item, self._name_of_next)
            return
        difference = self._spec.difference(item)
        if difference is None:
            return
        error = SpecError(
            f"the spec was locked by finalize(), but {difference}",
            where=f"stage {describe(self._root)!r}, {self._name_of_next()}",
            fix="use drop_remainder=True for batches of one size, and resize, crop or pad to one shape; or do not finalize()",
        )
        self._shut("failed")
        raise error

    def _name_of_next(self) -> str:
        return f"element {self.step} of this feed (epoch {self.epoch})"

    # -- life cycle ---------------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close; when the block ends with an error, stragglers become a note of that error."""
        if error is None:
            self.close()
            return
        try:
            self.close()
        except StillRunning as straggling:
            add_note(error, str(straggling))

    def close(self) -> None:
        """Stop all workers and drop what was read ahead. A second call does nothing. Delivered batches stay valid.

        Raises:
            StillRunning: when a user's function did not return inside `grace_period_s`; its thread is named and left to end by itself.
        """
        alive = self._shut("closed" if self._condition in ("new", "running") else self._condition)
        if alive:
            raise StillRunning(
                f"{len(alive)} worker(s) did not stop inside {self._options.grace_period_s} s: {', '.join(alive)}",
                where="Feed.close()",
                fix="the functions they run are still busy; give them timeouts, or a longer grace_period_s",
            )

    def _shut(self, condition: str) -> list[str]:
        self._condition = condition
        engine, executor, finalizer = self._engine, self._executor, self._finalizer
        self._engine = self._executor = self._finalizer = None
        if finalizer is not None:
            finalizer.detach()
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.close()
        if engine is None or executor is None:
            return []
        engine.stop()
        alive = executor.join(self._options.grace_period_s)
        if not alive:
            engine.dispose()
        return alive

    def _start(self) -> None:
        form, token = self._parts[0]
        options = self._options
        num_workers = available_cpus() if options.num_workers == "auto" else options.num_workers
        inline = options.executor == "inline" or num_workers == 0
        engine = Engine(
            replace(lower(form.root, folded=form.folded, skips=form.skips), policies=self._policies),
            num_workers=0 if inline else num_workers,
            memory_bytes=_AUTO_MEMORY_BYTES if options.memory_bytes == "auto" else options.memory_bytes,
            start=token,
            ordered=self._order(),
            allocate=anonymous_memory,
            listeners=self._listeners,
            watch=Watch(options.stall_timeout_s, options.on_stall),
        )
        if self._learned is not None:
            engine.learn(self._learned)
        self._engine, self._part_ended = engine, False
        make = self._make_executor or (InlineExecutor if inline else ThreadsExecutor)
        if self._policies.notice:
            self._announce(Notice(time.perf_counter_ns(), "policy", self._policies.notice))
        if not self._run_with(make(engine)):
            self._run_with(InlineExecutor(engine))
        if self._condition != "running":  # close() came meanwhile, from a signal handler or another thread
            self._shut(self._condition)

    def _order(self) -> bool | Recording:
        """Open what the order is read from or written to."""
        options = self._options
        if options.replay is not None:
            return read_recording(options.replay, lines(self._root, saved=True))
        if options.record is not None and self._recorder is None:
            token = self._parts[0].token
            resumed = (token.source[0], ((0, token.source[1]), *token.done.runs)) if self.step else None
            self._recorder = Recorder(options.record, lines(self._root, saved=True), resumed=resumed)
        return options.ordered

    def _run_with(self, executor: Executor) -> bool:
        """Let an executor run the engine; return whether it could start."""
        assert self._engine is not None
        if self._finalizer is not None:
            self._finalizer.detach()
        self._executor = executor
        self._finalizer = weakref.finalize(self, abandon, self._engine, executor, self._options.grace_period_s, self._recorder)
        return executor.start()

    def _refill(self) -> bool:
        """Take the next hand-over and return True, or False at the end; raise the pending error, or FeedClosed when there is no more."""
        begin_ns = time.perf_counter_ns()
        while True:
            if self._condition == "new":
                self._condition = "running"
                self._start()
            if self._condition == "ended":
                return False
            if self._condition != "running":
                self._refuse()
            engine, executor, ready = self._engine, self._executor, None  # no error may be left in `ready`: see below
            if self._pending is not None:
                self._raise_pending(self._pending)
            if self._part_ended:
                self._next_part()
                continue
            ready = engine.poll() if engine is not None else None
            if ready is None:
                if engine is not None and executor is not None and not engine.stopping:
                    executor.wait()
                elif self._condition == "running":
                    self._end_with_the_interpreter()
                continue
            if self._recorder is not None and engine is not None:
                self._recorder.write(engine.take_log())
            self._hand = self._hand.then(ready.items, ready.tokens)
            self._pending, self._part_ended = ready.error, ready.end
            now_ns = time.perf_counter_ns()
            self._announce(BatchDelivered(now_ns, now_ns - begin_ns, engine.num_ready if engine is not None else 0, len(ready.items)))
            if ready.items:
                return True

    def _end_with_the_interpreter(self) -> None:
        """End the consumer's thread without a word: a feed that somebody holds is stopped only at exit, when daemon threads are left."""
        if threading.current_thread().daemon:
            sys.exit()
        self._condition = "closed"

    def _next_part(self) -> None:
        """Go on with the next part of a moved state, or end for good: the program is at its end."""
        tally = () if self._engine is None else self._engine.tally()
        self._shut("failed")  # so it stays if a generator's `finally` raises
        self._condition, self._part_ended = "new", False
        if len(self._parts) > 1:
            del self._parts[0]
            form, token = self._parts[0] = self._parts[0]._replace(token=self._parts[0].token._replace(tally=tally))
            self._hand = HandOver.begin(self.step, token, form)
            return
        self._condition = "ended"
        if self.step == 0 and self.warns_when_empty:
            warnings.warn("this dataset gave no elements: the source, a filter or a take left nothing", stacklevel=4)

    def _raise_pending(self, failure: Failure) -> None:
        failures = self._engine.failures if self._engine is not None else []
        error = failure.error
        self._pending = None
        try:
            try:
                alive = self._shut("failed")
            finally:
                attach_others(failure, failures)  # only now: another worker may have failed at the same time, and be later to say so
                let_go([failure, *failures])
            if alive:
                add_note(error, f"penstock: still running: {', '.join(alive)}; they end when the functions they run return")
        except Exception as closing:  # the `finally` of a generator; the first error wins
            if closing is not error:
                add_note(error, f"penstock: also failed: {words_of(closing)} (while closing)")
            raise error from error.__cause__
        else:
            raise error
        finally:  # a frame that an error passes may not hold it: all that both hold would stay in memory
            del error, failure, failures

    def _refuse(self) -> None:
        if self._condition == "failed":
            raise FeedClosed(
                "this feed stopped at an error, which was raised before",
                where="Feed.__next__",
                fix="mend the cause, then load_state_dict() of the last state into a new feed",
            )
        raise FeedClosed("this feed is closed", where="Feed.__next__", fix="make a new one with ds.feed()")

    def _announce(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)
