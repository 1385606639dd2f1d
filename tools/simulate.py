"""Run the order, the states and the resumes of Penstock for more ranks and samples than a machine has.

    python tools/simulate.py [--small] [--json PATH]

The feeds, shards, states, indices and the scheduler are those of Penstock; the seconds of a training step and of an element come from a
virtual clock. The source returns the number of each sample, so it needs no memory. Where ranks or positions are sampled, the table says so.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import random
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

import penstock as ps
from penstock._engine.chunk import Claim, Token
from penstock._engine.compute import compute
from penstock._engine.error_policy import RAISING
from penstock._engine.folding import finish_chunk
from penstock._engine.lowering import lower
from penstock._engine.program import SHARED, in_completion_order
from penstock._engine.scheduler import Scheduler
from penstock._engine.slots import Lease
from penstock._ops.rows import Rows
from penstock._ops.worker import WorkerContext
from penstock.formats.index import Index, joined

Row = dict[str, Any]
Table = list[Row]


class Cluster(NamedTuple):
    """What is simulated."""

    ranks: int = 10_000
    ranks_per_node: int = 8
    samples: int = 10**12
    batch: int = 32
    step_seconds: float = 0.5
    checkpoint_steps: int = 100


SMALL = Cluster(ranks=24, samples=10_000, batch=4, checkpoint_steps=5)


class Numbers:
    """A source of numbers without data."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return index


def numbers(count: int) -> ps.Dataset:
    """Return a dataset of numbers without data."""
    return ps.from_source(Numbers(count))


def is_even(value: int) -> bool:
    """Keep every second number."""
    return value % 2 == 0


PLANS: dict[str, Callable[[int], ps.Dataset]] = {
    "shuffle": lambda count: numbers(count).shuffle(seed=1).batch(32),
    "filter": lambda count: numbers(count).shuffle(seed=1).filter(is_even).batch(32),
    "mix of 2": lambda count: numbers(count).mix(numbers(count), weights=[1, 2]).batch(32),
    "mix of 16": lambda count: numbers(count).mix(*[numbers(count)] * 15, weights=[1] * 16).batch(32),
}


def size_of(state: dict[str, Any]) -> int:
    """Return the bytes of a state as JSON."""
    return len(json.dumps(state))


def states(samples: list[int]) -> Table:
    """Bytes of the state after three batches, of real feeds."""
    rows: Table = []
    for name, plan in PLANS.items():
        for ordered in (True, False):
            row: Row = {"pipeline": name, "ordered": ordered}
            for count in samples:
                with plan(count).feed(num_workers=0, ordered=ordered) as feed:
                    for _ in range(3):
                        next(feed)
                    row[f"bytes, {count:.0e} samples"] = size_of(feed.state_dict())
            rows.append(row)
    return rows


def rank_dataset(cluster: Cluster, ranks: int, rank: int) -> ps.Dataset:
    """Return what one rank reads."""
    return numbers(cluster.samples).shuffle(seed=7).shard(ranks, rank).batch(cluster.batch)


def sampled(ranks: int, most: int) -> list[int]:
    """Return the first, the last and some other ranks."""
    return sorted({0, ranks - 1, *random.Random(1).sample(range(ranks), min(most, ranks))})


def delivered(feed: Any, steps: int) -> Iterator[int]:
    """Take that many batches, or those that are left."""
    for _ in range(steps):
        batch = next(feed, None)
        if batch is None:
            return
        yield from (int(value) for value in batch)


