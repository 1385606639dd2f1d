"""What a function may do to memory, random state and the process: FAULTS A10, A27, A28, B27, in both orders."""

from __future__ import annotations

import os
import queue
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.ways import drained, engine_threads, every_way, every_way_and_order, notes
from programs import output_of

import penstock as ps

pytestmark = pytest.mark.slow  # together with its kin two minutes; `make check` runs it


# -- memory (A10) -----------------------------------------------------------------------------------------------------------------------

SHORT_OF_MEMORY = """
import json, resource, sys
import numpy as np
import penstock as ps

way, where = json.loads(sys.argv[1]), sys.argv[2]

def rows(x):
    return np.full(1 << 22, x % 251, np.uint8)

if where == "batch":
    ds = ps.from_source(range(4096)).map(rows).batch(512)  # 2 GiB each
else:
    ds = ps.from_source(range(4096)).map(rows).window(512, 256)
list(ps.from_source(range(64)).map(abs).batch(4).feed(**way))
with open("/proc/self/statm") as file:
    now = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (1500 << 20),) * 2)
feed = ds.feed(**way)
count = 0
try:
    for item in feed:
        count += 1
        del item
except MemoryError as error:
    print(json.dumps([count, type(error).__name__, str(error), list(getattr(error, "__notes__", ()))]))
else:
    print(json.dumps([count, "", "", []]))
feed.close()
# What follows in the same process works.
with ps.from_source(range(400)).map(abs).batch(4).feed(**way) as feed:
    assert sorted(x for batch in feed for x in batch.tolist()) == list(range(400))
"""


def short_of_memory(where: str, way: dict[str, Any]) -> tuple[int, str, str, str]:
    """Run a program with 1.5 GB of address space more than it starts with; return items, error type, text and notes."""
    import json

    count, kind, text, added = json.loads(output_of("-c", SHORT_OF_MEMORY, json.dumps(way), where, OPENBLAS_NUM_THREADS="1"))
    return count, kind, text, "\n".join(added)


NEEDS_LIMIT = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS")
SOME_WAYS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "num_workers": 2},
    {"executor": "threads", "num_workers": 2, "ordered": False},
]
some_ways = pytest.mark.parametrize("way", SOME_WAYS, ids=["inline", "2 threads", "unordered"])


@NEEDS_LIMIT
@some_ways
@pytest.mark.parametrize("where", ["batch", "window"])
def test_a_batch_for_which_there_is_no_memory_is_a_memory_error_and_the_next_feed_works(where: str, way: dict[str, Any]) -> None:
    if where == "window" and not way.get("ordered", True):
        return  # refused: see test_operators.py
    count, kind, text, added = short_of_memory(where, way)
    assert count == 0
    assert kind in ("MemoryError", "_ArrayMemoryError")
    assert "Unable to allocate " in text
    assert "element epoch 0 index " in added


# -- random state (A27) -----------------------------------------------------------------------------------------------------------------


def draw(x: int, rng: np.random.Generator) -> tuple[int, int]:
    return x, int(rng.integers(1 << 60))


@every_way_and_order
def test_every_element_of_every_epoch_has_random_numbers_of_its_own_and_the_same_in_each_run(way: dict[str, Any]) -> None:
    ds = ps.from_source(range(100)).map(draw, seed=3).repeat(3)
    first, error = drained(ds.feed(**way))
    assert error is None
    assert len({number for _, number in first}) == 300
    second, _ = drained(ds.feed(executor="inline"))
    assert sorted(first) == sorted(second)
    other, _ = drained(ps.from_source(range(100)).map(draw, seed=4).repeat(3).feed(**way))
    assert {number for _, number in first}.isdisjoint(number for _, number in other)


