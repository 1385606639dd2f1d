"""executor="auto": what is tried, when, and what stays; and that the elements are the same whatever it does."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from _executors.in_workers import Bound, busy, twice

import penstock as ps
from penstock._contracts.options import Options
from penstock._engine.error_policy import RAISING
from penstock._engine.lowering import lower
from penstock._engine.resume import PlanVariant
from penstock._engine.tuning import TuningCache
from penstock._executors import choice as module
from penstock._executors.choice import ExecutorChoice

pytestmark = pytest.mark.usefixtures("fork_server")


DATASET = ps.from_source(list(range(10)))


class Clock:
    """Time, and CPU time of a process that uses so many CPUs."""

    def __init__(self, cpus: float) -> None:
        self.now_ns, self.cpus = 1_000_000_000, cpus

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def process_time_ns(self) -> int:
        return int(self.cpus * self.now_ns)


class Owner:
    """What a choice belongs to."""


class FakeEngine:
    """An engine as far as a choice looks at it."""

    def __init__(self, num_active: int, dataset: ps.Dataset) -> None:
        self.num_active, self.error_handler = num_active, RAISING
        self.plans = list(lower(dataset._root, folded=False, skips=False).segments)


class Run:
    """A feed without elements: a choice, and hand-overs at given times."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        cpus: float = 1.0,
        num_active: int = 2,
        cache: TuningCache | None = None,
        file: Path | None = None,
    ) -> None:
        self.clock, self.owner, self.num_active = Clock(cpus), Owner(), num_active
        monkeypatch.setattr(module, "time", self.clock)
        self.choice = ExecutorChoice(self.owner, DATASET._root, Options(executor_file=file), 2, cache, may_move=True)
        self.notices: list[str] = []
        self.start()

    def start(self) -> None:
        self.choice.begin(PlanVariant(DATASET._root, False), lower(DATASET._root, folded=False, skips=False))
        self.choice._engine = FakeEngine(self.num_active, DATASET)  # type: ignore[assignment]

    def deliver(self, per_s: float, waits: float = 1.0, seconds: float = 1.2) -> None:
        """Hand over at a rate for some seconds, or until the feed is to move; then it does."""
        end_ns = self.clock.now_ns + int(1e9 * seconds)
        while self.clock.now_ns < end_ns and not self.choice.moves:
            self.clock.now_ns += int(1e9 / per_s)
            self.choice.delivered(self.clock.now_ns, int(waits * 1e9 / per_s), 1)
        self.note()
        if self.choice.moves:
            self.start()

    def wait_for_processes(self) -> None:
        assert self.choice._starter is not None
        self.choice._starter.join()
        while self.choice._processes is not None and not self.choice._processes.ready:
            time.sleep(0.001)  # the children are real

    def note(self) -> None:
        self.notices += [self.choice.notice] if self.choice.notice else []
        self.choice.notice = ""


def test_processes_are_tried_when_the_loop_waits_and_stay_when_they_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = TuningCache()
    run = Run(monkeypatch, cache=cache)
    run.deliver(100)
    run.wait_for_processes()
    run.deliver(100)
    assert run.choice.name == "processes"
    run.deliver(180)
    assert run.choice.name == "processes"
    assert run.notices[-1] == "executor='processes' is used from now on: 100 a second on threads, 180 a second on processes"
    assert cache.executor == ("processes", run.notices[-1], DATASET._root)
    run.choice.end()
    assert Run(monkeypatch, cache=cache).choice.name == "processes"


