"""The calls of Keras's GeneratorEnqueuer, for no worker, threads and processes alike: FAULTS B7, B8, B24, B28, B30, C25."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from enqueuer import feeding
from queues.crowd import together

import penstock as ps
from penstock.errors import FeedClosed, PlanError, SourceError, StopRaised

pytestmark = pytest.mark.usefixtures("fork_server")

Make = Callable[..., ps.GeneratorEnqueuer]

WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "inline": (0, {}),
    "one thread": (1, {}),
    "three threads": (3, {}),
    "one process": (1, {"use_multiprocessing": True}),
    "two processes": (2, {"use_multiprocessing": True, "share": True}),
    "two forked processes": (2, {"use_multiprocessing": True, "share": True, "start_method": "fork"}),
}
PARALLEL = [way for way in WAYS if way != "inline"]
PROCESSES = [way for way in WAYS if "process" in way]


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Start an enqueuer one of these ways; stop it after the test."""
    made: list[ps.GeneratorEnqueuer] = []

    def started(way: str, generator: Any, max_queue_size: int = 10, **options: Any) -> ps.GeneratorEnqueuer:
        workers, more = WAYS[way]
        enqueuer = ps.GeneratorEnqueuer(generator, **{**more, **options})
        made.append(enqueuer)
        enqueuer.start(workers, max_queue_size)
        return enqueuer

    yield started
    for enqueuer in made:
        enqueuer.stop()
    made.clear()


@pytest.mark.parametrize("way", WAYS)
def test_every_item_comes_once_and_in_order_and_then_the_end(way: str, make: Make) -> None:
    enqueuer = make(way, feeding.twenty)
    items = enqueuer.get()
    assert list(items) == list(range(20))
    for _ in range(3):
        assert next(items, "end") == "end"
    assert list(enqueuer.get()) == []
    assert not enqueuer.is_running()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("generator", "wanted"), [(feeding.some_none, [0, 2, 3, 5, 6, 8, 9, 11]), (feeding.nothing, [])])
def test_none_is_left_out_and_a_generator_without_items_is_at_its_end_at_once(way: str, generator: Any, wanted: Any, make: Make) -> None:
    assert list(make(way, generator).get()) == wanted


@pytest.mark.parametrize("way", WAYS)
def test_arrays_arrive_as_they_were_and_can_be_written(way: str, make: Make) -> None:
    kept = list(make(way, feeding.batches).get())
    assert [batch["name"] for batch in kept] == [f"batch {number}" for number in range(6)]
    for number, batch in enumerate(kept):
        assert (batch["image"].shape, batch["image"].dtype) == ((8, 32, 32, 3), np.float32)
        assert (batch["image"] == number).all()
        assert (batch["label"] == number).all()
        batch["image"] += 1


@pytest.mark.parametrize("way", WAYS)
def test_an_error_comes_as_itself_behind_the_items_before_it_once_and_never_as_an_end(way: str, make: Make) -> None:
    enqueuer = make(way, feeding.bad_at_five)
    got = []
    with pytest.raises(LookupError, match="no sixth") as caught:
        feeding.take(enqueuer, got)
    assert got == list(range(5))
    assert any("bad_at_five" in str(entry.path) + entry.name for entry in caught.traceback) or "bad_at_five" in caught.value.__notes__[0]
    assert not enqueuer.is_running()
    for _ in range(2):
        with pytest.raises(FeedClosed) as closed:
            next(enqueuer.get())
        assert closed.value.what == "its workers have failed; the error was raised before"
    enqueuer.stop()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("generator", "kind", "words"),
    [
        (feeding.leaves, StopRaised, "SystemExit was raised"),
        (feeding.stops_oddly, StopRaised, "KeyboardInterrupt was raised"),
        (feeding.fails_in_the_making, FileNotFoundError, "no list"),
        (feeding.not_iterable, SourceError, "a int cannot be iterated"),
    ],
)
def test_what_would_pass_for_an_end_and_what_fails_in_the_making_are_errors(
    way: str, generator: Any, kind: type[Exception], words: str, make: Make
) -> None:
    interrupted = way == "inline" and generator is feeding.stops_oddly  # in the loop's own thread that is Ctrl-C
    with pytest.raises(KeyboardInterrupt if interrupted else kind, match=None if interrupted else words):
        list(make(way, generator).get())


