"""Samples of tar files in WebDataset's convention."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from penstock._contracts.storage import Storage
from penstock._system.lazy import dataclass
from penstock._system.text import shown
from penstock.errors import PlanError, RecordError
from penstock.formats.compression import PlainPart
from penstock.formats.index import Indices
from penstock.formats.tar import LEFT_OUT, TarSample, decode_field, find_samples, split_samples, stays_bytes, stream_samples
from penstock.kernels.columns import LARGE_BYTES, copies
from penstock.kernels.library import Ints, Uint8s
from penstock.sources.compressed import RecordStream, is_compressed
from penstock.sources.records import RECORD_SUMS, RecordSource, RecordTable


@dataclass(frozen=True, slots=True, kw_only=True)
class TarFormat:
    """See `RecordFormat`: a record is a sample, from its first header to the padding of its last member.

    Args:
        fields: the extensions wanted, each a tuple of alternatives the first of which names the field; None: all that are there.
        decode: "basic", or None for bytes.
        verify: compare each sample with its check sum in the index.
        missing_end: as `TarSource`, of files that are read as a stream.
        links: likewise.
    """

    kind: ClassVar[str] = "tar"
    options: ClassVar[dict[str, Any]] = {}
    """Nothing: where samples lie depends on the file alone."""
    separator: ClassVar[None] = None

    fields: tuple[tuple[str, ...], ...] | None = None
    decode_by: str | None = None
    verify: bool = True
    missing_end: str = "warn"
    links: str = "error"

    @property
    def checks_records(self) -> bool:
        """Tell whether samples are compared with their check sums in the index."""
        return self.verify

    def scan(self, pieces: Iterator[Uint8s], size: int, name: str) -> dict[str, Any]:
        """Find the samples of one file.

        Raises:
            RecordError: see docs/formats/tar.md.
        """
        return find_samples(pieces, size, name)

    def stream(self, pieces: Iterator[Uint8s], name: str) -> Iterator[PlainPart]:
        """Find the samples of a file piece by piece.

        Raises:
            RecordError: as `scan`; links, or a missing end, where these are to be errors.
        """

        def check(meta: Mapping[str, Any]) -> None:
            last.update(meta)
            if self.links == "error" and _has_odd(meta):
                raise _odd_members(name, meta)

        last: dict[str, Any] = {}
        yield from stream_samples(pieces, name, check)
        if last["end"] != "blocks":
            _judge_end(f"{shown(name)}", f"read_tar, {shown(name)}", self.missing_end)

    def decode(self, data: memoryview, table: RecordTable, index: int) -> dict[str, Any]:
        """Return one sample.

        Raises:
            RecordError: its bytes are damaged, a field is missing or is not what it should be.
        """
        whole = np.frombuffer(data, np.uint8)
        rows: list[dict[str, Any]] = []
        error = self.decode_block(whole, np.zeros(1, np.int64), np.array([whole.size]), table, np.array([index]), rows)
        if error is not None:
            raise error
        return rows[0]

    def decode_block(
        self, data: Uint8s, begins: Ints, ends: Ints, table: RecordTable, indices: Ints, rows: list[Any]
    ) -> RecordError | None:
        """Append the samples that lie in `data` to `rows`, up to the first bad one; return what is wrong with that, or None."""
        crcs = table.columns[RECORD_SUMS][indices] if self.verify else None
        samples: list[TarSample] = []

        def place(sample: int) -> tuple[str, int]:
            index = int(indices[sample])
            return table.names[table.place(index)[0]], int(table.columns["offsets"][index])

        error = split_samples(data, begins, ends - begins, crcs, samples, place)
        self._copy_large(samples)
        make: Callable[[TarSample], dict[str, Any]] = self._all if self.fields is None else self._chosen
        for sample in samples:
            try:
                rows.append(make(sample))
            except RecordError as wrong:
                wrong.add_note(f"in the sample with key {shown(sample.key)}")
                return wrong
        return error

    def _copy_large(self, samples: list[TarSample]) -> None:
        """Make bytes of the large fields that are wanted as such, all at once; `bytes` of those is then the same object."""
        wanted = self.fields and {name for alternatives in self.fields for name in alternatives}
        decode = self.decode_by is not None
        large = [
            (sample.fields, name)
            for sample in samples
            for name, data in sample.fields.items()
            if len(data) >= LARGE_BYTES and (wanted is None or name in wanted) and (not decode or stays_bytes(name))
        ]
        for (fields, name), data in zip(large, copies([memoryview(fields[name]) for fields, name in large]), strict=True):
            fields[name] = data

    def _all(self, sample: TarSample) -> dict[str, Any]:
        element: dict[str, Any] = {"__key__": sample.key}
        decode = self.decode_by is not None
        for name, data in sample.fields.items():
            element[name] = decode_field(name, data) if decode else bytes(data)
        return element

    def _chosen(self, sample: TarSample) -> dict[str, Any]:
        element: dict[str, Any] = {"__key__": sample.key}
        found = sample.fields
        for alternatives in self.fields or ():
            name = next((name for name in alternatives if name in found), None)
            if name is None:
                raise RecordError(
                    f"the sample has no field {' or '.join(map(repr, alternatives))}; it has {', '.join(map(repr, found))}",
                    where=f"read_tar, argument 'fields', key {shown(sample.key)}",
                    fix='name what every sample has, or alternatives as in "jpg;png"; on_error=ps.Skip() leaves such samples out',
                )
            data = found[name]
            element[alternatives[0]] = bytes(data) if self.decode_by is None else decode_field(name, data)
        return element


class TarSource(RecordSource):
    """Serve the samples of tar files: {"__key__": str, extension: bytes, ...}.

    Args:
        storage: the files.
        format: what of them is read how.

    Raises:
        RecordError: a file that is not what it should be, or holds what is not read.
        SourceError, OSError: a file that cannot be read.
    """

    def __init__(self, storage: Storage, format: TarFormat) -> None:
        self._tar = format
        super().__init__(storage, format, "read_tar", noun="sample")
        indices, names = self.table.indices, self.table.names
        open_files = _noted(indices, lambda meta: meta.get("end") != "blocks")
        if open_files:  # they may have been cut where a sample ends
            name, more = names[open_files[0]], "" if len(open_files) == 1 else f" and {len(open_files) - 1} more files"
            _judge_end(f"{shown(name)}{more}", f"read_tar, {shown(name)}, offset {indices.sizes[open_files[0]]}", format.missing_end)
        for file in _noted(indices, _has_odd) if format.links == "error" else ():
            raise _odd_members(names[file], indices.meta(file))

    def _decode(self, data: Uint8s, begins: Ints, ends: Ints, places: Ints, rows: list[Any]) -> None:
        before = len(rows)
        wrong = self._tar.decode_block(data, begins, ends, self.table, places, rows)
        if wrong is not None:
            wrong.add_note(f"decoding {self.describe(int(places[len(rows) - before]))}")
            raise wrong

    def left_out(self) -> dict[str, int]:
        """Count the members of all files that are no part of a sample, by kind; kinds that did not occur are not there."""
        indices = self.table.indices
        files_with = np.bincount(indices.meta_of, minlength=len(indices.metas)).tolist()
        notes = list(zip(files_with, indices.metas, strict=True))
        counts = {kind: sum(files * int(meta.get(kind, 0)) for files, meta in notes) for kind in LEFT_OUT}
        return {kind: count for kind, count in counts.items() if count}

    def fingerprint(self) -> dict[str, Any]:
        """Return what `RecordSource` does, and which fields are read how."""
        fields = None if self._tar.fields is None else [";".join(names) for names in self._tar.fields]
        return {**super().fingerprint(), "fields": fields, "decode": self._tar.decode_by}

    def label(self) -> str:
        """Return the call with the numbers of elements and files, and what is left out."""
        left = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in self.left_out().items())
        return super().label().removesuffix(")") + (f"; left out: {left})" if left else ")")


_KNOWN = {"decode": (None, "basic"), "missing_end": ("warn", "error", "accept"), "links": ("error", "skip")}


def tar_source(storage: Storage, *, fields: Any, decode: Any, verify: bool, **options: Any) -> TarSource | RecordStream:
    """Return the source for tar files: a stream where the name of one says that it is compressed, in which nothing has a check sum.

    Args:
        storage: the files.
        fields: the extensions wanted, such as ["jpg;jpeg;png", "cls"]; None: all that are there.
        decode: "basic" for numbers, texts, JSON and arrays by extension; None: bytes.
        verify: compare each sample that is read with its check sum in the index.
        options: "missing_end", of files without the two blocks of zeros at their end: "warn", "error" or "accept"; "links", of links and
            special files, whose data are not in the file: "error", or "skip", which counts them.

    Raises:
        PlanError: an argument that is not known.
        RecordError, SourceError, OSError: as `TarSource`.
    """
    for argument, value in {"decode": decode, **options}.items():
        if value not in _KNOWN[argument]:
            fix = f"give {' or '.join(map(repr, _KNOWN[argument]))}"
            raise PlanError(f"{argument}={value!r} is not known", where=f"read_tar, argument {argument!r}", fix=fix)
    streams = is_compressed(storage)
    format = TarFormat(fields=_alternatives(fields), decode_by=decode, verify=verify and not streams, **options)
    return RecordStream(storage, format, "read_tar") if streams else TarSource(storage, format)


def _alternatives(fields: Any) -> tuple[tuple[str, ...], ...] | None:
    """Return the names of each field that is wanted."""
    if fields is None:
        return None
    good = isinstance(fields, (list, tuple)) and fields and all(isinstance(name, str) and name for name in fields)
    wanted = tuple(tuple(name.split(";")) for name in fields) if good else ()
    firsts = [names[0] for names in wanted]
    if not good or len(set(firsts)) < len(firsts) or "__key__" in firsts:
        raise PlanError(
            f"fields={fields!r} is no list of different extensions",
            where="read_tar, argument 'fields'",
            fix='give a list such as ["jpg;jpeg;png", "cls"]; the key always comes as "__key__"',
        )
    return wanted


def _judge_end(whose: str, where: str, missing_end: str) -> None:
    what = f"{whose}: there are no two blocks of zeros at the end, so the archive may have been cut where a member ends"
    if missing_end == "error":
        raise RecordError(what, where=where, fix='get another copy, or give missing_end="accept" if all is there')
    if missing_end == "warn":
        warnings.warn(f'{what}; missing_end="accept" says that all is there', stacklevel=3)


def _has_odd(meta: Mapping[str, Any]) -> bool:
    return bool(meta.get("links", 0) or meta.get("special", 0))


def _odd_members(name: str, meta: Mapping[str, Any]) -> RecordError:
    return RecordError(
        f"there are {meta.get('links', 0)} links and {meta.get('special', 0)} devices or other special members, whose data are not in "
        "the archive",
        where=f"read_tar, {shown(name)}, the first one at offset {meta.get('first_odd')}",
        fix='write it with `tar --dereference --hard-dereference`, or give links="skip" if samples are whole without them',
    )


def _noted(indices: Indices, wanted: Callable[[Mapping[str, Any]], Any]) -> list[int]:
    """Return the files of which the format noted something."""
    found: list[int] = np.flatnonzero(np.array([bool(wanted(meta)) for meta in indices.metas])[indices.meta_of]).tolist()
    return found
