"""What packing bought."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.cli.gain import Gain, measured


def test_both_are_read_and_counted(tmp_path: Path) -> None:
    dataset = ps.from_source(range(100))
    manifest = ps.pack(dataset, tmp_path, executor="threads")
    gain = measured(dataset, manifest, 1, ps.Raise())
    assert gain.raw_per_s > 0
    assert gain.packed_per_s > 0
    assert gain.times == gain.packed_per_s / gain.raw_per_s
    assert gain.num_workers == 1


def test_it_pays_only_when_it_is_faster() -> None:
    assert Gain(raw_per_s=10, packed_per_s=20, num_workers=1).pays_after_epochs == pytest.approx(2)
    assert Gain(raw_per_s=10, packed_per_s=10, num_workers=1).pays_after_epochs is None
