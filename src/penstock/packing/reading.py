"""Packed data as a dataset again: the elements that were packed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import dataset as reading
from penstock.dataset import Dataset
from penstock.errors import PlanError, RecordError, SpecError
from penstock.formats.features import Feature, FixedLenFeature, VarLenFeature
from penstock.formats.tar import decode_field
from penstock.packing.manifest import Manifest, read_manifest
from penstock.packing.schema import SINGLE, Column, from_raw, shaped

__all__ = ["Restore", "features_of", "read_packed"]


def read_packed(path: str | os.PathLike[str]) -> Dataset:
    """Read what `pack` wrote: the same fields with the same types, in the order in which they were packed.

    Elements are dicts; fields of nested dicts have names such as "meta/size". Integers and floats are NumPy scalars; arrays may be written
    to. Sizes and names of the files are compared with the manifest first. It has positions, so `shuffle` is over all elements; TFRecord
    with compression is a stream.

    Args:
        path: the folder, or the manifest.

    Raises:
        SourceError: there is no manifest, or a file is missing, too many, or not as large as it was.
        RecordError: the manifest or a file cannot be read; a shard has another number of elements than were packed.
        MissingExtra: Parquet without pyarrow.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise PlanError(f"{path!r:.60} is no path", where="read_packed()", fix="give the folder that was packed into, or its manifest")
    manifest = read_manifest(path)
    manifest.check_files()
    read = {"tfrecord": _records, "tar": _tar, "parquet": _parquet}[manifest.format]
    opened = read(manifest)
    if manifest.compression != "GZIP" and len(opened) != len(manifest):
        raise RecordError(
            f"the files hold {len(opened)} elements, and {len(manifest)} were packed",
            where=f"manifest {manifest.path!r}",
            fix="see which with `penstock inspect --verify`, and pack it again",
        )
    return opened.map(Restore(manifest.columns), name="restore")


def features_of(manifest: Manifest) -> dict[str, Feature]:
    """Return the features of packed TFRecord files, for `read_tfrecord` or `parse_example`.

    Raises:
        SpecError: they are of another format.
    """
    if manifest.format != "tfrecord":
        raise SpecError(f"{manifest.format} files have no features", where=f"manifest {manifest.path!r}", fix="use read_packed")
    out: dict[str, Feature] = {}
    for column in manifest.columns:
        out[column.name] = _feature(column)
        if column.shapes:
            out[column.shapes] = FixedLenFeature((len(column.field.shape),), "int64")
    return out


def _feature(column: Column) -> Feature:
    if column.stored in ("bytes", "str", "raw"):
        return FixedLenFeature((), bytes)
    dtype = "float32" if np.dtype(column.field.dtype).kind == "f" else "int64"
    sizes = [size for size in column.field.shape if size is not None]
    # The length of a vector may differ even where it did not in the sample.
    return FixedLenFeature(sizes, dtype) if len(sizes) == len(column.field.shape) != 1 else VarLenFeature(dtype)


def _records(manifest: Manifest) -> Dataset:
    return reading.read_tfrecord(manifest.files(), compression=manifest.compression, features=features_of(manifest), allow_empty=True)


def _tar(manifest: Manifest) -> Dataset:
    return reading.read_tar(manifest.files())


def _parquet(manifest: Manifest) -> Dataset:
    return reading.read_parquet(manifest.files())


@dataclass(frozen=True, slots=True)
class Restore:
    """Turn what stands in the files into what was packed. For `Dataset.map`; from any thread."""

    columns: tuple[Column, ...]

    def __call__(self, found: Mapping[str, Any]) -> Any:
        """Return the element; a dataset of single values gives these."""
        out = {column.field.name: _restored(column, found) for column in self.columns}
        return out[SINGLE] if self.columns[0].field.single else out


def _restored(column: Column, found: Mapping[str, Any]) -> Any:
    value = found[column.name]
    field = column.field
    if field.kind == "bytes":
        return bytes(value)
    if field.kind == "str":
        return value if isinstance(value, str) else bytes(value).decode()
    shape = found[column.shapes] if column.shapes else None
    if column.stored in ("npy", "text"):
        value = decode_field(column.name, memoryview(value))
    if column.stored == "raw":
        array = from_raw(column, value, shape)
    else:
        array = np.asarray(value).astype(field.dtype, copy=False)
        if column.stored == "list":
            array = shaped(field, array, shape)
    return array if field.shape else array.reshape(())[()]
