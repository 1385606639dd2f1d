"""The proof on a GPU, within 200 s: does the device wait for its batches, and are they right?

    python benchmarks/gpu/proof.py [--only a b c d] [--cpu] [--data FOLDER] [--out FILE]

(a) The classic two-layer net (128 x 1024), whose batches a Python function makes. The ceiling is a batch that is on the device already. The
others are made in line; come through a FIFOQueue; are taken apart and joined in threads ("staged"); come from `feed()` as it is, which
calls a user's function in the program, one call at a time ("direct"); and from worker processes, as with `num_workers=`. 6 measurements.

(b) A ResNet-50 on JPEG files: the ceiling before and after the others, `feed()` as it is, threads, worker processes, and PyTorch's
DataLoader with pinned memory in one endless epoch. All operators of this pipeline are Penstock's own, so on more than 4 CPUs `feed()`
runs them in worker processes; a function of the user's among them would run in the program until `num_workers=` is given. 6 measurements.

(c) The feed alone: JPEG files in 1 to 16 threads and in 1, 4 and 16 worker processes; `next()` of a small batch that is ready, on a CPU and
on the device, and its copies to the device; batches of 38.5 MB from arrays with 8 and 16 workers; a small batch to the device by JAX, where
it has one. 18 measurements.

(d) The checks of values of checks.py.

On 16 CPUs (a) is planned for 25 s, (b) for 50, (c) for 65, (d) for 20, imports and 2,048 JPEG files for 20: 180 s. Each figure is one
measurement of 0.5 to 4 s behind a warm-up: a ratio, not a truth. It is printed when it is there, and the JSON, with the targets, is
written after each part. The exit status is 1 where a check is wrong. With --cpu the sizes are toys, to see that it runs: the figures mean
nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "gpu"), str(ROOT / "examples" / "classic")]

import checks  # noqa: E402
import machine  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from data import jpeg_list, read_listing  # noqa: E402
from nets import BATCH, WIDTH, make_batch  # noqa: E402
from photos import Photos  # noqa: E402
from user_code import CROP, MEAN, STD  # noqa: E402

import penstock as ps  # noqa: E402
from penstock.queues import Coordinator, FIFOQueue, QueueRunner  # noqa: E402

_MAKERS = 8
"""Worker processes of (a): two make batches as fast as the net takes them, and eight leave half of 16 CPUs to the program."""
_ENDLESS = 1 << 40

Step = Callable[[Any], object]
Batches = Callable[[], contextlib.AbstractContextManager[Iterator[Any]]]

TARGETS = (  # part, what, figure, at least (1) or at most (-1), bound
    ("a", "processes", "of_ceiling", 1, 0.85),
    ("b", "feed", "of_ceiling", 1, 0.98),
    ("c", "processes 16", "times_one", 1, 12),
    ("c", "next", "more_on_device_us", -1, 40),
    ("c", "next on the device", "p99_us", -1, 150),
    ("c", "copies", "to_device", -1, 1),
    ("c", "38.5 MB, threads 8", "gb_per_s", 1, 27),
    ("c", "38.5 MB, threads 16", "gb_per_s", 1, 27),
    ("c", "38.5 MB, processes 8", "gb_per_s", 1, 27),
    ("c", "38.5 MB, processes 16", "gb_per_s", 1, 27),
    ("c", "jax", "of_bare", -1, 1.3),
    ("d", "all", "wrong", -1, 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where it runs, how large, and what was measured so far, by part."""

    device: Any
    toy: bool
    data: Path
    out: Path | None
    parts: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        """One for each CPU, at most 16."""
        return 2 if self.toy else min(16, len(os.sched_getaffinity(0)))

    @property
    def on_device(self) -> dict[str, Any]:
        """The options of a feed to the device."""
        return {"output": ps.Torch(device=None if self.device.type == "cpu" else self.device)}

    def show(self, part: str, what: str, **figures: Any) -> None:
        """Print figures, and keep them."""
        self.parts.setdefault(part, {})[what] = figures
        texts = (f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in figures.items())
        print(f"  {what:22} {', '.join(texts)}", flush=True)

    def seconds(self, long: float) -> float:
        """The time of a measurement."""
        return 0.02 if self.toy else long

    def wait(self) -> None:
        """Wait until the device has done all that it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def timed(self, batches: Batches, step: Step, warm_s: float, long_s: float) -> float:
        """Train for some seconds behind a warm-up; return the seconds of a step."""
        with batches() as source:
            _train(source, step, self.seconds(warm_s))
            self.wait()
            begin = time.perf_counter()
            count = _train(source, step, self.seconds(long_s))
            self.wait()
            return (time.perf_counter() - begin) / count


def _train(source: Iterator[Any], step: Step, seconds: float) -> int:
    count, begin = 0, time.perf_counter()
    while not count or time.perf_counter() - begin < seconds:
        step(next(source))
        count += 1
    return count


def fed(dataset: Any, **options: Any) -> Batches:
    """Return the batches of a feed."""

    @contextlib.contextmanager
    def batches() -> Iterator[Iterator[Any]]:
        with dataset.feed(**options) as feed:
            yield feed

    return batches


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


def two_layer_ways(bench: Bench) -> dict[str, Batches]:
    """Return the ways in which the batches come."""
    device = bench.device

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

    made = ps.from_source(range(100_000)).map(make_batch)
    threads = {"executor": "threads", "num_workers": bench.workers}
    return {
        "ceiling": ceiling,
        "inline": inline,
        "queue": through_a_queue,
        "staged": fed(made.unbatch().batch(BATCH).repeat(), **threads, **bench.on_device),
        "direct": fed(made.repeat(), **bench.on_device),
        "processes": fed(made.repeat(), executor="processes", num_workers=min(_MAKERS, bench.workers), **bench.on_device),
    }


def part_a(bench: Bench) -> None:
    """Train the two-layer net in each way."""
    step = two_layer_net(bench.device)
    seconds: dict[str, float] = {}
    for name, batches in two_layer_ways(bench).items():
        seconds[name] = bench.timed(batches, step, 1.5, 2)
        bench.show("a", name, ms_per_step=1e3 * seconds[name], of_ceiling=seconds["ceiling"] / seconds[name])


# -- (b) ResNet-50 on JPEG files -------------------------------------------------------------------------------------------------------


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
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
        sgd.zero_grad()
        loss.backward()
        sgd.step()

    return step


def photos(listing: Path, batch_size: int) -> Any:
    """Return uint8 batches {"data": [n, 224, 224, 3], "label": [n], "path": ...} of JPEG files, cropped and flipped at random."""
    return (
        ps.read_list(listing, root=listing.parent)
        .shuffle(seed=7)
        .map(ps.image.decode("data"))
        .map(ps.image.random_resized_crop("data", CROP, antialias=False), seed=1)
        .map(ps.image.random_flip("data"), seed=2)
        .batch(batch_size, drop_remainder=True)
        .repeat()
    )


def files(bench: Bench) -> tuple[Path, int]:
    """Return the list of JPEG files, and how many make a batch."""
    return jpeg_list(bench.data, 24 if bench.toy else 2048), 4 if bench.toy else 256


def resnet_ways(bench: Bench, listing: Path, batch_size: int) -> dict[str, Batches]:
    """Return the ceiling, the feeds and the DataLoader; each gives (images, labels)."""

    @contextlib.contextmanager
    def ceiling() -> Iterator[Iterator[Any]]:
        images = torch.randint(0, 255, (batch_size, CROP, CROP, 3), dtype=torch.uint8, device=bench.device)
        batch = images, torch.zeros(batch_size, dtype=torch.int64, device=bench.device)
        yield iter(lambda: batch, None)

    def penstock(**options: Any) -> Batches:
        @contextlib.contextmanager
        def batches() -> Iterator[Iterator[Any]]:
            with photos(listing, batch_size).feed(memory_bytes=1 << 31, **options, **bench.on_device) as feed:
                yield ((batch["data"], batch["label"]) for batch in feed)

        return batches

    @contextlib.contextmanager
    def dataloader() -> Iterator[Iterator[Any]]:
        data = Photos(read_listing(listing), True)
        # One endless epoch: at the end of one of 8 batches all workers would run dry, and the figure would be that of the ends.
        sampler = torch.utils.data.RandomSampler(data, num_samples=_ENDLESS)
        pins = bench.device.type == "cuda"
        yield iter(
            torch.utils.data.DataLoader(data, batch_size, sampler=sampler, num_workers=bench.workers, drop_last=True, pin_memory=pins)
        )

    return {
        "ceiling": ceiling,
        "feed": penstock(),
        f"threads {bench.workers}": penstock(executor="threads", num_workers=bench.workers),
        f"processes {bench.workers}": penstock(executor="processes", num_workers=bench.workers),
        f"dataloader {bench.workers}": dataloader,
        "ceiling again": ceiling,
    }


def part_b(bench: Bench) -> None:
    """Train the ResNet in each way; the ceiling is the mean of two measurements around the others."""
    listing, batch_size = files(bench)
    step = resnet((1,) if bench.toy else (3, 4, 6, 3), bench.device)
    rates: dict[str, float] = {}
    for name, batches in resnet_ways(bench, listing, batch_size).items():
        rates[name] = batch_size / bench.timed(batches, step, *((2, 3) if "ceiling" in name else (4, 4)))
        bench.show("b", name, images_per_s=rates[name])
    ceiling = (rates["ceiling"] + rates["ceiling again"]) / 2
    print("  against the mean of both ceilings:", flush=True)
    for name, rate in rates.items():
        bench.show("b", name, images_per_s=rate, of_ceiling=rate / ceiling)


# -- (c) the feed alone ----------------------------------------------------------------------------------------------------------------


def part_c(bench: Bench) -> None:
    """Measure feeds without a net."""
    listing, batch_size = files(bench)
    for executor, counts in (("threads", (1, 2, 4, 8, 16)), ("processes", (1, 4, 16))):
        one = 0.0
        for count in (count for count in counts if count <= bench.workers):
            feed = fed(photos(listing, batch_size), executor=executor, num_workers=count, memory_bytes=1 << 30, output="torch")
            rate = batch_size / bench.timed(feed, lambda batch: None, 2, 2)
            one = one or rate
            bench.show("c", f"{executor} {count}", images_per_s=rate, times_one=rate / one)
    next_batch(bench)
    large_batches(bench)
    jax_arrays(bench)


def small_batches(bench: Bench) -> Any:
    """Return batches of 0.8 MB of two fields, from memory."""
    rows = 256 if bench.toy else 4096
    images = np.random.default_rng(0).integers(0, 255, (rows, 64 * 64 * 3), dtype=np.uint8)
    return ps.from_arrays({"x": images, "i": np.arange(rows)}).batch(64).repeat()


def next_batch(bench: Bench) -> None:
    """Measure `next()` where the batch is ready, and count the copies of a batch to the device."""
    options = {"output": "torch", "executor": "threads", "num_workers": min(4, bench.workers)}
    median_us: dict[str, float] = {}
    for place, where in (("on a CPU", options), ("on the device", {**options, **bench.on_device})):
        with fed(small_batches(bench), **where)() as feed:
            _train(feed, lambda batch: None, bench.seconds(0.5))
            times = []
            for _ in range(20 if bench.toy else 1000):
                time.sleep(0.0005)
                begin = time.perf_counter()
                batch = next(feed)
                times.append(1e6 * (time.perf_counter() - begin))
                del batch
        median_us[place], p99_us = (float(figure) for figure in np.percentile(times, (50, 99)))
        bench.show("c", f"next {place}", p50_us=median_us[place], p99_us=p99_us)
    bench.show("c", "next", more_on_device_us=median_us["on the device"] - median_us["on a CPU"])
    if bench.device.type == "cpu":
        return
    with fed(small_batches(bench), **{**options, **bench.on_device})() as feed:
        _train(feed, lambda batch: None, 0.2)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(20):
                next(feed)
            bench.wait()
    copies = {event.key: event.count / 20 for event in profile.key_averages() if "HtoD" in event.key}
    if copies:  # none where the profiler cannot count on this machine
        bench.show("c", "copies", to_device=sum(copies.values()), kinds=copies)


def large_batches(bench: Bench) -> None:
    """Measure batches of 38.5 MB, gathered from an array in memory and copied to the device, beside bare copies of a pinned buffer."""
    rows, batch_size = (16, 4) if bench.toy else (2048, 256)
    images = np.random.default_rng(0).integers(0, 255, (rows, CROP, CROP, 3), dtype=np.uint8)
    num_bytes = batch_size * images[0].nbytes
    pinned = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=bench.device.type == "cuda")
    place = torch.empty_like(pinned, device=bench.device)
    bare = bench.timed(
        lambda: contextlib.nullcontext(iter(lambda: pinned, None)), lambda part: place.copy_(part, non_blocking=True), 0.1, 0.5
    )
    bench.show("c", "38.5 MB, bare copy", gb_per_s=num_bytes / bare / 1e9)
    dataset = ps.from_arrays({"x": images}).shuffle(seed=1).batch(batch_size, drop_remainder=True).repeat()
    for executor in ("threads", "processes"):
        for count in [2] if bench.toy else [8, 16]:
            feed = fed(dataset, executor=executor, num_workers=count, memory_bytes=1 << 31, **bench.on_device)
            seconds = bench.timed(feed, lambda batch: batch["x"][0, 0, 0, 0] + 1, 1.5, 1.5)
            bench.show("c", f"38.5 MB, {executor} {count}", gb_per_s=num_bytes / seconds / 1e9)


def jax_arrays(bench: Bench) -> None:
    """Measure a small batch to the device by JAX, beside a bare `device_put`."""
    if importlib.util.find_spec("jax") is None:
        print("  JAX is not installed: left out", flush=True)
        return
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # PyTorch needs memory on the device, too
    import jax

    if not bench.toy and jax.default_backend() != "gpu":
        print("  JAX finds no GPU: left out", flush=True)
        return
    hosts = [np.random.default_rng(n).integers(0, 255, (64, 64, 64, 3), dtype=np.uint8) for n in range(8)]
    dataset = ps.from_arrays({"x": np.concatenate(hosts)}).batch(64).repeat()
    count = 20 if bench.toy else 500

    def each_us(put: Callable[[int], Any]) -> float:
        jax.block_until_ready([put(number) for number in range(20)])
        begin = time.perf_counter()
        array = put(0)
        for number in range(1, count):
            array = put(number)
        jax.block_until_ready(array)
        return 1e6 * (time.perf_counter() - begin) / count

    bare_us = each_us(lambda number: jax.device_put(hosts[number % 8]))
    with dataset.feed(output="jax", executor="threads", num_workers=min(8, bench.workers)) as feed:
        feed_us = each_us(lambda _: next(feed)["x"])
    bench.show("c", "jax", feed_us=feed_us, device_put_us=bare_us, of_bare=feed_us / bare_us)


# -- (d) values, and the whole ---------------------------------------------------------------------------------------------------------


def part_d(bench: Bench) -> None:
    """Run the checks."""
    rows, batch_size = (150, 16) if bench.toy else (2065, 64)
    tried = checks.Bench(device=bench.device, num_elements=rows, batch_size=batch_size, num_workers=min(8, bench.workers))
    wrong = 0
    for name, found in checks.run(tried):
        bench.show("d", name, **found)
        wrong += not found["right"]
    bench.show("d", "all", wrong=wrong)


PARTS = {
    "a": ("the two-layer net, 128 x 1024", part_a),
    "b": ("ResNet-50 on JPEG files", part_b),
    "c": ("the feed alone", part_c),
    "d": ("checks of values", part_d),
}


def targets(bench: Bench) -> list[dict[str, Any]]:
    """Return each target of the parts that have run, and whether it is met: None where nothing was measured, or all of it is a toy."""
    out = []
    for part, what, figure, sign, bound in TARGETS:
        if part in bench.parts:
            value = bench.parts[part].get(what, {}).get(figure)
            met = None if value is None or bench.toy else bool(sign * value >= sign * bound)
            out.append(
                {"part": part, "what": what, "figure": figure, "target": f"{'≥' if sign > 0 else '≤'} {bound}", "value": value, "met": met}
            )
    return out


def save(bench: Bench, passed_s: dict[str, float]) -> None:
    """Write what was measured so far."""
    if bench.out is None:
        return
    result = {
        "claim": "gpu",
        "date": datetime.now(UTC).date().isoformat(),
        "toy": bench.toy,
        "machine": {**machine.facts(), "device": "cpu" if bench.device.type == "cpu" else torch.cuda.get_device_name(bench.device)},
        "seconds": passed_s,
        "targets": targets(bench),
        "parts": bench.parts,
    }
    bench.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    begin = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART", help="a, b, c, d")
    parser.add_argument("--cpu", action="store_true", help="toy sizes, to see that it runs")
    parser.add_argument("--data", type=Path, default=ROOT / "bench-data")
    parser.add_argument("--out", type=Path, help="the JSON; proof.json in the current folder by default, none with --cpu")
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        sys.exit("PyTorch finds no CUDA device here; --cpu tries the program at toy size")
    device = torch.device("cpu" if options.cpu else "cuda:0")
    out = options.out or (None if options.cpu else Path("proof.json"))
    if options.cpu:
        torch.set_num_threads(1)  # the toys are too small for more
    bench = Bench(device=device, toy=options.cpu, data=options.data, out=out)
    passed_s: dict[str, float] = {}
    for part in options.only:
        title, run = PARTS[part]
        print(f"({part}) {title}", flush=True)
        start = time.perf_counter()
        run(bench)
        passed_s[part] = round(time.perf_counter() - start, 1)
        save(bench, passed_s)
    for target in targets(bench):
        said = {True: "met", False: "MISSED", None: "-"}[target["met"]]
        print(f"{target['part']}: {target['what']}, {target['figure']} {target['target']}: {target['value']}: {said}")
    passed = ", ".join(f"{part} {seconds} s" for part, seconds in passed_s.items())
    print(f"{passed}; {time.perf_counter() - begin:.0f} s in all" + (f"; wrote {out}" if out else ""))
    sys.exit(int(bench.parts.get("d", {}).get("all", {}).get("wrong", 0) > 0))


if __name__ == "__main__":
    main()
