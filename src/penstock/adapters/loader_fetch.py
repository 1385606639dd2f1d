"""The batches of a torch DataLoader, as its workers compute them, with the generators seeded for each sample."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable
from typing import Any

from penstock._contracts.failing import add_note
from penstock._contracts.process import in_worker_thread, reducers, worker_place
from penstock.adapters.generators import global_seeder, global_states_kept, key_of, mixed
from penstock.adapters.loader_order import Draw, indices_of

__all__ = ["LoaderFetch"]

_SAMPLE, _ITEMS, _COLLATE, _WORKER = range(4)
"""What a key is for."""


def _unseeded(key: int) -> None:
    """Seed nothing."""


class LoaderFetch:
    """Computes a batch of a `Draw`: samples of the dataset, then `collate_fn`.

    In a worker process the dataset is a copy of its own, torch, random and numpy.random are seeded before each sample and before
    `collate_fn`, and PyTorch's figures of the worker are set. In the program's own thread they are seeded too, and put back behind each
    batch. A worker thread has a copy of its own, and nothing is seeded: other threads draw from the same generators.
    """

    def __init__(self, loader: Any) -> None:
        """Take what the loader's workers have."""
        self.name = type(loader.dataset).__name__
        self._parts = loader.dataset, loader.collate_fn
        self._batched, self._worker_init_fn = loader.batch_sampler is not None, loader.worker_init_fn
        self._begin_here()

    def _begin_here(self) -> None:
        self._info: Any = None
        self._copies = threading.local()
        self._lock = threading.Lock()
        self._told = False
        _send_tensors_as_buffers()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process."""
        return {name: value for name, value in vars(self).items() if name not in ("_info", "_copies", "_lock", "_told")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin in another process."""
        vars(self).update(state)
        self._begin_here()

    def __call__(self, draw: Draw) -> Any:
        """Return the batch."""
        if worker_place().index is not None:
            self._set_worker_info(draw.seed)
            return self._batch(self._parts, draw, global_seeder())
        if in_worker_thread():
            return self._batch_in_thread(draw)
        with global_states_kept():
            return self._batch(self._parts, draw, global_seeder())

    def _batch(self, parts: tuple[Any, Any], draw: Draw, seed: Callable[[int], None]) -> Any:
        dataset, collate_fn = parts
        indices, epoch = indices_of(draw), (draw.seed, draw.epoch)
        if self._batched and getattr(dataset, "__getitems__", None):
            seed(key_of(*epoch, _ITEMS, draw.number))
            samples = dataset.__getitems__(indices)
        else:
            samples = []
            key = key_of(*epoch, _SAMPLE) + draw.first
            for place, index in enumerate(indices if self._batched else [indices]):
                seed(mixed(key + place))
                try:
                    samples.append(dataset[index])
                except BaseException as error:
                    where = f", the {place + 1}. of batch {draw.number}" if self._batched else ""
                    add_note(error, f"penstock: sample {index!r:.60} of {self.name}{where}")
                    raise
            if not self._batched:
                samples = samples[0]
        seed(key_of(*epoch, _COLLATE, draw.number))
        return collate_fn(samples)

    # -- in a worker process ------------------------------------------------------------------------------------------------------

    def _set_worker_info(self, seed: int) -> None:
        """Say to PyTorch which worker this is, for each batch again, as another loader may have workers in this process; begin it once."""
        from torch.utils.data._utils import worker

        if self._info is not None:
            worker._worker_info = self._info
            return
        place = worker_place()
        index = place.index or 0
        number = (key_of(seed, _WORKER) + index) % (1 << 63)
        self._info = worker.WorkerInfo(id=index, num_workers=place.num_workers, seed=number, dataset=self._parts[0])
        worker._worker_info = self._info
        if self._worker_init_fn is not None:
            self._seed_worker(number)
            self._worker_init_fn(index)

    def _seed_worker(self, number: int) -> None:
        import random

        import numpy as np
        import torch

        torch.default_generator.manual_seed(number)
        random.seed(number)
        np.random.seed(number % (1 << 32))

    # -- in a thread --------------------------------------------------------------------------------------------------------------

    def _batch_in_thread(self, draw: Draw) -> Any:
        parts = getattr(self._copies, "parts", None)
        if parts is None:
            parts = self._copies.parts = self._copied()
        if parts is not self._parts:
            return self._batch(parts, draw, _unseeded)
        with self._lock:
            return self._batch(parts, draw, _unseeded)

    def _copied(self) -> tuple[Any, Any]:
        """Return a copy of dataset and collate_fn; themselves where they cannot be copied."""
        with self._lock:
            words = ""
            try:
                parts = copy.deepcopy(self._parts)
            except Exception as error:
                parts = self._parts
                words = f"; and {self.name} cannot be copied for each thread ({type(error).__name__}: {error}), so one thread at a time uses it"
            if not self._told:
                self._told = True
                warnings.warn(
                    "with threads, what a dataset draws from torch, random and numpy.random is not reproducible, as all threads draw from the "
                    f"same generators, and worker_init_fn is not called; num_workers= without executor= makes it so{words}",
                    stacklevel=1,
                )
            return parts


# -- tensors between processes ----------------------------------------------------------------------------------------------------


def _send_tensors_as_buffers() -> None:
    """Let plain tensors travel between processes as arrays do: through shared memory, where PyTorch would write their bytes in the pickle."""
    import torch

    reducers()[torch.Tensor] = _reduced


def _reduced(tensor: Any) -> Any:
    """Return how to make a tensor again over a buffer; a special one goes as PyTorch has it."""
    import pickle

    import torch

    is_plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad and not tensor.is_quantized
    if not is_plain or tensor.is_conj() or tensor.is_neg() or tensor.is_nested or tensor.__dict__:
        return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    size, stride = tuple(tensor.shape), None
    if not tensor.is_contiguous():
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        dense = tensor.permute(order)
        if dense.is_contiguous():  # such as channels_last
            tensor, stride = dense, tensor.stride()
        else:
            tensor = tensor.contiguous()
    if not tensor.numel():
        return torch.empty, (size,), {"dtype": tensor.dtype}
    buffer = pickle.PickleBuffer(tensor.reshape(-1).view(torch.uint8).numpy())
    return _over_buffer, (buffer, tensor.dtype, size, stride)


def _over_buffer(buffer: Any, dtype: Any, size: tuple[int, ...], stride: tuple[int, ...] | None) -> Any:
    import torch

    flat = torch.frombuffer(buffer, dtype=dtype)
    return flat.reshape(size) if stride is None else flat.as_strided(size, stride)
