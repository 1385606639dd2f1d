"""What a worker process tells on its second line, and that its start is no slow element."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from _workers.in_workers import ReadsForever, SlowToRead, StartsThread, draws, pools, with_process
from programs import python

import penstock as ps
from penstock._contracts.options import Options
from penstock._workers import processes
from penstock._workers.arena import Arena
from penstock._workers.child import Child
from penstock._workers.processes import _Line
from penstock._workers.remote import serve
from penstock.errors import PlanError
from penstock.feed.compiled import Compiled
from penstock.feed.feed import Feed
from penstock.feed.isolated import EngineProcess

pytestmark = [
    pytest.mark.usefixtures("fork_server"),
    pytest.mark.skipif(sys.platform == "win32", reason="processes and signals of POSIX"),
]


def test_a_stack_is_whole_when_the_answer_to_another_question_comes_amid_it() -> None:
    arena = Arena()
    child = Child.start(serve, ("worker 0", 0, arena.num_bytes, {"OMP_NUM_THREADS": "1"}, {}), name="worker 0", method="exec")
    line = _Line(child, arena.fd)
    try:
        while line.spot() is None or line.calls(child)[-1][2] != "recv_fds":  # it waits for a request
            time.sleep(0.01)
        for _ in range(10):
            line.spot()
            assert [function for _, _, function in line.calls(child)][-4:] == ["serve", "receive", "fill", "recv_fds"]
    finally:
        child.stop(10.0)
        line.close()
        arena.close()


def test_a_process_that_starts_longer_than_a_stall_is_no_slow_element() -> None:
    with ps.from_source(range(20)).map(SlowToRead()).feed(executor="processes", num_workers=1, stall_timeout_s=0.3) as feed:
        assert list(feed) == list(range(20))  # a warning of slow elements would be an error here


def test_workers_draw_numbers_of_their_own() -> None:
    with ps.from_source(range(200)).map(draws).feed(executor="processes", num_workers=3) as feed:
        drawn = list(feed)
    assert len({one["pid"] for one in drawn}) == 3
    assert len({number for one in drawn for number in (one["numpy"], one["python"])}) == 400


@pytest.mark.parametrize(("num_workers", "given"), [(1, ""), (4, "3")])
def test_native_libraries_of_a_worker_have_its_share_of_the_cpus(num_workers: int, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    share = str(max(1, len(os.sched_getaffinity(0)) // num_workers))
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    with ps.from_source(range(64)).map(pools).feed(executor="processes", num_workers=num_workers) as feed:
        assert next(feed) == {"OMP_NUM_THREADS": given or share, "OPENBLAS_NUM_THREADS": share}


def test_workers_are_started_one_by_one_where_an_import_starts_threads() -> None:
    with ps.from_source(range(200)).map(StartsThread()).map(with_process).feed(executor="processes", num_workers=2) as feed:
        got = list(feed)
        notices = feed.stats().notices
    assert [number for number, _ in got] == list(range(200))
    assert [notice.partition(":")[0] for notice in notices] == [
        "importing what the functions need started other threads (a thread of a module), which a forked process lacks"
    ]


def test_a_feed_is_closed_while_its_functions_are_read(tmp_path: Path) -> None:
    fifo = str(tmp_path / "begun")
    os.mkfifo(fifo)
    feed = ps.from_source(range(20)).map(ReadsForever(fifo)).feed(executor="processes", num_workers=2, grace_period_s=0.1)
    caught: list[BaseException] = []

    def take() -> None:
        try:
            next(feed)
        except ps.errors.FeedClosed as closed:
            caught.append(closed)

    thread = threading.Thread(target=take)
    thread.start()
    with open(fifo, "rb") as begun:
        begun.read()
    feed.close()
    thread.join()
    assert len(caught) == 1


class Sized:
    """A function with an attribute that a training loop changes."""

    def __init__(self, size: int) -> None:
        self.size, self.handle = size, None

    def __call__(self, element: int) -> int:
        return self.size + element


def test_what_a_loop_changes_between_two_epochs_is_sent_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ask = [], EngineProcess.ask

    def noted(process: EngineProcess, name: str, *arguments: Any, **options: Any) -> Any:
        asked.append(name)
        return ask(process, name, *arguments, **options)

    monkeypatch.setattr(EngineProcess, "ask", noted)
    function = Sized(100)
    with ps.from_source(range(20)).map(function).feed(executor="processes", num_workers=2) as feed:
        assert list(feed) == list(range(100, 120))
        assert list(feed) == list(range(100, 120))
        assert asked.count("renew") == 0
        function.size = 200
        assert list(feed) == list(range(200, 220))
        assert asked.count("renew") == 1


@pytest.mark.parametrize("isolate", [True, False])
def test_batches_have_the_named_tuples_that_only_the_program_has_and_may_have_no_field(isolate: bool) -> None:
    class Sample(NamedTuple):
        image: Any
        label: int

    def feed(fn: Callable[[int], Any]) -> Feed:
        return ps.from_source(range(6)).map(fn).batch(2).feed(executor=ps.Processes(isolate=isolate), num_workers=2)

    with feed(lambda n: Sample(np.full(2, n), n)) as samples:
        for number, batch in enumerate(samples):
            assert type(batch) is Sample
            assert batch.label.tolist() == batch.image[:, 0].tolist() == [2 * number, 2 * number + 1]
        assert number == 2
    with feed(lambda n: ({}, [()])) as samples:
        assert list(samples) == [({}, [()])] * 3


@pytest.mark.parametrize("isolate", [True, False])
def test_classes_that_a_worker_makes_come_to_the_program(isolate: bool) -> None:
    def made(n: int) -> Any:
        class Sample(NamedTuple):
            label: int

        class Bad(ValueError):
            pass

        if n == 5:
            raise Bad(str(Sample(n)))
        return Sample(n)

    with ps.from_source(range(6)).map(made).feed(executor=ps.Processes(isolate=isolate), num_workers=2) as samples:
        assert [next(samples).label for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(ValueError, match="label=5"):
            next(samples)


def test_a_function_that_cannot_be_sent_any_more_stays_as_it_was_with_one_notice() -> None:
    function = Sized(100)
    with ps.from_source(range(20)).map(function).feed(executor="processes", num_workers=2) as feed:
        assert list(feed) == list(range(100, 120))
        function.size, function.handle = 200, threading.Lock()  # type: ignore[assignment]
        for _ in range(2):
            assert list(feed) == list(range(100, 120))
        (notice,) = (one for one in feed.stats().notices if "go on with" in one)
    assert "(at `self.handle` of Sized)" in notice
    assert "worker processes go on with what the functions and objects of the dataset held before" in notice


def test_a_list_that_is_a_source_is_sent_again_when_it_has_changed_a_long_one_when_its_length_has() -> None:
    texts = ["a", "b", "c"]
    with ps.from_source(texts).map(str.upper).feed(executor="processes", num_workers=1) as feed:
        assert list(feed) == ["A", "B", "C"]
        texts[1] = "x"
        assert list(feed) == ["A", "X", "C"]
    texts = ["a"] * 100_001
    with ps.from_source(texts).take(2).map(str.upper).feed(executor="processes", num_workers=1) as feed:
        assert list(feed) == ["A", "A"]
        texts[1] = "x"
        assert list(feed) == ["A", "A"]
        texts.append("d")
        assert list(feed) == ["A", "X"]


class Rows:
    """An object of the user's with its data in memory."""

    def __init__(self) -> None:
        self.texts = [[f"row {number}", number] for number in range(20_000)]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Any:
        return self.texts[index]


