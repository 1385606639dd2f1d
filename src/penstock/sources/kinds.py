"""The formats that commands know by name, and by the names of files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import PlanError
from penstock.sources.csvrecords import CsvRecords
from penstock.sources.records import RecordFormat
from penstock.sources.tar import TarFormat
from penstock.sources.text import JsonLines, TextLines
from penstock.sources.tfrecord import TFRecordFormat

__all__ = ["KINDS", "Kind", "format_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One format with its default options.

    Attributes:
        name: its kind.
        endings: of the names of its files, in lower case; the longest that fits decides.
        make: returns the format.
        noun: what a record is called.
    """

    name: str
    endings: tuple[str, ...]
    make: Callable[[], RecordFormat]
    noun: str = "record"


KINDS: tuple[Kind, ...] = (
    Kind(name="text", endings=(".txt", ".text", ".log"), make=TextLines, noun="line"),
    Kind(name="tar", endings=(".tar",), make=TarFormat, noun="sample"),
    Kind(name="tfrecord", endings=(".tfrecord", ".tfrecords", ".tfrec"), make=TFRecordFormat),
    Kind(name="jsonl", endings=(".jsonl", ".ndjson"), make=JsonLines, noun="line"),
    Kind(name="csv", endings=(".csv",), make=CsvRecords),
)
"""New ones are added here."""


def format_for(name: str | None, path: str, caller: str) -> Kind:
    """Return the format of a name, or for None that of a file's name.

    Raises:
        PlanError: there is none of this name, or the file's name says nothing.
    """
    names = ", ".join(kind.name for kind in KINDS)
    if name is not None:
        for kind in KINDS:
            if kind.name == name:
                return kind
        raise PlanError(f"{name!r} is no format", where=caller, fix=f"give one of {names}")
    lower = os.path.basename(path).lower()
    fitting = [
        (len(ending), kind) for kind in KINDS for ending in kind.endings if ending in (lower[-len(ending) :], _stem_end(lower, ending))
    ]
    if not fitting:
        raise PlanError(f"the name of {path!r} does not say which format it has", where=caller, fix=f"name it with --format: {names}")
    return max(fitting, key=lambda pair: pair[0])[1]


def _stem_end(lower: str, ending: str) -> str:
    """Return `ending` for a shard name such as "train.tfrecord-00003-of-00010"."""
    return ending if f"{ending}-" in lower and "-of-" in lower else ""
