"""The proof on a GPU, in five minutes: does the device wait for its batches?

    python benchmarks/gpu/proof.py [--cpu] [--seconds S] [--data FOLDER] [--out FILE]

(a) The classic two-layer net (128 x 1024): batches made in line and copied from pageable memory, through a queue, by a feed that copies
them ahead, and a batch that is on the device already, which is the ceiling. (b) A ResNet-50 on JPEG files: the ceiling, a feed with 16
workers, PyTorch's DataLoader with 16. (c) The feed of (b) without a net, over 1 to 16 threads. Each figure is a median of three rounds in
turn. Prints a table and writes JSON, with the machine and the date. With --cpu the sizes are toys, to see that it runs: the figures mean
nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "examples" / "classic")]

import machine  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from data import jpeg_list, read_listing  # noqa: E402
from nets import BATCH, WIDTH, make_batch  # noqa: E402
from photos import Photos  # noqa: E402
from user_code import CROP, MEAN, STD  # noqa: E402

import penstock as ps  # noqa: E402
from penstock.queues import Coordinator, FIFOQueue, QueueRunner  # noqa: E402

_ROUNDS = 3
_WARM_UP = 5

Step = Callable[[Any], None]
Batches = Callable[[], contextlib.AbstractContextManager[Iterator[Any]]]


class Busy:
    """The share of time in which the GPU ran a kernel, as NVML counts it; None without nvidia-smi."""

    def __enter__(self) -> Busy:
        self._shares: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def share(self) -> float | None:
        return statistics.fmean(self._shares) / 100 if self._shares else None

    def _look(self) -> None:
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while torch.cuda.is_available() and not self._end.wait(0.2):
            with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
                self._shares.append(float(subprocess.check_output(command, text=True, timeout=5).splitlines()[0]))


def wait_for(device: Any) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(step: Step, batches: Batches, seconds: float, device: Any) -> dict[str, Any]:
    """Train for some seconds behind a warm-up; return milliseconds a step, and how busy the GPU was."""
    with batches() as source, Busy() as busy:
        for _ in range(_WARM_UP):
            step(next(source))
        wait_for(device)
        begin, count = time.perf_counter(), 0
        while not count or time.perf_counter() - begin < seconds:
            step(next(source))
            count += 1
        wait_for(device)
        passed = time.perf_counter() - begin
    return {"ms_per_step": 1e3 * passed / count, "steps": count, "busy": busy.share}


def copies(step: Step, batches: Batches) -> dict[str, float]:
    """Count the copies to the device in ten steps, by their kind, for each batch."""
    if not torch.cuda.is_available():
        return {}
    with batches() as source:
        for _ in range(_WARM_UP):
            step(next(source))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(10):
                step(next(source))
            torch.cuda.synchronize()
    return {event.key: event.count / 10 for event in profile.key_averages() if "HtoD" in event.key}


def compared(ways: dict[str, Batches], step: Step, seconds: float, device: Any) -> dict[str, dict[str, Any]]:
    """Time all ways in turn, in several rounds, and say what part of the ceiling's speed each has."""
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, batches in ways.items():
            rounds[name].append(timed(step, batches, seconds, device))
    out = {}
    ceiling = statistics.median(one["ms_per_step"] for one in rounds["ceiling"])
    for name, found in rounds.items():
        busy = [one["busy"] for one in found if one["busy"] is not None]
        ms = statistics.median(one["ms_per_step"] for one in found)
        out[name] = {
            "ms_per_step": ms,
            "of_ceiling": ceiling / ms,
            "busy": statistics.median(busy) if busy else None,
            "copies_per_batch": copies(step, ways[name]),
        }
        print(f"  {name:12} {ms:9.3f} ms a step, {ceiling / ms:5.3f} of the ceiling, busy {out[name]['busy']}", flush=True)
    return out


# -- (a) the two-layer net -------------------------------------------------------------------------------------------------------------


