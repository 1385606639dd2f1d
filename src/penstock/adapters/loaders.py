"""A torch DataLoader: the order that its sampler gives, drawn once an epoch under a seed of its own, and the batches of its workers.

The generators are seeded for each sample.
"""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from penstock._system.failing import add_note
from penstock._system.process import in_worker_thread, worker_place
from penstock._workers.parts import generators_in
from penstock.adapters.generators import DrawingFrom, everywhere, key_of, mixed, seed_global, seed_held, states_kept
from penstock.errors import StateMismatch

_MOST_DRAWN, _MOST_OF_ENDLESS = 1 << 22, 1 << 18
"""So many samples are drawn when an epoch begins: 32 MB, half a second; of a sampler without a length fewer, for it may have no end."""
_AT_ONCE = 4096


class Draw(NamedTuple):
    """What the sampler gave for one batch.

    Attributes:
        seed, epoch: that it was drawn under.
        number: of the batch in the epoch.
        first: how many samples the batches before it have.
        indices: what the sampler gave, in an int64 array where that is a list of ints; without batches one index.
    """

    seed: int
    epoch: int
    number: int
    first: int
    indices: Any


def indices_of(draw: Draw) -> Any:
    """Return what the sampler gave."""
    return _unpacked(draw.indices)


class LoaderOrder:
    """The stream of a loader's `Draw`s.

    The sampler is iterated when an epoch begins, as it is then, with all generators in states that follow from seed and epoch. A state
    has these, the position, and a check sum of the indices up to there: what comes behind it is drawn again.
    """

    def __init__(self, loader: Any) -> None:
        """Take the sampler, and the seed of the loader's generator, or of torch."""
        import torch

        batched = loader.batch_sampler is not None
        self._sampler = loader.batch_sampler if batched else loader.sampler
        self._batched, self._loader_generator = batched, loader.generator
        self._seed = int(torch.initial_seed() if loader.generator is None else loader.generator.initial_seed())
        self._num_samples = _length(loader.dataset)
        self._length = _length(loader)
        inner = loader.sampler if loader.batch_size is not None else self._sampler
        size = "" if loader.batch_size is None else f", batch_size={loader.batch_size}"
        self._name = f"{type(loader.dataset).__name__}, {type(inner).__name__}{size}"
        self._here = threading.local()

    def open(self, pass_number: int) -> Iterator[Draw]:
        """Draw an epoch."""
        return self._rest(pass_number, self._drawn(pass_number), 0, 0, 0)

    def open_at(self, pass_number: int, state: Any) -> Iterator[Draw]:
        """Draw an epoch under the seed of a state, and go on behind its place.

        Raises:
            StateMismatch: the sampler gives other indices up to there.
        """
        self._seed = int(state["seed"])
        drawn, position, first, crc = self._drawn(pass_number), 0, 0, 0
        for item in islice(drawn, state["position"]):
            position, first, crc = position + 1, first + self._num_in(item), _crc(item, crc)
        if (position, crc) != (state["position"], state["crc32"]):
            raise StateMismatch(
                f"the sampler gives other indices in epoch {pass_number} than before the state was saved: the first {state['position']} "
                f"{'batches' if self._batched else 'samples'} have check sum {state['crc32']}, and now {position} have {crc}",
                where=self.label(),
                fix=f"call sampler.set_epoch({pass_number}), if it has that, before the loop; and resume with the same sampler, batch size "
                "and length of the dataset",
            )
        return self._rest(pass_number, drawn, position, first, crc)

    def open_next(self, pass_number: int, state: Any) -> Iterator[Draw]:
        """Draw an epoch under the seed of a state of an earlier one."""
        self._seed = int(state["seed"])
        return self.open(pass_number)

    def state(self) -> Any:
        """Return where the pass is that this thread has read last."""
        return self._here.place

    def _rest(self, epoch: int, drawn: Iterator[Any], position: int, first: int, crc: int) -> Iterator[Draw]:
        for number, item in enumerate(drawn, position):
            crc = _crc(item, crc)
            self._here.place = {"seed": self._seed, "epoch": epoch, "position": number + 1, "crc32": crc}
            yield Draw(self._seed, epoch, number, first, item)
            first += self._num_in(item)

    def _drawn(self, epoch: int) -> Iterator[Any]:
        """Give what the sampler gives: all of it drawn before the first is given, but for one without an end, or of many millions.

        Of these a slice is drawn when the one before is used up. That is in a thread beside the training loop: what the loop draws from a
        global generator of the CPU in that moment would come from the slice's states.
        """
        drawing = DrawingFrom([found for _, found in generators_in(self._sampler, self._loader_generator)], key_of(self._seed, epoch))
        with drawing.here():
            items = iter(self._sampler)
        num_items, ended = 0, False
        while not ended:
            with drawing.here():
                parts, count, ended = self._slice(items, num_items)
            num_items += count
            if self._length is not None and (num_items > self._length or (ended and num_items != self._length)):
                self._length = None  # what the sampler says of itself is not true
            for part in parts:
                yield from [part] if self._batched else _unpacked(part)

    def _slice(self, items: Iterator[Any], num_items: int) -> tuple[list[Any], int, bool]:
        """Draw up to the length, or so many samples; return batches, or arrays of indices, how many items these are, and if it was all."""
        most = _MOST_OF_ENDLESS if self._length is None else _MOST_DRAWN
        parts: list[Any] = []
        count = num_samples = 0
        while num_samples < most and (self._length is None or num_items + count <= self._length):
            drawn = list(islice(items, 1 if self._batched else _AT_ONCE))
            if not drawn:
                return parts, count, True
            count += len(drawn)
            num_samples += self._num_in(drawn[0]) if self._batched else len(drawn)
            parts.append(_packed(drawn[0] if self._batched else drawn))
        return parts, count, False

    def _num_in(self, item: Any) -> int:
        return len(item) if self._batched and hasattr(item, "__len__") else 1

    def declared_length(self) -> int | None:
        """Return the loader's length, unless an epoch had another one."""
        return self._length

    def can_fast_forward(self) -> bool:
        """Return False: it has states."""
        return False

    def describe(self, index: int) -> str:
        """Name the batch."""
        return f"{'batch' if self._batched else 'sample'} {index} of the DataLoader over {self._name.partition(',')[0]}"

    def fingerprint(self) -> dict[str, Any]:
        """Return the names of dataset and sampler, and the number of samples."""
        return {"kind": "dataloader", "name": self._name, "samples": self._num_samples}

    def label(self) -> str:
        """Return the call with the names."""
        return f"from_dataloader({self._name})"


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def _packed(indices: Any) -> Any:
    """Return a list of ints as an array: 8 bytes for each, not 40."""
    if type(indices) is not list or set(map(type, indices)) != {int}:
        return indices
    try:
        return np.array(indices, np.int64)
    except OverflowError:
        return indices


def _unpacked(indices: Any) -> Any:
    return indices.tolist() if isinstance(indices, np.ndarray) else indices


def _crc(item: Any, crc: int) -> int:
    data = item.tobytes() if isinstance(item, np.ndarray) else repr(item).encode()
    return zlib.crc32(data, zlib.crc32(b";", crc))


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
        with states_kept([*everywhere(), *self._copy.held(draw.epoch)]):
            return self._batch(self._copy, draw)

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
