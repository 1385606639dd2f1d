"""The functions that begin a dataset: over arrays, lists, generators and sources; over files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock._contracts.arguments import whole_number
from penstock._contracts.policy import Raise
from penstock._contracts.source import IndexedSource, StreamSource
from penstock._plan import check
from penstock._plan import node as plan
from penstock._plan.facts import INFINITE, length_of
from penstock.dataset.builder import Dataset
from penstock.errors import PlanError, SourceError
from penstock.formats.quarantine import QuarantinedLine, read_lines

if TYPE_CHECKING:
    from penstock._contracts.storage import RemoteFiles
    from penstock.formats.features import Feature
    from penstock.sources.compressed import RecordStream


def _read(source: IndexedSource | RecordStream) -> Dataset:
    if isinstance(source, IndexedSource):
        return Dataset(plan.Read(source=source))
    return Dataset(plan.ReadStream(source=source)).map(source.decoder, name="decode")


def from_arrays(tree: Any) -> Dataset:
    """Read elements from arrays: a tree of arrays whose first dimensions are equal; element i is the tree of their rows i.

    Memory-mapped arrays are read as they are used, and so are those of zarr and h5py. Whole blocks are gathered at once. A data frame or
    Arrow table gives a dict of its columns for each row; columns may be leaves of a tree, too.

    Raises:
        PlanError: when lengths differ, a field is no array, or a number in a column is null.
    """
    from penstock.sources.arrays import arrays_source

    return _read(arrays_source(tree))


def from_source(source: Any) -> Dataset:
    """Read elements from anything with `__len__` and `__getitem__`: a list, a torch map-style dataset, a Hugging Face dataset.

    Objects of Python, NumPy, Arrow and Hugging Face are read from several threads at once; any other is called as functions of `map` are.
    One with `__getitems__(indices) -> list` is asked for whole blocks. A Hugging Face dataset with a format of NumPy, PyTorch or Arrow
    gives the values that its table has, not those of the formatter. A `pyarrow.Table` or `RecordBatch` is read by rows: {column: value} as
    `read_parquet` gives them. An object that satisfies `IndexedSource` is used as it is.
    """
    from penstock.sources.arrays import indexed_source

    return _read(indexed_source(source))


def from_generator(fn: Callable[[], Any], *, fast_forward: bool = False, length: int | None = None) -> Dataset:
    """Read elements from `fn()`, a new iterator for each pass. One thread reads it, ahead of the consumer.

    Args:
        fn: a callable without arguments.
        fast_forward: allow a resume to read and drop what was already delivered; without it the feed has no state.
        length: how many elements a pass has, if known: then another number is an error.
    """
    from penstock.sources.stream import GeneratorSource

    forward = check.flag_argument(fast_forward, "fast_forward", "from_generator")
    source: StreamSource = GeneratorSource(fn, fast_forward=forward, length=_plain(length))
    return Dataset(plan.ReadStream(source=source))


def from_stream(iterable: Iterable[Any], *, length: int | None = None, fast_forward: bool = False) -> Dataset:
    """Read elements from an object that can only be iterated: each pass is `iter(iterable)`. One thread reads it, ahead of the consumer.

    An object with `state_dict()` and `load_state_dict(state)`, such as a Hugging Face IterableDataset or a torchdata Loader, makes resuming
    exact and cheap: the feed notes its state once per block that it reads, and a resume loads the last note and drops the few elements
    behind it. The state must be JSON-able and exact to the element, and `load_state_dict` must act on the next `iter` only. One feed at a
    time can read such an object. An object with `set_epoch(number)` is given the number of each pass, from 0 in each feed.

    Args:
        iterable: a torch or Hugging Face IterableDataset, or anything with `__iter__` that begins again each time.
        length: how many elements a pass has, if known: then another number is an error.
        fast_forward: allow a resume to read and drop what was already delivered when the object has no states.

    Raises:
        PlanError: when it cannot be iterated.
    """
    from penstock.sources.stream import stream_source

    forward = check.flag_argument(fast_forward, "fast_forward", "from_stream")
    return Dataset(plan.ReadStream(source=stream_source(iterable, fast_forward=forward, length=_plain(length))))


def read_list(
    list_file: str | os.PathLike[str] | RemoteFiles,
    root: str | os.PathLike[str] | RemoteFiles | None = None,
    *,
    label: bool = True,
    num_classes: int | None = None,
    duplicates: str = "keep",
) -> Dataset:
    """Read the files of a list: lines `path label` give elements {"path": str, "data": bytes, "label": int}.

    Args:
        list_file: text, UTF-8; blank lines and lines that begin with # are skipped. It may be a URL, and so may its paths.
        root: the folder, or URL, that relative paths start from; the list's own folder by default.
        label: False for lines that are only paths.
        num_classes: refuse labels outside 0..num_classes-1 here, rather than in an assertion on the accelerator.
        duplicates: "keep" (they are counted in `print(ds)`), "drop" or "error".

    Raises:
        ListFileError: with the number of the first bad line.
    """
    from penstock.sources.files import ListSource

    labelled = check.flag_argument(label, "label", "read_list")
    if num_classes is not None:
        num_classes = check.count_argument(num_classes, "num_classes", "read_list", least=1)
    return _read(ListSource(list_file, root, label=labelled, num_classes=num_classes, duplicates=duplicates))


def read_images(folder: str | os.PathLike[str] | RemoteFiles) -> Dataset:
    """Read a folder with one sub-folder of images per class: {"path": str, "data": bytes, "label": int}, classes in sorted order.

    Images are recognised by the suffixes of formats that `image.decode` reads. Hidden files are left out; a notice counts the others. The
    folder may be one in a bucket (`s3://bucket/train`).
    """
    from penstock.sources.files import ImageFolderSource

    return _read(ImageFolderSource(folder))


def read_files(pattern: Any) -> Dataset:
    """Read whole files that match a glob pattern (`**` for any depth) or a list of patterns: {"path": str, "data": bytes}, sorted.

    Patterns may be URLs (`s3://bucket/train/**/*.jpg`); then so is "path", without secrets.
    """
    from penstock.sources.files import FilesSource

    return _read(FilesSource(pattern))


def read_pairs(*, missing: str = "error", **patterns: Any) -> Dataset:
    """Read files that belong together, such as images and their masks: {"path": str, field: bytes, ...}, sorted by path.

    `ps.read_pairs(image="images/**/*.jpg", mask="masks/**/*.png")` has fields "image" and "mask", and "path" is that of the image. Files
    belong together where the wildcards stand for the same text, here the sub-folder and the name without its suffix.

    Args:
        patterns: two fields or more, each with a glob pattern as `read_files` takes it, or a list of them.
        missing: "error" for a file without its partners, or "drop" to leave such files out; `print(ds)` counts them.

    Raises:
        PlanError: fewer than two fields, one with the name "path", or another `missing`.
        SourceError: a pattern finds no file, a file has no partner, or two files of a field have the same text.
    """
    from penstock.sources.files import PairsSource

    return _read(PairsSource(patterns, missing))


def read_coco(
    images: str | os.PathLike[str] | RemoteFiles,
    annotations: str | os.PathLike[str] | RemoteFiles,
    *,
    masks: bool = False,
    contiguous_labels: bool = False,
    skip_empty: bool = False,
) -> Dataset:
    """Read images with the annotations of a COCO file of instances or key points, in the order of its images.

    Elements are {"path": str, "image": bytes, "image_id": int} and, for n annotations, "boxes" float32 [n, 4] (left, top, right, bottom in
    pixels), "labels" int64 [n], "areas" float32 [n] (that of the box where the file has none) and "iscrowd" bool [n]; with key points
    "points" float32 [n, points, 3] (x, y, visibility; zeros where an annotation has none). The file is parsed once, now; then an annotation
    takes 37 bytes, and with `masks` 4 more for each coordinate.

    Args:
        images: the folder, or URL, that the paths of the file start from.
        annotations: the JSON file or its URL, with "images", "annotations" and "categories".
        masks: add "masks" uint8 [n, height, width] of 0 and 1, drawn from polygons and run lengths as pycocotools does.
        contiguous_labels: number the categories from 0, in the order of their ids; `ds.classes` are then their names.
        skip_empty: leave out images without annotations; otherwise they have n = 0.

    Raises:
        RecordError: the file is no such file; an id that is there twice or not at all, a value that is no number, a box of negative
            size, a polygon of less than three points. When an image is read: a mask that does not fit its size.
        SourceError, OSError: no such folder or file; when it is read, no such image.
    """
    from penstock.sources.coco import CocoSource

    given = {"masks": masks, "contiguous_labels": contiguous_labels, "skip_empty": skip_empty}
    return _read(CocoSource(images, annotations, **{name: check.flag_argument(value, name, "read_coco") for name, value in given.items()}))


def _plain(number: Any) -> Any:
    """Return a whole number as an int, and anything else as it is: the source knows what to say of it."""
    whole = whole_number(number)
    return number if whole is None else whole


# -- files of text and tokens -----------------------------------------------------------------------------------------------------


def read_text(pattern: Any, *, skip_blank: bool = False, encoding: str = "utf-8", max_line_bytes: int = 64 << 20) -> Dataset:
    """Read the lines of text files: {"text": str}, without line ends. Any line at any time, so `shuffle` needs no buffer.

    UTF-8 with or without a byte order mark; LF or CRLF, also missing at the end of a file. An index of 12 bytes a line is built when a file
    is first read, and kept beside it or in the user's cache folder. Compressed files (.gz, .zst, .bz2, .xz) are a stream: no `len`, no
    `ds[i]`.

    Args:
        pattern: a path, a glob pattern, or several; files in the order of the bytes of their paths.
        skip_blank: leave lines out that hold nothing but white space; otherwise they are elements.
        encoding: of the text, one in which ASCII is ASCII: "latin-1", "cp1252", "gb18030"; not UTF-16.
        max_line_bytes: a longer line is an error, found before it is read whole.

    Raises:
        PlanError: an argument out of range.
        RecordError: a line beyond the limit, or a file that is no text (UTF-16, an archive); when a line is read: it has another encoding
            or NUL bytes.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock.sources.text import text_source

    blank, limit = check.flag_argument(skip_blank, "skip_blank", "read_text"), _count("read_text", "max_line_bytes", max_line_bytes)
    return _read(text_source(pattern, skip_blank=blank, encoding=encoding, max_line_bytes=limit))


