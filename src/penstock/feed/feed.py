"""A running dataset: its epochs and their elements, its state, its figures, its end."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from penstock._contracts.event import Fill, Listener, noted
from penstock._contracts.frameworks import refuse_loader_around, refuse_loader_worker
from penstock._contracts.version import VERSION
from penstock._engine.chunk import Failure, LossCounts, Token
from penstock._engine.error_policy import attach_others, let_go, signal_in
from penstock._engine.resume import (
    Delivery,
    PlanPart,
    ResumeStep,
    is_end_of_all,
    lost_before,
    restored,
    saved,
)
from penstock._engine.scheduler import Ready
from penstock._engine.tuning import TuningCache
from penstock._ops.stack import BatchSpec
from penstock._order.arithmetic import INFINITE
from penstock._plan import check
from penstock._plan.facts import known_length, lines
from penstock._system.failing import add_note, cause_of, words_of
from penstock._system.frames import warn
from penstock._system.memory import FeedMemory, available_cpus
from penstock._system.process import call_in_forked, leak, refuse_while_imported
from penstock._workers.choice import is_isolated
from penstock.errors import FeedClosed, PlanError, SpecError, StateUnavailable, StillRunning
from penstock.feed.compiled import Compiled
from penstock.feed.run import Run
from penstock.observe.advice import Advice
from penstock.observe.curves import Curves
from penstock.observe.live import FeedPlace, Show
from penstock.observe.losses import Losses
from penstock.observe.observed import Observed
from penstock.observe.stats import Snapshot, note_running, watchers
from penstock.observe.ticker import Guarded
from penstock.observe.trace import Trace

if TYPE_CHECKING:
    from penstock.feed.isolated import IsolatedRun

_SHARED_EPOCH = (
    "two iterators share one epoch of this feed, and each element goes to one of them: zip(feed, feed) gives pairs of neighbours, and "
    "loses an odd last one; for the same elements twice make a second feed, for pairs of two datasets use ds.zip(other)"
)
_ONE_PART_EACH = "ds.shard(num_shards, index) gives each process a part of its own"
_END: Any = object()


class _Epoch:
    """Iterates over the rest of one epoch of a feed."""

    def __init__(self, feed: Feed, serial: int) -> None:
        self._feed, self._serial = feed, serial

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        item = self._feed._next(self._serial)
        if item is _END:
            raise StopIteration
        return item


class Feed(Observed):
    """Delivers a dataset, element by element or batch by batch, in its order.

    Each `for` over it is the next epoch: another order and other random numbers, where the dataset shuffles or uses random numbers. An
    epoch that a `for` began and left is over, as with a DataLoader; one begun by `next(feed)` or by `load_state_dict()` is continued by the
    first `for`. `len(feed)` is the length of a whole epoch.

    Nothing runs before the first element is asked for; nothing runs after `close()`, after the end of an epoch, or after an error. The
    first error of a user's function is raised once, as its own exception, behind everything that comes before it in order; after it, the
    feed raises FeedClosed.

    Thread-safe: several threads may call `next()` on the feed or on one `iter(feed)`, and each element goes to one of them. `state_dict()`,
    `stats()` and `close()` may be called from any thread and from signal handlers. A feed belongs to the process that made it: in a forked
    one `next()` raises FeedClosed and `close()` does nothing; a new feed of the same dataset runs there.
    """

    def __init__(
        self,
        compiled: Compiled,
        listeners: Sequence[Listener] = (),
        tuning_cache: TuningCache | None = None,
        agree: Callable[[Sequence[str]], None] | None = None,
        notice: str = "",
    ) -> None:
        """Prepare a feed. Use `Dataset.feed()`.

        `agree` is called with what must be the same on all ranks, before the first element. `notice` is announced, about ranks.
        """
        self._compiled, self._agree, self._has_agreed = compiled, agree, False
        root, options, self._converts = compiled.root, compiled.options, compiled.output is not None
        self._losses = Losses(finds_texts=options.output_name == "torch")
        self._run: Run | IsolatedRun
        if is_isolated(compiled.program, options, num_cpus := available_cpus()):
            from penstock.feed.isolated import IsolatedRun  # 20 ms, which other feeds do not pay

            self._run = IsolatedRun(compiled, num_cpus, [self._losses])
        else:
            self._run = Run(compiled, num_cpus, [self._losses], tuning_cache)
        for watcher in watchers():
            self._run.listeners.append(watcher(tuple(lines(root)), self._run.stats))
        self._run.listeners += listeners
        self._lock = threading.Lock()
        self._advice = Advice(wanted=options.executor == options.num_workers == "auto")
        self._notices = [*compiled.notices, ("shard", notice)] if notice else list(compiled.notices)
        self._part = PlanPart(root)
        self._parts = [ResumeStep(self._part, Token((0, 0)))]
        self._delivery = Delivery.begin(0, self._parts[0])
        self._begun: Literal["", "next", "for", "state"] = ""  # by what the epoch was begun
        self._serial = 0  # counts the epochs that were begun, a resumed one included
        self._left: set[int] = set()  # those of them that were left before their end
        self._told_left = self._told_shared = self._closed = False
        self._last_iterator: Callable[[], _Epoch | None] = lambda: None
        self._loss_counts: LossCounts = ()
        self._condition = "new"
        self._warns_when_empty = True
        """Whether it is worth a warning that there was no element: not of a part of a dataset, where it is nobody's mistake."""
        self._watch_spec = False
        self._spec: BatchSpec | None = None
        self._observers: list[Curves | Show | Trace] = []
        self._pid = os.getpid()
        call_in_forked(self, Feed._leave_to_parent)

    def __reduce__(self) -> Any:
        """Refuse: what runs cannot be sent to another process.

        Raises:
            PlanError: always.
        """
        refuse_loader_worker()
        raise PlanError(
            "a feed cannot be pickled or copied: it belongs to the process that made it",
            where="Feed",
            fix=f"send the dataset, and make a feed of it there; {_ONE_PART_EACH}",
        )

    def __repr__(self) -> str:
        """Say where it is, and whether it runs."""
        delivery, length = self._delivery, "?" if self._compiled.length == INFINITE else int(self._compiled.length)
        return f"Feed({self._condition}, epoch {self.epoch}, element {self.step - delivery.first_step} of {length}, step {self.step})"

    def __len__(self) -> int:
        """Return how many elements or batches a whole epoch has, also after a resume in the middle of one.

        Raises:
            TypeError: when it is endless, or only known after reading.
        """
        return known_length(self._compiled.root, "len(feed)")

    def __bool__(self) -> bool:
        """Return True: `if feed:` does not count its elements."""
        return True

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator of the next epoch, or of the running one if no `for` has begun it yet.

        Raises:
            FeedClosed: after `close()` or after an error; in a process forked from the one that made the feed.
            PlanError: in a worker of a torch DataLoader.
        """
        caller = sys._getframe(1)
        refuse_loader_around(caller, batches=self._compiled.root.batch_size_each() != 1, ranks=self._agree is not None)
        with self._lock:
            if self.is_closed():
                self._refuse("Feed.__iter__")
            delivery = self._delivery
            if self._begun == "for" and delivery.now()[0] > delivery.first_step and not self._is_over():
                self._leave_epoch()
            elif self._is_over() and not (self._begun == "state" and self._condition == "new"):
                self._begin_epoch(delivery.epoch + 1)
            elif self._begun == "for" and self._last_iterator() is not None and not self._told_shared:
                self._told_shared = True
                self._run.announce(noted("epoch", _SHARED_EPOCH))
            self._begun = "for"
            iterator = _Epoch(self, self._serial)
            self._last_iterator = weakref.ref(iterator)
            return iterator

    def __next__(self) -> Any:
        """Return the next element or batch of the running epoch; block until it is there.

        Raises:
            StopIteration: at the end of the epoch, and again at each later call until `iter(feed)` or `set_epoch()` begins another one.
            FeedClosed: after `close()` or after an error; in a process forked from the one that made the feed.
            PlanError: in a worker of a torch DataLoader.
            FeedStalled: an element ran longer than `stall_timeout_s` while this call waited, or nothing ran at all.
        """
        self._begun = self._begun or "next"
        item = self._next(self._serial)
        if item is _END:
            raise StopIteration
        return item

    def _next(self, serial: int) -> Any:
        """Take the next item of an epoch, or return _END. A signal handler may raise at any call in it: then the item is still in hand."""
        item = taken_from = None
        try:
            with self._lock:
                if not self._fill(serial):
                    return _END
                items = self._delivery.items
                item = items[-1]
                out = self._converted() if self._converts else item
                taken_from = items
                del items[-1]  # no call stands between this and the line before, and no signal is looked at
            return out
        except BaseException:
            if taken_from is not None:  # interrupted while the lock was let go
                taken_from.append(item)
            raise

    def _fill(self, serial: int) -> bool:
        """Have the next element of an epoch at hand, and return True; or False at its end. `serial` is its number among those begun."""
        if serial != self._serial:
            if serial not in self._left:
                return False
            raise FeedClosed(
                "this iterator's epoch was left: another `for`, set_epoch() or load_state_dict() began one meanwhile",
                where="next(iter(feed))",
                fix="share one `it = iter(feed)` among threads; make a feed of its own for each loop that runs at the same time",
            )
        if (not self._delivery.items or self._condition != "running") and not self._refill():
            return False
        if self._watch_spec:
            self._check_spec(self._delivery.items[-1])
        return True

    def _converted(self) -> Any:
        """Return the next item as the output gives it."""
        ready = self._delivery.ready
        try:
            return self._run.converted(self._delivery.items, more=not ready.end and ready.error is None)
        except Exception as error:
            if signal_in(error) is None:
                add_note(error, f"penstock: output={self._compiled.options.output_name!r}, {self._name_of_next()}")
                self._shut("failed")
            raise

    # -- epochs -------------------------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Begin epoch number `epoch`, from 0. Nothing changes if that is the running one and no element of it was delivered by this feed.

        What runs now is closed first. A state that was loaded in the middle of that epoch is kept: call this before each epoch.

        Raises:
            PlanError: it is no whole number >= 0.
            FeedClosed: after `close()` or after an error; in a process forked from the one that made the feed.
        """
        number = check.count_argument(epoch, "epoch", "set_epoch")
        with self._lock:
            if self.is_closed():
                self._refuse("Feed.set_epoch")
            if number != self._delivery.epoch or self._condition != "new":
                self._begin_epoch(number)

    def _is_over(self) -> bool:
        return self._condition == "ended" or self._delivery.is_over(self._compiled.length)

    def _leave_epoch(self) -> None:
        delivery = self._delivery
        if not self._told_left:
            self._told_left = True
            text = (
                f"epoch {delivery.epoch} was left after {delivery.now()[0] - delivery.first_step} of its elements, and the next `for` "
                f"begins epoch {delivery.epoch + 1}, as with a DataLoader; use next(feed) or one `it = iter(feed)` to "
                "go on in the same epoch"
            )
            self._run.announce(noted("epoch", text))
        self._begin_epoch(delivery.epoch + 1)

    def _begin_epoch(self, epoch: int) -> None:
        if self._pid != os.getpid():  # forked between two epochs
            self._condition = "inherited"
            self._refuse("Feed.__iter__")
        over = self._is_over()
        if over and self._condition == "running":
            self._refill()  # comes to the end, or raises what closing a generator raises
        token = self._start_of(epoch)
        if not over:
            self._left.add(self._serial)
        parts = [ResumeStep(self._part, token._replace(note=None))]  # the source itself begins its next pass
        step = self.step
        begin = Delivery.begin(step, ResumeStep(self._part, token), epoch, step)
        self._go_to(parts, begin, "", self._serial + 1)

    def _go_to(self, parts: list[ResumeStep], delivery: Delivery, begun: Literal["", "next", "for", "state"], serial: int) -> None:
        """Close what runs, and go on at the first of `parts`. Whatever interrupts it, the feed is there afterwards, or where it was."""
        counts = parts[0].token.loss_counts
        # No call stands between these, and so no signal is looked at.
        self._parts, self._delivery, self._loss_counts, self._begun, self._serial = parts, delivery, counts, begun, serial
        self._condition = "new"
        self._shut("new")

    def _start_of(self, epoch: int) -> Token:
        """Return where an epoch begins that follows what was delivered."""
        last, note, counts = self._delivery.now()[1], None, self._run.loss_counts()
        if last.note is not None:
            note = last.note._replace(cut=last.note.cut or not self._is_over())
        if counts is None:
            counts = self._loss_counts if self._condition == "ended" else last.loss_counts
        return Token((epoch * self._compiled.program.passes_per_epoch, 0), note=note, loss_counts=counts)

    # -- state --------------------------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """How many elements or batches were delivered, those before a resume included."""
        return self._delivery.now()[0]

    @property
    def epoch(self) -> int:
        """The number of the epoch, from 0, of the element that was delivered last; after a loop has ended, that of the next one.

        A `repeat(n)` in the dataset is part of one epoch.
        """
        return self._delivery.epoch + (self._condition == "ended")

    def state_dict(self) -> dict[str, Any]:
        """Return what resumes right behind the last delivered element: a small JSON-able dict. Does not block.

        Behind the last element of an epoch it is the start of the next one; where the length is not known, once its end was seen.

        Raises:
            StateUnavailable: when the source is a generator without `fast_forward=True`.
        """
        delivery, over = self._delivery, self._is_over()
        step, token = delivery.now()
        if over and is_end_of_all(self._compiled.root, delivery.part, token):
            part, epoch = self._part, (delivery.epoch + 1, 0)
            token = self._start_of(delivery.epoch + 1)
        else:
            part, epoch = delivery.part, (delivery.epoch, step - delivery.first_step)
        return saved(self._compiled.root, part, token, step, self._compiled.fingerprints, VERSION, epoch)

    def load_state_dict(self, state: Any, *, strict: bool = True, may_differ: Sequence[str] = ()) -> None:
        """Continue behind a saved state: a dict of `state_dict()`, or its JSON. What runs now is closed first.

        Valid for any number of workers, block size and executor; for another `shard(num_shards, index)` where nothing but map, batch,
        repeat and prefetch stands above it. With strict=False the plan and the data are not compared; the rank of a state of one rank is.

        Args:
            state: what `state_dict()` returned.
            strict: whether to compare the plan and the data.
            may_differ: `("batch",)` goes on with another batch size behind the elements that were delivered, where only map, prefetch and
                one repeat follow the batch. The next batch begins with the next element; `step` counts on.

        Raises:
            PlanError: `may_differ` names something else.
            StateDamaged: when the state is cut, changed or out of bounds.
            StateMismatch: when it belongs to another plan, dataset or version; the text names the first difference.
            FeedClosed: in a process forked from the one that made the feed.
        """
        if self._pid != os.getpid():
            self._condition = "inherited"
            self._refuse("Feed.load_state_dict")
        if may_differ not in ((), ("batch",), ["batch"]):
            raise PlanError(
                f"may_differ={may_differ!r}", where="load_state_dict()", fix="give may_differ=('batch',): nothing else may differ"
            )
        dataset = self._compiled.fingerprints if strict else []
        at = restored(self._compiled.root, state, dataset, strict=strict, other_batch=bool(may_differ))
        parts = at.parts
        if not self._is_over():
            self._left.add(self._serial)
        self._closed = self._has_agreed = False
        self._go_to(parts, Delivery.begin(at.step, parts[0], at.epoch, at.first_step), "state", self._serial + 1)
        self._run.stats.begin_from(*lost_before(parts[0].token))

    # -- figures ------------------------------------------------------------------------------------------------------------------

    def stats(self) -> Snapshot:
        """Return what was measured so far: work per stage, waiting of the consumer, notices."""
        return self._run.stats.snapshot()

    def add_listener(self, listener: Listener) -> None:
        """Announce every event to one more listener, in the thread where it happens.

        A listener that raises is switched off, with one warning; training goes on.

        Raises:
            PlanError: it is no function.
        """
        self._run.listeners += map(Guarded, check.listeners_argument([listener]))

    def fills(self) -> list[Fill]:
        """Return how full its buffers are now: batches that are ready, and blocks that wait for a stage. Empty while nothing runs."""
        return self._run.fills()

    def memory(self) -> FeedMemory:
        """Return where its memory is now: buffers, elements by stage, batches that the training loop keeps. Costs 20 us."""
        return self._run.memory(self.step)

    def is_closed(self) -> bool:
        """Return whether it was closed, or has stopped at an error. Between two epochs it is not."""
        return self._closed or self._condition not in ("new", "running", "ended")

    def _place(self) -> FeedPlace:
        delivery = self._delivery
        batch_size = self._compiled.root.batch_size_each()
        unit = "elements" if batch_size == 1 else "batches"
        total = None if self._compiled.length == INFINITE else int(self._compiled.length)
        return FeedPlace(delivery.epoch, self.step - delivery.first_step, total, unit, None if batch_size == 1 else batch_size)

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
            where=f"stage {self._compiled.root.line()!r}, {self._name_of_next()}",
            fix="use drop_remainder=True for batches of one size, Replace() where Skip shortens them, and resize, crop or pad to one "
            "shape; or do not finalize()",
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
        self._closed = True
        alive = self._shut("closed" if self._condition in ("new", "running") else self._condition)
        for observer in self._observers:
            observer.close()
        if alive:
            raise StillRunning(
                f"{len(alive)} worker(s) did not stop inside {self._compiled.options.grace_period_s} s: {', '.join(alive)}",
                where="Feed.close()",
                fix="the functions they run are still busy; give them timeouts, or a longer grace_period_s",
            )

    def _shut(self, condition: str) -> list[str]:
        self._condition = condition
        alive: list[str] = []
        if self._run.is_open:
            self._run.stop()
            alive = self._run.close()
            self._losses.end(self._delivery.epoch, self._run.announce)
        if self._closed or condition == "failed":
            self._run.end()
        return alive

    def _leave_to_parent(self) -> None:
        """Let go of all that runs, in a process that was just forked: no thread of it is here, and one may have held any of its locks."""
        self._run.leave()
        leak(self._delivery.ready)
        self._lock = threading.Lock()
        if self._condition in ("new", "running"):
            self._condition = "inherited"

    def _check_and_start(self) -> None:
        refuse_while_imported("a feed")
        if "torch.utils.data" in sys.modules:
            refuse_loader_worker()
        if self._agree is not None and not self._has_agreed:
            try:
                self._agree([*self._compiled.common_to_ranks(), f"epoch {self.epoch}, step {self.step}"])
            except PlanError:
                self._shut("failed")
                raise
            self._has_agreed = True
        try:
            if self._run.is_open:  # interrupts, the second while the first was raised
                self._shut("new")
            note_running(self)
            while self._notices:
                self._run.announce(noted(*self._notices.pop(0)))
            here = self._parts[0], self._delivery.epoch, self.step, self.memory
            try:
                self._run.open(*here)
            except PlanError as error:
                self._run = self._run.instead(error)
                self._run.open(*here)
            if self._condition == "new":
                self._condition = "running"
            elif self._run.is_open and not self._run.stopping:  # close() came meanwhile, before there was an engine to stop
                self._shut(self._condition)
        except BaseException as error:
            interrupt = signal_in(error)
            self._shut("failed" if interrupt is None else "new")
            raise interrupt or error from cause_of(interrupt or error)

    def _refill(self) -> bool:
        """Take the next hand-over and return True, or False at the end; raise the pending error, or FeedClosed when there is no more."""
        begin_ns = time.perf_counter_ns()
        while True:
            if self._condition == "new":
                self._check_and_start()
            if self._condition == "ended":
                return False
            if self._condition != "running":
                self._refuse()
            ready = None  # no error may be left in it: see below
            if self._delivery.ready.error is not None:
                self._raise_pending(self._delivery.ready.error)
            if self._delivery.ready.end:
                self._next_part()
                continue
            ready = self._run.poll(self._hold, begin_ns)
            if ready is None:
                if self._run.is_torn:
                    self._begin_again()
                else:
                    self._end_with_the_interpreter()
                continue
            now_ns = time.perf_counter_ns()
            if now_ns >= self._advice.due_ns and ready.items and (text := self._advice.text(now_ns, self.stats(), ready.items[0])):
                self._run.announce(noted("advice", text))
            self._losses.look(ready.items, self._run.announce)  # last: a program may have turned warnings into errors
            if ready.items:
                return True

    def _hold(self, ready: Ready) -> None:
        """Make a hand-over the current one, in one step: what it holds is then delivered by this feed, whatever interrupts it."""
        if ready is not self._delivery.ready:
            self._delivery = self._delivery.then(ready)

    def _begin_again(self) -> None:
        """Go on behind the last delivered element with a new engine: an interrupt left the old one in the middle of a change.

        Raises:
            FeedClosed: the source is a generator that cannot be read again.
        """
        delivery = self._delivery
        step, token = delivery.now()
        epoch = delivery.epoch, step - delivery.first_step
        try:
            root = self._compiled.root
            at = restored(root, saved(root, delivery.part, token, step, self._compiled.fingerprints, VERSION, epoch), [], strict=False)
        except StateUnavailable as lost:
            self._shut("failed")
            raise FeedClosed(
                f"an interrupt came while an element was on its way, and it cannot be read again: {lost.what}",
                where="next(feed)",
                fix="make a new feed; from_generator(fast_forward=True) and sources with positions go on after an interrupt",
            ) from lost
        self._go_to(at.parts, Delivery.begin(step, at.parts[0], at.epoch, delivery.first_step), self._begun, self._serial)

    def _end_with_the_interpreter(self) -> None:
        """End the consumer's thread without a word: a feed that somebody holds is stopped only at exit, when daemon threads are left."""
        if self._condition != "running":
            return
        if threading.current_thread().daemon:
            sys.exit()
        self._condition = "closed"

    def _next_part(self) -> None:
        """Go on with the next part of a moved state, or end for good: the program is at its end."""
        counts = self._run.loss_counts()
        loss_counts = self._loss_counts = self._delivery.now()[1].loss_counts if counts is None else counts
        try:
            self._shut("running")  # not closed for a moment: observers would end
        except BaseException as error:
            if signal_in(error) is None:  # but out of a generator's `finally`
                self._condition = "failed"
            raise
        self._delivery, self._condition = self._delivery._replace(ready=self._delivery.ready._replace(end=False)), "new"
        if len(self._parts) > 1:
            del self._parts[0]
            here = self._parts[0] = self._parts[0]._replace(token=self._parts[0].token._replace(loss_counts=loss_counts))
            self._delivery = Delivery.begin(self.step, here, self._delivery.epoch, self._delivery.first_step)
            return
        self._condition = "ended"
        if self.step == 0 and self._warns_when_empty:
            self._warns_when_empty = False  # once
            warn("this dataset gave no elements: the source, a filter or a take left nothing", UserWarning)

    def _raise_pending(self, failure: Failure) -> None:
        failures = self._run.failures
        error = failure.error
        self._delivery = self._delivery._replace(ready=self._delivery.ready._replace(error=None))
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
            raise error from cause_of(error)
        else:
            raise error
        finally:  # a frame that an error passes may not hold it: all that both hold would stay in memory
            del error, failure, failures

    def _refuse(self, where: str = "Feed.__next__") -> None:
        if self._condition == "inherited":
            refuse_loader_worker()
            raise FeedClosed(
                f"this feed belongs to process {self._pid}, and this is process {os.getpid()}, which was forked from it: the workers are "
                "not here, and what it delivers is delivered there",
                where=where,
                fix=f"make a new feed here with ds.feed(); {_ONE_PART_EACH}",
            )
        if self._condition == "failed":
            raise FeedClosed(
                "this feed stopped at an error, which was raised before",
                where=where,
                fix="mend the cause, then load_state_dict() of the last state into a new feed",
            )
        raise FeedClosed("this feed is closed", where=where, fix="make a new one with ds.feed()")
