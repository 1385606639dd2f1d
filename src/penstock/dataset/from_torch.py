"""A torch DataLoader as a dataset of its batches."""

from __future__ import annotations

import sys
from typing import Any

from penstock._contracts.options import Torch
from penstock._plan import node as plan
from penstock.dataset.builder import Dataset
from penstock.errors import PlanError

_WHERE = "from_dataloader()"


def from_dataloader(loader: Any) -> Dataset:
    """Return the dataset of the batches of a `torch.utils.data.DataLoader`: those of `for batch in loader`, types and all, and a resume.

    Its `dataset`, `sampler` or `batch_sampler`, `collate_fn` and `worker_init_fn` work as they do there. `num_workers` are worker
    processes with a copy of the dataset each; 0 is the loop's own thread. `in_order`, `timeout` and `pin_memory` become options.
    `prefetch_factor`, `persistent_workers` and `multiprocessing_context` have no meaning here and are ignored.

    The order of epoch n follows from a seed and n: the seed of the loader's `generator`, else `torch.initial_seed()` at this call. So do
    all random numbers: torch, random and numpy.random are seeded before each `__getitem__`, `__getitems__` and `collate_fn`, from the
    place of the sample, or the batch, in the epoch. They are the same for any number of workers, and an epoch resumes in its middle with
    the same pixels. The generators of the training loop are left as they are. With `feed(executor="threads")` each thread has a copy of
    the dataset, and nothing is seeded.

    Args:
        loader: a DataLoader over a map-style dataset. `sampler.set_epoch(n)`, where there is one, is called before the loop, as ever.

    Raises:
        PlanError: `loader` is none, or it reads an IterableDataset.
    """
    from penstock.adapters.loaders import LoaderFetch, LoaderOrder

    data = sys.modules.get("torch.utils.data")
    if data is None or not isinstance(loader, data.DataLoader):
        raise PlanError(f"{type(loader).__name__} is no torch DataLoader", where=_WHERE, fix="give a torch.utils.data.DataLoader")
    if isinstance(loader.dataset, data.IterableDataset):
        raise PlanError(
            f"{type(loader.dataset).__name__} is an IterableDataset, which says itself what each worker reads",
            where=_WHERE,
            fix="read it with ps.from_stream(loader.dataset).batch(n), in one thread, and do the heavy work in a map() behind it",
        )
    fetch = LoaderFetch(loader)
    ds = Dataset(plan.ReadStream(source=LoaderOrder(loader))).map(fetch, name=fetch.name)
    return ds.with_options(**_options(loader))


def _options(loader: Any) -> dict[str, Any]:
    """Return what the loader's arguments are as options of a feed."""
    options: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "ordered": getattr(loader, "in_order", True),
    }
    if loader.timeout:
        options["stall_timeout_s"] = loader.timeout
    if loader.pin_memory and sys.modules["torch"].cuda.is_available():
        options["output"] = Torch(pin_memory=True)
    return options
