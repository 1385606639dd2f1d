"""The real `datasets` of Hugging Face behind from_source and from_stream."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feeds import state_behind

import penstock as ps
from penstock.testing import check_source

datasets = pytest.importorskip("datasets", reason="datasets is not installed")
tqdm = pytest.importorskip("tqdm", reason="tqdm is not installed")
pytestmark = pytest.mark.slow

datasets.disable_progress_bars()
tqdm.tqdm.monitor_interval = 0  # its thread and its semaphore outlive every test otherwise
tqdm.tqdm.get_lock()

COUNT = 500


def table() -> dict[str, Any]:
    return {
        "x": np.arange(COUNT),
        "v": np.arange(COUNT * 3).reshape(COUNT, 3).astype(np.float32),
        "word": [f"word {number}" for number in range(COUNT)],
    }


def mapped() -> Any:
    return datasets.Dataset.from_dict(table()).with_format("numpy")


def numbers_of(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in np.atleast_1d(batch["x"])]


def test_a_map_style_dataset_keeps_the_laws_of_a_source() -> None:
    expected = [{"x": np.int64(n), "v": np.arange(3 * n, 3 * n + 3, dtype=np.float32), "word": f"word {n}"} for n in range(COUNT)]
    check_source(mapped(), expected=expected, again=mapped, most_elements=32)


def test_a_state_of_other_data_is_refused() -> None:
    state = state_behind(ps.from_source(mapped()))
    other = mapped().select(range(COUNT)[::-1])
    with ps.from_source(other).feed() as feed, pytest.raises(ps.errors.StateMismatch):
        feed.load_state_dict(state)


def test_a_transform_of_the_user_is_called_in_one_thread_and_in_processes_where_these_are_asked_for() -> None:
    def marked(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": [np.int64(number) for number in batch["x"]], "at": [(os.getpid(), threading.get_ident())] * len(batch["x"])}

    rows = datasets.Dataset.from_dict(table())
    own, plain = ps.from_source(rows.with_transform(marked)), ps.from_source(rows.with_format("numpy"))
    elements = list(own.feed())
    assert [element["x"] for element in elements] == [element["x"] for element in plain.feed()]
    assert len({element["at"] for element in elements}) == 1
    assert {element["at"][0] for element in elements} == {os.getpid()}
    with own.feed(num_workers=2) as feed:
        assert os.getpid() not in {element["at"][0] for element in feed}
        assert "Dataset" in feed.stats().notices[0]


def test_parquet_that_it_wrote_is_read(tmp_path: Path) -> None:
    datasets.Dataset.from_dict(table()).to_parquet(tmp_path / "a.parquet", batch_size=64)
    ds = ps.read_parquet(tmp_path / "a.parquet")
    assert ds[78]["word"] == "word 78"
    assert ds[78]["v"].tolist() == [234, 235, 236]
    assert sorted(numbers_of(ds.map(lambda row: {"x": row["x"]}).shuffle(seed=1, window_groups=2).batch(9))) == list(range(COUNT))


def test_an_iterable_dataset_is_told_its_epoch() -> None:
    stream = datasets.Dataset.from_dict(table()).to_iterable_dataset(num_shards=5).shuffle(seed=1, buffer_size=100)
    found = [row["x"] for row in ps.from_stream(stream).repeat(2)]
    assert sorted(found[:COUNT]) == sorted(found[COUNT:]) == list(range(COUNT))
    assert found[:COUNT] != found[COUNT:]


@pytest.mark.usefixtures("fork_server")
def test_an_iterable_dataset_is_packed(tmp_path: Path) -> None:
    stream = datasets.Dataset.from_dict(table()).to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=50)
    manifest = ps.pack(ps.from_stream(stream).map(told), tmp_path / "out", num_workers=2, shard_bytes=5000)
    found = list(ps.read_packed(tmp_path / "out"))
    assert [(int(row["x"]), row["word"]) for row in found] == [(row["x"], row["word"] + "!") for row in stream]
    assert sorted(int(row["x"]) for row in found) == list(range(COUNT))
    assert ps.pack(ps.from_stream(stream).map(told), tmp_path / "out", num_workers=1, shard_bytes=5000).record == manifest.record


def told(row: dict[str, Any]) -> dict[str, Any]:
    return {"x": row["x"], "word": row["word"] + "!"}
