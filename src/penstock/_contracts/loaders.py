"""What loaders of other libraries may not do with a feed, which has workers, batches and a part for each rank of its own."""

from __future__ import annotations

import sys
from types import FrameType

from penstock.errors import PlanError

_MOST_FRAMES = 8
"""Accelerate's loaders stand about four calls around the feed."""

__all__ = ["refuse_loader_around", "refuse_loader_worker"]


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
