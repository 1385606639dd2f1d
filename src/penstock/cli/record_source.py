"""Opens files of records by their names: TFRecord, tar, Parquet, JSON lines; and says what to do about other URLs."""

from __future__ import annotations

from typing import Any

from penstock.errors import SourceError

__all__ = ["TFRECORD", "is_url", "open_records", "records_kind", "write_a_module"]

TFRECORD = "TFRecord files"
_KINDS = ((".tar", "tar files"), (".parquet", "Parquet files"), (".jsonl", "files of JSON lines"))
_READERS = {TFRECORD: "read_tfrecord", **dict(zip((kind for _, kind in _KINDS), ("read_tar", "read_parquet", "read_jsonl"), strict=True))}


def is_url(source: str) -> bool:
    """Tell whether a source is no path of this machine."""
    return "://" in source


def records_kind(source: str) -> str | None:
    """Say by its name what a path, glob or URL of record files is; None for anything else."""
    name = source.rpartition("/")[2].lower()
    if ".tfrecord" in name:
        return TFRECORD
    return next((kind for ending, kind in _KINDS if name.endswith(ending)), None)


def open_records(source: str) -> tuple[Any, str] | None:
    """Open a path, glob or URL of record files; None when its name is not one of such.

    Elements of TFRecord files are {"record": bytes}: their features stand nowhere in the file.

    Raises:
        SourceError: a URL of something else.
        PenstockError, OSError: the files cannot be opened.
    """
    import penstock as ps

    kind = records_kind(source)
    if kind == TFRECORD:
        return ps.read_tfrecord(source, compression="auto"), kind
    if kind is not None:
        options = {"decode": "basic"} if kind == "tar files" else {}
        return getattr(ps, _READERS[kind])(source, **options), kind
    if is_url(source):
        raise SourceError(
            f"what {source!r} holds cannot be told by its name", where="penstock SOURCE", fix=write_a_module("read_files", source)
        )
    return None


def write_a_module(reader: str, source: str, options: str = "") -> str:
    """Say how a dataset that the command line cannot describe is given to it."""
    return f"write `ds = ps.{reader}({source!r}{options})`, and what else it needs, in a module of yours, and give module:ds"
