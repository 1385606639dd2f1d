"""Checks of values on a device: the training step reads what was computed, however late its kernels run.

Each check runs feeds of small datasets and compares what their batches hold with a feed without workers, bit for bit. A step here is late
on purpose: it begins with a kernel that keeps its stream busy for about 2 ms, so that a buffer, pinned or on the device, that is used
again too early shows in the values. `proof.py` runs them as its part (d). On a CPU those that need streams or pinned memory are left out.
"""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import penstock as ps

__all__ = ["CHECKS", "Bench", "run"]

_LATE_CYCLES = 3_500_000
"""About 2 ms at 1.7 to 2 GHz: the copy of a batch takes 0.1 ms, so some twenty batches could be written over it."""
_SEGMENT = 20 << 20
"""PyTorch's caching allocator takes memory for allocations of 1 to 10 MB in segments of so many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The device, and how much a check does."""

    device: Any
    num_elements: int
    batch_size: int
    num_workers: int

    @property
    def cuda(self) -> bool:
        """Whether the device has streams and reads pinned memory."""
        return bool(self.device.type == "cuda")

    def feed(self, dataset: Any, transform: Any = None, **options: Any) -> Any:
        """Return a feed of tensors on the device, in threads unless said otherwise."""
        output = ps.Torch(device=self.device if self.cuda else None, transform=transform)
        return dataset.feed(output=output, **{"executor": "threads", "num_workers": self.num_workers, **options})

    def be_late(self) -> None:
        """Keep the current stream busy for about 2 ms."""
        if self.cuda:
            torch.cuda._sleep(_LATE_CYCLES)


def _noisy(bench: Bench) -> Any:
    """Return batches {"x": float32 [n, 64, 64, 3], "i": int64 [n]} of shuffled images with noise; the last one is short."""

    def with_noise(element: Any, rng: Any) -> Any:
        return {"x": element["x"].astype(np.float32) + np.float32(rng.random()), "i": element["i"]}

    images = np.random.default_rng(0).integers(0, 255, (bench.num_elements, 64, 64, 3), dtype=np.uint8)
    elements = ps.from_arrays({"x": images, "i": np.arange(bench.num_elements)})
    return elements.shuffle(seed=7).map(with_noise, seed=3).batch(bench.batch_size)


def _digest(batch: Any) -> Any:
    """Return int64 [n, 2], on the device: the number of each row, and a sum over its bits that any device makes alike."""
    bits = batch["x"].flatten(1).view(torch.int32).long()
    weights = torch.arange(1, 2 * bits.shape[1], 2, device=bits.device)
    return torch.stack([batch["i"], (bits * weights).sum(1)], 1)


def _late_digests(bench: Bench, batches: Iterable[Any]) -> list[Any]:
    """Read each batch late, and let go of it before its kernels have run."""
    found = []
    for batch in batches:
        bench.be_late()
        found.append(_digest(batch))
        del batch
    return [digest.cpu() for digest in found]


def _reference(dataset: Any) -> list[Any]:
    with dataset.feed(output="torch", num_workers=0) as feed:
        return [_digest(batch) for batch in feed]


def _expect(right: bool, text: str) -> None:
    if not right:
        raise AssertionError(text)


def _expect_equal(found: list[Any], wanted: list[Any]) -> str:
    _expect(len(found) == len(wanted), f"{len(found)} batches, not {len(wanted)}")
    wrong = [number for number, (one, other) in enumerate(zip(found, wanted, strict=True)) if not torch.equal(one, other)]
    _expect(not wrong, f"{len(wrong)} of {len(found)} batches are wrong: {wrong[:10]}")
    return f"{len(found)} batches"


