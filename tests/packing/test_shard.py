"""One shard, by one worker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from packing.small import dataset

import penstock as ps
from penstock.errors import PackError
from penstock.packing.disk import Folder, lock_folder
from penstock.packing.options import PackOptions
from penstock.packing.packer import _Task
from penstock.packing.split import split, take_sample


def test_a_worker_whose_packer_is_gone_writes_nothing(tmp_path: Path) -> None:
    options, cut, folder = PackOptions(num_shards=2), split(dataset(20)), Folder(str(tmp_path))
    write = _Task(
        split=cut, borders=[0, 10, 20], names=["a", "b"], options=options, schema=take_sample(cut, options, ps.Raise()).schema,
        folder=folder, run_id="run", policy=ps.Raise(), num_threads=0,
    )  # fmt: skip
    lock = lock_folder(str(tmp_path), shared=False)
    folder.prepare({"id": "another run"}, [])
    with pytest.raises(PackError, match="another packer has begun in this folder"):
        write(0)
    assert not (tmp_path / "a").exists()
    os.close(lock)
