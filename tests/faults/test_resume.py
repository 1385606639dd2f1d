"""Saved states: wrong, damaged, taken at odd moments, resumed elsewhere: FAULTS E1 to E6, E8, E10, E13, E15 to E18.

What a state is: the position right behind the last element that `next()` returned. What was read ahead does not count.
"""

from __future__ import annotations

import copy
import json
import math
import random
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core import core
from faults.lives import noisy
from faults.ways import WAYS, drained, every_way, resumed
from feeds import state_behind
from laws.plans import plain

import penstock as ps

SIZE, BATCH, EPOCHS = 46, 4, 3


def usual(source: Any = None) -> ps.Dataset:
    rows = list(range(SIZE)) if source is None else source
    return ps.from_source(rows).shuffle(seed=3).map(noisy, seed=5).batch(BATCH).repeat(EPOCHS)


def keep(x: int) -> bool:
    return x % 3 != 0


def copies(x: int) -> list[int]:
    return [x] * (x % 4)


def pairs(batch: Any) -> Any:
    return batch, len(batch)


def rows() -> Iterator[int]:
    yield from range(SIZE)


PIPELINES: dict[str, Callable[[], ps.Dataset]] = {
    "global shuffle, batch, repeat": usual,
    "window shuffle": lambda: ps.from_source(range(SIZE)).shuffle(7, seed=2).map(noisy).batch(BATCH).repeat(EPOCHS),
    "batches over epochs": lambda: ps.from_source(range(SIZE)).shuffle(seed=1).repeat(EPOCHS).map(noisy).batch(5),
    "filter and augmentation": lambda: ps.from_source(range(SIZE)).shuffle(seed=1).filter(keep).map(noisy).batch(BATCH).repeat(EPOCHS),
    "flat_map, several per row": lambda: ps.from_source(range(SIZE)).shuffle(seed=1).flat_map(copies).batch(5).repeat(2),
    "two folds": lambda: ps.from_source(range(SIZE)).filter(keep).flat_map(copies).take(30).batch(4).map(pairs).repeat(EPOCHS),
    "unbatch and batch again": lambda: ps.from_source(range(SIZE)).batch(6).unbatch().skip(2).batch(4, drop_remainder=True).repeat(2),
    "padded batches": lambda: ps.from_source(range(SIZE)).map(lambda x: np.full(x % 5, x)).padded_batch(4).repeat(2),
    "a generator": lambda: ps.from_generator(rows, fast_forward=True).filter(keep).batch(4).repeat(EPOCHS),
    "concatenated and numbered": lambda: usual().concatenate(usual()).enumerate(7),
    "a shard": lambda: ps.from_source(range(SIZE)).shuffle(seed=1).shard(3, 1).map(noisy).batch(4).repeat(EPOCHS),
}


def everything(ds: ps.Dataset) -> list[Any]:
    items, error = drained(ds.feed(executor="inline"))
    assert error is None
    return items


