"""Many, large and uneven records: FAULTS G4, G5, C34. Memory is bounded, and nothing takes longer per record when there are more of them.

A record of 200 MB is one of 20 MB here: 100 of them would be 20 GB to write and read, which a test machine has no time for. A folder of
10^6 files is one of 10^5 for the same reason (making them takes longer than all other tests).
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.ways import needs_proc, resident_bytes
from programs import output_of

import penstock as ps

pytestmark = pytest.mark.slow  # together with its kin two minutes; `make check` runs it

BOTH: list[dict[str, Any]] = [{"executor": "threads", "num_workers": 2}, {"executor": "threads", "num_workers": 2, "ordered": False}]
both_orders = pytest.mark.parametrize("way", BOTH, ids=["ordered", "unordered"])
MB = 1 << 20


def text_of(number: int) -> bytes:
    return b"%010d" % number


@pytest.fixture
def calls() -> Iterator[Callable[[Callable[[], Any]], int]]:
    """Count the calls of Python and C functions that something makes in this thread."""

    def count(run: Callable[[], Any]) -> int:
        made = 0

        def hear(frame: Any, event: str, argument: Any) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(hear)
        try:
            run()
        finally:
            sys.setprofile(None)
        return made

    yield count
    sys.setprofile(None)


# -- many (G4) ----------


@pytest.mark.slow
@both_orders
def test_a_million_records_of_ten_bytes_come_once_each_in_bounded_memory(way: dict[str, Any]) -> None:
    count = 10**6
    for ds, step in (
        (ps.from_source(range(count)).map(text_of), 1),
        (ps.from_source(range(count)).map(text_of).map(int).batch(1000), 1000),
        (ps.from_source(range(count)).filter(lambda x: True).map(int).batch(1000), 1000),
    ):
        before, peak, total, seen = resident_bytes(), 0, 0, 0
        with ds.feed(**way, memory_bytes=16 * MB) as feed:
            for number, item in enumerate(feed):
                total += int(item.sum()) if step > 1 else int(item)
                seen += step
                if number % (50_000 // step) == 0:
                    peak = max(peak, resident_bytes())
        assert (seen, total) == (count, count * (count - 1) // 2)
        assert peak - before < 64 * MB


LINEAR: dict[str, Callable[[int], ps.Dataset]] = {
    "elements": lambda n: ps.from_source(range(n)).map(text_of),
    "batches": lambda n: ps.from_source(range(n)).shuffle(seed=1).map(abs).batch(10),
    "filter, flat_map": lambda n: ps.from_source(range(n)).filter(lambda x: x % 2).flat_map(lambda x: [x, x]).batch(10),
    "generator and buffer": lambda n: ps.from_generator(lambda: iter(range(n))).shuffle(50, seed=1),
    "mix": lambda n: ps.from_source(range(n // 2)).mix(ps.from_source(range(n // 2)), weights=[2, 1]).batch(10),
    "interleave": lambda n: ps.from_source(range(20)).interleave(lambda k: ps.from_source(range(n // 20)), 4, 3),
    "buckets": lambda n: ps.from_source(range(n)).bucket_by_length(lambda x: x % 9, [3, 6], [4, 3, 2]),
    "pack": lambda n: ps.from_source(range(n)).map(lambda x: np.full(x % 7 + 1, x)).pack_sequences(32, num_bins=8),
    "pack and split": lambda n: ps.from_source(range(n)).map(lambda x: np.full(x % 7 + 1, x)).pack_sequences(32, split=True),
    "window": lambda n: ps.from_source(range(n)).window(5, 5),
    "window behind a filter": lambda n: ps.from_source(range(n)).filter(lambda x: True).window(5, 5),
    "ragged": lambda n: ps.from_source(range(n)).map(lambda x: np.full(x % 7, x)).ragged_batch(10),
    "cache": lambda n: ps.from_source(range(n)).map(abs).cache().repeat(2),
    "resample": lambda n: ps.from_source(range(n)).rejection_resample(lambda x: x % 2, [1, 2]),
}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("pipeline", LINEAR)
def test_twice_as_many_records_are_twice_the_work(pipeline: str, ordered: bool, calls: Callable[[Callable[[], Any]], int]) -> None:
    """Counted in calls of functions and not in seconds: a step that looks at all that came before would show as four times the calls."""
    if not ordered and pipeline in ("window", "window behind a filter", "pack and split"):
        return  # refused

    def run(count: int) -> int:
        with LINEAR[pipeline](count).feed(executor="inline", ordered=ordered) as feed:
            return calls(lambda: sum(1 for _ in feed))

    run(500)  # imports, and first guesses
    few, many = run(1500), run(6000)
    assert many < 6 * few  # 4 times the records; 16 times would be quadratic


# -- large and uneven (G4, C34) ----------


@needs_proc
@both_orders
def test_batches_of_records_of_20_mb_stay_in_the_byte_budget(way: dict[str, Any]) -> None:
    size, budget = 20 * MB, 160 * MB
    before, peak, seen = resident_bytes(), 0, []
    ds = ps.from_source(range(60)).map(lambda x: np.full(size, x, np.uint8)).batch(2)
    with ds.feed(**way, memory_bytes=budget) as feed:
        for batch in feed:
            seen += batch[:, 7].tolist()
            peak = max(peak, resident_bytes())
    assert sorted(seen) == list(range(60))
    assert peak - before < (budget + 8 * size if way.get("ordered", True) else 2 * budget + 12 * size)


def sizes(count: int) -> list[int]:
    chance = random.Random(8)
    return [min(int(chance.paretovariate(0.6)), 4 * MB) for _ in range(count)]


@needs_proc
@both_orders
@pytest.mark.parametrize("kind", ["elements", "ragged", "flat", "cache"])
def test_records_of_heavy_tailed_sizes_keep_their_bytes_in_bounded_memory(kind: str, way: dict[str, Any]) -> None:
    lengths = sizes(1500)
    ds = ps.from_source(range(len(lengths))).map(lambda x: np.full(lengths[x], x % 251, np.uint8))
    if kind == "ragged":
        ds = ds.ragged_batch(8)
    elif kind == "flat":
        ds = ds.flat_map(lambda row: [row, row[:1]])
    elif kind == "cache":
        ds = ds.cache(max_bytes=8 * MB).repeat(2)
    before, peak, total = resident_bytes(), 0, 0
    expected = sum(length * (x % 251) for x, length in enumerate(lengths))
    with ds.feed(**way, memory_bytes=32 * MB) as feed:
        for item in feed:
            total += int((item["values"] if kind == "ragged" else item).sum(dtype=np.int64))
            peak = max(peak, resident_bytes())
    extra = sum(x % 251 for x in range(len(lengths))) if kind == "flat" else 0
    assert total == (2 * expected if kind == "cache" else expected + extra)
    assert peak - before < 200 * MB


@both_orders
def test_one_sequence_as_long_as_all_others_together_is_packed_beside_them(way: dict[str, Any]) -> None:
    lengths = [1 if x != 700 else 4000 for x in range(4000)]
    ds = ps.from_source(range(4000)).map(lambda x: np.full(lengths[x], x, np.int32)).pack_sequences(4096, num_bins=4)
    seen: dict[int, int] = {}
    with ds.feed(**way) as feed:
        for row in feed:
            values, counts = np.unique(row["tokens"][row["segment_ids"] > 0], return_counts=True)
            for value, count in zip(values.tolist(), counts.tolist(), strict=True):
                seen[value] = seen.get(value, 0) + count
    assert seen == dict(enumerate(lengths))


# -- long lists and full folders (G5) ----------


MEASURE = """
import resource, sys
import penstock as ps
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
list(ps.from_source(range(9)).feed(executor="inline"))
before = resident()
"""


def measured(body: str, *arguments: str) -> list[int]:
    """Run a script in a process of its own, and return the numbers that it prints."""
    return [int(word) for word in output_of("-c", MEASURE + body, *arguments, OPENBLAS_NUM_THREADS="1").split()]


LIST = """
ds = ps.read_list(sys.argv[1])
held = resident() - before
with open("/proc/self/status") as file:  # not ru_maxrss: that is at least what the parent had when it forked
    peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM")) - before
