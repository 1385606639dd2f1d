"""Packing JPEG files, decoded, resized and encoded again, with two workers: beside two processes that do only that work.

And the two stages: heavy work on each image in line, beside reading what was packed of it, images per second.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pairs
import rounds
from data import Size, jpeg_list, read_listing

_WORKERS = 2
_SIDE, _QUALITY = 256, 90
_STEP = 8
_NUM_HEAVY = 64


def _prepare(size: Size, root: Path) -> None:
    jpeg_list(root, size.num_jpegs)


def _shrink(data: bytes) -> bytes:
    """Do the work with nothing around it."""
    import cv2
    import simplejpeg

    pixels = simplejpeg.decode_jpeg(data, "RGB")
    height, width = pixels.shape[:2]
    size = (_SIDE * width // height, _SIDE) if height <= width else (_SIDE, _SIDE * height // width)
    small = cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR)
    return bytes(simplejpeg.encode_jpeg(small, quality=_QUALITY, colorspace="RGB", colorsubsampling="420"))


def _only_work(worker: int, num_workers: int, paths: list[str]) -> Callable[[], int]:
    import cv2

    cv2.setNumThreads(1)
    own, place = paths[worker::num_workers], 0

    def step() -> int:
        nonlocal place
        for number in range(_STEP):
            _shrink(Path(own[(place + number) % len(own)]).read_bytes())
        place += _STEP
        return _STEP

    return step


def _limit(run: rounds.Run) -> dict[str, Any]:
    paths = [path for path, _ in read_listing(jpeg_list(run.root, run.size.num_jpegs))]
    return pairs.limit(_only_work, (paths,), max(1, len(paths) // _WORKERS // _STEP), run.size.min_seconds)


def _penstock(run: rounds.Run) -> dict[str, Any]:
    import penstock as ps
    from penstock.packing.reencode import reencoded

    listing = jpeg_list(run.root, run.size.num_jpegs)
    multiprocessing.set_forkserver_preload(["penstock.packing", "penstock.image", "simplejpeg", "cv2"])
    multiprocessing.get_context("forkserver").Process(target=time.time).start()
    dataset = reencoded(ps.read_list(listing), "data", size=_SIDE, quality=_QUALITY)
    with tempfile.TemporaryDirectory(dir=run.root) as folder:
        begun = time.perf_counter()
        manifest = ps.pack(dataset, Path(folder) / "out", num_workers=_WORKERS, num_shards=8)
        seconds = time.perf_counter() - begun
    return {"rate": len(manifest) / seconds, "seconds": seconds}


def heavy(element: dict[str, Any]) -> dict[str, Any]:
    """Do what belongs in a preparation: decode, remove noise with edges kept, resize."""
    import cv2

    import penstock as ps

    pixels = cv2.bilateralFilter(ps.image.decode(element["data"]), 15, 60, 60)
    return {**element, "data": ps.image.resize(pixels, _SIDE)}


def _heavy_dataset(run: rounds.Run) -> Any:
    import penstock as ps

    return ps.read_list(jpeg_list(run.root, run.size.num_jpegs)).take(_NUM_HEAVY).map(heavy)


def _in_line(run: rounds.Run) -> dict[str, Any]:
    dataset = _heavy_dataset(run)
    return _passes(lambda: [np.asarray(dataset[number]["data"]).shape for number in range(len(dataset))], run)


def _packed(run: rounds.Run) -> dict[str, Any]:
    import penstock as ps
    from penstock.packing.reencode import EncodeJpeg

    folder = run.root / "heavy-packed"
    shutil.rmtree(folder, ignore_errors=True)
    ps.pack(_heavy_dataset(run).map(EncodeJpeg("data", _QUALITY)), folder, num_workers=_WORKERS, executor="threads")
    dataset = ps.read_packed(folder).map(ps.image.decode("data"))

    def once() -> list[Any]:
        with dataset.feed(num_workers=_WORKERS) as feed:
            return [element["data"].shape for element in feed]

    return _passes(once, run)


def _passes(once: Callable[[], list[Any]], run: rounds.Run) -> dict[str, Any]:
    once() if run.size.name == "full" else None
    begun, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - begun < run.size.min_seconds:
        count += len(once())
    return {"rate": count / (time.perf_counter() - begun)}


CLAIM = rounds.Claim(
    name="packing",
    title="4,000 JPEG files decoded, resized and encoded into shards by two workers; heavy work in line and packed",
    unit="images/s",
    prepare=_prepare,
    references={"heavy_packed": "heavy_in_line"},
    targets=(rounds.Target(contestant="penstock", metric="ratio", sense=">=", bound=0.9),),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {"limit": _limit, "penstock": _penstock, "heavy_in_line": _in_line, "heavy_packed": _packed})
