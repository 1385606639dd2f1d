"""Elements that were left out or replaced inside of batches that a fold takes apart again, and behind async calls: resumed anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from laws.epochs import rest

import penstock as ps

OPTIONS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "num_workers": 2},
    {"executor": "threads", "num_workers": 3, "memory_bytes": 1},
]
SKIP, REPLACE = {"on_error": ps.Skip()}, {"on_error": ps.Replace()}


def bad(value: Any) -> int:
    if int(value) % 5 == 2:
        raise ValueError(f"bad {int(value)}")
    return int(value)


async def same(value: Any) -> int:
    return int(value)


def tokens(value: Any) -> Any:
    return np.arange(int(value) % 6 + 1) + int(value)


def twice(value: Any) -> list[Any]:
    return [value, value]


def numbers() -> ps.Dataset:
    return ps.from_arrays(np.arange(12))


def generated() -> ps.Dataset:
    return ps.from_generator(lambda: iter(range(2, 14)), fast_forward=True)


def replaced() -> ps.Dataset:
    return numbers().map(bad, **REPLACE)


Build = Callable[[], ps.Dataset]
BATCHES: dict[str, Build] = {
    "unbatched": lambda: replaced().batch(3).unbatch(),
    "into buckets": lambda: replaced().batch(3).unbatch().map(tokens).bucket_by_length(len, [2, 4], [3, 2, 2]),
    "held": lambda: numbers().map(same).map(bad, **REPLACE).batch(3).unbatch().shuffle(3),
    "retried": lambda: numbers().map(bad, on_error=ps.Retry(1, then=ps.Replace())).batch(3).unbatch(),
    "beside a shard": lambda: numbers().shard(2, 0).map(bad, **SKIP).batch(3).unbatch(),
    "a batch left out": lambda: numbers().batch(2).map(lambda batch: bad(batch[0]), **SKIP).map(tokens).pack_sequences(8),
}
ASYNC: dict[str, Build] = {
    "held": lambda: generated().map(same).map(bad, **SKIP).shuffle(4),
    "packed": lambda: generated().map(same).map(bad, **SKIP).map(tokens).pack_sequences(8),
    "the call itself": lambda: generated().map(fails, **SKIP).map(tokens).pack_sequences(8),
    "two calls": lambda: generated().map(same).map(fails, **SKIP).map(bad, **SKIP).shuffle(4),
    "read by place": lambda: numbers().map(same).map(bad, **SKIP).flat_map(twice).shuffle(4),
}


async def fails(value: Any) -> int:
    if int(value) % 7 == 4:
        raise ValueError(f"bad call {int(value)}")
    return int(value)


def plain(item: Any) -> Any:
    return {key: plain(value) for key, value in item.items()} if isinstance(item, dict) else np.asarray(item).tolist()


@pytest.mark.parametrize(
    "options", [OPTIONS[0], pytest.param(OPTIONS[1], marks=pytest.mark.slow), OPTIONS[2]], ids=["inline", "2 workers", "tiny units"]
)
@pytest.mark.parametrize("build", [*BATCHES.values(), *ASYNC.values()], ids=[*BATCHES, *(f"async, {name}" for name in ASYNC)])
def test_a_state_saved_anywhere_resumes_with_the_same(build: Build, options: dict[str, Any]) -> None:
    whole = [plain(item) for item in build().feed(**options)]
    assert len(whole) > 1
    for cut in range(0, len(whole) + 1, 1 if options == OPTIONS[0] else 2):
        with build().feed(**options) as feed:
            before = [plain(next(feed)) for _ in range(cut)]
            state = json.loads(json.dumps(feed.state_dict()))
        with build().feed(**options) as feed:
            feed.load_state_dict(state)
            assert before + [plain(item) for item in rest(feed)] == whole, f"resumed behind {cut}"


def one_over(value: int) -> int:
    return int(1 / (value != 3) and value)


@pytest.mark.parametrize("options", OPTIONS, ids=["inline", "2 workers", "tiny units"])
def test_what_stands_in_behind_a_repeat_is_the_same_in_any_blocks(options: dict[str, Any]) -> None:
    def build() -> ps.Dataset:
        return ps.from_source(list(range(5))).repeat(3).shuffle(5, seed=2).map(one_over, **REPLACE)

    whole = [int(value) for value in build().feed(executor="inline")]
    assert len(whole) == 15
    assert 3 not in whole
    for size in (1, 2, 3, 4, 15):
        with build().batch(size).feed(**options) as feed:
            assert np.concatenate(list(feed)).tolist() == whole
