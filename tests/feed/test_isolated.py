"""`executor=ps.Threads(isolate=True)`: the feed runs in a process of its own, and the training loop sees what it sees without."""

from __future__ import annotations

import io
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core import core
from faults.deaths import PLANS, unhurt
from observe.test_curves import points_of

import penstock as ps
from penstock._contracts.event import BlockDone, Event, Notice
from penstock.errors import FeedClosed, FeedStalled, NotRepeatable, PlanError, SpecError, WorkerDied
from penstock.observe.doctor import FeedWatch
from penstock.testing.runs import exact


def fails(x: int) -> int:
    if x % 50 == 7:
        raise ValueError("no such picture")
    return x


TEN: dict[str, Callable[[Callable[[Any], Any]], ps.Dataset]] = {
    **PLANS,
    "skipped": lambda hurt: ps.from_source(range(400)).map(fails, on_error=ps.Skip()).map(hurt).batch(5),
    "replaced": lambda hurt: ps.from_source(range(400)).shuffle(seed=2).map(fails, on_error=ps.Replace()).map(hurt).batch(5),
    "two sources": lambda hurt: ps.from_source(range(400)).map(hurt).zip(ps.from_source(range(400)).map(float)).batch(5),
    "mixed": lambda hurt: ps.from_source(range(400)).map(hurt).mix(ps.from_source(range(200)), weights=[2, 1]).batch(5),
}
del TEN["the elements of one rank"]  # endless up to its take(): how many blocks it reads before it is stopped depends on time
ISOLATED: dict[str, Any] = {"executor": ps.Threads(isolate=True), "num_workers": 2}


def squares(count: int = 200, size: int = 4) -> ps.Dataset:
    def row(x: int) -> dict[str, Any]:
        return {"image": np.full(500, x, np.float32), "label": x * x}

    return ps.from_source(range(count)).shuffle(seed=5).map(row).batch(size)


def pid_of(feed: ps.Feed) -> int:
    process: int = feed._run._process.pid  # type: ignore[union-attr]
    return process


def in_line(ds: ps.Dataset) -> list[Any]:
    with ds.feed(num_workers=0) as feed:
        return [exact(item) for item in feed]


def gone(pid: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.005)
    return False


# -- the same as without ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", core(PLANS))
def test_each_plan_gives_the_same_bytes_in_each_epoch(name: str) -> None:
    ds = PLANS[name](unhurt)
    with ds.feed(num_workers=0) as feed:
        epochs = [[exact(item) for item in feed] for _ in range(2)]
    with ds.feed(**ISOLATED) as feed:
        assert [[exact(item) for item in feed] for _ in range(2)] == epochs


def test_functions_run_in_one_other_process_that_stays_over_epochs() -> None:
    with ps.from_source(range(40)).map(lambda x: os.getpid()).feed(**ISOLATED) as feed:
        first, second = set(feed), set(feed)
        assert first == second == {pid_of(feed)}
        assert os.getpid() not in first
    assert gone(first.pop(), 2.0)


@pytest.mark.parametrize("name", core(TEN, 2))
@pytest.mark.parametrize("executor", [ps.Processes(), ps.Threads(isolate=True)], ids=repr)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of what is skipped
def test_the_program_has_no_thread_of_the_feed_also_with_a_trace_curves_and_a_picture(executor: Any, name: str, tmp_path: Path) -> None:
    threads, stream = set(os.listdir("/proc/self/task")), io.StringIO()
    for is_seen in (False, True):
        with TEN[name](unhurt).feed(executor=executor, num_workers=2) as feed:
            if is_seen:
                feed.show(stream=stream)
                curves, trace = feed.observe(tensorboard=tmp_path), feed.trace(tmp_path / "trace.json")
            for _ in zip(range(8), feed, strict=False):
                time.sleep(0.01)  # so that curves have samples
                deadline = time.monotonic() + 5  # one that asked a question has ended, and the system lists it for a moment
                while more := set(os.listdir("/proc/self/task")) - threads:
                    assert time.monotonic() < deadline, more
                assert threading.enumerate() == [threading.current_thread()]
    assert "training loop" in stream.getvalue()
    assert points_of(curves.path)[1][-1][0] == 8
    assert any(event["name"] == "step" for event in json.loads(trace.path.read_text()))


