"""What is in a file of records: how many, how large, of what; and whether all of it can be trusted."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._system.failing import attempt
from penstock._system.lazy import dataclass
from penstock.errors import PenstockError, RecordError, SourceError
from penstock.formats import index as sidecar
from penstock.formats.arrow import one_line, pyarrow
from penstock.formats.compression import Decompressed
from penstock.formats.example import decode_example
from penstock.formats.tar import find_samples, split_samples
from penstock.formats.tfrecord import RecordBlock, frame_error, read_blocks
from penstock.kernels.framing import FOOTER_BYTES, FrameStatus, crc32c, masked
from penstock.packing.disk import sha256_of
from penstock.packing.manifest import ShardEntry, manifests_in, read_manifest
from penstock.sources.indexing import cached_index, user_folder
from penstock.sources.tfrecord import compression_of

NO_SUM = "no check sum of the whole file to check against: neither a manifest nor an index is beside it"
NO_COUNT = "no count to check against: that the file was cut between two records could not be seen"
_PIECE_BYTES = 4 << 20
_MOST, _FEW = 40, 6
"""Bytes or characters, and numbers or parts, of a value that are shown."""


@dataclass(slots=True, kw_only=True)
class Inspection:
    """What was found in one file.

    Attributes:
        path: of the file.
        kind: what it is.
        size: in bytes.
        count: records; of a damaged file those before the damage.
        noun: what a record is called.
        lengths: int64 [count], in bytes; None where records have none of their own.
        fields: a line each, where the file or its manifest says them; else the samples show them.
        samples: the first elements.
        problems: a sentence for each thing that is wrong.
        remarks: what else is worth a sentence, such as what was checked.
    """

    path: str
    kind: str
    size: int
    count: int = 0
    noun: str = "records"
    lengths: NDArray[np.int64] | None = None
    fields: list[str] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add_problem(self, error: Exception) -> None:
        """Note an error as a problem."""
        if isinstance(error, PenstockError):
            self.problems.append(f"{error.what} ({error.where})")
        else:
            self.problems.append(f"{type(error).__name__}: {error}")


def _pieces_of(path: str) -> Iterator[NDArray[np.uint8]]:
    """Give the bytes of a file in order."""
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_PIECE_BYTES):
            yield np.frombuffer(data, np.uint8)


def inspect(path: str | os.PathLike[str], *, verify: bool = False, num_samples: int = 3) -> list[Inspection]:
    """Look into a TFRecord, WebDataset tar, Parquet or manifest file, or a folder of such; told apart by their content.

    Packed tokens and decoded elements are known by the manifest beside them. A damaged file is no error: `problems` has what is wrong.
    Blocks; reads TFRecord and tar files whole.

    Args:
        path: a file, or a folder: of a packed dataset in it, without `verify` the manifest and the first shard.
        verify: check every check sum and every count, hashes of the manifest too; else only what is read anyway: of a TFRecord file the
            headers of all records, and the data of the first `num_samples`.
        num_samples: how many elements to decode, from the beginning of each file.

    Returns:
        One for each file, manifests first.

    Raises:
        SourceError: there is nothing to inspect: no such file, or none of a known kind.
        OSError: a file cannot be read.
    """
    text = os.fspath(path)
    if not os.path.exists(text):
        raise SourceError(f"{text!r} does not exist", where="penstock inspect", fix="give a file or folder")
    is_folder = os.path.isdir(text)
    listed = _Listed(text if is_folder else os.path.dirname(os.path.abspath(text)))
    found = [_inspected(one, listed, verify, num_samples) for one in (_files(text, listed, verify) if is_folder else [text])]
    reports = [report for report in found if report is not None]
    if not reports:
        raise SourceError(
            f"the folder {text!r} holds no file that can be inspected" if is_folder else f"{text!r} is no file that can be inspected",
            where="penstock inspect",
            fix="give a TFRecord, tar, Parquet or manifest file, or a folder of such",
        )
    return reports


class _Listed:
    """What the manifests of a folder say of its files.

    Attributes:
        shards: by name.
        first: names of the first shard of each dataset.
        errors: of manifests that cannot be read.
    """

    def __init__(self, folder: str) -> None:
        self.shards: dict[str, ShardEntry] = {}
        self.first: set[str] = set()
        self.errors: list[Exception] = []
        for path in manifests_in(folder):
            try:
                manifest = read_manifest(path)
            except (RecordError, OSError) as error:
                self.errors.append(error)
                continue
            self.shards |= {shard.name: shard for shard in manifest.shards}
            self.first.add(manifest.shards[0].name)


def _files(folder: str, listed: _Listed, verify: bool) -> list[str]:
    manifests = manifests_in(folder)
    rest = [name for name in sorted(os.listdir(folder)) if verify or name not in listed.shards or name in listed.first]
    paths = [os.path.join(folder, name) for name in rest if not name.startswith(".")]
    return manifests + [path for path in paths if os.path.isfile(path) and path not in manifests]


def _inspected(path: str, listed: _Listed, verify: bool, num_samples: int) -> Inspection | None:
    """Look into a file; None when it is of no known kind."""
    with open(path, "rb") as file:
        head = file.read(1024)
    report = Inspection(path=path, kind="", size=os.path.getsize(path))
    look, entry = _look_of(path, head), listed.shards.get(os.path.basename(path))
    if look is None and entry is not None:  # nothing in such a file says what it is
        report.kind, report.count, report.noun = "part of a packed dataset", entry.count, "elements"
        _compare_bytes(report, entry, verify)
        return report
    if look is None:
        return None
    try:
        look(report, verify, num_samples)
    except (PenstockError, ValueError) as error:
        report.add_problem(error)
    if look is not _look_manifest:
        _compare(report, listed, verify)
    return report


def _look_of(path: str, head: bytes) -> Callable[[Inspection, bool, int], None] | None:
    if head.lstrip()[:1] == b"{" and b'"penstock_pack"' in head:
        return _look_manifest
    if head.startswith(b"PAR1") or path.endswith(".parquet"):
        return _look_parquet
    if head[257:262] == b"ustar" or path.endswith(".tar"):
        return _look_tar
    named = ".tfrecord" in os.path.basename(path) and not path.endswith(sidecar.SUFFIX)
    return _look_tfrecord if named or _begins_as_tfrecord(head) else None


def _look_manifest(report: Inspection, verify: bool, num_samples: int) -> None:
    """Look into the manifest of a packed dataset.

    Raises:
        RecordError: it is damaged.
    """
    report.kind = "manifest of a packed dataset"
    manifest = read_manifest(report.path)
    report.count, report.noun = len(manifest), f"records in {len(manifest.shards)} file{'s' if len(manifest.shards) > 1 else ''}"
    report.fields = [column.words() for column in manifest.columns]
    report.problems += manifest.problems(hashes=verify)
    if manifest.skipped:
        count = len(manifest.skipped)
        report.remarks.append(f"{'1 element was' if count == 1 else f'{count:,} elements were'} left out when it was packed")
    if verify and not report.problems:
        report.remarks.append("verified: names, sizes and SHA-256 of all files")


def _compare(report: Inspection, listed: _Listed, verify: bool) -> None:
    """Compare what was found with what a manifest or an index says."""
    said: list[tuple[str, int]] = []
    entry = listed.shards.get(os.path.basename(report.path))
    if entry is not None:
        said.append(("the manifest", entry.count))
        _compare_bytes(report, entry, verify)
    else:
        for error in listed.errors:  # one of them may be the manifest of this file
            report.add_problem(error)
    index = _index_of(report, verify)
    if index is not None:
        said.append(("the index", len(index)))
    for name, count in said:
        if count != report.count:
            report.problems.append(f"{report.count} {report.noun} were found, and {name} says {count}")
        elif verify:
            report.remarks.append(f"verified: as many {report.noun} as {name} says")
    if not said and report.kind != "Parquet":
        report.remarks.append(NO_COUNT)
    if verify and not said and not report.kind.startswith("TFRecord"):
        report.remarks.append(NO_SUM)


def _compare_bytes(report: Inspection, entry: ShardEntry, verify: bool) -> None:
    if report.size != entry.size:
        report.problems.append(f"it has {report.size} bytes and had {entry.size} when it was packed")
    elif verify and sha256_of(report.path) != entry.sha256:
        report.problems.append("it has other bytes than when it was packed: its SHA-256 differs from that in the manifest")
    elif verify:
        report.remarks.append("verified: the SHA-256 of the manifest")


def _index_of(report: Inspection, verify: bool) -> sidecar.Index | None:
    """Read the index of a file, beside it or in the user's cache folder; what is wrong with it is a problem."""
    kind = "tar" if report.kind == "WebDataset tar" else "tfrecord"
    cached = cached_index(user_folder(), os.path.abspath(report.path), kind, {})
    places = sidecar.beside(report.path), sidecar.beside(report.path, old=True), cached
    path = next(filter(os.path.isfile, places), None)
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


