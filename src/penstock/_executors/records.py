"""Records of `logging` and warnings that are made in a worker process, on their way to the program, which shows them as its own."""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple


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
            send(Logged({name: value for name, value in attributes.items() if _can_be_sent(value)}))

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


def _can_be_sent(value: object) -> bool:
    if value is None or isinstance(value, (str, int, float)):
        return True
    with suppress(Exception):
        pickle.dumps(value)
        return True
    return False