@every_way_and_order
def test_the_librarys_draws_do_not_touch_the_global_random_state_nor_depend_on_it(way: dict[str, Any]) -> None:
    ds = ps.from_source(range(100)).shuffle(seed=1).map(draw, seed=3).filter(lambda pair: pair[1] % 3).repeat(2)
    random.seed(11)
    np.random.seed(11)
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[union-attr]
    first, _ = drained(ds.feed(**way))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[union-attr]
    random.seed(12)
    np.random.seed(12)
    assert sorted(drained(ds.feed(**way))[0]) == sorted(first)


@pytest.mark.parametrize("num_workers", [1, 2, 8])
def test_threads_that_draw_from_the_global_generators_share_one_stream_and_never_repeat_it(num_workers: int) -> None:
    """The classic fault is a copy of the state in each worker process, so that all of them, or all epochs, draw the same numbers."""

    def legacy(x: int) -> tuple[float, float]:
        return random.random(), float(np.random.random())

    random.seed(1)
    np.random.seed(1)
    items, _ = drained(ps.from_source(range(200)).map(legacy).repeat(2).feed(executor="threads", num_workers=num_workers))
    assert len({a for a, _ in items}) == len({b for _, b in items}) == 400


# -- the process (A28) ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder to change to; working folder, mask and environment are put back behind the test."""
    here, mask, environment = os.getcwd(), os.umask(0), dict(os.environ)
    os.umask(mask)
    (tmp_path / "other").mkdir()
    yield tmp_path
    os.chdir(here)
    os.umask(mask)
    os.environ.clear()
    os.environ.update(environment)


def files(folder: Path) -> None:
    for number in range(40):
        (folder / f"{number:02}.bin").write_bytes(bytes([number]) * 10)
    (folder / "list.txt").write_text("".join(f"{number:02}.bin {number}\n" for number in range(40)))
    for name in ("cat", "dog"):
        (folder / "classes" / name).mkdir(parents=True)
        for number in range(20):
            (folder / "classes" / name / f"{number}.png").write_bytes(bytes([number]) * 10)


RELATIVE: dict[str, Callable[[], ps.Dataset]] = {
    "read_files": lambda: ps.read_files("*.bin"),
    "read_list": lambda: ps.read_list("list.txt"),
    "read_images": lambda: ps.read_images("classes"),
}


@every_way_and_order
@pytest.mark.parametrize("opening", RELATIVE)
def test_a_function_that_changes_the_working_folder_mask_and_environment_changes_no_other_stage(
    opening: str, way: dict[str, Any], elsewhere: Path
) -> None:
    files(elsewhere)
    os.chdir(elsewhere)
    ds = RELATIVE[opening]()

    def vandal(element: dict[str, Any]) -> bytes:
        os.chdir(elsewhere / "other")
        os.umask(0o777)
        os.environ["TMPDIR"] = "/nowhere"
        return bytes(element["data"])

    items, error = drained(ds.map(vandal).repeat(2).feed(**way))
    assert error is None
    expected = [bytes([number]) * 10 for number in (range(40) if opening != "read_images" else [*range(20)] * 2)]
    assert sorted(items) == sorted(expected * 2)


@every_way
def test_a_relative_cache_folder_is_where_it_was_when_the_pipeline_was_built(way: dict[str, Any], elsewhere: Path) -> None:
    os.chdir(elsewhere)

    def vandal(x: int) -> int:
        os.chdir(elsewhere / "other")
        return x

    ds = ps.from_source(range(50)).map(vandal).cache("cache", version="1").repeat(2)
    assert drained(ds.feed(**way)) == ([*range(50)] * 2, None)
    assert (elsewhere / "cache").is_dir()
    assert list((elsewhere / "other").iterdir()) == []


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_relative_quarantine_is_one_file_also_when_a_function_changes_the_working_folder(num_workers: int, elsewhere: Path) -> None:
    os.chdir(elsewhere)

    def vandal(x: int) -> int:
        os.chdir(elsewhere / "other")
        if x % 7 == 3:
            raise ValueError(x)
        return x

    ds = ps.from_source(range(50)).map(vandal, on_error=ps.Skip(quarantine="bad.jsonl"))
    feed = ds.feed(executor="threads", num_workers=num_workers, ordered=False)
    head = [next(feed) for _ in range(10)]
    state = feed.state_dict()
    feed.load_state_dict(state)
    rest, error = drained(feed)
    bad = [x for x in range(50) if x % 7 == 3]
    assert error is None
    assert sorted(head + rest) == [x for x in range(50) if x not in bad]
    assert sorted(ps.read_quarantine(elsewhere / "bad.jsonl", ps.from_source(range(50)))) == bad
    assert list((elsewhere / "other").iterdir()) == []