def test_epochs_that_are_shorter_than_a_window_are_counted_together_without_the_time_between(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    for _ in range(8):
        run.deliver(100, seconds=0.2)
        run.clock.now_ns += 5_000_000_000
        run.start()
    run.wait_for_processes()
    assert run.choice._rates == {"threads": pytest.approx(100, rel=0.01)}
    run.choice.end()


def test_a_file_has_what_was_found_for_the_feeds_of_other_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "executor.json"
    run = Run(monkeypatch, file=path)
    run.deliver(100)
    run.wait_for_processes()
    run.deliver(100)
    assert not path.exists()
    run.deliver(180)
    run.choice.end()
    assert json.loads(path.read_text()) == {
        "executor": "processes",
        "why": run.notices[-1],
        "plan": ["from_source"],
    }
    pinned = Run(monkeypatch, file=path)
    assert (pinned.choice.name, pinned.choice._open) == ("processes", False)
    with ps.from_source(range(7)).map(abs).feed(executor_file=path) as feed:
        assert list(feed) == list(range(7))
        assert any("was written for another plan" in notice for notice in feed.stats().notices)
    path.write_text('{"plan": ["from_source"], "executor": "gpu"}')
    with pytest.raises(ps.errors.PlanError, match=r"executor.json' cannot be read: KeyError: 'gpu'"):
        DATASET.feed(executor_file=path)


def test_a_file_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    run = Run(monkeypatch, file=folder / "executor.json")
    folder.rmdir()
    run.deliver(100)
    run.wait_for_processes()
    run.deliver(100)
    run.deliver(180)
    run.choice.end()
    assert "executor.json could not be written: [Errno 2]" in run.notices[-1]


def test_the_feed_goes_back_to_threads_when_processes_are_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.deliver(100)
    run.wait_for_processes()
    run.deliver(100)
    run.deliver(90)
    assert run.choice.name == "threads"
    run.deliver(100, seconds=5.0)
    assert run.choice.name == "threads"
    run.choice.end()


def test_the_loops_own_thread_is_tried_where_one_worker_alone_is_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, num_active=1)
    run.deliver(100)
    run.wait_for_processes()
    run.deliver(100)
    run.deliver(90)
    assert run.choice.name == "inline"
    assert run.choice.num_workers == 0
    run.deliver(130)
    assert run.choice.name == "inline"
    run.choice.end()


@pytest.mark.parametrize(("cpus", "waits"), [(0.1, 1.0), (1.5, 0.2)], ids=["workers wait for a disk", "the loop computes"])
def test_nothing_is_tried_where_it_cannot_help(monkeypatch: pytest.MonkeyPatch, cpus: float, waits: float) -> None:
    run = Run(monkeypatch, cpus=cpus)
    run.deliver(100, waits=waits, seconds=10.0)
    assert (run.choice.name, run.choice._starter, run.notices) == ("threads", None, [])


def test_what_cannot_be_sent_stays_on_threads_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    monkeypatch.setattr(module, "_MOST_BYTES", 10)
    run.deliver(100)
    assert run.choice._starter is not None
    run.choice._starter.join()
    run.deliver(100)
    assert run.choice.name == "threads"
    assert run.notices == ["worker processes cannot run this: the dataset holds too much memory to be copied for a trial"]
    run.choice.end()


class Slow(Bound):
    """Takes as long as it is let to be pickled."""

    def __init__(self) -> None:
        super().__init__(10)
        self.begun, self.go = threading.Event(), threading.Event()

    def __reduce__(self) -> Any:
        self.begun.set()
        self.go.wait()
        return Bound, (10,)


def test_the_end_does_not_wait_for_a_dataset_that_takes_long_to_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Slow()
    monkeypatch.setattr(f"{__name__}.DATASET", ps.from_source(source))
    run = Run(monkeypatch)
    run.deliver(100)
    starter = run.choice._starter
    assert starter is not None
    source.begun.wait()
    processes = run.choice._processes
    assert processes is not None
    run.choice.end()
    assert starter.is_alive()
    source.go.set()
    starter.join()
    assert processes.pids == []
    assert processes._sent is None


