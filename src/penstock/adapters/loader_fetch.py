"""The batches of a torch DataLoader, as its workers compute them, with the generators seeded for each sample."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections.abc import Callable
from typing import Any

from penstock._system.failing import add_note
from penstock._system.process import in_worker_thread, worker_place
from penstock._workers.parts import generators_in
from penstock.adapters.generators import global_states_kept, key_of, mixed, seed_global, seed_held, set_states, states_of
from penstock.adapters.loader_order import Draw, indices_of

_SAMPLE, _ITEMS, _COLLATE, _WORKER = range(4)
"""What a key is for."""


class _Copy:
    """A dataset and a `collate_fn`, and the generators that they hold."""

    __slots__ = ("_epoch", "_held", "collate_fn", "dataset")

    def __init__(self, dataset: Any, collate_fn: Callable[[Any], Any]) -> None:
        self.dataset, self.collate_fn = dataset, collate_fn
        self._epoch, self._held = -1, list[Any]()

    def held(self, epoch: int) -> list[Any]:
        """Return the generators that they hold: looked for in each epoch, as the loop may have changed an attribute."""
        if epoch != self._epoch:
            self._epoch, self._held = epoch, [found for _, found in generators_in(self.dataset, self.collate_fn)]
        return self._held


class LoaderFetch:
    """Computes a batch of a `Draw`: samples of the dataset, then `collate_fn`.

    In a worker process the dataset is a copy of its own, torch, random and numpy.random are seeded before each sample and before
    `collate_fn`, and PyTorch's figures of the worker are set. In the program's own thread they are seeded too, and put back behind each
    batch. A worker thread has a copy of its own, and the global generators are left alone: other threads draw from them. Generators that
    the dataset holds are seeded everywhere.
    """

    seeds_generators = True

    def __init__(self, loader: Any) -> None:
        """Take what the loader's workers have."""
        self.name = self.__qualname__ = type(loader.dataset).__name__
        self._parts = loader.dataset, loader.collate_fn
        self._batched, self._worker_init_fn = loader.batch_sampler is not None, loader.worker_init_fn
        self._begin_here()

    @property
    def users_object(self) -> Any:
        """The dataset: a batch runs its functions."""
        return self._parts[0]

    def _begin_here(self) -> None:
        self._info: Any = None
        self._copy = _Copy(*self._parts)
        self._copies = threading.local()
        self._lock = threading.Lock()
        self._told = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process."""
        import torch

        kept = {name: vars(self)[name] for name in ("name", "__qualname__", "_parts", "_batched", "_worker_init_fn")}
        return {**kept, "dtype": torch.get_default_dtype()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin in another process, with the default dtype of the program."""
        import torch

        torch.set_default_dtype(state.pop("dtype"))
        vars(self).update(state)
        self._begin_here()

    def __call__(self, draw: Draw) -> Any:
        """Return the batch."""
        if worker_place().index is not None:
            self._set_worker_info(draw.seed)
            return self._batch(self._copy, draw)
        if in_worker_thread():
            return self._batch_in_thread(draw)
        held = self._copy.held(draw.epoch)
        states = states_of(held)
        with global_states_kept():
            try:
                return self._batch(self._copy, draw)
            finally:
                set_states(held, states)

    def _batch(self, parts: _Copy, draw: Draw, *, globally: bool = True) -> Any:
        dataset, held = parts.dataset, parts.held(draw.epoch)
        indices, epoch = indices_of(draw), (draw.seed, draw.epoch)

        def seed(key: int) -> None:
            if globally:
                seed_global(key)
            if held:
                seed_held(held, key)

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
                    where = f", number {place} of batch {draw.number}" if self._batched else ""
                    add_note(error, f"penstock: sample {index!r:.60} of {self.name}{where}")
                    raise
            if not self._batched:
                samples = samples[0]
        seed(key_of(*epoch, _COLLATE, draw.number))
        _hide_worker_from(parts.collate_fn)
        return parts.collate_fn(samples)

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
            seed_global(number)
            self._worker_init_fn(index)

    # -- in a thread --------------------------------------------------------------------------------------------------------------

    def _batch_in_thread(self, draw: Draw) -> Any:
        own: _Copy | None = getattr(self._copies, "own", None)
        if own is None:
            own = self._copies.own = self._copied()
        if own is not self._copy:
            return self._batch(own, draw, globally=False)
        with self._lock:
            return self._batch(own, draw, globally=False)

    def _copied(self) -> _Copy:
        """Return a copy of dataset and collate_fn; themselves where they cannot be copied."""
        with self._lock:
            made, words = self._copy, ""
            try:
                made = _Copy(*copy.deepcopy(self._parts))
            except (TypeError, ValueError, AttributeError, RuntimeError, OSError, copy.Error, pickle.PicklingError) as error:
                words = f"; {self.name} cannot be copied for each thread ({type(error).__name__}: {error}), so one at a time uses it"
            if not self._told:
                self._told = True
                warnings.warn(
                    "in threads, draws of a dataset from torch, random and numpy.random are not reproducible, as all threads draw from the "
                    "same generators, and worker_init_fn is not called; leave out executor='threads': in worker processes, and in the "
                    f"loop's own thread, each sample has its own numbers{words}",
                    stacklevel=2,
                )
            return made


def _hide_worker_from(collate_fn: Callable[[Any], Any]) -> None:
    """Let `default_collate` find no worker: there it would stack into shared memory that is new for each batch."""
    from torch.utils.data import default_collate
    from torch.utils.data._utils import worker

    if collate_fn is default_collate:
        worker._worker_info = None  # set again for the next batch
