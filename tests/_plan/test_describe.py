from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pytest
from sources.groups import Grouped

from penstock._contracts.element import ArraySpec
from penstock._plan import known
from penstock._plan import node as plan
from penstock._plan.base import function_name
from penstock._plan.facts import lines
from penstock.formats.cache_stores import MemoryStore
from penstock.sources import ArraySource, GeneratorSource

READ = plan.Read(source=ArraySource(np.arange(3)))


def numbers() -> Any:
    return iter([1])


STREAM = plan.ReadStream(source=GeneratorSource(numbers, fast_forward=False, length=None))


def decode(value: Any) -> Any:
    return value


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


MEMORY = MemoryStore(100)
IMAGE = ArraySpec((None, 3), np.dtype(np.uint8))

TEXTS = [
    (READ, "from_arrays(int64[], 3 elements)"),
    (plan.Map(child=READ, fn=decode, name="decode"), "map(decode)"),
    (
        plan.Map(child=READ, fn=decode, name="other", seed=3, random=True, output_spec={"a": IMAGE}),
        "map(decode, seed=3, output_spec={'a': uint8[None, 3]})",
    ),
    (plan.Filter(child=READ, fn=decode, name="decode"), "filter(decode)"),
    (plan.FlatMap(child=READ, fn=decode, name="decode"), "flat_map(decode)"),
    (plan.Unbatch(child=READ), "unbatch()"),
    (plan.Pick(child=READ, places=((0, 1), (2, 2))), "quarantined(2)"),
    (
        plan.Shuffle(child=READ, buffer_size=9, seed=7, reshuffle_each_epoch=False),
        "shuffle(buffer_size=9, seed=7, reshuffle_each_epoch=False)",
    ),
    (plan.Shard(child=READ, num_shards=4, index=1), "shard(4, 1)"),
    (plan.Take(child=READ, count=2), "take(2)"),
    (plan.Skip(child=READ, count=2), "skip(2)"),
    (plan.Repeat(child=READ, count=None), "repeat()"),
    (plan.Cache(child=READ, store=MEMORY, path="/c", max_bytes=9, version="2"), "cache('/c', max_bytes=9, version='2')"),
    (plan.Enumerate(child=READ, start=5), "enumerate(5)"),
    (plan.Concatenate(children=(READ, READ)), "concatenate of 2"),
    (plan.Zip(children=(READ, READ, READ)), "zip of 3"),
    (plan.Mix(children=(READ, READ), history=((0, (2.0, 2.0)),), restart=False), "mix of 2"),
    (plan.Mix(children=(READ, READ), history=((0, (1, 1)), (7, (1, 2.5))), restart=True), "mix of 2 by 1, 1; 1, 2.5 from 7, all_exhausted"),
    (
        plan.Interleave(children=(READ, READ), name="open", cycle_length=2, block_length=4),
        "interleave(open, cycle_length=2, block_length=4) of 2",
    ),
    (plan.Batch(child=READ, batch_size=4, drop_remainder=False), "batch(4)"),
    (
        plan.PaddedBatch(child=READ, batch_size=4, drop_remainder=True, padded_shapes=(None,), padding_values=-1),
        "padded_batch(4, drop_remainder=True, padded_shapes=(None,), padding_values=-1)",
    ),
    (
        plan.Shuffle(child=STREAM, buffer_size=9, seed=7, reshuffle_each_epoch=True, buffer_bytes=100),
        "shuffle(buffer_size=9, buffer_bytes=100, seed=7)",
    ),
    (
        plan.BucketByLength(
            child=READ, fn=decode, name="mine", boundaries=(4,), batch_sizes=(8, 4), drop_remainder=True, padding_values=-1
        ),
        "bucket_by_length(decode, [4], [8, 4], drop_remainder=True, padding_values=-1)",
    ),
    (known.PackSequences(child=READ, length=64, num_bins=8, padding_value=0), "pack_sequences(64, num_bins=8, padding_value=0)"),
    (known.PackSequences(child=READ, length=64, num_bins=None, padding_value=-1), "pack_sequences(64, split=True, padding_value=-1)"),
    (
        known.PackSequences(child=READ, length=64, num_bins=None, padding_value=0, positions="document"),
        "pack_sequences(64, split=True, padding_value=0, positions='document')",
    ),
    (
        plan.RejectionResample(child=READ, fn=decode, name="mine", target=(0.5, 0.5), initial=(0.1, 0.9), seed=3),
        "rejection_resample(decode, [0.5, 0.5], initial_dist=[0.1, 0.9], seed=3)",
    ),
    (
        plan.RaggedBatch(child=READ, batch_size=4, drop_remainder=True, ragged=("tokens",)),
        "ragged_batch(4, drop_remainder=True, ragged=('tokens',))",
    ),
    (plan.Window(child=READ, size=3, shift=3, stride=1, drop_remainder=True), "window(3, shift=3, stride=1, drop_remainder=True)"),
    (plan.Prefetch(child=READ, buffer_size=2), "prefetch(2)"),
    (plan.AsCompleted(child=READ), "as_completed()"),
    (
        plan.Shuffle(child=READ, buffer_size=None, seed=7, reshuffle_each_epoch=False, window_groups=4),
        "shuffle(window_groups=4, seed=7, reshuffle_each_epoch=False)",
    ),
]


@pytest.mark.parametrize(("node", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_each_node_is_said_in_one_line(node: plan.Node, text: str) -> None:
    assert node.line() == text


def test_there_is_a_line_for_every_kind_of_node() -> None:
    assert "numbers" in STREAM.line()
    assert {type(node) for node, _ in TEXTS} | {plan.ReadStream} == {*get_args(plan.AnyNode), known.PackSequences}


def test_a_saved_plan_leaves_out_what_a_state_does_not_depend_on() -> None:
    assert plan.Shard(child=READ, num_shards=4, index=1).line(saved=True) == "shard(num_shards, index)"
    assert READ.line(saved=True) == "from_arrays"
    assert plan.Map(child=READ, fn=decode, name="mine", seed=3, random=True).line(saved=True) == "map(mine, seed=3)"
    assert plan.Map(child=READ, fn=decode, name="mine", output_spec=IMAGE).line(saved=True) == "map(mine, output_spec=uint8[None, 3])"
    assert plan.Filter(child=READ, fn=decode, name="mine").line(saved=True) == "filter(mine)"
    assert plan.FlatMap(child=READ, fn=decode, name="mine").line(saved=True) == "flat_map(mine)"
    bucketed = plan.BucketByLength(child=READ, fn=decode, name="mine", boundaries=(4,), batch_sizes=(8, 4), drop_remainder=False)
    assert bucketed.line(saved=True) == "bucket_by_length(mine, [4], [8, 4])"
    resampled = plan.RejectionResample(child=READ, fn=decode, name="mine", target=(1.0,), initial=None, seed=0)
    assert resampled.line(saved=True) == "rejection_resample(mine, [1.0], seed=0)"
    assert plan.Mix(children=(READ, READ), history=((0, (1.0, 2.0)),), restart=False).line(saved=True) == "mix of 2"
    top = plan.Prefetch(child=plan.Batch(child=plan.Prefetch(child=READ, buffer_size=1), batch_size=4, drop_remainder=False), buffer_size=2)
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
        child = plan.Read(source=Grouped(sizes))
        return plan.Shuffle(child=child, buffer_size=None, seed=7, reshuffle_each_epoch=True, window_groups=4).line(saved=True)

    assert saved([2, 3]).startswith("shuffle(window_groups=4 of ")
    assert saved([2, 3]) == saved([2, 0, 3]) != saved([3, 2])