def test_unordered_gives_each_batch_once() -> None:
    with squares().feed(**ISOLATED, ordered=False) as feed:
        assert sorted(map(str, map(exact, feed))) == sorted(map(str, in_line(squares())))


def test_a_state_goes_from_one_way_to_the_other_and_back() -> None:
    ds, items, state = squares(), [], None
    for way in (ISOLATED, {"num_workers": 0}, ISOLATED, ISOLATED):
        with ds.feed(**way) as feed:
            if state is not None:
                feed.load_state_dict(state)
            for _ in range(13 if way is ISOLATED else 7):
                items += [exact(item) for item in [next(feed, None)] if item is not None]
            state = json.loads(json.dumps(feed.state_dict()))
    assert items == in_line(ds)[: len(items)]
    assert len(items) == 46


def test_set_epoch_and_load_state_dict_drop_what_was_sent_ahead() -> None:
    ds = squares()
    with ds.feed(**ISOLATED) as feed, ds.feed(num_workers=0) as other:
        for one in (feed, other):
            next(one)
        state = feed.state_dict()
        for one in (feed, other):
            one.set_epoch(3)
        assert exact(next(feed)) == exact(next(other))
        for one in (feed, other):
            one.load_state_dict(state)
        assert [exact(item) for item in feed] == [exact(item) for item in other]


def test_batches_that_are_kept_stay_as_they_are() -> None:
    with squares(400, 10).feed(**ISOLATED) as feed:
        kept = [item for _ in range(2) for item in feed]
        copies = [exact(item) for item in kept]
        kept[0]["image"][:] += 1  # it may be written to
        copies[0] = exact(kept[0])
        list(feed)
    assert [exact(item) for item in kept] == copies
    assert len({item["image"].ctypes.data for item in kept}) == len(kept)


def test_memory_is_used_again() -> None:
    def large(x: int) -> Any:
        return np.full(1 << 20, x % 256, np.uint8)

    with ps.from_source(range(300)).map(large).batch(4).feed(**ISOLATED, memory_bytes=64 << 20) as feed:
        places = {item.ctypes.data for item in feed}
    assert len(places) < 40  # of 75


def test_single_elements_of_all_kinds_arrive() -> None:
    def thing(x: int) -> Any:
        return [x, f"{x}" * 2000, np.arange(x), (x, {"a": np.float32(x)}), None, b"\0" * 5000 * x][x % 6]

    ds = ps.from_source(range(60)).map(thing)
    with ds.feed(**ISOLATED) as feed:
        assert [exact(item) for item in feed] == in_line(ds)


class Own:
    """A class of the program's, which is sent by value where a test module is not importable there."""

    def __init__(self, number: int) -> None:
        self.number = number


def test_objects_of_the_program_are_of_its_classes() -> None:
    with ps.from_source(range(4)).map(Own).feed(**ISOLATED) as feed:
        assert [type(item) for item in feed] == [Own] * 4


# -- what happens elsewhere is told here ------------------------------------------------------------------------------------------


def test_an_error_arrives_behind_all_before_it_with_its_traceback() -> None:
    def fails(x: int) -> int:
        if x == 50:
            raise KeyError("no such picture")
        return x

    with ps.from_source(range(100)).map(fails).feed(**ISOLATED) as feed:
        items = []
        with pytest.raises(KeyError, match="no such picture") as caught:
            items.extend(feed)
        with pytest.raises(FeedClosed):
            next(feed)
    assert items == list(range(50))
    assert any("in fails" in note for note in caught.value.__notes__)


