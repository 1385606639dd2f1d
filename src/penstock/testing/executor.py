"""The laws of an executor: whoever runs the tasks, the same comes out, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock._contracts.options import Options
from penstock._engine.engine import Engine
from penstock._executors.contract import Executor
from penstock.dataset import Dataset, from_source
from penstock.errors import LawBroken
from penstock.feed import Feed
from penstock.testing.cases import random_datasets
from penstock.testing.faults import Fault, InjectedError
from penstock.testing.leaks import check_no_leaks
from penstock.testing.runs import TIMEOUT_S, WAYS, Run, checked_close, quiet, require_same, run, words

__all__ = ["check_executor"]

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


def _require(done: Run, wanted: list[Any], law: str, where: str) -> None:
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
