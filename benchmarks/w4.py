"""W4: random windows of 1,025 tokens of a uint16 file, batches of 32, as int64 inputs and targets."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import drive
import numpy as np
import pairs
import rounds
from data import Size, token_file, tokens
from numpy.typing import NDArray

_BATCH_SIZE = 32
_LENGTH = 1025


def _epochs(run: rounds.Run, epoch: Callable[[], Iterable[Any]]) -> dict[str, Any]:
    return drive.epochs(epoch, _BATCH_SIZE * (_LENGTH - 1), run.size.min_seconds)


def _tokens(run: rounds.Run) -> NDArray[np.uint16]:
    return tokens(token_file(run.root, run.size.num_tokens))


def _window(stream: NDArray[np.uint16], start: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    window = stream[start : start + _LENGTH].astype(np.int64)
    return window[:-1], window[1:]


def inline(run: rounds.Run) -> dict[str, Any]:
    """Cut windows and stack them in a plain loop."""
    stream = _tokens(run)
    last = len(stream) - _LENGTH

    def epoch() -> Iterator[Any]:
        for _ in range(run.size.num_windows // _BATCH_SIZE):
            windows = [_window(stream, random.randint(0, last)) for _ in range(_BATCH_SIZE)]
            yield np.stack([inputs for inputs, _ in windows]), np.stack([targets for _, targets in windows])

    return _epochs(run, epoch)


class RandomWindows:
    """The windows as a map-style dataset for PyTorch."""

    def __init__(self, stream: NDArray[np.uint16], num_windows: int) -> None:
        self._stream, self._num_windows = stream, num_windows

    def __len__(self) -> int:
        return self._num_windows

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return _window(self._stream, random.randint(0, len(self._stream) - _LENGTH))


def _dataloader(run: rounds.Run, **options: Any) -> dict[str, Any]:
    dataset = RandomWindows(_tokens(run), run.size.num_windows)
    loader = rounds.torch().utils.data.DataLoader(dataset, batch_size=_BATCH_SIZE, drop_last=True, **options)
    return _epochs(run, lambda: loader)


def dataloader(run: rounds.Run) -> dict[str, Any]:
    """Run the DataLoader with two worker processes."""
    return _dataloader(run, num_workers=2, persistent_workers=True, prefetch_factor=4)


def dataloader_no_workers(run: rounds.Run) -> dict[str, Any]:
    """Run the DataLoader without workers, which is its best here."""
    return _dataloader(run, num_workers=0)


def _split(windows: NDArray[np.uint16]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    whole = windows.astype(np.int64)
    return whole[:, :-1], whole[:, 1:]


def penstock_view(run: rounds.Run) -> dict[str, Any]:
    """Shuffle a view of all windows, batch it, and convert whole batches."""
    import penstock as ps

    windows = np.lib.stride_tricks.sliding_window_view(_tokens(run), _LENGTH)
    dataset = ps.from_arrays(windows).shuffle(seed=7).take(run.size.num_windows).batch(_BATCH_SIZE, drop_remainder=True).map(_split)
    return _epochs(run, lambda: dataset)


def penstock_tokens(run: rounds.Run) -> dict[str, Any]:
    """Shuffle the windows of the file itself, read with pread; inputs and targets are views of a batch."""
    import penstock as ps

    path = token_file(run.root, run.size.num_tokens)
    windows = ps.read_tokens(path, _LENGTH - 1, dtype=np.uint16, stride=1)
    dataset = windows.shuffle(seed=7).take(run.size.num_windows).batch(_BATCH_SIZE, drop_remainder=True).map(_views)
    return _epochs(run, lambda: dataset)


def _views(batch: dict[str, NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return batch["tokens"][:, :-1], batch["tokens"][:, 1:]


class Windows:
    """All windows of a stream as a source that reads whole blocks."""

    def __init__(self, stream: NDArray[np.uint16]) -> None:
        self._views = np.lib.stride_tricks.sliding_window_view(stream, _LENGTH)

    def __len__(self) -> int:
        return len(self._views)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Any]]:
        whole = self._views[np.asarray(indices)].astype(np.int64)
        return [(window[:-1], window[1:]) for window in whole]


def penstock_source(run: rounds.Run) -> dict[str, Any]:
    """Shuffle a source of finished windows that has `__getitems__`."""
    import penstock as ps

    dataset = ps.from_source(Windows(_tokens(run))).shuffle(seed=7).take(run.size.num_windows).batch(_BATCH_SIZE, drop_remainder=True)
    return _epochs(run, lambda: dataset)


def _work(worker: int, num_workers: int, path: Path) -> pairs.Work:
    stream = tokens(path)
    generator = np.random.default_rng(worker)
    batch = np.zeros((_BATCH_SIZE, _LENGTH), np.int64)

    def step() -> int:
        starts = generator.integers(0, len(stream) - _LENGTH + 1, _BATCH_SIZE).tolist()
        for row, start in enumerate(starts):
            batch[row] = stream[start : start + _LENGTH]
        return _BATCH_SIZE * (_LENGTH - 1)

    return step


def limit(run: rounds.Run) -> dict[str, Any]:
    """Slice into a preallocated int64 batch in two processes."""
    portions = max(1, run.size.num_windows // (2 * _BATCH_SIZE))
    return pairs.limit(_work, (token_file(run.root, run.size.num_tokens),), portions, run.size.min_seconds)


def _prepare(size: Size, root: Path) -> None:
    token_file(root, size.num_tokens)


CLAIM = rounds.Claim(
    name="w4",
    title="W4: windows of 1,025 uint16 tokens to int64 batches of 32",
    unit="tokens/s",
    prepare=_prepare,
    targets=(
        rounds.Target(contestant="penstock_view", metric="ratio", sense=">=", bound=0.4),
        rounds.Target(contestant="penstock_tokens", metric="ratio", sense=">=", bound=0.4),
    ),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "limit": limit,
            "penstock_view": penstock_view,
            "penstock_tokens": penstock_tokens,
            "penstock_source": penstock_source,
            "dataloader": dataloader,
            "dataloader_no_workers": dataloader_no_workers,
            "inline": inline,
        },
    )
