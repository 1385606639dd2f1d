"""What files of tokens hold, and how windows are read out of them."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage import Storage
from penstock._storage.descriptors import Descriptors, most_open
from penstock.errors import PlanError, RecordError, SourceError
from penstock.formats.npy import HEAD_BYTES, MAGIC, parse_npy
from penstock.kernels.tokens import OUTSIDE, Failure, read_windows
from penstock.sources.paths import shown

__all__ = ["TokenFiles", "TokenReader", "find_tokens", "token_reader"]

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_CALLER = "read_tokens"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenFiles:
    """What the files hold: int64 [files] each, the byte of the first token and the number of tokens."""

    dtype: np.dtype[Any]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]


class TokenReader(Protocol):
    """Reads windows; from any thread."""

    def read(self, files: NDArray[np.int64], offsets: NDArray[np.int64], bound: int, out: NDArray[np.int64]) -> Failure | None:
        """Fill the rows of `out` with the tokens from byte offsets[i] of files[i] on; return the first row that failed."""


def find_tokens(storage: Storage, dtype: Any) -> TokenFiles:
    """Look at the beginning of each file: .npy by its header, anything else is raw tokens of `dtype`.

    Raises:
        PlanError: no dtype for a raw file, or one that tokens cannot have.
        RecordError: a file is no whole number of tokens, or an .npy file that is damaged or holds something else.
        SourceError, OSError: a file that cannot be read.
    """
    given = None if dtype is None else _given(dtype)
    num_files = len(storage)
    offsets, counts = np.zeros(num_files, np.int64), np.zeros(num_files, np.int64)
    first: np.dtype[Any] | None = None
    for file in range(num_files):
        name, size = storage.name(file), storage.size(file)
        head = storage.read(file, 0, min(size, len(MAGIC))) if size else b""
        if head == MAGIC or name.endswith(".npy"):
            head = storage.read(file, 0, min(size, HEAD_BYTES)) if size else b""
            found, offsets[file], counts[file] = _npy(head, size, name)
            if given is not None and found != given:
                raise PlanError(
                    f"dtype={given} was given, and the header says {found}", where=f"{_CALLER}, {shown(name)}", fix="leave dtype= out"
                )
        else:
            found = _raw(given, name, size)
            counts[file] = size // found.itemsize
        if first is not None and found != first:
            raise PlanError(
                f"{shown(storage.name(0))} holds {first} and {shown(name)} holds {found}",
                where=_CALLER,
                fix="make a dataset of each kind, and join them with ps.concatenate or mix",
            )
        first = found
    assert first is not None
    return TokenFiles(dtype=first, offsets=offsets, counts=counts)


def _given(dtype: Any) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise PlanError(f"dtype={dtype!r} is none", where=_CALLER, fix="give np.uint16, or what the file was written with") from error
    if found.kind not in "iu" or not found.isnative:
        raise PlanError(
            f"dtype={dtype!r} is {found.str}, not integers in the byte order of this machine",
            where=_CALLER,
            fix="give np.uint16, np.int32 or the like; rewrite big-endian files once with tokens.astype('<u2').tofile(path)",
        )
    return found


def _npy(head: bytes, size: int, name: str) -> tuple[np.dtype[Any], int, int]:
    header = parse_npy(head, size, name)
    dtype = header.dtype
    fix = "save one row of integers: np.save(path, np.asarray(ids, np.uint16).ravel())"
    what = ""
    if len(header.shape) != 1:
        order = " in Fortran order" if header.fortran_order else ""
        what = f"the array has shape {header.shape}{order}, not one dimension"
        if not header.fortran_order:
            fix = 'for rows that are ready, use from_arrays({"tokens": np.load(path, mmap_mode="r")})'
    elif dtype.kind not in "iu":
        what = f"the array is {dtype}, not integers"
    elif not dtype.isnative:
        what = f"the array is {dtype.str}, of another byte order than this machine ({sys.byteorder}-endian)"
        fix = "rewrite it once: np.save(path, tokens.astype(tokens.dtype.newbyteorder('=')))"
    if what:
        raise RecordError(what, where=f"{shown(name)}, offset 10", fix=fix)
    return dtype, header.offset, header.shape[0]


def _raw(given: np.dtype[Any] | None, name: str, size: int) -> np.dtype[Any]:
    if given is None:
        raise PlanError(
            f"{shown(name)} is no .npy file, so it does not say what its tokens are",
            where=_CALLER,
            fix="give dtype=np.uint16, or what the file was written with",
        )
    if size % given.itemsize:
        raise RecordError(
            f"the file has {size} bytes, {size % given.itemsize} more than a whole number of {given} tokens",
            where=f"{shown(name)}, offset {size - size % given.itemsize}",
            fix="get the whole file again, or give the dtype that it was written with",
        )
    return given


def token_reader(storage: Storage, dtype: np.dtype[Any]) -> TokenReader:
    """Return what reads windows from these files: local ones without a copy between the system and the batch."""
    local = all("mtime_ns" in storage.identity(file) for file in range(min(1, len(storage))))
    return _LocalTokens(storage, dtype) if local else _StoredTokens(storage, dtype)


class _StoredTokens:
    """Reads windows through a storage."""

    def __init__(self, storage: Storage, dtype: np.dtype[Any]) -> None:
        self._storage, self._dtype = storage, dtype

    def read(self, files: NDArray[np.int64], offsets: NDArray[np.int64], bound: int, out: NDArray[np.int64]) -> Failure | None:
        """Read all spans, then widen them."""
        size = out.shape[1] * self._dtype.itemsize
        data, starts = self._storage.read_spans(files, offsets, np.full(len(files), size), None)
        for row, start in enumerate(starts.tolist()):
            tokens = np.frombuffer(data, self._dtype, out.shape[1], start)
            out[row] = tokens.view(np.int64) if self._dtype.itemsize == 8 else tokens
            outside = (tokens < 0) | (tokens > bound - 1) if bound else np.zeros(0, bool)
            if outside.any():
                return Failure(row, OUTSIDE, int(outside.argmax()))
        return None


class _LocalTokens:
    """Reads windows of local files with one C call for a block."""

    def __init__(self, storage: Storage, dtype: np.dtype[Any]) -> None:
        self._storage, self._dtype = storage, dtype
        # Relative paths are those of now, whatever the working directory is later.
        self._base = os.path.join(os.getcwd(), "")
        self._open_pool()

    def _open_pool(self) -> None:
        self._descriptors = Descriptors(len(self._storage), most_open())

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_descriptors"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open_pool()

    def read(self, files: NDArray[np.int64], offsets: NDArray[np.int64], bound: int, out: NDArray[np.int64]) -> Failure | None:
        """Open what is not open, and read."""
        ticket, descriptors = self._descriptors.enter(files)
        opened: list[list[int]] = []
        try:
            if (descriptors < 0).any():
                for file in np.unique(files[descriptors < 0]).tolist():
                    opened.append([file, self._opened(file)])
                    descriptors[files == file] = opened[-1][1]
            return read_windows(descriptors.astype(np.int32), offsets, self._dtype, bound, out)
        finally:
            self._descriptors.leave(ticket, opened)

    def _opened(self, file: int) -> int:
        name = self._storage.name(file)
        descriptor = os.open(os.path.join(self._base, name), _FLAGS)
        status = os.fstat(descriptor)
        now = {"size": status.st_size, "mtime_ns": status.st_mtime_ns}
        known = self._storage.identity(file)
        if stat.S_ISREG(status.st_mode) and all(known.get(key) == value for key, value in now.items()):
            return descriptor
        os.close(descriptor)
        raise SourceError(
            f"the file is another one than when the dataset was made: {now} now, {known} then",
            where=f"{_CALLER}, {shown(name)}",
            fix="do not change files while they are read; make the dataset again",
        )
