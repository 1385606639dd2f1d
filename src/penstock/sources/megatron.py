"""Indexed datasets of Megatron-LM: NAME.bin holds tokens of documents and nothing else, and NAME.idx says where each lies.

As `megatron/core/datasets/indexed_dataset.py` of https://github.com/NVIDIA/Megatron-LM writes it. All numbers are little-endian:

    9 bytes    MMIDIDX and two zeros
    uint64     version, 1
    uint8      code of the tokens' dtype
    uint64     number of sequences
    uint64     number of document indices
    int32      of each sequence: its tokens
    int64      of each sequence: the byte of NAME.bin where it begins; there is no gap between two
    int64      document indices: the sequence that each document begins with, and the number of all sequences
    int8       of multimodal data, of each sequence: its mode

A document is one sequence or several. In data for GPT models it is one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from penstock._contracts.storage import RemoteFiles, Storage
from penstock._storage import open_storage
from penstock._storage.local import LocalStorage
from penstock._storage.sameness import sample
from penstock._system.lazy import dataclass
from penstock._system.text import shown
from penstock.errors import PlanError, RecordError, SourceError
from penstock.formats.index import Index, joined
from penstock.kernels.framing import crc32c
from penstock.kernels.library import Ints
from penstock.sources.numbers import KnownNumber
from penstock.sources.paths import FileNames
from penstock.sources.records import RecordSource, RecordTable
from penstock.sources.tokens import CODES, MEGATRON

_CALLER = "read_megatron"


@dataclass(frozen=True, slots=True)
class MegatronFormat:
    """See `SpanFormat`. A record's span is its tokens."""

    kind: ClassVar[str] = "megatron"
    checks_records: ClassVar[bool] = False
    separator: ClassVar[None] = None
    options: ClassVar[dict[str, Any]] = {}
    """Dtype and borders stand in the index, whose check sum counts."""

    dtype: np.dtype[Any]

    def decode(self, data: memoryview, table: RecordTable, index: int) -> dict[str, Ints]:
        """Return {"tokens": int64 [n]}, a copy."""
        return {"tokens": np.frombuffer(data, self.dtype).astype(np.int64)}


class MegatronSource(RecordSource):
    """Serve {"tokens": int64 [n]} of each document or sequence.

    Args:
        storage: the .bin files.
        indices: the .idx files.
        sequences: whether each sequence is an element; else each document.

    Raises:
        RecordError: an index that is none, or is damaged, or does not fit its .bin file.
        PlanError: files of several dtypes.
        SourceError: one of the two files of a dataset is missing.
        OSError: as the system says it.
    """

    def __init__(self, storage: Storage, indices: Storage, *, sequences: bool) -> None:
        files, own = ([name[:-4] for name in FileNames(one)] for one in (storage, indices))
        for alone in sorted(set(files) ^ set(own)):
            raise SourceError(
                f"{shown(alone)} has only one of its two files: a dataset of Megatron-LM is a .bin and an .idx file of one name",
                where=_CALLER,
                fix="restore the other file, or give a pattern that leaves this one out",
            )
        dtypes, found = set[np.dtype[Any]](), []
        for file, name in enumerate(files):
            number = own.index(name)
            data, size = indices.read(number, 0, indices.size(number)), storage.size(file)
            dtype, borders = decode_index(data, indices.name(number), size, sequences=sequences)
            dtypes.add(dtype)
            samples = sample(storage, file) if isinstance(storage, LocalStorage) else 0
            columns = {"offsets": borders[:-1], "lengths": np.diff(borders)}
            checks: dict[str, Any] = {"crc32c": crc32c(data, samples), "samples": samples, "identity": storage.identity(file)}
            found.append(Index(kind=MegatronFormat.kind, options={}, size=size, columns=columns, **checks))
        if len(dtypes) > 1:
            raise PlanError(
                f"the files hold tokens of {' and '.join(sorted(map(str, dtypes)))}",
                where=_CALLER,
                fix="make a dataset of each kind, and join them with concatenate or mix",
            )
        form = MegatronFormat(dtypes.pop())
        self._itemsize = form.dtype.itemsize
        super().__init__(storage, form, _CALLER, noun="sequence" if sequences else "document", indices=joined(found, files))

    def known_numbers(self) -> dict[str, KnownNumber]:
        """Return "num_tokens", and "num_bytes"."""
        return {"num_tokens": KnownNumber("num_tokens", self, self._num_tokens), **super().known_numbers()}

    def _num_tokens(self, indices: Ints) -> Any:
        return self._num_bytes(indices) // self._itemsize


