"""How each format is looked into: records, sizes, the first samples, and with `verify` every check sum that the format has."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from penstock.errors import RecordError
from penstock.formats.compression import Decompressed
from penstock.formats.example import decode_example
from penstock.formats.parquet import pyarrow
from penstock.formats.tar import Names, find_samples, split_samples
from penstock.formats.tfrecord import Block, frame_error, read_blocks
from penstock.kernels.framing import FOOTER_BYTES, FrameStatus, crc32c, masked
from penstock.packing.report import Inspection, pieces_of

__all__ = ["begins_as_tfrecord", "look_parquet", "look_tar", "look_tfrecord"]

_GZIP, _ZLIB = b"\x1f\x8b", (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def begins_as_tfrecord(head: bytes) -> bool:
    """Tell whether bytes begin with a frame: a length, and its check sum."""
    return len(head) >= 12 and struct.unpack("<I", head[8:12])[0] == masked(crc32c(head[:8]))


def look_tfrecord(report: Inspection, verify: bool, num_samples: int) -> None:
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
        if head[:2] in (_GZIP, *_ZLIB) and not begins_as_tfrecord(head):
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


def _take_samples(report: Inspection, block: Block, num_samples: int) -> None:
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


def look_tar(report: Inspection, verify: bool, num_samples: int) -> None:
    """Look into a tar file.

    Raises:
        RecordError: it is damaged.
    """
    report.kind, report.noun = "WebDataset tar", "samples"
    found = find_samples(pieces_of(report.path), report.size, report.path)
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
            data, offsets[:few] - offsets[0], lengths[:few], None, Names(), samples, lambda number: (report.path, int(offsets[number]))
        )
        if error is not None:
            raise error
        report.samples = [{"__key__": one.key, **{name: bytes(part) for name, part in one.fields.items()}} for one in samples]
        report.describe_samples()
    if verify:
        report.remarks.append(f"verified: the check sums of all headers; the format has none for data ({report.count:,} samples)")


def look_parquet(report: Inspection, verify: bool, num_samples: int) -> None:
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