@pytest.mark.parametrize("way", WAYS)
def test_stop_before_start_and_twice_does_nothing_and_get_says_that_it_does_not_run(way: str) -> None:
    workers, options = WAYS[way]
    enqueuer = ps.GeneratorEnqueuer(feeding.endless, **options)
    enqueuer.stop()
    assert not enqueuer.is_running()
    for _ in range(2):
        with pytest.raises(FeedClosed) as caught:
            next(enqueuer.get())
        assert caught.value.what == "GeneratorEnqueuer(endless) is not running"
        enqueuer.start(workers)
        assert enqueuer.is_running()
        items = enqueuer.get()
        assert next(items) == 0
        enqueuer.stop()
        assert not enqueuer.is_running()
        assert list(items) == []  # a loop that is running when somebody stops it is at its end
        enqueuer.stop()


@pytest.mark.parametrize("way", ["inline", "one thread", "three threads"])
@pytest.mark.parametrize("make_used", [feeding.twenty, lambda: iter(range(20))])
def test_a_second_epoch_of_what_can_be_read_once_is_an_error_and_not_an_empty_epoch(way: str, make_used: Callable[[], Any]) -> None:
    enqueuer = ps.GeneratorEnqueuer(make_used())
    enqueuer.start(WAYS[way][0])
    assert len(list(enqueuer.get())) == 20
    enqueuer.start(WAYS[way][0])
    with pytest.raises(SourceError) as caught:
        list(enqueuer.get())
    assert caught.value.what == "its generator gives no item: it was read to its end before, and can be read only once, or is empty"
    enqueuer.stop()


@pytest.mark.parametrize("way", WAYS)
def test_a_generator_object_is_read_and_one_that_was_read_before_is_an_error(way: str, make: Make) -> None:
    generator = feeding.twenty()
    assert list(make(way, generator, start_method=None).get()) == list(range(20))
    list(generator)  # a process has read a copy of it
    with pytest.raises(SourceError):
        list(make(way, generator, start_method=None).get())


@pytest.mark.parametrize("way", ["one thread", "three threads"])
def test_what_is_made_ahead_is_bounded(way: str, make: Make) -> None:
    made = [0]
    enough = threading.Event()

    def counting() -> Iterator[int]:
        while True:
            made[0] += 1
            if made[0] == 6:
                enough.set()
            yield made[0]

    enqueuer = make(way, counting, max_queue_size=5)
    assert enough.wait(60)
    enqueuer.stop()
    assert made[0] <= 5 + WAYS[way][0]


@pytest.mark.parametrize("way", WAYS)
def test_four_threads_each_with_a_get_share_the_items(way: str, make: Make) -> None:
    enqueuer = make(way, feeding.twenty, max_queue_size=2)
    got: list[int] = []
    together(*[lambda: got.extend(enqueuer.get())] * 4)
    assert sorted(got) == list(range(20))


@pytest.mark.parametrize("way", PARALLEL)
def test_stop_from_another_thread_ends_a_loop_that_waits(way: str, make: Make) -> None:
    inside = threading.Event()
    got: list[int] = []
    enqueuer = make(way, feeding.stuck_at_three if way in PROCESSES else three_then(inside))

    def loop() -> None:
        for item in enqueuer.get():
            got.append(item)
            if len(got) == 3:
                reached.set()

    reached = threading.Event()
    thread = threading.Thread(target=loop)
    thread.start()
    assert reached.wait(60)
    inside.set()
    enqueuer.stop(0.5)
    thread.join()
    assert got == [0, 1, 2]


def three_then(leave: threading.Event) -> Any:
    def generator() -> Iterator[int]:
        yield from range(3)
        leave.wait()

    return generator


@pytest.mark.parametrize("way", WAYS)
def test_an_enqueuer_that_is_dropped_ends_its_workers(way: str) -> None:
    # The audit looks for threads and processes.
    workers, options = WAYS[way]
    enqueuer = ps.GeneratorEnqueuer(feeding.endless, **options)
    enqueuer.start(workers)
    assert next(enqueuer.get()) == 0
    del enqueuer
    gc.collect()


@pytest.mark.parametrize("way", WAYS)
def test_the_block_stops_it_also_when_the_loop_fails(way: str) -> None:
    workers, options = WAYS[way]
    enqueuer = ps.GeneratorEnqueuer(feeding.endless, **options)

    def loop() -> None:
        with enqueuer:
            enqueuer.start(workers)
            for item in enqueuer.get():
                1 // (item - 3)

    with pytest.raises(ZeroDivisionError):
        loop()
    assert not enqueuer.is_running()


def test_a_start_while_it_runs_is_an_error(make: Make) -> None:
    enqueuer = make("one thread", feeding.twenty)
    with pytest.raises(PlanError) as caught:
        enqueuer.start()
    assert caught.value.what == "GeneratorEnqueuer(twenty) is running"
    assert list(enqueuer.get()) == list(range(20))


