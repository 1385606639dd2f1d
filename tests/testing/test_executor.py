from __future__ import annotations

import threading
from typing import Any

import pytest
from testing.breaking import assert_broken

from penstock._executors.contract import Executor
from penstock._executors.inline import InlineExecutor
from penstock._executors.threads import ThreadsExecutor
from penstock.testing import check_executor


@pytest.mark.parametrize("kind", [InlineExecutor, ThreadsExecutor])
def test_our_executors_keep_the_laws(kind: Any) -> None:
    assert issubclass(kind, Executor)
    check_executor(kind)


class Refusing(ThreadsExecutor):
    """Cannot start: the feed runs inline."""

    def start(self) -> bool:
        return False


def test_an_executor_that_cannot_start_leaves_the_work_to_inline() -> None:
    check_executor(Refusing, num_plans=5)


class Idle(ThreadsExecutor):
    def start(self) -> bool:
        return True


def test_an_executor_that_runs_nothing_is_a_feed_that_does_not_end() -> None:
    assert_broken(
        lambda: check_executor(Idle, timeout_s=0.2),
        "gave nothing more and did not end within 0.2 s",
        "check_executor",
        "claimed and not run",
    )


class Breaking(ThreadsExecutor):
    def start(self) -> bool:
        self._engine.broke(OSError("no workers"))
        return True


def test_an_executor_that_breaks_is_named_with_its_error() -> None:
    broken = assert_broken(
        lambda: check_executor(Breaking),
        "does not deliver what inline does: it raised OSError: no workers",
        "num_workers=1",
        "run every task",
    )
    assert isinstance(broken.__cause__, OSError)


class Late(ThreadsExecutor):
    def join(self, grace_period_s: float) -> list[str]:
        return [*super().join(grace_period_s), "worker-of-mine"]


def test_an_executor_whose_workers_never_end_is_named() -> None:
    assert_broken(lambda: check_executor(Late), "close() failed: 1 worker(s) did not stop", "check_executor", "join() must wait")


def test_an_executor_that_leaves_a_thread_is_named() -> None:
    release, threads = threading.Event(), []

    class Leaving(ThreadsExecutor):
        def start(self) -> bool:
            if not threads:
                threads.append(threading.Thread(target=release.wait, name="forgotten", daemon=True))
                threads[0].start()
            return super().start()

    assert_broken(lambda: check_executor(Leaving, num_plans=2), "thread 'forgotten'", "check_no_leaks()", "join threads")
    release.set()
    threads[0].join()


class NoExecutor:
    def __init__(self, engine: Any) -> None:
        self.start = lambda: True


def test_a_class_without_the_methods_is_named() -> None:
    assert_broken(
        lambda: check_executor(NoExecutor), "NoExecutor is no executor: it lacks wait, join", "make_executor", "join(grace_period_s)"
    )  # type: ignore[arg-type]


class Swallowing(ThreadsExecutor):
    """Ends at an error as if it were a fault of its own."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        run = engine.run

        def swallow(task: Any, worker: Any) -> None:
            run(task, worker)
            if engine.failures:
                engine.stop()
                engine._scheduler.ready.clear()
                engine.broke(OSError("a worker died"))

        engine.run = swallow


def test_an_executor_that_replaces_errors_is_named() -> None:
    with pytest.raises(AssertionError) as caught:
        check_executor(Swallowing, num_plans=0)
    assert "before the error" in str(caught.value) or "came instead of InjectedError" in str(caught.value)
    assert "element 29 failing" in str(caught.value)
