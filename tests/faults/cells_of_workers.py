"""Cells of the matrix: what goes wrong in workers. FAULTS A."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from faults import jobs_in_workers as jobs
from faults.cells import (
    EXECUTORS,
    WORKERS,
    Way,
    cell,
    check_beginning,
    check_note,
    check_same,
    pids,
    places,
    processes_in,
    reference,
    run,
    taken,
    when_waiting,
)
from faults.ways import notes

import penstock as ps
from penstock._workers.child import Child

SIZE, PLACE = 120, 77


def numbers(count: int = SIZE) -> ps.Dataset:
    return ps.from_source(range(count))


# -- errors


@cell("A1", "A2", "A3", kind=["ValueError", "two arguments", "a lambda"])
def a_function_raises(way: Way, folder: Path, kind: str) -> None:
    ds = numbers().map(jobs.Raises(kind, PLACE), name="explode")
    with ds.feed(**way) as feed:
        items, error = taken(feed)
        state = feed.state_dict()
    check_beginning(items, list(range(SIZE)), PLACE, way)
    check_note(error, "explode", PLACE, way)
    kinds = {"ValueError": ValueError, "two arguments": jobs.TwoArguments, "a lambda": jobs.HoldsALambda}
    assert type(error) is kinds[kind]
    assert str(error) == f"no colour at {PLACE}"
    assert "in raise_like" in notes(error)  # the traceback of there
    with numbers().map(jobs.Raises(kind), name="explode").feed(**way) as feed:  # mended
        feed.load_state_dict(state)
        more, error = taken(feed)
    assert error is None, error
    check_same(items + more, list(range(SIZE)), way)


@cell("A1", "A3", kind=["ValueError", "a lambda"])
def a_function_raises_and_its_elements_are_skipped(way: Way, folder: Path, kind: str) -> None:
    bad = (0, 5, 6, PLACE, SIZE - 1)
    ds = numbers().map(jobs.Raises(kind, *bad), on_error=ps.Skip(quarantine=folder / "bad.jsonl")).map(jobs.with_process)
    items, error = run(ds, way)
    assert error is None, error
    check_same(places(items), [number for number in range(SIZE) if number not in bad], way)
    assert len(processes_in(items)) <= 2  # none had to be replaced
    lines = (folder / "bad.jsonl").read_text()
    assert sorted(int(index) for index in re.findall(r'"keys": \[\[0, (\d+), 0\]\]', lines)) == sorted(bad), lines


ENDS = ["StopIteration", "StopAsyncIteration", "GeneratorExit", "SystemExit", "sys.exit(0)"]


def _would_end(way: Way, kind: str, operator: str) -> None:
    function = jobs.Raises(kind, PLACE)
    ds = numbers().filter(function, name="ending") if operator == "filter" else numbers().map(function, name="ending")
    items, error = run(ds, way)
    check_beginning(items, list(range(operator == "filter", SIZE)), PLACE - (operator == "filter"), way)
    assert isinstance(error, ps.errors.StopRaised), error
    check_note(error, "ending", PLACE, way)
    assert error.what.startswith("the function of stage 'ending' raised ")


@cell("A4", "A5", kind=ENDS)
def a_function_raises_what_would_pass_for_an_end(way: Way, folder: Path, kind: str) -> None:
    _would_end(way, kind, "map")


@cell("A4", "A5", kind=["StopIteration", "SystemExit"])
def a_filter_raises_what_would_pass_for_an_end(way: Way, folder: Path, kind: str) -> None:
    _would_end(way, kind, "filter")


@cell("A5")
def a_function_raises_keyboard_interrupt(way: Way, folder: Path) -> None:
    _would_end(way, "KeyboardInterrupt", "map")


@cell("A10", executors=WORKERS)
def memory_is_refused_to_a_function(way: Way, folder: Path) -> None:
    ds = numbers().map(jobs.Raises("MemoryError", PLACE), name="explode")
    items, error = run(ds, way)
    check_beginning(items, list(range(SIZE)), PLACE, way)
    assert isinstance(error, MemoryError)
    check_note(error, "explode", PLACE, way)
    assert "256. PiB" in str(error)


@cell("A10")
def a_process_reaches_its_limit_of_memory_and_goes_on(way: Way, folder: Path) -> None:
    ds = numbers().map(jobs.LimitsMemory(PLACE, 1 << 30), name="explode", on_error=ps.Skip(errors=MemoryError)).map(jobs.with_process)
    items, error = run(ds, way)
    assert error is None, error
    check_same(places(items), [number for number in range(SIZE) if number != PLACE], way)
    assert len(processes_in(items)) <= 2


# -- deaths


@cell("A6", "A7", "A8", how=list(jobs.WORDS_OF_DEATH))
def a_worker_dies_once(way: Way, folder: Path, how: str) -> None:
    told: list[str] = []
    ds = numbers().map(jobs.Dies(folder, how, {PLACE: 1})).map(jobs.row).batch(7)
    with ds.feed(**way) as feed:
        feed.add_listener(_Told(told))
        items, error = taken(feed)
    assert error is None, error
    check_same(items, reference(numbers().map(jobs.row).batch(7)), way)
    (said,) = told
    assert re.fullmatch(
        rf"worker process workers-[01] \(process \d+\) {re.escape(jobs.WORDS_OF_DEATH[how])}; another one computes its elements again",
        said,
    ), said


class _Told:
    """A listener that keeps what is said of workers."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def __call__(self, event: Any) -> None:
        if getattr(event, "kind", "") == "worker":
            self.texts.append(event.text)