def test_policies_skip_count_warn_and_write_the_quarantine(tmp_path: Path) -> None:
    def fails(x: int) -> int:
        if x % 10 == 3:
            raise ValueError(f"bad {x}")
        return x

    lost = tmp_path / "lost.jsonl"
    ds = ps.from_source(range(40)).map(fails, on_error=ps.Skip(quarantine=lost))
    with ds.feed(**ISOLATED) as feed:
        with pytest.warns(RuntimeWarning, match="was skipped"):
            items = list(feed)
        assert items == [x for x in range(40) if x % 10 != 3]
        assert feed.stats().num_skipped == 4
        state = feed.state_dict()
    assert len(lost.read_text().splitlines()) == 4
    with ds.feed(**ISOLATED) as feed:
        feed.load_state_dict(state)
        next(feed)
        assert feed.stats().num_skipped >= 4


def test_warnings_and_logging_of_functions_reach_the_program(caplog: pytest.LogCaptureFixture) -> None:
    def tells(x: int) -> int:
        if x == 3:
            warnings.warn("odd picture", UserWarning, stacklevel=1)
            logging.getLogger("pictures").error("picture %d", x)
        return x

    with ps.from_source(range(8)).map(tells).feed(**ISOLATED) as feed, pytest.warns(UserWarning, match="odd picture"):
        list(feed)
    assert "picture 3" in caplog.text


def views(ds: ps.Dataset, folder: Path, *, isolate: bool) -> dict[str, Any]:
    """Return what each view says of a run, but for times and for sizes that follow from them."""
    events: list[Event] = []
    folder.mkdir()
    with FeedWatch() as watch:
        with ds.feed(executor=ps.Processes(isolate=isolate), num_workers=2, listeners=[events.append]) as feed:
            curves, trace = feed.observe(tensorboard=folder), feed.trace(folder / "trace.json")
            kept = [next(feed)]
            memory, fills = feed.memory(), feed.fills()
            kept += feed
            stats, lines = feed.stats(), feed.report().splitlines()
        (told,) = watch.report([], 0).feeds  # behind the end of the process
    rows = json.loads(trace.path.read_text())
    blocks = [event for event in events if isinstance(event, BlockDone)]
    assert stats.consumer.num_batches == len(kept)
    return {
        "stats": [
            (name, getattr(stats, name)) for name in ("num_skipped", "num_replaced", "failures", "in_order", "memory_bytes", "notices")
        ],
        "stages": {stage.name: stage.num_elements for stage in stats.stages},
        "batches": stats.consumer.num_batches,
        "blocks": sum(event.num_elements for event in blocks),
        "report": [re.split(r"\s{2,}", line.strip())[:2] for line in lines[1:] if not line.startswith("  run:")],
        "doctor": (told.plan, told.num_feeds, told.num_batches, [line.split()[0] for line in told.report.splitlines()[1:]]),
        "memory": (memory.slots_bytes > 0, memory.filled_by, memory.budget_bytes),
        "fills": [(fill.name, fill.capacity) for fill in fills],
        "curves": {tag for _, point in points_of(curves.path)[1] for tag in point if not tag.startswith("memory/held")},
        "trace": {row["name"] for row in rows if row["ph"] in "XC" and "step" not in row["name"]},
        "workers": any(": worker" in row["args"]["name"] for row in rows if row["ph"] == "M"),
    }


@pytest.mark.parametrize("name", core(TEN))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of what is skipped
def test_each_view_of_each_plan_is_that_of_an_engine_in_the_program(name: str, tmp_path: Path) -> None:
    ds = TEN[name](unhurt)
    there, here = (views(ds, tmp_path / str(isolate), isolate=isolate) for isolate in (True, False))
    assert there == here


