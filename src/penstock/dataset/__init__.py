"""The builder: sources, and what to do with their elements."""

from penstock.dataset.builder import Dataset
from penstock.dataset.opening import from_arrays, from_generator, from_source, from_stream, read_files, read_images, read_list, read_text
from penstock.dataset.quarantine import read_quarantine

__all__ = [
    "Dataset",
    "from_arrays",
    "from_generator",
    "from_source",
    "from_stream",
    "read_files",
    "read_images",
    "read_list",
    "read_quarantine",
    "read_text",
]