@cell("A6", "A7", "A8", how=["exit 0", "SIGKILL", "SIGSEGV"])
def an_element_that_kills_is_named(way: Way, folder: Path, how: str) -> None:
    ds = numbers().map(jobs.Dies(folder, how, {PLACE: 99}), name="explode")
    items, error = run(ds, way)
    check_beginning(items, list(range(SIZE)), PLACE, way)
    assert isinstance(error, ps.errors.WorkerDied), error
    assert jobs.WORDS_OF_DEATH[how] in error.what
    assert f"element epoch 0 index {PLACE}" in notes(error)
    assert "stage 'read+explode', worker " in notes(error)  # which of the two killed it, only the dead process knows
    if how == "SIGKILL":
        assert "out-of-memory killer" in error.fix  # A9 as far as it can be told from a signal


@cell("A7", policy=["skip", "replace", "retry, then skip"])
def elements_that_kill_are_what_the_policy_says(way: Way, folder: Path, policy: str) -> None:
    bad = {5: 99, PLACE: 99} if policy == "replace" else {0: 99, 5: 99, PLACE: 99, SIZE - 1: 99}
    given = {"skip": ps.Skip(), "replace": ps.Replace(), "retry, then skip": ps.Retry(times=3, then=ps.Skip())}[policy]
    killing = numbers().map(jobs.Dies(folder, "SIGKILL", bad)).map(jobs.row).batch(7)
    raising = numbers().map(jobs.Raises("ValueError", *bad), on_error=given if policy != "retry, then skip" else ps.Skip())
    items, error = run(killing, way, on_error=given)
    assert error is None, error
    check_same(items, reference(raising.map(jobs.row).batch(7)), way)
    if policy == "retry, then skip":
        assert len(list(folder.glob("died at 5-*"))) in (2, 3)  # not by the policy: twice, and once before with others of its item


@cell("A7", orders=(True,))
def batches_that_kill_are_what_the_policy_says(way: Way, folder: Path) -> None:
    killing = numbers().batch(4).map(jobs.Dies(folder, "SIGSEGV", {20: 99, 60: 1}), name="explode")
    items, error = run(killing, way)
    assert isinstance(error, ps.errors.WorkerDied), error
    assert "index 20" in notes(error)
    check_same(items, reference(numbers(20).batch(4)), way)
    killing = numbers().batch(4).map(jobs.Dies(folder, "exit 3", {24: 99, 64: 1}))
    items, error = run(killing, way, on_error=ps.Skip())
    assert error is None, error
    whole = reference(numbers().batch(4))
    check_same(items, whole[:6] + whole[7:], way)


