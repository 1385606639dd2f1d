"""Forty programs with a DataLoader as people write them: a dataset, a loader around it, the files that it reads."""

from __future__ import annotations

import random
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)

COUNT = 37
Pair = namedtuple("Pair", "image label")


class Program(NamedTuple):
    """A loader of so many workers over files in a folder; `draws` tells whether its elements are random."""

    make: Callable[[Path, int], DataLoader]
    draws: bool = False


class Items(Dataset):
    """Sample i is `get(i)`, or `get(i, self)`: what is kept in `self` belongs to the worker."""

    def __init__(self, get: Callable[..., Any], path: Path | None = None, count: int = COUNT, **more: Any) -> None:
        self.get, self.path, self.count, self.handle, self.cache = get, path, count, None, {}
        vars(self).update(more)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> Any:
        return self.get(index, self)


class Whole(Items):
    """Is asked for whole batches."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        scale = random.random()
        return [(torch.full((2,), index * scale), index) for index in indices]


def tensor(index: int, _: Any) -> Any:
    return torch.full((3, 4), float(index)), index


def remembered(index: int, own: Any) -> Any:
    own.cache.setdefault(index, np.full(4, index, np.float32))
    own.buffer = own.cache[index] * 2  # two threads would change it for each other
    return {"x": own.buffer, "index": index}


def from_file(index: int, own: Any) -> Any:
    own.handle = own.handle or open(own.path / "rows.bin", "rb")  # noqa: SIM115 - kept open, as people do
    own.handle.seek(16 * index)
    return np.frombuffer(own.handle.read(16), np.int64).copy()


def from_h5(index: int, own: Any) -> Any:
    import h5py

    own.handle = own.handle or h5py.File(own.path / "rows.h5", "r")
    return own.handle["rows"][index], index


def seeded_by_index(index: int, _: Any) -> Any:
    random.seed(index)
    np.random.seed(index)
    torch.manual_seed(index)
    return random.random(), np.random.rand(2), torch.rand(2)


def numpy_draws(index: int, _: Any) -> Any:
    image = np.full((8, 8, 3), index, np.uint8)
    top, left = np.random.randint(4, size=2)
    return {"image": image[top : top + 4, left : left + 4] + np.random.normal(0, 2, (4, 4, 3)), "label": index}


def torch_draws(index: int, _: Any) -> Any:
    image = torch.full((3, 8, 8), float(index)) + torch.randn(3, 8, 8)
    return (image.flip(2) if torch.rand(()) < 0.5 else image), index


def python_draws(index: int, _: Any) -> Any:
    return [index] * 2 + [random.choice("abcdef"), random.gauss(0, 1)]


def of_pillow(index: int, _: Any) -> Any:
    from PIL import Image, ImageEnhance

    image = Image.fromarray(np.full((8, 8, 3), 5 * index, np.uint8)).rotate(random.uniform(-20, 20))
    return torch.from_numpy(np.array(ImageEnhance.Brightness(image).enhance(random.uniform(0.5, 1.5)))), index


def of_albumentations(index: int, own: Any) -> Any:
    return own.transform(image=np.random.default_rng(index).integers(0, 255, (16, 16, 3), np.uint8))["image"]


def own_generator(index: int, own: Any) -> Any:
    return own.rng.normal(size=3) + index, own.python.random()


def _compose() -> Any:
    import albumentations

    return albumentations.Compose([albumentations.RandomCrop(8, 8), albumentations.HorizontalFlip(), albumentations.GaussNoise(p=0.5)])


def named(index: int, _: Any) -> Any:
    return Pair(torch.full((2,), index), index)


def text(index: int, _: Any) -> Any:
    return f"line {index}"


def mixed(index: int, _: Any) -> Any:
    values = [torch.ones(2, dtype=kind) * index for kind in (torch.bfloat16, torch.bool, torch.complex64, torch.int16, torch.float64)]
    return {
        "values": tuple(values),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(index),
        "numpy": np.float32(index),
        "flag": index > 3,
    }


def ragged(index: int, _: Any) -> Any:
    return {"input_ids": torch.arange(index % 7 + 1), "label": index}


def boxes(index: int, _: Any) -> Any:
    return torch.full((3, 4), float(index)), {"boxes": torch.zeros(index % 3, 4), "id": index}


def sized(index: tuple[int, int], _: Any) -> Any:
    return torch.full((index[1], index[1]), float(index[0]))


def several(index: list[int], _: Any) -> Any:
    return torch.tensor(index), len(index)


def keyed(index: str, _: Any) -> Any:
    return index.upper(), int(index.removeprefix("key"))


def with_missing(index: int, _: Any) -> Any:
    return None if index % 5 == 0 else torch.tensor([index])


def by_worker(index: int, own: Any) -> Any:
    info = get_worker_info()
    assert info is None or (info.dataset is own and own.resource == f"of worker {info.id} of {info.num_workers}"), vars(own)
    return index, torch.rand(2)


def open_resource(worker_id: int) -> None:
    info = get_worker_info()
    assert info.id == worker_id
    assert torch.initial_seed() == info.seed
    info.dataset.resource = f"of worker {worker_id} of {info.num_workers}"


# -- collate_fn -------------------------------------------------------------------------------------------------------------------


def pad(samples: list[Any]) -> Any:
    rows = [sample["input_ids"] for sample in samples]
    return {"input_ids": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), "labels": [sample["label"] for sample in samples]}


def transposed(samples: list[Any]) -> Any:
    return tuple(zip(*samples, strict=True))


def mixup(samples: list[Any]) -> Any:
    images, labels = default_collate(samples)
    share, order = np.random.beta(0.4, 0.4), torch.randperm(len(labels))
    return share * images + (1 - share) * images[order], labels, labels[order], share


def stacked(samples: list[Any]) -> Any:
    return np.stack([image.numpy() for image, _ in samples]), np.array([label for _, label in samples])


def without_missing(samples: list[Any]) -> Any:
    return default_collate([sample for sample in samples if sample is not None])


class Bag:
    """A batch of a class of its own."""

    def __init__(self, samples: list[Any]) -> None:
        self.images, self.labels = default_collate(samples)
        self.last = self.images.permute(0, 2, 1)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Bag)
        return all(map(torch.equal, (self.images, self.labels, self.last), (other.images, other.labels, other.last)))

    __hash__ = None


def special(samples: list[Any]) -> Any:
    image = default_collate(samples)[0]
    return image.to_sparse(), image.transpose(1, 2), image[:, ::2], image[:, None].to(memory_format=torch.channels_last)


# -- samplers ---------------------------------------------------------------------------------------------------------------------


class OwnOrder(Sampler[int]):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        self.random = random.Random()

    def __iter__(self) -> Iterator[int]:
        return iter(self.random.sample(range(COUNT), COUNT))

    def __len__(self) -> int:
        return COUNT


class ByLength(Sampler[list[int]]):
    """Batches of like lengths, in a drawn order; it does not know how many."""

    def __iter__(self) -> Iterator[list[int]]:
        order = np.random.permutation(COUNT).tolist()
        for length in range(7):
            alike = [index for index in order if index % 7 == length]
            yield from (alike[begin : begin + 3] for begin in range(0, len(alike), 3))


class Sizes(Sampler[list[tuple[int, int]]]):
    """Batches of one image size each."""

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return ([(int(index), size) for index in torch.randint(COUNT, (4,))] for size in random.choices((2, 3, 5), k=9))

    def __len__(self) -> int:
        return 9


def _write(folder: Path) -> None:
    """Write the files."""
    import h5py

    rows = [np.arange(2 * index, 2 * index + 2) for index in range(COUNT)]
    (folder / "rows.bin").write_bytes(np.concatenate(rows).tobytes())
    with h5py.File(folder / "rows.h5", "w") as h5:
        h5["rows"] = np.stack(rows)


def write_files(folder: Path) -> Path:
    """Return the folder, with the files in it."""
    _write(folder)
    return folder


def _of(get: Callable[..., Any], **options: Any) -> Callable[[Path, int], DataLoader]:
    """Return what makes a loader over `Items(get)`."""
    options = {"batch_size": 4, "shuffle": True, **options}
    return lambda folder, workers: DataLoader(Items(get, folder), num_workers=workers, **options)


def _around(dataset: Callable[[], Any], **options: Any) -> Callable[[Path, int], DataLoader]:
    options = {"batch_size": 4, "shuffle": True, **options}
    return lambda folder, workers: DataLoader(dataset(), num_workers=workers, **options)


def _sampled(get: Callable[..., Any], sampler: Callable[[], Any], **options: Any) -> Callable[[Path, int], DataLoader]:
    options = {"batch_size": 4, **options}
    return lambda folder, workers: DataLoader(Items(get, folder), sampler=sampler(), num_workers=workers, **options)


def _batched(get: Callable[..., Any], sampler: Callable[[], Any], **options: Any) -> Callable[[Path, int], DataLoader]:
    return lambda folder, workers: DataLoader(Items(get, folder), batch_sampler=sampler(), num_workers=workers, **options)


def _second_epoch() -> Any:
    sampler = DistributedSampler(range(COUNT), num_replicas=2, rank=1, seed=4)
    sampler.set_epoch(1)
    return sampler


PROGRAMS = {
    "state in self": Program(_of(remembered)),
    "a file opened lazily": Program(_of(from_file)),
    "h5py": Program(_of(from_h5)),
    "seeds from the index": Program(_of(seeded_by_index)),
    "numpy.random": Program(_of(numpy_draws), draws=True),
    "torch.rand": Program(_of(torch_draws, drop_last=True), draws=True),
    "random": Program(_of(python_draws), draws=True),
    "Pillow": Program(_of(of_pillow), draws=True),
    "albumentations": Program(_around(lambda: Items(of_albumentations, transform=_compose())), draws=True),
    "generators in self": Program(
        _around(lambda: Items(own_generator, rng=np.random.default_rng(), python=random.Random()), batch_size=3), draws=True
    ),
    "MixUp in collate_fn": Program(_of(torch_draws, collate_fn=mixup), draws=True),
    "weighted, with replacement": Program(_sampled(torch_draws, lambda: WeightedRandomSampler(range(1, COUNT + 1), 50)), draws=True),
    "SubsetRandomSampler": Program(_sampled(tensor, lambda: SubsetRandomSampler(range(0, COUNT, 3)))),
    "SubsetRandomSampler of an array": Program(_sampled(tensor, lambda: SubsetRandomSampler(np.arange(3, 30)))),
    "a sampler of one's own": Program(_sampled(tensor, OwnOrder)),
    "a batch sampler of one's own": Program(_batched(ragged, ByLength, collate_fn=pad)),
    "a batch sampler of tuples": Program(_batched(sized, Sizes)),
    "a list of batches": Program(_batched(tensor, lambda: [[0, 1], [2], [3, 4, 5]])),
    "a BatchSampler as sampler": Program(
        _sampled(several, lambda: BatchSampler(SequentialSampler(range(COUNT)), 5, drop_last=False), batch_size=None)
    ),
    "a sampler of texts": Program(_sampled(keyed, lambda: [f"key{number}" for number in range(11)])),
    "DistributedSampler": Program(_sampled(tensor, _second_epoch)),
    "batch_size=None": Program(_of(torch_draws, batch_size=None), draws=True),
    "a loader's generator": Program(_of(tensor, generator=torch.Generator().manual_seed(3))),
    "named tuples": Program(_of(named)),
    "texts": Program(_of(text, shuffle=False)),
    "many dtypes": Program(_of(mixed)),
    "padded texts": Program(_of(ragged, collate_fn=pad)),
    "detection": Program(_of(boxes, collate_fn=transposed)),
    "__getitems__": Program(_around(lambda: Whole(tensor)), draws=True),
    "worker_init_fn": Program(_of(by_worker, worker_init_fn=open_resource), draws=True),
    "ConcatDataset": Program(_around(lambda: ConcatDataset([Items(tensor, count=9), Items(tensor, count=12)]))),
    "random_split": Program(_around(lambda: random_split(Items(tensor), [30, 7], generator=torch.Generator().manual_seed(1))[0])),
    "TensorDataset": Program(_around(lambda: TensorDataset(torch.arange(50.0).reshape(25, 2), torch.arange(25)))),
    "StackDataset": Program(_around(lambda: StackDataset(a=Items(tensor), b=Items(text)))),
    "batches of NumPy": Program(_of(tensor, collate_fn=stacked)),
    "batches of a class of one's own": Program(_of(tensor, collate_fn=Bag)),
    "special tensors": Program(_of(tensor, collate_fn=special)),
    "samples that are missing": Program(_of(with_missing, collate_fn=without_missing)),
}