def read_jsonl(pattern: Any, *, fields: Any = None, allow_nan: bool = False, max_line_bytes: int = 64 << 20) -> Dataset:
    """Read JSON lines: one value a line, as Python objects (numbers are int and float), or only some fields, as arrays.

    Files are indexed as those of `read_text`; lines of nothing but white space are left out.

    Args:
        pattern: as `read_text`.
        fields: the fields that an element has: names, or a dict of names and dtypes. A number, or lists of numbers of one shape, becomes a
            NumPy scalar or array of that dtype, exactly or not at all; None leaves a value as it is. By default elements are the values
            themselves.
        allow_nan: take NaN, Infinity and -Infinity, which are no JSON but which Python's json writes.
        max_line_bytes: as `read_text`.

    Raises:
        PlanError: `fields` that declare nothing, a dtype that is none, or a limit out of range.
        RecordError: as `read_text`; when a line is read: no JSON, a key that stands twice in an object, nesting beyond Python's limit, a
            declared field that is missing or does not fit its dtype.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock.sources.text import jsonl_source

    nan, limit = check.flag_argument(allow_nan, "allow_nan", "read_jsonl"), _count("read_jsonl", "max_line_bytes", max_line_bytes)
    return _read(jsonl_source(pattern, fields=fields, allow_nan=nan, max_line_bytes=limit))


def read_csv(
    pattern: Any,
    *,
    columns: Any = None,
    names: Sequence[str] | None = None,
    delimiter: str = ",",
    quote: str = '"',
    missing: Mapping[str, Any] | None = None,
    null_values: Sequence[str] | None = None,
    encoding: str = "utf-8",
    max_line_bytes: int = 64 << 20,
) -> Dataset:
    """Read CSV files (RFC 4180, LF or CRLF): one dict a record, its columns as text or as numbers of declared dtypes.

    Fields in quotes may hold delimiters, line ends and doubled quotes. Files are indexed as those of `read_text`; empty lines are left out.

    Args:
        pattern: as `read_text`.
        columns: what an element has: names, or a dict of names and dtypes (bool, integers, floats; None or str for text). By default all,
            as text. With numbers alone, batches are filled column by column.
        names: of the fields, for files without a header; otherwise the first record of each file is one, and all must be alike.
        delimiter: between fields, one ASCII character.
        quote: around fields, another one.
        missing: what stands for a field that is missing, by column; without it an empty number is an error, and empty text is "".
        null_values: the texts of fields that are missing, beside empty ones, in the columns of `missing`. By default NA, N/A, NULL, None
            and the like, and nan where it is no number: in columns of numbers, not of text.
        encoding: as `read_text`.
        max_line_bytes: of a record; as `read_text`.

    Raises:
        PlanError: a column that the files do not have, or an argument out of range.
        RecordError: as `read_text`; headers that differ, or a quote that is not closed; when a record is read: another number of fields
            than the header, an empty field, or one that is no number of its dtype.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock.sources.csvrecords import csv_source

    limit = _count("read_csv", "max_line_bytes", max_line_bytes)
    columns, names = (check.names_argument(given, name, "read_csv") for given, name in ((columns, "columns"), (names, "names")))
    options: dict[str, Any] = {"columns": columns, "names": names, "delimiter": delimiter, "quote": quote}
    options["missing"] = check.mapping_argument(missing, "missing", "read_csv")
    options |= {"null_values": check.names_argument(null_values, "null_values", "read_csv"), "encoding": encoding}
    return _read(csv_source(pattern, **options, max_line_bytes=limit))