def test_a_feed_that_moves_delivers_each_element_once_and_in_order() -> None:
    dataset = ps.from_source(range(1000)).shuffle(seed=1).map(busy).batch(8).repeat()
    numbers: list[int] = []
    pids: set[int] = set()
    with dataset.feed(num_workers=2) as feed:
        end_s = time.monotonic() + 60.0
        while time.monotonic() < end_s and not any("from now on" in notice for notice in feed.stats().notices):
            for _ in range(50):  # stats() after each batch would be the training loop's own work, and nothing would wait
                batch = next(feed)
                numbers += batch["number"].tolist()
                pids |= set(batch["pid"].tolist())
        notices = list(feed.stats().notices)
        state = feed.state_dict()
        numbers += next(feed)["number"].tolist()
    assert "  note: executor='" in dataset.explain()
    with dataset.feed(executor="inline") as feed:
        wanted: list[int] = []
        while len(wanted) < len(numbers):
            wanted += next(feed)["number"].tolist()
    assert numbers == wanted
    assert any("worker processes are tried" in notice for notice in notices), notices
    assert pids - {os.getpid()}
    with dataset.feed(executor="inline") as feed:
        feed.load_state_dict(state)
        assert next(feed)["number"].tolist() == wanted[-8:]


def test_functions_are_tried_in_processes_where_the_source_cannot_be_sent(tmp_path: Path) -> None:
    path = tmp_path / "executor.json"
    numbers = ps.from_source(Bound(1000)).shuffle(seed=1).map(Bound(0)).flat_map(twice).shuffle(50, seed=2)
    dataset = numbers.map(busy, name="busy").batch(8).repeat()
    seen: list[int] = []
    pids: set[int] = set()
    with dataset.feed(num_workers=2, executor_file=path) as feed:
        end_s = time.monotonic() + 60.0
        while time.monotonic() < end_s and not any("from now on" in notice for notice in feed.stats().notices):
            for _ in range(50):
                batch = next(feed)
                seen += batch["number"].tolist()
                pids |= set(batch["pid"].tolist())
        notices = list(feed.stats().notices)
        state = feed.state_dict()
        seen += next(feed)["number"].tolist()
    with dataset.feed(executor="inline") as feed:
        wanted = [number for _ in range(len(seen) // 8) for number in next(feed)["number"].tolist()]
        assert seen == wanted
        feed.load_state_dict(state)
        assert next(feed)["number"].tolist() == wanted[-8:]
    tried = next(notice for notice in notices if "cannot be sent" in notice)
    assert "Bound cannot be sent to another process" in tried
    assert "its functions are tried there, and the rest stays on threads" in tried
    settled = next(notice for notice in notices if "from now on" in notice)
    assert "a second with 'busy' in processes" in settled
    assert pids - {os.getpid()}
    placed = "stage 'busy' on as many worker(s) of its own in processes" in dataset.explain()
    assert placed == ("executor='threads' with 'busy' in processes is used" in settled)
    path.write_text(json.dumps({**json.loads(path.read_text()), "executor": "placed"}))
    with dataset.feed(num_workers=2, executor_file=path) as feed:
        assert set(next(feed)["pid"].tolist()) - {os.getpid()}


def test_nothing_is_placed_where_no_function_can_be_sent_or_something_counts_its_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = ps.from_source(Bound(10))
    for dataset in (numbers, numbers.map(Bound(0)), numbers.batch(2).map(busy).enumerate()):
        monkeypatch.setattr(f"{__name__}.DATASET", dataset)
        run = Run(monkeypatch)
        run.deliver(100)
        assert run.choice._starter is not None
        run.choice._starter.join()
        run.deliver(100)
        assert run.choice.name == "threads"
        assert len(run.notices) == 1
        run.choice.end()


def options_that_keep_it(tmp_path: Any) -> list[dict[str, Any]]:
    return [
        {"on_error": ps.Skip(limit=1)},
        {"ordered": False},
        {"quarantine": str(tmp_path / "bad.jsonl")},
        {"num_workers": 1},
    ]


@pytest.mark.parametrize("number", range(4))
def test_a_feed_that_could_say_something_twice_does_not_move(number: int, tmp_path: Any) -> None:
    with ps.from_source(range(3)).feed(**options_that_keep_it(tmp_path)[number]) as feed:
        assert not feed._choice._open
        list(feed)


def test_a_generator_does_not_move_because_it_cannot_be_read_again() -> None:
    with ps.from_generator(lambda: iter(range(3))).feed(num_workers=2) as feed:
        list(feed)
        assert not feed._choice._open
