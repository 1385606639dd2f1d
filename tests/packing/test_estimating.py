"""What packing would give, before it is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from packing.small import Stream, dataset, element

import penstock as ps
from penstock.packing import estimate


def test_an_estimate_says_what_would_come_and_writes_nothing(tmp_path: Path) -> None:
    found = estimate(dataset(20), num_workers=2, num_shards=3, format="tar")
    manifest = ps.pack(dataset(20), tmp_path / "out", executor="threads", num_shards=3, format="tar")
    assert (found.count, found.num_shards, found.num_sampled) == (20, 3, 20)
    assert found.size <= manifest.num_bytes
    assert found.seconds > 0
    assert found.fields[0] == "number.cls: int64 as text"


def test_a_stream_is_estimated_by_reading_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = estimate(ps.from_stream(Stream()).map(element, seed=5), num_workers=2)
    assert (found.count, found.num_shards, found.num_sampled) == (400, 1, 64)
    assert not list(tmp_path.iterdir())