def _expect_same_fields(bench: Bench, dataset: Any, **options: Any) -> str:
    """Compare all fields of all batches, copied behind a late kernel, with those of NumPy without workers."""
    with dataset.feed(num_workers=0) as feed:
        wanted = list(feed)
    found = []
    with bench.feed(dataset, **options) as feed:
        for batch in feed:
            bench.be_late()
            found.append({name: field.clone() if isinstance(field, torch.Tensor) else field for name, field in batch.items()})
            del batch
    _expect(len(found) == len(wanted), f"{len(found)} batches, not {len(wanted)}")
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        _expect(one.keys() == other.keys(), f"batch {number} has the fields {sorted(one)}")
        for name, field in one.items():
            array = field.cpu().numpy() if isinstance(field, torch.Tensor) else field
            right = array.dtype == other[name].dtype and np.array_equal(array, other[name])
            _expect(right, f"field {name!r} of batch {number} is wrong")
    return f"{len(found)} batches of {len(wanted[0])} fields"


# -- the hand-over --------------------------------------------------------------------------------------------------------------------


def late_kernels(bench: Bench) -> str:
    """Read each batch some milliseconds late, after it was deleted."""
    dataset = _noisy(bench)
    with bench.feed(dataset) as feed:
        return _expect_equal(_late_digests(bench, feed), _reference(dataset))


def another_stream(bench: Bench) -> str:
    """Train on a stream of one's own, which is current when the batch is taken."""
    dataset = _noisy(bench)
    with torch.cuda.stream(torch.cuda.Stream(bench.device)), bench.feed(dataset) as feed:
        return _expect_equal(_late_digests(bench, feed), _reference(dataset))


def handed_to_another_stream(bench: Bench) -> str:
    """Take the batch on one stream and read it on another, with what PyTorch asks for: wait_stream and record_stream."""
    dataset, side, found = _noisy(bench), torch.cuda.Stream(bench.device), []
    with bench.feed(dataset) as feed:
        for batch in feed:
            side.wait_stream(torch.cuda.current_stream(bench.device))
            with torch.cuda.stream(side):
                bench.be_late()
                found.append(_digest(batch))
            for field in batch.values():
                field.record_stream(side)
            del batch, field
    torch.cuda.synchronize(bench.device)
    return _expect_equal([digest.cpu() for digest in found], _reference(dataset))


def kept_batches(bench: Bench) -> str:
    """Keep all batches, and read them after the feed is closed."""
    dataset = _noisy(bench)
    with bench.feed(dataset) as feed:
        batches = list(feed)
    return _expect_equal(_late_digests(bench, batches), _reference(dataset))


def kept_fields(bench: Bench) -> str:
    """Keep one field of each batch, by turns, and drop the other."""
    dataset = _noisy(bench)
    with dataset.feed(num_workers=0) as feed:
        wanted = [torch.from_numpy(batch["xi"[number % 2]]) for number, batch in enumerate(feed)]
    with bench.feed(dataset) as feed:
        found = [batch["xi"[number % 2]] for number, batch in enumerate(feed)]
    return _expect_equal([field.cpu() for field in found], wanted)


def written_batches(bench: Bench) -> str:
    """Write into one field in place: the other is as it was, and so are the batches that follow."""
    dataset, found = _noisy(bench), []
    with bench.feed(dataset) as feed:
        for batch in feed:
            bench.be_late()
            digest = _digest(batch)
            batch["x"].zero_()
            digest[:, 0] = batch["i"]
            batch["i"].zero_()
            found.append(digest)
            del batch
    return _expect_equal([digest.cpu() for digest in found], _reference(dataset))


def worker_processes(bench: Bench) -> str:
    """Read late what worker processes have written."""
    dataset = _noisy(bench)
    with bench.feed(dataset, executor="processes", num_workers=min(4, bench.num_workers)) as feed:
        return _expect_equal(_late_digests(bench, feed), _reference(dataset))


def unordered(bench: Bench) -> str:
    """Take what is finished first: each row once, and right."""
    dataset = _noisy(bench)
    with bench.feed(dataset, ordered=False) as feed:
        found = torch.cat(_late_digests(bench, feed))
    wanted = torch.cat(_reference(dataset))
    _expect(found.shape == wanted.shape, f"{len(found)} rows, not {len(wanted)}")
    _expect(torch.equal(found[found[:, 0].argsort()], wanted[wanted[:, 0].argsort()]), "a row is wrong, or came twice")
    return f"{len(found)} rows, each once"


