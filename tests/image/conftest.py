"""Images that the tests of this room share."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image


@pytest.fixture(scope="session")
def photo() -> NDArray[np.uint8]:
    """Return 75 x 100 smooth colours with some grain: every corner differs, and JPEG keeps it well."""
    rows, columns = np.mgrid[0:75, 0:100]
    waves = [128 + 90 * np.sin(rows / 17 + k) * np.cos(columns / (23 - 4 * k)) + columns / 3 for k in range(3)]
    grain = np.random.default_rng(5).normal(0, 3, (75, 100, 3))
    return np.clip(np.stack(waves, axis=2) + grain, 0, 255).astype(np.uint8)


@pytest.fixture(scope="session")
def encode() -> Callable[..., bytes]:
    """Return a function that encodes a Pillow image or an array with Pillow."""

    def run(image: Any, kind: str, **options: Any) -> bytes:
        stream = io.BytesIO()
        (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(stream, kind, **options)
        return stream.getvalue()

    return run
