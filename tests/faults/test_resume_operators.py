"""States of the operators that hold, mix, pack, cache, draw and await: FAULTS E1 to E6, E8, E10, E13, E15, E18."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.lives import copies, keep
from faults.lives import length as small
from faults.test_resume import _quiet, everything, resumed  # noqa: F401
from faults.ways import UNORDERED, WAYS, every_way
from feeds import state_behind
from laws.epochs import rest
from laws.plans import plain
from sources.streams import Numbers

import penstock as ps

pytestmark = pytest.mark.slow  # together with its kin two minutes; `make check` runs it


async def fetch(x: int) -> int:
    for _ in range(x % 4):
        await asyncio.sleep(0)
    return x


def noisy(x: int, rng: np.random.Generator) -> int:
    return x + 100_000 * int(rng.integers(1000))


def tokens(x: int) -> Any:
    return np.full(x % 6 + 1, x, np.int64)


def two(x: int) -> int:
    return x % 2


def values(batch: Any) -> Any:
    return batch["values"]


def mixed() -> ps.Dataset:
    a = ps.from_source(range(40)).shuffle(seed=1).map(noisy, seed=1).cache()
    b = ps.from_arrays(np.arange(1000, 1030)).map(int)
    return a.mix(b, ps.from_source(range(2000, 2020)).shuffle(seed=2), weights=[3, 2, 1], stop="all_exhausted")


def member(k: int) -> ps.Dataset:
    return ps.from_source(range(100 * k, 100 * k + 9 + k)).shuffle(seed=k)


def members(count: int = 5) -> ps.Dataset:
    return ps.from_source(range(count)).interleave(member, 3, 2)


PIPELINES: dict[str, Callable[[], ps.Dataset]] = {
    "everything at once": lambda: (
        mixed().filter(keep).shuffle(16, seed=3).flat_map(copies).map(noisy).map(fetch, concurrency=4).map(tokens)
        .pack_sequences(16, num_bins=4, split=False).batch(3).repeat(2)
    ),
    "interleave, balance, ragged": lambda: (
        members().rejection_resample(two, [1, 2], seed=4).map(noisy).map(tokens).ragged_batch(4).map(values).repeat(2)
    ),
    "stream, buffer, buckets": lambda: (
        ps.from_stream(Numbers(70)).shuffle(9, seed=1).map(noisy).bucket_by_length(small, [2, 5], [4, 3, 2]).repeat(2)
    ),
    "windows of a generator": lambda: (
        ps.from_generator(lambda: iter(range(60)), fast_forward=True).filter(keep).map(noisy).window(4, 3, 1, True).batch(2).repeat(2)
    ),
    "packed and cut": lambda: members().map(noisy).map(tokens).pack_sequences(10, split=True).enumerate().skip(2).take(40).repeat(3),
    "buckets of packs of passes": lambda: mixed().repeat(2).map(tokens).pack_sequences(12, num_bins=3).shuffle(5, seed=2),
}  # fmt: skip
every_pipeline = pytest.mark.parametrize("pipeline", PIPELINES)


@every_pipeline
def test_a_state_of_any_step_of_all_operators_at_once_resumes_exactly_there(pipeline: str) -> None:
    ds = PIPELINES[pipeline]()
    whole = everything(ds)
    ways = random.Random(pipeline)
    with ds.feed(executor="threads", num_workers=2) as feed:
        states = [feed.state_dict()]
        for item in feed:
            assert plain(item) == whole[len(states) - 1]
            states.append(feed.state_dict())
    assert len(states) == len(whole) + 1
    fresh = PIPELINES[pipeline]  # another program: nothing of the first run's caches and streams
    for step, state in enumerate(states):
        assert state["step"] == step
        assert resumed(fresh(), json.loads(json.dumps(state)), **ways.choice(WAYS), memory_bytes=ways.choice(["auto", 1])) == whole[step:]


@every_way
@every_pipeline
def test_a_resume_of_a_resume_of_all_operators_does_not_drift(pipeline: str, way: dict[str, Any]) -> None:
    ds = PIPELINES[pipeline]()
    whole = everything(ds)
    got: list[Any] = []
    feed = ds.feed(**way)
    state = feed.state_dict()
    chance = random.Random(pipeline)
    while len(got) < len(whole):
        feed.load_state_dict(state)
        assert feed.state_dict() == state
        got += [plain(item) for _, item in zip(range(chance.randrange(1, 5)), rest(feed), strict=False)]
        state = feed.state_dict()
        assert feed.state_dict() == state
    feed.close()
    assert got == whole


# -- wrong ----------


def two_mixed(weights: list[float], stop: Any = "first_exhausted") -> ps.Dataset:
    return ps.from_source(range(40)).mix(ps.from_source(range(40)), weights=weights, stop=stop)


OTHER: dict[str, tuple[Callable[[], ps.Dataset], Callable[[], ps.Dataset], str]] = {
    "another stop": (lambda: two_mixed([1, 2]), lambda: two_mixed([1, 2], "all_exhausted"), "all_exhausted"),
    "other weights below a shuffle": (
        lambda: two_mixed([1, 2]).shuffle(seed=1),
        lambda: two_mixed([2, 1]).shuffle(seed=1),
        "weights",
    ),
    "one dataset more in a mix, before the others": (
        lambda: two_mixed([1, 2]),
        lambda: ps.from_source(range(41)).mix(ps.from_source(range(40)), ps.from_source(range(40))),
        "in component 1 of the mix count was 40 and is now 41; the mix had 2 components and has 3 now",
    ),
    "one dataset less in a mix": (
        lambda: ps.from_source(range(40)).mix(ps.from_source(range(40)), ps.from_source(range(40))),
        lambda: two_mixed([1, 2]),
        "the mix had 3 components and has 2 now; they can only be added, behind the others",
    ),
    "another cycle": (members, lambda: ps.from_source(range(5)).interleave(member, 2, 2), "interleave"),
    "another block": (members, lambda: ps.from_source(range(5)).interleave(member, 3, 1), "interleave"),
    "one dataset more in an interleave": (members, lambda: members(6), "from_source"),
    "other buckets": (
        lambda: members().bucket_by_length(small, [2], [4, 3]),
        lambda: members().bucket_by_length(small, [3], [4, 3]),
        "bucket_by_length",
    ),
    "other sizes of buckets": (
        lambda: members().bucket_by_length(small, [2], [4, 3]),
        lambda: members().bucket_by_length(small, [2], [4, 2]),
        "bucket_by_length",
    ),
    "another length of packs": (
        lambda: members().map(tokens).pack_sequences(16),
        lambda: members().map(tokens).pack_sequences(17),
        "pack_sequences(17",
    ),
    "other bins": (
        lambda: members().map(tokens).pack_sequences(16),
        lambda: members().map(tokens).pack_sequences(16, num_bins=3),
        "num_bins=3",
    ),
    "packed by splitting": (
        lambda: members().map(tokens).pack_sequences(16),
        lambda: members().map(tokens).pack_sequences(16, split=True),
        "split",
    ),
    "another window": (lambda: members().window(4, 2), lambda: members().window(4, 3), "window(4, "),
    "another buffer": (
        lambda: members().filter(keep).shuffle(8, seed=1),
        lambda: members().filter(keep).shuffle(9, seed=1),
        "shuffle(buffer_size=9",
    ),
    "another seed of a buffer": (
        lambda: members().filter(keep).shuffle(8, seed=1),
        lambda: members().filter(keep).shuffle(8, seed=2),
        "seed=2",
    ),
    "another balance": (
        lambda: members().rejection_resample(two, [1, 2]),
        lambda: members().rejection_resample(two, [2, 1]),
        "rejection_resample",
    ),
    "a cache more below a random map": (lambda: members().map(noisy), lambda: members().map(noisy).cache(), "cache"),
    "ragged batches for padded ones": (
        lambda: members().map(tokens).padded_batch(4),
        lambda: members().map(tokens).ragged_batch(4),
        "ragged_batch(4",
    ),
    "an async function for another": (lambda: members().map(abs), lambda: members().map(fetch), "map(fetch)"),
}  # fmt: skip


@pytest.mark.parametrize("way", [WAYS[2], UNORDERED[2]], ids=["ordered", "unordered"])
@pytest.mark.parametrize("case", OTHER)
def test_a_state_of_other_operators_is_refused_with_the_first_difference(case: str, way: dict[str, Any]) -> None:
    before, after, words = OTHER[case]
    try:
        feed, other = before().feed(**way), after().feed(**way)
    except ps.errors.PlanError:
        assert not way.get("ordered", True)  # what needs an order is refused without one: test_completion.py
        return
    with feed:
        for _ in range(3):
            next(feed)
        state = feed.state_dict()
    with pytest.raises(ps.errors.StateMismatch) as refused:
        other.load_state_dict(state)
    assert words in refused.value.what
    assert "load_state_dict()" in refused.value.where
    assert refused.value.fix
    assert other.step == 0
    other.close()


@pytest.mark.parametrize("change", ["a value", "grown", "shrunk"])
@pytest.mark.parametrize("place", ["mix", "interleave", "zip"])
def test_a_state_of_other_data_in_one_of_several_sources_is_refused(place: str, change: str) -> None:
    first, second = list(range(30)), list(range(30, 60))
    other = {"a value": [*second[:-1], 99], "grown": [*second, 60], "shrunk": second[:-1]}[change]

    def ds(*rows: list[int]) -> ps.Dataset:
        parts = [ps.from_source(one) for one in rows]
        if place == "interleave":
            return ps.from_source([0, 1]).interleave(lambda k: parts[k]).batch(2)
        return (parts[0].mix(parts[1]) if place == "mix" else parts[0].zip(parts[1])).batch(2)

    state = state_behind(ds(first, second))
    with pytest.raises(ps.errors.StateMismatch) as refused:
        ds(first, other).feed().load_state_dict(state)
    assert {"a value": "sample_crc32", "grown": "31", "shrunk": "29"}[change] in refused.value.what
    assert refused.value.fix


@pytest.mark.parametrize("change", ["grown", "shrunk", "rewritten"])
def test_files_that_changed_below_a_mix_are_refused(change: str, tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.bin").write_bytes(bytes([number]) * 20)

    def ds() -> ps.Dataset:
        files = ps.read_files(str(tmp_path / "*.bin"))
        return ps.from_source([{"path": "", "data": b""}] * 8).mix(files, weights=[1, 3]).filter(lambda element: True).shuffle(4)

    state = state_behind(ds())
    if change == "grown":
        (tmp_path / "8.bin").write_bytes(b"new")
    elif change == "shrunk":
        (tmp_path / "3.bin").unlink()
    else:
        (tmp_path / "3.bin").write_bytes(b"other")
    with pytest.raises(ps.errors.StateMismatch) as refused:
        ds().feed().load_state_dict(state)
    assert "the state was saved with other" in refused.value.what
    assert "resume with the " in refused.value.fix
