"""The builder: sources, and what to do with their elements."""

from penstock.dataset.builder import Dataset
from penstock.dataset.opening import (
    from_arrays,
    from_dataloader,
    from_generator,
    from_source,
    from_stream,
    read_csv,
    read_files,
    read_images,
    read_jsonl,
    read_list,
    read_parquet,
    read_quarantine,
    read_tar,
    read_text,
    read_tfrecord,
    read_tokens,
)

__all__ = [
    "Dataset",
    "from_arrays",
    "from_dataloader",
    "from_generator",
    "from_source",
    "from_stream",
    "read_csv",
    "read_files",
    "read_images",
    "read_jsonl",
    "read_list",
    "read_parquet",
    "read_quarantine",
    "read_tar",
    "read_text",
    "read_tfrecord",
    "read_tokens",
]