def test_the_engine_process_samples_for_curves_no_longer_than_they_are_written(tmp_path: Path) -> None:
    with ps.from_source(range(10**6)).feed(**ISOLATED) as feed:
        next(feed)
        threads = f"/proc/{pid_of(feed)}/task"
        before = len(os.listdir(threads))
        with feed.observe(tensorboard=tmp_path):
            while len(os.listdir(threads)) == before:
                next(feed)
        assert len(os.listdir(threads)) == before


def test_of_batches_that_come_together_those_are_kept_that_the_loop_has() -> None:
    with ps.from_source(range(4000)).batch(4).feed(**ISOLATED) as feed:
        kept = [next(feed) for _ in range(300)]
        deadline = time.monotonic() + 10  # a worker that reports its task still holds a batch that it has delivered
        while (num_kept := feed.stats().memory.num_kept) != 299:
            assert time.monotonic() < deadline, num_kept
    assert len(kept) == 300


def test_notices_of_the_plan_are_in_the_report() -> None:
    def key(x: int) -> int:
        return x % 3

    ds = ps.from_source(range(20)).filter(key).batch(2)
    with ds.feed(executor="processes", num_workers=1, ordered=False) as feed, ds.feed(num_workers=0, ordered=False) as other:
        assert len(list(feed)) == len(list(other))
        assert [text for text in other.stats().notices if text not in feed.stats().notices] == []
        assert other.stats().notices


def test_finalize_and_verify_hold() -> None:
    with squares(10).feed(**ISOLATED) as feed:
        feed.finalize()
        with pytest.raises(SpecError):
            list(feed)
    ds = ps.from_source(range(10)).map(lambda x: os.urandom(4))
    with ds.feed(executor=ps.Threads(isolate=True, verify=1.0), num_workers=1) as feed, pytest.raises(NotRepeatable):
        list(feed)


def test_a_stall_counts_only_while_the_loop_waits() -> None:
    def slow(x: int) -> int:
        time.sleep(1.5 if x == 3 else 100 if x == 15 else 0)
        return x

    with ps.from_source(range(20)).map(slow).feed(executor=ps.Threads(isolate=True), num_workers=1, stall_timeout_s=0.8) as feed:
        items = [next(feed)]
        time.sleep(2.5)  # a long step, in which an element takes longer than the limit
        with pytest.raises(FeedStalled, match="isolated"):
            items.extend(feed)
    assert items[:9] == list(range(9))


# -- deaths -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", core([signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV], kept=2))
def test_a_process_that_dies_or_stops_is_replaced_behind_the_last_batch(number: signal.Signals) -> None:
    notices: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, Notice):
            notices.append(event.text)

    def row(x: int) -> Any:
        return np.full(50_000, x)

    ds, items, pids = ps.from_source(range(240)).map(row).batch(4), [], set()
    with ds.feed(**ISOLATED, memory_bytes=8 << 20, listeners=[hear]) as feed:
        for step, item in enumerate(feed):
            items.append(exact(item))
            if step in (5, 20, 40):
                pids.add(pid_of(feed))
                os.kill(pid_of(feed), number)
        figures = feed.stats()
    assert figures.consumer.num_batches == figures.consumer.num_calls == feed.stats().consumer.num_batches == 60
    assert any("another one goes on behind the last batch" in text for text in figures.notices)
    assert items == in_line(ds)
    assert len(pids) == 3
    assert sum("another one goes on behind the last batch" in text for text in notices) == 3


def test_a_function_that_always_kills_is_an_error_after_five_times() -> None:
    def kills(x: int) -> int:
        if x == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    with ps.from_source(range(40)).map(kills).batch(2).feed(**ISOLATED) as feed:
        with pytest.raises(WorkerDied, match="was killed by SIGKILL"):
            list(feed)
        with pytest.raises(FeedClosed):
            next(feed)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_dies_or_stops_between_two_epochs_is_replaced(number: signal.Signals) -> None:
    with squares().feed(**ISOLATED) as feed, squares().feed(num_workers=0) as other:
        assert len(list(feed)) == len(list(other)) == 50
        os.kill(pid_of(feed), number)
        assert "50 batches" in feed.report()
        assert [exact(item) for item in feed] == [exact(item) for item in other]
        assert feed.stats().consumer.num_batches == 100


