"""Where work runs: the rule, and what it promises about the functions of the user."""

from __future__ import annotations

import functools
import importlib.util
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _workers.in_workers import numbered

import penstock as ps
from penstock._contracts.options import Options
from penstock._engine.engine import Engine
from penstock._workers.choice import Place, place_of
from penstock._workers.threads import ThreadsExecutor
from penstock.errors import FeedClosed, MissingExtra, PlanError
from penstock.feed import feed as feeds

pytestmark = pytest.mark.usefixtures("fork_server")

HERE = os.getpid()
IN_PROGRAM = "penstock-program-0"


@pytest.mark.parametrize(
    ("options", "has_functions", "num_cpus", "hindrance", "place"),
    [
        ({}, True, 2, "", Place("threads", apart=True)),
        ({}, False, 4, "", Place("threads", apart=True)),
        ({}, True, 16, "", Place("processes", apart=True)),
        ({}, True, 16, "it is frozen", Place("threads", apart=True)),
        ({"num_workers": "auto", "executor": "auto"}, True, 2, "", Place("threads", apart=True)),
        ({"num_workers": 0}, True, 16, "", Place("inline")),
        ({"num_workers": 3}, True, 2, "", Place("processes")),
        ({"num_workers": 3}, True, 2, "it is frozen", Place("threads", apart=True, hindrance="it is frozen")),
        ({"num_workers": 4}, False, 16, "", Place("threads")),
        ({"num_workers": 5}, False, 2, "", Place("processes")),
        ({"num_workers": 5}, False, 2, "it is frozen", Place("threads")),
        ({"executor": "threads"}, True, 16, "", Place("threads")),
        ({"executor": "threads", "num_workers": 8}, True, 2, "", Place("threads")),
        ({"executor": "processes"}, False, 2, "", Place("processes")),
        ({"executor": "processes", "num_workers": 0}, True, 2, "", Place("inline")),
        ({"executor": "ray", "num_workers": 2}, True, 2, "", Place("ray")),
    ],
)
def test_the_rule_fits_in_a_table(options: dict[str, Any], has_functions: bool, num_cpus: int, hindrance: str, place: Place) -> None:
    assert place_of(Options(**options), has_functions=has_functions, num_cpus=num_cpus, hindrance=hindrance) == place


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="ray is installed")
def test_without_ray_there_is_no_feed_for_it() -> None:
    with pytest.raises(MissingExtra, match="Ray cannot be imported"):
        ps.from_source(range(3)).feed(executor="ray")


class Seen:
    """Counts the threads that call a function, and whether two ever met in it."""

    def __init__(self) -> None:
        self.threads: Counter[str] = Counter()
        self.order: list[Any] = []
        self.met = 0
        self._inside = threading.Lock()

    def around(self, fn: Callable[..., Any], name: str = "fn") -> Callable[..., Any]:
        def seen(*values: Any) -> Any:
            if not self._inside.acquire(blocking=False):
                self.met += 1
                return fn(*values)
            try:
                self.threads[threading.current_thread().name] += 1
                self.order.append(name)
                return fn(*values)
            finally:
                self._inside.release()

        return seen


class Source:
    """A dataset as people write it."""

    def __init__(self, seen: Seen, count: int = 40) -> None:
        self.read, self.count = seen.around(lambda index: {"x": np.full(3, index)}, "read"), count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.read(index)