def _crc_of(path: str) -> int:
    crc = 0
    for piece in _pieces_of(path):
        crc = crc32c(piece, crc)
    return crc


def _begins_as_tfrecord(head: bytes) -> bool:
    """Tell whether bytes begin with a frame: a length, and its check sum."""
    return len(head) >= 12 and struct.unpack("<I", head[8:12])[0] == masked(crc32c(head[:8]))


def _look_tfrecord(report: Inspection, verify: bool, num_samples: int) -> None:
    """Look into a TFRecord file, compressed or not.

    Raises:
        RecordError: it is damaged; what stands before the damage is in the report.
    """
    report.kind = "TFRecord"
    lengths: list[Any] = []
    with open(report.path, "rb") as file:
        head = file.read(12)
        file.seek(0)
        stream: Any = file
        compression = compression_of(head)
        if compression is not None:
            report.kind = f"TFRecord, {compression}"
            stream = Decompressed(file, compression, report.path)
        try:
            for block in read_blocks(stream, name=report.path, check_crc=verify):
                _take_samples(report, block, num_samples)
                lengths.append(block.lengths - 16)
                report.count += len(block.lengths)
        finally:
            report.lengths = np.concatenate(lengths) if lengths else None
    if verify:
        report.remarks.append(f"verified: both CRCs of {report.count:,} records")


