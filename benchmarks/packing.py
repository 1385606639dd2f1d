"""Packing JPEG files, decoded, resized and encoded again, with two workers: beside two processes that do only that work.

The clock of `penstock` runs from the call of `ps.pack` until it returns, with the start of its workers, the hashes and the manifest. A
fork server that has imported the packages runs before (`penstock_cold` has none: its workers import them on the clock), as the two
processes of the limit have started and warmed up before their clock. What was packed of the first files is compared with what the
limit makes of them. Both find the files in the page cache: the limit reads them before its clock, and so does `penstock`, as a system that
takes memory back (a virtual machine) otherwise has one of them read from a disk and the other not.

And the two stages: heavy work on each of 64 images, one after the other (`heavy_in_line`) and through a feed with two workers
(`heavy_feed`), beside reading and decoding what was packed of them, by two workers as well (`heavy_packed`), in images per second.
OpenCV's filter may use threads of its own wherever it runs. 64 files are in the page cache: the figure is about computing once instead
of each time, not about disks.
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
_MEAN_DIFFERENCE = 2.0  # of 255: what encoding it again may change


def _prepare(size: Size, root: Path) -> None:
    jpeg_list(root, size.num_jpegs)


def _shrink(data: bytes) -> bytes:
    """Do the work with nothing around it."""
    import simplejpeg

    import penstock as ps

    small = ps.image.resize(simplejpeg.decode_jpeg(data, "RGB"), _SIDE)
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


def _penstock(warm: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps
        from penstock.packing.reencode import reencoded

        listing = jpeg_list(run.root, run.size.num_jpegs)
        for path, _ in read_listing(listing):
            Path(path).read_bytes()
        if warm:
            multiprocessing.set_forkserver_preload(["__main__", "penstock.packing", "penstock.feed", "penstock.image", "simplejpeg", "cv2"])
            process = multiprocessing.get_context("forkserver").Process(target=time.time)
            process.start()
            process.join()
        dataset = reencoded(ps.read_list(listing), "data", size=_SIDE, quality=_QUALITY)
        with tempfile.TemporaryDirectory(dir=run.root) as folder:
            begun = time.perf_counter()
            manifest = ps.pack(dataset, Path(folder) / "out", num_workers=_WORKERS, num_shards=8)
            seconds = time.perf_counter() - begun
            packed = ps.read_packed(Path(folder) / "out")
            for number, (path, label) in enumerate(read_listing(listing)[:_STEP]):
                assert packed[number]["label"] == label
                _same_picture(packed[number]["data"], _shrink(Path(path).read_bytes()))
        assert len(manifest) == run.size.num_jpegs
        return {"rate": len(manifest) / seconds, "seconds": seconds}

    return measure


def _same_picture(data: bytes, expected: bytes) -> None:
    """Compare two JPEG files by their pixels: resizing may round in another way."""
    import simplejpeg

    ours, theirs = (simplejpeg.decode_jpeg(one, "RGB").astype(np.int16) for one in (data, expected))
    assert ours.shape == theirs.shape, f"{ours.shape} is not {theirs.shape}"
    assert np.abs(ours - theirs).mean() < _MEAN_DIFFERENCE


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
    return _passes(lambda: [np.asarray(dataset[number]["data"]) for number in range(len(dataset))], run)


def _fed(dataset: Any) -> Callable[[], list[Any]]:
    def once() -> list[Any]:
        with dataset.feed(executor="threads", num_workers=_WORKERS) as feed:
            return [np.array(element["data"]) for element in feed]

    return once


def _in_feed(run: rounds.Run) -> dict[str, Any]:
    return _passes(_fed(_heavy_dataset(run)), run)


def _packed(run: rounds.Run) -> dict[str, Any]:
    import penstock as ps
    from penstock.packing.reencode import EncodeJpeg

    folder = run.root / "heavy-packed"
    shutil.rmtree(folder, ignore_errors=True)
    ps.pack(_heavy_dataset(run).map(EncodeJpeg("data", _QUALITY)), folder, num_workers=_WORKERS, executor="threads")
    return _passes(_fed(ps.read_packed(folder).map(ps.image.decode("data"))), run)


def _passes(once: Callable[[], list[Any]], run: rounds.Run) -> dict[str, Any]:
    shapes = {one.shape for one in once()}
    begun, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - begun < run.size.min_seconds:
        count += len(once())
    result = {"rate": count / (time.perf_counter() - begun)}
    return {**result, "batch": " ".join(sorted(map(str, shapes)))}


CLAIM = rounds.Claim(
    name="packing",
    title="JPEG files decoded, resized and encoded into shards by two workers; heavy work in line, in a feed and packed",
    unit="images/s",
    prepare=_prepare,
    references={"heavy_in_line": "", "heavy_feed": "heavy_in_line", "heavy_packed": "heavy_feed"},
    targets=(rounds.Target(contestant="penstock", metric="ratio", sense=">=", bound=0.9),),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "limit": _limit,
            "penstock": _penstock(warm=True),
            "penstock_cold": _penstock(warm=False),
            "heavy_in_line": _in_line,
            "heavy_feed": _in_feed,
            "heavy_packed": _packed,
        },
    )