def images(count: int = 40) -> ps.Dataset:
    """Elements that an operator of Penstock's has computed: `normalize` of tiny pictures."""
    pictures = np.arange(count * 12, dtype=np.uint8).reshape(count, 2, 2, 3)
    normalize = ps.image.normalize("x", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    return ps.from_arrays({"x": pictures}).map(normalize)


PLANS: dict[str, Callable[[Seen], ps.Dataset]] = {
    "map": lambda seen: ps.from_source(range(40)).map(seen.around(float)).batch(4),
    "map between operators": lambda seen: images().map(seen.around(dict)).map(ps.image.random_flip("x"), seed=1).batch(4),
    "collate_fn behind a filter": lambda seen: (
        images().filter(seen.around(lambda element: element["x"].sum() > -9)).batch(4, collate_fn=seen.around(len))
    ),
    "flat_map": lambda seen: images().flat_map(seen.around(lambda element: [element, element])).batch(4),
    "an object": lambda seen: ps.from_source(Source(seen)).map(seen.around(dict)).batch(4),
    "a generator": lambda seen: ps.from_generator(lambda: map(seen.around(float), range(40))).map(seen.around(float)).batch(4),
    "a generator below an operator": lambda seen: (
        ps.from_generator(lambda: map(seen.around(lambda n: {"x": np.full((2, 2, 3), n, np.uint8)}), range(40)))
        .map(ps.image.normalize("x", mean=(0, 0, 0), std=(1, 1, 1)))
        .map(seen.around(dict))
        .batch(4)
    ),
    "branches": lambda seen: images().map(seen.around(dict)).concatenate(images().map(seen.around(dict))).batch(4),
    "a cache": lambda seen: images().map(seen.around(dict)).cache().batch(4),
    "lengths": lambda seen: ps.from_source([np.arange(n % 7 + 1) for n in range(40)]).bucket_by_length(seen.around(len), [3, 5], [2, 2, 2]),
}


ON_MANY_CPUS = ["map between operators", "a generator below an operator"]


@pytest.mark.parametrize(("name", "num_cpus"), [*((name, 2) for name in PLANS), *((name, 16) for name in ON_MANY_CPUS)])
def test_by_default_one_thread_of_the_program_makes_all_calls_of_a_feed(name: str, num_cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "available_cpus", lambda: num_cpus)
    reference, seen = Seen(), Seen()
    with PLANS[name](reference).feed(num_workers=0) as feed:
        wanted = [repr(batch) for batch in feed]
    ds = PLANS[name](seen)
    with ds.feed() as feed:
        for _ in range(2):
            assert [repr(batch) for batch in feed][: len(wanted)]
        feed.set_epoch(0)
        assert [repr(batch) for batch in feed] == wanted
    assert not seen.met
    assert set(seen.threads) == {IN_PROGRAM}


@pytest.mark.parametrize("name", ["map between operators", "an object"])
def test_calls_come_in_the_order_of_the_elements(name: str) -> None:
    runs = []
    for _ in range(2):
        state = np.random.RandomState(3)
        seen = Seen()
        drawn = functools.partial(seen.around, name="draw")
        base = PLANS[name](seen)
        with base.map(drawn(lambda batch, state=state: (batch, state.randint(1 << 30)))).feed() as feed:
            runs.append([number for _, number in feed])
    assert runs[0] == runs[1] == list(np.random.RandomState(3).randint(1 << 30, size=10))


def test_feeds_that_hold_the_same_function_take_turns() -> None:
    seen = Seen()
    ds = images(400).map(seen.around(dict)).batch(4)

    def run() -> None:
        with ds.feed() as feed:
            assert len(list(feed)) == 100

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not seen.met
    assert sum(seen.threads.values()) == 1600


def suppressing(feed: ps.Feed) -> None:
    with pytest.raises(FeedClosed):
        next(feed)


def test_a_feed_that_waits_for_its_turn_can_be_closed() -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold(element: Any) -> Any:
        inside.set()
        leave.wait(30)
        return element

    ds = ps.from_source(range(8)).map(hold)
    with ds.feed() as first, ds.feed() as second:
        threading.Thread(target=next, args=(first,), daemon=True).start()
        assert inside.wait(30)
        waits = threading.Thread(target=suppressing, args=(second,))
        waits.start()
        second.close()
        waits.join(30)
        assert not waits.is_alive()
        leave.set()
        assert next(first) == 1


def test_worker_processes_run_every_function_where_a_number_of_workers_is_asked_for() -> None:
    ds = ps.from_source(range(40)).map(numbered).batch(4, collate_fn=list_of_pids).map(marked_list)
    with ds.feed(num_workers=2) as feed:
        batches = list(feed)
        assert feed.stats().notices == (
            "'numbered', 'collate_fn', 'marked_list': called in 2 worker processes; what they change there stays there",
        )
    assert [batch["numbers"] for batch in batches] == [list(range(n, n + 4)) for n in range(0, 40, 4)]
    for step in ("read_by", "collated_by", "marked_by"):
        found = {pid for batch in batches for pid in batch[step]}
        assert HERE not in found
        assert found


def list_of_pids(rows: list[Any]) -> dict[str, Any]:
    return {
        "numbers": [int(row["number"]) for row in rows],
        "read_by": [int(row["below"]) for row in rows],
        "collated_by": [os.getpid()],
    }


def marked_list(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "marked_by": [os.getpid()]}


def test_on_many_cpus_own_operators_run_in_processes_and_functions_in_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "available_cpus", lambda: 6)
    seen = Seen()
    with images().map(seen.around(lambda element: {**element, "pid": os.getpid()})).batch(4).feed() as feed:
        batches = list(feed)
        assert feed._run._placement._processes is not None
        assert feed._run._placement._processes._workers
    assert {int(pid) for batch in batches for pid in batch["pid"]} == {HERE}


