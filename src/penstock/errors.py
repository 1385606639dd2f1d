"""Every exception that Penstock raises of its own.

    PenstockError
    |- PlanError (ValueError)            a pipeline that cannot run as it was described
    |  |- LengthUnknown (TypeError)      len() of a dataset that is endless or must be read to be counted
    |  |- OutOfRange (IndexError)        ds[i] beyond the end
    |  '- UnknownArgument (TypeError)    a keyword that a call does not have
    |- SourceError                       a source that is not what it said it was
    |  |- ListFileError (ValueError)     a line of a list file that cannot be read
    |  |- LengthMismatch                 a source or generator gave more or fewer elements than declared
    |  |- RecordError (ValueError)       bytes of a file that are not the records they should be; file, record and offset in the text
    |  |- IndexStale                     a file that is not the one its index was built of, or that was opened
    |  |- ObjectChanged                  a remote object that was replaced while it was read
    |  '- StorageError (OSError)         a remote store that did not give what it was asked for, after all retries
    |- DecodeError (ValueError)          bytes that are not the image they should be
    |- SpecError (ValueError)            a shape, dtype or structure that does not fit
    |- StateError
    |  |- StateMismatch                  a state of another plan, dataset or version
    |  |- StateDamaged                   a state whose bytes cannot be trusted
    |  '- StateUnavailable               a source that cannot say where it is
    |- StopRaised (RuntimeError)         a user's function raised StopIteration, a cancellation, or asked to exit
    |- NotRepeatable (RuntimeError)      an element that was computed twice, with verify=, and is not the same
    |- TooManySkipped (RuntimeError)     a policy left out or replaced more than it may
    |- FeedClosed (RuntimeError)         next() on a feed after close(), after its error, or in a forked process
    |- FeedStalled (TimeoutError)        an element, or a wait of the consumer, that lasted longer than stall_timeout_s
    |- StillRunning (RuntimeError)       threads that did not stop inside the grace period
    |- CoordinationError (RuntimeError)  a coordinator or runner that is used in an order that cannot work
    |- WorkerDied (RuntimeError)         a child process that ended before its work did
    |- WorkerFailed (RuntimeError)       an error of a child process that cannot be sent as itself; type and traceback in the text
    |- QueueError                        what a queue could not do; `num_done` elements went in before
    |  |- QueueClosed (RuntimeError)     a closed queue has too few elements left: the end of its data
    |  |  '- EnqueueCancelled            an enqueue on, or blocked at, a queue that was closed
    |  |- QueueTimeout (TimeoutError)    `timeout_s` ran out; with 0: it would have had to wait
    |  '- QueueStarved (RuntimeError)    a wait without limit that no thread can end
    |- PackError (RuntimeError)          a packed dataset that could not be completed; what is under its final name is complete
    |- LawBroken (AssertionError)        a class of yours that breaks a law of penstock.testing
    '- MissingExtra (ImportError)        an optional package that is not installed

An exception of the user's own function is never replaced by one of these: it reaches the consumer as its own
type, with a note that names stage, worker and key.
"""

from __future__ import annotations

__all__ = [
    "CoordinationError",
    "DecodeError",
    "EnqueueCancelled",
    "FeedClosed",
    "FeedStalled",
    "IndexStale",
    "LawBroken",
    "LengthMismatch",
    "LengthUnknown",
    "ListFileError",
    "MissingExtra",
    "NotRepeatable",
    "ObjectChanged",
    "OutOfRange",
    "PackError",
    "PenstockError",
    "PlanError",
    "QueueClosed",
    "QueueError",
    "QueueStarved",
    "QueueTimeout",
    "RecordError",
    "SourceError",
    "SpecError",
    "StateDamaged",
    "StateError",
    "StateMismatch",
    "StateUnavailable",
    "StillRunning",
    "StopRaised",
    "StorageError",
    "TooManySkipped",
    "UnknownArgument",
    "WorkerDied",
    "WorkerFailed",
]


class PenstockError(Exception):
    """Say what happened, where, and what to do.

    Args:
        what: one sentence with the values that matter.
        where: the stage, file, line, key or argument concerned.
        fix: what the user can do about it.
    """

    def __init__(self, what: str, *, where: str, fix: str) -> None:
        super().__init__(f"{what}\n  where: {where}\n  fix:   {fix}")
        self.what = what
        self.where = where
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.fix))


def _rebuild(kind: type[PenstockError], what: str, where: str, fix: str) -> PenstockError:
    return kind(what, where=where, fix=fix)