def two_layer_net(device: Any) -> Step:
    """Return the step of the classic net; it waits for nothing on the device."""
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)).to(device)
    adam = torch.optim.Adam(net.parameters(), 1e-2)

    def step(batch: Any) -> None:
        inputs, labels = (torch.as_tensor(part).to(device) for part in batch)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(net(inputs), labels)
        adam.zero_grad()
        loss.backward()
        adam.step()

    return step


def two_layer_ways(device: Any, workers: int) -> dict[str, Batches]:
    """Return the four ways in which the batches come."""

    @contextlib.contextmanager
    def ceiling() -> Iterator[Iterator[Any]]:
        batch = [torch.from_numpy(part).to(device) for part in make_batch(0)]
        yield iter(lambda: batch, None)

    @contextlib.contextmanager
    def inline() -> Iterator[Iterator[Any]]:
        yield map(make_batch, range(sys.maxsize))

    @contextlib.contextmanager
    def through_a_queue() -> Iterator[Iterator[Any]]:
        queue = FIFOQueue(capacity=8, dtypes=["float32", "float32"], shapes=[(BATCH, WIDTH), (BATCH, 1)])
        coord = Coordinator()
        threads = QueueRunner(queue, [map(make_batch, range(sys.maxsize))]).create_threads(coord=coord, start=True)
        with coord.stop_on_exception():
            yield iter(queue.dequeue, None)
        queue.close(cancel_pending_enqueues=True)
        coord.request_stop()
        coord.join(threads)

    @contextlib.contextmanager
    def staged() -> Iterator[Iterator[Any]]:
        made = ps.from_source(range(100_000)).map(make_batch).unbatch().batch(BATCH).repeat()
        with made.feed(output="torch", device=device if device.type != "cpu" else None, executor="threads", num_workers=workers) as feed:
            yield feed

    return {"inline": inline, "queue": through_a_queue, "staged": staged, "ceiling": ceiling}


# -- (b) and (c): ResNet-50 on JPEG files ----------------------------------------------------------------------------------------------


