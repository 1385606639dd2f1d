"""Errors that travel: the exception itself where it can be pickled, its type and traceback as text always."""

from __future__ import annotations

import pickle
from contextlib import suppress
from dataclasses import dataclass

from penstock._contracts.failing import add_note, argument_of, text_of, traceback_text_of, would_end
from penstock.errors import StopRaised, WorkerFailed

__all__ = ["Failure", "fit_to_raise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An exception on its way to another process.

    Attributes:
        kind: module and name of its type.
        text: its text.
        traceback: the traceback as Python prints it, causes included.
        pickle: the exception, or None where it cannot be pickled and read again.
    """

    kind: str
    text: str
    traceback: str
    pickle: bytes | None

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Pack an exception that was caught."""
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        return cls(kind=kind, text=text_of(error), traceback=traceback_text_of(error).rstrip(), pickle=_pickle_of(error))

    def error(self, where: str) -> BaseException:
        """Return the exception to raise: the original with the child's traceback as a note, or a `WorkerFailed` that tells both."""
        error = None if self.pickle is None else _read(self.pickle)
        if error is None:
            return WorkerFailed(
                f"{self.kind}: {self.text}",
                where=f"{where}; there it was\n{self.traceback}",
                fix="mend what raised it; the exception itself could not be pickled, so only its type and text came here",
            )
        return fit_to_raise(error, f"{where}; there it was\n{self.traceback}")


def fit_to_raise(error: BaseException, where: str) -> BaseException:
    """Return the exception with a note that says where it was raised.

    One that a loop, the interpreter or an async program would take for a normal end becomes a `StopRaised`, with the original as its cause.
    """
    if would_end(error):
        stopped = StopRaised(
            f"{type(error).__name__} was raised{f' {argument_of(error)}'.rstrip()}, which would pass for an end",
            where=where,
            fix="raise another exception for an error; a generator ends by returning",
        )
        stopped.__cause__ = error
        return stopped
    add_note(error, f"penstock: {where}")
    return error


def _pickle_of(error: BaseException) -> bytes | None:
    # What a user's __reduce__ or __init__ raises here may be anything; the error that counts is `error`.
    with suppress(Exception):
        data = pickle.dumps(error, protocol=5)
        if type(pickle.loads(data)) is type(error):
            return data
    return None


def _read(data: bytes) -> BaseException | None:
    with suppress(Exception):
        error = pickle.loads(data)
        return error if isinstance(error, BaseException) else None
    return None