def read_tokens(
    pattern: Any,
    length: int,
    *,
    dtype: Any = None,
    offset: int | None = None,
    stride: int | None = None,
    vocab_size: int | None = None,
    eos: int | None = None,
    documents: Any = None,
    output_dtype: Any = "int64",
) -> Dataset:
    """Read windows of token ids: {"tokens": int64 [length + 1]}, whose first `length` are inputs and whose last `length` are targets.

    Files are .npy (one dimension, integers), shards of llm.c or lit-gpt, which have headers as well, or raw binary. No window lies in two
    files, and the tokens behind the last whole window of a file are left out (`print(ds)` counts them). Memory does not grow with the
    files; they are read with `pread`, so a file that is cut while it is read is an error.

    Args:
        pattern: a path, a glob pattern, or several; files in the order of the bytes of their paths.
        length: tokens of the inputs; each window has one more, the last target.
        dtype: of the tokens of raw files, such as np.uint16; headers say it themselves.
        offset: bytes of a header before the tokens, in files of other writers; 0 for none, whatever a file begins with.
        stride: tokens from the beginning of one window to that of the next. None is `length`: each token is a target once in an epoch.
            1 with `shuffle` takes random places, as nanoGPT does, but none twice in an epoch.
        vocab_size: if given, a token outside 0..vocab_size-1 is an error when its window is read.
        eos: the token that ends each document, and belongs to it. Each window then also has `segment_ids` int32 [length + 1] (1, 2, ... for
            each document in it) and `positions` int32 [length + 1] (counted from 0 in each of these), as rows of `pack_sequences` have.
        documents: in place of `eos`, where each document begins in the only file, counted in tokens: integers in ascending order, or the
            path of an .npy file of them, which is mapped.
        output_dtype: of the tokens in elements, such as np.int32; a token that it does not hold is an error when its window is read.

    Raises:
        PlanError: an argument out of range, no dtype for a raw file, another one than a header says, or files of several kinds.
        RecordError: a damaged file, a file that holds something else than tokens (objects, floats, two dimensions, another byte order), or
            none as long as a window.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock._storage import open_storage
    from penstock.sources.tokens import TokenSource, documents_of, find_tokens, token_dtype

    length = _count("read_tokens", "length", length)
    stride = length if stride is None else _count("read_tokens", "stride", stride)
    if offset is not None:
        offset = check.count_argument(offset, "offset", "read_tokens")
    if vocab_size is not None:
        vocab_size = _count("read_tokens", "vocab_size", vocab_size)
    if eos is not None:
        eos = check.count_argument(eos, "eos", "read_tokens")
        if documents is not None:
            raise PlanError("eos and documents= are given", where="read_tokens", fix="leave one out")
    output_dtype = token_dtype(output_dtype, "output_dtype")
    storage = open_storage(pattern, "read_tokens")
    files = find_tokens(storage, dtype, offset)
    begins = None if documents is None else documents_of(documents, files)
    options: dict[str, Any] = {"length": length, "stride": stride, "vocab_size": vocab_size, "eos": eos, "documents": begins}
    return _read(TokenSource(storage, files, **options, dtype=output_dtype))


def read_megatron(pattern: Any, *, sequences: bool = False) -> Dataset:
    """Read the documents of Megatron-LM's indexed datasets (NAME.bin and NAME.idx), any at any time: {"tokens": int64 [n]}.

    The index knows the tokens of each document, so operators go by `num_tokens` without `measure`, and each rank reads its own rows only:

        rows = ps.read_megatron("corpus_text_document").pack_sequences(2048, by="num_tokens").shuffle(seed=1).shard_by_rank().batch(8)

    The index is checked whole when it is opened, and takes 16 bytes a document in memory. Documents are read with `pread`.

    Args:
        pattern: a path with or without its ending, a glob pattern, or several; files in the order of the bytes of their paths.
        sequences: make each sequence an element, as Megatron's GPTDataset does, and not each document, which may have several.

    Raises:
        RecordError: an index is damaged, cut, or none; it does not fit its .bin file, which may be cut.
        PlanError: files of several dtypes.
        SourceError: one of the two files is missing, or no file matches; a file is not what it was, when it is read.
        OSError: a file cannot be read.
    """
    from penstock.sources.megatron import megatron_source

    return _read(megatron_source(pattern, sequences=check.flag_argument(sequences, "sequences", "read_megatron")))


def _count(caller: str, name: str, value: Any) -> int:
    number = whole_number(value)
    if number is not None and 1 <= number < 1 << 31:
        return number
    raise PlanError(f"{name}={value!r}", where=caller, fix=f"give {name} as an int from 1 to {(1 << 31) - 1}")


# -- files of records -------------------------------------------------------------------------------------------------------------


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
    file once and writes an index beside it (or into the user's cache folder); it blocks for that. Nothing is extracted. Compressed archives
    (.tar.gz, .tgz, .tar.zst and the like) are a stream: no `len`, no `ds[i]`.

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
        RecordError: a file that is cut, damaged, or holds what is not read; with file and offset.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock._storage import open_storage
    from penstock.sources.tar import tar_source

    verify = check.flag_argument(verify, "verify", "read_tar")
    storage = open_storage(pattern, "read_tar")
    return _read(tar_source(storage, fields=fields, decode=decode, verify=verify, missing_end=missing_end, links=links))


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

    Uncompressed files are read by an index, which is kept in `.penstock` beside them (or in the user's cache folder) and built when it is
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
    nulls: Any = "error",
    null_values: Mapping[str, Any] | None = None,
    cache_bytes: int = 512 << 20,
    max_group_bytes: int = 4 << 30,
) -> Dataset:
    """Read the rows of Parquet files: {column: value}, files in the order of the bytes of their paths. Needs pyarrow (extra `parquet`).

    Numbers and booleans are NumPy scalars; dates and timestamps (UTC where they have a zone) datetime64; durations and times of day
    timedelta64; strings str; binary bytes; decimals `decimal.Decimal`; structs dicts; lists of numbers arrays, of one shape where all have
    one size; other lists lists; maps lists of pairs. Dictionary columns are what they stand for. A folder `year=2024` gives a column
    `year`. A row costs its row group, unless that is still at hand: shuffle with `shuffle(seed=..., window_groups=k)`, which decodes each
    row group once per epoch if k of them fit `cache_bytes`; `shuffle(seed=...)` decodes them again and again unless all fit.

    Args:
        pattern: a path, a glob (`**` for any depth), or a list of them. Names that begin with `_` or `.`, such as `_SUCCESS`, are left out.
        columns: those to read, in this order; None for all. "image.bytes" is a field of a struct. Others are not read from disk.
        nulls: "error": a null is an error of its element; "none": it is None; or a value, in each column that holds it as it is. A dict
            gives these by column.
        null_values: the same as a dict for `nulls`.
        cache_bytes: bound on decoded row groups in memory; one more may be there for each worker.
        max_group_bytes: bound on one row group decoded: a larger one is an error before anything is allocated for it.

    Raises:
        MissingExtra: pyarrow is not installed.
        PlanError: a column that is not there or has no conversion, or a wrong argument.
        RecordError: a file is no Parquet file, or has another schema than the first; the first difference is named. Integers of several
            widths become the widest, and floats, and columns without any value.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock._storage import open_storage
    from penstock._storage.listing import patterns_of
    from penstock.sources.parquet import parquet_source

    if isinstance(columns, str):
        raise PlanError(f"columns={columns!r} is a str", where="read_parquet()", fix=f"give a list: columns=[{columns!r}]")
    if null_values is not None:
        if nulls != "error":
            raise PlanError(
                "nulls= and null_values= are both given", where="read_parquet()", fix="give nulls= alone; it takes a dict by column"
            )
        nulls = check.mapping_argument(null_values, "null_values", "read_parquet")
    kept = check.count_argument(cache_bytes, "cache_bytes", "read_parquet")
    most = check.count_argument(max_group_bytes, "max_group_bytes", "read_parquet", least=1)
    names = check.names_argument(columns, "columns", "read_parquet")
    storage = open_storage(pattern, "read_parquet")
    return _read(parquet_source(storage, patterns_of(pattern, "read_parquet"), names, nulls, kept, most))