@pytest.mark.parametrize("on_error", [ps.Replace(), ps.Skip()], ids=["Replace", "Skip"])
@pytest.mark.parametrize("num_cpus", [2, 16])
def test_what_is_done_about_an_element_that_failed_is_done_by_the_same_thread(
    on_error: Any, num_cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "available_cpus", lambda: num_cpus)
    seen = Seen()

    def some_broken(element: Any) -> Any:
        return {"x": element["x"] if element["n"] % 5 else np.zeros(3, np.uint8), "n": element["n"]}

    pictures = np.arange(40 * 12, dtype=np.uint8).reshape(40, 2, 2, 3)
    normalize = ps.image.normalize("x", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    ds = ps.from_arrays({"x": pictures, "n": np.arange(40)}).map(seen.around(some_broken)).map(normalize).shard(2, 0).batch(4)
    with ds.feed(num_workers=0, on_error=on_error) as feed:
        wanted = [repr(batch) for batch in feed]
    seen.threads.clear()
    with ds.feed(on_error=on_error) as feed:
        assert [repr(batch) for batch in feed] == wanted
        stats = feed.stats()
        assert (stats.num_replaced, stats.num_skipped) == ((4, 0) if isinstance(on_error, ps.Replace) else (0, 4))
    assert not seen.met
    assert set(seen.threads) == {IN_PROGRAM}


def test_functions_that_cannot_be_sent_are_called_in_the_program_one_at_a_time_with_a_notice() -> None:
    lock = threading.Lock()

    def locked(number: int) -> Any:
        with lock:
            time.sleep(0.005)
            return {"number": number, "pid": os.getpid(), "thread": threading.current_thread().name}

    with ps.from_source(range(40)).map(locked).batch(4).feed(num_workers=2) as feed:
        batches = list(feed)
        (notice,) = feed.stats().notices
        assert "runs it in" not in feed.report(), "what cannot be done is not advised"
        assert "_thread.lock cannot be sent to another process" in feed.stats().no_processes
    assert {int(pid) for batch in batches for pid in batch["pid"]} == {HERE}
    assert {name for batch in batches for name in batch["thread"]} == {IN_PROGRAM}
    assert "locked': called in this program, one call at a time, and not in worker processes: " in notice
    assert "lock" in notice


def in_a_daemon(queue: Any) -> None:
    with ps.from_source(range(8)).map(marked_here).batch(4).feed(num_workers=2) as feed:
        queue.put(([batch["pid"].tolist() for batch in feed], feed.stats().notices, os.getpid()))


def marked_here(number: int) -> Any:
    return {"number": number, "pid": os.getpid()}


def test_a_daemonic_process_runs_its_feeds_in_threads() -> None:
    context = multiprocessing.get_context("forkserver")
    queue = context.SimpleQueue()
    child = context.Process(target=in_a_daemon, args=(queue,), daemon=True)
    child.start()
    pids, notices, own = queue.get()
    child.join()
    child.close()
    queue.close()
    assert pids == [[own] * 4] * 2
    assert "'marked_here': called in this program, one call at a time, and not in worker processes: " in notices[0]
    assert "daemonic" in notices[0]


def test_a_notice_says_where_functions_run() -> None:
    with images().map(dict).map(marked_here, name="mark").batch(4).feed() as feed:
        next(feed)
        assert feed.stats().notices == (
            "'dict', 'mark': called in this program, one call at a time; feed(num_workers=N) uses N worker processes",
        )
        assert "notice: 'dict', 'mark': called in this program" in feed.report()
    with images().batch(4).feed() as feed:
        next(feed)
        assert feed.stats().notices == ()


class Beside:
    """An executor of the user's own, as a value: one thread for each worker, that of threads."""

    def __init__(self) -> None:
        self.engines: list[Engine] = []

    def executor(self, engine: Engine) -> Any:
        self.engines.append(engine)
        return ThreadsExecutor(engine)


def test_an_executor_of_the_users_own_runs_each_epoch_and_every_stage() -> None:
    own = Beside()
    ds = ps.from_source(range(30)).map(abs, executor="processes", concurrency=2).map(marked_here).batch(4)
    assert f"3 worker(s) of {__name__}.Beside" in ds.with_options(executor=own, num_workers=3).explain()
    with ds.feed(executor=own, num_workers=3) as feed:
        for _ in range(2):
            batches = list(feed)
            assert np.concatenate([batch["number"] for batch in batches]).tolist() == list(range(30))
            assert {int(pid) for batch in batches for pid in batch["pid"]} == {HERE}
    assert [sum(engine.pools.values()) for engine in own.engines] == [5, 5]
    with ds.feed(executor=own, num_workers=0) as feed:
        next(feed)
    assert len(own.engines) == 2


def test_what_an_executor_of_the_users_own_must_give_is_said() -> None:
    class Wrong:
        def executor(self, engine: Engine) -> Any:
            return 3

    with ps.from_source(range(3)).feed(executor=Wrong()) as feed, pytest.raises(PlanError) as caught:
        next(feed)
    assert caught.value.what == "Wrong.executor() gave a int, which is no executor"
    assert caught.value.where == "feed(executor=...)"
    assert "start(), wait() and join(grace_period_s)" in caught.value.fix
