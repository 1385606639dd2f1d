"""The indices of many files as arrays: no Python object for each file, and one file on disk for all. See docs/formats/index.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import RecordError
from penstock.formats.index import Index, decode, is_own_of_file, parts

__all__ = ["Indices", "catalogue_parts", "joined", "read_catalogue"]

_KIND = "catalogue"
_OWN, _OWN_ENDS = "file_own_", "file_ends_of_"
_FACTS = {"sizes": np.int64, "versions": np.int64, "crcs": np.uint32, "samples": np.uint32, "meta_of": np.int32}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Indices:
    """What the indices of several files say.

    Attributes:
        starts: int64 [files + 1], the number of the first record of each file, and the number of all.
        columns: those of the records, of all files, one behind the other: "offsets" int64 [n], "lengths" uint32 or int64 [n], and the
            format's own.
        file_columns: those of the files, by name: the values of all files, and int64 [files], where each file's end.
        sizes: int64 [files], bytes of each.
        crcs, samples: uint32 [files], check sums as in `Index`.
        metas: what the format noted of files, each that is different once.
        meta_of: int32 [files], which of them is each file's.
        etags: of each file of a store, "" where there is none; None for files of this machine.
    """

    starts: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]
    file_columns: Mapping[str, tuple[NDArray[Any], NDArray[np.int64]]]
    sizes: NDArray[np.int64]
    crcs: NDArray[np.uint32]
    samples: NDArray[np.uint32]
    metas: Sequence[Mapping[str, Any]]
    meta_of: NDArray[np.int32]
    etags: Sequence[str] | None

    def __len__(self) -> int:
        return len(self.sizes)

    def meta(self, file: int) -> Mapping[str, Any]:
        """Return what the format noted of a file."""
        return self.metas[int(self.meta_of[file])]

    def columns_of_file(self, file: int) -> dict[str, NDArray[Any]]:
        """Return those columns of a file that are not one entry per record; empty ones are left out."""
        out = {}
        for name, (values, ends) in self.file_columns.items():
            begin, end = int(ends[file - 1]) if file else 0, int(ends[file])
            if begin < end:
                out[name] = values[begin:end]
        return out

    def index(self, file: int, kind: str, options: Mapping[str, Any]) -> Index:
        """Return the index of one file again, but for its identity."""
        records = slice(int(self.starts[file]), int(self.starts[file + 1]))
        return Index(
            kind=kind,
            options=options,
            size=int(self.sizes[file]),
            crc32c=int(self.crcs[file]),
            samples=int(self.samples[file]),
            meta=self.meta(file),
            columns={name: values[records] for name, values in self.columns.items()} | self.columns_of_file(file),
        )


def joined(indices: Sequence[Index], names: Sequence[str]) -> Indices:
    """Put the indices of files together; `names` are those of the files, for errors.

    Raises:
        RecordError: files whose indices have other columns.
    """
    starts = np.zeros(len(indices) + 1, np.int64)
    np.cumsum([len(index) for index in indices], out=starts[1:])
    columns: dict[str, NDArray[Any]] = {}
    for key in indices[0].columns:
        if is_own_of_file(key):
            continue
        present = [index.columns[key] for index in indices if key in index.columns]
        if len(present) < len(indices):
            name = next(name for name, index in zip(names, indices, strict=True) if key not in index.columns)
            raise RecordError(f"the index of {name!r} has no column {key!r}", where=name, fix="build the index again")
        columns[key] = present[0] if len(present) == 1 else np.concatenate(present)
    metas: dict[str, int] = {}
    texts = [json.dumps(dict(index.meta), sort_keys=True) for index in indices]
    numbers = [metas.setdefault(text, len(metas)) for text in texts]
    etags = [str(index.identity.get("etag") or "") for index in indices]
    return Indices(
        starts=starts,
        columns=columns,
        file_columns=_file_columns(indices),
        sizes=np.array([index.size for index in indices], np.int64),
        crcs=np.array([index.crc32c for index in indices], np.uint32),
        samples=np.array([index.samples for index in indices], np.uint32),
        metas=[json.loads(text) for text in metas],
        meta_of=np.array(numbers, np.int32),
        etags=etags if any(etags) else None,
    )


def _file_columns(indices: Sequence[Index]) -> dict[str, tuple[NDArray[Any], NDArray[np.int64]]]:
    keys = {key: None for index in indices for key in index.columns if is_own_of_file(key)}
    out = {}
    for key in keys:
        values = [index.columns.get(key) for index in indices]
        ends = np.cumsum([0 if value is None else len(value) for value in values]).astype(np.int64, copy=False)
        if ends[-1]:
            out[key] = np.concatenate([value for value in values if value is not None]), ends
    return out


def catalogue_parts(
    indices: Indices, versions: NDArray[np.int64], kind: str, options: Mapping[str, Any], notes: Mapping[str, Any]
) -> list[bytes | memoryview]:
    """Return the bytes of one file that holds all of them, in pieces. It is an `Index` in form, of all records of all files.

    Args:
        indices: of files of this machine.
        versions: int64 [files], what tells one version of each from another, when it was found to fit its index; -1 where nothing does.
        kind: of the format.
        options: of the format.
        notes: whatever else is to be kept, JSON-able.
    """
    columns: dict[str, NDArray[Any]] = dict(indices.columns)
    columns["file_starts"] = indices.starts
    facts: tuple[NDArray[Any], ...] = (indices.sizes, versions, indices.crcs, indices.samples, indices.meta_of)
    for name, values in zip(_FACTS, facts, strict=True):
        columns[f"file_{name}"] = values
    for name, (values, ends) in indices.file_columns.items():
        columns[_OWN + name], columns[_OWN_ENDS + name] = values, ends
    whole = Index(
        kind=_KIND,
        options={"kind": kind, "options": dict(options)},
        size=int(indices.sizes.max()),
        crc32c=0,
        meta={"metas": [dict(meta) for meta in indices.metas], "notes": dict(notes)},
        columns=columns,
    )
    return parts(whole)


def read_catalogue(data: bytes, where: str, kind: str, options: Mapping[str, Any]) -> tuple[Indices, NDArray[np.int64], dict[str, Any]]:
    """Read what `catalogue_parts` wrote: the indices, the versions and the notes. The arrays are views of `data`.

    Raises:
        RecordError: as `decode`, or it is none, or of another format, or does not fit together.
    """
    whole = decode(data, where)
    if (whole.kind, dict(whole.options)) != (_KIND, {"kind": kind, "options": dict(options)}):
        raise _no_fit("is of another kind", where)
    given, metas = whole.columns, whole.meta.get("metas")
    facts, starts = {name: given.get(f"file_{name}", np.zeros(0)) for name in _FACTS}, given.get("file_starts", np.zeros(0, np.int64))
    names = [name.removeprefix(_OWN) for name in given if name.startswith(_OWN)]
    own = {name: (given[_OWN + name], given.get(_OWN_ENDS + name, np.zeros(0, np.int64))) for name in names}
    notes = whole.meta.get("notes")
    _check_facts(facts, metas, where)
    if not isinstance(notes, dict):
        raise _no_fit("has no notes of its own", where)
    if len(starts) != len(facts["sizes"]) + 1 or starts[0] != 0:
        raise _no_fit("has no start for each file", where)
    for values, ends in [(given["offsets"], starts[1:]), *own.values()]:
        fit = len(ends) == len(facts["sizes"]) and ends.dtype == np.int64 and ends[0] >= 0 and ends[-1] == len(values)
        if not fit or (np.diff(ends) < 0).any():
            raise _no_fit("has columns that do not end where they should", where)
    records = {name: values for name, values in given.items() if not is_own_of_file(name)}
    if (records["offsets"] + records["lengths"] > np.repeat(facts["sizes"], np.diff(starts))).any():
        raise _no_fit("has a record that reaches beyond its file", where)
    indices = Indices(
        starts=starts,
        columns=records,
        file_columns=own,
        sizes=facts["sizes"],
        crcs=facts["crcs"],
        samples=facts["samples"],
        metas=metas or [],
        meta_of=facts["meta_of"],
        etags=None,
    )
    return indices, facts["versions"], notes


def _check_facts(facts: Mapping[str, NDArray[Any]], metas: Any, where: str) -> None:
    num_files = len(facts["sizes"])
    if not num_files or any(len(facts[name]) != num_files or facts[name].dtype != dtype for name, dtype in _FACTS.items()):
        raise _no_fit("says nothing of some files", where)
    if not isinstance(metas, list) or not all(isinstance(meta, dict) for meta in metas):
        raise _no_fit("has no notes", where)
    if facts["meta_of"].min() < 0 or facts["meta_of"].max() >= len(metas):
        raise _no_fit("has no notes of some files", where)


def _no_fit(what: str, where: str) -> RecordError:
    return RecordError(f"the catalogue {what}", where=where, fix="remove it: it is made again")
