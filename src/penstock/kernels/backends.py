"""Which version of the kernels runs: the C library or its NumPy twin."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.kernels import native, twin
from penstock.kernels.library import chosen_library

__all__ = ["Backend", "backend", "chosen"]


class Backend(Protocol):
    """What both versions offer. They trust their arguments; each docstring is in `penstock.kernels.twin`."""

    @property
    def name(self) -> str:
        """Say which version this is."""

    def permute(self, positions: NDArray[np.int64], num_elements: int, key: int, out: NDArray[np.int64], /) -> int:
        """Permute positions."""

    def philox_uniform(
        self,
        key0: int,
        key1: int,
        epochs: NDArray[np.int64],
        indices: NDArray[np.int64],
        lanes: NDArray[np.uint64],
        out: NDArray[np.float64],
        /,
    ) -> None:
        """Draw uniform numbers."""

    def normalize(
        self,
        values: NDArray[np.uint8],
        scale: NDArray[np.float32],
        bias: NDArray[np.float32],
        out: NDArray[np.float32],
        channels_first: bool,
        /,
    ) -> None:
        """Scale and shift channels."""

    def copy_images(self, values: NDArray[np.uint8], out: NDArray[np.uint8], /) -> None:
        """Copy a view."""

    def crop_images(
        self,
        values: NDArray[np.uint8],
        tops: NDArray[np.int64],
        lefts: NDArray[np.int64],
        flips: NDArray[np.uint8],
        fill: int,
        out: NDArray[np.uint8],
        /,
    ) -> None:
        """Cut windows out of images."""

    def normalize_image(
        self,
        value: NDArray[np.uint8],
        scale: NDArray[np.float32],
        bias: NDArray[np.float32],
        out: NDArray[np.float32],
        channels_first: bool,
        /,
    ) -> None:
        """Normalise one image."""

    def read_file(self, path: bytes, buffer: NDArray[np.uint8], /) -> int:
        """Read a regular file."""

    def gather_windows(self, values: NDArray[Any], starts: NDArray[np.int64], out: NDArray[np.int64], /) -> int:
        """Cut windows out of a sequence."""

    def deal(
        self,
        positions: NDArray[np.int64],
        shares: NDArray[np.uint64],
        sides: NDArray[np.int64],
        num_children: int,
        out: NDArray[np.int64],
        starts: NDArray[np.int64],
        /,
    ) -> int:
        """Send positions down a tree of shares."""


@cache
def chosen() -> Backend:
    """Return the version that this process uses, decided at the first call."""
    library = chosen_library()
    return twin if library is None else native.Native(library)


def backend() -> str:
    """Return "c" or "numpy": which version of the kernels this process uses.

    Chosen at the first use: NumPy when the C library was not built or PENSTOCK_KERNELS=numpy is in the environment.
    """
    return chosen().name
