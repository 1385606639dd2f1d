"""The user's own Python function through `from_source`: threads, processes, `feed()`, DataLoader, a loop, two bare processes.

`--work` is w1 (JPEG to float32), w3 (small images), w4 (windows of tokens), w5 (1 ms of pure Python) or words (a tokeniser of regular
expressions). Everybody runs the same `__getitem__`; `feed()` calls it in the program, one call at a time.
"""

from __future__ import annotations

import itertools
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import drive
import numpy as np
import pairs
import rounds
from data import Size, jpeg_list, small_images, token_file
from user_code import small_image, training_image

_FLAG = "--work"
_WINDOW = 1025
_WORD = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")


class _Items:
    """A map-style dataset: Penstock, torch and a loop take it as it is."""

    batch_size = 64

    def __init__(self, num_items: int) -> None:
        self._num_items = num_items

    def __len__(self) -> int:
        return self._num_items


class Photos(_Items):
    """W1."""

    batch_size = 128

    def __init__(self, run: rounds.Run) -> None:
        listing = jpeg_list(run.root, run.size.num_jpegs)
        pairs_ = [line.split() for line in listing.read_text().splitlines()]
        self._files = [(str(listing.parent / path), np.int64(label)) for path, label in pairs_]
        super().__init__(len(self._files))

    def __getitem__(self, index: int) -> Any:
        path, label = self._files[index]
        return training_image(path, False), label


class SmallImages(_Items):
    """W3."""

    batch_size = 256

    def __init__(self, run: rounds.Run) -> None:
        self._images, self._labels = small_images(run.size.num_small)
        super().__init__(len(self._images))

    def __getitem__(self, index: int) -> Any:
        return small_image(self._images[index]), self._labels[index]


