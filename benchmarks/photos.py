"""The ways to make batches of W1 (JPEG files to training crops); used by w1.py, w7.py and w8.py.

Each function returns something whose call gives the batches of one epoch.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from data import jpeg_list, read_listing
from pairs import Work
from rounds import Run, torch
from user_code import CROP, MEAN, STD, crop_box, training_image

Epoch = Callable[[], Iterable[Any]]


def listing(run: Run) -> Path:
    """Return the list file of the run's size."""
    return jpeg_list(run.root, run.size.num_jpegs)


def collate(samples: list[tuple[Any, int]]) -> tuple[Any, Any]:
    """Stack a batch as a bare loop does."""
    return np.stack([image for image, _ in samples]), np.array([label for _, label in samples])


def inline(run: Run, batch_size: int, as_uint8: bool) -> Epoch:
    """Make batches in a plain loop."""
    pairs = read_listing(listing(run))

    def epoch() -> Iterator[Any]:
        order = random.sample(pairs, len(pairs))
        for start in range(0, len(order) - batch_size + 1, batch_size):
            yield collate([(training_image(path, as_uint8), label) for path, label in order[start : start + batch_size]])

    return epoch


def two_threads(run: Run, batch_size: int, as_uint8: bool) -> Epoch:
    """Make whole batches in two threads, four ahead, in order."""
    from concurrent.futures import Future, ThreadPoolExecutor

    pairs = read_listing(listing(run))

    def make(part: list[tuple[str, int]]) -> tuple[Any, Any]:
        return collate([(training_image(path, as_uint8), label) for path, label in part])

    def epoch() -> Iterator[Any]:
        order = random.sample(pairs, len(pairs))
        ahead: deque[Future[tuple[Any, Any]]] = deque()
        with ThreadPoolExecutor(2) as pool:
            for start in range(0, len(order) - batch_size + 1, batch_size):
                ahead.append(pool.submit(make, order[start : start + batch_size]))
                if len(ahead) == 4:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    return epoch


class Photos:
    """The files as a map-style dataset for PyTorch."""

    def __init__(self, pairs: list[tuple[str, int]], as_uint8: bool) -> None:
        self._pairs, self._as_uint8 = pairs, as_uint8

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self._pairs[index]
        return training_image(path, self._as_uint8), label


def dataloader(run: Run, batch_size: int, as_uint8: bool) -> Epoch:
    """Make batches with PyTorch's DataLoader: two worker processes that stay, four batches ahead each, its own collate."""
    loader = torch().utils.data.DataLoader(
        Photos(read_listing(listing(run)), as_uint8),
        batch_size=batch_size,
        shuffle=True,
        num_workers=2,
        drop_last=True,
        persistent_workers=True,
        prefetch_factor=4,
    )
    return lambda: loader


def penstock(run: Run, batch_size: int, as_uint8: bool, forever: bool = False, crop_only: bool = False, antialias: bool = False) -> Epoch:
    """Make batches with Penstock, as its README shows; unless told otherwise resized as the others do it, not antialiased."""
    whole = dataset(run, batch_size, as_uint8, crop_only, antialias)
    if forever:
        whole = whole.repeat()
    return lambda: whole


def dataset(run: Run, batch_size: int, as_uint8: bool, crop_only: bool = False, antialias: bool = False) -> Any:
    """Return one epoch of batches as a dataset of Penstock."""
    import penstock as ps

    path = listing(run)
    out = (
        ps.read_list(path, root=path.parent)
        .shuffle(seed=7)
        .map(ps.image.decode("data", crop_only=crop_only))
        .map(ps.image.random_resized_crop("data", CROP, antialias=antialias), seed=1)
        .map(ps.image.random_flip("data"), seed=2)
    )
    if not as_uint8:
        out = out.map(ps.image.normalize("data", MEAN, STD, layout="CHW"))
    return out.batch(batch_size, drop_remainder=True)


def limit_work(worker: int, num_workers: int, pairs: list[tuple[str, int]], batch_size: int, as_uint8: bool) -> Work:
    """Build one worker of the limit: Penstock's decoder, resizer and kernels, bytes in memory, every buffer reused."""
    import cv2
    import simplejpeg

    from penstock import kernels

    cv2.setNumThreads(1)
    encoded = [Path(path).read_bytes() for path, _ in pairs[worker::num_workers]]
    random.Random(worker).shuffle(encoded)
    pixels, small = np.empty(600 * 600 * 3, np.uint8), np.empty((CROP, CROP, 3), np.uint8)
    batch = np.zeros((batch_size, CROP, CROP, 3) if as_uint8 else (batch_size, 3, CROP, CROP), np.uint8 if as_uint8 else np.float32)
    scale, bias = (1 / (255 * np.array(STD))).astype(np.float32), (-np.array(MEAN) / np.array(STD)).astype(np.float32)
    position = 0

    def step() -> int:
        nonlocal position
        for row in range(batch_size):
            image = simplejpeg.decode_jpeg(encoded[(position + row) % len(encoded)], "RGB", buffer=pixels)
            top, left, high, wide = crop_box(*image.shape[:2])
            resized = cv2.resize(image[top : top + high, left : left + wide], (CROP, CROP), dst=small, interpolation=cv2.INTER_LINEAR)
            flip = random.random() < 0.5
            if as_uint8:
                kernels.crop_image(resized, 0, 0, flip, 0, batch[row])
            else:
                kernels.normalize(resized[None, :, :: -1 if flip else 1], scale, bias, batch[row : row + 1], True)
        position += batch_size
        return batch_size

    return step
