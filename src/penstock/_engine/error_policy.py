"""What becomes of an element that fails: it is run again, replaced, left out and counted, or its error goes to the consumer with a note."""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple, TypeVar

from penstock._contracts.event import ElementRetried, Event
from penstock._contracts.policy import Policy, Raise, Replace, Retry, Skip, decide
from penstock._engine.chunk import Entry, Failure, Key, KnownLoss, LossCounts, LostElement, merged
from penstock._engine.program import Policies
from penstock._ops.block import ElementFailed, EmptyBatch
from penstock._system.failing import add_note, argument_of, cause_of, notes_of, traceback_of, words_of, would_end
from penstock.errors import PenstockError, StopRaised, TooManySkipped

MOST_REPLACEMENTS = 100
"""So many elements in a row are tried in the place of one: more are no accident."""

T = TypeVar("T")


class Partial(NamedTuple):
    """The result of the first rows of a piece: there was no room for more."""

    result: Any
    end: int


class Before(NamedTuple):
    """What an input gives before one of its elements fails."""

    result: Any
    failure: Failure


class FailedElement(NamedTuple):
    """One failing element: who it is, and how to run it again.

    Attributes:
        loss: what is counted if it is left out; its failure and its policy tell the rest.
        again: runs it.
        others: run the elements that may stand in for it, the nearest first, each with its distance; None when there are none.
        restore: undoes what `others` changed.
        replayed: whether it was read before the state was saved that the run began with.
    """

    loss: LostElement
    again: Callable[[], Any]
    others: Callable[[], Iterable[tuple[int, Callable[[], Any]]]] | None = None
    restore: Callable[[], None] = lambda: None
    replayed: bool = False

    def known_as(self, known: KnownLoss) -> LostElement:
        """Return what is counted for it when it is known from a saved state and not run again."""
        return self.loss._replace(how=known.how, site=known.site, inner=known.inner)


SKIPPED, EMPTY = object(), object()
"""They stand for the result of an element that is left out, and for a batch inside the leaf of which nothing is left."""


class ErrorHandler(NamedTuple):
    """Applies policies for one engine.

    Attributes:
        policies: what to do.
        pause: waits so many seconds; returns True when the engine stops meanwhile.
        retrying: gets (failure, key, worker, number of the retry, wait) before each retry.
    """

    policies: Policies
    pause: Callable[[float], bool]
    retrying: Callable[[ElementFailed, Key, int, int, float], None]

    def cares(self, failed: ElementFailed) -> bool:
        """Tell whether something is to be done about a failure but to raise it."""
        return not isinstance(decide(self.policies.of(failed)[0], failed.error, 0), Raise)

    def handle(self, case: FailedElement, failed: ElementFailed, worker: int, lost: list[LostElement]) -> tuple[Any, ElementFailed]:
        """Return the result of the element or of its replacement, SKIPPED, or a Failure, and how it failed the last time.

        Books what was skipped or replaced in `losses`.
        """
        if isinstance(failed.error, EmptyBatch):
            return EMPTY, failed
        try:
            policy, site, failed, retries, result = self._try_again(case, failed, worker)
            return (result if policy is None else self._given_up(case, policy, site, failed, worker, retries, lost)), failed
        finally:  # the frames of an error of a retry lead to this one: all that both hold would live until a collection
            del failed

    def _given_up(
        self, case: FailedElement, policy: Policy, site: str, failed: ElementFailed, worker: int, retries: int, lost: list[LostElement]
    ) -> Any:
        """Do what the policy says about an element that is not tried again."""
        if retries:
            add_note(failed.error, f"penstock: tried {retries + 1} times")
        failure = Failure(case.loss.row, failed.error, failed.stage, worker)
        if not isinstance(policy, (Skip, Replace)):
            return failure
        if case.replayed:
            add_note(failed.error, _FAILED_ONLY_NOW)
            return failure
        loss = case.loss._replace(site=site, limit=policy.limit, quarantine=policy.quarantine)
        loss = loss._replace(stage=failed.stage, worker=worker, error=failed.error, retries=retries)
        if isinstance(policy, Skip):
            if failed.inner is not None:
                loss = loss._replace(key=failed.key or loss.key, inner=(0, *failed.inner))
            lost.append(loss)
            return SKIPPED
        return self._replaced(case, loss, failure, lost)

    def _replaced(self, case: FailedElement, loss: LostElement, failure: Failure, lost: list[LostElement]) -> Any:
        count = 0
        for distance, run in case.others() if case.others is not None else ():
            count += 1
            try:
                result = run()
            except ElementFailed as other:
                _let_interrupt_through(other)
                policy, _, _, _, result = self._try_again(case._replace(again=run), other, loss.worker)
                if policy is not None:
                    continue
            lost.append(loss._replace(how=distance))
            return result
        case.restore()
        words = f"the next {count} elements failed as well" if count else "there is no other element to put in its place"
        add_note(failure.error, f"penstock: Replace() gave up: {words}")
        return failure

    def _try_again(self, case: FailedElement, failed: ElementFailed, worker: int) -> tuple[Policy | None, str, ElementFailed, int, Any]:
        """Retry as often as the policies say; return what is to be done then, or None and the result."""
        tries: dict[str, int] = {}
        try:
            while True:
                policy, site = self.policies.of(failed)
                policy = decide(policy, failed.error, tries.get(site, 0))
                if not isinstance(policy, Retry):
                    return policy, site, failed, sum(tries.values()), None
                number = tries[site] = tries.get(site, 0) + 1
                wait_s = policy.wait_s(number - 1)
                self.retrying(failed, case.loss.key, worker, number, wait_s)
                if wait_s and self.pause(wait_s):
                    return Raise(), site, failed, number - 1, None  # the engine stops, and no consumer takes it
                try:
                    return None, site, failed, number, case.again()
                except ElementFailed as again:
                    _let_interrupt_through(again)
                    failed = again.with_traceback(None)
        finally:  # as in `handle`
            del failed