@cell("A8")
def a_worker_is_killed_while_it_computes(way: Way, folder: Path) -> None:
    ds = numbers().map(jobs.Waits(folder, PLACE)).map(jobs.row).batch(8)
    with when_waiting(folder, _kill):
        items, error = run(ds, way)
    assert error is None, error
    check_same(items, reference(numbers().map(jobs.row).batch(8)), way)


def _kill(pid: int) -> None:
    if pid:
        os.kill(pid, signal.SIGKILL)


@cell("A8")
def idle_workers_are_killed(way: Way, folder: Path) -> None:
    """Between two epochs they have nothing to do."""
    ds = numbers().map(jobs.row).batch(8)
    with ds.feed(**way) as feed:
        for epoch in range(3):
            items, error = taken(feed)
            assert error is None, error
            check_same(items, reference(ds, epoch), way)
            for pid in pids(feed):
                with suppress(ProcessLookupError):  # it had nothing to do in this epoch, so its death was not noticed
                    os.kill(pid, signal.SIGKILL)


@cell("A8")
def workers_are_killed_while_they_start(way: Way, folder: Path) -> None:
    ds = numbers().map(jobs.row).batch(8)
    deaths = iter(range(4))
    with pytest.MonkeyPatch.context() as patch:
        start = Child.start.__func__  # type: ignore[attr-defined]

        def started(cls: type[Child], *args: Any, **options: Any) -> Child:
            child: Child = start(cls, *args, **options)
            if next(deaths, None) is not None:
                child.kill()
            return child

        patch.setattr(Child, "start", classmethod(started))
        items, error = run(ds, {**way, "num_workers": 3})
    assert error is None or isinstance(error, ps.errors.WorkerDied), error  # three deaths of one worker in a row are the end
    if error is None:
        check_same(items, reference(ds), way)


@cell("A16")
def a_worker_dies_whenever_it_starts(way: Way, folder: Path) -> None:
    ds = numbers().map(jobs.Unreadable("ends"))
    items, error = run(ds, way)
    assert items == []
    assert isinstance(error, ps.errors.WorkerDied), error
    assert "ended with exit code 1" in error.what


@cell("A15", how=["is not read", "is not written", "a lock"])
def a_function_cannot_be_sent_to_a_worker(way: Way, folder: Path, how: str) -> None:
    function: Any = jobs.Unreadable(how)
    if how == "a lock":
        lock = threading.Lock()

        def function(x: int) -> int:
            with lock:
                return x

    try:
        items, error = run(numbers().map(function), way)
    except ps.errors.PlanError as refused:
        items, error = [], refused
    assert items == []
    assert isinstance(error, ps.errors.PlanError), error
    words = {
        "is not read": "cannot be read in a worker process: LookupError: not to be read",
        "is not written": "Unreadable cannot be sent to another process",
        "a lock": "cannot be sent to another process",
    }[how]
    assert words in error.what, error.what
    assert ("import what the functions need" if how == "is not read" else "open files, locks and clients inside the function") in error.fix


# -- workers that hang


@cell("A11", "A12", "A13", how=["a loop", "a call of C", "a lock", "a FIFO", "SIGSTOP"])
def a_worker_that_hangs_is_named_and_killed(way: Way, folder: Path, how: str) -> None:
    os.mkfifo(folder / "never")
    ds = numbers().map(jobs.Hangs(folder, how, PLACE, 1), name="stuck")
    with ds.feed(**way, stall_timeout_s=1.5, grace_period_s=0.2) as feed:
        items, error = taken(feed)
        state = feed.state_dict()
    assert len(items) <= PLACE or not way["ordered"]  # those before it of its chunk are with it
    check_beginning(items, list(range(SIZE)), len(items), way)
    assert isinstance(error, ps.errors.FeedStalled), error
    text = str(error) + notes(error)
    assert "stuck" in text  # of a process that answers nothing only the stage is known, "read+stuck"
    if how != "SIGSTOP":  # a process that is stopped says nothing
        if how != "a call of C":  # it holds the interpreter, and only the first of the chunk is known
            assert f"index {PLACE}" in text, text
        assert "jobs_in_workers.py" in text, text
        assert "in hang" in text, text
        assert "in apply" not in text, text  # of Penstock's own calls none leads to it
    with ds.feed(**way) as feed:  # it hangs once
        feed.load_state_dict(state)
        more, error = taken(feed)
    assert error is None, error
    check_same(items + more, list(range(SIZE)), way)


