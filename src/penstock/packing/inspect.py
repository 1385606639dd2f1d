"""What is in a file of records: how many, how large, of what; whether all of it can be trusted; a contact sheet of its images."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock import image
from penstock.errors import DecodeError, PenstockError, RecordError, SourceError
from penstock.formats import index as sidecar
from penstock.formats.arrow import pyarrow
from penstock.formats.compression import Decompressed
from penstock.formats.example import decode_example
from penstock.formats.tar import find_samples, split_samples
from penstock.formats.tfrecord import RecordBlock, frame_error, read_blocks
from penstock.image.header import read_header
from penstock.image.operator import load_cv2
from penstock.kernels.framing import FOOTER_BYTES, FrameStatus, crc32c, masked
from penstock.packing.disk import sha256_of
from penstock.packing.manifest import Manifest, Restore, ShardEntry, find_manifest, manifests_in, read_manifest
from penstock.packing.schema import extension_of
from penstock.sources.indexing import cached_index, user_folder

NO_SUM = "no check sum of the whole file to check against: neither a manifest nor an index is beside it"
NO_COUNT = "no count to check against: that the file was cut between two records could not be seen"
_GZIP, _ZLIB = b"\x1f\x8b", (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_PIECE_BYTES = 4 << 20
_MOST_BYTES = 24
_MOST_CHARS = 60
_MOST_NUMBERS = 6
_IMAGES = ("jpg", "png", "webp")


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
        fields: a line each.
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

    def describe_samples(self) -> None:
        """Take the fields from the samples."""
        found: dict[str, list[str]] = {}
        for sample in self.samples:
            for name, value in sample.items():
                words = _spec_words(value)
                if words not in found.setdefault(name, []):
                    found[name].append(words)
        self.fields = [f"{name!r}: {' or '.join(words)}" for name, words in found.items()]


def _pieces_of(path: str) -> Iterator[NDArray[np.uint8]]:
    """Give the bytes of a file in order."""
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_PIECE_BYTES):
            yield np.frombuffer(data, np.uint8)


def summary(lengths: Sequence[int] | NDArray[np.int64]) -> tuple[int, int, int]:
    """Return the least, the median and the largest of some sizes."""
    values = np.asarray(lengths)
    return int(values.min()), int(np.median(values)), int(values.max())


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
        return _look_index
    if head.startswith(b"PAR1") or path.endswith(".parquet"):
        return _look_parquet
    if head[257:262] == b"ustar" or path.endswith(".tar"):
        return _look_tar
    if ".tfrecord" in os.path.basename(path) or _begins_as_tfrecord(head):
        return _look_tfrecord
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
    places = sidecar.beside(report.path), sidecar.beside(report.path, old=True), cached
    return next(filter(os.path.isfile, places), None)


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


def _look_index(report: Inspection, verify: bool, num_samples: int) -> None:
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
    described = sidecar.described(report.path)
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
        # The length of a first record may have the bytes that a compressed file begins with; its check sum tells them apart.
        if head[:2] in (_GZIP, *_ZLIB) and not _begins_as_tfrecord(head):
            compression = "GZIP" if head[:2] == _GZIP else "ZLIB"
            report.kind = f"TFRecord, {compression}"
            stream = Decompressed(file, compression, report.path)
        try:
            for block in read_blocks(stream, name=report.path, check_crc=verify):
                _take_samples(report, block, num_samples)
                lengths.append(block.lengths - 16)
                report.count += len(block.lengths)
        finally:
            report.lengths = np.concatenate(lengths) if lengths else None
            report.describe_samples()
    if verify:
        report.remarks.append(f"verified: both CRCs of {report.count:,} records")


def _take_samples(report: Inspection, block: RecordBlock, num_samples: int) -> None:
    """Take those of a block that are among the first records of the file; one whose check sum is wrong is a problem and no sample."""
    few = max(0, num_samples - block.first)
    places = zip(block.starts[:few].tolist(), block.lengths[:few].tolist(), strict=True)
    for number, ((start, length), record) in enumerate(zip(places, block.records(), strict=False), start=block.first):
        whole = block.data[start : start + length]
        if whole[-FOOTER_BYTES:] == masked(crc32c(record)).to_bytes(FOOTER_BYTES, "little"):
            report.samples.append(_example(record))
        else:
            offset = block.offset + start
            report.add_problem(frame_error(FrameStatus.DATA_CRC, whole, name=report.path, record=number, offset=offset))


def _example(record: bytes) -> dict[str, Any]:
    try:
        found = decode_example(record)
    except RecordError:
        return {"record": record}
    return found or {"record": record}


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
        report.describe_samples()
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
        raise RecordError(
            f"it cannot be read as Parquet: {str(error).splitlines()[0]}", where=repr(report.path), fix="write it again"
        ) from error


def shown(value: Any) -> str:
    """Return a value in one line of printable characters: what is not printable is escaped, what is long is cut and its size said."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes(bytes(value))
    if isinstance(value, str):
        text = repr(value[:_MOST_CHARS])
        return text if len(value) <= _MOST_CHARS else f"{text}... ({len(value):,} characters)"
    if isinstance(value, np.ndarray) and value.ndim:
        return _array(value)
    if isinstance(value, (list, tuple)):
        parts = [shown(part) for part in value[:3]]
        return f"[{', '.join(parts)}{f', ... ({len(value):,})' if len(value) > 3 else ''}]"
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 2 * _MOST_CHARS else text[: 2 * _MOST_CHARS] + "..."


