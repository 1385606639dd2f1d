"""Where datasets begin: functions that open files of records, lines and tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock._plan import node as plan
from penstock.dataset.builder import Dataset
from penstock.errors import PlanError

__all__ = ["read_tokens"]


def read_tokens(pattern: Any, length: int, *, dtype: Any = None, stride: int | None = None, vocab_size: int | None = None) -> Dataset:
    """Read windows of token ids: {"tokens": int64 [length + 1]}, whose first `length` are inputs and whose last `length` are targets.

    Files are .npy (one dimension, integers) or raw binary. No window lies in two files, and the tokens behind the last whole window of a
    file are left out (`print(ds)` counts them). Memory does not grow with the files; they are read with `pread`, so a file that is cut
    while it is read is an error.

    Args:
        pattern: a path, a glob pattern, or several; files in the order of the bytes of their paths.
        length: tokens of the inputs; each window has one more, the last target.
        dtype: of the tokens of raw files, such as np.uint16; .npy files say it themselves.
        stride: tokens from the beginning of one window to that of the next. None is `length`: each token is a target once in an epoch.
            1 with `shuffle` draws random places, as nanoGPT does, but none twice in an epoch.
        vocab_size: if given, a token outside 0..vocab_size-1 is an error when its window is read.

    Raises:
        PlanError: an argument out of range, no dtype for a raw file, another one than an .npy file says, or files of several kinds.
        RecordError: a damaged file, a file that holds something else than tokens (objects, floats, two dimensions, another byte order), or
            none as long as a window.
        SourceError, OSError: no file, or one that cannot be read.
    """
    from penstock._storage import open_storage
    from penstock.sources.tokenfiles import find_tokens
    from penstock.sources.tokens import TokenSource

    length = _count("length", length)
    stride = length if stride is None else _count("stride", stride)
    if vocab_size is not None:
        vocab_size = _count("vocab_size", vocab_size)
    storage = open_storage(pattern, "read_tokens")
    source = TokenSource(storage, find_tokens(storage, dtype), length=length, stride=stride, vocab_size=vocab_size)
    return Dataset(plan.Read(source=source))


def _count(name: str, value: Any) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 1 <= value < 1 << 31:
        return int(value)
    raise PlanError(f"{name}={value!r}", where="read_tokens", fix=f"give {name} as an int from 1 to {(1 << 31) - 1}")
