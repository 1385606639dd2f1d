"""States of many plans as they were saved once, with what each plan delivers behind them: every later version reads them.

`cd tests && ../.venv/bin/python -m golden.states` records what has no file yet; a file that exists is never written again. To cover
more, add a plan or a place to save at. A plan of the list stays as it is: the names of its functions and files are part of its states.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import penstock as ps

FOLDER = Path(__file__).parent / "states"
TFRECORDS = Path(__file__).parent / "tfrecord"
ALL = -1
"""As a place to save at: behind everything."""

GATE = threading.Event()
"""The function `held_back` waits for it at one element. It is closed only while a run in completion order is recorded."""
GATE.set()


class Plan(NamedTuple):
    """A dataset, the options it is fed with, and the places to save at."""

    build: Callable[..., ps.Dataset]
    """Called with a folder for its files, and `arguments`."""
    saves: tuple[int, ...]
    """How many elements or batches were delivered before each save."""
    options: Mapping[str, Any] = MappingProxyType({})
    """Options of the feed: "Skip()" and its like stand for policies."""
    arguments: Mapping[str, Any] = MappingProxyType({})
    before: tuple[tuple[dict[str, Any], int], ...] = ()
    """Earlier parts of the run: the arguments, and how much each delivered. Each went on from the state of the one before."""
    resumes: tuple[dict[str, Any], ...] = ()
    """Further arguments that the state is resumed with."""


# -- functions of the plans ------------------------------------------------------------------------------------------------------------


def odd(value: Any) -> bool:
    return int(value) % 2 == 1


def most(value: Any) -> bool:
    return int(value) % 5 != 2


def copies(value: Any) -> list[Any]:
    return [np.int64(10 * int(value) + number) for number in range(int(value) % 4)]


def noisy(value: Any, rng: np.random.Generator) -> Any:
    return int(value) * 1000 + int(rng.integers(0, 1000))


def noisy_batch(batch: Any, rng: np.random.Generator) -> Any:
    return batch + rng.integers(0, 1000, len(batch)) * 1000


async def tripled(value: Any) -> Any:
    await asyncio.sleep(0)
    return value * 3


def sequence(value: Any) -> Any:
    return np.arange(int(value), int(value) + 1 + int(value) * 7 % 6, dtype=np.int32)


def fields(value: Any) -> Any:
    return {"ids": sequence(value), "label": np.int64(value)}


def residue(value: Any) -> int:
    return int(value) % 5


def kind(value: Any) -> int:
    return int(value) % 3


def held_back(value: Any) -> Any:
    if int(value) == 3 and not GATE.wait(60):
        raise TimeoutError("the gate stayed closed")
    return value


def failing(value: Any) -> Any:
    if int(value) % 7 == 3:
        raise ValueError(f"bad {int(value)}")
    return value


class Unsteady:
    """Fails at every fourth value when it is called with it for the first time."""

    def __init__(self) -> None:
        self.seen = set[int]()

    def __call__(self, value: Any) -> Any:
        if int(value) % 4 == 1 and int(value) not in self.seen:
            self.seen.add(int(value))
            raise OSError(f"not yet {int(value)}")
        return failing(value)


def parsed(record: Any) -> Any:
    return np.array([len(record["record"]), sum(record["record"])])


# -- sources of the plans --------------------------------------------------------------------------------------------------------------


def numbers(count: int = 40) -> ps.Dataset:
    return ps.from_arrays(np.arange(count))


def counting() -> Iterator[int]:
    return iter(range(30))


def generated() -> ps.Dataset:
    return ps.from_generator(counting, fast_forward=True)


class Ticks:
    """A stream with states: 0 to 24 in the first epoch, 100 to 124 in the second."""

    def __init__(self) -> None:
        self.epoch = self.start = self.index = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        start, self.start = self.start, 0
        for number in range(start, 25):
            self.index = number + 1
            yield 100 * self.epoch + number

    def state_dict(self) -> Any:
        return {"index": self.index}

    def load_state_dict(self, state: Any) -> None:
        self.start = state["index"]


class Grouped:
    """Numbers from 0, in groups of the given sizes."""

    def __init__(self, *sizes: int) -> None:
        self._starts = np.cumsum([0, *sizes], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        rows.extend(int(index) for index in indices)

    def describe(self, index: int) -> str:
        return f"number {index}"

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "grouped", "count": len(self)}

    def label(self) -> str:
        return f"grouped({len(self)})"

    def group_starts(self) -> Any:
        return self._starts


def copied(folder: Path, *paths: Path) -> None:
    """Copy golden files: an index is written beside what is read."""
    for path in paths:
        (folder / path.name).write_bytes(path.read_bytes())


def records(folder: Path) -> ps.Dataset:
    copied(folder, *TFRECORDS.glob("plain.tfrecord-*"))
    return ps.read_tfrecord(str(folder / "plain.tfrecord-*"))


def compressed_records(folder: Path) -> ps.Dataset:
    copied(folder, TFRECORDS / "gzip.tfrecord.gz")
    return ps.read_tfrecord(str(folder / "gzip.tfrecord.gz"), compression="GZIP")


def examples(folder: Path) -> ps.Dataset:
    """24 examples with `x`, one int64, and `y`, two floats."""
    copied(folder, FOLDER / "files" / "examples.tfrecord")
    features = {"x": ps.FixedLenFeature([], np.int64), "y": ps.FixedLenFeature([2], np.float32)}
    return ps.read_tfrecord(str(folder / "examples.tfrecord"), features=features)


def table(folder: Path) -> ps.Dataset:
    """24 rows in 4 row groups."""
    copied(folder, FOLDER / "files" / "rows.parquet")
    return ps.read_parquet(str(folder / "rows.parquet"))


def samples(folder: Path) -> ps.Dataset:
    with tarfile.open(folder / "samples.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(15):
            for suffix, data in (("txt", b"sample %d" % number), ("cls", b"%d" % (number % 4))):
                member = tarfile.TarInfo(f"{number:03}.{suffix}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return ps.read_tar(str(folder / "samples.tar"))


def json_lines(folder: Path) -> ps.Dataset:
    for part in range(2):
        rows = [json.dumps({"id": 10 * part + number, "name": f"row {number}"}) for number in range(9)]
        (folder / f"rows-{part}.jsonl").write_text("".join(row + "\n" for row in rows))
    return ps.read_jsonl(str(folder / "rows-*.jsonl"))


def csv_rows(folder: Path) -> ps.Dataset:
    (folder / "rows.csv").write_text("id,share\n" + "".join(f"{number},{number / 8}\n" for number in range(21)))
    return ps.read_csv(str(folder / "rows.csv"), columns={"id": np.int64, "share": np.float64})


def text_lines(folder: Path) -> ps.Dataset:
    (folder / "lines.txt").write_text("".join(f"line {number}\n" for number in range(19)))
    return ps.read_text(str(folder / "lines.txt"))


def token_windows(folder: Path) -> ps.Dataset:
    (folder / "train.bin").write_bytes((np.arange(90) * 37 % 251).astype("<u2").tobytes())
    return ps.read_tokens(str(folder / "train.bin"), 4, dtype=np.uint16)


def whole_files(folder: Path) -> ps.Dataset:
    for number in range(8):
        (folder / f"{number}.dat").write_bytes(b"content " * number)
    return ps.read_files(str(folder / "*.dat"))


# -- the plans -------------------------------------------------------------------------------------------------------------------------


def two_fields(folder: Path) -> ps.Dataset:
    return ps.from_arrays({"x": np.arange(50, dtype=np.int32), "y": np.arange(50) / 4})


def ranks(folder: Path, num_shards: int = 4, index: int = 1) -> ps.Dataset:
    return numbers(48).shuffle(seed=3).shard(num_shards, index).batch(3, drop_remainder=True).repeat(2)


def ranks_of_one_epoch(folder: Path, num_shards: int = 4, index: int = 1) -> ps.Dataset:
    return numbers(43).shuffle(seed=3).map(noisy).shard(num_shards, index).batch(4)


def mixed(folder: Path, weights: tuple[float, ...] = (3.0, 1.0, 2.0)) -> ps.Dataset:
    parts = [ps.from_arrays(np.arange(first, first + count)) for first, count in ((0, 12), (100, 7), (200, 20))]
    return parts[0].shuffle(seed=1).mix(*parts[1:], weights=weights, stop="all_exhausted").batch(4)


RANKS = tuple({"num_shards": 3, "index": index} for index in range(3))
ONE_RANK = ({"num_shards": 1, "index": 0},)
UNORDERED = {"ordered": False, "executor": "threads", "num_workers": 2}


def unordered_batches(folder: Path) -> ps.Dataset:
    return numbers(23).map(held_back).batch(3).repeat(2)


PLANS = {
    "arrays": Plan(lambda folder: two_fields(folder).shuffle(seed=7).batch(8, drop_remainder=True).repeat(3), (0, 4, 6, 13, ALL)),
    "order_kept": Plan(lambda folder: numbers().shuffle(seed=1, reshuffle_each_epoch=False).repeat(2).batch(7), (0, 5, 9)),
    "elements": Plan(lambda folder: numbers().shuffle(seed=2).map(noisy, seed=5).repeat(2), (17, 40, 63)),
    "noisy_batches": Plan(lambda folder: numbers().batch(6).map(noisy_batch, seed=9).repeat(2), (3, 7, 10)),
    "async": Plan(lambda folder: numbers().map(tripled, concurrency=4).batch(5), (3,)),
    "window_shuffle": Plan(lambda folder: numbers().shuffle(10, seed=3).batch(4).repeat(2), (3, 10, 14)),
    "group_shuffle": Plan(
        lambda folder: ps.from_source(Grouped(5, 0, 9, 1, 7, 8)).shuffle(seed=2, window_groups=2).batch(4).repeat(2), (2, 8, 11)
    ),
    "shard": Plan(ranks, (2, 4, 6), resumes=RANKS + ONE_RANK),
    "shard_cut": Plan(ranks_of_one_epoch, (1, 2), resumes=RANKS + ONE_RANK),
    "shard_twice": Plan(ranks, (3,), arguments=RANKS[2], before=(({"num_shards": 4, "index": 1}, 2),), resumes=ONE_RANK),
    "take_skip_enumerate": Plan(lambda folder: numbers().skip(3).take(30).enumerate(start=5).batch(4).repeat(2), (3, 8, 9)),
    "concatenate_zip": Plan(
        lambda folder: numbers(20).concatenate(numbers(15).map(noisy)).zip(numbers(40).shuffle(seed=4)).batch(3).repeat(2), (5, 12, 15)
    ),
    "mix": Plan(mixed, (3, 9)),
    "mix_changed": Plan(mixed, (7,), arguments={"weights": (1.0, 1.0, 4.0)}, before=(({"weights": (3.0, 1.0, 2.0)}, 3),)),
    "interleave": Plan(
        lambda folder: (
            ps.from_source([0, 100, 200, 300])
            .interleave(lambda first: ps.from_arrays(np.arange(first, first + 5 + first // 100)), 2, 2)
            .batch(4)
            .repeat(2)
        ),
        (2, 7, 9),
    ),
    "window": Plan(lambda folder: numbers(30).shuffle(seed=6).window(4, 3).repeat(2), (4, 10, 13)),
    "window_folded": Plan(lambda folder: numbers(40).filter(most).window(6, 2, 2, drop_remainder=True).repeat(2), (3, 11, 17)),
    "cache": Plan(lambda folder: numbers(22).map(noisy).cache().shuffle(seed=8).batch(5).repeat(3), (2, 5, 8)),
    "filter": Plan(lambda folder: numbers().shuffle(seed=5).filter(odd).batch(6).repeat(3), (0, 2, 4, 7, ALL)),
    "filter_of_batches": Plan(lambda folder: numbers().shuffle(seed=5).batch(3).filter(lambda batch: odd(batch.sum())).repeat(2), (3, 8)),
    "counted_folds": Plan(
        lambda folder: numbers(60).filter(most).skip(2).shard(2, 1).enumerate(start=3).take(17).batch(3).repeat(2), (2, 6, 9)
    ),
    "flat_map": Plan(lambda folder: numbers(24).shuffle(seed=2).flat_map(copies).batch(4).repeat(2), (1, 2, 5, 9, 11)),
    "flat_map_elements": Plan(lambda folder: numbers(24).flat_map(copies), (2, 3, 5, 20)),
    "unbatch": Plan(lambda folder: numbers().batch(6).map(noisy_batch).unbatch().batch(4).repeat(2), (2, 10, 13)),
    "unbatch_elements": Plan(lambda folder: numbers(20).batch(6).unbatch().repeat(2), (4, 6, 20, 23)),
    "buckets": Plan(
        lambda folder: numbers(150).map(fields).bucket_by_length(lambda one: len(one["ids"]), [2, 4], [7, 3, 2], name="len").repeat(2),
        (4, 40, 60, 75),
    ),
    "pack": Plan(lambda folder: numbers(90).map(sequence).pack_sequences(8, num_bins=3).batch(2).repeat(2), (3, 15, 22, 30)),
    "pack_split": Plan(lambda folder: numbers(50).map(sequence).pack_sequences(7, split=True).batch(3).repeat(2), (3, 8, 13)),
    "padded_batch": Plan(
        lambda folder: numbers(30).map(fields).padded_batch(4, padding_values={"ids": -1, "label": 0}).repeat(2), (2, 8, 9)
    ),
    "padded_batch_folded": Plan(lambda folder: numbers(30).filter(odd).map(sequence).padded_batch(4).repeat(2), (2, 4, 6)),
    "ragged_batch": Plan(lambda folder: numbers(30).map(fields).ragged_batch(4, ragged=["ids"]).repeat(2), (2, 8, 9)),
    "buffer": Plan(lambda folder: generated().shuffle(8, seed=3).batch(3).repeat(2), (1, 4, 10, 12)),
    "buffer_folded": Plan(lambda folder: numbers(200).filter(odd).shuffle(90, seed=4).repeat(2), (5, 70, 100, 130)),
    "resample": Plan(lambda folder: numbers(80).shuffle(seed=1).rejection_resample(kind, [1, 2, 1], seed=3).batch(4).repeat(2), (3, 9, 13)),
    "resample_declared": Plan(lambda folder: numbers(60).rejection_resample(kind, [1, 2, 1], [1, 1, 1], seed=3).repeat(2), (9, 40, 50)),
    "held_twice": Plan(
        lambda folder: numbers(150).filter(most).shuffle(20, seed=1).bucket_by_length(residue, [2, 4], [5, 3, 2]).take(25).repeat(2),
        (9, 25, 31),
    ),
    "generator": Plan(lambda folder: generated().batch(4).repeat(2), (0, 3, 8, 11, ALL)),
    "stream": Plan(lambda folder: ps.from_stream(Ticks()).map(noisy).batch(4).repeat(2), (0, 3, 7, 10)),
    "stream_cut": Plan(lambda folder: ps.from_stream(Ticks()).filter(most).take(9).batch(2).repeat(3), (2, 5, 8)),
    "tfrecord": Plan(lambda folder: records(folder).shuffle(seed=3).map(parsed).batch(2).repeat(2), (1, 4)),
    "tfrecord_stream": Plan(lambda folder: compressed_records(folder).map(parsed).batch(2).repeat(2), (1, 4)),
    "tfrecord_features": Plan(lambda folder: examples(folder).shuffle(seed=3).batch(5).repeat(2), (2, 7)),
    "tar": Plan(lambda folder: samples(folder).shuffle(seed=3).repeat(2), (4, 20)),
    "jsonl": Plan(lambda folder: json_lines(folder).shuffle(seed=3).repeat(2), (4, 20)),
    "csv": Plan(lambda folder: csv_rows(folder).shuffle(seed=3).batch(4).repeat(2), (2, 8)),
    "text": Plan(lambda folder: text_lines(folder).shuffle(seed=3).repeat(2), (4, 20)),
    "tokens": Plan(lambda folder: token_windows(folder).shuffle(seed=3).batch(4).repeat(2), (2, 8)),
    "files": Plan(lambda folder: whole_files(folder).map(itemgetter("data"), name="data").shuffle(seed=3).repeat(2), (3, 11)),
    "parquet": Plan(lambda folder: table(folder).shuffle(seed=3, window_groups=2).batch(5).repeat(2), (2, 7)),
    "unordered": Plan(unordered_batches, (2, 4), options=UNORDERED),
    "unordered_filter": Plan(lambda folder: numbers(40).map(held_back).filter(most).batch(3), (4,), options=UNORDERED),
    "unordered_flat_map": Plan(lambda folder: numbers(24).map(held_back).flat_map(copies), (7, 11), options=UNORDERED),
    "unordered_in_order": Plan(lambda folder: numbers(40).filter(most).batch(3), (4,), options={"ordered": False, "executor": "inline"}),
    "recorded": Plan(unordered_batches, (3,), options=UNORDERED),
    "replayed": Plan(unordered_batches, (2, 5, 9)),
    "skip": Plan(lambda folder: numbers().shuffle(seed=2).map(failing, on_error=ps.Skip()).batch(4).repeat(2), (0, 2, 9, 13, ALL)),
    "skip_by_feed": Plan(
        lambda folder: numbers().map(failing).filter(most).batch(4).repeat(2), (2, 8), options={"on_error": "Skip(limit=20)"}
    ),
    "skip_in_shard": Plan(lambda folder: numbers().map(failing, on_error=ps.Skip()).shard(2, 1).batch(4).repeat(2), (2, 7)),
    "skip_below_buffer": Plan(
        lambda folder: generated().map(failing, on_error=ps.Skip()).shuffle(8, seed=1).batch(3).repeat(2), (2, 8, 11)
    ),
    "skip_below_buckets": Plan(
        lambda folder: numbers(150).map(failing, on_error=ps.Skip()).bucket_by_length(residue, [2, 4], [7, 3, 2]).repeat(2), (6, 40, 55)
    ),
    "skip_below_pack": Plan(
        lambda folder: numbers(60).map(failing, on_error=ps.Skip()).map(sequence).pack_sequences(8, num_bins=3), (3, 12)
    ),
    "skip_unordered": Plan(lambda folder: numbers(30).map(held_back).map(failing, on_error=ps.Skip()).batch(3), (4,), options=UNORDERED),
    "replace": Plan(lambda folder: numbers().shuffle(seed=2).map(failing, on_error=ps.Replace()).batch(4).repeat(2), (2, 9, 13)),
    "replace_below_buffer": Plan(
        lambda folder: numbers(60).map(failing, on_error=ps.Replace()).filter(most).shuffle(7, seed=1).repeat(2), (5, 40, 60)
    ),
    "retry": Plan(
        lambda folder: numbers().map(Unsteady(), on_error=ps.Retry(1, then=ps.Skip()), name="unsteady").batch(4).repeat(2), (2, 9)
    ),
    "retry_by_feed": Plan(
        lambda folder: numbers().map(Unsteady(), name="unsteady").batch(4), (2, 5), options={"on_error": "Retry(2, then=Replace())"}
    ),
}

POLICIES = {"Skip(limit=20)": ps.Skip(limit=20), "Retry(2, then=Replace())": ps.Retry(2, then=ps.Replace())}


# -- saving and loading ----------------------------------------------------------------------------------------------------------------


def as_json(item: Any) -> Any:
    """Return an element as plain JSON that tells arrays by their dtype and tuples from lists; more than 60 bytes as their hash."""
    if isinstance(item, (np.ndarray, np.generic)):
        return {"array": str(item.dtype), "values": item.tolist()}
    if isinstance(item, (bytes, bytearray, memoryview)):
        data = bytes(item)
        return {"bytes": data.decode("latin-1")} if len(data) <= 60 else {"sha256": hashlib.sha256(data).hexdigest()}
    if isinstance(item, tuple):
        return {"tuple": [as_json(part) for part in item]}
    if isinstance(item, list):
        return [as_json(part) for part in item]
    if isinstance(item, dict):
        return {key: as_json(part) for key, part in item.items()}
    return item


def feed_of(name: str, folder: Path, arguments: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> ps.Feed:
    """Make a feed of a plan, with the plan's options or others."""
    given = dict(PLANS[name].options if options is None else options)
    for option, value in given.items():
        if isinstance(value, str):
            given[option] = POLICIES.get(value) or value
    return PLANS[name].build(folder, **arguments).feed(**given)