class Tokens(_Items):
    """W4."""

    batch_size = 32

    def __init__(self, run: rounds.Run) -> None:
        self._path = token_file(run.root, run.size.num_tokens)
        super().__init__(run.size.num_windows // 8)
        self._open()

    def _open(self) -> None:
        self._tokens = np.memmap(self._path, np.uint16, "r")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tokens": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __getitem__(self, index: int) -> Any:
        start = random.randint(0, len(self._tokens) - _WINDOW - 1)
        window = self._tokens[start : start + _WINDOW].astype(np.int64)
        return window[:-1], window[1:]


class Numbers(_Items):
    """W5: about 1 ms of pure Python."""

    def __init__(self, run: rounds.Run) -> None:
        super().__init__(max(64, run.size.num_jpegs))

    def __getitem__(self, index: int) -> Any:
        total = 0
        for number in range(14_000):
            total = (total * 31 + number) & 0xFFFF
        return np.int64(total)


class Words(_Items):
    """Texts to the hashes of their first 64 words."""

    def __init__(self, run: rounds.Run) -> None:
        generator = random.Random(5)
        letters = "abcdefghijklmnopqrstuvwxyz"
        words = ["".join(generator.choices(letters, k=generator.randint(2, 9))) for _ in range(2000)]
        self._texts = [" ".join(generator.choices(words, k=80)) + "." for _ in range(max(64, run.size.num_small // 4))]
        super().__init__(len(self._texts))

    def __getitem__(self, index: int) -> Any:
        found = _WORD.findall(self._texts[index])[:64]
        out = np.zeros(64, np.int64)
        out[: len(found)] = [sum(map(ord, word)) % 30_000 for word in found]
        return out


class _Work(NamedTuple):
    make: Callable[[rounds.Run], _Items]
    title: str
    targets: dict[str, float]


WORKS = {
    "w1": _Work(Photos, "JPEG files to float32 CHW batches of 128", {"times_limit": 0.9}),
    "w3": _Work(SmallImages, "32x32x3 uint8 images to float32 batches of 256", {"ratio": 1.3}),
    "w4": _Work(Tokens, "windows of 1,025 tokens to int64 batches of 32", {"ratio": 1.0}),
    "w5": _Work(Numbers, "1 ms of pure Python, batches of 64", {"times_limit": 0.95}),
    "words": _Work(Words, "a tokeniser of regular expressions, batches of 64", {"times_dataloader": 1.2}),
}


def _epochs(run: rounds.Run, items: _Items, epoch: Callable[[], Iterable[Any]]) -> dict[str, Any]:
    return drive.epochs(epoch, items.batch_size, run.size.min_seconds)


def _loop(work: _Work, run: rounds.Run) -> dict[str, Any]:
    items = work.make(run)

    def epoch() -> Iterator[Any]:
        order = random.sample(range(len(items)), len(items))
        for start in range(0, len(order) - items.batch_size + 1, items.batch_size):
            rows = [items[index] for index in order[start : start + items.batch_size]]  # type: ignore[index]
            yield tuple(map(np.stack, zip(*rows, strict=True))) if isinstance(rows[0], tuple) else np.stack(rows)

    return _epochs(run, items, epoch)


def with_penstock(work: _Work, run: rounds.Run, **options: Any) -> dict[str, Any]:
    import penstock as ps

    items = work.make(run)
    dataset = ps.from_source(items).shuffle(seed=7).batch(items.batch_size, drop_remainder=True)
    with dataset.feed(**options) as feed:
        return _epochs(run, items, lambda: feed)


def _dataloader(work: _Work, run: rounds.Run, num_workers: int) -> dict[str, Any]:
    items = work.make(run)
    options: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 4} if num_workers else {}
    loader = rounds.torch().utils.data.DataLoader(
        items, batch_size=items.batch_size, shuffle=True, drop_last=True, num_workers=num_workers, **options
    )
    return _epochs(run, items, lambda: loader)


def _bare(worker: int, num_workers: int, name: str, run: rounds.Run) -> pairs.Work:
    """Compute rows into one batch, in one of two processes that hand nothing over."""
    items = WORKS[name].make(run)
    order = random.Random(worker).sample(range(worker, len(items), num_workers), len(items) // num_workers)
    first = items[0]  # type: ignore[index]
    leaves = [np.asarray(leaf) for leaf in (first if isinstance(first, tuple) else (first,))]
    batch = [np.zeros((items.batch_size, *leaf.shape), leaf.dtype) for leaf in leaves]
    indices = itertools.cycle(order)

    def step() -> int:
        for row in range(items.batch_size):
            element = items[next(indices)]  # type: ignore[index]
            for array, leaf in zip(batch, element if isinstance(element, tuple) else (element,), strict=True):
                array[row] = leaf
        return items.batch_size

    return step


def _contestants(name: str) -> rounds.Contestants:
    work = WORKS[name]

    def limit(run: rounds.Run) -> dict[str, Any]:
        items = work.make(run)
        return pairs.limit(_bare, (name, run), max(1, len(items) // (2 * items.batch_size)), run.size.min_seconds)

    return {
        "loop": lambda run: _loop(work, run),
        "limit": limit,
        "processes": lambda run: with_penstock(work, run, executor="processes", num_workers=2),
        "unwatched": lambda run: with_penstock(work, run, executor="processes", num_workers=2, stall_timeout_s=None),
        "threads": lambda run: with_penstock(work, run, executor="threads", num_workers=2),
        "inline": lambda run: with_penstock(work, run, executor="inline"),
        "feed": lambda run: with_penstock(work, run),
        "dataloader": lambda run: _dataloader(work, run, 2),
        "dataloader_no_workers": lambda run: _dataloader(work, run, 0),
    }


def prepare(name: str) -> Callable[[Size, Path], None]:
    def prepare(size: Size, root: Path) -> None:
        if name == "w1":
            jpeg_list(root, size.num_jpegs)
        if name == "w4":
            token_file(root, size.num_tokens)

    return prepare


def _claim(name: str) -> rounds.Claim:
    work = WORKS[name]
    return rounds.Claim(
        name=f"functions_{name}",
        title=f"The user's function, {name.upper()}: {work.title}",
        unit="elements/s",
        prepare=prepare(name),
        reference="loop",
        targets=tuple(
            rounds.Target(contestant="processes", metric=metric, sense=">=", bound=bound) for metric, bound in work.targets.items()
        ),
    )


if __name__ == "__main__":
    NAME = "w3"
    if _FLAG in sys.argv:
        place = sys.argv.index(_FLAG)
        NAME = sys.argv[place + 1]
        del sys.argv[place : place + 2]
    rounds.main(_claim(NAME), _contestants(NAME), (_FLAG, NAME))