def _bytes(data: bytes) -> str:
    if is_image(data):
        return _image_words(data)
    text = repr(data[:_MOST_BYTES])
    return text if len(data) <= _MOST_BYTES else f"{text}... ({len(data):,} bytes)"


def _array(array: Any) -> str:
    numbers = ", ".join(repr(number.item() if hasattr(number, "item") else number) for number in array.reshape(-1)[:_MOST_NUMBERS])
    return f"{array.dtype.name}{list(array.shape)} {numbers}{', ...' if array.size > _MOST_NUMBERS else ''}"


def _spec_words(value: Any) -> str:
    """Say the kind of a value, its size left open."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes"
    if isinstance(value, (list, tuple)):
        return f"{_spec_words(value[0]) if value else 'nothing'} [{len(value)}]"
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype.name}{list(value.shape) if value.shape else ''}"
    return type(value).__name__


def is_image(data: bytes) -> bool:
    """Tell whether bytes begin as an image does that can be decoded."""
    return extension_of(data) in _IMAGES


def _image_words(data: bytes) -> str:
    """Say of an encoded image what its header says."""
    try:
        header = read_header(data, "inspect")
    except DecodeError as error:
        return f"a damaged image ({len(data):,} bytes): {error.what}"
    return f"{header.kind} {header.width}x{header.height} ({len(data):,} bytes)"


_SIDE = 128
_GAP = 4
_PAPER, _BAD = 255, (200, 60, 60)


def images_of(samples: Iterable[Mapping[str, Any]]) -> list[NDArray[np.uint8]]:
    """Return the images among the fields of samples, uint8 [height, width, 3]: encoded ones, and arrays of pixels. A damaged one is red.

    Raises:
        MissingExtra: simplejpeg or OpenCV is not installed.
    """
    found = []
    for sample in samples:
        for value in sample.values():
            # Without a declaration, a feature of one value is a list of one.
            one = value[0] if isinstance(value, list) and len(value) == 1 else value
            pixels = _pixels(one)
            if pixels is not None:
                found.append(pixels)
    return found


def _pixels(value: Any) -> NDArray[np.uint8] | None:
    if isinstance(value, (bytes, memoryview)) and is_image(bytes(value[:16])):
        try:
            return image.decode(bytes(value))
        except DecodeError:
            return np.full((_SIDE, _SIDE, 3), _BAD, np.uint8)
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.size:
        if value.ndim == 2:
            return np.repeat(value[..., None], 3, 2)
        if value.ndim == 3 and value.shape[2] in (1, 3):
            return np.ascontiguousarray(np.broadcast_to(value, (*value.shape[:2], 3)))
    return None


def contact_sheet(images: list[NDArray[np.uint8]], columns: int = 8) -> bytes:
    """Return a PNG of thumbnails, each at most 128 pixels wide and high, row by row.

    Args:
        images: uint8 [height, width, 3], at least one.
        columns: how many side by side.

    Raises:
        MissingExtra: OpenCV is not installed.
    """
    cv2 = load_cv2()
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    step = _SIDE + _GAP
    sheet = np.full((rows * step + _GAP, columns * step + _GAP, 3), _PAPER, np.uint8)
    for number, pixels in enumerate(images):
        height, width = pixels.shape[:2]
        scale = min(1.0, _SIDE / max(height, width))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        small = pixels if scale == 1.0 else cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
        top = _GAP + number // columns * step + (_SIDE - size[1]) // 2
        left = _GAP + number % columns * step + (_SIDE - size[0]) // 2
        sheet[top : top + size[1], left : left + size[0]] = small
    return bytes(cv2.imencode(".png", sheet[..., ::-1])[1])