def test_what_was_left_out_stays_counted_when_the_process_dies_behind_the_end() -> None:
    def fifth(x: int) -> int:
        if x % 5 == 0:
            raise ValueError(x)
        return x

    with ps.from_source(range(10)).map(fifth).batch(5).feed(**ISOLATED, on_error=ps.Skip()) as feed:
        next(feed)
        time.sleep(0.5)  # by now the rest is on its way
        os.kill(pid_of(feed), signal.SIGKILL)
        assert [batch.tolist() for batch in feed] == [[6, 7, 8, 9]]
        assert sum(entry[2] for entry in feed.state_dict()["lost"]) == 2


PROGRAM = """
    import os, sys, time
    import numpy as np
    import penstock as ps
    feed = ps.from_source(range(10000)).map(lambda x: np.full(1000, x)).batch(4).feed(executor=ps.Threads(isolate=True), num_workers=2)
    next(feed)
    print(feed._run._process.pid, flush=True)
    {then}
"""


def program(then: str) -> subprocess.Popen[str]:
    code = textwrap.dedent(PROGRAM).format(then=then)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_process_ends_with_a_program_that_is_killed() -> None:
    with program("time.sleep(100)") as running:
        assert running.stdout is not None
        pid = int(running.stdout.readline())
        running.kill()
        assert gone(pid, 1.0)


@pytest.mark.parametrize("then", core(["pass", "os._exit(0)", "sys.exit(3)", "1 / 0", "del feed; time.sleep(0)", "feed.close()"], kept=2))
def test_the_process_ends_with_a_program_however_it_ends(then: str) -> None:
    with program(then) as running:
        out, err = running.communicate(timeout=30)
    assert gone(int(out.split()[0]), 2.0)
    assert "Exception ignored" not in err


def test_ctrl_c_while_the_loop_waits_loses_nothing() -> None:
    def slow(x: int) -> int:
        time.sleep(0.01)
        return x

    ds, items = ps.from_source(range(150)).map(slow), []
    with ds.feed(**ISOLATED) as feed:
        items.append(next(feed))
        timers = [threading.Timer(0.1 * n, signal.raise_signal, [signal.SIGINT]) for n in range(1, 6)]
        for timer in timers:
            timer.start()
        while len(items) < 150:
            try:
                items.append(next(feed))
            except KeyboardInterrupt:
                continue
        for timer in timers:
            timer.join()
    assert items == list(range(150))


@pytest.mark.parametrize("executor", [ps.Threads(isolate=True), ps.Processes()], ids=repr)
def test_an_epoch_is_left_while_much_is_on_its_way(executor: Any) -> None:
    def row(x: int) -> Any:
        logging.getLogger("rows").info("x" * 5000)
        return np.full(100 + x % 50, x)

    logging.getLogger("rows").setLevel(logging.INFO)
    with ps.from_source(range(4000)).map(row).batch(1).feed(executor=executor, num_workers=2) as feed:
        for epoch in range(6):
            for step, batch in enumerate(feed):
                assert batch[0, 0] == step
                if step >= epoch:
                    break
            time.sleep(0.05)
    logging.getLogger("rows").setLevel(logging.NOTSET)


def test_a_signal_handler_asks_for_figures_amid_each_start() -> None:
    asked = []

    def ask(*_: object) -> None:
        asked.append(feed.stats().consumer.num_batches)
        feed.state_dict()
        signal.setitimer(signal.ITIMER_REAL, 0.005)

    before = signal.signal(signal.SIGALRM, ask)
    try:
        with ps.from_source(range(20)).batch(5).feed(executor="processes", num_workers=1) as feed:
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            for _ in range(20):
                assert [x for batch in feed for x in batch.tolist()] == list(range(20))
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(asked) > 20


