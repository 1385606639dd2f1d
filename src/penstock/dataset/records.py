"""Datasets over files of records: TFRecord, tar in WebDataset's convention, Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock._contracts.source import IndexedSource
from penstock._plan import check
from penstock._plan import node as plan
from penstock.dataset.builder import Dataset
from penstock.errors import PlanError

if TYPE_CHECKING:
    from penstock.formats.features import Feature

__all__ = ["read_parquet", "read_tar", "read_tfrecord"]


def _read(source: IndexedSource) -> Dataset:
    return Dataset(plan.Read(source=source))


def read_tar(
    pattern: Any,
    *,
    fields: Sequence[str] | None = None,
    decode: str | None = None,
    verify: bool = True,
    missing_end: str = "warn",
    links: str = "error",
) -> Dataset:
    """Read tar files in WebDataset's convention, any sample at any time: {"__key__": str, extension: bytes, ...}.

    Members side by side with one name up to its first dot are a sample; what is behind the dot names the field. The first call reads each
    file once and writes an index beside it (or into the user's cache folder); it blocks for that. Nothing is extracted.

    Args:
        pattern: a path, a glob pattern (`**` for any depth), or a list of them; files in the order of the bytes of their paths.
        fields: the extensions wanted, in lower case; the first of alternatives such as "jpg;jpeg;png" names the field. None: all that are
            there, which may differ from sample to sample.
        decode: "basic": .cls .id .index (and others, see docs/formats/tar.md) as int, .txt as str, .json, and .npy as an array; images stay
            bytes, and pickles are refused. None: bytes.
        verify: compare each sample with its check sum in the index, about 5 us for 100 kB: the format has none for data.
        missing_end: of files that lack the blocks of zeros at their end: "warn", "error" or "accept".
        links: of links and special files, whose data are not in the archive: "error", or "skip", which counts them in `print(ds)`.

    Raises:
        PlanError: an argument that is not known.
        RecordError: a file that is cut, damaged, compressed as a whole, or holds what is not read; with file and offset.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock._storage import open_storage
    from penstock.sources import TarSource

    verify = check.flag_argument(verify, "verify", "read_tar")
    storage = open_storage(pattern, "read_tar")
    return _read(TarSource(storage, fields=fields, decode=decode, verify=verify, missing_end=missing_end, links=links))


def read_tfrecord(
    pattern: Any,
    *,
    compression: str | None = None,
    check_crc: bool = True,
    max_record_bytes: int = 1 << 30,
    allow_empty: bool = False,
    index: None = None,
    resync: bool = False,
    features: Mapping[str, Feature] | None = None,
) -> Dataset:
    """Read the records of TFRecord files: {"record": bytes}, or with `features` those of tf.train.Example.

    Files come in the order of the bytes of their paths. With `features` elements are dicts with one entry for each; where all are
    FixedLenFeature of numbers, whole blocks are read, checked and parsed straight into the rows of batches.

    Uncompressed files are read by an index, which is kept beside them as `NAME.psidx` (or in the user's cache folder) and built when it is
    missing or stale: any record at any time, `len`, `shuffle` without a buffer. Both check sums of a record are checked at every read.
    Compressed files are a stream that one thread reads; a resume decompresses at most one file again, and an error in one ends the reading.

    Args:
        pattern: a path, a glob such as "data/train.tfrecord-*", or a list of them; URLs where an object store holds the files.
        compression: None, "GZIP", "ZLIB", or "auto": what the first bytes of the files look like, the same for all.
        check_crc: False leaves out the check sum of the data, not that of the length.
        max_record_bytes: a longer record is an error, before memory is taken for it.
        allow_empty: take files without records for empty shards; otherwise they are an error.
        index: refused: text indices of other tools are not read. `penstock index PATTERN` builds Penstock's own ahead of the first read.
        resync: go on behind a damaged header. What stands there up to the next good one is one record, which is an error when it is read,
            so that a policy may leave it out. By default such a file is an error here.
        features: what to take from each record, such as {"image": ps.FixedLenFeature((), bytes), "label": ps.FixedLenFeature((), "int64")}.

    Raises:
        PlanError: another compression, an `index`, `resync` with compressed files, or features that are none.
        RecordError: a file is no TFRecord file, is cut or is empty; with file, record number and offset. That a file was cut between two
            records shows only in a count from elsewhere: `penstock inspect --verify`.
        SourceError, OSError: no file matches, or one cannot be read.
    """
    from penstock.sources.tfrecord import open_tfrecord

    source = open_tfrecord(
        pattern,
        compression=compression,
        check_crc=check.flag_argument(check_crc, "check_crc", "read_tfrecord"),
        max_record_bytes=max_record_bytes,
        allow_empty=check.flag_argument(allow_empty, "allow_empty", "read_tfrecord"),
        index=index,
        resync=check.flag_argument(resync, "resync", "read_tfrecord"),
    )
    if features is None:
        return _read(source) if isinstance(source, IndexedSource) else Dataset(plan.ReadStream(source=source))
    from penstock.formats.example import ExampleReader, parse_example
    from penstock.formats.features import check_features
    from penstock.sources.tfrecord import example_source

    if isinstance(source, IndexedSource):
        return _read(example_source(source, ExampleReader(check_features(features, "read_tfrecord"))))
    return Dataset(plan.ReadStream(source=source)).map(parse_example(features))


def read_parquet(
    pattern: Any,
    *,
    columns: Sequence[str] | None = None,
    null_values: Mapping[str, Any] | None = None,
    cache_bytes: int = 512 << 20,
    max_group_bytes: int = 4 << 30,
) -> Dataset:
    """Read the rows of Parquet files: {column: value}, files in the order of the bytes of their paths. Needs pyarrow (extra `parquet`).

    Numbers and booleans are NumPy scalars; dates, timestamps (UTC where they have a zone) and durations datetime64 and timedelta64; strings
    str; binary bytes; lists of one size arrays of that shape; lists of numbers one-dimensional arrays. Dictionary columns are what they
    stand for. A row costs its row group, unless that is still at hand: shuffle with `shuffle(seed=..., window_groups=k)`, which decodes
    each row group once per epoch if k of them fit `cache_bytes`; `shuffle(seed=...)` decodes them again and again unless all fit.

    Args:
        pattern: a path, a glob (`**` for any depth), or a list of them.
        columns: those to read, in this order; None for all. Others are not read from disk.
        null_values: what stands for null, by column of numbers or strings. Without it an element with a null is an error of that element.
        cache_bytes: bound on decoded row groups in memory; one more may be there for each worker.
        max_group_bytes: bound on one row group decoded: a larger one is an error before anything is allocated for it.

    Raises:
        MissingExtra: pyarrow is not installed.
        PlanError: a column that is not there or has no conversion (structs, lists of lists, decimals, times of day), or a wrong argument.
        RecordError: a file is no Parquet file, or has another schema than the first; the first difference is named.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock._storage import open_storage
    from penstock.sources.parquet import parquet_source

    if isinstance(columns, str):
        raise PlanError(f"columns={columns!r} is a str", where="read_parquet()", fix=f"give a list: columns=[{columns!r}]")
    kept = check.count_argument(cache_bytes, "cache_bytes", "read_parquet")
    most = check.count_argument(max_group_bytes, "max_group_bytes", "read_parquet", least=1)
    names, nulls = (
        check.names_argument(columns, "columns", "read_parquet"),
        check.mapping_argument(null_values, "null_values", "read_parquet"),
    )
    return _read(parquet_source(open_storage(pattern, "read_parquet"), names, nulls, kept, most))