def two_feeds(bench: Bench) -> str:
    """Take from two feeds by turns."""
    dataset = _noisy(bench)
    with bench.feed(dataset) as one, bench.feed(dataset, num_workers=1) as other:
        digests = _late_digests(bench, (batch for pair in zip(one, other, strict=True) for batch in pair))
    wanted = _reference(dataset)
    return f"{_expect_equal(digests[::2], wanted)} / {_expect_equal(digests[1::2], wanted)}"


# -- kinds of batches -----------------------------------------------------------------------------------------------------------------


def padded(bench: Bench) -> str:
    """Pad rows of different lengths."""
    return _expect_same_fields(bench, _rows().padded_batch(16))


def bucketed(bench: Bench) -> str:
    """Batch rows of like lengths."""
    return _expect_same_fields(bench, _rows().bucket_by_length(lambda row: len(row["x"]), [4, 7], [16, 16, 16]))


def ragged(bench: Bench) -> str:
    """Join rows of different lengths, and make nested tensors of them on the device."""
    lengths = ps.from_arrays(np.arange(1, 200))
    dataset = lengths.map(lambda n: np.arange(n, dtype=np.int64)).ragged_batch(10)

    def nested(batch: Any) -> Any:
        return torch.nested.nested_tensor_from_jagged(batch["values"], batch["row_splits"])

    with bench.feed(dataset, nested) as feed:
        rows = [row.cpu() for batch in feed for row in batch.unbind()]
    return _expect_equal(rows, [torch.arange(n) for n in range(1, 200)]).replace("batches", "rows")


def many_dtypes(bench: Bench) -> str:
    """Take fields whose sizes are no multiples of 16 bytes, so that each dtype needs its own alignment in a common buffer."""

    def element(n: Any) -> Any:
        return {
            "flag": bool(n % 3),
            "bytes": np.full((3, 5, 7), n % 251, np.uint8),
            "wide": np.full(3, n / 7),
            "half": np.full(5, n % 100, np.float16),
            "name": f"element {n}",
            "short": np.int16(n % 1000),
            "label": int(n),
        }

    return _expect_same_fields(bench, ps.from_arrays(np.arange(203)).map(element).batch(9))


def made_by_functions(bench: Bench) -> str:
    """Take batches of a `collate_fn`, and of a map of batches."""

    def collate(rows: Any) -> Any:
        return {"x": np.stack([row["x"] for row in rows])[:, ::-1], "n": np.array([row["n"] for row in rows])}

    def doubled(batch: Any) -> Any:
        return {"x": 2 * batch["x"], "n": batch["n"]}

    equal = _rows().map(lambda row: {"x": np.resize(row["x"], 900), "n": row["n"]})
    return f"{_expect_same_fields(bench, equal.batch(16, collate_fn=collate))} / {_expect_same_fields(bench, equal.batch(16).map(doubled))}"


def device_transform(bench: Bench) -> str:
    """Transform batches on the device, when the loop takes them."""
    dataset, places = _noisy(bench), set()

    def transform(batch: Any) -> Any:
        places.add(batch["x"].device.type)
        return {"x": batch["x"] * 2 / 2, "i": batch["i"]}

    with bench.feed(dataset, transform) as feed:
        said = _expect_equal(_late_digests(bench, feed), _reference(dataset))
    _expect(places == {bench.device.type}, f"the batches were on {places}")
    return said


def _rows() -> Any:
    return ps.from_arrays(np.arange(1000)).map(lambda n: {"x": np.full(1 + n % 9, n, np.float32), "n": int(n)})


# -- state, errors, ends --------------------------------------------------------------------------------------------------------------


def resumed(bench: Bench) -> str:
    """Save while batches are on their way to the device, and go on in another feed, with another number of workers."""
    dataset = _noisy(bench)
    with bench.feed(dataset) as feed:
        first = _late_digests(bench, (next(feed) for _ in range(5)))
        state = json.loads(json.dumps(feed.state_dict()))
    with bench.feed(dataset, num_workers=1) as feed:
        feed.load_state_dict(state)
        return _expect_equal(first + _late_digests(bench, feed), _reference(dataset))