def resealed(state: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Change fields of a state and give it the checksum that fits."""
    body = {key: value for key, value in {**copy.deepcopy(state), **changes}.items() if key != "crc32"}
    return {**body, "crc32": zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())}


def state_at(step: int, ds: ps.Dataset | None = None) -> dict[str, Any]:
    return state_behind(usual() if ds is None else ds, step, executor="threads", num_workers=2)


@pytest.fixture(autouse=True)
def _quiet(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    """Let a resume at the end warn that nothing is left; check that nothing else warned."""
    yield
    assert {str(warning.message).partition(":")[0] for warning in recwarn} <= {"this dataset gave no elements"}


# -- exact at every step --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pipeline", core(PIPELINES, 5))
def test_a_state_of_any_step_from_before_the_first_to_behind_the_end_resumes_exactly_there(pipeline: str) -> None:
    ds = PIPELINES[pipeline]()
    whole = everything(ds)
    ways = random.Random(pipeline)
    states = []
    with ds.feed(executor="threads", num_workers=2) as feed:
        states.append(feed.state_dict())
        for item in feed:
            assert plain(item) == whole[len(states) - 1]
            states.append(feed.state_dict())
        states.append(feed.state_dict())  # after StopIteration
    assert len(states) == len(whole) + 2
    assert states[-1]["epoch"] == [1, 0]
    for step, state in enumerate(states[:-1]):
        assert state["step"] == step
        assert resumed(ds, json.loads(json.dumps(state)), **ways.choice(WAYS)) == whole[step:]


@pytest.mark.slow
@every_way
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_resume_of_a_resume_at_every_step_does_not_drift(pipeline: str, way: dict[str, Any]) -> None:
    ds = PIPELINES[pipeline]()
    whole = everything(ds)
    got: list[Any] = []
    state = ds.feed().state_dict()
    feed = ds.feed(**way)
    for _ in range(len(whole)):
        feed.load_state_dict(state)
        for _ in range(3):
            assert feed.state_dict() == state  # neither time nor reading ahead changes it
        got.append(plain(next(feed)))
        state = feed.state_dict()
    feed.close()
    assert got == whole
    assert resumed(ds, state) == []


def test_loading_and_saving_ten_times_without_progress_changes_nothing() -> None:
    state = state_at(5)
    for _ in range(10):
        feed = usual().feed(executor="threads", num_workers=2)
        feed.load_state_dict(state)
        assert feed.state_dict() == state
        feed.close()
        assert feed.state_dict() == state


def test_two_resumes_of_one_state_are_equal_and_leave_it_as_it_was() -> None:
    state = state_at(7)
    before = copy.deepcopy(state)
    assert resumed(usual(), state) == resumed(usual(), state, executor="threads", num_workers=3) == everything(usual())[7:]
    assert state == before


@pytest.mark.parametrize("before", core(WAYS, [WAYS[0], WAYS[2]]), ids=str)
@pytest.mark.parametrize("after", core(WAYS, [WAYS[0], WAYS[2]]), ids=str)
def test_a_run_goes_on_with_any_other_number_of_workers(before: dict[str, Any], after: dict[str, Any]) -> None:
    for pipeline in ("global shuffle, batch, repeat", "two folds"):
        ds = PIPELINES[pipeline]()
        whole = everything(ds)
        with ds.feed(**before) as feed:
            head = [plain(next(feed)) for _ in range(9)]
            state = feed.state_dict()
        assert head + resumed(ds, state, memory_bytes=1, **after) == whole


@pytest.mark.parametrize("num_workers", [1, 4])
def test_what_was_read_ahead_does_not_count(num_workers: int) -> None:
    called: list[int] = []
    ahead = threading.Event()

    def work(x: int) -> int:
        called.append(x)
        if len(called) >= 30:
            ahead.set()
        return x

    ds = ps.from_source(range(400)).map(work).batch(2).prefetch(64)
    with ds.feed(executor="threads", num_workers=num_workers) as feed:
        assert [plain(next(feed)) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
        assert ahead.wait(30)
        state = feed.state_dict()
        assert state["step"] == feed.step == 3
    assert resumed(ds, state) == [[x, x + 1] for x in range(6, 400, 2)]


@pytest.mark.parametrize("pipeline", ["global shuffle, batch, repeat", "filter and augmentation", "a generator"])
def test_epochs_behind_a_resume_have_the_orders_of_the_run_that_never_stopped(pipeline: str) -> None:
    ds = PIPELINES[pipeline]()
    whole = everything(ds)
    per_epoch = len(whole) // EPOCHS
    first, second, third = (whole[n * per_epoch : (n + 1) * per_epoch] for n in range(EPOCHS))
    if pipeline != "a generator":
        assert first != second != third != first
    for step in (2 * per_epoch - 1, 2 * per_epoch, 2 * per_epoch + 1):
        feed = ds.feed(executor="threads", num_workers=2)
        feed.load_state_dict(state_at(step, ds))
        assert (feed.epoch, feed.step) == (0, step)  # the passes of a repeat are of one epoch
        assert drained(feed) == (whole[step:], None)


# -- wrong ------------------------------------------------------------------------------------------------------------------------------


def source() -> ps.Dataset:
    return ps.from_source(list(range(SIZE)))


OTHER_PLANS = {
    "a stage added": (lambda: source().shuffle(seed=3).map(noisy, seed=5).map(abs).batch(BATCH).repeat(EPOCHS), "map(abs)"),
    "a stage removed": (lambda: source().shuffle(seed=3).batch(BATCH).repeat(EPOCHS), "map(noisy"),
    "stages in another order": (
        lambda: source().map(noisy, seed=5).shuffle(seed=3).batch(BATCH).repeat(EPOCHS),
        "shuffle(seed=3)",
    ),
    "another seed of shuffle": (lambda: source().shuffle(seed=4).map(noisy, seed=5).batch(BATCH).repeat(EPOCHS), "seed=4"),
    "another seed of map": (lambda: source().shuffle(seed=3).map(noisy, seed=6).batch(BATCH).repeat(EPOCHS), "seed=6"),
    "another batch size": (lambda: source().shuffle(seed=3).map(noisy, seed=5).batch(8).repeat(EPOCHS), "batch(8"),
    "another function": (lambda: source().shuffle(seed=3).map(abs, seed=5).batch(BATCH).repeat(EPOCHS), "map(abs"),
    "more epochs": (lambda: source().shuffle(seed=3).map(noisy, seed=5).batch(BATCH).repeat(9), "repeat(9)"),
    "no repeat": (lambda: source().shuffle(seed=3).map(noisy, seed=5).batch(BATCH), "ends"),
}


@pytest.mark.parametrize("case", OTHER_PLANS)
def test_a_state_of_another_pipeline_is_refused_with_the_first_difference(case: str) -> None:
    make, words = OTHER_PLANS[case]
    feed = make().feed()
    with pytest.raises(ps.errors.StateMismatch) as refused:
        feed.load_state_dict(state_at(3))
    assert "the state was saved with another plan: it had " in refused.value.what
    assert " where this one " in refused.value.what
    assert words in refused.value.what
    assert "load_state_dict(), operator " in refused.value.where
    assert ("may_differ=('batch',)" if case == "another batch size" else "strict=False") in refused.value.fix
    assert drained(feed)[0] == everything(make())  # the feed is as it was


def test_a_state_of_another_pipeline_keeps_its_position_when_that_is_asked_for() -> None:
    ds = ps.from_source(list(range(SIZE))).shuffle(seed=3).map(abs).batch(BATCH).repeat(EPOCHS)
    feed = ds.feed()
    feed.load_state_dict(state_at(5), strict=False)
    assert drained(feed)[0] == everything(ds)[5:]


OTHER_DATA = {
    "other values": [*range(SIZE - 1), 1000],
    "one element more": list(range(SIZE + 1)),
    "one element less": list(range(SIZE - 1)),
    "another type": tuple(range(SIZE)),
}


@pytest.mark.parametrize("case", OTHER_DATA)
def test_a_state_of_other_data_is_refused_with_what_differs(case: str) -> None:
    with pytest.raises(ps.errors.StateMismatch) as refused:
        usual(OTHER_DATA[case]).feed().load_state_dict(state_at(3))
    assert refused.value.what.startswith(("the state was saved with other data: ", "the state was saved with another plan: "))
    words = {"other values": "sample_crc32", "another type": "list", "one element more": "47", "one element less": "45"}
    assert words[case] in refused.value.what
    assert "strict=False" in refused.value.fix


@pytest.mark.parametrize("change", ["grown", "shrunk", "renamed", "rewritten"])
def test_files_that_changed_since_the_save_are_refused(change: str, tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number:02}.bin").write_bytes(bytes([number]) * 50)

    def ds() -> ps.Dataset:
        return ps.read_files(str(tmp_path / "*.bin")).shuffle(seed=1).batch(2)

    state = state_at(2, ds())
    assert len(resumed(ds(), state)) == 4
    if change == "grown":
        (tmp_path / "12.bin").write_bytes(b"new")
    elif change == "shrunk":
        (tmp_path / "05.bin").unlink()
    elif change == "renamed":
        (tmp_path / "05.bin").rename(tmp_path / "05b.bin")
    else:
        (tmp_path / "05.bin").write_bytes(b"\0" * 50)
    with pytest.raises(ps.errors.StateMismatch) as refused:
        ds().feed().load_state_dict(state)
    assert "the state was saved with other" in refused.value.what or "another plan" in refused.value.what
    assert "resume with the " in refused.value.fix


@pytest.mark.parametrize("number", [0, 4, 99, "1", None, -1])
def test_a_state_of_another_format_is_refused_with_both_versions(number: Any) -> None:
    with pytest.raises(ps.errors.StateMismatch) as refused:
        usual().feed().load_state_dict(resealed(state_at(3), penstock_state=number, version="9.9.9"))
    assert f"the state has format {number!r} (written by penstock '9.9.9')" in refused.value.what
    assert "this penstock reads formats 1, 2" in refused.value.what
    assert "penstock version that wrote it" in refused.value.fix


# -- damaged ------------------------------------------------------------------------------------------------------------------------------


def test_every_cut_of_the_json_is_refused() -> None:
    text = json.dumps(state_at(5))
    feed = usual().feed()
    for end in range(len(text)):
        with pytest.raises(ps.errors.StateDamaged) as refused:
            feed.load_state_dict(text[:end])
        assert refused.value.where == "load_state_dict()"
        assert refused.value.fix
    assert resumed(usual(), text) == everything(usual())[5:]


def test_every_changed_byte_of_the_json_is_refused_or_says_the_same() -> None:
    state = state_at(5)
    data = json.dumps(state).encode()
    feed = usual().feed()
    refused = 0
    for place in range(len(data)):
        for bit in (0, 3, 6):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            try:
                feed.load_state_dict(bytes(changed))
            except ps.errors.StateError:
                refused += 1
            else:
                assert json.loads(changed) == state
    assert refused > 2.8 * len(data)


NO_STATES: dict[str, Any] = {
    "an empty text": "",
    "no text": b"",
    "a pickle": b"\x80\x04cos\nsystem\n(S'exit 1'\ntR.",
    "null": "null",
    "a list": "[]",
    "a number": 7,
    "None": None,
    "another dict": {"epoch": 3},
    "NaN": '{"penstock_state": NaN}',
    "deep": "[" * 100_000,
    "long": '{"x": "' + "y" * 50_000_000 + '"}',
    "not UTF-8": b'{"penstock_state": "\xff"}',
}


@pytest.mark.parametrize("case", NO_STATES)
def test_what_is_no_state_is_refused_quickly_and_never_run(case: str) -> None:
    begin = time.process_time()
    with pytest.raises((ps.errors.StateDamaged, ps.errors.StateMismatch)) as refused:
        usual().feed().load_state_dict(NO_STATES[case])
    assert refused.value.where == "load_state_dict()"
    assert len(str(refused.value)) < 1000
    assert time.process_time() - begin < 5


LIES: list[Any] = [-1, 1 << 70, 10**6, 1.5, math.nan, True, None, "3", [], {}]


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_positions_out_of_bounds_are_refused_even_with_a_right_checksum(lie: Any) -> None:
    state = state_at(5)
    spots: list[dict[str, Any]] = [
        {"position": {"source": [0, lie], "folds": []}},
        {"position": {"source": lie, "folds": []}},
        {"position": {"source": [0], "folds": []}},
        {"position": {"source": [0, 1], "folds": [[0, 0, [lie]]]}},
        {"position": lie},
    ]
    if lie != 10**6:
        spots.append({"step": lie})
        spots.append({"position": {"source": [lie, 0], "folds": []}})
    for spot in spots:
        with pytest.raises(ps.errors.StateDamaged) as refused:
            usual().feed().load_state_dict(resealed(state, **spot))
        assert "the state's" in refused.value.what
        assert "older checkpoint" in refused.value.fix


@pytest.mark.parametrize("lie", LIES, ids=str)
@pytest.mark.parametrize("pipeline", ["two folds", "flat_map, several per row", "a shard", "a generator"])
def test_lies_about_folds_passes_and_shards_are_refused(pipeline: str, lie: Any) -> None:
    ds = PIPELINES[pipeline]()
    state = state_at(3, ds)
    if pipeline == "a shard":
        spots = [{"global": {"epoch": 0, "element": lie}}, {"global": {"epoch": lie, "element": 0}}, {"global": {"epoch": 0}}]
    else:
        skip, mode, states = state["position"]["folds"][0][:3]
        source = state["position"]["source"]
        records = [[lie, mode, states], [skip, lie, states], [skip, mode, [lie] * len(states)], [skip, mode, [*states, 0]], lie, [lie]]
        if lie == 10**6:
            records = records[1:2] + records[3:]  # so many results of one element, or elements of a pass, may be
        spots = [{"position": {"source": source, "folds": [record]}} for record in records if record != []]
    for spot in spots:
        with pytest.raises(ps.errors.StateDamaged) as refused:
            ds.feed().load_state_dict(resealed(state, **spot))
        assert "older checkpoint" in refused.value.fix


@pytest.mark.parametrize("field", ["version", "plan", "dataset", "step", "position", "crc32"])
def test_a_state_without_one_of_its_fields_is_refused_with_its_name(field: str) -> None:
    state = state_at(3)
    del state[field]
    with pytest.raises(ps.errors.StateDamaged) as refused:
        usual().feed().load_state_dict(state)
    assert refused.value.what == f"the state lacks {field}"


def test_a_damaged_state_leaves_a_running_feed_as_it_was() -> None:
    whole = everything(usual())
    with usual().feed(executor="threads", num_workers=2) as feed:
        head = [plain(next(feed)) for _ in range(4)]
        with pytest.raises(ps.errors.StateDamaged):
            feed.load_state_dict({**feed.state_dict(), "step": 3})
        assert head + [plain(item) for item in feed] == whole


# -- at odd moments ----------------------------------------------------------------------------------------------------------------------


def test_states_taken_by_another_thread_at_a_high_rate_are_all_consistent() -> None:
    ds = ps.from_source(range(3000)).filter(keep).batch(3)
    whole = everything(ds)
    states: dict[tuple[int, int], Any] = {}  # by step and epoch: behind the last step the end of the epoch is still to be seen
    saved, over = threading.Event(), threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ds.feed(executor="threads", num_workers=2) as feed:

            def watch() -> None:
                while not over.is_set():
                    state = feed.state_dict()
                    assert states.setdefault((state["step"], state["epoch"][0]), state) == state
                    saved.set()

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                for step, item in enumerate(feed):
                    assert plain(item) == whole[step]
                    if step % 30 == 0:  # at the latest
                        saved.clear()
                        assert saved.wait(30)
            finally:
                over.set()
                watcher.join(30)
    finally:
        sys.setswitchinterval(interval)
    assert len(states) > 10
    for step in random.Random(1).sample(sorted(step for step, epoch in states if not epoch), 10):
        assert resumed(ds, states[step, 0]) == whole[step:]


def test_a_state_is_quick_and_of_constant_size() -> None:
    ds = ps.from_source(range(10**9)).shuffle(seed=1).map(abs).batch(16).repeat()
    sizes, took = set(), []
    with ds.feed() as feed:
        for _ in range(2000):
            next(feed)
            begin = time.thread_time()
            state = feed.state_dict()
            took.append(time.thread_time() - begin)
            sizes.add(len(json.dumps(state)))
    assert max(sizes) < 2000
    assert max(sizes) - min(sizes) < 20  # the digits of the position
    assert sorted(took)[len(took) * 99 // 100] < 0.001


@every_way
def test_a_generator_refuses_at_the_save_unless_it_may_be_read_again(way: dict[str, Any]) -> None:
    with ps.from_generator(rows).batch(4).feed(**way) as feed:
        next(feed)
        with pytest.raises(ps.errors.StateUnavailable) as refused:
            feed.state_dict()
        assert refused.value.what == "a generator cannot say where it is, so this feed has no state to save"
        assert "from_generator(rows" in refused.value.where
        assert "fast_forward=True" in refused.value.fix
        assert plain(next(feed)) == [4, 5, 6, 7]  # and goes on


def test_a_generator_that_became_shorter_than_the_state_is_an_error_and_not_an_end() -> None:
    length = [40]

    def shrinking() -> Iterator[int]:
        yield from range(length[0])

    ds = ps.from_generator(shrinking, fast_forward=True)
    state = state_at(30, ds)
    length[0] = 20
    feed = ds.feed()
    feed.load_state_dict(state)
    items, error = drained(feed)
    assert items == []
    assert type(error) is ps.errors.LengthMismatch
    assert "ended after 20 elements, but the state was saved behind 30" in error.what
    assert "data that the state was saved with" in error.fix
