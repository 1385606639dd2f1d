"""Errors that travel: the exception itself where it can be pickled, its type and traceback as text always."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.failing import add_note, argument_of, text_of, traceback_of, traceback_text_of, would_end
from penstock._contracts.process import reducers
from penstock._ops.block import ElementFailed
from penstock.errors import StopRaised, WorkerFailed

__all__ = ["BY_NAME", "Failure", "Pickling", "by_value", "dump_with_errors", "fit_to_raise", "with_reducers"]


Dumps = Callable[..., bytes]


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
    def of(cls, error: BaseException, dumps: Dumps | None = None) -> Failure:
        """Pack an exception that was caught."""
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        return cls(
            kind=kind, text=text_of(error), traceback=traceback_text_of(error).rstrip(), pickle=_pickle_of(error, dumps or BY_NAME.dumps)
        )

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


class Pickling(NamedTuple):
    """How objects are pickled for another process: by `pickle`, or by `cloudpickle`, which sends by value what a program defines.

    Attributes:
        dumps: as `pickle.dumps`.
        pickler: as `pickle.Pickler`.
    """

    dumps: Dumps
    pickler: type[pickle.Pickler]


BY_NAME = Pickling(pickle.dumps, pickle.Pickler)


def by_value() -> Pickling:
    """Return the pickling of `cloudpickle`.

    Raises:
        ImportError: it is not installed.
    """
    import cloudpickle

    return Pickling(cloudpickle.dumps, cloudpickle.Pickler)


def with_reducers(pickler: type[pickle.Pickler]) -> type[pickle.Pickler]:
    """Return a pickler with what `reducers` holds; the same one where that is nothing, as a table of its own costs 0.1 us an object."""
    if not reducers():
        return pickler
    own = getattr(pickler, "dispatch_table", None)
    given = own if isinstance(own, Mapping) else copyreg.dispatch_table  # a pickler of C has a descriptor there

    class Reducing(pickler):  # type: ignore[misc,valid-type]  # the base is a value
        dispatch_table = {**given, **reducers()}  # noqa: RUF012 - what a pickler looks for

    return Reducing


def dump_with_errors(
    value: object, keep: Callable[[pickle.PickleBuffer], Any] | None, *, where: str, pickling: Pickling = BY_NAME
) -> bytes:
    """Pickle a value that may hold exceptions of users, anywhere: each arrives as itself, with the traceback of here as a note.

    Args:
        value: the value.
        keep: gets the buffers that are left out, as the `buffer_callback` of pickle; None leaves none out.
        where: where it was raised, in words.
        pickling: how.
    """

    class ErrorPickler(with_reducers(pickling.pickler)):  # type: ignore[misc]  # the base is a value
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, BaseException) and not isinstance(value, ElementFailed):
                failure = Failure.of(value, pickling.dumps)  # one that was not raised has no traceback
                return _arrived, (failure if traceback_of(value) is not None else replace(failure, traceback=""), where)
            if type(value) is np.ndarray and not value.flags.forc:  # NumPy would send its elements in the stream, and lose their byte order
                return np.ascontiguousarray(value).__reduce_ex__(5)
            return NotImplemented if pickling is BY_NAME else super().reducer_override(value)

    file = BytesIO()
    ErrorPickler(file, protocol=5, buffer_callback=keep).dump(value)
    return file.getvalue()


def _arrived(failure: Failure, where: str) -> BaseException:
    error = None if failure.pickle is None else _read(failure.pickle)
    if error is None:
        error = WorkerFailed(
            f"{failure.kind}: {failure.text}", where=where, fix="the exception could not be pickled, so only its type and text came here"
        )
    if failure.traceback:
        add_note(error, f"penstock: in {where}:\n{failure.traceback}")
    return error


def _pickle_of(error: BaseException, dumps: Dumps) -> bytes | None:
    # What a user's __reduce__ or __init__ raises here may be anything; the error that counts is `error`.
    with suppress(Exception):
        data = dumps(error, protocol=5)
        if type(pickle.loads(data)) is type(error):
            return data
    return None


def _read(data: bytes) -> BaseException | None:
    with suppress(Exception):
        error = pickle.loads(data)
        return error if isinstance(error, BaseException) else None
    return None
