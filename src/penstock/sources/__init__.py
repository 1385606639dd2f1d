"""Sources of elements: arrays, indexable objects, generators, streams, files, image folders, list files and records."""

from __future__ import annotations

from penstock.sources.arrays import ArraySource, IndexableSource, indexed_source
from penstock.sources.files import FilesSource, ImageFolderSource, ListSource, PairsSource
from penstock.sources.records import RecordFormat, RecordSource, RecordTable
from penstock.sources.stream import GeneratorSource, IterableSource, StatefulSource, stream_source
from penstock.sources.tar import TarSource
from penstock.sources.text import TextLines, text_source

__all__ = [
    "ArraySource",
    "FilesSource",
    "GeneratorSource",
    "ImageFolderSource",
    "IndexableSource",
    "IterableSource",
    "ListSource",
    "PairsSource",
    "RecordFormat",
    "RecordSource",
    "RecordTable",
    "StatefulSource",
    "TarSource",
    "TextLines",
    "indexed_source",
    "stream_source",
    "text_source",
]