def test_more_than_a_quarter_of_the_free_memory_is_refused_before_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "free_memory", lambda: 4_000_000)  # no test may fill the memory of the machine
    dataset = ps.from_source(Rows())
    with dataset.feed(executor="processes", num_workers=2) as feed:
        assert next(feed) == ["row 0", 0]
    with pytest.raises(PlanError) as caught, dataset.feed(executor="processes", num_workers=8) as feed:
        next(feed)
    assert "8 worker processes would take more than 1 MB for copies of what the dataset holds, and 4 MB are free" in caught.value.what
    assert "most of it is `self.texts` of Rows" in caught.value.what
    assert "keep large arrays in a file (np.load(path, mmap_mode='r')), open it in the worker" in caught.value.fix


def test_a_generator_in_a_function_is_warned_of_where_there_are_several_workers() -> None:
    function = Sized(100)
    function.rng = np.random.default_rng()  # type: ignore[attr-defined]
    dataset = ps.from_source(range(20)).map(function)
    with pytest.warns(UserWarning, match="`self.rng` of Sized is a Generator: it draws the same numbers in each worker process") as told:
        assert len(list(dataset.feed(executor="processes", num_workers=2))) == 20
    assert told[0].filename == __file__
    assert len(list(dataset.feed(executor="processes", num_workers=1))) == 20