class Late(Exception):
    """What a signal handler raises."""


def test_an_error_of_a_signal_handler_at_any_time_loses_nothing() -> None:
    def late(*_: object) -> None:
        raise Late

    ds = ps.from_source(range(1200)).map(lambda x: np.full(20_000, x)).batch(3)
    items: list[Any] = []
    num_raised, chance = 0, random.Random(3)
    before = signal.signal(signal.SIGALRM, late)
    try:
        with ds.feed(**ISOLATED) as feed:
            items.append(exact(next(feed)))
            while len(items) < 400:
                item = None
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 4e-4))
                    item = next(feed)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Late:
                    num_raised += 1
                if feed.step > len(items):  # else it came before one was delivered
                    items.append(None if item is None else exact(item))  # or when next() had it, and its name was not bound yet
                if len(items) < 400:
                    items.append(exact(next(feed)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all(item in (None, one) for item, one in zip(items, in_line(ds), strict=True))
    assert num_raised > 20


def test_epochs_that_are_left_at_once_are_not_mixed_up() -> None:
    with (
        ps.from_source(range(400)).shuffle(seed=2).batch(4).feed(**ISOLATED) as feed,
        ps.from_source(range(400)).shuffle(seed=2).batch(4).feed(num_workers=0) as other,
    ):
        for epoch in (5, 3, 8, 1):
            for one in (feed, other):
                one.set_epoch(epoch)
            assert [exact(next(feed)) for _ in range(20)] == [exact(next(other)) for _ in range(20)]


def test_another_thread_closes_while_the_loop_waits() -> None:
    feed = ps.from_source(range(9)).map(lambda x: time.sleep(0.5 * x) or x).feed(**ISOLATED)
    next(feed)
    closing = threading.Timer(0.2, feed.close)
    closing.start()
    begin_s = time.monotonic()
    with pytest.raises(FeedClosed):
        list(iter(partial(next, feed), None))
    assert time.monotonic() - begin_s < 5
    closing.join()


def test_a_forked_process_leaves_the_feed_to_its_parent() -> None:
    with squares().feed(**ISOLATED) as feed:
        first = exact(next(feed))
        child = os.fork()
        if not child:
            code = 1
            try:
                next(feed)
            except FeedClosed:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [first, *map(exact, feed)] == in_line(squares())


# -- what stays in the program ----------------------------------------------------------------------------------------------------


def test_a_generator_stays_in_the_program_with_a_notice() -> None:
    def numbers() -> Any:
        yield from range(10)

    with ps.from_generator(numbers).map(lambda x: os.getpid()).feed(**ISOLATED) as feed:
        assert set(feed) == {os.getpid()}
        assert any("isolate=True changes nothing" in text for text in feed.stats().notices)


def test_what_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()

    def locked(x: int) -> int:
        with lock:
            return x

    with ps.from_source(range(4)).map(locked).feed(**ISOLATED) as feed, pytest.raises(PlanError, match="lock"):
        next(feed)


def test_a_result_that_cannot_be_sent_is_named() -> None:
    with ps.from_source(range(4)).map(lambda x: (x for _ in "a")).feed(**ISOLATED) as feed:
        with pytest.raises(SpecError, match="a value of type generator cannot be sent to another process"):
            next(feed)
        with pytest.raises(FeedClosed):
            next(feed)


def test_no_workers_is_in_line() -> None:
    with ps.from_source(range(4)).map(lambda x: os.getpid()).feed(executor=ps.Threads(isolate=True), num_workers=0) as feed:
        assert set(feed) == {os.getpid()}


@pytest.mark.parametrize("value", [2, "yes", None])
def test_isolate_is_true_or_false(value: Any) -> None:
    with pytest.raises(PlanError, match="isolate="):
        ps.Threads(isolate=value)