def _take_samples(report: Inspection, block: RecordBlock, num_samples: int) -> None:
    """Take those of a block that are among the first records of the file; one whose check sum is wrong is a problem and no sample."""
    few = max(0, num_samples - block.first)
    places = zip(block.starts[:few].tolist(), block.lengths[:few].tolist(), strict=True)
    for number, ((start, length), record) in enumerate(zip(places, block.records(), strict=False), start=block.first):
        whole = block.data[start : start + length]
        if whole[-FOOTER_BYTES:] == masked(crc32c(record)).to_bytes(FOOTER_BYTES, "little"):
            report.samples.append(attempt(decode_example, record) or {"record": record})
        else:
            offset = block.offset + start
            report.add_problem(frame_error(FrameStatus.DATA_CRC, whole, name=report.path, record=number, offset=offset))


def _look_tar(report: Inspection, verify: bool, num_samples: int) -> None:
    """Look into a tar file.

    Raises:
        RecordError: it is damaged.
    """
    report.kind, report.noun = "WebDataset tar", "samples"
    found = find_samples(_pieces_of(report.path), report.size, report.path)
    offsets, lengths = found["offsets"], found["lengths"]
    report.count, report.lengths = len(offsets), lengths
    if found["meta"]["end"] != "blocks":
        report.problems.append("the blocks of zeros that end an archive are missing: it may be cut between two members")
    left_out = {key: count for key, count in found["meta"].items() if key not in ("end", "first_odd") and count}
    if left_out:
        report.remarks.append("members that belong to no sample: " + ", ".join(f"{count} {key}" for key, count in left_out.items()))
    few = min(num_samples, len(offsets))
    if few:
        with open(report.path, "rb") as file:
            file.seek(int(offsets[0]))
            data = np.frombuffer(file.read(int(offsets[few - 1] + lengths[few - 1] - offsets[0])), np.uint8)
        samples: list[Any] = []
        error = split_samples(
            data, offsets[:few] - offsets[0], lengths[:few], None, samples, lambda number: (report.path, int(offsets[number]))
        )
        if error is not None:
            raise error
        report.samples = [{"__key__": one.key, **{name: bytes(part) for name, part in one.fields.items()}} for one in samples]
    if verify:
        report.remarks.append(f"verified: the check sums of all headers; the format has none for data ({report.count:,} samples)")


def _look_parquet(report: Inspection, verify: bool, num_samples: int) -> None:
    """Look into a Parquet file.

    Raises:
        RecordError: it is damaged.
        MissingExtra: pyarrow is not installed.
    """
    report.kind, report.noun = "Parquet", "rows"
    arrow, parquet = pyarrow()
    try:
        with parquet.ParquetFile(report.path, page_checksum_verification=verify) as file:
            report.count = file.metadata.num_rows
            report.fields = [f"{one.name!r}: {one.type}" for one in file.schema_arrow]
            report.remarks.append(f"{file.num_row_groups} row groups")
            if num_samples and report.count:
                batch = next(file.iter_batches(batch_size=num_samples), None)
                if batch is None:
                    report.problems.append(f"no row can be read, and the footer says {report.count}")
                else:
                    report.samples = batch.to_pylist()
            if verify:
                rows = sum(file.read_row_group(number).num_rows for number in range(file.num_row_groups))
                if rows != report.count:
                    report.problems.append(f"{rows} rows were read, and the footer says {report.count}")
                report.remarks.append(f"verified: {rows:,} rows were read, with the check sums of pages that have one")
    except (arrow.ArrowException, OSError) as error:
        raise RecordError(f"it cannot be read as Parquet: {one_line(error)}", where=repr(report.path), fix="write it again") from error


def shown(value: Any) -> str:
    """Return a value in one line of printable characters: what is not printable is escaped, what is long is cut and its size said."""
    if isinstance(value, np.ndarray) and value.ndim:
        return f"{value.dtype.name}{list(value.shape)} {shown(value.reshape(-1)[: _FEW + 1].tolist())}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value[:_FEW]))}{', ...' if len(value) > _FEW else ''}]"
    if isinstance(value, (bytes, bytearray, memoryview, str)) and len(value) > _MOST:
        unit = "characters" if isinstance(value, str) else "bytes"
        return f"{shown(value[:_MOST])}... ({len(value):,} {unit})"
    text = repr(value.item() if isinstance(value, np.generic) else bytes(value) if isinstance(value, (bytearray, memoryview)) else value)
    return text if len(text) <= 4 * _MOST else text[: 4 * _MOST] + "..."