def test_what_a_function_logs_and_warns_of_comes_to_the_program(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("tests.of.workers")

    def function(element: int) -> int:
        logger.info("at %d", element)
        logger.debug("not wanted")
        if element == 3:
            warnings.warn("careful", stacklevel=1)
            try:
                raise ValueError("bad")
            except ValueError:
                logger.exception("failed", extra={"lock": threading.Lock()})
        return element

    with caplog.at_level(logging.INFO, "tests.of.workers"), pytest.warns(UserWarning, match="careful"):
        assert list(ps.from_source(range(10)).map(function).feed(executor="processes", num_workers=2)) == list(range(10))
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert sorted(text for level, text in said if level == "INFO") == [f"at {number}" for number in range(10)]
    (failed,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert failed.funcName == "function"
    assert failed.process != os.getpid()
    assert "ValueError: bad" in (failed.exc_text or "")
    assert not any(level == "DEBUG" for level, _ in said)


GUARDLESS = """
import multiprocessing
import penstock as ps
print("runs as", __name__)
with ps.from_source(range(3)).feed(executor="threads") as feed:
    print(list(feed))
child = multiprocessing.get_context("spawn").Process(target=abs, args=(1,))
child.start()
child.join()
print(child.exitcode)
"""

POOL = """
import multiprocessing
import penstock as ps
def work(length):
    with ps.from_source(range(length)).feed() as feed:
        return list(feed)
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [3]))
"""


@pytest.mark.parametrize(
    ("program", "output", "told"),
    [(GUARDLESS, "runs as __main__\n[0, 1, 2]\nruns as __mp_main__\n1\n", True), (POOL, "[[0, 1, 2]]\n", False)],
    ids=["without a guard", "in a pool"],
)
def test_a_feed_is_refused_only_while_a_child_process_imports_the_program(program: str, output: str, told: bool, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program)
    done = python("program.py", cwd=tmp_path, PYTHONUNBUFFERED="1")
    assert done.stdout == output
    assert ("PlanError: a feed is reached while a child process imports the program" in done.stderr) is told
    assert ("put what the program does under `if __name__ == '__main__':`" in done.stderr) is told


class Pinning:
    """An output that gives batches as they are, and notes which memory of worker processes it was told to pin, and whether a batch was."""

    depth, allocate, spans_processes = 0, None, False

    def __init__(self) -> None:
        self.ranges: dict[int, int] = {}
        self.pinned: list[bool] = []

    def pin(self, address: int, num_bytes: int) -> Callable[[], object]:
        self.ranges[address] = num_bytes
        return lambda: self.ranges.pop(address)

    def send(self, batch: Any, group: list[Any]) -> Any:
        address = batch.ctypes.data
        self.pinned.append(any(begin <= address and address + batch.nbytes <= begin + size for begin, size in self.ranges.items()))
        return batch

    def receive(self, sent: Any) -> Any:
        return sent

    def finish(self) -> None:
        pass


def test_batches_of_worker_processes_lie_in_pinned_memory_until_the_feed_is_closed() -> None:
    ds, output = ps.from_arrays(np.arange(4000)).map(np.square).batch(8), Pinning()
    with Feed(Compiled(ds._root, Options(executor="processes", num_workers=2), output)) as feed:
        for _ in range(2):
            assert [int(batch[0]) for batch in feed] == [n * n for n in range(0, 4000, 8)]
        assert len(output.pinned) == 1000
        assert all(output.pinned)
        assert 1 <= len(output.ranges) <= 40
    assert not output.ranges
