"""What a worker process tells beside its results: failures with their tracebacks, records of `logging`, warnings."""

from __future__ import annotations

import functools
import pickle
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pickle import Pickler
from typing import Any, NamedTuple

import numpy as np

from penstock._ops.block import ElementFailed
from penstock._system.failing import add_note, argument_of, attempt, notes_of, text_of, traceback_of, traceback_text_of, would_end
from penstock._system.lazy import dataclass
from penstock._workers.sending import Keep, dumps_to_program, reduced
from penstock.errors import StopRaised, WorkerFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An exception on its way to another process.

    Attributes:
        kind: module and name of its type.
        text: its text.
        traceback: the traceback as Python prints it, causes included.
        notes: that were added to it, where it can be pickled; else they are in the traceback.
        cause: that of a `StopRaised`.
        pickle: the exception, or None where it cannot be pickled and read again.
    """

    kind: str
    text: str
    traceback: str
    notes: tuple[str, ...]
    cause: Failure | None
    pickle: bytes | None

    @classmethod
    def of(cls, error: BaseException, pickler: type[Pickler] | None = None) -> Failure:
        """Pack an exception that was caught."""
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        data, notes, traceback = _pickle_of(error, pickler), notes_of(error), traceback_text_of(error).rstrip()
        if data is None:
            notes = ()
        elif notes:  # they are added again, to the exception itself
            traceback = traceback.removesuffix("\n".join(notes)).rstrip()
        cause = cls.of(error.__cause__, pickler) if isinstance(error, StopRaised) and error.__cause__ is not None else None
        return cls(kind=kind, text=text_of(error), traceback=traceback, notes=notes, cause=cause, pickle=data)

    def error(self, where: str) -> BaseException:
        """Return the exception to raise: the original with the child's traceback as a note, or a `WorkerFailed` that tells both."""
        error = self.read()
        if error is None:
            return WorkerFailed(
                f"{self.kind}: {self.text}",
                where=f"{where}; there it was\n{self.traceback}",
                fix="mend what raised it; the exception itself could not be pickled, so only its type and text came here",
            )
        return fit_to_raise(error, f"{where}; there it was\n{self.traceback}")

    def read(self) -> BaseException | None:
        """Return the original; None where it could not be pickled."""
        error = None if self.pickle is None else _read(self.pickle)
        if error is not None:
            for note in self.notes:
                if note not in notes_of(error):
                    add_note(error, note)
            if self.cause is not None:
                error.__cause__ = self.cause.read()
        return error


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


def dump_with_errors(
    value: object,
    keep: Keep | None,
    *,
    where: str,
    pickler: type[Pickler],
) -> bytes:
    """Pickle a value that may hold exceptions of users, anywhere: each arrives as itself, with the traceback of here as a note.

    Args:
        value: the value.
        keep: gets the buffers that are left out, as the `buffer_callback` of pickle; None leaves none out.
        where: where it was raised, in words.
        pickler: how.
    """
    file = BytesIO()
    pickling = _error_pickler(pickler)(file, protocol=5, buffer_callback=keep)  # type: ignore[arg-type]  # a class is hashable
    pickling.where = where
    pickling.dump(value)
    return file.getvalue()


@functools.cache
def _error_pickler(pickler: type[Pickler]) -> Any:
    class ErrorPickler(pickler):  # type: ignore[valid-type,misc]  # the base is a value
        where = ""

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, (np.ndarray, np.generic)):
                return reduced(value)
            if isinstance(value, BaseException) and not isinstance(value, ElementFailed):
                failure = Failure.of(value, pickler)  # one that was not raised has no traceback
                return _arrived, (failure if traceback_of(value) is not None else replace(failure, traceback=""), self.where)
            return super().reducer_override(value)

    return ErrorPickler


_TERMINAL = "that process has no terminal"
_HINTS = {
    "bdb.BdbQuit": _TERMINAL,  # of `breakpoint`, without a text
    "EOF when reading a line": _TERMINAL,
    "daemonic processes are not allowed to have children": "a worker process starts no processes by multiprocessing",
}


