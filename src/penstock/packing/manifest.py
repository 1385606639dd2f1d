"""The manifest of a packed dataset, and packed data as a dataset again.

The manifest says what is in the dataset, how it is written, and the size and hash of each file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from penstock._contracts.event import ElementLost
from penstock._contracts.policy import Policy
from penstock._contracts.version import VERSION
from penstock._plan.base import Node
from penstock._plan.facts import identity
from penstock._plan.known import Measure
from penstock._storage.listing import refuse_url
from penstock._system.failing import text_of
from penstock._system.lazy import dataclass
from penstock._system.text import redacted
from penstock.dataset import opening as reading
from penstock.dataset.builder import Dataset
from penstock.errors import PackError, PlanError, RecordError, SourceError, SpecError
from penstock.formats.arrow import pyarrow
from penstock.formats.features import Feature, FixedLenFeature, VarLenFeature
from penstock.formats.tar import decode_field
from penstock.packing.disk import Folder, Inputs, difference, sha256_of, strangers
from penstock.packing.encoders import SUFFIXES
from penstock.packing.options import PackOptions
from penstock.packing.schema import SINGLE, Field, NoSchema, Schema, from_raw, shaped
from penstock.sources.decoded import DecodedSource
from penstock.sources.measures import PackedColumn

_FORM = 1
_SUFFIX = "-manifest.json"
_MOST_BYTES = 1 << 30
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One file: name, elements, bytes and SHA-256, and the files that belong to it, such as its index."""

    name: str
    count: int
    size: int
    sha256: str
    beside: tuple[ShardEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A packed dataset.

    Attributes:
        path: of the manifest.
        record: all of it as it stands in the file; see docs/formats/manifest.md.
        format, compression: as in `PackOptions`.
        columns: how the fields are written.
        shards: the files, in order.
        skipped: the elements that were left out, a record each.
        was_there: `pack` found all of it finished, compared every file with its hash, and wrote nothing.
    """

    path: str
    record: dict[str, Any]
    format: str
    compression: str | None
    columns: tuple[Field, ...]
    shards: tuple[ShardEntry, ...]
    skipped: tuple[dict[str, Any], ...]
    was_there: bool = False

    def __len__(self) -> int:
        """Count the elements."""
        return sum(shard.count for shard in self.shards)

    @property
    def folder(self) -> str:
        """Return the folder of the files."""
        return os.path.dirname(os.path.abspath(self.path))

    @property
    def num_bytes(self) -> int:
        """Return the size of all files."""
        return sum(shard.size for shard in self.shards)

    def files(self) -> list[str]:
        """Return the paths of the files, in order."""
        return [os.path.join(self.folder, shard.name) for shard in self.shards]

    def check_files(self, *, hashes: bool = False) -> None:
        """Make sure that the files are those that were packed: none is missing or too many, and sizes, or all bytes, are right.

        Args:
            hashes: read every file and compare its SHA-256; else only names and sizes are looked at.

        Raises:
            SourceError: the first file that is not what it was.
            OSError: a file cannot be read.
        """
        problem = next(self.problems(hashes=hashes), None)
        if problem is not None:
            raise SourceError(
                problem,
                where=f"manifest {self.path!r}",
                fix="restore the file from a copy, move away what does not belong there, or pack again",
            )

    def problems(self, *, hashes: bool) -> Iterator[str]:
        """Give what is wrong with the files, a sentence each; see `check_files`."""
        every = [one for shard in self.shards for one in (shard, *shard.beside)]
        for shard in every:
            path = os.path.join(self.folder, shard.name)
            if not os.path.isfile(path):
                yield f"{shard.name!r} is missing: it had {shard.count} of {len(self)} elements"
            elif os.path.getsize(path) != shard.size:
                yield f"{shard.name!r} has {os.path.getsize(path)} bytes and had {shard.size} when it was packed"
            elif hashes and sha256_of(path) != shard.sha256:
                yield f"{shard.name!r} has other bytes than when it was packed: its SHA-256 differs"
        for name in strangers(self.folder, [shard.name for shard in every]):
            yield f"{name!r} looks like a shard and is not of this dataset"


def lost_record(event: ElementLost) -> dict[str, Any]:
    """Return what a manifest says of an element that was left out; a manifest goes where the data go, so it has no secrets."""
    record = {"where": event.where, "stage": event.stage, "error": type(event.error).__name__, "text": redacted(text_of(event.error))}
    return {"key": [list(key) for key in event.keys], **record, "retries": event.retries}


def find_manifest(path: str | os.PathLike[str]) -> str:
    """Return the path of a manifest, given itself or its folder.

    Raises:
        PlanError: a URL in place of a path.
        SourceError: it is not there, or the folder has none, or several.
    """
    text = os.fspath(path)
    if not os.path.isdir(text):
        refuse_url(text, "read_packed")
        if not os.path.lexists(text):
            raise SourceError(f"{text!r} is not there", where="a packed dataset", fix="give the folder that was packed to, or its manifest")
        return text
    found = manifests_in(text)
    if len(found) != 1:
        what = f"the manifests {', '.join(map(os.path.basename, found))}" if found else "no manifest"
        unfinished = not found and os.path.isdir(os.path.join(text, ".packing"))
        raise SourceError(
            f"{text!r} holds {what}" + (": a packing that was not finished" if unfinished else ""),
            where="a packed dataset",
            fix="run `penstock pack` again with the same options"
            if unfinished
            else "give the folder that `penstock pack` wrote, or the file of one manifest",
        )
    return found[0]


def manifests_in(folder: str) -> list[str]:
    """Return the paths of all manifests in a folder, sorted."""
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(_SUFFIX)]


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Read the manifest of a packed dataset.

    Args:
        path: the folder, or the file.

    Raises:
        SourceError: there is none.
        RecordError: it cannot be read: it is cut, changed or of another version.
        OSError: as the system says it.
    """
    file_name = find_manifest(path)
    with open(file_name, "rb") as file:
        data = file.read(_MOST_BYTES)
    try:
        return _manifest(file_name, json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RecordError(
            f"the manifest cannot be read: {type(error).__name__}: {error}",
            where=f"manifest {file_name!r}",
            fix="restore it from a copy, or pack the dataset again",
        ) from error


def found_in(folder: Folder, options: PackOptions, record: dict[str, Any], inputs: Inputs) -> Manifest | None:
    """Return the manifest of an earlier run that wrote the same, None when there is none.

    Args:
        folder: the destination.
        options: have the manifest's name.
        record: of the manifest that would be written, or a part of it.
        inputs: what the input files are like now.

    Raises:
        PackError: there is one of something else, or its files are not what they were.
        RecordError: it cannot be read.
    """
    path = folder.file(options.manifest_name())
    if not os.path.lexists(path):
        return None
    manifest = read_manifest(path)
    other = difference(manifest.record, record, lossy=bool(manifest.skipped))
    if not other and folder.inputs(options.manifest_name()) != inputs.digest:
        other = "the input files have changed, or nothing says which they were"
    problem = other or next(manifest.problems(hashes=True), None)
    if problem:
        raise PackError(
            f"the folder holds a packed dataset {options.name!r} already, and {problem}",
            where=f"pack() to {folder.path!r}",
            fix="give another folder or name=, or remove what is there and pack again",
        )
    return replace(manifest, was_there=True)


def record_of(
    options: PackOptions, policy: Policy, root: Node, schema: Schema | None = None, counts: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return what the bytes depend on, as it stands in the manifest; of a stream columns and counts are not known when it begins."""
    return {
        "penstock_pack": _FORM,
        "format": options.format,
        "compression": options.compression,
        **({} if schema is None else {"fields": schema.as_json()}),
        "options": {**options.as_json(), "on_error": repr(policy)},
        **(counts or {}),
        "dataset": identity(root, ""),
        "versions": _versions(options),
    }


def with_notes(record: dict[str, Any], notes: list[dict[str, Any]], lost_before: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the manifest, given the notes of its shards; `lost_before` was left out before there were shards.

    Losses of several stages come in an order that depends on the workers, so they are sorted.
    """
    skipped = [{"shard": None, **lost} for lost in sorted(lost_before, key=_place_of)]
    skipped += [{"shard": number, **lost} for number, note in enumerate(notes) for lost in sorted(note["skipped"], key=_place_of)]
    keys = ("name", "count", "size", "sha256", "first", "positions", "beside")
    shards = [{key: note[key] for key in keys if key in note} for note in notes]
    return {
        **record,
        "count": sum(note["count"] for note in notes),
        "size": sum(note["size"] for note in notes),
        "num_skipped": len(skipped),
        "shards": shards,
        "skipped": skipped,
    }


def _place_of(lost: dict[str, Any]) -> Any:
    return lost["key"], lost["where"], lost["stage"], lost["text"]


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest with the hash of itself."""
    return {**record, "sha256": _hash(record)}


def _hash(record: dict[str, Any]) -> str:
    rest = {key: value for key, value in record.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _manifest(path: str, record: Any) -> Manifest:
    if record["sha256"] != _hash(record):
        raise NoSchema("its own SHA-256 is wrong: it was changed")
    if record["penstock_pack"] != _FORM:
        raise NoSchema(f"its form is {record['penstock_pack']!r}, and {_FORM} is known")
    shards = tuple(_shard(part) for part in record["shards"])
    if not shards or record["count"] != sum(shard.count for shard in shards) or record["size"] != sum(shard.size for shard in shards):
        raise NoSchema("the counts or sizes of the shards are not those of the whole")
    schema = Schema.from_json(record["fields"])
    if record["format"] not in SUFFIXES or not isinstance(record["options"]["name"], str):
        raise NoSchema(f"format {record['format']!r}")
    return Manifest(
        path=path,
        record=record,
        format=record["format"],
        compression=record["compression"],
        columns=schema.fields,
        shards=shards,
        skipped=tuple(dict(part) for part in record["skipped"]),
    )


def _shard(part: Any) -> ShardEntry:
    name, count, size, sha256 = part["name"], part["count"], part["size"], part["sha256"]
    if not isinstance(name, str) or not name or os.path.basename(name) != name or name in (".", ".."):
        raise NoSchema(f"{name!r} is no file name")
    if type(count) is not int or type(size) is not int or count < 0 or size < 0 or not _SHA256.fullmatch(sha256):
        raise NoSchema(f"shard {name!r} has no count, size and SHA-256")
    beside = tuple(_shard({**other, "count": count}) for other in part.get("beside", ()))
    return ShardEntry(name=name, count=count, size=size, sha256=sha256, beside=beside)


def _versions(options: PackOptions) -> dict[str, str]:
    """Return the versions of the libraries whose code writes the files."""
    versions = {"penstock": VERSION, "numpy": np.__version__}
    if options.format == "parquet":
        versions["pyarrow"] = pyarrow()[0].__version__
    return versions


def read_packed(path: str | os.PathLike[str]) -> Dataset:
    """Read what `pack` wrote: the same fields with the same types, in the order in which they were packed.

    Elements are dicts; fields of nested dicts have names such as "meta/size". Integers and floats are NumPy scalars; arrays may be written
    to, but for those of format "decoded", which are views of the mapped file. Sizes and names of the files are compared with the manifest
    first. It has positions, so `shuffle` is over all elements, and operators go by the numbers that `pack(measure=...)` has found; TFRecord
    with compression is a stream.

    Args:
        path: the folder, or the manifest.

    Raises:
        PlanError: they are tokens without documents, which `read_tokens` reads.
        SourceError: there is no manifest, or a file is missing, too many, or not as large as it was.
        RecordError: the manifest or a file cannot be read; a shard has another number of elements than were packed.
        MissingExtra: Parquet without pyarrow.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise PlanError(f"{path!r:.60} is no path", where="read_packed()", fix="give the folder that was packed into, or its manifest")
    manifest = read_manifest(path)
    manifest.check_files()
    files = manifest.files()
    if manifest.format == "tokens":
        pattern, dtype = files[0].replace("00000-of-", "*-of-"), manifest.columns[0].stored
        raise PlanError(
            "the files hold tokens, and nothing says where a document ends",
            where=f"read_packed(), manifest {manifest.path!r}",
            fix=f"read windows: ps.read_tokens({pattern!r}, length, dtype=np.{dtype})",
        )
    if manifest.format == "tfrecord":
        opened = reading.read_tfrecord(files, compression=manifest.compression, features=features_of(manifest), allow_empty=True)
    elif manifest.format == "megatron":
        opened = reading.read_megatron(files)
    elif manifest.format == "decoded":
        opened = reading.from_source(DecodedSource(files))
    else:
        opened = reading.read_tar(files) if manifest.format == "tar" else reading.read_parquet(files)
    if manifest.compression != "GZIP" and len(opened) != len(manifest):
        raise RecordError(
            f"the files hold {len(opened)} elements, and {len(manifest)} were packed",
            where=f"manifest {manifest.path!r}",
            fix="see which with `penstock inspect --verify`, and pack it again",
        )
    packed = opened if manifest.format == "decoded" else opened.map(Restore(manifest.columns), name="restore")
    measured = sorted(manifest.record["options"].get("measure", ()))
    if manifest.compression == "GZIP" or not measured:  # a stream has no positions
        return packed
    shards = tuple((os.path.join(manifest.folder, one.beside[-1].name), one.count, one.beside[-1].sha256) for one in manifest.shards)
    columns = {name: PackedColumn(name=name, place=place, files=shards) for place, name in enumerate(measured)}
    return packed._with(Measure(child=packed._root, columns=columns))


def features_of(manifest: Manifest) -> dict[str, Feature]:
    """Return the features of packed TFRecord files, for `read_tfrecord` or `parse_example`.

    Raises:
        SpecError: they are of another format.
    """
    if manifest.format != "tfrecord":
        raise SpecError(f"{manifest.format} files have no features", where=f"manifest {manifest.path!r}", fix="use read_packed")
    out: dict[str, Feature] = {}
    for column in manifest.columns:
        out[column.column] = _feature(column)
        if column.shapes:
            out[column.shapes] = FixedLenFeature((len(column.shape),), "int64")
    return out


def _feature(field: Field) -> Feature:
    if field.stored in ("bytes", "str", "raw"):
        return FixedLenFeature((), bytes)
    dtype = "float32" if np.dtype(field.dtype).kind == "f" else "int64"
    sizes = [size for size in field.shape if size is not None]
    # The length of a vector may differ even where it did not in the sample.
    return FixedLenFeature(sizes, dtype) if len(sizes) == len(field.shape) != 1 else VarLenFeature(dtype)


@dataclass(frozen=True, slots=True)
class Restore:
    """Turn what stands in the files into what was packed. For `Dataset.map`; from any thread."""

    columns: tuple[Field, ...]

    def __call__(self, found: Mapping[str, Any]) -> Any:
        """Return the element; a dataset of single values gives these."""
        out = {field.name: _restored(field, found) for field in self.columns}
        return out[SINGLE] if self.columns[0].single else out


def _restored(field: Field, found: Mapping[str, Any]) -> Any:
    value = found[field.column]
    if field.kind == "bytes":
        return bytes(value)
    if field.kind == "str":
        return value if isinstance(value, str) else bytes(value).decode()
    shape = found[field.shapes] if field.shapes else None
    if field.stored in ("npy", "text"):
        value = decode_field(field.column, memoryview(value), allow_nan=True)
    if field.stored == "raw":
        array = from_raw(field, value, shape)
    else:
        array = np.asarray(value).astype(field.dtype, copy=False)
        if field.stored == "list":
            array = shaped(field, array, shape)
    return array if field.shape else array.reshape(())[()]
