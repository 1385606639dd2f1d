"""The twin is compared with C in test_spans; here is what it has alone."""

from __future__ import annotations

import os

import numpy as np

from penstock.kernels.spans import FLAGS, Files, known_of


def test_paths_are_found_by_number() -> None:
    files = Files(b"/a\0/bc\0", np.array([0, 3], np.int64), np.zeros((2, 3), np.int64))
    assert [files.path(0), files.path(1)] == [b"/a", b"/bc"]


def test_opening_never_blocks_and_never_passes_to_children() -> None:
    assert FLAGS & os.O_NONBLOCK
    descriptor = os.open(__file__, FLAGS)
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    assert FLAGS & (os.O_WRONLY | os.O_RDWR) == 0


def test_a_version_is_size_time_and_inode() -> None:
    status = os.stat(__file__)
    assert known_of(status) == (status.st_size, status.st_mtime_ns, status.st_ino)