@cell("A11", "A13", how=["a loop", "a FIFO"])
def a_worker_that_hangs_is_killed_and_its_element_skipped(way: Way, folder: Path, how: str) -> None:
    os.mkfifo(folder / "never")
    ds = numbers().map(jobs.Hangs(folder, how, PLACE, 99), name="stuck").map(jobs.row).batch(4)
    items, error = run(ds, way, stall_timeout_s=2.0, on_stall="skip", on_error=ps.Skip())
    assert error is None, error
    raising = numbers().map(jobs.Raises("ValueError", PLACE), on_error=ps.Skip())
    check_same(items, reference(raising.map(jobs.row).batch(4)), way)


@cell("A12")
def a_feed_with_stopped_workers_closes(way: Way, folder: Path) -> None:
    with numbers(10**6).map(jobs.row).batch(8).feed(**way) as feed:
        next(feed)
        for pid in pids(feed):
            os.kill(pid, signal.SIGSTOP)


@cell("A14")
def one_worker_is_far_slower(way: Way, folder: Path) -> None:
    """In completion order all that the other worker does comes meanwhile; in order, nothing overtakes."""
    count = 4000
    ds = numbers(count).map(jobs.Waits(folder, 0))
    others = threading.Event()
    os.mkfifo(folder / "go")

    def release() -> None:
        with open(folder / "go", "wb"):
            if not way["ordered"]:
                others.wait()

    releasing = threading.Thread(target=release)
    releasing.start()
    items: list[Any] = []
    with ds.feed(**way) as feed:
        for item in feed:
            items.append(item)
            if len(items) == 100:
                others.set()
    releasing.join()
    check_same(items, list(range(count)), way)


# -- processes in processes, and what belongs to one


@cell("A17")
def a_thread_of_the_program_holds_a_lock_that_workers_take(way: Way, folder: Path) -> None:
    with jobs.LOCK:
        items, error = run(numbers().map(jobs.TakesLock()), way)
    assert error is None, error
    check_same(items, list(range(SIZE)), way)


@cell("A18", executors=tuple(EXECUTORS))
def a_client_was_opened_in_the_program(way: Way, folder: Path) -> None:
    if way["executor"] == "threads":  # one connection serves one thread at a time
        way = {**way, "num_workers": 1}
    if way["executor"] != "threads":
        jobs.from_client(0)
    items, error = run(numbers().map(jobs.from_client), way)
    jobs.close_client()
    assert error is None, error
    check_same([int(x) for x, _ in items], list(range(1, SIZE + 1)), way)
    assert (os.getpid() in processes_in(items)) == (way["executor"] != "processes")


@cell("A18", orders=(True,))
def a_client_of_the_program_is_part_of_a_function(way: Way, folder: Path) -> None:
    jobs.from_client(0)
    client = jobs.CLIENT.pop()
    try:
        items, error = run(numbers().map(lambda x: client.execute("select 1")), way)
    finally:
        client.close()
    assert items == []
    assert isinstance(error, ps.errors.PlanError)
    assert "sqlite3.Connection" in error.what + str(error.__cause__)
    assert "open files, locks and clients inside the function" in error.fix


@cell("A19")
def libraries_with_threads_of_their_own_ran_before(way: Way, folder: Path) -> None:
    jobs.product(1)
    items, error = run(numbers(20).map(jobs.product), way)
    assert error is None, error
    check_same(items, [200 * x for x in range(20)], way)


@cell("A20", orders=(True,), deadline_s=60)
def forty_workers_are_killed(way: Way, folder: Path) -> None:
    ds = numbers(40).map(jobs.Dies(folder, "SIGKILL", dict.fromkeys(range(0, 40, 2), 1))).batch(1)
    items, error = run(ds, way, memory_bytes=1)
    assert error is None, error
    check_same(items, reference(numbers(40).batch(1)), way)