class Bottleneck(torch.nn.Module):  # type: ignore[misc]
    """1x1, 3x3, 1x1, each with batch normalisation, beside a shortcut (He and others, 2016)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = torch.nn.Sequential(
            *self._part(inputs, width, 1, 1), torch.nn.ReLU(True),
            *self._part(width, width, 3, stride), torch.nn.ReLU(True),
            *self._part(width, outputs, 1, 1),
        )  # fmt: skip
        same = stride == 1 and inputs == outputs
        self.shortcut = torch.nn.Identity() if same else torch.nn.Sequential(*self._part(inputs, outputs, 1, stride))

    @staticmethod
    def _part(inputs: int, outputs: int, size: int, stride: int) -> tuple[Any, Any]:
        conv = torch.nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        return conv, torch.nn.BatchNorm2d(outputs)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet(blocks: tuple[int, ...], device: Any) -> Step:
    """Return the training step of a ResNet with so many blocks in each of its stages: (3, 4, 6, 3) is ResNet-50."""
    torch.manual_seed(7)
    layers: list[Any] = [torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU(True)]
    layers.append(torch.nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for stage, count in enumerate(blocks):
        for number in range(count):
            layers.append(Bottleneck(inputs, 64 << stage, 2 if stage and not number else 1))
            inputs = 256 << stage
    net = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(inputs, 1000))
    net = net.to(device, memory_format=torch.channels_last)
    sgd = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    mean, std = (255 * torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (MEAN, STD))

    def step(batch: Any) -> None:
        images, labels = (part.to(device, non_blocking=True) for part in batch)
        images = (images.permute(0, 3, 1, 2).float() - mean) / std
        with torch.autocast(device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
        sgd.zero_grad()
        loss.backward()
        sgd.step()

    return step


def photos(listing: Path, batch_size: int) -> Any:
    """Return uint8 batches (images [n, 224, 224, 3], labels) of JPEG files, cropped and flipped at random."""
    return (
        ps.read_list(listing, root=listing.parent)
        .shuffle(seed=7)
        .map(ps.image.decode("data"))
        .map(ps.image.random_resized_crop("data", CROP), seed=1)
        .map(ps.image.random_flip("data"), seed=2)
        .map(lambda element: (element["data"], element["label"]))
        .batch(batch_size, drop_remainder=True)
        .repeat()
    )


def resnet_ways(listing: Path, batch_size: int, workers: int, device: Any) -> dict[str, Batches]:
    """Return the ceiling, the feed and the DataLoader."""

    @contextlib.contextmanager
    def ceiling() -> Iterator[Iterator[Any]]:
        images = torch.randint(0, 255, (batch_size, CROP, CROP, 3), dtype=torch.uint8, device=device)
        batch = images, torch.zeros(batch_size, dtype=torch.int64, device=device)
        yield iter(lambda: batch, None)

    @contextlib.contextmanager
    def penstock() -> Iterator[Iterator[Any]]:
        on_device = {} if device.type == "cpu" else {"device": device}
        with photos(listing, batch_size).feed(output="torch", num_workers=workers, memory_bytes=1 << 30, **on_device) as feed:
            yield feed

    @contextlib.contextmanager
    def dataloader() -> Iterator[Iterator[Any]]:
        data = Photos(read_listing(listing), True)
        pins = device.type == "cuda"
        loader = torch.utils.data.DataLoader(
            data, batch_size, shuffle=True, num_workers=workers, drop_last=True, pin_memory=pins, persistent_workers=True
        )
        yield (batch for _ in iter(int, 1) for batch in loader)

    return {"dataloader": dataloader, "penstock": penstock, "ceiling": ceiling}


def scaling(listing: Path, batch_size: int, counts: list[int], seconds: float) -> dict[str, dict[str, float]]:
    """Return images/s of the feed alone for each number of threads, and what part of linear that is."""
    rates: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(_ROUNDS):
        for count in counts:
            with photos(listing, batch_size).feed(output="torch", executor="threads", num_workers=count, memory_bytes=1 << 30) as feed:
                for _ in range(_WARM_UP):
                    next(feed)
                begin, done = time.perf_counter(), 0
                while not done or time.perf_counter() - begin < seconds:
                    next(feed)
                    done += 1
                rates[count].append(done * batch_size / (time.perf_counter() - begin))
    out = {}
    for count in counts:
        rate = statistics.median(rates[count])
        out[str(count)] = {"images_per_s": rate, "of_linear": rate / (count * statistics.median(rates[1]))}
        print(f"  {count:2} threads {rate:9.0f} images/s, {out[str(count)]['of_linear']:.2f} of linear", flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="toy sizes, to see that it runs")
    parser.add_argument("--seconds", type=float, help="of each measurement")
    parser.add_argument("--data", type=Path, default=ROOT / "bench-data")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    toy = options.cpu
    if not toy and not torch.cuda.is_available():
        sys.exit("PyTorch finds no CUDA device here; --cpu tries the program at toy size")
    device = torch.device("cpu" if toy else "cuda:0")
    cores = len(os.sched_getaffinity(0))
    workers, num_files, batch_size = (2, 24, 4) if toy else (min(16, cores), 4000, 256)
    seconds = options.seconds or (0.1 if toy else 6.0)
    listing = jpeg_list(options.data, num_files)

    print("(a) the two-layer net, 128 x 1024")
    net = compared(two_layer_ways(device, workers), two_layer_net(device), seconds, device)
    print(f"(b) {'a toy of a ResNet' if toy else 'ResNet-50'}, batches of {batch_size}, {workers} workers")
    deep = compared(resnet_ways(listing, batch_size, workers, device), resnet((1, 1) if toy else (3, 4, 6, 3), device), seconds, device)
    print("(c) the feed alone")
    counts = [count for count in (1, 2, 4, 8, 16) if count <= max(2 if toy else 16, 1) and count <= cores]
    alone = scaling(listing, batch_size, counts, seconds)

    result = {
        "claim": "gpu",
        "date": datetime.now(UTC).date().isoformat(),
        "toy": toy,
        "machine": {**machine.facts(), "device": str(device) if toy else torch.cuda.get_device_name(device), "numpy": np.__version__},
        "two_layer_net": net,
        "resnet": deep,
        "threads": alone,
    }
    text = json.dumps(result, indent=1)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
        print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