def _arrived(failure: Failure, where: str) -> BaseException:
    error = failure.read()
    if error is None:
        error = WorkerFailed(
            f"{failure.kind}: {failure.text}", where=where, fix="the exception could not be pickled, so only its type and text came here"
        )
    if failure.traceback:
        add_note(error, f"penstock: in {where}:\n{failure.traceback}")
        hint = _HINTS.get(failure.text or failure.kind)
        if hint:
            add_note(error, f"penstock: {hint}; feed(num_workers=0), or ds[i], calls your functions in the program")
    return error


def _pickle_of(error: BaseException, pickler: type[Pickler] | None) -> bytes | None:
    # What a user's __reduce__ or __init__ raises here may be anything; the error that counts is `error`.
    for value in (error, _Bare(error)):
        with suppress(Exception):
            data = dumps_to_program(value, None, pickler)
            read = pickle.loads(data)
            if type(read) is type(error) and text_of(read) == text_of(error):  # else `__init__` made another text of its own text
                return data
    return None


class _Bare:
    """Pickles an exception whose `__init__` takes something else than its `args`: it is made without."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self._error)
        return kind.__new__, (kind, *self._error.args), vars(self._error)


def _read(data: bytes) -> BaseException | None:
    error = attempt(pickle.loads, data)
    return error if isinstance(error, BaseException) else None


class Logged(NamedTuple):
    """A log record: its attributes, those that can be sent."""

    attributes: dict[str, Any]

    def show(self, _: dict[Any, Any]) -> None:
        """Hand it to the loggers of this process."""
        import logging

        record = logging.makeLogRecord(self.attributes)
        logging.getLogger(record.name).handle(record)


class Warned(NamedTuple):
    """A warning: what `warnings.warn_explicit` gets."""

    text: str
    category: bytes
    filename: str
    line: int

    def show(self, registry: dict[Any, Any]) -> None:
        """Show it, as often as the filters of this process say, with a registry of what was shown."""
        category: type[Warning] = UserWarning
        with suppress(Exception):  # a class that is not found here
            category = pickle.loads(self.category)
        try:
            warnings.warn_explicit(self.text, category, self.filename, self.line, registry=registry)
        except Warning as raised:  # it must not stop the feed
            warnings.showwarning(raised, category, self.filename, self.line)


def log_levels() -> dict[str, int]:
    """Return the levels of the loggers that have one of their own, so that a worker makes no record that would be thrown away."""
    logging = sys.modules.get("logging")
    if logging is None:
        return {}
    loggers = {"": logging.root, **logging.root.manager.loggerDict}
    levels = {name: logger.level for name, logger in loggers.items() if isinstance(logger, logging.Logger) and logger.level}
    return {**levels, _DISABLED: logging.root.manager.disable}


_DISABLED = "\0disabled"


def send_records(levels: dict[str, int], send: Callable[[Any], None], dumps: Callable[[Any], bytes]) -> None:
    """Have `send` called with the log records and warnings of this process. Once in a process; later calls set the levels.

    Args:
        levels: what `log_levels` of the program says.
        send: may raise what it likes when the program has ended.
        dumps: pickles the class of a warning.
    """
    import logging

    class Sender(logging.Handler):
        """Sends records."""

        def emit(self, record: logging.LogRecord) -> None:
            attributes = {**vars(record), "msg": record.getMessage(), "args": None, "exc_info": None}
            if record.exc_info and not record.exc_text:
                attributes["exc_text"] = logging.Formatter().formatException(record.exc_info)
            send(Logged({name: value for name, value in attributes.items() if attempt(pickle.dumps, value) is not None}))

    logging.disable(levels.get(_DISABLED, 0))
    for name, level in levels.items():
        if name != _DISABLED:
            logging.getLogger(name or None).setLevel(level)
    if any(type(handler).__qualname__ == Sender.__qualname__ for handler in logging.root.handlers):
        return
    logging.root.handlers[:] = [Sender()]

    def show(message: Any, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        send(Warned(str(message), dumps(category), filename, lineno))

    warnings.showwarning = show
