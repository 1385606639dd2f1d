"""W3: small images in memory, pad-4 crop, flip, normalise, batches of 256; with the user's own function and with Penstock's operators."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import drive
import numpy as np
import pairs
import rounds
from data import Size, small_images
from numpy.typing import NDArray
from user_code import MEAN, STD, small_image, small_image_rng

_BATCH_SIZE = 256
_PAD = 4
Augment = Callable[[NDArray[np.uint8]], NDArray[np.float32]]


def _epochs(run: rounds.Run, epoch: Callable[[], Iterable[Any]]) -> dict[str, Any]:
    return drive.epochs(epoch, _BATCH_SIZE, run.size.min_seconds)


def _loop(run: rounds.Run, augment: Augment) -> dict[str, Any]:
    images, labels = small_images(run.size.num_small)

    def epoch() -> Iterator[Any]:
        order = random.sample(range(len(images)), len(images))
        for start in range(0, len(order) - _BATCH_SIZE + 1, _BATCH_SIZE):
            samples = [(augment(images[index]), labels[index]) for index in order[start : start + _BATCH_SIZE]]
            yield np.stack([image for image, _ in samples]), np.stack([label for _, label in samples])

    return _epochs(run, epoch)


def inline(run: rounds.Run) -> dict[str, Any]:
    """Run the user's function with Python's `random` in a plain loop."""
    return _loop(run, small_image)


def inline_rng(run: rounds.Run) -> dict[str, Any]:
    """Run the user's function with one NumPy generator in a plain loop."""
    generator = np.random.default_rng(7)
    return _loop(run, lambda image: small_image_rng(image, generator))


class SmallImages:
    """The arrays as a map-style dataset for PyTorch."""

    def __init__(self, num_small: int) -> None:
        self._images, self._labels = small_images(num_small)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return small_image(self._images[index]), self._labels[index]


def dataloader(run: rounds.Run) -> dict[str, Any]:
    """Run the user's function in the DataLoader with two worker processes."""
    loader = torch_loader(run, num_workers=2, persistent_workers=True, prefetch_factor=4)
    return _epochs(run, lambda: loader)


def dataloader_no_workers(run: rounds.Run) -> dict[str, Any]:
    """Run the user's function in the DataLoader without workers."""
    loader = torch_loader(run, num_workers=0)
    return _epochs(run, lambda: loader)


def torch_loader(run: rounds.Run, **options: Any) -> Any:
    """Build the DataLoader."""
    return rounds.torch().utils.data.DataLoader(
        SmallImages(run.size.num_small), batch_size=_BATCH_SIZE, shuffle=True, drop_last=True, **options
    )


def _augment(element: dict[str, Any]) -> dict[str, Any]:
    return {"image": small_image(element["image"]), "label": element["label"]}


def _augment_rng(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"image": small_image_rng(element["image"], rng), "label": element["label"]}


def _shuffled(run: rounds.Run) -> Any:
    import penstock as ps

    images, labels = small_images(run.size.num_small)
    return ps.from_arrays({"image": images, "label": labels}).shuffle(seed=7)


def penstock_function(run: rounds.Run) -> dict[str, Any]:
    """Run the same user's function in Penstock."""
    dataset = _shuffled(run).map(_augment).batch(_BATCH_SIZE, drop_remainder=True)
    return _epochs(run, lambda: dataset)


def penstock_rng(run: rounds.Run) -> dict[str, Any]:
    """Run the user's function with Penstock's generator, which is keyed by the element."""
    dataset = _shuffled(run).map(_augment_rng, seed=7).batch(_BATCH_SIZE, drop_remainder=True)
    return _epochs(run, lambda: dataset)


def penstock_operators(run: rounds.Run) -> dict[str, Any]:
    """Do the same work with Penstock's operators."""
    import penstock as ps

    dataset = (
        _shuffled(run)
        .map(ps.image.random_crop("image", 32, padding=_PAD), seed=1)
        .map(ps.image.random_flip("image"), seed=2)
        .map(ps.image.normalize("image", MEAN, STD, layout="CHW"))
        .batch(_BATCH_SIZE, drop_remainder=True)
    )
    return _epochs(run, lambda: dataset)


def _function_work(worker: int, num_workers: int, num_small: int) -> pairs.Work:
    images, _ = small_images(num_small)
    order = random.Random(worker).sample(range(worker, num_small, num_workers), num_small // num_workers)
    batch = np.zeros((_BATCH_SIZE, 3, 32, 32), np.float32)
    position = 0

    def step() -> int:
        nonlocal position
        for row in range(_BATCH_SIZE):
            batch[row] = small_image(images[order[(position + row) % len(order)]])
        position += _BATCH_SIZE
        return _BATCH_SIZE

    return step


def _kernel_work(worker: int, num_workers: int, num_small: int) -> pairs.Work:
    from penstock import kernels

    images, _ = small_images(num_small)
    generator = np.random.default_rng(worker)
    batch, rows = np.zeros((_BATCH_SIZE, 3, 32, 32), np.float32), np.zeros((_BATCH_SIZE, 32, 32, 3), np.uint8)
    cropped = np.zeros_like(rows)
    scale, bias = (1 / (255 * np.array(STD))).astype(np.float32), (-np.array(MEAN) / np.array(STD)).astype(np.float32)

    def step() -> int:
        np.take(images, generator.integers(0, num_small, _BATCH_SIZE), axis=0, out=rows, mode="clip")
        tops, lefts = generator.integers(-_PAD, _PAD + 1, (2, _BATCH_SIZE))
        flips = generator.integers(0, 2, _BATCH_SIZE, dtype=np.uint8)
        kernels.crop_images(rows, tops, lefts, flips, 0, cropped)
        kernels.normalize(cropped, scale, bias, batch, True)
        return _BATCH_SIZE

    return step


def _limit(work: Callable[..., pairs.Work]) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        return pairs.limit(work, (run.size.num_small,), max(1, run.size.num_small // (2 * _BATCH_SIZE)), run.size.min_seconds)

    return measure


def _nothing(size: Size, root: Path) -> None:
    """The arrays are made in each process."""


CLAIM = rounds.Claim(
    name="w3",
    title="W3: 32x32x3 uint8 images in memory to float32 batches of 256",
    unit="images/s",
    prepare=_nothing,
    reference="inline",
    references={"penstock_rng": "inline_rng"},
    targets=(
        rounds.Target(contestant="penstock_function", metric="ratio", sense=">=", bound=1.0),
        rounds.Target(contestant="penstock_rng", metric="ratio", sense=">=", bound=1.0),
        rounds.Target(contestant="penstock_operators", metric="ratio", sense=">=", bound=4.0),
    ),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "inline": inline,
            "inline_rng": inline_rng,
            "penstock_function": penstock_function,
            "penstock_rng": penstock_rng,
            "penstock_operators": penstock_operators,
            "dataloader": dataloader,
            "dataloader_no_workers": dataloader_no_workers,
            "limit_function": _limit(_function_work),
            "limit_kernel": _limit(_kernel_work),
        },
    )
