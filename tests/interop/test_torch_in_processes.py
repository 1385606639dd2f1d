"""Worker processes whose functions import PyTorch: it is imported once, and its pools are there in each worker."""

from __future__ import annotations

import os
import sys

import pytest

import penstock as ps

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are forked on Linux")


@pytest.mark.parametrize("num_workers", [1, 3])
def test_workers_are_forked_behind_a_module_that_has_computed_and_compute_in_their_share_of_threads(
    num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interop.computes_at_import import look

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with ps.from_source(range(100)).map(look).feed(executor="processes", num_workers=num_workers) as feed:
        got = list(feed)
        assert [notice for notice in feed.stats().notices if "draws from the generator of torch" not in notice] == []
    assert [one["total"] for one in got] == [number * 1e6 for number in range(100)]
    assert len({one["pid"] for one in got}) == num_workers
    assert {one["threads"] for one in got} == {max(1, len(os.sched_getaffinity(0)) // num_workers)}
    assert len({one["drawn"] for one in got}) == 100
