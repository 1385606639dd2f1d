"""What the user gave to feed from, and how one iterator is made of it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from penstock.errors import PlanError, SourceError
from penstock.queues.standing import place_of

__all__ = ["Given", "is_spent"]


def is_spent(iterator: Any) -> bool:
    """Tell whether it is a generator at its end."""
    return isinstance(iterator, Generator) and getattr(iterator, "gi_frame", iterator) is None


class Given:
    """A generator, another iterator, an iterable, or a callable that returns one of them. Picklable if what was given is.

    Raises:
        PlanError: it is none of these.
    """

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self._ended: Any = None
        self.is_iterator = hasattr(thing, "__next__") and not isinstance(thing, type)
        name = getattr(thing, "__qualname__", None)
        self.name: str = name if isinstance(name, str) else type(thing).__qualname__
        if not self.is_iterator and not callable(thing) and not hasattr(thing, "__iter__"):
            raise PlanError(
                f"{self.name!r} is neither a generator nor a function that makes one",
                where="GeneratorEnqueuer",
                fix="give a generator, a function without arguments that returns one, or an iterable",
            )

    def words_of_place(self) -> str:
        """Return where the generator is defined, as ` (file.py:12)`; empty where it has no code of its own."""
        thing = getattr(self.thing, "func", self.thing)
        code = getattr(thing, "gi_code", None) or getattr(thing, "__code__", None)
        if code is None and not isinstance(thing, type):
            method = getattr(type(thing), "__next__" if self.is_iterator else "__call__" if callable(thing) else "__iter__", None)
            code = getattr(method, "__code__", None)
        return "" if code is None else f" ({place_of(code.co_filename, code.co_firstlineno)})"

    @property
    def takes_share(self) -> bool:
        """Whether it is a callable with parameters `worker` and `num_workers`, which makes the share of one worker itself."""
        if self.is_iterator or not callable(self.thing):
            return False
        import inspect

        try:
            parameters = inspect.signature(self.thing).parameters
        except (TypeError, ValueError):  # of a callable in C
            return False
        return "worker" in parameters and "num_workers" in parameters

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ended": None}  # of this process

    def check_fresh(self) -> None:
        """Refuse a generator that can give nothing any more: its pass would look like data without elements.

        Raises:
            SourceError: it is at its end.
        """
        self._check(self.thing)

    def note_end(self, iterator: Iterator[Any]) -> None:
        """Remember that an iterator is at its end."""
        self._ended = iterator

    def open(self, worker: int = 0, num_workers: int = 1) -> Iterator[Any]:
        """Return an iterator.

        Raises:
            SourceError: the callable returned something else, or what there is to read is at its end.
        """
        made = self.thing
        if not self.is_iterator and callable(made):
            made = made(worker=worker, num_workers=num_workers) if self.takes_share else made()
            if not hasattr(made, "__iter__"):
                raise SourceError(
                    f"{self.name} returned a {type(made).__name__}, not an iterable",
                    where="GeneratorEnqueuer",
                    fix="let it yield items, or return a generator or a list",
                )
        iterator: Iterator[Any] = made if self.is_iterator else iter(made)
        self._check(iterator)
        return iterator

    def close(self, iterator: Iterator[Any]) -> None:
        """Close an iterator that `open` made, which runs its `finally` clauses; the user's own is left as it is."""
        if iterator is not self.thing and isinstance(iterator, Generator):
            iterator.close()

    def _check(self, iterator: Any) -> None:
        if iterator is self._ended or is_spent(iterator):
            raise SourceError(
                f"the generator of {self.name} is at its end and can be read only once",
                where="GeneratorEnqueuer.start()",
                fix="give a function that makes a new generator, such as `def rows(): yield ...`, and pass `rows`, not `rows()`",
            )
