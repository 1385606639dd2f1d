"""The laws of an executor: any executor delivers the same elements and leaves nothing behind; the small datasets that laws are tried on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock._contracts.options import Options
from penstock._contracts.source import StreamSource
from penstock._engine.engine import Engine
from penstock._executors.contract import Executor
from penstock._plan import node as plan
from penstock.dataset.builder import Dataset
from penstock.dataset.opening import from_arrays, from_generator, from_source
from penstock.errors import LawBroken, PlanError
from penstock.feed import Feed
from penstock.testing.faults import Fault, InjectedError
from penstock.testing.leaks import check_no_leaks
from penstock.testing.runs import TIMEOUT_S, WAYS, FeedRun, checked_close, quiet, require_same, run, words


def as_dataset(given: Any) -> Dataset:
    """Return a dataset as it is, and one over a source of any kind."""
    if isinstance(given, Dataset):
        return given
    if isinstance(given, StreamSource):
        return Dataset(plan.ReadStream(source=given))
    return from_source(given)


def small_datasets() -> dict[str, Dataset]:
    """Return datasets of whole numbers by name: every kind of source, and orders and folds below."""
    return {
        "a list": from_source(list(range(23))),
        "a list behind a filter": from_source(list(range(25))).filter(_two_of_three),
        "a generator": from_generator(_some, fast_forward=True),
        "arrays": from_arrays(np.arange(20)),
        "no element": from_source([]),
        "one element": from_source([7]),
        "a shuffled shard": from_source(list(range(31))).shuffle(seed=5).shard(2, 1),
        "two shuffled passes": from_source(list(range(9))).shuffle(seed=2).repeat(2),
        "a stage with workers of its own": from_source(list(range(19))).map(_same, concurrency=2),
        "a list behind a flat_map": from_source(list(range(12))).flat_map(_copies),
        "a long list": from_source(list(range(400))),
    }


def random_datasets(count: int, seed: int) -> Iterator[Dataset]:
    """Give pipelines of one to seven random operators over random sources, the same for the same seed."""
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        dataset = chance.choice(_SOURCES)(chance.randrange(60))
        for _ in range(chance.randrange(7)):
            try:
                dataset = chance.choice(_STEPS)(dataset, chance.randrange(1, 12))
            except PlanError:  # this operator cannot stand here
                continue
        yield dataset


def _same(x: Any) -> Any:
    return x


def _two_of_three(x: Any) -> bool:
    return int(np.sum(x)) % 3 != 1


def _copies(x: Any) -> list[Any]:
    return [x] * (int(np.sum(x)) % 3)


def _double(x: Any) -> Any:
    return np.asarray(x) * 2


def _noisy(x: Any, rng: np.random.Generator) -> Any:
    return np.asarray(x) + int(rng.integers(0, 1000))


def _some() -> Iterator[int]:
    return iter(range(21))


_SOURCES: tuple[Callable[[int], Dataset], ...] = (
    lambda size: from_source(list(range(size))),
    lambda size: from_arrays(np.arange(size)),
    lambda size: from_generator(lambda: iter(range(size)), fast_forward=True),
)

_STEPS: tuple[Callable[[Dataset, int], Dataset], ...] = (
    lambda ds, number: ds.map(_double),
    lambda ds, number: ds.map(_noisy, seed=number),
    lambda ds, number: ds.map(_double, concurrency=1 + number % 3),
    lambda ds, number: ds.filter(_two_of_three),
    lambda ds, number: ds.flat_map(_copies),
    lambda ds, number: ds.shuffle(seed=number),
    lambda ds, number: ds.shuffle(number, seed=3),
    lambda ds, number: ds.shard(1 + number % 3, 0),
    lambda ds, number: ds.take(5 * number),
    lambda ds, number: ds.skip(number),
    lambda ds, number: ds.repeat(1 + number % 3),
    lambda ds, number: ds.concatenate(ds),
    lambda ds, number: ds.padded_batch(number),
    lambda ds, number: ds.prefetch(number),
)


MakeExecutor = Callable[[Engine], Executor]

_RUN_ALL = "run every task that was claimed, exactly once, and ring nobody's bell yourself: engine.run does"


def check_executor(make_executor: MakeExecutor, *, num_plans: int = 40, seed: int = 0, timeout_s: float = TIMEOUT_S) -> None:
    """Check an executor against the inline one over random pipelines. Takes about a second.

    The laws: every pipeline delivers what `inline` does, for any number of workers; a state goes from one executor to the other; the
    error of a function arrives once, as itself, behind everything before it; a feed can be closed when it is new, running, ended or
    failed, and dropped without being closed; no thread, process or descriptor is left.

    Args:
        make_executor: called with the engine of each feed; see `penstock._executors.contract`.
        num_plans: how many pipelines.
        seed: of the pipelines.
        timeout_s: when a feed counts as hanging.

    Raises:
        LawBroken: naming the law and the pipeline.
    """
    with quiet(), check_no_leaks():
        for dataset in random_datasets(num_plans, seed):
            _same_as_inline(make_executor, dataset, timeout_s)
        for num_workers in (1, 3):
            _fails_as_inline(make_executor, num_workers, timeout_s)
            _closes(make_executor, num_workers, timeout_s)


def _feed(make_executor: MakeExecutor, dataset: Dataset, num_workers: int) -> Feed:
    return Feed(dataset._root, Options(num_workers=num_workers), (), lambda engine: _made(make_executor, engine))


def _made(make_executor: MakeExecutor, engine: Engine) -> Executor:
    executor = make_executor(engine)
    if not isinstance(executor, Executor):
        raise LawBroken(
            f"{type(executor).__name__} is no executor: it lacks {', '.join(name for name in _METHODS if not hasattr(executor, name))}",
            where="check_executor, make_executor(engine)",
            fix="give it start(), wait() and join(grace_period_s), see penstock._executors.contract",
        )
    return executor


_METHODS = ("start", "wait", "join")


def _where(dataset: Dataset, num_workers: int, more: str = "") -> str:
    return f"check_executor, num_workers={num_workers}{more}, {dataset!r}"


def _same_as_inline(make_executor: MakeExecutor, dataset: Dataset, timeout_s: float) -> None:
    whole = run(dataset.feed(**WAYS[0]), _where(dataset, 0), saving=True)
    if whole.error is not None:
        raise whole.error
    middle = len(whole.items) // 2
    for num_workers in (1, 3):
        where = _where(dataset, num_workers)
        mine = run(_feed(make_executor, dataset, num_workers), where, saving=True, timeout_s=timeout_s)
        _require(mine, whole.items, "the executor does not deliver what inline does", where)
        if not whole.states:
            continue
        tail = run(_feed(make_executor, dataset, num_workers), where, state=whole.states[middle], timeout_s=timeout_s)
        _require(tail, whole.items[middle:], "a state of inline is resumed wrongly", where)
        tail = run(dataset.feed(**WAYS[0]), where, state=mine.states[middle])
        _require(tail, whole.items[middle:], "inline resumes a state of this executor wrongly", where)


def _require(done: FeedRun, wanted: list[Any], law: str, where: str) -> None:
    if done.error is not None:
        raise LawBroken(f"{law}: it raised {words(done.error)}", where=where, fix=_RUN_ALL) from done.error
    require_same(done.items, wanted, law, where=where, fix=_RUN_ALL)


def _fails_as_inline(make_executor: MakeExecutor, num_workers: int, timeout_s: float) -> None:
    for batch_size in (1, 4):
        dataset = from_source(list(range(40))).map(Fault(29)).batch(batch_size)
        where = _where(dataset, num_workers, ", element 29 failing")
        inline = run(dataset.feed(**WAYS[0]), where)
        mine = run(_feed(make_executor, dataset, num_workers), where, timeout_s=timeout_s)
        require_same(mine.items, inline.items, "other elements came before the error", where=where, fix=_RUN_ALL)
        if not isinstance(mine.error, InjectedError):
            raise LawBroken(
                f"{words(mine.error)} came instead of {words(inline.error)}",
                where=where,
                fix="leave errors of functions to engine.run, and report your own with engine.broke(error)",
            ) from mine.error


def _closes(make_executor: MakeExecutor, num_workers: int, timeout_s: float) -> None:
    endless = from_source(list(range(50))).batch(2).repeat()
    for taken in (0, 1, 60):
        where = _where(endless, num_workers, f", closed behind element {taken}")
        run(_feed(make_executor, endless, num_workers), where, most=taken, timeout_s=timeout_s)
    closed_by_another = _feed(make_executor, endless, num_workers)
    next(closed_by_another)
    checked_close(closed_by_another, _where(endless, num_workers))
    dropped = _feed(make_executor, endless, num_workers)
    next(dropped)
    del dropped