def test_the_arguments_of_keras_by_position_and_wait_time_is_accepted() -> None:
    enqueuer = ps.GeneratorEnqueuer(feeding.twenty(), False, 0.01, 3)
    enqueuer.start(2, 4)
    assert list(enqueuer.get()) == list(range(20))
    enqueuer.stop(timeout=float("inf"))


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: ps.GeneratorEnqueuer(feeding.twenty, random_seed=-1), "random_seed=-1 is not a whole number >= 0"),
        (lambda: ps.GeneratorEnqueuer(feeding.twenty).start(-1), "workers=-1 is not a whole number >= 0"),
        (lambda: ps.GeneratorEnqueuer(feeding.twenty).start(1, 0), "max_queue_size=0 is not a whole number >= 1"),
        (
            lambda: ps.GeneratorEnqueuer(feeding.twenty, True, start_method="thread").start(),
            "method='thread' is no way to start a process here",
        ),
    ],
)
def test_a_wrong_argument_is_an_error_with_its_value(call: Callable[[], Any], what: str) -> None:
    with pytest.raises(PlanError) as caught:
        call()
    assert caught.value.what == what


def test_no_worker_means_the_thread_that_asks(make: Make) -> None:
    enqueuer = make("inline", lambda: iter([threading.get_ident()]))
    assert list(enqueuer.get()) == [threading.get_ident()]
    assert next(make("one process", feeding.pids).get()) != os.getpid()


# -- the loop that was written for Keras ---------------------------------------------------------------------------------------------------


def classic(enqueuer: ps.GeneratorEnqueuer) -> Iterator[Any]:
    """Take items as `fit_generator` of Keras 1 did."""
    while True:
        output = None
        while enqueuer.is_running():
            assert enqueuer.queue is not None
            if not enqueuer.queue.empty():
                output = enqueuer.queue.get()
                break
            threading.Event().wait(0.001)
        if output is None:
            return
        yield output


@pytest.mark.parametrize("way", WAYS)
def test_the_classic_loop_over_the_queue_takes_every_item_and_ends(way: str, make: Make) -> None:
    enqueuer = make(way, feeding.twenty)
    assert list(classic(enqueuer)) == [*range(20)]
    assert not enqueuer.is_running()
    assert enqueuer.queue is not None
    assert (enqueuer.queue.qsize(), enqueuer.queue.empty()) == (0, True)
    with pytest.raises(FeedClosed):
        enqueuer.queue.get()
    enqueuer.stop()
    assert enqueuer.queue is None


@pytest.mark.parametrize("way", WAYS)
def test_the_classic_loop_gets_the_error_of_the_generator_and_no_end(way: str, make: Make) -> None:
    enqueuer, got = make(way, feeding.bad_at_five), []
    with pytest.raises(LookupError, match="no sixth"):
        got.extend(classic(enqueuer))
    assert got == [*range(5)]
    assert not enqueuer.is_running()


# -- a generator that gives nothing --------------------------------------------------------------------------------------------------------


def first_item(enqueuer: ps.GeneratorEnqueuer, open_at_a_warning: Callable[[], object]) -> tuple[Any, str]:
    """Return the first item and the first warning."""
    said: list[tuple[str, str]] = []

    def take(message: Any, category: Any, file: str, line: int, *_: object) -> None:
        said.append((str(message), file))
        if len(said) == 1:
            open_at_a_warning()

    enqueuer.patience_s = 0.1
    with enqueuer, warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = take
        enqueuer.start()
        item = next(enqueuer.get())
    assert said[0][1] == __file__
    return item, said[0][0]


def test_a_generator_in_a_thread_that_gives_nothing_is_named_with_its_line() -> None:
    go = threading.Event()

    def slow() -> Iterator[int]:
        go.wait()
        yield 1

    item, words = first_item(ps.GeneratorEnqueuer(slow()), go.set)
    assert item == 1
    assert words.startswith(f"GeneratorEnqueuer({slow.__qualname__}) has given nothing for 0 s to get() at test_enqueuer.py:")
    assert words.endswith(
        f": penstock-enqueuer-0 (test_enqueuer.py:{slow.__code__.co_firstlineno + 1} in {slow.__qualname__}: go.wait()); "
        "stop() from another thread ends the wait"
    )


def test_a_generator_in_a_process_that_gives_nothing_is_named_with_its_process(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    item, words = first_item(ps.GeneratorEnqueuer(feeding.Holds(fifo), True), lambda: fifo.write_text("held"))
    assert item == "held"
    assert ": its generator in process " in words
