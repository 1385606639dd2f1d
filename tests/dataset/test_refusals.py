"""What no method of a dataset, and no function that opens one, takes: an error where it is written, with what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from dataset.small import double, endless, fetch, generated, noisy, numbers

import penstock as ps
from penstock.errors import PlanError, SourceError

LATER = "put it before the filter, flat_map or generator"
POSITIONS = "needs positions that are known before reading, but a filter, flat_map, unbatch, generator or compressed file stands before it"


def balanced(*arguments: Any) -> ps.Dataset:
    return numbers(3).rejection_resample(*arguments)


def buckets(length_fn: Any, boundaries: Any, batch_sizes: Any) -> ps.Dataset:
    return numbers(3).bucket_by_length(length_fn, boundaries, batch_sizes)


class Refusing:
    def __getitem__(self, index: int) -> int:
        raise NotImplementedError

    __iter__ = [1].__iter__


async def stream(x: int) -> AsyncIterator[int]:
    yield x


pairs = ps.from_arrays({"x": np.zeros((3, 2)), "y": np.zeros(3)})
WRONG: list[tuple[str, Callable[[], Any], str, str, str]] = [
    ("to_keras field", lambda: pairs.to_keras("x", "z"), "a batch has no part 'z'", "to_keras()", "give a part of {'x': float64[2]"),
    ("to_keras place", lambda: numbers(3).batch(2).to_keras(1), "a batch has no part 1", "to_keras()", "give a part of int64[2]"),
    ("to_keras unbatched", lambda: pairs.to_keras("x", "y"), "'y' is a single value, without rows", "to_keras()", "call batch(n) before"),
    ("prefetch -1", lambda: numbers(3).prefetch(-1), "buffer_size=-1 is not a whole number >= 0", "prefetch()", "buffer_size"),
    (
        "an unknown option",
        lambda: numbers(3).with_options(num_worker=3),
        "there is no option 'num_worker'; did you mean 'num_workers'",
        "feed options",
        "num_workers",
    ),
    ("a number of listeners", lambda: numbers(3).feed(listeners=5), "listeners=5 is no list of", "feed()", "callables"),  # type: ignore[arg-type]
    ("an index that wraps", lambda: endless().shard(2**30, 0)[2**60], f"index {2**60} of inf", "ds[i]", "0.."),
    ("an index behind the end", lambda: numbers(3)[3], "index 3 of 3 elements", "ds[i]", "0..len(ds)-1"),
    ("an index into nothing", lambda: numbers(0).batch(2).spec(), "index 0 of 0 elements", "ds[i]", "check the source and take()"),
    ("an index before the start", lambda: numbers(3)[-4], "index -4 of 3 elements", "ds[i]", "0..len(ds)-1"),
    ("a slice", lambda: numbers(3)[0:2], "the index slice(0, 2, None) is not a whole number", "ds[i]", "skip(a).take(b - a)"),
    ("a name for an index", lambda: numbers(3)["x"], "the index 'x' is not", "ds[i]", "one whole number"),
    ("an index of a filter", lambda: numbers(3).filter(double)[0], f"ds[i] {POSITIONS}", "ds[i]", "before the filter"),
    ("a negative index of an endless dataset", lambda: endless()[-1], "index -1 of inf elements", "ds[i]", "0.."),
    ("the length of a filter", lambda: len(numbers(3).filter(double)), "only known after reading", "len(ds)", "take(n)"),
    ("the length of an endless dataset", lambda: len(endless()), "is endless", "len(ds)", "take(n)"),
    ("the spec of nothing", lambda: numbers(3).filter(lambda x: x > 9).spec(), "gave no element", "ds.spec()", "the filters"),
    ("arrays of different lengths", lambda: ps.from_arrays({"a": np.zeros(2), "b": np.zeros(3)}), "3", "from_arrays", ""),
    ("a generator that is none", lambda: ps.from_generator(3), "neither callable nor iterable", "from_generator", "yields"),  # type: ignore[arg-type]
    ("a function as a stream", lambda: ps.from_stream(len), "cannot be iterated", "from_stream()", "use from_generator"),  # type: ignore[arg-type]
    ("a generator with a word", lambda: ps.from_generator(list, fast_forward="no"), "fast_forward='no'", "from_generator()", "True or"),  # type: ignore[arg-type]
    ("a stream with a word", lambda: ps.from_stream([1], fast_forward="no"), "fast_forward='no'", "from_stream()", "True or False"),  # type: ignore[arg-type]
    ("a list with a word", lambda: ps.read_list("absent", label="no"), "label='no'", "read_list()", "True or False"),  # type: ignore[arg-type]
    ("a source without length", lambda: ps.from_source(iter([])), "", "from_source", ""),
    ("a stream with an index that raises, as PyTorch's have", lambda: ps.from_source(Refusing()), "", "from_source", "from_stream(obj)"),
    (
        "map declared as a dtype",
        lambda: numbers(3).map(double, output_spec=np.float32),
        "no ArraySpec",
        "map(output_spec=...)",
        "as ds.spec()",
    ),
    ("cache in a number", lambda: numbers(3).cache(5), "path=5 is no path", "cache()", "pathlib.Path"),  # type: ignore[arg-type]
    ("cache in nothing", lambda: numbers(3).cache(""), "path='' is no path", "cache()", "that is not empty"),
    ("resample to zeros", lambda: balanced(abs, [0, 0]), "target_dist=[0, 0]", "rejection_resample()", "not all of them 0"),
    ("resample from other classes", lambda: balanced(abs, [1, 1], [1]), "is not a list of 2 shares", "rejection_resample()", "2 numbers"),
    (
        "unbatch of a ragged batch",
        lambda: numbers(3).ragged_batch(2).unbatch(),
        "a ragged batch has values and row_splits of other lengths",
        "unbatch() after ragged_batch()",
        "use flat_map",
    ),
    ("an async filter", lambda: numbers(3).filter(fetch), "filter does not await", "filter(fetch)", "await in a map() before it"),
    (
        "an async flat_map",
        lambda: numbers(3).flat_map(partial(fetch)),
        "flat_map does not await",
        "flat_map(partial(fetch))",
        "let flat_map",
    ),
    ("map with an async generator", lambda: numbers(3).map(stream), "no single element to await", "map(stream)", "flat_map(list) after"),
    ("an async map in a branch", lambda: numbers(3).zip(numbers(3).map(fetch)), "a branch of zip", "map(async", "after the zip"),
    ("a branch of one", lambda: numbers(3).map(fetch).concatenate(numbers(3)), "a branch of concatenate", "map(async", "after the con"),
    ("cache behind a filter", lambda: numbers(3).filter(double).cache(), f"cache {POSITIONS}", "cache()", "put cache() before the filter"),
    ("cache of a generator", lambda: generated().cache(), f"cache {POSITIONS}", "cache()", "when from_source reads it by number"),
    (
        "cache of a map with workers",
        lambda: numbers(3).map(double, concurrency=2).cache(),
        "concurrency= has no effect inside a branch of cache",
        "map(concurrency=...) before cache()",
        "give concurrency= to a map after the cache",
    ),
    ("cache in a file", lambda: numbers(3).cache(__file__), "test_refusals.py' is a file", "cache()", "give the path of a folder"),
    ("version of memory", lambda: numbers(3).cache(version=2), "version='2' without a path", "cache()", "give a path"),
    (
        "folder for a lambda",
        lambda: numbers(3).map(lambda x: x, name="decode").cache("/nowhere"),
        "<lambda> says too little: a lambda, a partial and a function or method with values of its own",
        "cache() after map(decode)",
        "give version=, and another one after each change",
    ),
    ("shuffle behind a filter", lambda: numbers(3).filter(double).shuffle(), f"shuffle {POSITIONS}", "shuffle()", LATER),
    ("shuffle of a generator", lambda: generated().shuffle(), f"shuffle {POSITIONS}", "shuffle()", LATER),
    ("shuffle of an endless dataset", lambda: endless().shuffle(), "shuffle of an endless dataset", "shuffle()", "then repeat()"),
    (
        "a window of groups and elements",
        lambda: numbers(3).shuffle(4, window_groups=2),
        "of 2 groups or of 4 elements, not both",
        "shuffle()",
        "one of",
    ),
    ("groups where none are", lambda: numbers(3).shuffle(window_groups=2), "elements that lie in groups", "shuffle()", "group_starts()"),
    (
        "groups behind a filter",
        lambda: numbers(3).filter(double).shuffle(window_groups=2),
        f"shuffle {POSITIONS}",
        "shuffle()",
        "buffer_size= instead",
    ),
    (
        "as completed twice",
        lambda: numbers(3).as_completed().map(double).as_completed(),
        "as_completed() stands in this plan already",
        "as_completed()",
        "leave one of them out",
    ),
    (
        "as completed after a batch",
        lambda: numbers(3).batch(2).map(double).as_completed(),
        "as_completed() of map(double): it orders elements, not batches",
        "as_completed()",
        "feed(ordered=False)",
    ),
    (
        "as completed after windows",
        lambda: numbers(3).window(1).map(double).as_completed(),
        "as_completed() after window(1, shift=1, stride=1), which counts elements in their order",
        "as_completed()",
        "call as_completed() before window()",
    ),
    (
        "as completed after a take of a stream",
        lambda: numbers(3).filter(double).take(2).as_completed(),
        "as_completed() after take(2), which counts elements in their order behind a filter, flat_map or generator",
        "as_completed()",
        "call as_completed() before take()",
    ),
    (
        "as completed after a buffer of a generator",
        lambda: generated().shuffle(2).as_completed(),
        "as_completed() after shuffle(buffer_size=2",
        "as_completed()",
        "call as_completed() before shuffle()",
    ),
    ("as completed in a branch", lambda: numbers(3).zip(numbers(3).as_completed()), f"zip {POSITIONS}", "zip()", LATER),
    ("a full shuffle as completed", lambda: numbers(3).as_completed().shuffle(), f"shuffle {POSITIONS}", "shuffle()", LATER),
    (
        "shard as completed",
        lambda: numbers(3).as_completed().map(double).shard(2, 0),
        "shard() after as_completed(): elements come in another order on each rank",
        "shard()",
        "call shard() before as_completed()",
    ),
    (
        "shard by rank as completed",
        lambda: numbers(3).as_completed().shard_by_rank(rank=0, num_ranks=2),
        "shard_by_rank() after as_completed()",
        "shard_by_rank()",
        "call shard_by_rank() before as_completed()",
    ),
    (
        "ranks made even in another way",
        lambda: numbers(3).shard_by_rank("no", rank=0, num_ranks=2),  # type: ignore[arg-type]
        "even='no' is not known",
        "shard_by_rank()",
        "give 'drop', 'pad', 'mask' or 'error'",
    ),
    ("shard 2 of 2", lambda: numbers(3).shard(2, 2), "index=2 of num_shards=2", "shard()", "index as 0..1"),
    ("repeat beyond 63 bits", lambda: numbers(3).repeat(2**62), "more than 2**63", "repeat()", "repeat() without a count"),
    ("concatenate a list", lambda: numbers(3).concatenate([1]), "[1] is not a Dataset", "concatenate()", "ps.from_source"),  # type: ignore[arg-type]
    ("concatenate a generator", lambda: numbers(3).concatenate(generated()), f"concatenate {POSITIONS}", "concatenate()", LATER),
    ("concatenate behind endless", lambda: endless().concatenate(numbers(1)), "of an endless dataset", "concatenate()", "dataset last"),
    ("mix with a list", lambda: numbers(3).mix([1]), "[1] is not a Dataset", "mix()", "ps.from_source"),  # type: ignore[arg-type]
    ("mix with a generator", lambda: numbers(3).mix(generated()), f"mix {POSITIONS}", "mix()", LATER),
    ("mix with a weight too few", lambda: numbers(3).mix(numbers(3), weights=[1]), "weights=[1] are not 2", "mix()", "per dataset"),
    ("mix until never", lambda: numbers(3).mix(numbers(3), stop="never"), "stop='never' is no way", "mix()", "'all_exhausted'"),  # type: ignore[arg-type]
    (
        "mix until all of an endless one",
        lambda: numbers(3).mix(endless(), stop="all_exhausted"),
        "mix(stop='all_exhausted') of an endless dataset",
        "mix(stop='all_exhausted')",
        "take(n) of the endless dataset",
    ),
    (
        "mix until all of an empty one",
        lambda: numbers(3).mix(numbers(0), stop="all_exhausted"),
        "dataset 1 is empty and cannot start over",
        "mix(stop='all_exhausted')",
        "leave it out",
    ),
    (
        "mix beyond 63 bits",
        lambda: numbers(3).mix(numbers(3), weights=[1e-300, 1e300], stop="all_exhausted"),
        "more than 2**63",
        "mix()",
        "repeat() without a count",
    ),
    ("interleave of numbers", lambda: numbers(3).interleave(double), "0 is not a Dataset", "interleave()", "ps.from_source"),
    ("interleave of a generator", lambda: generated().interleave(numbers), f"interleave {POSITIONS}", "interleave()", LATER),
    ("interleave of generators", lambda: numbers(3).interleave(lambda n: generated()), f"interleave {POSITIONS}", "interleave()", LATER),
    (
        "interleave of a shuffle",
        lambda: numbers(3).shuffle().interleave(numbers),
        "so shuffle(seed=0) before",
        "interleave()",
        "behind interleave()",
    ),
    ("interleave of an endless dataset", lambda: endless().interleave(numbers), "of an endless dataset", "interleave()", "take(n) first"),
    ("interleave of endless datasets", lambda: numbers(3).interleave(lambda n: endless()), "of an endless", "interleave()", "of each"),
    ("zip with a list", lambda: numbers(3).zip([1]), "[1] is not a Dataset", "zip()", "ps.from_source"),  # type: ignore[arg-type]
    ("zip with a filter", lambda: numbers(3).zip(numbers(3).filter(double)), f"zip {POSITIONS}", "zip()", LATER),
    (
        "zip of a branch with workers",
        lambda: numbers(3).zip(numbers(3).map(double, concurrency=2)),
        "concurrency= has no effect inside a branch of zip",
        "before zip()",
        "a map after the zip",
    ),
    ("no fraction", lambda: numbers(9).split(), "the fractions () are no shares of 1", "split()", "split(0.9)"),
    ("more than all", lambda: numbers(9).split(0.9, 0.2), "the fractions 0.9, 0.2 are no shares", "split()", "add up to 1 or less"),
    ("not a number", lambda: numbers(9).split(float("nan")), "the fractions nan are no shares", "split()", "positive numbers"),
    ("a text", lambda: numbers(9).split("0.9"), "the fractions '0.9' are no shares", "split()", "positive numbers"),  # type: ignore[arg-type]
    ("too few elements", lambda: numbers(3).split(0.9), "3 elements in parts of 3, 0: a part would be empty", "split()", "more elements"),
    ("a stream", lambda: numbers(9).filter(bool).split(0.5), f"split {POSITIONS}", "split()", "before the filter"),
    ("endless", lambda: endless().split(0.5), "split of an endless dataset", "split()", "split() first"),
    ("passes", lambda: numbers(9).repeat(2).split(0.5), "split after repeat(2), which puts", "split()", "then repeat() on the part"),
    ("another order", lambda: numbers(9).shuffle(seed=1).map(double).split(0.5), "after shuffle(seed=1)", "split()", "then shuffle() on"),
    ("a mix", lambda: numbers(9).mix(numbers(2), stop="all_exhausted").split(0.5), "after mix of 2", "split()", "then mix() on"),
    ("buckets in no order", lambda: buckets(len, [4, 2], [1, 1, 1]), "bucket_boundaries=[4, 2]", "bucket_by_length()", "ascending"),
    ("too few batch sizes", lambda: buckets(len, [4], [1]), "bucket_batch_sizes=[1]", "bucket_by_length()", "one batch size more"),
    ("a batch size of 0", lambda: buckets(len, [4], [1, 0]), "bucket_batch_sizes=0 is not", "bucket_by_length()", "whole number >= 1"),
    ("a boundary of 0", lambda: buckets(len, [0], [1, 1]), "bucket_boundaries=0 is not", "bucket_by_length()", "whole number >= 1"),
    ("a number for boundaries", lambda: buckets(len, 4, [1, 1]), "bucket_boundaries=4 is not a list", "bucket_by_length()", "such as [2]"),
    (
        "ragged_batch of a word",
        lambda: numbers(3).ragged_batch(2, ragged="x"),
        "ragged='x' is no list of fields",
        "ragged_batch()",
        '("tokens",)',
    ),
    ("ragged_batch of a set", lambda: numbers(3).ragged_batch(2, ragged={1}), "ragged={1} is no list", "ragged_batch()", "keys of the"),  # type: ignore[arg-type]
]


@pytest.mark.filterwarnings("ignore:this dataset gave no elements")
@pytest.mark.parametrize(("call", "what", "where", "fix"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_cannot_run_is_refused_where_it_is_written(call: Callable[[], Any], what: str, where: str, fix: str) -> None:
    with pytest.raises((PlanError, SourceError)) as refusal:
        call()
    assert what in refusal.value.what
    assert where in refusal.value.where
    assert fix in refusal.value.fix
    assert refusal.value.what
    assert refusal.value.fix


# -- numbers, flags and functions: each argument of each method ---------------------------------------------------------------------

BESIDE: dict[str, dict[str, Any]] = {
    **{method: {"batch_size": 2} for method in ("batch", "padded_batch", "ragged_batch")},
    "bucket_by_length": {"length_fn": abs, "bucket_boundaries": [2], "bucket_batch_sizes": [2, 2]},
    "interleave": {"fn": numbers},
    "map": {"fn": abs},
    "pack_sequences": {"length": 8},
    "rejection_resample": {"class_fn": abs, "target_dist": [1]},
    "shard": {"num_shards": 2, "index": 0},
    "window": {"size": 2},
}
"""What a call needs beside the argument that is wrong."""
COUNTS = {
    1: [
        "batch batch_size", "padded_batch batch_size", "ragged_batch batch_size", "window size", "window shift", "window stride",
        "pack_sequences length", "pack_sequences num_bins", "repeat count", "shard num_shards", "shuffle buffer_size",
        "shuffle window_groups", "map concurrency", "cache max_bytes", "interleave cycle_length", "interleave block_length",
    ],
    0: [
        "take count", "skip count", "shard index", "shuffle seed", "map seed", "split seed", "rejection_resample seed", "enumerate start",
        "explain measure",
    ],
}  # fmt: skip
"""Methods and their arguments by the least number that they take."""
FLAGS = [
    "batch drop_remainder", "padded_batch drop_remainder", "ragged_batch drop_remainder", "window drop_remainder",
    "bucket_by_length drop_remainder", "pack_sequences split", "shuffle reshuffle_each_epoch",
]  # fmt: skip
FUNCTIONS = ["map fn", "filter fn", "flat_map fn", "interleave fn", "bucket_by_length length_fn", "rejection_resample class_fn"]


def refused(words: str, value: Any) -> PlanError:
    method, argument = words.split()
    with pytest.raises(PlanError) as refusal:
        getattr(numbers(3), method)(**{**BESIDE.get(method, {}), argument: value})
    return refusal.value


@pytest.mark.parametrize(("words", "least"), [(words, least) for least, several in COUNTS.items() for words in several])
def test_what_is_no_count_is_refused_where_it_is_given(words: str, least: int) -> None:
    method, argument = words.split()
    for value in (least - 1, 1.5, "x"):
        error = refused(words, value)
        assert error.what == f"{argument}={value!r} is not a whole number >= {least}"
        assert error.where == f"{method}()"
        endless = ", or leave it out to repeat without end" if method == "repeat" else ""
        assert error.fix == f"give {argument} a whole number >= {least}{endless}"


@pytest.mark.parametrize("words", FLAGS)
def test_what_only_counts_as_a_flag_is_refused_where_it_is_given(words: str) -> None:
    method, argument = words.split()
    error = refused(words, "no")
    assert error.what == f"{argument}='no' is neither True nor False"
    assert (error.where, error.fix) == (f"{method}()", f"give {argument} True or False")


@pytest.mark.parametrize("words", FUNCTIONS)
def test_what_is_no_function_or_waits_for_an_rng_is_refused_where_it_is_given(words: str) -> None:
    method, _ = words.split()
    error = refused(words, 3)
    assert (error.what, error.where) == ("3 is not callable", f"{method}()")
    assert "a function that takes one element" in error.fix
    error = refused(words, lambda image, label: image)
    assert error.what.endswith("> has the parameters image, label, and is called with one argument")
    assert (error.where, error.fix.count("pair[0], pair[1] of a tuple")) == (f"{method}()", 1)
    if method not in ("map", "interleave"):  # these two give an rng, or call it at once
        error = refused(words, noisy)
        assert error.what == f"{method} gives no rng to its function"
        assert error.where.startswith(f"{method}(")
        assert error.fix == f"draw in a map(fn, seed=...) before it, and let {method} look at what was drawn"
