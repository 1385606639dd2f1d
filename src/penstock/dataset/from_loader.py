"""A torch DataLoader as a dataset: its order, batches and workers said in operators."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from penstock._plan import check
from penstock.dataset.builder import Dataset
from penstock.dataset.opening import from_arrays, from_source, from_stream
from penstock.errors import PlanError

__all__ = ["from_dataloader"]

_WHERE = "from_dataloader()"


def from_dataloader(loader: Any, *, seed: int = 0) -> Dataset:
    """Return the dataset that a `torch.utils.data.DataLoader` iterates, with its shuffle, batches and workers as operators and options.

    A feed of it gives tensors, and each epoch the elements of the loader's epochs. Their order follows from `seed`: a shuffle draws other
    permutations than PyTorch's. The workers are threads of this process and share one `dataset` object; `num_workers=0` works in the
    consumer's thread. `pin_memory`, `timeout` and `in_order` become options; `prefetch_factor`, `persistent_workers` and
    `multiprocessing_context` have no meaning here.

    Args:
        loader: a DataLoader over a map-style or an iterable dataset. Its sampler may be none, RandomSampler without replacement,
            SubsetRandomSampler, or DistributedSampler, whose rank and number of ranks are kept: with drop_last=False `even="pad"`, which
            repeats other elements than PyTorch does.
        seed: of the shuffle; a DistributedSampler has its own.

    Raises:
        PlanError: `loader` is none; or its order cannot be said in operators: another sampler or batch_sampler, or one with replacement.

    Warns:
        UserWarning: for `worker_init_fn`, which is not called, and for an open file in the dataset, which threads would share.
    """
    data = sys.modules.get("torch.utils.data")
    if data is None or not isinstance(loader, data.DataLoader):
        raise PlanError(f"{type(loader).__name__} is no torch DataLoader", where=_WHERE, fix="give a torch.utils.data.DataLoader")
    _warn(loader)
    ds = _elements(data, loader, check.seed_argument(seed, "from_dataloader"))
    if loader.batch_size is not None:
        default = loader.collate_fn is data.default_collate
        ds = ds.batch(loader.batch_size, loader.drop_last, None if default else loader.collate_fn)
    elif loader.collate_fn is not data.default_convert:
        ds = ds.map(loader.collate_fn)
    options: dict[str, Any] = {"num_workers": loader.num_workers, "ordered": getattr(loader, "in_order", True), "output": "torch"}
    if loader.timeout:
        options["stall_timeout_s"] = loader.timeout
    if loader.pin_memory and sys.modules["torch"].cuda.is_available():
        options["pin_memory"] = True
    return ds.with_options(**options)


def _elements(data: Any, loader: Any, seed: int) -> Dataset:
    """Return the elements in the loader's order."""
    dataset, sampler = loader.dataset, loader.sampler
    if isinstance(dataset, data.IterableDataset):
        return from_stream(dataset)
    if loader.batch_size is None and loader.batch_sampler is not None:
        raise _no_order(loader.batch_sampler, "bucket_by_length makes batches of like lengths, and batch(n) batches of one size")
    kind = type(sampler)
    ds = from_source(dataset)
    if kind is data.SequentialSampler:
        return ds
    if kind is data.RandomSampler and not sampler.replacement and sampler.num_samples <= len(dataset):
        shuffled = ds.shuffle(seed=seed)
        return shuffled if sampler.num_samples == len(dataset) else shuffled.take(sampler.num_samples)
    if kind is data.SubsetRandomSampler:
        chosen = from_arrays(np.array([int(index) for index in sampler.indices], np.int64)).shuffle(seed=seed)
        return chosen.map(lambda index: dataset[int(index)], name=type(dataset).__name__)
    if kind is data.DistributedSampler:
        shuffled = ds.shuffle(seed=sampler.seed) if sampler.shuffle else ds
        return shuffled.shard_by_rank("drop" if sampler.drop_last else "pad", rank=sampler.rank, num_ranks=sampler.num_replicas)
    raise _no_order(sampler, "shuffle(seed=...) visits each element once, and a.mix(b, weights=[...]) takes from datasets by weight")


def _no_order(sampler: Any, instead: str) -> PlanError:
    return PlanError(
        f"the order of {type(sampler).__name__} cannot be said in operators",
        where=_WHERE,
        fix=f"make the dataset with ps.from_source(loader.dataset), and its order with operators: {instead}",
    )


def _warn(loader: Any) -> None:
    if loader.worker_init_fn is not None:
        warnings.warn(
            "worker_init_fn is not called: workers are threads. Give functions of map() a parameter `rng` for random numbers, and open "
            "files in threading.local()",
            stacklevel=3,
        )
    shared = [
        name for name, value in getattr(loader.dataset, "__dict__", {}).items() if hasattr(value, "fileno") and hasattr(value, "seek")
    ]
    if shared and loader.num_workers:
        warnings.warn(
            f"the dataset holds an open file in {shared[0]!r}, and its workers are threads here: two of them would move one position in "
            "it. Open it in threading.local(), or call feed(num_workers=1)",
            stacklevel=3,
        )
