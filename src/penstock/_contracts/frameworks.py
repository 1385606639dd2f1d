"""Other frameworks at the end of a feed: what its batches become, and what loaders may not do with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from penstock.errors import PlanError

Pin = Callable[[int, int], Callable[[], object]]
"""Has a device read memory by itself, at an address, of so many bytes; returns what ends that."""


class Output(Protocol):
    """Makes arrays of a framework out of NumPy batches. A feed calls it from one thread at a time.

    Attributes:
        depth: how many batches are sent ahead of the one that the loop takes; 0 sends each when it is taken.
        allocate: returns the memory of a batch buffer, so many bytes, from any thread; None leaves it to the engine.
        pin: is called with the memory of worker processes; None leaves it as it is.
        spans_processes: whether a batch is a part of an array of several processes, which all give parts of one size.
    """

    depth: int
    allocate: Callable[[int], Any] | None
    pin: Pin | None
    spans_processes: bool

    def send(self, batch: Any, group: list[Any]) -> Any:
        """Begin what makes a batch one of the framework, without waiting; `batch` stays valid until that has ended.

        `group` are the batches handed over with it that were not taken yet, itself among them: all are finished, and often lie in one
        buffer. The list stays the same object, and shrinks.
        """
        ...

    def finish(self) -> None:
        """Wait until what was sent is done with its arrays: what was not received is dropped."""
        ...

    def receive(self, sent: Any) -> Any:
        """Return the framework's batch of what `send` gave, once."""
        ...


_MOST_FRAMES = 8
"""Accelerate's loaders stand about four calls around the feed."""


def refuse_loader_worker() -> None:
    """Refuse a worker of a torch DataLoader, which is known only where torch is loaded.

    Raises:
        PlanError: this process is one.
    """
    worker_info = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", None)
    info = worker_info() if callable(worker_info) else None
    if info is not None:
        raise PlanError(
            f"a feed in worker {info.id} of the {info.num_workers} of a torch DataLoader: each of them would deliver all of the dataset",
            where="Feed.__next__",
            fix="iterate the feed itself, or give the DataLoader num_workers=0: a feed has workers of its own, ds.feed(num_workers=...)",
        )


def refuse_loader_around(caller: FrameType, *, batches: bool, ranks: bool) -> None:
    """Refuse what would make batches of batches, or parts of parts, of a feed that it iterates.

    Args:
        caller: the frame that asks for an iterator of the feed.
        batches: whether the feed gives batches.
        ranks: whether it gives one rank's part.

    Raises:
        PlanError: the caller is one of PyTorch's or Accelerate's that does so.
    """
    name = caller.f_code.co_qualname.partition(".")[0]
    if name == "_IterableDatasetFetcher" and batches and getattr(caller.f_locals.get("self"), "auto_collation", False):
        raise PlanError(
            "a torch DataLoader with a batch_size around a feed of batches: it would make batches of batches",
            where="Feed.__iter__",
            fix="iterate the feed itself, or give the DataLoader batch_size=None",
        )
    if not ranks or name not in ("IterableDatasetShard", "_IterableDatasetFetcher"):
        return
    frame: FrameType | None = caller
    for _ in range(_MOST_FRAMES):
        name = "" if frame is None else frame.f_code.co_qualname.partition(".")[0]
        if frame is None or name in ("DataLoaderDispatcher", "DataLoaderShard", "IterableDatasetShard"):
            break
        frame = frame.f_back
    if name in ("DataLoaderDispatcher", "DataLoaderShard", "IterableDatasetShard"):
        raise PlanError(
            f"{name} gives each rank a part of a feed that has the part of its rank already, so most elements would be trained by no rank",
            where="Feed.__iter__",
            fix="iterate the feed itself, without accelerator.prepare(); or leave out shard_by_rank()",
        )
