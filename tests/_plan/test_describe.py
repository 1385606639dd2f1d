from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from _plan.test_node import KINDS
from sources.groups import Grouped

import penstock as ps
from penstock._contracts.element import ArraySpec
from penstock._plan import known
from penstock._plan import node as plan
from penstock._plan.base import function_name
from penstock._plan.facts import lines
from penstock.formats.cache_stores import MemoryStore

READ = ps.from_arrays(np.arange(3))
GROUPED = ps.from_source(Grouped([2, 3]))


def numbers() -> Any:
    return iter([1])


STREAM = ps.from_generator(numbers)


def decode(value: Any) -> Any:
    return value


def noisy(value: Any, rng: Any) -> Any:
    return value


def opened(value: Any) -> ps.Dataset:
    return READ


class Wrapper:
    def __init__(self, func: Any) -> None:
        self.func = func

    def __call__(self, value: Any) -> Any:
        return self.func(value)


@dataclass(frozen=True)
class Resize:
    size: int

    def __call__(self, value: Any) -> Any:
        return value


IMAGE = ArraySpec((None, 3), np.dtype(np.uint8))
CACHE = plan.Cache(child=READ._root, store=MemoryStore(100), path="/c", max_bytes=9, version="2")

TEXTS: dict[str, ps.Dataset] = {
    "from_arrays(int64[], 3 elements)": READ,
    "from_generator(numbers)": STREAM,
    "map(decode)": READ.map(decode),
    "map(noisy, seed=3, output_spec={'a': uint8[None, 3]})": READ.map(noisy, name="other", seed=3, output_spec={"a": IMAGE}),
    "filter(decode)": READ.filter(decode),
    "flat_map(decode)": READ.flat_map(decode),
    "unbatch()": READ.unbatch(),
    "quarantined(2)": ps.Dataset(plan.Pick(child=READ._root, places=((0, 1), (2, 2)))),
    "shuffle(buffer_size=9, seed=7, reshuffle_each_epoch=False)": READ.shuffle(9, 7, False),
    "shuffle(buffer_size=9, buffer_bytes=100, seed=7)": STREAM.shuffle(9, 7, buffer_bytes=100),
    "shuffle(window_groups=4, seed=7, reshuffle_each_epoch=False)": GROUPED.shuffle(None, 7, False, window_groups=4),
    "shard(4, 1)": READ.shard(4, 1),
    "take(2)": READ.take(2),
    "skip(2)": READ.skip(2),
    "repeat()": READ.repeat(),
    "cache('/c', max_bytes=9, version='2')": ps.Dataset(CACHE),
    "enumerate(5)": READ.enumerate(5),
    "concatenate of 2": READ.concatenate(READ),
    "zip of 3": READ.zip(READ, READ),
    "mix of 2": READ.mix(READ, weights=[2, 2]),
    "mix of 2 by 1, 1; 1, 2.5 from 7, all_exhausted": READ.mix(READ, weights={0: [1, 1], 7: [1, 2.5]}, stop="all_exhausted"),
    "interleave(opened, cycle_length=2, block_length=4) of 3": READ.interleave(opened, 2, 4),
    "batch(4)": READ.batch(4),
    "padded_batch(4, drop_remainder=True, padded_shapes=(None,), padding_values=-1)": READ.padded_batch(4, (None,), -1, True),
    "bucket_by_length(decode, [4], [8, 4], drop_remainder=True, padding_values=-1)": (
        READ.bucket_by_length(decode, [4], [8, 4], padding_values=-1, drop_remainder=True)
    ),
    "pack_sequences(64, num_bins=8, padding_value=0)": READ.pack_sequences(64, num_bins=8),
    "pack_sequences(64, split=True, padding_value=-1)": READ.pack_sequences(64, split=True, padding_value=-1),
    "pack_sequences(64, split=True, padding_value=0, positions='document')": READ.pack_sequences(64, split=True, positions="document"),
    "rejection_resample(decode, [0.5, 0.5], initial_dist=[0.1, 0.9], seed=3)": READ.rejection_resample(decode, [1, 1], [1, 9], 3),
    "ragged_batch(4, drop_remainder=True, ragged=('tokens',))": READ.ragged_batch(4, True, ["tokens"]),
    "window(3, shift=3, stride=1, drop_remainder=True)": READ.window(3, drop_remainder=True),
    "prefetch(2)": READ.prefetch(2),
    "as_completed()": READ.as_completed(),
}


@pytest.mark.parametrize("text", TEXTS)
def test_each_node_is_said_in_one_line(text: str) -> None:
    assert TEXTS[text]._root.line() == text


def test_there_is_a_line_for_every_kind_of_node() -> None:
    assert {type(ds._root) for ds in TEXTS.values()} == {*KINDS, known.PackSequences}


SAVED: dict[str, ps.Dataset] = {
    "shard(num_shards, index)": READ.shard(4, 1),
    "from_arrays": READ,
    "map(mine, seed=3)": READ.map(noisy, name="mine", seed=3),
    "map(mine, output_spec=uint8[None, 3])": READ.map(decode, name="mine", output_spec=IMAGE),
    "filter(mine)": READ.filter(decode, name="mine"),
    "flat_map(mine)": READ.flat_map(decode, name="mine"),
    "bucket_by_length(mine, [4], [8, 4])": READ.bucket_by_length(decode, [4], [8, 4], name="mine"),
    "rejection_resample(mine, [1.0], seed=0)": READ.rejection_resample(decode, [1], name="mine"),
    "mix of 2": READ.mix(READ, weights=[1, 2]),
}


@pytest.mark.parametrize("text", SAVED)
def test_a_saved_plan_leaves_out_what_a_state_does_not_depend_on(text: str) -> None:
    assert SAVED[text]._root.line(saved=True) == text
    top = READ.prefetch(1).batch(4).prefetch(2)._root
    assert lines(top, saved=True) == ["from_arrays", "batch(4)"]
    assert len(lines(top)) == 4


def outer() -> Any:
    return lambda value: value


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (decode, "decode"),
        (len, "len"),
        (outer(), "outer.<lambda>"),
        (int, "int"),
        (Resize.__call__, "Resize.__call__"),
        (Resize(3).__call__, "Resize.__call__"),
        (Resize(256), "Resize(size=256)"),
        (functools.partial(decode, value=3), "partial(decode)"),
        (functools.partial(functools.partial(decode)), "partial(decode)"),
        (Wrapper(decode), "Wrapper"),
        (np.sqrt, "sqrt"),
    ],
)
def test_a_function_is_named_the_same_in_every_process(fn: Any, name: str) -> None:
    found = function_name(fn)
    assert name in found
    assert " at 0x" not in found
    assert "<locals>" not in found


def test_a_saved_shuffle_of_groups_says_which_groups() -> None:
    def saved(sizes: list[int]) -> str:
        return ps.from_source(Grouped(sizes)).shuffle(seed=7, window_groups=4)._root.line(saved=True)

    assert saved([2, 3]).startswith("shuffle(window_groups=4 of ")
    assert saved([2, 3]) == saved([2, 0, 3]) != saved([3, 2])