_FAILED_ONLY_NOW = (
    "penstock: this element is read again because the saved state needs it, and it did not fail before; left out now, it would shift all "
    "behind it"
)


def handled(
    error_handler: ErrorHandler,
    case_of: Callable[[list[tuple[int, ...]]], FailedElement],
    run: Callable[[list[tuple[int, ...]]], Any],
    failed: ElementFailed | None,
    known: Iterable[KnownLoss],
    worker: int,
    lost: list[LostElement],
) -> Any:
    """Return what stands for an input that failed, without those of the elements that it gave which are left out.

    Where one of several elements raises, those before it are run again: one of them may fail, too, in a later step, and comes first.

    Args:
        error_handler: says what becomes of it.
        case_of: makes the case of the input without some elements (step, number).
        run: runs the input without some elements.
        failed: None when the input is only known to have failed before the state was saved.
        known: what was left out of it then, at this stage.
        worker: the number of the worker.
        lost: gets what was left out or replaced.
    """
    without = [one.inner[1:] for one in known if one.inner]
    lost.extend(case_of(without).known_as(one) for one in known)
    behind: Failure | None = None
    try:
        while True:
            if failed is not None:
                result, failed = error_handler.handle(case_of(without), failed, worker, lost)
                if isinstance(result, Failure) and failed.inner is not None and failed.inner[1]:
                    behind = result
                    without.append((*failed.inner, 1))
                    failed = None
                    continue
                inner = lost[-1].inner[1:] if result is SKIPPED else ()
                if not inner:
                    return result
                without.append(inner)
                failed = None
                continue
            try:
                result = run(without)
                return result if behind is None else Before(result, behind)
            except ElementFailed as found:
                _let_interrupt_through(found)
                failed = found.with_traceback(None)
    finally:  # as in `ErrorHandler.handle`
        del failed


RAISING = ErrorHandler(policies=Policies(), pause=lambda seconds: False, retrying=lambda *what: None)
"""For engines without policies."""


def _let_interrupt_through(failed: ElementFailed) -> None:
    if is_interrupt(failed.error):
        raise failed.error from None


def in_pieces(
    begin: int,
    end: int,
    known: Collection[int],
    run: Callable[[int, int], T | Partial],
    handle: Callable[[int, ElementFailed | None], Any],
    *,
    one_by_one: bool = False,
    singly: Collection[int] = (),
) -> tuple[list[tuple[int, T]], int, Failure | None]:
    """Run the rows begin..end, around those that fail or are known to.

    Args:
        begin: the first row.
        end: behind the last one.
        known: rows that `handle` is to be asked for at once.
        run: computes rows (begin, end); an ElementFailed counts from its begin, and a Partial ends all.
        handle: returns what stands for a row that failed: a result, SKIPPED or a Failure. None stands for a row that is known.
        one_by_one: whether each row is run alone.
        singly: rows that are.

    Returns:
        (the results, each with its first row; the first row that is not done; the failure or None).
    """
    done: list[tuple[int, T]] = []
    failed: ElementFailed | None = None
    bad = end
    alone = end if one_by_one else begin  # up to here rows are run one by one: they failed as one block
    while begin < end:
        stop = min([bad, *(row for row in known if begin <= row), *(row + (row == begin) for row in singly if begin <= row)])
        if begin < alone:
            stop = min(stop, begin + 1)
        if begin < stop:
            try:
                result: Any = run(begin, stop)
                if isinstance(result, Partial):
                    return [*done, (begin, result.result)], result.end, None
                done.append((begin, result))
            except ElementFailed as found:
                _let_interrupt_through(found)
                if found.whole and stop - begin > 1:
                    alone = stop
                else:
                    # With its traceback it would hold this frame, which holds it: elements and all would live until a collection.
                    failed, bad = found.with_traceback(None), begin + found.offset
                continue
            begin = stop
            continue
        result = handle(begin, failed if begin == bad else None)
        if isinstance(result, (Failure, Before)):
            return _up_to(done, begin, result)
        if result is not SKIPPED:
            done.append((begin, result))
        if begin == bad:
            bad, failed = end, None
        begin += 1
    return done, begin, None