# -- what was left out ------------------------------------------------------------------------------------------------------------


def read_quarantine(file: str | os.PathLike[str], ds: Dataset) -> Dataset:
    """Return the elements of a quarantine file alone: those of `ds`, run through its operators up to the first batch, window or pack.

    Each comes once, in the order of the file, with the epoch and so the random numbers that it failed with. What only orders, repeats or
    leaves out is not there: `shuffle`, `shard`, `take`, `skip`, `repeat`; `enumerate` counts again from its start. Policies are taken off,
    so an element that still fails raises: give `feed(on_error=ps.Skip())` to go on. A line of a whole batch stands for all its elements.

    Args:
        file: what a feed wrote with `ps.Skip(quarantine=)`; an element may stand in several lines.
        ds: the pipeline that wrote it, or one with the same source and mended functions.

    Raises:
        OSError: the file cannot be read.
        SourceError: a line is not one of such a file, or names an element that `ds` does not have.
        PlanError: `ds` reads a generator, whose elements have no numbers.
    """
    chain = [ds._root]
    while not chain[0].starts_chain:
        chain.insert(0, chain[0].children[0])
    base = chain[0]
    if base.streams:
        raise PlanError(
            "the elements of a generator cannot be read by number",
            where="read_quarantine()",
            fix="filter the generator by what the file says",
        )
    places: dict[tuple[int, int], None] = {}
    for line in read_lines(file):
        for place in _places(line, base, os.fsdecode(file)):
            places[place] = None
    root: plan.Node = plan.Pick(child=base, places=tuple(places))
    for node in chain[1:]:
        if node.groups_elements:
            break
        if node.per_element or not node.selects:
            root = node.without_policy().with_children([root])
    return Dataset(root, replace(ds._options, on_error=Raise()))


def _places(line: QuarantinedLine, base: plan.Node, file: str) -> list[tuple[int, int]]:
    """Return the places in `base` of the elements of a line."""
    where, length = f"line {line.number} of {file!r}", length_of(base)
    if line.place is not None:
        found = [line.place]
    elif not base.children and line.keys:
        found = [(epoch, index) for epoch, index, _ in line.keys]
    else:
        raise SourceError(
            "the elements of this line can only be found again in a plan with one source, and without a batch of batches",
            where=where,
            fix="give the branch of zip, concatenate, mix or interleave, or the part before cache() or the batch, in place of the whole "
            "dataset; or look at the line itself",
        )
    for epoch, position in found:
        if length is None or (length != INFINITE and position >= length):
            raise SourceError(
                f"the file names element {position} of epoch {epoch}, and this dataset has {length}",
                where=where,
                fix="give the dataset that wrote the file, or one with the same source",
            )
    return found
