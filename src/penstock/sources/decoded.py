"""Elements as they are used: arrays are views of the mapped file. What `pack(format="decoded")` writes, for `read_packed`.

NAME.bin has the elements one behind the other, and NAME.idx, an index of Penstock (docs/formats/index.md), their places. An element is a
head, and then the bytes of its fields that are no plain numbers; each begins at a multiple of 64 bytes of the file. The head has for each
field, little-endian and without gaps, the number itself, or the sizes as int64: of an array in all dimensions, of bytes and text in bytes.

The heads of a block are read with one call, which finds a file that was changed or cut. Pixels are not read before they are used: the
pages beside a crop stay on the disk.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Final

import numpy as np

from penstock._storage.local import LocalStorage
from penstock._system.lazy import dataclass
from penstock.errors import RecordError
from penstock.formats.compression import Writable
from penstock.formats.index import Index, decode, joined, parts
from penstock.kernels.framing import crc32c
from penstock.kernels.library import Ints, Uint8s
from penstock.sources.records import RecordSource, RecordTable

_CALLER: Final = "read_packed"
_ALIGNED: Final = 64
_TEXTS: Final[dict[str, Callable[[Any], Any]]] = {"bytes": bytes, "str": lambda data: bytes(data).decode()}
_AGAIN: Final = "restore both files of the shard from a copy, or pack again"


@dataclass(frozen=True, slots=True)
class DecodedFormat:
    """See `SpanFormat`.

    Attributes:
        fields: name, dtype ("bytes" and "str" for these) and number of dimensions of each: 0 for a number, 1 for bytes and text.
        single: an element is the value of its only field.
        head: dtype of a head.
    """

    kind: ClassVar[str] = "decoded"
    checks_records: ClassVar[bool] = False
    separator: ClassVar[None] = None

    fields: tuple[tuple[str, str, int], ...]
    single: bool
    head: np.dtype[Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = [("", "<i8", (num_dims,)) if num_dims else ("", dtype) for _, dtype, num_dims in self.fields]
        object.__setattr__(self, "head", np.dtype(parts))

    @property
    def options(self) -> dict[str, Any]:
        """Return what an index says of the fields."""
        return {"fields": [list(one) for one in self.fields], "single": self.single}

    def decode(self, data: memoryview, table: RecordTable, index: int) -> Any:
        """Return the element whose bytes these are; arrays are views of them.

        Raises:
            RecordError: they are none.
        """
        found, at = dict[str, Any](), _padded(self.head.itemsize)
        try:
            for (name, dtype, num_dims), value in zip(self.fields, np.ndarray(1, self.head, data)[0], strict=True):
                found[name] = value
                if num_dims:
                    text = _TEXTS.get(dtype)
                    values = np.ndarray(value.tolist(), dtype if text is None else np.uint8, data, at)
                    found[name] = values if text is None else text(values)
                    at += _padded(values.nbytes)
        except (TypeError, ValueError) as error:  # as NumPy says that the bytes are too few, or a size cannot be
            raise self._damaged(str(error), table, index) from error
        if at != len(data):
            raise self._damaged(f"its fields take {at} bytes of {len(data)}", table, index)
        return found[self.fields[0][0]] if self.single else found

    def _damaged(self, what: str, table: RecordTable, index: int) -> RecordError:
        return RecordError(f"an element is damaged: {what}", where=table.describe(index, "element"), fix=_AGAIN)


def _padded(num_bytes: int) -> int:
    return num_bytes + -num_bytes % _ALIGNED


class DecodedWriter:
    """Writes elements to a pair of files, from the first byte to the last.

    Args:
        format: of the elements.
        out: the .bin file.
        index: the .idx file.
    """

    def __init__(self, format: DecodedFormat, out: Writable, index: Writable) -> None:
        self._format, self._out, self._index = format, out, index
        self._offsets, self._crc = array("q", [0]), 0

    def add(self, values: Sequence[Any]) -> None:
        """Write an element: its values in the order of the fields."""
        head, parts = np.zeros(1, self._format.head), [b""]
        for place, (value, (_, _, num_dims)) in enumerate(zip(values, self._format.fields, strict=True)):
            data: Any = value.encode() if isinstance(value, str) else value
            is_text = isinstance(data, bytes)
            head[0][place] = data if not num_dims else len(data) if is_text else data.shape
            if num_dims:
                parts.append(data if is_text else data.tobytes())
        parts[0] = head.tobytes()
        whole = b"".join(part.ljust(_padded(len(part)), b"\0") for part in parts)
        self._out.write(whole)
        self._crc = crc32c(whole, self._crc)
        self._offsets.append(self._offsets[-1] + len(whole))

    def finish(self) -> None:
        """Write the index."""
        offsets = np.array(self._offsets, np.int64)
        columns = {"offsets": offsets[:-1], "lengths": np.diff(offsets)}
        form = self._format
        index = Index(kind=form.kind, options=form.options, size=int(offsets[-1]), crc32c=self._crc, columns=columns)
        self._index.write(b"".join(parts(index)))


class _Maps(dict[int, memoryview]):
    """The mapped files by number. In another process there is none yet."""

    def __reduce__(self) -> tuple[type[_Maps], tuple[()]]:
        return _Maps, ()


class DecodedSource(RecordSource):
    """Serve the elements of pairs of files. Arrays are read-only views of maps; a map goes with the last view of it.

    Args:
        paths: of the .bin files; each has its .idx beside it.

    Raises:
        RecordError: an index is damaged, or is not that of its file, which may be cut.
        SourceError, OSError: as `LocalStorage` says it.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        storage, beside = (LocalStorage([os.path.splitext(path)[0] + ending for path in paths], _CALLER) for ending in (".bin", ".idx"))
        found = []
        for file, path in enumerate(paths):
            try:
                index = decode(beside.read(file, 0, beside.size(file)), beside.name(file))
            except RecordError as error:
                raise RecordError(error.what, where=error.where, fix=_AGAIN) from error
            if index.kind != DecodedFormat.kind or index.size != storage.size(file):
                what = f"the file has {storage.size(file)} bytes, and its index is of {index.kind!r}, {index.size} bytes"
                raise RecordError(what, where=repr(path), fix=_AGAIN)
            # Samples are asked for of a small file only, and are then the check sum of all its bytes.
            found.append(replace(index, samples=index.crc32c, identity=storage.identity(file)))
        options = found[0].options
        form = DecodedFormat(tuple((name, dtype, num_dims) for name, dtype, num_dims in options["fields"]), options["single"])
        self._files, self._head_bytes, self._maps = storage, form.head.itemsize, _Maps()
        super().__init__(storage, form, _CALLER, noun="element", indices=joined(found, paths))

    def _spans(self, indices: Ints) -> Ints:
        """Return the places of the heads."""
        found = super()._spans(indices)
        found[2] = self._head_bytes
        return found

    def _decode(self, data: Uint8s, begins: Ints, ends: Ints, places: Ints, rows: list[Any]) -> None:
        files, columns = np.searchsorted(self.table.starts, places, "right") - 1, self.table.columns
        offsets, lengths = (columns[name][places].tolist() for name in ("offsets", "lengths"))
        for index, file, begin, length in zip(places.tolist(), files.tolist(), offsets, lengths, strict=True):
            view = self._maps.get(file) or self._map(file)
            rows.append(self._format.decode(view[begin : begin + length], self.table, index))

    def _map(self, file: int) -> memoryview:
        for oldest in list(self._maps)[: max(0, len(self._maps) + 1 - self._files.descriptors.capacity)]:  # a map holds a descriptor
            self._maps.pop(oldest, None)
        with open(self._files.path(file), "rb", buffering=0) as opened:
            made = self._maps[file] = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        return made
