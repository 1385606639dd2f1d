"""A user's exception reaches the consumer as it is, whatever its class makes of what every exception can do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock._system.failing import add_note, notes_of, text_of, traceback_of, traceback_text_of, words_of
from penstock.errors import WorkerFailed


class Loud(RuntimeError):
    """What an odd class raises where it should not: never what the consumer is to see."""


class NoteRaises(Exception):
    def add_note(self, note: str) -> None:
        raise Loud(note)


class NoteIsNone(Exception):
    add_note = None  # type: ignore[assignment]


class NotesAreNone(Exception):
    __notes__ = None  # type: ignore[assignment]


class NotesRaise(Exception):
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise Loud


class StrRaises(Exception):
    def __str__(self) -> str:
        raise Loud

    __repr__ = __str__


class StrIsNone(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]  # noqa: PLE0307


@dataclass(frozen=True)
class Frozen(Exception):
    code: int = 3


@dataclass(frozen=True, slots=True)
class FrozenWithSlots(Exception):
    code: int = 3


class SetRaises(Exception):
    def __setattr__(self, name: str, value: Any) -> None:
        raise Loud(name)


class GetRaises(Exception):
    def __getattr__(self, name: str) -> Any:
        raise Loud(name)


class TracebackRaises(Exception):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise Loud

    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise Loud

    def with_traceback(self, traceback: Any) -> Any:
        raise Loud


class NeedsArguments(Exception):
    def __init__(self, code: int, *, name: str) -> None:
        super().__init__(f"{name} {code}")


class ReduceRaises(Exception):
    def __reduce__(self) -> Any:
        raise Loud


class NotEqual(Exception):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise Loud


class Falsy(Exception):
    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0


class OddStop(StopIteration):
    def __repr__(self) -> str:
        raise Loud


ODD: list[Callable[[], BaseException]] = [
    NoteRaises, NoteIsNone, NotesAreNone, NotesRaise, StrRaises, StrIsNone, Frozen, FrozenWithSlots, SetRaises, GetRaises, TracebackRaises,
    lambda: NeedsArguments(3, name="a"), ReduceRaises, NotEqual, Falsy,
]  # fmt: skip


def words(error: BaseException | None) -> str:
    return "nothing" if error is None else words_of(error)


def name_of(make: Callable[[], BaseException]) -> str:
    return type(make()).__name__


def in_map(error: BaseException, options: dict[str, Any]) -> None:
    list(ps.from_source(range(9)).map(lambda x: raised_at_5(x, error)).batch(2).feed(**options))


def in_a_filter(error: BaseException, options: dict[str, Any]) -> None:
    list(ps.from_source(range(9)).filter(lambda x: raised_at_5(x, error)).feed(**options))


def in_a_flat_map(error: BaseException, options: dict[str, Any]) -> None:
    list(ps.from_source(range(9)).flat_map(lambda x: [raised_at_5(x, error)]).feed(**options))


def in_an_async_map(error: BaseException, options: dict[str, Any]) -> None:
    async def later(x: int) -> int:
        return raised_at_5(x, error)

    list(ps.from_source(range(9)).map(later, concurrency=3).feed(**options))


def in_a_source(error: BaseException, options: dict[str, Any]) -> None:
    class Rows:
        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> int:
            return raised_at_5(index, error)

    list(ps.from_source(Rows()).feed(**options))


def in_blocks_of_a_source(error: BaseException, options: dict[str, Any]) -> None:
    class Rows(list[int]):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [raised_at_5(index, error) for index in indices]

    list(ps.from_source(Rows(range(9))).feed(**options))


def in_a_generator(error: BaseException, options: dict[str, Any]) -> None:
    list(ps.from_generator(lambda: (raised_at_5(x, error) for x in range(9))).feed(**options))


def while_a_generator_is_closed(error: BaseException, options: dict[str, Any]) -> None:
    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            raise error

    with ps.from_generator(endless).feed(**options) as feed:
        next(feed)


def behind_retries(error: BaseException, options: dict[str, Any]) -> None:
    list(ps.from_source(range(9)).map(lambda x: raised_at_5(x, error), on_error=ps.Retry(2)).feed(**options))


def behind_a_replacement(error: BaseException, options: dict[str, Any]) -> None:
    list(ps.from_source(range(9)).map(lambda x: raised_at_5(5, error), on_error=ps.Replace()).feed(**options))


def looked_at(error: BaseException, options: dict[str, Any]) -> None:
    ps.from_source(range(9)).map(lambda x: raised_at_5(x, error))[5]


def in_the_block_of_a_feed(error: BaseException, options: dict[str, Any]) -> None:
    with ps.from_source(range(9)).feed(**options) as feed:
        for x in feed:
            raised_at_5(x, error)


def raised_at_5(x: int, error: BaseException) -> int:
    if x == 5:
        raise error
    return x


def met(use: Callable[[], object]) -> BaseException | None:
    """Return what is raised: pytest itself cannot show many of these classes, so none may reach it."""
    try:
        use()
    except BaseException as error:
        return error
    return None


PLACES = [
    in_map, in_a_filter, in_a_flat_map, in_an_async_map, in_a_source, in_blocks_of_a_source, in_a_generator, while_a_generator_is_closed,
    behind_retries, behind_a_replacement, looked_at, in_the_block_of_a_feed,
]  # fmt: skip


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"executor": "threads", "num_workers": 2}], ids=["in the consumer", "threads"])
@pytest.mark.parametrize("make", ODD, ids=name_of)
def test_an_odd_exception_reaches_the_consumer_as_it_is(make: Callable[[], BaseException], options: dict[str, Any]) -> None:
    wrong = []
    for place in PLACES:
        error = make()
        caught = met(partial(place, error, options))
        if caught is not error:
            wrong.append(f"{place.__name__}: {words(caught)}")
    assert wrong == [], wrong


@pytest.mark.parametrize("make", ODD, ids=name_of)
def test_an_odd_exception_of_an_enqueuers_thread_a_job_or_a_runner_is_the_consumers(make: Callable[[], BaseException]) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise error

    def fails() -> None:
        raise error

    def take_all() -> None:
        enqueuer = ps.GeneratorEnqueuer(items)
        enqueuer.start()
        try:
            list(enqueuer.get())
        finally:
            enqueuer.stop()

    def run_jobs() -> None:
        ps.parallel_jobs(lambda job: raised_at_5(job, error), range(9), executor="threads", num_workers=2)

    def run_runner() -> None:
        queue = ps.queues.FIFOQueue(3)
        coordinator = ps.queues.Coordinator()
        threads = ps.queues.QueueRunner(queue, [fails]).create_threads(coord=coordinator, start=True)
        coordinator.join(threads)

    wrong = []
    for use in (take_all, run_jobs, run_runner):
        error = make()
        caught = met(use)
        if caught is not error:
            wrong.append(f"{use.__name__}: {words(caught)}")
    assert wrong == [], wrong


def _fails_in_a_process(worker: int, num_workers: int) -> Iterator[np.ndarray[Any, Any]]:
    yield np.zeros(2)
    raise ODD[_NUMBER]()


_NUMBER = 0


@pytest.mark.parametrize("number", range(len(ODD)), ids=lambda number: name_of(ODD[number]))
def test_an_odd_exception_of_a_process_comes_as_itself_or_with_its_type_and_traceback(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}._NUMBER", number)
    enqueuer = ps.GeneratorEnqueuer(_fails_in_a_process, use_multiprocessing=True, start_method="fork")
    enqueuer.start(workers=1)
    caught = met(lambda: list(enqueuer.get()))
    enqueuer.stop()
    kind = type(ODD[number]())
    assert type(caught).__name__ in (kind.__name__, "WorkerFailed")
    if isinstance(caught, WorkerFailed):
        assert kind.__name__ in caught.what
        assert "raise ODD[_NUMBER]()" in caught.where


@pytest.mark.parametrize("make", ODD, ids=name_of)
def test_an_odd_exception_is_skipped_counted_and_written_down(make: Callable[[], BaseException], tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    dataset = ps.from_source(range(9)).map(lambda x: raised_at_5(x, make()), on_error=ps.Skip(quarantine=path))
    with dataset.feed(executor="threads", num_workers=2) as feed:
        assert list(feed) == [0, 1, 2, 3, 4, 6, 7, 8]
        assert feed.stats().num_skipped == 1
    line = json.loads(path.read_text())
    assert line["error"] == type(make()).__name__
    assert "raise error" in line["traceback"]


@pytest.mark.parametrize("make", ODD, ids=name_of)
def test_all_that_is_asked_of_an_odd_exception_has_an_answer(make: Callable[[], BaseException]) -> None:
    def raises() -> None:
        raise make()

    error = met(raises)
    assert (error is not None) is True
    add_note(error, "a note")
    notes, text, shown, traceback = notes_of(error), text_of(error), traceback_text_of(error), traceback_of(error)
    kind = type(error).__name__
    del error
    assert notes in ((), ("a note",))
    assert type(text) is str
    assert type(traceback) is TracebackType
    assert "in raises" in shown
    assert kind in shown


def test_an_odd_end_is_an_error_that_has_it_as_its_cause() -> None:
    with pytest.raises(ps.errors.StopRaised) as caught:
        list(ps.from_source(range(9)).map(lambda x: raised_at_5(x, OddStop(OddStop()))))
    assert type(caught.value.__cause__) is OddStop
