"""`ps.from_dataloader(loader)` beside the loader: python benchmarks/from_dataloader.py [--seconds 60] [--rounds 3] [--workers 2] [cases].

By hand. Each measurement is a program of its own that runs for so many seconds from its first line, imports and start of workers included,
and they take turns. `batches` is what arrives in that time, `rate` what arrives a second behind the first batch, `limit` what the CPUs
could compute if nothing had to be handed over: batches a second in one process, times workers or CPUs, whichever are fewer.

Targets: 0.95 of the loader's batches in each case, 1.0 in the median of all; 1.2 where hand-over or collate is more than a quarter (*).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

_BEGIN = time.perf_counter()  # behind the start of Python, before torch is imported

import numpy as np  # noqa: E402


class Samples:
    """A map-style dataset of one function: module level, so that loaders can send it to their workers."""

    def __init__(self, count: int, get: Callable[[int], Any]) -> None:
        self.count, self.get = count, get

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.get(index)


def _photograph(blobs: list[bytes], index: int) -> Any:
    import cv2
    import torch

    image = cv2.imdecode(np.frombuffer(blobs[index % len(blobs)], np.uint8), cv2.IMREAD_COLOR)
    top, left = random.randrange(image.shape[0] - 224), random.randrange(image.shape[1] - 224)
    crop = np.ascontiguousarray(image[top : top + 224, left : left + 224].transpose(2, 0, 1))
    return torch.from_numpy(crop).float().div_(255), index % 10


def _pillow(blobs: list[bytes], index: int) -> Any:
    import io

    from PIL import Image

    image = Image.open(io.BytesIO(blobs[index % len(blobs)])).convert("RGB").resize((224, 224))
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(image).transpose(2, 0, 1), index % 10


def _small(index: int) -> Any:
    import torch

    return torch.full((16,), float(index)), index


def _tokens(index: int) -> Any:
    return {"input_ids": np.arange(index % 7, index % 7 + 512), "length": 512}


def _augmented(images: Any, index: int) -> Any:
    image = images[index % len(images)].astype(np.float32) / 255
    if np.random.rand() < 0.5:
        image = image[:, ::-1]
    image = image + np.random.normal(0, 0.02, image.shape).astype(np.float32)
    return {"image": np.ascontiguousarray(image.transpose(2, 0, 1)), "label": index}


def _large(images: Any, index: int) -> Any:
    return images[index % len(images)].clone(), index


def _texts(index: int) -> Any:
    return f"line {index} " * 20, index


def _pictures() -> list[bytes]:
    import simplejpeg

    rows, columns = np.mgrid[:320, :400]
    channels = [np.stack([columns + n, 2 * rows + n, rows * columns // 9], -1) % 256 for n in range(16)]
    return [simplejpeg.encode_jpeg(np.ascontiguousarray(one.astype(np.uint8))) for one in channels]


def _bytes(*shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)


def _tensors() -> Any:
    import torch

    return torch.from_numpy(np.random.default_rng(0).random((32, 3, 224, 224), np.float32))


CASES: dict[str, tuple[Callable[[], Any], int, bool]] = {
    "photographs, OpenCV": (lambda: Samples(2_000, functools.partial(_photograph, _pictures())), 32, False),
    "photographs, Pillow": (lambda: Samples(2_000, functools.partial(_pillow, _pictures())), 32, False),
    "NumPy augmentation": (lambda: Samples(8_000, functools.partial(_augmented, _bytes(500, 64, 64, 3))), 64, False),
    "small tensors": (lambda: Samples(100_000, _small), 64, True),
    "token ids": (lambda: Samples(50_000, _tokens), 16, True),
    "texts": (lambda: Samples(50_000, _texts), 64, True),
    "large float images": (lambda: Samples(3_000, functools.partial(_large, _tensors())), 64, True),
}
"""A dataset, its batch size, and whether hand-over or collate is more than a quarter of the work."""


def measure(case: str, contestant: str, seconds: float, num_workers: int) -> dict[str, float]:
    """Run one contestant in this process."""
    import torch

    torch.set_num_threads(1)
    make, batch_size, _ = CASES[case]
    workers = 0 if contestant == "limit" else num_workers
    loader = torch.utils.data.DataLoader(make(), batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    epochs: Any = loader
    if contestant == "feed":
        import penstock as ps

        epochs = ps.from_dataloader(loader).feed()
    count, first = 0, 0.0
    while time.perf_counter() - _BEGIN < seconds:
        for _ in epochs:
            now = time.perf_counter() - _BEGIN
            count += 1
            first = first or now
            if now > seconds:
                break
    elapsed = time.perf_counter() - _BEGIN
    return {"batches": count, "rate": (count - 1) / (elapsed - first), "first": first}


def _in_a_program(case: str, contestant: str, seconds: float, num_workers: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--seconds", str(seconds), "--workers", str(num_workers), "--one", contestant, case]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--one", default="")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.cases[0], given.one, given.seconds, given.workers)))
        return
    cpus = len(os.sched_getaffinity(0))
    print(f"{cpus} CPUs, {given.workers} workers, {given.rounds} rounds of {given.seconds:g} s; batches, loader and feed; medians")
    ratios = []
    for case in given.cases:
        limit = _in_a_program(case, "limit", min(10.0, given.seconds), given.workers)["rate"] * min(cpus, given.workers)
        runs = [{who: _in_a_program(case, who, given.seconds, given.workers) for who in ("loader", "feed")} for _ in range(given.rounds)]
        medians = (
            {who: statistics.median(run[who][key] for run in runs) for who in ("loader", "feed")} for key in ("batches", "rate", "first")
        )
        batches, rate, first = medians
        ratio = statistics.median(run["feed"]["batches"] / run["loader"]["batches"] for run in runs)
        ratios.append(ratio)
        print(
            f"{case + '*' * CASES[case][2]:22}{batches['loader']:8.0f}{batches['feed']:8.0f}  ratio {ratio:.2f}   behind the first: "
            f"{rate['loader']:.1f}, {rate['feed']:.1f} a second, {rate['feed'] / rate['loader']:.2f}; first at {first['loader']:.1f} and "
            f"{first['feed']:.1f} s; {rate['loader'] / limit:.2f} and {rate['feed'] / limit:.2f} of the limit",
            flush=True,
        )
    print(f"median of the ratios: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