@every_way_and_order
def test_a_function_that_sets_signal_handlers_is_refused_by_python_in_threads_and_the_librarys_none_are_lost(way: dict[str, Any]) -> None:
    before = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGINT)

    def vandal(x: int) -> int:
        if x == 7:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        return x

    try:
        items, error = drained(ps.from_source(range(40)).map(vandal, name="vandal").feed(**way))
        if way.get("executor") == "inline":
            assert (sorted(items), error) == (list(range(40)), None)
        else:
            assert type(error) is ValueError
            assert "main thread" in str(error)
            assert "stage 'vandal', worker " in notes(error)
        assert signal.getsignal(signal.SIGINT) == before[1]
    finally:
        signal.signal(signal.SIGUSR1, before[0])


@every_way_and_order
def test_closed_standard_input_and_output_do_not_concern_a_feed(way: dict[str, Any]) -> None:
    assert output_of("-c", CLOSED_STREAMS, way) == ""


CLOSED_STREAMS = """
import ast, os, sys
import penstock as ps

def vandal(x):
    if x == 5:
        sys.stdin.close(); sys.stdout = None; sys.stderr = None
        for number in (0, 1, 2):
            os.close(number)
    return x

with ps.from_source(range(100)).map(vandal).batch(3).feed(**ast.literal_eval(sys.argv[1])) as feed:
    assert sorted(x for batch in feed for x in batch.tolist()) == list(range(100)) or os._exit(3)
os._exit(0)
"""


# -- exceptions that other libraries take for an end (B27) ---------------------------------------------------------------------------------

ENDS_ELSEWHERE: dict[str, Callable[[], Exception]] = {
    "IndexError": lambda: IndexError("list index out of range"),
    "OutOfRange": lambda: ps.errors.OutOfRange("index 9 of 5 elements", where="ds[i]", fix="use 0..len(ds)-1"),
    "EOFError": EOFError,
    "queue.Empty": queue.Empty,
    "FeedClosed": lambda: ps.errors.FeedClosed("this feed is closed", where="Feed.__next__", fix="make a new one"),
    "BrokenPipeError": BrokenPipeError,
}


@every_way_and_order
@pytest.mark.parametrize("name", ENDS_ELSEWHERE)
def test_what_other_libraries_take_for_an_end_is_an_error_of_the_function(name: str, way: dict[str, Any]) -> None:
    made = ENDS_ELSEWHERE[name]()

    def load(x: int) -> int:
        if x == 17:
            raise made
        return x

    for ds in (ps.from_source(range(50)).map(load), ps.from_source(range(50)).filter(lambda x: load(x) >= 0)):
        items, error = drained(ds.feed(**way))
        assert error is made
        assert 17 not in items
        assert len(items) == 17 or not way.get("ordered", True)


@every_way
def test_a_nested_feed_that_ends_inside_a_function_does_not_end_the_outer_one(way: dict[str, Any]) -> None:
    inner = ps.from_source(range(3))

    def next_of_ended(x: int) -> int:
        with inner.feed(executor="inline") as feed:
            total = sum(feed)
            return total if x != 9 else next(feed)

    items, error = drained(ps.from_source(range(20)).map(next_of_ended, name="nested").feed(**way))
    assert items == [3] * 9
    assert type(error) is ps.errors.StopRaised
    assert engine_threads() == []
