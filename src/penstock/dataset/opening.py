"""Where datasets begin: functions that open a source."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock._contracts.source import IndexedSource, StreamSource
from penstock._plan import node as plan
from penstock.dataset.builder import Dataset

__all__ = [
    "from_arrays",
    "from_generator",
    "from_source",
    "from_stream",
    "read_files",
    "read_images",
    "read_list",
    "read_tar",
    "read_text",
    "read_tfrecord",
]


def _read(source: IndexedSource) -> Dataset:
    return Dataset(plan.Read(source=source))


def from_arrays(tree: Any) -> Dataset:
    """Read elements from arrays: a tree of arrays whose first dimensions are equal; element i is the tree of their rows i.

    Memory-mapped arrays are read as they are used. Whole blocks are gathered at once.

    Raises:
        PlanError: when lengths differ or a leaf is no array.
    """
    from penstock.sources import ArraySource

    return _read(ArraySource(tree))


def from_source(source: Any) -> Dataset:
    """Read elements from anything with `__len__` and `__getitem__`: a list, a torch map-style dataset, a Hugging Face dataset.

    It is read from several threads at once. One with `__getitems__(indices) -> list` is asked for whole blocks.
    An object that satisfies `IndexedSource` is used as it is.
    """
    from penstock.sources import IndexableSource

    return _read(source if isinstance(source, IndexedSource) else IndexableSource(source))


def from_generator(fn: Callable[[], Any], *, fast_forward: bool = False, length: int | None = None) -> Dataset:
    """Read elements from `fn()`, a new iterator for each pass. One thread reads it, ahead of the consumer.

    Args:
        fn: a callable without arguments.
        fast_forward: allow a resume to read and drop what was already delivered; without it the feed has no state.
        length: how many elements a pass has, if known: then another number is an error.
    """
    from penstock.sources import GeneratorSource

    source: StreamSource = GeneratorSource(fn, fast_forward=fast_forward, length=length)
    return Dataset(plan.ReadStream(source=source))


def from_stream(iterable: Iterable[Any], *, length: int | None = None, fast_forward: bool = False) -> Dataset:
    """Read elements from an object that can only be iterated: each pass is `iter(iterable)`. One thread reads it, ahead of the consumer.

    An object with `state_dict()` and `load_state_dict(state)`, such as a Hugging Face IterableDataset or a torchdata Loader, makes resuming
    exact and cheap: the feed notes its state once per block that it reads, and a resume loads the last note and drops the few elements
    behind it. The state must be JSON-able and exact to the element, and `load_state_dict` must act on the next `iter` only. One feed at a
    time can read such an object. An object with `set_epoch(number)` is told the number of each pass, from 0 in each feed.

    Args:
        iterable: a torch or Hugging Face IterableDataset, or anything with `__iter__` that begins anew each time.
        length: how many elements a pass has, if known: then another number is an error.
        fast_forward: allow a resume to read and drop what was already delivered when the object has no states.

    Raises:
        PlanError: when it cannot be iterated.
    """
    from penstock.sources import stream_source

    return Dataset(plan.ReadStream(source=stream_source(iterable, fast_forward=fast_forward, length=length)))


def read_list(
    list_file: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    *,
    label: bool = True,
    num_classes: int | None = None,
    duplicates: str = "keep",
) -> Dataset:
    """Read the files of a list: lines `path label` give elements {"path": str, "data": bytes, "label": int}.

    Args:
        list_file: text, UTF-8; blank lines and lines that begin with # are skipped.
        root: the folder that relative paths start from; the list's own folder by default.
        label: False for lines that are only paths.
        num_classes: refuse labels outside 0..num_classes-1 here, rather than in an assertion on the accelerator.
        duplicates: "keep" (they are counted in `print(ds)`), "drop" or "error".

    Raises:
        ListFileError: with the number of the first bad line.
    """
    from penstock.sources import ListSource

    return _read(ListSource(list_file, root, label=label, num_classes=num_classes, duplicates=duplicates))


def read_images(folder: str | os.PathLike[str]) -> Dataset:
    """Read a folder with one sub-folder of images per class: {"path": str, "data": bytes, "label": int}, classes in sorted order."""
    from penstock.sources import ImageFolderSource

    return _read(ImageFolderSource(folder))


def read_files(pattern: Any) -> Dataset:
    """Read whole files that match a glob pattern (`**` for any depth) or a list of patterns: {"path": str, "data": bytes}, sorted."""
    from penstock.sources import FilesSource

    return _read(FilesSource(pattern))


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

    storage = open_storage(pattern, "read_tar")
    return _read(TarSource(storage, fields=fields, decode=decode, verify=verify, missing_end=missing_end, links=links))


def read_text(patterns: Any) -> Dataset:
    """Read text files by line: {"text": str}, without the line's end. Any line at any time, through an index that is built once.

    A line ends at LF or CRLF; empty lines are elements; a byte order mark at the beginning of a file is left out. Files come sorted by the
    bytes of their path, their lines in order. The index (NAME.psidx, 12 bytes a line) stands beside each file, or in the user's cache
    folder when that cannot be written.

    Args:
        patterns: a path, a glob, names such as "part-{000..146}.txt" or "name@10", or several of them.

    Raises:
        PlanError: what is no pattern, or stands for too many names.
        SourceError: no file matches, a shard is missing, or a line is too long.
        OSError: as the system says it.
    """
    from penstock.sources import text_source

    return _read(text_source(patterns))


def read_tfrecord(
    pattern: Any,
    *,
    compression: str | None = None,
    check_crc: bool = True,
    max_record_bytes: int = 1 << 30,
    allow_empty: bool = False,
    index: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    resync: bool = False,
) -> Dataset:
    """Read the records of TFRecord files: {"record": bytes}, files in the order of the bytes of their paths.

    Uncompressed files are read by an index, which is kept beside them as `NAME.psidx` (or in the user's cache folder) and built when it is
    missing or stale: any record at any time, `len`, `shuffle` without a buffer. Both check sums of a record are checked at every read.
    Compressed files are a stream that one thread reads; a resume decompresses at most one file again, and an error in one ends the reading.

    Args:
        pattern: a path, a glob such as "data/train.tfrecord-*", or a list of them; URLs where an object store holds the files.
        compression: None, "GZIP", "ZLIB", or "auto": what the first bytes of the files look like, the same for all.
        check_crc: False leaves out the check sum of the data, not that of the length.
        max_record_bytes: a longer record is an error, before memory is taken for it.
        allow_empty: take files without records for empty shards; otherwise they are an error.
        index: a text index ("offset size" lines, from tfrecord2idx) instead of Penstock's own: "idx" for `NAME.idx` beside each file, or
            paths, one for each file in sorted order.
        resync: go on behind a damaged header. What stands there up to the next good one is one record, which is an error when it is read,
            so that a policy may leave it out. By default such a file is an error here.

    Raises:
        PlanError: another compression, or an index that does not go with the files.
        RecordError: a file is no TFRecord file, is cut or is empty; with file, record number and offset. That a file was cut between two
            records shows only in a count from elsewhere: `penstock inspect --verify`.
        IndexStale: a text index does not fit its file.
        SourceError, OSError: no file matches, or one cannot be read.
    """
    from penstock.sources.tfrecord_opening import open_tfrecord

    source = open_tfrecord(
        pattern,
        compression=compression,
        check_crc=check_crc,
        max_record_bytes=max_record_bytes,
        allow_empty=allow_empty,
        index=index,
        resync=resync,
    )
    return _read(source) if isinstance(source, IndexedSource) else Dataset(plan.ReadStream(source=source))
