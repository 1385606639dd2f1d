"""Windows of token ids in files: element i is `length + 1` tokens, read where they lie. Files are .npy or raw integers."""

from __future__ import annotations

import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from penstock._contracts.element import Structure, structure_of
from penstock._contracts.storage import Storage
from penstock._storage.local import LocalStorage
from penstock._system.failing import add_note
from penstock._system.lazy import dataclass
from penstock._system.text import shown
from penstock.errors import PlanError, RecordError, SourceError
from penstock.formats import linescan
from penstock.formats.values import npy_header
from penstock.kernels.library import Ints
from penstock.kernels.spans import FLAGS
from penstock.kernels.tokens import OUTSIDE, TokenFailure, read_windows
from penstock.sources.paths import FileNames, local_files, most_at_once, refuse_beyond, spread, words_of_files

FIELDS: Final = "tokens", "segment_ids", "positions"
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
_SAMPLED_FILES = 64
_SAMPLED_TOKENS = 2048


class TokenSource:
    """Serve {"tokens": [length + 1]}: windows over files of token ids, none across two files.

    Window k of a file begins at its token k * stride. Tokens behind the last whole window of a file are not served.

    Args:
        storage: the files, for their bytes.
        files: what the files hold.
        length: tokens of a window, without the one more that is its last target.
        stride: tokens from the beginning of one window to that of the next.
        vocab_size: every token must lie in 0..vocab_size-1; None: not checked, but that tokens fit into `dtype`.
        eos: the token that ends a document: elements have `segment_ids` and `positions` as well, see `segments_of`.
        documents: in place of `eos`, where the documents of the only file begin: integers in ascending order.
        dtype: integers, of the tokens of elements.

    Raises:
        RecordError: no file is as long as a window.
    """

    def __init__(
        self,
        storage: Storage,
        files: TokenFiles,
        *,
        length: int,
        stride: int,
        vocab_size: int | None = None,
        eos: int | None = None,
        documents: NDArray[Any] | None = None,
        dtype: np.dtype[Any] = _INT64,
    ) -> None:
        self._storage, self._files = storage, files
        self._width, self._stride, self._has_vocabulary = length + 1, stride, vocab_size is not None
        self._eos, self._documents, self._dtype = eos, documents, dtype
        self._fields = FIELDS[: 1 if eos is None and documents is None else 3]
        # Whatever the vocabulary, tokens become `dtype`, by way of int64: a larger one would come out as another.
        most = min(np.iinfo(dtype).max, np.iinfo(np.int64).max) + 1
        self._bound = min(vocab_size, most) if vocab_size else most if np.iinfo(files.dtype).max >= most else 0
        counts = np.maximum(0, (files.counts - self._width) // stride + 1)
        self._starts = np.append(0, np.cumsum(counts))
        self._length = int(self._starts[-1])
        if not self._length:
            raise RecordError(
                f"no file has the {self._width} tokens of one window; the longest has {int(files.counts.max())}",
                where=self.label(),
                fix="ask for shorter windows; length=1024 needs 1025 tokens, for inputs and targets",
            )

    def __len__(self) -> int:
        return self._length

    def structure(self) -> Structure:
        """Return the structure that `element.unflatten` needs."""
        return structure_of(dict.fromkeys(self._fields))

    def leaves(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shape and dtype of a window."""
        return [((self._width,), dtype) for dtype in (self._dtype, _INT32, _INT32)[: len(self._fields)]]

    def gather_columns(self, indices: Ints, out: list[NDArray[Any]] | None) -> list[NDArray[Any]]:
        """Read windows: into `out` (an array of shape (n, length + 1) for each field) or into new arrays.

        Raises:
            LengthMismatch: an index is not in 0..len-1.
            SourceError: a file is not what it was when the dataset was made.
            RecordError: a token is not below `vocab_size`, or is beyond the dtype.
            OSError: as the system says it.
        """
        fits = out is not None and out[0].flags.carray and out[0].dtype == np.int64
        block = out[0] if out is not None and fits else np.empty((len(indices), self._width), np.int64)
        outside = self._read(indices, block)
        if outside is not None:
            raise self._error(int(indices[outside.row]), outside.place)
        columns = self._columns(indices, block)
        for target, column in zip(out or (), columns, strict=out is not None):
            if target is not column:
                target[...] = column
        return out or columns

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
        done = slice(None if outside is None else outside.row)
        columns = self._columns(places[done], block[done])
        rows.extend(dict(zip(self._fields, row, strict=True)) for row in zip(*columns, strict=True))
        if outside is not None:
            raise self._error(int(places[outside.row]), outside.place)

    def input_files(self) -> Iterator[str]:
        """Give the full path of each file of this machine."""
        return local_files(self._storage)

    def group_starts(self) -> Ints:
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
        given = {
            "eos": self._eos,
            "documents_crc32": None if self._documents is None else zlib.crc32(self._documents.astype("<i8").tobytes()),
            "output_dtype": None if self._dtype == np.int64 else self._dtype.str,
        }
        return {name: value for name, value in given.items() if value is not None} | {
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
        left = f", {num_left} tokens behind the last windows" if num_left else ""
        held = f"{int(self._files.counts.sum())} {self._files.dtype}"
        return f"read_tokens({words_of_files(FileNames(self._storage))}, {self._width - 1}, {held}, {self._length} elements{left})"

    def _columns(self, indices: Ints, block: Ints) -> list[NDArray[Any]]:
        """Return the columns of windows."""
        tokens = block.astype(self._dtype, copy=False)
        if len(self._fields) == 1:
            return [tokens]
        if self._documents is None:
            return [tokens, *segments_of(block == self._eos)]
        places = indices[:, None] * self._stride + np.arange(self._width + 1)
        return [tokens, *segments_of(np.diff(np.searchsorted(self._documents, places, side="right"), axis=1) > 0)]

    def _place(self, index: int) -> tuple[int, int]:
        """Return the file of a window and its first token there."""
        file = int(np.searchsorted(self._starts, index, "right")) - 1
        return file, (index - int(self._starts[file])) * self._stride

    def _read(self, indices: Ints, out: Ints) -> Outside | None:
        refuse_beyond(indices, self, "windows")
        size = self._files.dtype.itemsize
        if len(self._files.counts) == 1:
            files = np.zeros(len(indices), np.int64)
            offsets = indices * (self._stride * size) + self._files.offsets[0]
        else:
            files = np.searchsorted(self._starts, indices, "right") - 1
            offsets = (indices - self._starts[files]) * (self._stride * size) + self._files.offsets[files]
        return read_spans(self._storage, self._files.dtype, files, offsets, self._bound, out)

    def _error(self, index: int, place: int) -> RecordError:
        """Name a token that is not below `vocab_size`, or is beyond int64."""
        file, first = self._place(index)
        name, size = self._storage.name(file), self._files.dtype.itemsize
        offset = int(self._files.offsets[file]) + (first + place) * size
        value = np.frombuffer(self._storage.read(file, offset, size), self._files.dtype)[0]
        limit = (
            f"and vocab_size is {self._bound}"
            if self._has_vocabulary
            else f"which does not fit {self._dtype}: ids are 0 to {self._bound - 1}"
        )
        return RecordError(
            f"token {first + place} is {value}, {limit}",
            where=f"{shown(name)}, offset {offset}, in {self.describe(index)}",
            fix="give the vocab_size of the tokenizer that wrote the file; check dtype= (uint16 read as int32 looks so)"
            if self._has_vocabulary
            else "check dtype=: ids of tokens are small; negative ones are int64, and need output_dtype=np.int64",
        )


def segments_of(ends: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return `segment_ids` (1, 2, ... in each window) and `positions` (0, 1, ... in each segment), int32 [n, length] each.

    Args:
        ends: bool [n, length], where a document ends. Its last token belongs to it; the next one begins a segment.
    """
    numbers, firsts = np.ones(ends.shape, np.int32), np.zeros(ends.shape, np.int32)
    places = np.arange(ends.shape[1], dtype=np.int32)
    numbers[:, 1:] += np.cumsum(ends[:, :-1], axis=1, dtype=np.int32)
    np.maximum.accumulate(places[1:] * ends[:, :-1], axis=1, out=firsts[:, 1:])
    return numbers, places - firsts


# -- the files --------------------------------------------------------------------------------------------------------------------

_CALLER = "read_tokens"
_NPY_HEAD_BYTES = 16_384
_HEAD_BYTES = 64
_LLM_C: Final[dict[int, np.dtype[Any]]] = {20240520: np.dtype(np.uint16), 20240801: np.dtype(np.uint32)}
"""The magic numbers of the shards of llm.c and modded-nanogpt: 256 int32 (magic, version, number of tokens, zeros), then the tokens."""
_LLM_C_BYTES, _LIT_BYTES = 1024, 24
_LIT_MARK = b"LITPKDS\x01" + bytes(7)
MEGATRON: Final = b"MMIDIDX\0\0"
_INDEX_MARKS = MEGATRON, b"TNTIDX\0\0"
"""Of Megatron and of fairseq before it; a version of 8 bytes and the code of the dtype stand behind."""
CODES: Final[dict[int, np.dtype[Any]]] = dict(enumerate(map(np.dtype, ("u1", "i1", "i2", "i4", "i8")), 1)) | {8: np.dtype("u2")}
"""The dtypes in headers of lit-gpt and Megatron."""
_TEXT = re.compile(rb"[\t\n\r -~]{%d}" % _HEAD_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenFiles:
    """The contents of the files: int64 [files] each, the byte of the first token and the number of tokens."""

    dtype: np.dtype[Any]
    offsets: Ints
    counts: Ints


class Outside(NamedTuple):
    """A token that is not below `bound`: the first such row, and the token's place in it."""

    row: int
    place: int


_Told: TypeAlias = tuple["np.dtype[Any]", int, int]
"""The dtype of a file's tokens, where the first begins, and how many there are."""


def find_tokens(storage: Storage, dtype: Any, offset: int | None = None) -> TokenFiles:
    """Look at the beginning of each file: .npy and shards of known writers by their headers, anything else is raw tokens of `dtype`.

    Args:
        storage: the files.
        dtype: of raw tokens; None where headers say it.
        offset: where the tokens of each file begin, in bytes: no header is looked for then. None: behind a known header, or at 0.

    Raises:
        PlanError: no dtype for a raw file, or one that tokens cannot have; an offset into an .npy file.
        RecordError: a file is no whole number of tokens, an archive, or has a header that is damaged or of something else.
        SourceError, OSError: a file that cannot be read.
    """
    given = None if dtype is None else token_dtype(dtype, "dtype")
    num_files = len(storage)
    offsets, counts = np.zeros((2, num_files), np.int64)
    first: np.dtype[Any] | None = None
    for file in range(num_files):
        name, size = storage.name(file), storage.size(file)
        head = storage.read(file, 0, min(size, _HEAD_BYTES)) if size else b""
        if head.startswith(npy.MAGIC_PREFIX) or (name.endswith(".npy") and offset is None):
            head = storage.read(file, 0, min(size, _NPY_HEAD_BYTES)) if size else b""
            told: _Told | None = _npy(head, size, name)
        else:
            _refuse_foreign(head, name)
            told = _headed(head, size, name) if offset is None else None
        if told is None:
            told = _raw(given, name, size, head, offset)
        elif offset is not None:
            raise PlanError(f"offset={offset} is given for an .npy file", where=f"{_CALLER}, {shown(name)}", fix="leave offset= out")
        elif given is not None and told[0] != given:
            what = f"dtype={given} was given, and the header says {told[0]}"
            raise PlanError(what, where=f"{_CALLER}, {shown(name)}", fix="leave dtype= out")
        found, offsets[file], counts[file] = told
        if first is not None and found != first:
            raise PlanError(
                f"{shown(storage.name(0))} holds {first} and {shown(name)} holds {found}",
                where=_CALLER,
                fix="make a dataset of each kind, and join them with concatenate or mix",
            )
        first = found
    assert first is not None
    return TokenFiles(dtype=first, offsets=offsets, counts=counts)


def token_dtype(dtype: Any, name: str) -> np.dtype[Any]:
    """Return the dtype of tokens that the argument `name` gives.

    Raises:
        PlanError: it is none, or not of integers in the byte order of this machine.
    """
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:  # ValueError: of an object that has a dtype, such as an ArraySpec
        raise PlanError(f"{name}={dtype!r} is none", where=_CALLER, fix="give np.uint16, or what the file was written with") from error
    if found.kind not in "iu" or not found.isnative:
        raise PlanError(
            f"{name}={dtype!r} is {found.str}, not integers in the byte order of this machine",
            where=_CALLER,
            fix="give np.uint16, np.int32 or the like; rewrite files of the other byte order once with astype and tofile",
        )
    return found


def _npy(head: bytes, size: int, name: str) -> _Told:
    """Return dtype, offset of the first token and number of tokens of an .npy file. Nothing is unpickled.

    Raises:
        RecordError: the file is no .npy file, its header is damaged, it is no row of tokens, or not all of one.
    """
    if not head.startswith(npy.MAGIC_PREFIX):
        other = linescan.foreign(head)
        raise RecordError(
            f"the file begins with {head[:8]!r}, not as an .npy file does",
            where=f"{shown(name)}, offset 0",
            fix=other.fix if other else "check the path; a raw binary file needs dtype=, and offset=0 if its name ends in .npy",
        )
    stream = io.BytesIO(head)
    try:
        shape, _, dtype = npy_header(stream)
    except Exception as error:  # NumPy raises ValueError, and what parsing a damaged literal or dtype raises
        what = f"the .npy header is damaged, or of an unknown version: {error!s:.160}"
        raise RecordError(what, where=f"{shown(name)}, offset 6", fix="write it with np.save") from error
    if len(shape) != 1 or shape[0] < 0 or dtype.kind not in "iu" or not dtype.isnative:
        raise RecordError(
            f"the array has shape {shape} and dtype {dtype.str}, not one dimension of integers in the byte order of this machine",
            where=f"{shown(name)}, offset 10",
            fix="save one row of integers: np.save(path, np.asarray(ids, np.uint16).ravel()); for rows that are ready, use "
            'from_arrays({"tokens": np.load(path, mmap_mode="r")})',
        )
    end = stream.tell() + shape[0] * dtype.itemsize
    if end != size:
        what = f"the array ends at byte {end}, and the file has {size}: it is cut, or something stands behind the array"
        raise RecordError(what, where=f"{shown(name)}, offset {min(end, size)}", fix="get the whole file again; keep one array in a file")
    return dtype, stream.tell(), shape[0]


def _refuse_foreign(head: bytes, name: str) -> None:
    """Refuse what is surely no file of tokens: archives, tables, and what other libraries keep beside tokens or around them."""
    kind, fix = "", ""
    mark = next(filter(head.startswith, _INDEX_MARKS), None)
    if mark:
        kind, dtype = "an index of Megatron", CODES.get(int.from_bytes(head[len(mark) + 8 :][:1]))
        found = f"np.{dtype}" if dtype else "what it was written with"
        fix = f"read the documents with read_megatron; or give the .bin file beside it, which has the tokens, and dtype={found}"
    elif name.endswith(".mds"):
        kind, fix = "a shard of Mosaic Streaming", "read the folder with streaming.LocalDataset, and that with from_source"
    elif (other := linescan.foreign(head, surely=True)) is not None:
        kind, fix = other.kind, other.fix
    if kind:
        raise RecordError(f"the file looks like {kind}, not like tokens", where=f"{shown(name)}, offset 0", fix=fix)


def _headed(head: bytes, size: int, name: str) -> _Told | None:
    """Return what the header of a shard says, if it is one of a known writer; its first bytes are tokens by no chance."""
    if head.startswith(_LIT_MARK) and len(head) > _LIT_BYTES and head[15] in CODES:
        dtype = CODES[head[15]]
        return dtype, _LIT_BYTES, _whole(dtype, name, size, _LIT_BYTES)
    magic, version, count = np.frombuffer(head, "<i4", 3).tolist() if len(head) >= 12 else (0, 0, 0)
    if magic not in _LLM_C or not 0 < version < 256 or any(head[12:]):
        return None
    dtype = _LLM_C[magic]
    if size != _LLM_C_BYTES + count * dtype.itemsize:
        raise RecordError(
            f"the header says {count} {dtype} tokens, which end at byte {_LLM_C_BYTES + count * dtype.itemsize}, and the file has {size}",
            where=f"{shown(name)}, offset 8",
            fix="get the whole file again",
        )
    return dtype, _LLM_C_BYTES, count


def _raw(given: np.dtype[Any] | None, name: str, size: int, head: bytes, offset: int | None) -> _Told:
    if offset is None and _TEXT.fullmatch(head) and (given is None or given.itemsize > 1):
        raise RecordError(
            "the file looks like text, not like tokens",
            where=f"{shown(name)}, offset 0",
            fix="give a pattern that fits the files of tokens alone; offset=0 reads this one all the same",
        )
    if given is None:
        raise PlanError(
            f"{shown(name)} is no .npy file, so it does not say what its tokens are",
            where=_CALLER,
            fix="give dtype=, that of the file: np.uint16, or np.int32 as ps.pack writes int32 tokens",
        )
    if offset is None and _is_too_narrow(given, head):
        raise RecordError(
            f"every second token is 0, as in a file of wider integers than {given}",
            where=f"{shown(name)}, offset 0",
            fix="give the dtype that the file was written with, such as np.int32; offset=0 reads it as it is",
        )
    return given, offset or 0, _whole(given, name, size, offset or 0)


def _is_too_narrow(dtype: np.dtype[Any], head: bytes) -> bool:
    tokens = np.frombuffer(head if len(head) == _HEAD_BYTES and dtype.itemsize in (2, 4) else b"", dtype)
    return bool(tokens[::2].any() and not tokens[1::2].any())


def _whole(dtype: np.dtype[Any], name: str, size: int, begin: int) -> int:
    """Return how many tokens there are from a byte on.

    Raises:
        RecordError: they are no whole number, or the file ends before.
    """
    count, rest = divmod(size - begin, dtype.itemsize)
    if count < 0:
        raise RecordError(f"the file has {size} bytes, and its tokens begin at {begin}", where=shown(name), fix="give another offset=")
    if rest:
        behind = f" behind the first {begin}" if begin else ""
        raise RecordError(
            f"the file has {size} bytes, {rest} more than a whole number of {dtype} tokens{behind}",
            where=f"{shown(name)}, offset {size - rest}",
            fix="get the whole file again, or give the dtype that it was written with; offset= leaves a header out",
        )
    return count


def documents_of(given: Any, files: TokenFiles) -> NDArray[Any]:
    """Return where the documents of the only file begin, of a path the array in an .npy file, mapped.

    Raises:
        PlanError: there are several files, or these are no ascending places in one of them.
        OSError: a file that cannot be read.
    """
    try:
        begins = np.load(given, mmap_mode="r") if isinstance(given, (str, os.PathLike)) else np.asarray(given)
    except ValueError:
        begins = np.empty(0, object)
    good = len(files.counts) == 1 and begins.ndim == 1 and begins.dtype.kind in "iu"
    if not good or (begins[1:] < begins[:-1]).any() or (begins[:1] < 0).any() or (begins[-1:] > files.counts[0]).any():
        raise PlanError(
            f"documents={given!r:.60} does not say where the documents of the {int(files.counts.sum())} tokens begin",
            where=_CALLER,
            fix="give the places of their first tokens as integers in ascending order, or an .npy file of them, for one file of tokens",
        )
    return begins


def read_spans(storage: Storage, dtype: np.dtype[Any], files: Ints, offsets: Ints, bound: int, out: Ints) -> Outside | None:
    """Read windows as int64; return the first token that is not below `bound`, unless that is 0.

    Local files are read with one C call for a block, without a copy between the system and the batch. What does not go well is left to the
    storage, which knows the words.
    """
    if isinstance(storage, LocalStorage):
        ticket, found, _ = storage.descriptors.enter(files)
        opened: list[list[int]] = []
        failure: TokenFailure | None = None
        try:
            descriptors = found.astype(np.int32)
            good = _ready(storage, files, descriptors, opened)
            if good:
                failure = read_windows(descriptors, offsets, dtype, bound, out)
        finally:
            storage.descriptors.leave(ticket, opened)
        if good and failure is None:
            return None
        if failure is not None and failure.cause == OUTSIDE:
            return Outside(failure.row, failure.detail)
    data, starts = storage.read_spans(files, offsets, np.full(len(files), out.shape[1] * dtype.itemsize), None)
    for row, start in enumerate(starts.tolist()):
        tokens = np.frombuffer(data, dtype, out.shape[1], start)
        out[row] = tokens.view(np.int64) if dtype.itemsize == 8 else tokens
        outside = (tokens < 0) | (tokens > bound - 1) if bound else np.zeros(0, bool)
        if outside.any():
            return Outside(row, int(outside.argmax()))
    return None


def _ready(storage: LocalStorage, files: Ints, descriptors: NDArray[np.int32], opened: list[list[int]]) -> bool:
    """Fill in what is not open; tell whether every file is there, and as it was when the dataset was made."""
    several = len(storage) > 1
    for file in np.unique(files).tolist() if several else [0][: len(files)]:
        rows = files == file if several else slice(None)
        descriptor = int(descriptors[rows][0])
        try:
            if descriptor < 0:
                descriptor = os.open(storage.path(file), FLAGS)
                opened.append([file, descriptor])
                descriptors[rows] = descriptor
            status = os.fstat(descriptor)
        except OSError:
            return False  # the storage tries again, and says what it is
        if {"size": status.st_size, "mtime_ns": status.st_mtime_ns} != storage.identity(file):
            return False
    return True