def starts(cluster: Cluster, steps: int = 4) -> Table:
    """Seconds of this machine to plan, to start and for a position, and what ranks have in common."""
    seen: list[int] = []
    plan = start = work = 0.0
    ranks = sampled(cluster.ranks, 64)
    for rank in ranks:
        begin = time.perf_counter()
        dataset = rank_dataset(cluster, cluster.ranks, rank)
        planned = time.perf_counter()
        with dataset.feed(num_workers=0) as feed:
            seen += next(feed).tolist()
            first = time.perf_counter()
            seen += delivered(feed, steps)
            plan, start, work = plan + planned - begin, start + first - planned, work + time.perf_counter() - first
    return [
        {
            "ranks": cluster.ranks,
            "ranks sampled": len(ranks),
            "samples": cluster.samples,
            "plan, ms": round(plan / len(ranks) * 1e3, 3),
            "first batch, ms": round(start / len(ranks) * 1e3, 3),
            "one position, us": round(work / max(1, len(seen) - len(ranks) * cluster.batch) * 1e6, 2),
            "samples seen twice": len(seen) - len(set(seen)),
        }
    ]


def moves(cluster: Cluster, steps: int) -> Table:
    """Let a rank fail after `steps` steps: the last saved state goes to other ranks; the elements since then are computed again."""
    saved_at = steps - steps % cluster.checkpoint_steps
    with rank_dataset(cluster, cluster.ranks, 0).feed(num_workers=0) as feed:
        list(delivered(feed, saved_at))
        state = feed.state_dict()
        list(delivered(feed, steps - saved_at))
        reached = feed.state_dict()["global"]["element"]
    rows: Table = []
    for name, ranks in (
        ("a rank comes back", cluster.ranks),
        ("a node is lost", cluster.ranks - cluster.ranks_per_node),
        ("half are lost", cluster.ranks // 2),
        ("twice as many", cluster.ranks * 2),
    ):
        begin, chosen, again = time.perf_counter(), sampled(ranks, 8), set()
        for rank in chosen:
            with rank_dataset(cluster, ranks, rank).feed(num_workers=0) as feed:
                feed.load_state_dict(state)
                again.add(feed.state_dict()["global"]["element"])
        seconds = (time.perf_counter() - begin) / len(chosen)
        rows.append(
            {
                "event": name,
                "ranks before": cluster.ranks,
                "ranks after": ranks,
                "ranks sampled": len(chosen),
                "move, ms a rank": round(seconds * 1e3, 3),
                "elements computed again": reached - again.pop(),
                "virtual seconds lost": (steps - saved_at) * cluster.step_seconds,
                "ranks that disagree": len(again),
            }
        )
    return rows


def run_with_failures(cluster: Cluster, worlds: list[int], steps: int) -> list[int]:
    """Step through all ranks of each world; the next world goes on from the state of rank 0. Returns what all delivered."""
    state: dict[str, Any] | None = None
    seen: list[int] = []
    for number, ranks in enumerate(worlds):
        most = steps if number < len(worlds) - 1 else cluster.samples
        with ExitStack() as stack:
            feeds = [stack.enter_context(rank_dataset(cluster, ranks, rank).feed(num_workers=0)) for rank in range(ranks)]
            for feed in feeds:
                if state is not None:
                    feed.load_state_dict(state)
                seen += delivered(feed, most)
            state = feeds[0].state_dict()
    return seen


def document(number: int) -> dict[str, Any]:
    """Return a document whose length depends on its number."""
    return {"tokens": np.full(1 + number * 2654435761 % 61, number, np.int64)}


def document_length(element: dict[str, Any]) -> int:
    """Count the tokens of a document."""
    return len(element["tokens"])


def packed_runs(num_trials: int, most_ranks: int, documents: int) -> Table:
    """Run packed rows on changing numbers of ranks, all of which are killed between and go on from the state of rank 0."""
    chance, lost, repeated, uneven, moved = random.Random(1), 0, 0, 0, 0
    with TemporaryDirectory() as folder:
        measured = numbers(documents).map(document).measure(folder, num_workers=0, length=document_length)
        rows = measured.pack_sequences(64, by="length").shuffle(seed=7)
        for _ in range(num_trials):
            worlds = [round(2 ** chance.uniform(0, math.log2(most_ranks))) for _ in range(chance.randint(1, 3))] + [1]
            seen, state = list[int](), None
            for place, ranks in enumerate(worlds):
                if len(rows) - len(seen) < ranks:  # for so many ranks the pass is over
                    continue
                steps = None if place == len(worlds) - 1 else chance.randint(0, (len(rows) - len(seen)) // (2 * ranks))
                counts, states = set[int](), list[dict[str, Any]]()
                for rank in range(ranks):
                    with rows.shard_by_rank(rank=rank, num_ranks=ranks).feed(executor="inline") as feed:
                        if state is not None:
                            feed.load_state_dict(state)
                        found = [int(row["tokens"][0]) for row in itertools.islice(feed, steps)]
                        states.append(feed.state_dict())
                    counts.add(len(found))
                    seen += found
                uneven += len(counts) > 1
                state = states[0]
                moved += 1
            repeated += len(seen) - len(set(seen))
            lost += len(rows) - len(set(seen))
    return [
        {
            "trials": num_trials,
            "most ranks": most_ranks,
            "rows": len(rows),
            "runs that were killed": moved - num_trials,
            "rows lost": lost,
            "rows repeated": repeated,
            "runs with unequal steps": uneven,
        }
    ]


def own_runs(num_trials: int, most_ranks: int, documents: int, steps: int = 40) -> Table:
    """Let ranks pack their own documents of an endless order; each is killed at random steps, and goes on from its own state."""
    chance, differ, killed, sampled_ranks, shared = random.Random(1), 0, 0, 0, 0
    for _ in range(num_trials):
        ranks, pool = round(2 ** chance.uniform(1, math.log2(most_ranks))), chance.choice([1, 4, 16])
        places, seen = sampled(ranks, 4), list[set[int]]()
        for rank in places:
            order = numbers(documents).shuffle(seed=7).repeat().enumerate().shard_by_rank(rank=rank, num_ranks=ranks)
            rows = order.map(lambda pair: document(int(pair[0]))).pack_sequences(64, num_bins=pool).take(steps)
            whole = [row["tokens"].tolist() for row in rows.feed(num_workers=0)]
            found, state = list[list[int]](), None
            while len(found) < steps:
                with rows.feed(executor="inline") as feed:
                    if state is not None:
                        feed.load_state_dict(state)
                    found += [row["tokens"].tolist() for row in itertools.islice(feed, chance.randint(0, steps // 2))]
                    state = json.loads(json.dumps(feed.state_dict()))
                killed += 1
            differ += sum(mine != same for mine, same in zip(found, whole, strict=True))
            seen.append({place for row in found for place in row if place})
        sampled_ranks += len(places)
        shared += sum(map(len, seen)) - len(set().union(*seen))
    return [
        {
            "trials": num_trials,
            "most ranks": most_ranks,
            "ranks sampled": sampled_ranks,
            "runs that were killed": killed - sampled_ranks,
            "rows that differ from an unkilled run": differ,
            "documents on two ranks": shared,
        }
    ]


def slow_nodes(cluster: Cluster, steps: int = 100) -> Table:
    """Virtual seconds of synchronous steps: each step waits for the slowest node, whose time varies by 5 %."""
    rows: Table = []
    nodes = -(-cluster.ranks // cluster.ranks_per_node)
    for slow, factor in ((0, 1.0), (1, 1.5), (1, 3.0), (nodes // 100 + 1, 1.5)):
        speeds = np.where(np.arange(nodes) < slow, factor, 1.0)
        noise = np.random.default_rng(1).normal(1, 0.05, (steps, nodes))
        mean = float((speeds * noise).max(axis=1).mean()) * cluster.step_seconds
        rows.append({"nodes": nodes, "slow": slow, "times slower": factor, "virtual seconds a step": round(mean, 3)})
    return rows


class VirtualWorkers:
    """One feed: the real scheduler, with workers on a virtual clock and a loop that takes each batch at once.

    Attributes:
        elements: how many the loop got, by the virtual time `now_s`.
        num_tasks: how many tasks the workers computed, in `booked_s` seconds of real CPU time of the scheduler.
    """

    batch = 32

    def __init__(self, speeds: Sequence[float], *, ordered: bool = True, lifetime_s: float = math.inf, again_s: float = 0.5) -> None:
        """Begin.

        Args:
            speeds: elements per second of each worker.
            ordered: as in `feed`.
            lifetime_s: mean time until a worker dies; its task is computed again when that is seen and another worker has begun.
            again_s: how long that takes.
        """
        dataset = numbers(10**9).map(abs).batch(self.batch)
        program = lower(dataset._root)
        program = program if ordered else in_completion_order(program) or program
        self._scheduler = Scheduler(program, len(speeds), 1 << 28, Token((0, 0)))
        self._ordered = ordered
        self._speeds, self._lifetime_s, self._again_s = speeds, lifetime_s, again_s
        self._context, self._chance = WorkerContext(0), random.Random(1)
        self._free = list(range(len(speeds)))
        self._at_work: list[tuple[float, int, Claim, float]] = []
        self.now_s = self.booked_s = 0.0
        self.elements = self.num_tasks = 0

    def run(self, until_s: float) -> None:
        """Go on to a virtual time."""
        while self.now_s < until_s:
            begin_s = time.process_time()
            self._claim()
            self.now_s, worker, task, took_s = heapq.heappop(self._at_work)
            self._book(task, took_s)
            self.booked_s += time.process_time() - begin_s
            self._free.append(worker)
            self.num_tasks += 1

    def _claim(self) -> None:
        self._scheduler.waiting = 1
        while self._free and (task := self._scheduler.next_task(SHARED, self._free[-1])) is not None:
            worker = self._free.pop()
            took_s = 0.0 if task.segment else (task.end - task.begin) / self._speeds[worker]  # the map is in the first segment
            end_s = self.now_s + took_s
            death_s = self.now_s + self._lifetime_s * self._chance.expovariate(1.0)
            if death_s < end_s:
                end_s = death_s + self._again_s + took_s
            heapq.heappush(self._at_work, (end_s, worker, task, took_s))

    def _book(self, task: Claim, took_s: float) -> None:
        segment, chunk = self._scheduler.segments[task.segment], task.chunk
        assert chunk is not None
        sizes = segment.batches_of(chunk)
        if sizes is not None and chunk.rows is None and not chunk.finishing:
            chunk.lease = weakref.ref(Lease(bytearray(1)))
            chunk.rows = Rows(sizes[0], segment.expected_spec, lambda plain: [np.empty(*one) for one in plain], str, sizes[1])
        outcome = compute(segment.plan, task.item, chunk.rows, self._context, RAISING)
        took_ns = int(1e9 * took_s)
        if self._scheduler.complete(segment, task, outcome, took_ns, took_ns):
            segment.expected_spec = None if chunk.rows is None else chunk.rows.spec
            chunk.result, tail = finish_chunk(segment.plan, chunk, self._context, RAISING)
            self._scheduler.finish(segment, chunk, tail)
        while self._scheduler.ready:
            self.elements += self.batch * len(self._scheduler.take().items)
            self._scheduler.reclaim(int(self._ordered))  # where batches are folded, they have no buffer of their own


def uneven_workers(counts: Sequence[int], worker_seconds: float) -> Table:
    """Virtual elements per second of one feed whose workers are not all as fast, or die, over the sum of their speeds of 10 a second."""
    rows: Table = []
    cases = ((0, 1, math.inf, 0), (1, 10, math.inf, 0), (0.25, 2, math.inf, 0), (0, 1, 600.0, 0.5), (0, 1, 600.0, 10.0))
    for count, (slow, factor, lifetime_s, again_s) in itertools.product(counts, cases):
        num_slow = int(slow if slow >= 1 else slow * count)
        speeds = [10.0 / factor] * num_slow + [10.0] * (count - num_slow)
        seconds = max(worker_seconds / count, 12 * again_s)
        row: Row = {"workers": count, "slow": num_slow, "times slower": factor}
        row |= {"mean life, s": "-" if math.isinf(lifetime_s) else lifetime_s, "computed again after, s": again_s}
        for ordered in (True, False):
            feed = VirtualWorkers(speeds, ordered=ordered, lifetime_s=lifetime_s, again_s=again_s)
            feed.run(seconds / 4)  # until tasks have their size
            begin = feed.elements, feed.now_s
            feed.run(seconds)
            rate = (feed.elements - begin[0]) / (feed.now_s - begin[1])
            row["of the sum, ordered" if ordered else "of the sum, ordered=False"] = round(rate / sum(speeds), 2)
            row["real us a task"] = round(1e6 * feed.booked_s / feed.num_tasks)
        rows.append(row)
    return rows


def requests(cluster: Cluster) -> Table:
    """Count runs of neighbouring samples in a step of the first node: each is a request where a record is read by its range."""
    rows: Table = []
    base = numbers(cluster.samples)
    for name, order in (("none", base), ("shuffle", base.shuffle(seed=7))):
        read: list[int] = []
        for rank in range(cluster.ranks_per_node):
            with order.shard(cluster.ranks, rank).batch(cluster.batch).feed(num_workers=0) as feed:
                read += next(feed).tolist()
        runs = 1 + int((np.diff(np.sort(read)) > 1).sum())
        rows.append({"shuffle": name, "samples a step": len(read), "requests a host and second": runs / cluster.step_seconds})
    return rows


def indices(shapes: list[tuple[int, int]]) -> Table:
    """Bytes of the joined index of real columns, and what they make of 10**12 samples."""
    rows: Table = []
    for files, records in shapes:
        columns: dict[str, Any] = {"offsets": np.zeros(records, np.int64), "lengths": np.zeros(records, np.uint32)}
        begin = time.perf_counter()
        index = joined(
            [Index(kind="tfrecord", options={}, size=1, crc32c=0, columns=columns)] * files, [f"{number}" for number in range(files)]
        )
        seconds = time.perf_counter() - begin
        held = sum(column.nbytes for column in index.columns.values())
        per_file = sum(column.nbytes for column in (index.starts, index.sizes, index.crcs, index.samples, index.meta_of))
        rows.append(
            {
                "files": files,
                "samples": files * records,
                "bytes of records": held,
                "bytes of files": per_file,
                "join, ms": round(seconds * 1e3, 2),
                "GB at 10**12 samples (extrapolated)": round(held / (files * records) * 1e3),
            }
        )
    return rows


def report(cluster: Cluster) -> dict[str, Table]:
    """Make all tables."""
    small = cluster.samples < 10**9
    return {
        "Size of a saved state (measured)": states([10**4, 10**5] if small else [10**6, 10**9, 10**12]),
        "Plan and start (measured, ranks sampled)": starts(cluster),
        "Failure and move (work counted in states, seconds on the virtual clock)": moves(cluster, 7 if small else 150),
        "Packed rows on changing numbers of ranks (measured)": packed_runs(*((5, 16, 300) if small else (1000, 1024, 4_000))),
        "Ranks that pack their own documents (measured, ranks sampled)": own_runs(*((5, 16, 300) if small else (100, 1024, 4_000))),
        "Slowest node (simulated)": slow_nodes(cluster),
        "Uneven workers of one feed (real scheduler, virtual clock)": uneven_workers(
            [4] if small else [16, 256], 40.0 if small else 5000.0
        ),
        "Requests to the storage (order measured, seconds virtual)": requests(cluster),
        "Memory of an index (measured)": indices([(10, 100)] if small else [(1, 10**6), (1000, 1000), (10_000, 100)]),
    }


def markdown(table: Table) -> str:
    """Return a table as markdown."""
    heads = list(table[0])
    lines = [heads, ["---"] * len(heads), *([str(row[head]) for head in heads] for row in table)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Print the tables and write them as JSON."""
    parser = argparse.ArgumentParser(description="Simulate Penstock on a cluster")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path, default=Path("build/scale.json"))
    given = parser.parse_args()
    cluster = SMALL if given.small else Cluster()
    tables = report(cluster)
    for title, table in tables.items():
        print(f"## {title}\n\n{markdown(table)}\n")
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps({"cluster": cluster._asdict(), "tables": tables}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
