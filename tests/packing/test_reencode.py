"""Images made smaller before packing."""

from __future__ import annotations

import numpy as np
import pytest

import penstock as ps
from penstock.errors import PlanError, SpecError
from penstock.packing.reencode import EncodeJpeg, reencoded

pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
PIXELS = np.tile(np.arange(200, dtype=np.uint8)[:, None, None], (1, 100, 3))


def test_images_are_decoded_resized_and_encoded_again() -> None:
    data = EncodeJpeg("data", 95)({"data": PIXELS})["data"]
    ds = ps.from_source([{"data": data, "label": 3}])
    (element,) = reencoded(ds, "data", size=50, quality=80)
    assert element["label"] == 3
    pixels = ps.image.decode(element["data"])
    assert pixels.shape == (100, 50, 3)
    assert np.abs(pixels.astype(int).mean() - PIXELS.mean()) < 2
    (same,) = reencoded(ds, "data", size=None, quality=80)
    assert ps.image.decode(same["data"]).shape == PIXELS.shape
    (pixels,) = reencoded(ds, "data", size=50, quality=None)
    assert (pixels["data"].dtype, pixels["data"].shape) == (np.uint8, (100, 50, 3))


def test_a_lower_quality_takes_fewer_bytes() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    low, high = (len(EncodeJpeg("data", quality)({"data": noise})["data"]) for quality in (20, 95))
    assert low < high / 2


@pytest.mark.parametrize("quality", [0, 101, 1.5, True])
def test_a_quality_that_cannot_be_is_an_error(quality: object) -> None:
    with pytest.raises(PlanError) as caught:
        EncodeJpeg("data", quality)  # type: ignore[arg-type]
    assert f"quality={quality!r} is out of range" in str(caught.value)


@pytest.mark.parametrize("value", [b"bytes", PIXELS[..., 0], PIXELS.astype(np.float32)])
def test_what_is_no_image_is_an_error(value: object) -> None:
    with pytest.raises(SpecError, match=r"expected uint8\[height, width, 3\]"):
        EncodeJpeg("data")({"data": value})
