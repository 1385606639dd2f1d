"""Errors that travel: the exception itself where it can be pickled, its type and traceback as text always."""

from __future__ import annotations

import pickle
from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import WorkerFailed

__all__ = ["Failure"]


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
        from traceback import TracebackException

        told = TracebackException.from_exception(error)
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        # str(told) is safe also where the exception's own __str__ fails.
        return cls(kind=kind, text=str(told), traceback="".join(told.format()).rstrip(), pickle=_pickle_of(error))

    def error(self, where: str) -> BaseException:
        """Return the exception to raise: the original with the child's traceback as a note, or a `WorkerFailed` that tells both."""
        error = None if self.pickle is None else _read(self.pickle)
        if error is None:
            return WorkerFailed(
                f"{self.kind}: {self.text}",
                where=f"{where}; there it was\n{self.traceback}",
                fix="mend what raised it; the exception itself could not be pickled, so only its type and text came here",
            )
        with suppress(AttributeError, TypeError):  # a frozen dataclass takes no notes
            error.add_note(f"penstock: {where}; there it was\n{self.traceback}")
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