def _up_to(done: list[tuple[int, T]], row: int, end: Failure | Before) -> tuple[list[tuple[int, T]], int, Failure]:
    """Return what `in_pieces` does when a row fails, or one of several elements of it."""
    if isinstance(end, Failure):
        return done, row, end._replace(at=row)
    return [*done, (row, end.result)], row + 1, end.failure._replace(at=row + 1, inside=True)


# -- losses: counted in their order, and announced ------------------------------------------------------------------------------

_FEWEST = 100  # so many elements count as read for a rate: one bad element among the first ten says little


class LossLedger:
    """Counts the losses of one segment in their order. Its owner holds the lock.

    Attributes:
        tally: of this segment, and of the state that the run began with.
        fresh: what has not been announced yet, shared by all segments.
    """

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


def tell_retry(announce: Callable[[Event], Any], failed: ElementFailed, key: Key, worker: int, retry: int, wait_s: float) -> None:
    """Announce that an element will be tried again."""
    announce(ElementRetried(time.perf_counter_ns(), failed.stage, worker, key, retry, wait_s, failed.error))


class LossAnnouncer:
    """Announces what was skipped and replaced. From any thread.

    Attributes:
        waiting: what was booked and is not announced yet.
        broken: the error of a listener that could not write it down; nothing may be delivered after it.
    """

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


# -- errors on their way to the consumer: the user's own exception with where it happened ------------------------------------------

_MACHINERY = ("penstock.", "asyncio.")


def prepare(failure: Failure, words: str, key: tuple[int, int]) -> Failure:
    """Return the failure with an exception fit for the consumer.

    The user's exception keeps its type and traceback and gets a note. One that a loop or the interpreter would take for a normal end
    (StopIteration, SystemExit, ...), or an async program for its own cancellation, becomes a StopRaised, with the original as its cause.
    """
    where = f"stage {failure.stage!r}, worker {failure.worker}, element epoch {key[0]} index {key[1]}" + (f" ({words})" if words else "")
    error = failure.error
    if would_end(error) and not is_interrupt(error):
        stopped = StopRaised(
            f"the function of stage {failure.stage!r} raised {type(error).__name__}{argument_of(error)}",
            where=where,
            fix="raise another exception for an error; filter() or take() end or thin a dataset",
        )
        stopped.__cause__ = error
        return failure._replace(error=stopped)
    note = f"penstock: {where}"
    if note not in notes_of(error):
        add_note(error, note)
    return failure


def is_interrupt(error: BaseException) -> bool:
    """Tell whether an error is the user's Ctrl-C: the main thread alone gets it, and it runs functions only for the inline executor.

    In a worker process the main thread computes too, but Ctrl-C is ignored there: what is raised is the function's own.
    """
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def signal_in(error: BaseException) -> BaseException | None:
    """Return the error if it is an interrupt, or came out of a handler of signals: of a time limit, say. Else None.

    Such an error is none of the function's that it was raised in. Of an error of ours the cause is looked at as well, but not of one of the
    user's: a function that catches its own time limit and raises another error has failed. Where a policy cares for the type, the element
    fails in any case.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    cause = cause_of(error)
    found = cause if isinstance(error, PenstockError) and cause is not None else error
    if isinstance(found, ctypes.ArgumentError) and "KeyboardInterrupt" in str(found):  # it was raised while an argument was converted
        found = KeyboardInterrupt()
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(getattr(handler, "func", handler), "__code__", None) for handler in handlers}
    traceback = traceback_of(found)
    while traceback is not None and traceback.tb_frame.f_code not in codes:
        traceback = traceback.tb_next
    return found if traceback is not None or is_interrupt(found) else None


def attach_others(first: Failure, failures: list[Failure]) -> None:
    """Give the first error a note for each of the others (two workers may fail together)."""
    error = first.error
    for other in failures:
        if other.error is not error and other.error is not cause_of(error):
            add_note(error, f"penstock: also failed: {words_of(other.error)} (stage {other.stage!r})")


def let_go(failures: list[Failure]) -> None:
    """Empty the frames of the engine and its event loop that called those of the tracebacks, when the workers have ended.

    They hold a worker's elements and the error, which holds them: all would stay in memory until a garbage collection.
    A frame of the user's is left alone: it may be that of a generator which waits between two elements, and emptying it would end it.
    """
    for error in [one for failure in failures for one in (failure.error, cause_of(failure.error))]:
        traceback = None if error is None else traceback_of(error)
        frame = None if traceback is None else traceback.tb_frame.f_back
        while frame is not None and str(frame.f_globals.get("__name__")).startswith(_MACHINERY):
            before = frame.f_back
            try:
                frame.clear()
            except RuntimeError:  # it still runs, and so do all that called it
                break
            frame = before


def hear(on_error: Callable[[BaseException], Any], function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function; give what it raises to `on_error`, which sees to it that the consumer gets it."""
    try:
        function(*arguments)
    except BaseException as error:
        on_error(error)
