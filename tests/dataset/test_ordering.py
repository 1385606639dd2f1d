from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataset.small import LATER, POSITIONS, Row, assert_refused, double, endless, generated, numbers, refusals

WRONG: list[Row] = [
    ("shuffle in a window of 0", lambda: numbers(3).shuffle(0), "buffer_size=0 is not a whole number >= 1", "shuffle()", "buffer_size"),
    ("shuffle with a word", lambda: numbers(3).shuffle(seed="x"), "seed='x' is not a whole number", "shuffle()", "seed"),  # type: ignore[arg-type]
    ("shuffle behind a filter", lambda: numbers(3).filter(double).shuffle(), f"shuffle {POSITIONS}", "shuffle()", LATER),
    ("shuffle of a generator", lambda: generated().shuffle(), f"shuffle {POSITIONS}", "shuffle()", LATER),
    ("shuffle of an endless dataset", lambda: endless().shuffle(), "shuffle of an endless dataset", "shuffle()", "then repeat()"),
    (
        "shuffle without a size behind a filter",
        lambda: generated().shuffle(),
        f"shuffle {POSITIONS}",
        "shuffle()",
        "give it a buffer_size=",
    ),
    ("a buffer of 0", lambda: generated().shuffle(0), "buffer_size=0 is not a whole number >= 1", "shuffle()", "buffer_size"),
    ("a buffer of no bytes", lambda: generated().shuffle(3, buffer_bytes=0), "buffer_bytes=0 is not", "shuffle()", "whole number >= 1"),
    ("shard of 0", lambda: numbers(3).shard(0, 0), "num_shards=0 is not a whole number >= 1", "shard()", "num_shards"),
    ("shard -1", lambda: numbers(3).shard(2, -1), "index=-1 is not a whole number >= 0", "shard()", "index"),
    ("shard 2 of 2", lambda: numbers(3).shard(2, 2), "index=2 of num_shards=2", "shard()", "an index in 0..1"),
    ("take -1", lambda: numbers(3).take(-1), "count=-1 is not a whole number >= 0", "take()", "count"),
    ("take True", lambda: numbers(3).take(True), "count=True is not a whole number >= 0", "take()", "count"),
    ("skip a word", lambda: numbers(3).skip("1"), "count='1' is not a whole number >= 0", "skip()", "count"),  # type: ignore[arg-type]
    ("repeat 0", lambda: numbers(3).repeat(0), "count=0 is not a whole number >= 1", "repeat()", "count"),
    ("repeat beyond 63 bits", lambda: numbers(3).repeat(2**62), "more than 2**63", "repeat()", "repeat() without a count"),
    ("concatenate a list", lambda: numbers(3).concatenate([1]), "[1] is not a Dataset", "concatenate()", "ps.from_source"),  # type: ignore[arg-type]
    ("concatenate a generator", lambda: numbers(3).concatenate(generated()), f"concatenate {POSITIONS}", "concatenate()", LATER),
    ("concatenate behind endless", lambda: endless().concatenate(numbers(1)), "of an endless dataset", "concatenate()", "dataset last"),
    ("zip with a list", lambda: numbers(3).zip([1]), "[1] is not a Dataset", "zip()", "ps.from_source"),  # type: ignore[arg-type]
    ("zip with a filter", lambda: numbers(3).zip(numbers(3).filter(double)), f"zip {POSITIONS}", "zip()", LATER),
    (
        "zip of a branch with workers",
        lambda: numbers(3).zip(numbers(3).map(double, concurrency=2)),
        "concurrency= has no effect inside a branch of zip",
        "below zip()",
        "a map above the zip",
    ),
]


@refusals(WRONG)
def test_what_cannot_run_is_refused_where_it_is_written(call: Callable[[], Any], what: str, where: str, fix: str) -> None:
    assert_refused(call, what, where, fix)


def test_a_shuffle_behind_a_filter_holds_a_buffer_and_is_said_so() -> None:
    ds = numbers(100).filter(lambda x: x % 2).shuffle(10, seed=3)
    assert sorted(ds) == list(range(1, 100, 2))
    assert list(ds) != sorted(ds)
    assert "shuffle(buffer_size=10, buffer_bytes=268435456, seed=3)" in repr(ds)
    assert "then in order, at one place: buffering" in ds.explain()
    assert "buffer_bytes" not in repr(numbers(100).shuffle(10, seed=3))