def _by_hand(feed: ps.Feed) -> Iterator[Any]:
    while feed.epoch == 0:
        try:
            yield next(feed)
        except StopIteration:
            return


def rest_of(feed: ps.Feed, ordered: bool) -> list[Any]:
    """Return what a feed still delivers as JSON; of completion order the sorted numbers of all batches, as their company is open."""
    items = list(_by_hand(feed))
    return [as_json(item) for item in items] if ordered else sorted(number for item in items for number in np.ravel(item).tolist())


def lost(feed: ps.Feed) -> list[int]:
    """Return how many elements were skipped and replaced so far."""
    stats = feed.stats()
    return [stats.num_skipped, stats.num_replaced]


def is_ordered(options: Mapping[str, Any]) -> bool:
    return bool(options.get("ordered", True))


def of_today(options: Mapping[str, Any], behind: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return the options of a golden file, and what was delivered behind it. No order is written to a file, or followed from one, today."""
    if "replay" in options:
        return UNORDERED, sorted(number for batch in behind for number in batch["values"])
    return (UNORDERED if "record" in options else dict(options)), behind


def path_of(name: str, place: int) -> Path:
    return FOLDER / f"{name}-{'all' if place == ALL else place}.json"


def recorded(name: str, place: int) -> dict[str, Any]:
    """Run a plan up to a place, save, and note what is delivered behind it: by the run itself, and by one that loads the state."""
    plan, state, delivered, behind = PLANS[name], None, 0, list[Any]()
    ordered = is_ordered(plan.options)
    for arguments, count in (*plan.before, (plan.arguments, place)):
        if not ordered:
            GATE.clear()
        with tempfile.TemporaryDirectory() as folder, feed_of(name, Path(folder), arguments) as feed:
            if state is not None:
                feed.load_state_dict(state)
            delivered += len(list(islice(feed, None if count == ALL else count)))
            state = feed.state_dict()
            GATE.set()
            behind = rest_of(feed, ordered)
    resumes = []
    for arguments in (plan.arguments, *plan.resumes):
        with tempfile.TemporaryDirectory() as folder, feed_of(name, Path(folder), arguments) as feed:
            feed.load_state_dict(state)
            before = lost(feed)
            resume = {
                "arguments": dict(arguments),
                "lost_before": before,
                "behind": rest_of(feed, ordered),
                "step": feed.step,
                "lost": lost(feed),
            }
            resumes.append(resume)
    if resumes[0]["behind"] != behind:
        raise AssertionError(f"{name} at {place}: a run goes on with {behind}, one that loads its state with {resumes[0]['behind']}")
    return {"plan": name, "options": dict(plan.options), "delivered": delivered, "state": state, "resumes": resumes}


def main() -> None:
    """Record every state that has no file yet."""
    for name, plan in PLANS.items():
        for place in plan.saves:
            path = path_of(name, place)
            if not path.exists():
                lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in recorded(name, place).items())
                path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
                print(path.name)


if __name__ == "__main__":
    main()