def failing_element(bench: Bench) -> str:
    """Raise the error of an element after the batches before it, all of which are right."""

    def fails(n: Any) -> Any:
        if n == 700:
            raise ValueError("element 700 fails")
        return n

    found: list[Any] = []
    with bench.feed(ps.from_arrays(np.arange(2000)).map(fails).batch(10)) as feed:
        try:
            for batch in feed:
                bench.be_late()
                found.append(batch + 0)
                del batch
        except ValueError as error:
            _expect(str(error) == "element 700 fails", f"the error is {error!r}")
        else:
            raise AssertionError("the error did not come")
    return _expect_equal([batch.cpu() for batch in found], [torch.arange(n, n + 10) for n in range(0, 700, 10)])


def closed_early(bench: Bench) -> str:
    """Close a feed whose next batches are being copied: soon, and no thread stays."""
    before = set(threading.enumerate())
    feed = bench.feed(_noisy(bench))
    batch = next(feed)
    begin = time.perf_counter()
    feed.close()
    passed_s = time.perf_counter() - begin
    left = set(threading.enumerate()) - before
    _expect(passed_s < 2, f"close() took {passed_s:.1f} s")
    _expect(not left, f"threads that stay: {left}")
    _expect_equal([_digest(batch).cpu()], _reference(_noisy(bench))[:1])
    return f"closed in {1e3 * passed_s:.1f} ms"


# -- memory ---------------------------------------------------------------------------------------------------------------------------


def pinned_memory(bench: Bench) -> str:
    """Have batches of all kinds in pinned memory, without a device."""
    for dataset in (_noisy(bench), _rows().padded_batch(16)):
        with dataset.feed(output=ps.Torch(pin_memory=True), executor="threads", num_workers=2) as feed:
            for batch in feed:
                _expect(all(field.is_pinned() for field in batch.values()), f"not pinned: {list(batch)}")
    return "all fields are"


def reserved_memory(bench: Bench) -> str:
    """Take many batches: the memory that PyTorch holds on the device does not grow after the first quarter of them."""
    marks: list[int] = []
    with bench.feed(_noisy(bench).repeat(20)) as feed:
        for batch in feed:
            bench.be_late()
            _digest(batch)
            del batch
            if feed.step % 16 == 0:  # as a loop that reads its loss now and then: it would run a thousand kernels ahead, with their batches
                torch.cuda.synchronize(bench.device)
            marks.append(torch.cuda.memory_reserved(bench.device))
    early, late = max(marks[: len(marks) // 4]), max(marks)
    _expect(late <= early + _SEGMENT, f"from {early >> 20} to {late >> 20} MiB over {len(marks)} batches")
    return f"{late >> 20} MiB after {len(marks)} batches, {early >> 20} after a quarter"


Check = Callable[[Bench], str]
ON_CUDA: tuple[Check, ...] = (another_stream, handed_to_another_stream, pinned_memory, reserved_memory)
CHECKS: tuple[Check, ...] = (
    late_kernels, another_stream, handed_to_another_stream, kept_batches, kept_fields, written_batches, worker_processes, unordered,
    two_feeds, padded, bucketed, ragged, many_dtypes, made_by_functions, device_transform, resumed, failing_element, closed_early,
    pinned_memory, reserved_memory,
)  # fmt: skip


def run(bench: Bench) -> Iterable[tuple[str, dict[str, Any]]]:
    """Give the name of each check, and whether it was right, with what it says and its seconds."""
    for check in CHECKS:
        if check in ON_CUDA and not bench.cuda:
            continue
        begin = time.perf_counter()
        try:
            right, text = True, check(bench)
        except Exception as error:  # the others are still worth running
            right, text = False, f"{type(error).__name__}: {error}"
            traceback.print_exc()
        yield check.__name__, {"right": right, "text": text, "seconds": round(time.perf_counter() - begin, 2)}