@cell("A20", orders=(True,), deadline_s=300, slow=True)
def two_hundred_workers_are_killed(way: Way, folder: Path) -> None:
    ds = numbers(200).map(jobs.Dies(folder, "SIGKILL", dict.fromkeys(range(200), 1))).batch(1)
    items, error = run(ds, way, memory_bytes=1)
    assert error is None, error
    check_same(items, reference(numbers(200).batch(1)), way)


@cell("A23")
def the_thread_that_started_the_workers_ends(way: Way, folder: Path) -> None:
    ds = numbers(2000).map(jobs.row).batch(8)
    found: list[Any] = []

    def begin() -> None:
        feed = ds.feed(**way)
        found.append((feed, next(feed)))

    starting = threading.Thread(target=begin)
    starting.start()
    starting.join()
    feed, first = found.pop()
    with feed:
        items, error = taken(feed)
    assert error is None, error
    check_same([first, *items], reference(ds), way)


@cell("A24", end=["the feed ends", "the worker is killed", "the loop is left"])
def a_function_leaves_a_program_behind(way: Way, folder: Path, end: str) -> None:
    ds = numbers(2000).map(jobs.StartsProgram(folder, 9)).map(jobs.Dies(folder, "SIGKILL", {15: int(end == "the worker is killed")}))
    with ds.feed(**way) as feed:
        items, error = taken(feed, 30 if end == "the loop is left" else None)
    assert error is None, error
    if end != "the loop is left":
        check_same(items, list(range(2000)), way)
    assert (folder / "grandchild").exists()


@cell("A25", orders=(True,))
def a_feed_in_a_daemonic_process(way: Way, folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    hear, say = context.Pipe(duplex=False)
    child = context.Process(target=_feed_in_a_child, args=(way, say), daemon=True)
    child.start()
    say.close()
    said = hear.recv()
    hear.close()
    child.join()
    child.close()
    assert said.startswith("PlanError: no worker processes can be started: this is a daemonic process, such as a worker of "), said


def _feed_in_a_child(way: Way, say: Any) -> None:
    try:
        items, error = run(numbers(), way)
        if error is not None:
            raise error
        say.send(repr(items))
    except BaseException as refused:
        say.send(f"{type(refused).__name__}: {refused}")


@cell("A27", orders=(True,))
def functions_draw_from_the_generators_of_the_process(way: Way, folder: Path) -> None:
    """Those of the process differ everywhere; that of a function that takes `rng` is the run's own, and the same in each run."""
    with numbers().map(jobs.drawn).repeat(2).feed(**way) as feed:
        items, error = taken(feed)
    assert error is None, error
    assert len({number for _, _, number, _ in items}) == 2 * SIZE
    assert len({number for _, _, _, number in items}) == 2 * SIZE
    ds = numbers().map(jobs.noisy, seed=7).repeat(2)
    for other in EXECUTORS.values():
        check_same(run(ds, {**other, "ordered": True})[0], reference(ds), way)


@cell("A28")
def a_function_changes_its_process(way: Way, folder: Path) -> None:
    """Nothing of it is seen in the program, files of relative names are still found, and the worker ends."""
    (folder / "a.txt").write_text("".join(f"{number}\n" for number in range(SIZE)))
    before = os.getcwd(), os.umask(0o022), signal.getsignal(signal.SIGTERM), os.environ.get("PENSTOCK_TEST")
    os.umask(before[1])
    os.chdir(folder)
    try:
        ds = ps.read_text("a.txt").map(jobs.number_in_line).map(jobs.Changes(3)).map(jobs.row).batch(5)
        items, error = run(ds, way)
        assert os.getcwd() == os.path.realpath(folder)
    finally:
        os.chdir(before[0])
    assert error is None, error
    mask = os.umask(before[1])
    assert (mask, signal.getsignal(signal.SIGTERM), os.environ.get("PENSTOCK_TEST")) == before[1:]
    os.fstat(0)
    check_same(items, reference(numbers().map(jobs.row).batch(5)), way)
