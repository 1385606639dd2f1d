"""Where elements come from: arrays, indexable objects, generators, streams, files, image folders and list files."""

from __future__ import annotations

from penstock.sources.arrays import ArraySource
from penstock.sources.files import FilesSource
from penstock.sources.folder import ImageFolderSource
from penstock.sources.generator import GeneratorSource
from penstock.sources.indexed import IndexableSource
from penstock.sources.listfile import ListSource
from penstock.sources.stream import IterableSource, StatefulSource, stream_source
from penstock.sources.tar import TarSource

__all__ = [
    "ArraySource",
    "FilesSource",
    "GeneratorSource",
    "ImageFolderSource",
    "IndexableSource",
    "IterableSource",
    "ListSource",
    "StatefulSource",
    "TarSource",
    "stream_source",
]
