"""The benchmarks' data, made from seeds: the same bytes on every machine that has the same NumPy and OpenCV.

W1: JPEG files of about 500x375 pixels, quality 90, 4:2:0, about 100 kB, with the entropy of photographs (1/f luma, weaker chroma,
hard edges, sensor noise). W3: uint8 images of 32x32x3. W4: a uint16 file of token ids.
"""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEFAULT_ROOT = Path(__file__).resolve().parent.parent / "bench-data"
_JPEG_SIZES = ((500, 375), (500, 375), (500, 333), (375, 500), (500, 400), (480, 360))
_NUM_CLASSES = 20
_VOCABULARY = 50257
_TOKENS_PER_WRITE = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much data and time one run takes."""

    name: str
    num_jpegs: int
    num_small: int
    num_tokens: int
    num_windows: int
    num_integers: int
    min_seconds: float
    rounds: int


SIZES = {
    "full": Size(
        name="full", num_jpegs=4000, num_small=50_000, num_tokens=200_000_000, num_windows=64_000,
        num_integers=10_000_000, min_seconds=2.0, rounds=5,
    ),
    "quick": Size(
        name="quick", num_jpegs=512, num_small=10_000, num_tokens=20_000_000, num_windows=16_000,
        num_integers=500_000, min_seconds=0.3, rounds=3,
    ),
    "tiny": Size(
        name="tiny", num_jpegs=160, num_small=1024, num_tokens=200_000, num_windows=640,
        num_integers=10_000, min_seconds=0.0, rounds=1,
    ),
}  # fmt: skip


def jpeg_list(root: Path, num_jpegs: int) -> Path:
    """Write the first `num_jpegs` JPEG files under `root`/w1 where they are missing, and the list of them; return the list's path.

    Lines are "path label", paths relative to the list's folder.
    """
    folder = root / "w1"
    listing = folder / f"train-{num_jpegs}.txt"
    if listing.exists():
        return listing
    for label in range(_NUM_CLASSES):
        (folder / f"c{label:02d}").mkdir(parents=True, exist_ok=True)
    missing = [(str(folder / _jpeg_name(index)), index) for index in range(num_jpegs) if not (folder / _jpeg_name(index)).exists()]
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        for done, _ in enumerate(pool.imap_unordered(_write_jpeg, missing, chunksize=8), start=1):
            if done % 500 == 0:
                print(f"  made {done} of {len(missing)} JPEG files", flush=True)
    lines = [f"{_jpeg_name(index)} {index % _NUM_CLASSES}\n" for index in range(num_jpegs)]
    _commit(listing, "".join(lines).encode())
    return listing


def read_listing(listing: Path) -> list[tuple[str, int]]:
    """Return (absolute path, label) of every line of a list file."""
    pairs = [line.rsplit(" ", 1) for line in listing.read_text().splitlines()]
    return [(str(listing.parent / name), int(label)) for name, label in pairs]


def _jpeg_name(index: int) -> str:
    return f"c{index % _NUM_CLASSES:02d}/{index:04d}.jpg"


def _write_jpeg(task: tuple[str, int]) -> None:
    import cv2
    import simplejpeg

    cv2.setNumThreads(1)
    path, index = task
    image = _picture(np.random.default_rng(90_000 + index), *_JPEG_SIZES[index % len(_JPEG_SIZES)])
    _commit(Path(path), simplejpeg.encode_jpeg(image, quality=90, colorspace="RGB", colorsubsampling="420"))


def _commit(path: Path, content: bytes) -> None:
    """Write a file under another name first, so that an interrupted run leaves no half file behind."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    partial.replace(path)


def _picture(rng: np.random.Generator, width: int, height: int) -> NDArray[np.uint8]:
    """Paint one picture, uint8 of shape (height, width, 3)."""
    import cv2

    canvas = np.empty((height, width, 3), np.float32)
    canvas[:] = rng.uniform(60, 190, 3)
    slope = rng.uniform(-0.25, 0.25, (2, 3))
    canvas += np.arange(height, dtype=np.float32)[:, None, None] * slope[0] + np.arange(width, dtype=np.float32)[:, None] * slope[1]
    for octave, amplitude in enumerate((34, 26, 19, 14, 10)):
        step = 2 ** (5 - octave)
        canvas += amplitude * _noise(rng, width, height, step, 1, cv2.INTER_CUBIC)
        canvas += 0.35 * amplitude * _noise(rng, width, height, 2 * step, 3, cv2.INTER_LINEAR)
    for _ in range(rng.integers(6, 16)):
        _paint_shape(rng, canvas, width, height)
    grain = rng.standard_normal((height, width), dtype=np.float32) * np.float32(rng.uniform(22, 40))
    canvas += cv2.GaussianBlur(grain, (3, 3), 0.55)[..., None]
    return np.clip(canvas, 0, 255).astype(np.uint8)


def _noise(rng: np.random.Generator, width: int, height: int, step: int, channels: int, interpolation: int) -> Any:
    import cv2

    coarse = rng.standard_normal((height // step + 3, width // step + 3, channels), dtype=np.float32)
    return cv2.resize(coarse, (width, height), interpolation=interpolation).reshape(height, width, channels)


def _paint_shape(rng: np.random.Generator, canvas: NDArray[np.float32], width: int, height: int) -> None:
    import cv2

    corner = (int(rng.integers(0, width)), int(rng.integers(0, height)))
    other = (corner[0] + int(rng.integers(10, 200)), corner[1] + int(rng.integers(10, 200)))
    colour = tuple(float(value) for value in rng.integers(0, 256, 3))
    layer = canvas.copy()
    match int(rng.integers(0, 3)):
        case 0:
            centre = ((corner[0] + other[0]) // 2, (corner[1] + other[1]) // 2)
            axes = ((other[0] - corner[0]) // 2, (other[1] - corner[1]) // 2)
            cv2.ellipse(layer, centre, axes, 0, 0, 360, colour, -1)
        case 1:
            cv2.rectangle(layer, corner, other, colour, -1)
        case _:
            cv2.line(layer, corner, other, colour, int(rng.integers(1, 8)))
    opacity = float(rng.uniform(0.35, 0.86))
    cv2.addWeighted(layer, opacity, canvas, 1 - opacity, 0, dst=canvas)


def small_images(num_small: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images of shape (num_small, 32, 32, 3) and labels 0..9 of shape (num_small,)."""
    rng = np.random.default_rng(7)
    return rng.integers(0, 256, (num_small, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, num_small, dtype=np.int64)


def token_file(root: Path, num_tokens: int) -> Path:
    """Write a file of `num_tokens` uint16 token ids where it is missing; return its path."""
    path = root / f"w4-{num_tokens}.bin"
    if path.exists() and path.stat().st_size == 2 * num_tokens:
        return path
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(11)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        for start in range(0, num_tokens, _TOKENS_PER_WRITE):
            file.write(rng.integers(0, _VOCABULARY, min(_TOKENS_PER_WRITE, num_tokens - start), dtype=np.uint16).data)
    partial.replace(path)
    return path


def tokens(path: Path) -> NDArray[np.uint16]:
    """Map a token file, read-only."""
    return np.memmap(path, dtype=np.uint16, mode="r")
