"""The options of `pack`: what decides the bytes beside the dataset, and where they go."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from penstock._plan import check
from penstock._system.memory import available_cpus
from penstock._system.text import redacted
from penstock.dataset.measuring import Number, told_of
from penstock.errors import PlanError
from penstock.packing.encoders import CHOICES, SUFFIXES
from penstock.sources.measures import NUMBERS

_SHARD_BYTES = 256_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackOptions:
    """Options of `pack` that change what is written.

    Attributes:
        format: "tfrecord" (records are `tf.train.Example`), "tar" (as WebDataset has it) or "parquet"; "decoded" for arrays that are used
            where they lie in the file, such as decoded images; of elements that are documents of token ids "tokens" (nothing but the
            tokens, for `read_tokens`) or "megatron" (with an index, as Megatron-LM has it).
        compression: None; "GZIP" for TFRecord, "zstd" for Parquet.
        num_shards: how many files. None: as many as make them about `shard_bytes` large, as a stream is always cut.
        shard_bytes: the size to aim at, judged by a sample at fixed positions, so that it does not depend on who writes what; 256 MB by
            default. Shards get equal numbers of elements, so their sizes differ as the elements do.
        shuffle: seed of an order over all elements; None keeps the dataset's own.
        name: what the names of the files begin with.
        version: of the functions and objects that the dataset is made with: these count by their names, and another version is another
            dataset.
        dtype: of tokens in the file, "uint16" or "int32" (`pack` takes np.uint16 too). None: uint16 where the elements are uint8 or uint16,
            else int32. A token that it does not hold is an error of its element.
        measure: functions by name, such as {"length": length}: each returns a whole number, or a bool, of an element. `read_packed` gives a
            dataset that knows the numbers, as `Dataset.measure` does.
    """

    format: Literal["tfrecord", "tar", "parquet", "tokens", "megatron", "decoded"] = "tfrecord"
    compression: str | None = None
    num_shards: int | None = None
    shard_bytes: int | None = None
    shuffle: int | None = None
    name: str = "data"
    version: str | int = ""
    dtype: str | None = None
    measure: Mapping[str, Number] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.format not in SUFFIXES:
            raise PlanError(f"format={self.format!r} is not known", where="pack()", fix=f"give one of {', '.join(SUFFIXES)}")
        for name, choices in CHOICES.items():
            value, known = getattr(self, name), choices.get(self.format, ())
            if value is not None and value not in known:
                raise PlanError(
                    f"{name}={value!r} is not known for {self.format}",
                    where="pack()",
                    fix=f"give {' or '.join(map(repr, (None, *known)))}",
                )
        if self.num_shards is not None and self.shard_bytes is not None:
            raise PlanError("num_shards= and shard_bytes= say the same in two ways", where="pack()", fix="give one of them")
        for name in ("num_shards", "shard_bytes"):
            if getattr(self, name) is not None:
                check.count_argument(getattr(self, name), name, "pack", least=1)
        if self.shuffle is not None:
            check.seed_argument(self.shuffle, "pack")
        told_of(self.measure)
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise PlanError(
                f"name={self.name!r} cannot begin a file name",
                where="pack()",
                fix="give letters, digits, '_', '-' and '.', such as \"train\"",
            )

    def aimed_bytes(self) -> int:
        """Return the size of a shard to aim at."""
        return self.shard_bytes or _SHARD_BYTES

    def count_of(self, estimated_bytes: float, num_positions: int) -> int:
        """Return how many shards there will be."""
        wanted = self.num_shards or -(-int(estimated_bytes) // self.aimed_bytes())
        return max(1, min(wanted, num_positions))

    def file_names(self, num_shards: int) -> list[str]:
        """Return the names of the shards: those of TensorFlow Datasets, for a tar those that WebDataset's braces count up."""
        suffix = SUFFIXES[self.format][0] + (".gz" if self.compression == "GZIP" else "")
        if self.format == "tar":
            return [f"{self.name}-{number:06d}{suffix}" for number in range(num_shards)]
        return [f"{self.name}-{number:05d}-of-{num_shards:05d}{suffix}" for number in range(num_shards)]

    def names_of(self, shard: str) -> list[str]:
        """Return the names of all files of a shard, for that of the first."""
        endings = [*SUFFIXES[self.format][1:], *([NUMBERS] if self.measure else [])]
        return [shard, *(os.path.splitext(shard)[0] + ending for ending in endings)]

    def manifest_name(self) -> str:
        """Return the name of the manifest."""
        return f"{self.name}-manifest.json"

    def as_json(self) -> dict[str, Any]:
        """Return what stands in the manifest."""
        record = {**asdict(self), "version": str(self.version), "measure": told_of(self.measure)}
        return {name: value for name, value in record.items() if value or name not in ("version", "dtype", "measure")}


def options_of(given: dict[str, Any]) -> PackOptions:
    """Make the record of keyword arguments.

    Raises:
        PlanError: one is not known, or its value.
    """
    known = PackOptions.__dataclass_fields__
    for name in given:
        if name not in known:
            raise PlanError(f"there is no option {name!r}", where="pack()", fix=f"the options are {', '.join(sorted(known))}")
    dtype = given.get("dtype")
    made = {"dtype": getattr(dtype, "__name__", getattr(dtype, "name", dtype)), "measure": given.get("measure") or {}}
    return PackOptions(**{**given, **made})


def destination(dest: str | os.PathLike[str]) -> str:
    """Return the absolute path of a destination.

    Raises:
        PlanError: it is no path, nothing, a URL, begins with `~`, or is a file.
    """
    try:
        path = os.fsdecode(dest)
    except TypeError:
        raise PlanError(f"dest={dest!r} is no path", where="pack()", fix="give the path of a folder") from None
    if "://" in path:
        raise PlanError(
            f"{redacted(path)!r} is a URL, and packing writes to folders of this machine",
            where="pack()",
            fix="pack to a folder, and copy that to the store when it is complete",
        )
    if not path or path.startswith("~"):
        raise PlanError(f"dest={path!r} names no folder", where="pack()", fix="give its path; os.path.expanduser makes one of '~/...'")
    if os.path.lexists(path) and not os.path.isdir(path):
        raise PlanError(f"dest={path!r} is there and is no folder", where="pack()", fix="give the path of a folder, new or not")
    return os.path.abspath(path)


def workers_of(num_workers: Any) -> int:
    """Return how many workers there are: one per available CPU for "auto".

    Raises:
        PlanError: it is no number of workers.
    """
    return available_cpus() if num_workers == "auto" else check.count_argument(num_workers, "num_workers", "pack", least=1)
