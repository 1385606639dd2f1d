"""What is in a file of records: how many, how large, of what; and whether all of it can be trusted."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import PenstockError, RecordError, SourceError
from penstock.formats import index as sidecar
from penstock.kernels.framing import crc32c
from penstock.packing import looks
from penstock.packing.folder import sha256_of
from penstock.packing.manifest import Manifest, ShardEntry, find_manifest, manifests_in, read_manifest
from penstock.packing.reading import Restore
from penstock.packing.report import Inspection, pieces_of
from penstock.sources.indexing import cached_index, user_folder

__all__ = ["NO_COUNT", "NO_SUM", "inspect"]

NO_SUM = "no check sum of the whole file to check against: neither a manifest nor an index is beside it"
NO_COUNT = "no count to check against: that the file was cut between two records could not be seen"


def inspect(path: str | os.PathLike[str], *, verify: bool = False, num_samples: int = 3) -> list[Inspection]:
    """Look into a TFRecord, WebDataset tar, Parquet, index or manifest file, or a folder of such; told apart by their content.

    A damaged file is no error: what is wrong stands in `problems`. Blocks; reads TFRecord and tar files whole.

    Args:
        path: a file, or a folder: one with a manifest is a packed dataset.
        verify: check every check sum and every count, hashes of the manifest too; else only what is read anyway: of a TFRecord file the
            headers of all records, and the data of the first `num_samples`.
        num_samples: how many elements to decode, from the beginning of each file.

    Returns:
        One for each file; of a packed dataset the manifest first.

    Raises:
        SourceError: there is nothing to inspect: no such file, or none of a known kind.
        OSError: a file cannot be read.
    """
    text = os.fspath(path)
    if not os.path.exists(text):
        raise SourceError(f"{text!r} does not exist", where="penstock inspect", fix="give a file or folder")
    if os.path.isdir(text):
        try:
            text = find_manifest(text)
        except SourceError:
            return _folder(text, verify, num_samples)
    first = _one(text, None, verify, num_samples)
    if first is None:
        raise SourceError(
            f"{text!r} is no file that can be inspected",
            where="penstock inspect",
            fix="give a TFRecord, tar, Parquet, index (.psidx) or manifest file",
        )
    return first


def _folder(path: str, verify: bool, num_samples: int) -> list[Inspection]:
    found: list[Inspection] = []
    manifests = manifests_in(path)
    known = set(map(os.path.abspath, manifests))
    for name in manifests:
        found += _one(name, None, verify, num_samples) or []
        known.update(_listed(name))
    for name in sorted(os.listdir(path)):
        full = os.path.join(path, name)
        if os.path.isfile(full) and not name.startswith(".") and os.path.abspath(full) not in known:
            found += _one(full, None, verify, num_samples) or []
    if not found:
        raise SourceError(
            f"the folder {path!r} holds no file that can be inspected", where="penstock inspect", fix="give a folder of record files"
        )
    return found


def _listed(manifest: str) -> list[str]:
    """Return the files that a manifest lists; of one that cannot be read, which is told already, none."""
    try:
        return read_manifest(manifest).files()
    except RecordError:
        return []


def _one(path: str, manifest: Manifest | None, verify: bool, num_samples: int) -> list[Inspection] | None:
    """Look into a file; None when it is of no known kind."""
    with open(path, "rb") as file:
        head = file.read(1024)
    report = Inspection(path=path, kind="", size=os.path.getsize(path))
    if head.lstrip()[:1] == b"{" and b'"penstock_pack"' in head:
        return _packed(path, report, verify, num_samples)
    look = _look_of(path, head)
    if look is None:
        return None
    owner = _owner(path, report) if manifest is None else manifest
    try:
        look(report, verify, num_samples)
    except (PenstockError, ValueError) as error:
        report.add_problem(error)
    _restore(report, owner)
    if report.kind != "index":
        if verify and manifest is None and owner is not None:
            _check_hash(report, _entry(owner, path))
        _check_counts(report, owner, verify)
    return [report]


def _look_of(path: str, head: bytes) -> Callable[[Inspection, bool, int], None] | None:
    if head.startswith(b"PSINDEX\n") or path.endswith(sidecar.SUFFIX):
        return look_index
    if head.startswith(b"PAR1") or path.endswith(".parquet"):
        return looks.look_parquet
    if head[257:262] == b"ustar" or path.endswith(".tar"):
        return looks.look_tar
    if ".tfrecord" in os.path.basename(path) or looks.begins_as_tfrecord(head):
        return looks.look_tfrecord
    return None


def _packed(path: str, report: Inspection, verify: bool, num_samples: int) -> list[Inspection]:
    report.kind = "manifest of a packed dataset"
    try:
        manifest = read_manifest(path)
    except RecordError as error:
        report.add_problem(error)
        return [report]
    report.count, report.noun = len(manifest), f"records in {len(manifest.shards)} file{'s' if len(manifest.shards) > 1 else ''}"
    report.fields = [column.words() for column in manifest.columns]
    report.problems += manifest.problems(hashes=verify)
    if manifest.skipped:
        count = len(manifest.skipped)
        report.remarks.append(f"{'1 element was' if count == 1 else f'{count:,} elements were'} left out when it was packed")
    if verify and not report.problems:
        report.remarks.append("verified: names, sizes and SHA-256 of all files")
    out = [report]
    for number, file in enumerate(manifest.files()):
        if os.path.isfile(file) and (verify or number == 0):
            out += _one(file, manifest, verify, num_samples if number == 0 else 0) or []
    return out


def _owner(path: str, report: Inspection) -> Manifest | None:
    """Return the manifest beside a file that lists it. If none does, one that cannot be read is a problem: it may be that of the file."""
    unread: list[Exception] = []
    for name in manifests_in(os.path.dirname(os.path.abspath(path))):
        try:
            manifest = read_manifest(name)
        except (RecordError, OSError) as error:
            unread.append(error)
            continue
        if os.path.basename(path) in {shard.name for shard in manifest.shards}:
            return manifest
    for unreadable in unread:
        report.add_problem(unreadable)
    return None


def _entry(manifest: Manifest, path: str) -> ShardEntry:
    return next(shard for shard in manifest.shards if shard.name == os.path.basename(path))


def _check_hash(report: Inspection, entry: ShardEntry) -> None:
    """Compare all bytes with those that were packed; another size is told with the counts."""
    if report.size != entry.size:
        return
    if sha256_of(report.path) != entry.sha256:
        report.problems.append("it has other bytes than when it was packed: its SHA-256 differs from that in the manifest")
    else:
        report.remarks.append("verified: the SHA-256 of the manifest")


def _restore(report: Inspection, manifest: Manifest | None) -> None:
    """Show the samples of a packed file as what was packed."""
    if manifest is None or not report.samples:
        return
    restore = Restore(manifest.columns)
    try:
        restored = [restore({name: _single(value) for name, value in sample.items()}) for sample in report.samples]
    except (PenstockError, ValueError, KeyError, TypeError) as error:
        report.problems.append(f"a sample is not what the manifest says: {type(error).__name__}: {error}")
        return
    report.samples = [one if isinstance(one, dict) else {"value": one} for one in restored]
    report.fields = [column.words() for column in manifest.columns]


def _single(value: Any) -> Any:
    """Return what a feature of bytes has one of; numbers get their shape when they are restored."""
    return value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], bytes) else value


def _check_counts(report: Inspection, manifest: Manifest | None, verify: bool) -> None:
    """Compare the records that were found with what a manifest or an index says."""
    sources = []
    if manifest is not None:
        entry = _entry(manifest, report.path)
        sources.append(("the manifest", entry.count))
        if report.size != entry.size:
            report.problems.append(f"it has {report.size} bytes and had {entry.size} when it was packed")
    index = _index_of(report, verify)
    if index is not None:
        sources.append(("the index", len(index)))
    for name, count in sources:
        if count != report.count:
            report.problems.append(f"{report.count} {report.noun} were found, and {name} says {count}")
        elif verify:
            report.remarks.append(f"verified: as many {report.noun} as {name} says")
    if not sources and report.kind.startswith(("TFRecord", "WebDataset")):
        report.remarks.append(NO_COUNT)
    if verify and not sources and report.kind in ("WebDataset tar", "Parquet"):
        report.remarks.append(NO_SUM)


def _index_path(report: Inspection) -> str | None:
    """Return the path of a file's index: beside it, or in the user's cache folder."""
    kind = "tar" if report.kind == "WebDataset tar" else "tfrecord"
    cached = cached_index(user_folder(), os.path.abspath(report.path), kind, {})
    return next((path for path in (report.path + sidecar.SUFFIX, cached) if os.path.isfile(path)), None)


def _index_of(report: Inspection, verify: bool) -> sidecar.Index | None:
    path = _index_path(report)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            index = sidecar.decode(file.read(), path)
    except RecordError as error:
        report.problems.append(f"its index {os.path.basename(path)!r} cannot be used: {error.what}")
        return None
    if index.size != report.size:
        report.problems.append(f"it has {report.size} bytes, and had {index.size} when its index was built")
    elif verify and index.crc32c and index.crc32c != _crc_of(report.path):
        report.problems.append("its bytes are not those that its index was built of: the CRC32C of the file differs")
    return index


def look_index(report: Inspection, verify: bool, num_samples: int) -> None:
    """Look into a sidecar index.

    Raises:
        RecordError: it is damaged.
    """
    report.kind = "index"
    with open(report.path, "rb") as file:
        index = sidecar.decode(file.read(), report.path)
    report.kind, report.count = "index", len(index)
    report.lengths = index.columns["lengths"].astype(np.int64)
    report.remarks.append(f"of a {index.kind} file of {index.size:,} bytes")
    report.fields = [f"column {name!r}: {values.dtype.name} [{len(values)}]" for name, values in index.columns.items()]
    described = report.path.removesuffix(sidecar.SUFFIX)
    if not os.path.isfile(described):
        report.remarks.append(f"the file that it describes, {os.path.basename(described)!r}, is not beside it")
    elif os.path.getsize(described) != index.size:
        report.problems.append(
            f"{os.path.basename(described)!r} has {os.path.getsize(described)} bytes, and had {index.size} when it was built"
        )
    elif verify and index.crc32c and _crc_of(described) != index.crc32c:
        report.problems.append(f"{os.path.basename(described)!r} has other bytes than when it was built: its CRC32C differs")
    elif verify:
        report.remarks.append("verified: its own check sums, and those of the file that it describes")


def _crc_of(path: str) -> int:
    crc = 0
    for piece in pieces_of(path):
        crc = crc32c(piece, crc)
    return crc
