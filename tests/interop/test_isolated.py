"""The engine process with PyTorch: its batches are those of a feed in the program."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest

import penstock as ps

pytestmark = pytest.mark.slow

WAYS: list[Any] = [ps.Processes(), ps.Threads(isolate=True)]


def row(number: int) -> dict[str, Any]:
    return {"image": np.full(5000, number, np.float32), "label": number}


@pytest.mark.parametrize("executor", WAYS, ids=repr)
def test_batches_are_the_same(executor: Any) -> None:
    pytest.importorskip("torch")
    ds = ps.from_source(range(200)).shuffle(seed=1).map(row).batch(8)
    with ds.feed(executor=executor, num_workers=2, output="torch") as feed, ds.feed(num_workers=0) as other:
        for _ in range(2):
            for one, two in zip(feed, other, strict=True):
                assert np.array_equal(np.asarray(one["image"]), two["image"])
                assert np.asarray(one["label"]).tolist() == two["label"].tolist()
            assert not [thread for thread in threading.enumerate() if thread.name.startswith("penstock")]


@pytest.mark.parametrize("executor", WAYS, ids=repr)
def test_tensors_that_are_kept_lie_in_memory_of_their_own(executor: Any) -> None:
    torch = pytest.importorskip("torch")
    with ps.from_source(range(400)).map(row).batch(4).feed(executor=executor, num_workers=2, output="torch") as feed:
        kept = list(feed)
    assert torch.equal(torch.cat([batch["label"] for batch in kept]), torch.arange(400))
    assert all(bool((batch["image"][:, 0] == batch["label"]).all()) for batch in kept)
    assert len({batch["image"].data_ptr() for batch in kept}) == 100


@pytest.mark.parametrize("executor", WAYS, ids=repr)
def test_copies_to_a_device_have_no_thread(executor: Any) -> None:
    pytest.importorskip("torch")
    ds = ps.from_source(range(100)).map(row).batch(5)
    with ds.feed(num_workers=0, output=ps.Torch(device="cpu")) as feed:
        assert len(list(feed)) == 20  # PyTorch starts its threads
    threads = set(os.listdir("/proc/self/task"))
    with ds.feed(executor=executor, num_workers=2, output=ps.Torch(device="cpu", depth=2)) as feed:
        for _ in feed:
            deadline = time.monotonic() + 5  # one that asked a question has ended, and the system lists it for a moment
            while more := set(os.listdir("/proc/self/task")) - threads:
                assert time.monotonic() < deadline, more


@pytest.mark.parametrize("executor", WAYS, ids=repr)
def test_tensors_of_functions_arrive_as_tensors(executor: Any) -> None:
    torch = pytest.importorskip("torch")
    with ps.from_source(range(20)).map(lambda number: torch.full((300,), number)).feed(executor=executor, num_workers=2) as feed:
        assert [int(tensor.sum()) for tensor in feed] == [300 * number for number in range(20)]
