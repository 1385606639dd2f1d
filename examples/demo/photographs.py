"""Finds real photographs that other packages ship as files and cuts them, once, into JPEG crops with their list files."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import MissingExtra, SourceError
from penstock.observe.progress import Progress

__all__ = ["CROP_HEIGHT", "CROP_WIDTH", "Crops", "cut_crops", "find_photos", "photos_in"]

CROP_WIDTH, CROP_HEIGHT = 500, 375
"""About the median size of ImageNet's photographs, so that decoding costs here what it costs there."""

_JPEG_QUALITY = 90
_HELD_OUT = (0.34, 0.3, 0.66, 0.7)
"""Left, top, right and bottom of the window that held-out crops come from; no training crop shares a pixel with it. It leaves a
third of the width free on either side, and no crop is wider than the window: so a crop beside it is always found."""

_SHIPPED = {
    "skimage": (
        "data",
        (
            "astronaut.png",
            "chelsea.png",
            "coffee.png",
            "hubble_deep_field.jpg",
            "ihc.png",
            "motorcycle_left.png",
            "retina.jpg",
            "rocket.jpg",
        ),
    ),
    "sklearn": ("datasets/images", ("china.jpg", "flower.jpg")),
}
"""The colour photographs and one micrograph (ihc) inside the wheels; their other pictures are grey, drawn or downloaded on demand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crops:
    """A folder of crops: `train.txt` and `test.txt` hold lines `path label`, paths relative to `root`."""

    root: Path
    train_list: Path
    test_list: Path
    num_train: int
    num_test: int
    num_bytes: int
    names: tuple[str, ...]
    reused: bool


def find_photos() -> list[Path]:
    """Return the photographs inside the installed scikit-image and scikit-learn, without importing either.

    Raises:
        MissingExtra: fewer than two are there.
    """
    found: list[Path] = []
    for package, (folder, names) in _SHIPPED.items():
        spec = importlib.util.find_spec(package)
        for place in spec.submodule_search_locations or () if spec is not None else ():
            found += [path for name in names if (path := Path(place, folder, name)).is_file()]
    if len(found) < 2:
        raise MissingExtra(
            "the demo's photographs are not installed: they are files inside scikit-image and scikit-learn",
            where="the demo",
            fix='pip install "penstock[demo]", or give a folder of your own photographs with --photos',
        )
    return found


def photos_in(folder: str | Path) -> list[Path]:
    """Return the JPEG and PNG files in `folder`, sorted by name.

    Raises:
        SourceError: there is no such folder, or it holds fewer than two photographs.
    """
    place = Path(folder)
    if not place.is_dir():
        raise SourceError(f"{str(place)!r} is not a folder", where="demo --photos", fix="give a folder with at least two photographs")
    found = sorted(path for path in place.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png") and path.is_file())
    if len(found) < 2:
        raise SourceError(
            f"{str(place)!r} holds {len(found)} JPEG or PNG files, the demo needs at least two to tell apart",
            where="demo --photos",
            fix="add photographs, or leave --photos out to use those of scikit-image and scikit-learn",
        )
    return found


def cut_crops(photos: Sequence[Path], out: Path, *, num_train: int, num_test: int) -> Crops:
    """Cut the photographs into crops under `out`, or return those of an earlier run with the same photographs and numbers.

    The folder appears under its final name only when it is complete, so a run that was stopped half-way leaves nothing to be reused.

    Args:
        photos: the photographs; number i is class i.
        out: where to make the folder; made when missing.
        num_train: crops from around the held-out window of each photograph.
        num_test: crops from inside it.

    Raises:
        MissingExtra: OpenCV is not installed.
        SourceError: a photograph cannot be read or is too small.
    """
    recipe = {
        "photos": [[path.name, path.stat().st_size] for path in photos],
        "num_train": num_train,
        "num_test": num_test,
        "size": [CROP_WIDTH, CROP_HEIGHT, _JPEG_QUALITY],
        "held_out": _HELD_OUT,
        "cut": 1,
    }
    key = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:8]
    root = out / f"crops-{num_train}-{key}"
    reused = root.is_dir()
    if not reused:
        out.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f"{root.name}.part-", dir=out))
        try:
            num_bytes = _write_crops(photos, part, num_train, num_test)
            (part / "crops.json").write_text(json.dumps({**recipe, "num_bytes": num_bytes}, indent=1) + "\n", encoding="utf-8")
            part.chmod(0o755)
            _rename_folder(part, root)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return Crops(
        root=root,
        train_list=root / "train.txt",
        test_list=root / "test.txt",
        num_train=num_train,
        num_test=num_test,
        num_bytes=json.loads((root / "crops.json").read_text(encoding="utf-8"))["num_bytes"],
        names=tuple(path.stem for path in photos),
        reused=reused,
    )


def _rename_folder(part: Path, root: Path) -> None:
    try:
        os.rename(part, root)
    except OSError:
        # Another demo finished the same folder first: its crops are the same bytes, so they serve as well.
        if not root.is_dir():
            raise


def _write_crops(photos: Sequence[Path], part: Path, num_train: int, num_test: int) -> int:
    """Write all crops and both lists; return the bytes of the crops."""
    from concurrent.futures import ThreadPoolExecutor

    images = [_read_photo(path) for path in photos]
    jobs = [("train", index) for index in range(num_train)] + [("test", index) for index in range(num_test)]
    for name in ("train", "test"):
        (part / name).mkdir()

    def write(job: tuple[str, int]) -> int:
        name, index = job
        label = index % len(photos)
        data = _one_crop(images[label], name == "test", np.random.default_rng((name == "test", index)))
        (part / _crop_path(name, index, photos[label])).write_bytes(data)
        return len(data)

    num_bytes = 0
    with Progress("cutting photographs", len(jobs), unit="crops") as progress, ThreadPoolExecutor() as pool:
        try:
            for size in pool.map(write, jobs):
                num_bytes += size
                progress.advance()
        except BaseException:
            # Ctrl-C or a full disk must not wait for the thousands of crops that are still queued.
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    for name, count in (("train", num_train), ("test", num_test)):
        lines = _list_lines(name, count, photos)
        (part / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    return num_bytes


def _list_lines(name: str, count: int, photos: Sequence[Path]) -> Iterator[str]:
    for index in range(count):
        label = index % len(photos)
        yield f"{_crop_path(name, index, photos[label])} {label}\n"


def _crop_path(name: str, index: int, photo: Path) -> str:
    return f"{name}/{photo.stem.replace(' ', '_')}-{index:05d}.jpg"


def _one_crop(image: NDArray[np.uint8], held_out: bool, rng: np.random.Generator) -> bytes:
    """Cut one 4:3 crop of random size and place out of its part of the photograph and encode it."""
    cv2 = _opencv()
    height, width = image.shape[:2]
    # The held-out window, as left, top, right, bottom.
    window = tuple(round(side * part) for side, part in zip((width, height, width, height), _HELD_OUT, strict=True))
    largest = min(window[2] - window[0], (window[3] - window[1]) * CROP_WIDTH / CROP_HEIGHT)
    crop_width = int(largest * rng.uniform(0.6, 1.0))
    crop_height = int(crop_width * CROP_HEIGHT / CROP_WIDTH)
    inside = window if held_out else (0, 0, width, height)
    while True:
        x = int(rng.integers(inside[0], inside[2] - crop_width + 1))
        y = int(rng.integers(inside[1], inside[3] - crop_height + 1))
        beside = x + crop_width <= window[0] or x >= window[2] or y + crop_height <= window[1] or y >= window[3]
        if held_out or beside:
            break
    piece = cv2.resize(image[y : y + crop_height, x : x + crop_width], (CROP_WIDTH, CROP_HEIGHT), interpolation=cv2.INTER_CUBIC)
    _, encoded = cv2.imencode(".jpg", piece, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return bytes(encoded)


def _read_photo(path: Path) -> NDArray[np.uint8]:
    cv2 = _opencv()
    image = cv2.imdecode(np.frombuffer(path.read_bytes() or b"\0", np.uint8), cv2.IMREAD_COLOR)
    if image is None or min(image.shape[:2]) < 64:
        state = "not a readable picture" if image is None else f"only {image.shape[1]}x{image.shape[0]} pixels large"
        raise SourceError(
            f"{path.name!r} is {state}", where=f"photograph {path}", fix="use photographs of at least 64x64 pixels, or take it away"
        )
    pixels: NDArray[np.uint8] = image
    return pixels


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise MissingExtra("OpenCV is not installed", where="the demo", fix='pip install "penstock[demo]"') from error
    return cv2