class PlanError(PenstockError, ValueError):
    """The pipeline as described cannot run."""


class LengthUnknown(PlanError, TypeError):
    """The dataset is endless, or only reading it can tell its length. A TypeError, as `list(ds)` expects of `len(ds)`."""


class OutOfRange(PlanError, IndexError):
    """The index is beyond the end. An IndexError, as the sequence protocol expects."""


class UnknownArgument(PlanError, TypeError):
    """A call does not have this keyword. A TypeError, as Python's own; for names of tf.data and PyTorch the text says what is used here."""


class SourceError(PenstockError):
    """A source is not what it said it was.

    Attributes:
        file: number of the remote object that it is of, inside the library; None where it is not known.
    """

    file: int | None = None


class ListFileError(SourceError, ValueError):
    """A line of a list file cannot be read; the line number is in the text."""


class LengthMismatch(SourceError):
    """A source gave more or fewer elements than it declared."""


class RecordError(SourceError, ValueError):
    """The bytes of a file are not the records they should be."""


class IndexStale(SourceError):
    """A file is not the one that its index was built of, or was changed or replaced since the dataset was opened."""


class ObjectChanged(SourceError):
    """A remote object was replaced between two reads."""


class StorageError(SourceError, OSError):
    """A remote store did not give what it was asked for, after all retries or at the deadline."""


class DecodeError(PenstockError, ValueError):
    """The bytes are not a readable image."""


class SpecError(PenstockError, ValueError):
    """A shape, dtype or structure does not fit."""


class StateError(PenstockError):
    """A saved state cannot be used."""


class StateMismatch(StateError):
    """The state belongs to another plan, dataset or version."""


class StateDamaged(StateError):
    """The state is cut, changed or out of bounds."""


class StateUnavailable(StateError):
    """A source of this pipeline cannot say where it is."""


class StopRaised(PenstockError, RuntimeError):
    """A user's function raised StopIteration, StopAsyncIteration, GeneratorExit, CancelledError, SystemExit or KeyboardInterrupt."""


class NotRepeatable(PenstockError, RuntimeError):
    """A function gave another result for an element when it was computed again, as `verify=` asks; no policy acts on it."""


class TooManySkipped(PenstockError, RuntimeError):
    """A policy lost more elements than its limit allows, or all of a batch beside `shard()`; the last element's error is the cause."""


class FeedClosed(PenstockError, RuntimeError):
    """next() was called on a feed that is closed, has failed, or belongs to the process that this one was forked from."""


class FeedStalled(PenstockError, TimeoutError):
    """An element ran longer than `stall_timeout_s`, or nothing ran at all; the text says where, with the worker's stack."""


class StillRunning(PenstockError, RuntimeError):
    """Threads did not stop inside the grace period; they are named."""


class CoordinationError(PenstockError, RuntimeError):
    """A coordinator or a runner is used in an order that cannot work: it would wait for ever, or end with nothing done."""


class WorkerDied(PenstockError, RuntimeError):
    """A child process ended before its work did; the signal or exit code is in the text."""


class WorkerFailed(PenstockError, RuntimeError):
    """An error of a child process whose exception cannot be pickled; its type, text and traceback are in the text."""


class QueueError(PenstockError):
    """A queue could not do what was asked of it.

    Attributes:
        num_done: elements that went in before an `enqueue_many` was cut short; go on with the rest. 0 for everything else.
        num_left: elements that a closed queue still has, too few for this read. 0 for everything else.
    """

    num_done: int = 0
    num_left: int = 0

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.fix), {"num_done": self.num_done, "num_left": self.num_left})


class QueueClosed(QueueError, RuntimeError):
    """The queue is closed and holds fewer elements than asked for: the end of its data. What is left can still be taken."""


class EnqueueCancelled(QueueClosed):
    """The queue was closed before the elements were in."""


class QueueTimeout(QueueError, TimeoutError):
    """The time limit of a call ran out; the queue holds what it held."""


class QueueStarved(QueueError, RuntimeError):
    """No thread can end this wait: it would last for ever."""


class PackError(PenstockError, RuntimeError):
    """A packed dataset could not be completed. Every file under its final name is complete; a rerun goes on."""


class LawBroken(PenstockError, AssertionError):
    """A source, operator or executor does not do what the engine relies on. An AssertionError, so that test runners count a failure."""


class MissingExtra(PenstockError, ImportError):
    """An optional package is not installed; the extra that brings it is named."""
