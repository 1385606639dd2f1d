"""Windows of token ids in files: element i is `length + 1` tokens, read where they lie."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import Structure, structure_of
from penstock._contracts.failing import add_note
from penstock._contracts.storage import Storage
from penstock.errors import LengthMismatch, RecordError, SourceError
from penstock.sources.digest import spread
from penstock.sources.paths import shown
from penstock.sources.records import most_at_once
from penstock.sources.tokenfiles import Outside, TokenFiles, TokenReader, token_reader

__all__ = ["TokenSource"]

_FIELD = "tokens"
_MOST_TOKENS = 1 << 63
"""Different tokens in int64, from 0 on."""
_SAMPLED_FILES = 64
_SAMPLED_TOKENS = 2048


class TokenSource:
    """Serve {"tokens": int64 [length + 1]}: windows over files of token ids, none across two files.

    Window k of a file begins at its token k * stride. Tokens behind the last whole window of a file are not served.

    Args:
        storage: the files, for their bytes.
        files: what the files hold.
        length: tokens of a window, without the one more that is its last target.
        stride: tokens from the beginning of one window to that of the next.
        vocab_size: every token must lie in 0..vocab_size-1; None: not checked, but that uint64 fits into int64.

    Raises:
        RecordError: no file is as long as a window.
    """

    def __init__(self, storage: Storage, files: TokenFiles, *, length: int, stride: int, vocab_size: int | None = None) -> None:
        self._storage, self._files = storage, files
        self._width, self._stride, self._has_vocabulary = length + 1, stride, vocab_size is not None
        # Whatever the vocabulary, elements are int64: a larger uint64 would come out negative.
        most = _MOST_TOKENS if files.dtype == np.uint64 else 0
        self._bound = min(vocab_size, _MOST_TOKENS) if vocab_size else most
        counts = np.maximum(0, (files.counts - self._width) // stride + 1)
        self._starts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=self._starts[1:])
        self._length = int(self._starts[-1])
        if not self._length:
            raise RecordError(
                f"no file has the {self._width} tokens of one window; the longest has {int(files.counts.max())}",
                where=self.label(),
                fix="ask for shorter windows; length=1024 needs 1025 tokens, for inputs and targets",
            )
        self._reader: TokenReader = token_reader(storage, files.dtype)

    def __len__(self) -> int:
        return self._length

    def structure(self) -> Structure:
        """Return the structure that `element.unflatten` needs."""
        return structure_of({_FIELD: 0})

    def leaves(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shape and dtype of a window."""
        return [((self._width,), np.dtype(np.int64))]

    def gather_columns(self, indices: NDArray[np.int64], out: list[NDArray[Any]] | None) -> list[NDArray[Any]]:
        """Read windows: into `out` (one int64 array of shape (n, length + 1)) or into a new array.

        Raises:
            LengthMismatch: an index is not in 0..len-1.
            SourceError: a file is not what it was when the dataset was made.
            RecordError: a token is not below `vocab_size`, or is beyond int64.
            OSError: as the system says it.
        """
        target = np.empty((len(indices), self._width), np.int64) if out is None else out[0]
        fits = target.flags.carray and target.dtype == np.int64
        block = target if fits else np.empty(target.shape, np.int64)
        outside = self._read(indices, block)
        if outside is not None:
            raise self._error(int(indices[outside.row]), outside.place)
        if not fits:
            target[...] = block
        return [target]

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index; those before one that fails are appended.

        Raises:
            as `gather_columns`.
        """
        places = np.asarray(indices, np.int64)
        block = np.empty((len(places), self._width), np.int64)
        try:
            outside = self._read(places, block)
        except (OSError, SourceError) as error:
            if len(places) == 1:
                add_note(error, f"reading {self.describe(int(places[0]))}")
                raise
            # Which one it was is found by asking for each; where none fails again, the elements are as good as any.
            for index in indices:
                self.gather([index], rows)
            return
        rows.extend({_FIELD: row} for row in (block if outside is None else block[: outside.row]))
        if outside is not None:
            raise self._error(int(places[outside.row]), outside.place)

    def input_files(self) -> Iterator[str]:
        """Give the full path of each file of this machine."""
        storage = self._storage
        return (os.path.abspath(storage.name(file)) for file in range(len(storage)) if "mtime_ns" in storage.identity(file))

    def group_starts(self) -> NDArray[np.int64]:
        """Return where each file with windows begins, and the number of all: the groups of `shuffle(window_groups=)`."""
        return np.unique(self._starts)

    @property
    def rows_at_once(self) -> int:
        """Return how many windows should be asked for at once, at least: more than one where the files are far away."""
        return most_at_once(self._storage, self._width * self._files.dtype.itemsize)

    def describe(self, index: int) -> str:
        """Name file and tokens."""
        file, first = self._place(index)
        return f"tokens {first} to {first + self._width - 1} of {shown(self._storage.name(file))}"

    def fingerprint(self) -> dict[str, Any]:
        """Return dtype, lengths of windows and files, and a check sum of both ends of up to 64 files; no name, no time."""
        counts = self._files.counts
        crc = 0
        for file in spread(len(counts), _SAMPLED_FILES):
            offset, count = int(self._files.offsets[file]), int(counts[file])
            size = self._files.dtype.itemsize
            sample = min(count, _SAMPLED_TOKENS)
            for first in (0, count - sample):
                crc = zlib.crc32(self._storage.read(file, offset + first * size, sample * size), crc)
        return {
            "kind": "tokens",
            "count": self._length,
            "width": self._width,
            "stride": self._stride,
            "dtype": self._files.dtype.str,
            "num_tokens": int(counts.sum()),
            "counts_crc32": zlib.crc32(counts.astype("<i8").tobytes()),
            "sample_crc32": crc,
        }

    def label(self) -> str:
        """Return the call with the numbers of tokens, files and elements, and of tokens behind the last windows."""
        per_file = np.diff(self._starts)
        covered = np.where(per_file > 0, (per_file - 1) * self._stride + self._width, 0)
        num_left = int(np.maximum(self._files.counts - covered, 0).sum())
        name, num_files = shown(self._storage.name(0)), len(per_file)
        more = "" if num_files == 1 else f" and {num_files - 1} more"
        left = f", {num_left} tokens behind the last windows" if num_left else ""
        held = f"{int(self._files.counts.sum())} {self._files.dtype}"
        return f"read_tokens({name}{more}, {self._width - 1}, {held}, {self._length} elements{left})"

    def _place(self, index: int) -> tuple[int, int]:
        """Return the file of a window and its first token there."""
        file = int(np.searchsorted(self._starts, index, "right")) - 1
        return file, (index - int(self._starts[file])) * self._stride

    def _read(self, indices: NDArray[np.int64], out: NDArray[np.int64]) -> Outside | None:
        # Seen as unsigned, a negative index is a huge one.
        if indices.size and int(indices.view(np.uint64).max()) >= self._length:
            raise LengthMismatch(
                f"there are {self._length} windows, and indices from {int(indices.min())} to {int(indices.max())} were asked for",
                where=self.label(),
                fix=f"ask for windows 0..{self._length - 1}; when no code of yours did, report it as a fault of penstock",
            )
        size = self._files.dtype.itemsize
        if len(self._files.counts) == 1:
            files = np.zeros(len(indices), np.int64)
            offsets = indices * (self._stride * size) + self._files.offsets[0]
        else:
            files = np.searchsorted(self._starts, indices, "right") - 1
            offsets = (indices - self._starts[files]) * (self._stride * size) + self._files.offsets[files]
        return self._reader.read(files, offsets, self._bound, out)

    def _error(self, index: int, place: int) -> RecordError:
        """Name a token that is not below `vocab_size`, or is beyond int64."""
        file, first = self._place(index)
        name, size = self._storage.name(file), self._files.dtype.itemsize
        offset = int(self._files.offsets[file]) + (first + place) * size
        value = np.frombuffer(self._storage.read(file, offset, size), self._files.dtype)[0]
        limit = f"and vocab_size is {self._bound}" if self._has_vocabulary else "which does not fit int64"
        return RecordError(
            f"token {first + place} is {value}, {limit}",
            where=f"{shown(name)}, offset {offset}, in {self.describe(index)}",
            fix="give the vocab_size of the tokenizer that wrote the file; check dtype= (uint16 read as int32 looks so)"
            if self._has_vocabulary
            else "check dtype=: ids of tokens are small; negative ones are int64",
        )