try:
    ds[len(ds) - 1]
except FileNotFoundError as error:
    print(len(ds), held, peak, error.__notes__[-1].count("9999999") if len(ds) == 10**7 else 1)
"""


def check_list(path: Path, lines: int) -> None:
    with path.open("wb") as file:
        for start in range(0, lines, 100_000):
            file.write(b"".join(b"images/%08d.jpg %d\n" % (x, x % 1000) for x in range(start, min(lines, start + 100_000))))
    count, held, peak, named = measured(LIST, str(path))
    assert count == lines
    assert held <= 100 * lines + 32 * MB
    assert peak <= 200 * lines + 64 * MB
    assert named >= 1


@needs_proc
def test_a_list_of_300000_lines_costs_at_most_100_bytes_per_line(tmp_path: Path) -> None:
    check_list(tmp_path / "list.txt", 300_000)


@needs_proc
@pytest.mark.slow
def test_a_list_of_ten_million_lines_costs_at_most_100_bytes_per_line(tmp_path: Path) -> None:
    check_list(tmp_path / "list.txt", 10**7)


FOLDER = """
ds = ps.read_files(sys.argv[1] + "/*.bin")
held = resident() - before
names = ds.shuffle(seed=1).map(lambda element: element["path"])
print(len(ds), held, len({names[place] for place in range(0, len(ds), 97)}))
"""


def check_folder(folder: Path, count: int) -> None:
    for number in range(count):
        os.close(os.open(folder / f"{number:07}.bin", os.O_CREAT | os.O_WRONLY))
    length, held, different = measured(FOLDER, str(folder))
    assert length == count
    assert held <= 100 * count + 32 * MB
    assert different == len(range(0, count, 97))


@needs_proc
def test_a_folder_of_5000_files_costs_at_most_100_bytes_per_file(tmp_path: Path) -> None:
    check_folder(tmp_path, 5000)


@needs_proc
@pytest.mark.slow
def test_a_folder_of_100000_files_costs_at_most_100_bytes_per_file(tmp_path: Path) -> None:
    check_folder(tmp_path, 10**5)


def uneven(number: int) -> dict[str, Any]:
    return {"number": np.int64(number), "data": bytes([number]) * (200 * 10**6 if number == 41 else 10**5)}


@needs_proc
@pytest.mark.parametrize("read_as", ["records", "examples"])
def test_a_record_of_200_mb_is_packed_and_read_among_those_of_100_kb(tmp_path: Path, read_as: str) -> None:
    count = 120
    manifest = ps.pack(ps.from_source(range(count)).map(uneven), tmp_path / "out", num_shards=4, executor="threads", num_workers=2)
    assert len(manifest) == count
    pattern = str(tmp_path / "out" / "*.tfrecord")
    features = {"number": ps.FixedLenFeature((), "int64"), "data": ps.FixedLenFeature((), bytes)}
    ds = ps.read_tfrecord(pattern) if read_as == "records" else ps.read_tfrecord(pattern, features=features)
    parse = ps.parse_example(features)
    for way in BOTH:
        seen, before, peak = [], resident_bytes(), 0
        with ds.shuffle(seed=2).feed(**way, memory_bytes=32 * MB) as feed:
            for element in feed:
                peak = max(peak, resident_bytes())
                row = parse(element) if read_as == "records" else element
                number = int(row["number"])
                assert row["data"] == uneven(number)["data"]
                seen.append(number)
                del element, row
        assert sorted(seen) == list(range(count))
        assert peak - before < 1000 * MB  # a few copies of the one, none of it for each of the others
    with pytest.raises(ps.errors.RecordError, match="max_record_bytes"):
        ps.read_tfrecord(pattern, max_record_bytes=100 * 10**6)
