"""JPEG files where simplejpeg is not installed: OpenCV gives the same pixels, finds the same damage, and it is said once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from programs import python

import penstock as ps
import penstock.image as image
from penstock.errors import DecodeError, MissingExtra
from penstock.image.operator import by_opencv, load_simplejpeg
from penstock.packing.reencode import EncodeJpeg

Encode = Callable[..., bytes]
Photo = NDArray[np.uint8]

SAID = 'simplejpeg is not installed: OpenCV decodes each JPEG twice, to find missing pixels. pip install "penstock[image]" makes it faster'
KINDS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "progressive": {"progressive": True},
    "4:4:4": {"subsampling": 0},
    "restart marks": {"restart_marker_blocks": 3},
    "turned": {"exif": b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"},
}


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Return what makes simplejpeg impossible to import, in this test only."""

    def run() -> None:
        monkeypatch.setitem(sys.modules, "simplejpeg", None)
        for cached in (by_opencv, load_simplejpeg):
            cached.cache_clear()

    yield run
    monkeypatch.undo()
    for cached in (by_opencv, load_simplejpeg):
        cached.cache_clear()


@pytest.mark.filterwarnings("ignore:simplejpeg is not installed")
@pytest.mark.parametrize("mode", ["RGB", "GRAY"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_pixels_are_those_of_simplejpeg(encode: Encode, photo: Photo, hide: Callable[[], None], kind: str, mode: Any) -> None:
    files = [encode(photo, "JPEG", **KINDS[kind]), encode(Image.fromarray(photo).convert("L"), "JPEG", **KINDS[kind])]
    wanted = [image.decode(data, mode=mode) for data in files]
    hide()
    for data, pixels in zip(files, wanted, strict=True):
        np.testing.assert_array_equal(image.decode(data, mode=mode), pixels)


@pytest.mark.filterwarnings("ignore:simplejpeg is not installed")
def test_cmyk_differs_by_two_at_most(encode: Encode, photo: Photo, hide: Callable[[], None]) -> None:
    data = encode(Image.fromarray(photo).convert("CMYK"), "JPEG")
    wanted = image.decode(data).astype(int)
    hide()
    assert np.abs(image.decode(data) - wanted).max() <= 2


@pytest.mark.filterwarnings("ignore:simplejpeg is not installed")
@pytest.mark.parametrize("kind", ["baseline", "progressive", "restart marks"])
@pytest.mark.parametrize("share", [0.5, 0.7, 0.9, 0.99])
def test_a_file_that_is_cut_is_an_error(encode: Encode, photo: Photo, hide: Callable[[], None], kind: str, share: float) -> None:
    data = encode(photo, "JPEG", **KINDS[kind])
    hide()
    with pytest.raises(DecodeError, match=r"^JPEG image is damaged: "):
        image.decode(data[: int(len(data) * share)])


@pytest.mark.filterwarnings("ignore:simplejpeg is not installed")
@pytest.mark.parametrize("crop_only", [False, True])
def test_a_feed_gives_the_same_batches(encode: Encode, photo: Photo, hide: Callable[[], None], crop_only: bool) -> None:
    files = [{"data": encode(np.roll(photo, 7 * number, 0), "JPEG")} for number in range(8)]

    def batches() -> list[bytes]:
        dataset = ps.from_source(files).map(image.decode("data", crop_only=crop_only))
        dataset = dataset.map(image.random_resized_crop("data", 24), seed=7).batch(4)
        with dataset.feed(executor="threads", num_workers=2) as feed:
            return [batch["data"].tobytes() for batch in feed]

    wanted = batches()
    hide()
    assert batches() == wanted


@pytest.mark.filterwarnings("ignore:simplejpeg is not installed")
def test_a_cache_names_opencv_alone_and_is_read_again(encode: Encode, photo: Photo, hide: Callable[[], None], tmp_path: Path) -> None:
    hide()
    files = [encode(photo, "JPEG"), encode(photo[::-1], "JPEG")]

    def pixels() -> list[bytes]:
        dataset = ps.from_source([{"data": data} for data in files]).map(image.decode("data")).cache(tmp_path / "cache")
        return [element["data"].tobytes() for element in dataset]

    assert pixels() == pixels() == [image.decode(data).tobytes() for data in files]
    assert image.decode("data").made_by == f"cv2 {cv2.__version__}"


def test_it_is_said_where_the_operator_is_made(encode: Encode, photo: Photo, hide: Callable[[], None]) -> None:
    hide()
    with pytest.warns(RuntimeWarning) as caught:
        operator = image.decode("data")
    assert [(str(one.message), one.filename) for one in caught] == [(SAID, __file__)]
    assert operator({"data": encode(photo, "JPEG")})["data"].shape == photo.shape  # and no second warning, which would be an error


def test_a_program_without_simplejpeg_runs_and_says_so_once() -> None:
    code = (
        "import sys; sys.modules['simplejpeg'] = None\n"
        "import cv2, numpy as np, penstock as ps\n"
        "data = cv2.imencode('.jpg', np.full((8, 9, 3), 50, np.uint8))[1].tobytes()\n"
        "for _ in range(3):\n    print(ps.image.decode(data).shape)\n"
    )
    done = python("-c", code)
    assert done.stdout == "(8, 9, 3)\n" * 3
    assert done.stderr.count("simplejpeg is not installed") == 1


def test_writing_jpeg_needs_simplejpeg(photo: Photo, hide: Callable[[], None]) -> None:
    hide()
    with pytest.raises(MissingExtra) as caught:
        EncodeJpeg("data", 90)({"data": photo})
    assert caught.value.fix == 'pip install "penstock[image]"'