def megatron_source(pattern: Any, *, sequences: bool) -> MegatronSource:
    """Open datasets; arguments and errors as `penstock.read_megatron`."""
    storage, indices = (open_storage(_ending_with(pattern, ending), _CALLER) for ending in (".bin", ".idx"))
    return MegatronSource(storage, indices, sequences=sequences)


def _ending_with(pattern: Any, ending: str) -> Any:
    """Return the pattern of one of the two files, for that of either, or of their names without an ending."""
    if isinstance(pattern, RemoteFiles):
        return replace(pattern, urls=_ending_with(pattern.urls, ending))
    if isinstance(pattern, (list, tuple)):
        return [_ending_with(one, ending) for one in pattern]
    if not isinstance(pattern, (str, os.PathLike)):
        return pattern  # refused where it is opened
    return os.fsdecode(pattern).removesuffix(".bin").removesuffix(".idx") + ending


# -- the index ----------------------------------------------------------------------------------------------------------------------

_START = MEGATRON + struct.pack("<Q", 1)
_HEADER = struct.Struct("<17sBQQ")
_AGAIN = "get both files of the dataset again, or write them again"


def decode_index(data: bytes, name: str, bin_bytes: int, *, sequences: bool) -> tuple[np.dtype[Any], Ints]:
    """Read an index, and compare it with the size of its .bin file.

    Args:
        data: the whole .idx file.
        name: of the file, for errors.
        bin_bytes: size of the .bin file.
        sequences: whether the borders are those of sequences; else of documents.

    Returns:
        The dtype of the tokens, and int64 [n + 1]: where in the .bin file each document or sequence begins, and the end of the last.

    Raises:
        RecordError: it is no such index, is cut or damaged, or is that of another .bin file; with file and offset.
    """
    if not data.startswith(_START) or len(data) < _HEADER.size:
        what = f"the file of {len(data)} bytes begins with {data[: len(_START)]!r}, not as an index of Megatron-LM, version 1, does"
        raise _bad(what, name, 0, "give the pair of files that Megatron's preprocess_data.py wrote")
    _, code, count, num_documents = _HEADER.unpack_from(data)
    places = [_HEADER.size + num_bytes * count for num_bytes in (0, 4, 12)]
    end = places[2] + 8 * num_documents
    if len(data) not in (end, end + count):
        what = f"the header says {count} sequences and {num_documents} document indices, which end at byte {end}"
        raise _bad(f"{what}, and the file has {len(data)}", name, len(data), _AGAIN)
    dtype = CODES.get(code)
    if dtype is None:
        raise _bad(f"the dtype of the tokens has code {code}, which is none of integers", name, 17, "write tokens as uint16 or int32")
    lengths, pointers, documents = map(np.frombuffer, [data] * 3, ("<i4", "<i8", "<i8"), (count, count, num_documents), places)
    borders = np.append(0, np.cumsum(lengths, dtype=np.int64) * dtype.itemsize)
    wrong = np.flatnonzero((pointers != borders[:-1]) | (lengths < 0))
    if wrong.size:
        what = f"sequence {wrong[0]} has no length, or does not begin where the one before it ends"
        raise _bad(what, name, places[1] + 8 * wrong[0], _AGAIN)
    if borders[-1] != bin_bytes:
        what = f"the sequences end at byte {borders[-1]} of the .bin file, and it has {bin_bytes}"
        raise _bad(f"{what}: one of the two is cut, or of another dataset", name, len(data), _AGAIN)
    if sequences:
        return dtype, borders
    if documents[:1].tolist() + documents[-1:].tolist() != [0, count] or (np.diff(documents) < 0).any():
        what = f"the document indices do not ascend from 0 to {count}, the number of sequences"
        raise _bad(what, name, places[2], "give sequences=True to read each sequence as an element, as GPTDataset does")
    return dtype, borders[documents]


def encode_index(lengths: Sequence[int], dtype: np.dtype[Any]) -> bytes:
    """Return the index of documents that are one sequence each.

    Args:
        lengths: tokens of each document.
        dtype: of the tokens, one of `CODES`.
    """
    code = next(code for code, known in CODES.items() if known == dtype)
    sizes, count = np.asarray(lengths, "<i4"), len(lengths)
    pointers = (np.cumsum(sizes, dtype="<i8") - sizes) * dtype.itemsize
    return _HEADER.pack(_START, code, count, count + 1) + b"".join(
        map(np.ndarray.tobytes, (sizes, pointers, np.arange(count + 1, dtype=np.int64)))
    )


def _bad(what: str, name: str, offset: Any, fix: str) -> RecordError:
    return RecordError(what, where=f"{shown(name)}, offset {offset}", fix=fix)
