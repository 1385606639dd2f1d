"""What files of tokens hold, and how windows are read out of them."""

from __future__ import annotations

import io
import math
import os
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from penstock._contracts.storage import Storage
from penstock._storage.local import LocalStorage
from penstock.errors import PlanError, RecordError
from penstock.formats import heads
from penstock.kernels.tokens import OUTSIDE, Failure, read_windows
from penstock.sources.paths import shown

__all__ = ["Outside", "TokenFiles", "TokenReader", "find_tokens", "token_reader"]

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_CALLER = "read_tokens"
_NPY_HEAD_BYTES = 16_384
_NPY_VERSIONS = ((1, 0), (2, 0), (3, 0))
_SAVE = "write it with np.save"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenFiles:
    """What the files hold: int64 [files] each, the byte of the first token and the number of tokens."""

    dtype: np.dtype[Any]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]


class Outside(NamedTuple):
    """A token that is not below `bound`: the first such row, and the token's place in it."""

    row: int
    place: int


class TokenReader(Protocol):
    """Reads windows; from any thread."""

    def read(self, files: NDArray[np.int64], offsets: NDArray[np.int64], bound: int, out: NDArray[np.int64]) -> Outside | None:
        """Fill the rows of `out` with the tokens from byte offsets[i] of files[i] on; tell the first token outside the bound.

        Raises:
            SourceError, OSError: as `Storage.read_spans`; which row it was is not known.
        """


def find_tokens(storage: Storage, dtype: Any) -> TokenFiles:
    """Look at the beginning of each file: .npy by its header, anything else is raw tokens of `dtype`.

    Raises:
        PlanError: no dtype for a raw file, or one that tokens cannot have.
        RecordError: a file is no whole number of tokens, an archive, or an .npy file that is damaged or holds something else.
        SourceError, OSError: a file that cannot be read.
    """
    given = None if dtype is None else _given(dtype)
    num_files = len(storage)
    offsets, counts = np.zeros(num_files, np.int64), np.zeros(num_files, np.int64)
    first: np.dtype[Any] | None = None
    for file in range(num_files):
        name, size = storage.name(file), storage.size(file)
        head = storage.read(file, 0, min(size, heads.HEAD_BYTES)) if size else b""
        if head.startswith(npy.MAGIC_PREFIX) or name.endswith(".npy"):
            head = storage.read(file, 0, min(size, _NPY_HEAD_BYTES)) if size else b""
            found, offsets[file], counts[file] = _npy(head, size, name)
            if given is not None and found != given:
                raise PlanError(
                    f"dtype={given} was given, and the header says {found}", where=f"{_CALLER}, {shown(name)}", fix="leave dtype= out"
                )
        else:
            _refuse_foreign(head, name)
            found = _raw(given, name, size)
            counts[file] = size // found.itemsize
        if first is not None and found != first:
            raise PlanError(
                f"{shown(storage.name(0))} holds {first} and {shown(name)} holds {found}",
                where=_CALLER,
                fix="make a dataset of each kind, and join them with concatenate or mix",
            )
        first = found
    assert first is not None
    return TokenFiles(dtype=first, offsets=offsets, counts=counts)


