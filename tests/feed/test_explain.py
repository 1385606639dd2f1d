from __future__ import annotations

from pathlib import Path
from typing import Any

import penstock as ps
from penstock._engine.lowering import lower
from penstock.feed.compiled import explain


def double(x: Any) -> Any:
    return x * 2


def text(dataset: ps.Dataset) -> list[str]:
    return explain(dataset._root, lower(dataset._root), "the shared workers").splitlines()


def test_a_plain_pipeline_is_told_from_the_plan_to_the_delivery() -> None:
    lines = text(ps.from_source([1, 2, 3]).shuffle(seed=4).map(double).batch(2))
    assert lines[0] == "plan"
    assert lines[2:] == [
        "  shuffle(seed=4)",
        "  map(double)",
        "  batch(2)",
        "runs as",
        "  segment 1: positions by arithmetic, any block at any time",
        "    stage 'read+double' on the shared workers",
        "    batches of 2: rows written straight into recycled batch slots",
        "    delivered in order",
    ]


def test_workers_of_its_own_padding_and_whole_batches_are_told() -> None:
    lines = text(ps.from_source([1]).map(double, concurrency=3).padded_batch(2).map(len).shuffle())
    assert "    stage 'double' on 3 worker(s) of its own" in lines
    assert "    batches of 2: padded batches" in lines
    assert any(line.startswith("    then on whole batches: len") for line in lines)


def test_ragged_batches_and_windows_are_told() -> None:
    assert "    batches of 2: ragged batches" in text(ps.from_source([1]).ragged_batch(2))
    assert "    batches of 3: rows written straight into recycled batch slots" in text(ps.from_source([1]).window(3, 1))


def test_rows_by_numbers_are_told_with_what_makes_their_elements(tmp_path: Path) -> None:
    ds = ps.from_source([1]).map(double).measure(str(tmp_path), num_workers=0, n=double)
    assert "    read in groups, through double: packed rows" in text(ds.pack_sequences(9, by="n"))


def test_folds_generators_and_what_is_handed_on_are_told() -> None:
    lines = text(ps.from_generator(lambda: iter([1]), length=1).filter(bool).take(3).skip(1).batch(2))
    assert any(line.startswith("  segment 1: one thread reads from_generator(") for line in lines)
    assert "    then in order, at one place: take, skip, batch" in lines
    assert "    handed on in order" in lines
    assert "  segment 2: what the segment before hands on" in lines
    assert lines[-1] == "    delivered in order"


def test_elements_that_go_on_as_they_are_finished_are_told() -> None:
    lines = text(ps.from_source([1, 2]).map(double).as_completed().batch(2))
    assert lines.count("    its elements go on as they are finished") == 1
    assert "    handed on" in lines
    assert text(ps.from_source([1]).as_completed())[-2:] == ["    its elements go on as they are finished", "    delivered"]
    assert "its elements go on" not in "\n".join(text(ps.from_source([1, 2]).map(double).batch(2)))


def test_nothing_is_read_for_it() -> None:
    def refuse() -> Any:
        raise AssertionError("it was read")

    assert text(ps.from_generator(refuse).map(refuse))


def test_a_cache_tells_what_it_holds_and_how_often_it_served() -> None:
    dataset = ps.from_source([1, 2, 3]).map(double).cache(max_bytes=10_000)
    assert next(iter(dataset.map(double).batch(3))).tolist() == [4, 8, 12]
    lines = text(dataset.map(double).batch(2))
    assert "    stage 'cache+double' on the shared workers" in lines
    assert lines[-1] == "  cache in memory: 3 elements, 624 bytes of 10 kB; 0 hits, 3 misses"
