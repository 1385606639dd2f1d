"""One shard, by one worker."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from packing.small import bad_at_7, dataset, hashes

import penstock as ps
from penstock.errors import PackError
from penstock.packing.disk import Folder, lock_folder
from penstock.packing.options import PackOptions
from penstock.packing.packer import _Task
from penstock.packing.split import split, take_sample


def task(folder: Path, ds: ps.Dataset | None = None, **changes: Any) -> _Task:
    options = PackOptions(num_shards=2)
    cut = split(ds or dataset(20))
    sample = take_sample(cut, options, changes.get("policy", ps.Raise()))
    place = Folder(str(folder))
    place.prepare({"id": "run"}, [])
    given = {"policy": ps.Raise(), "num_threads": 0, **changes}
    return _Task(
        split=cut,
        borders=[0, 10, 20],
        names=["a", "b"],
        options=options,
        schema=sample.schema,
        folder=place,
        run_id="run",
        **given,
    )


def test_a_shard_is_written_once_and_then_found(tmp_path: Path) -> None:
    write = task(tmp_path)
    note = write(1)
    assert (note["name"], note["count"], note["first"], note["positions"], note["skipped"]) == ("b", 10, 10, 10, [])
    before = (tmp_path / "b").stat().st_mtime_ns
    assert write(1) == note
    assert (tmp_path / "b").stat().st_mtime_ns == before


def test_threads_and_another_process_write_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for number, num_threads in enumerate((0, 1, 3)):
        folder = tmp_path / str(number)
        folder.mkdir()
        pickle.loads(pickle.dumps(task(folder, num_threads=num_threads)))(0)
        found.append(hashes(folder)["a"])
    assert len(set(found)) == 1


def test_elements_that_are_left_out_are_noted_in_order(tmp_path: Path) -> None:
    note = task(tmp_path, dataset(20).map(bad_at_7), policy=ps.Skip())(0)
    assert note["count"] == 9
    assert [(lost["key"], lost["stage"], lost["text"]) for lost in note["skipped"]] == [([[0, 7, 0]], "bad_at_7", "number 7 is bad")]


@pytest.mark.parametrize("policy", [ps.Skip(0.001), ps.Retry(1, then=ps.Skip(0.001))])
def test_a_rate_is_not_judged_by_one_shard(tmp_path: Path, policy: Any) -> None:
    assert task(tmp_path, dataset(20).map(bad_at_7), policy=policy)(0)["count"] == 9


def test_a_worker_whose_packer_is_gone_writes_nothing(tmp_path: Path) -> None:
    write = task(tmp_path)
    lock = lock_folder(str(tmp_path), shared=False)
    write.folder.prepare({"id": "another run"}, [])
    with pytest.raises(PackError) as caught:
        write(0)
    assert "another packer has begun in this folder" in str(caught.value)
    assert not (tmp_path / "a").exists()
    os.close(lock)