def _given(dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:  # ValueError: of an object that has a dtype, such as an ArraySpec
        raise PlanError(f"dtype={dtype!r} is none", where=_CALLER, fix="give np.uint16, or what the file was written with") from error
    if found.kind not in "iu" or not found.isnative:
        raise PlanError(
            f"dtype={dtype!r} is {found.str}, not integers in the byte order of this machine",
            where=_CALLER,
            fix="give np.uint16, np.int32 or the like; rewrite files of the other byte order once with astype and tofile",
        )
    return found


def _npy(head: bytes, size: int, name: str) -> tuple[np.dtype[Any], int, int]:
    """Return dtype, offset of the first token and number of tokens of an .npy file. Nothing is unpickled."""
    shape, in_fortran_order, dtype, offset = _npy_header(head, name)
    if dtype.hasobject:
        raise RecordError(
            "the array holds Python objects, which needs allow_pickle: reading them may run any code",
            where=f"{shown(name)}, offset 10",
            fix="save numbers: np.save(path, np.array(ids, np.uint16))",
        )
    end = offset + math.prod(shape) * dtype.itemsize
    if end > size:
        what = f"the array of shape {shape} and dtype {dtype} ends at byte {end}, and the file has {size}: it is cut"
        raise RecordError(what, where=f"{shown(name)}, offset {size}", fix="get the whole file again")
    if end < size:
        what = f"{size - end} bytes stand behind the array, which ends at byte {end}"
        raise RecordError(what, where=f"{shown(name)}, offset {end}", fix="keep one array in a file")
    fix = "save one row of integers: np.save(path, np.asarray(ids, np.uint16).ravel())"
    what = ""
    if len(shape) != 1:
        order = " in Fortran order" if in_fortran_order else ""
        what = f"the array has shape {shape}{order}, not one dimension"
        if not in_fortran_order:
            fix = 'for rows that are ready, use from_arrays({"tokens": np.load(path, mmap_mode="r")})'
    elif dtype.kind not in "iu":
        what = f"the array is {dtype}, not integers"
    elif not dtype.isnative:
        what = f"the array is {dtype.str}, of another byte order than this machine ({sys.byteorder}-endian)"
        fix = "rewrite it once: np.save(path, tokens.astype(tokens.dtype.newbyteorder('=')))"
    if what:
        raise RecordError(what, where=f"{shown(name)}, offset 10", fix=fix)
    return dtype, offset, shape[0]


def _npy_header(head: bytes, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, Fortran order, dtype and length of an .npy header, versions 1 to 3.

    Raises:
        RecordError: the file is no .npy file, or its header is damaged or cut.
    """
    if not head.startswith(npy.MAGIC_PREFIX):
        raise RecordError(
            f"the file begins with {head[:8]!r}, not as an .npy file does", where=f"{shown(name)}, offset 0", fix=_npy_hint(head)
        )
    stream = io.BytesIO(head)
    try:
        version = npy.read_magic(stream)
        if version in _NPY_VERSIONS:
            # Version 3 differs from 2 in the encoding of field names alone, and an array with fields is refused.
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, in_fortran_order, dtype = read(stream)
            if min(shape, default=0) >= 0:
                return shape, in_fortran_order, dtype, stream.tell()
            problem = f"shape {shape}"
        else:
            problem = f"its version is {version[0]}.{version[1]}; 1.0, 2.0 and 3.0 are known"
    except Exception as error:  # NumPy raises ValueError, and what parsing a damaged literal or dtype raises
        problem = str(error).partition("\n")[0] or type(error).__name__
        raise _damaged_npy(problem, name) from error
    raise _damaged_npy(problem, name)


def _damaged_npy(problem: str, name: str) -> RecordError:
    return RecordError(f"the .npy header is damaged: {problem:.160}", where=f"{shown(name)}, offset 6", fix=_SAVE)


def _npy_hint(head: bytes) -> str:
    if head.startswith(b"PK"):
        return "this looks like an .npz archive: save each array with np.save, or read it with from_arrays(dict(np.load(path)))"
    if head.startswith(b"\x1f\x8b"):
        return "this looks like gzip: unpack it first"
    return "check the path; a raw binary file needs dtype=, and a name that does not end in .npy"


def _refuse_foreign(head: bytes, name: str) -> None:
    other = heads.foreign(head, surely=True)
    if other is not None:
        raise RecordError(f"the file looks like {other.kind}, not like tokens", where=f"{shown(name)}, offset 0", fix=other.fix)


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
    stored = _StoredTokens(storage, dtype)
    return _LocalTokens(storage, dtype, stored) if isinstance(storage, LocalStorage) else stored


class _StoredTokens:
    """Reads windows through a storage."""

    def __init__(self, storage: Storage, dtype: np.dtype[Any]) -> None:
        self._storage, self._dtype = storage, dtype

    def read(self, files: NDArray[np.int64], offsets: NDArray[np.int64], bound: int, out: NDArray[np.int64]) -> Outside | None:
        """Read all spans, then widen them."""
        size = out.shape[1] * self._dtype.itemsize
        data, starts = self._storage.read_spans(files, offsets, np.full(len(files), size), None)
        for row, start in enumerate(starts.tolist()):
            tokens = np.frombuffer(data, self._dtype, out.shape[1], start)
            out[row] = tokens.view(np.int64) if self._dtype.itemsize == 8 else tokens
            outside = (tokens < 0) | (tokens > bound - 1) if bound else np.zeros(0, bool)
            if outside.any():
                return Outside(row, int(outside.argmax()))
        return None


class _LocalTokens:
    """Reads windows of local files with one C call for a block; what does not go well is left to the storage, which knows the words."""

    def __init__(self, storage: LocalStorage, dtype: np.dtype[Any], stored: TokenReader) -> None:
        self._storage, self._dtype, self._stored = storage, dtype, stored

    def read(self, files: NDArray[np.int64], offsets: NDArray[np.int64], bound: int, out: NDArray[np.int64]) -> Outside | None:
        """Open what is not open, look whether the files are still the same, and read."""
        ticket, found, _ = self._storage.descriptors.enter(files)
        opened: list[list[int]] = []
        failure: Failure | None = None
        try:
            descriptors = found.astype(np.int32)
            good = self._ready(files, descriptors, opened)
            if good:
                failure = read_windows(descriptors, offsets, self._dtype, bound, out)
        finally:
            self._storage.descriptors.leave(ticket, opened)
        if good and failure is None:
            return None
        if failure is not None and failure.cause == OUTSIDE:
            return Outside(failure.row, failure.detail)
        return self._stored.read(files, offsets, bound, out)

    def _ready(self, files: NDArray[np.int64], descriptors: NDArray[np.int32], opened: list[list[int]]) -> bool:
        """Fill in what is not open; tell whether every file is there, and as it was when the dataset was made."""
        several = len(self._storage) > 1
        for file in np.unique(files).tolist() if several else [0][: len(files)]:
            rows = files == file if several else slice(None)
            descriptor = int(descriptors[rows][0])
            try:
                if descriptor < 0:
                    descriptor = os.open(self._storage.path(file), _FLAGS)
                    opened.append([file, descriptor])
                    descriptors[rows] = descriptor
                status = os.fstat(descriptor)
            except OSError:
                return False  # the storage tries again, and says what it is
            if {"size": status.st_size, "mtime_ns": status.st_mtime_ns} != self._storage.identity(file):
                return False
        return True
