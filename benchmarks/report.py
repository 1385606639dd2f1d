"""Print the Markdown table of the project's README from the result files: `python benchmarks/report.py [--details]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rounds import RESULTS

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: which contestants of which result file stand in it, and the promise it is held against."""

    text: str
    claim: str
    reference: str
    penstock: str
    dataloader: str
    inline: str
    metric: str = "ratio"


LINES = (
    Line("W1: JPEG to float32 CHW, images/s", "w1", "limit", "penstock", "dataloader", "inline"),
    Line("W1: peak memory, MB (PSS)", "w1", "inline", "penstock", "dataloader", "inline", "peak_pss_mb"),
    Line("W1u: JPEG to uint8 HWC, images/s", "w1u", "limit", "penstock", "dataloader", "inline"),
    Line("W2: tf.train.Example, shuffled, records/s", "w2", "limit", "penstock_2", "", ""),
    Line("W2: tf.train.Example, in file order, records/s", "w2", "limit", "penstock_2_ordered", "", ""),
    Line("W3: small images, the user's function, images/s", "w3", "inline", "penstock_function", "dataloader", "inline"),
    Line("W3: the same with a NumPy generator, images/s", "w3", "inline_rng", "penstock_rng", "", "inline_rng"),
    Line("W3: Penstock's own operators, images/s", "w3", "inline", "penstock_operators", "dataloader", "inline"),
    Line("W4: token windows, `from_arrays`, tokens/s", "w4", "limit", "penstock_view", "dataloader_no_workers", "inline"),
    Line("W4: token windows, `from_source`, tokens/s", "w4", "limit", "penstock_source", "dataloader_no_workers", "inline"),
    Line("W6: uneven elements in order, of workers / mean time", "w6", "bare_threads", "penstock", "dataloader", "", "of_allowed"),
    Line(
        "W6: the same with `ordered=False`, of workers / mean time",
        "w6", "bare_threads", "penstock_unordered", "dataloader_out_of_order", "", "of_allowed",
    ),
    Line("W7: device busy at 50 ms a step", "w7", "", "penstock_50ms", "dataloader_50ms", "inline_50ms", "busy"),
    Line("W7: device busy at 20 ms a step", "w7", "", "penstock_20ms", "dataloader_20ms", "inline_20ms", "busy"),
    Line("W7: device too fast (8 ms a step), images/s", "w7", "limit", "penstock_8ms", "dataloader_8ms", "inline_8ms"),
    Line("W8: process start to first batch, s", "w8", "inline", "penstock", "dataloader", "inline"),
    Line("Import beyond NumPy's, ms", "import_time", "", "penstock", "dataloader", "", "beyond_numpy_ms"),
    Line(
        "Gather, 1 kB records in shuffled order, records/s",
        "gather", "take_1kB_shuffled", "penstock_1kB_shuffled", "dataloader_1kB_shuffled", "",
    ),
    Line(
        "Gather, 12 kB records in shuffled order, records/s",
        "gather", "take_12kB_shuffled", "penstock_12kB_shuffled", "dataloader_12kB_shuffled", "",
    ),
    Line("Gather, 1 kB records in file order, records/s", "gather", "take_1kB_ordered", "penstock_1kB_ordered", "", ""),
    Line("Gather, 12 kB records in file order, records/s", "gather", "take_12kB_ordered", "penstock_12kB_ordered", "", ""),
    Line("Random 1 kB records through an index, one thread, records/s", "records", "pread", "spans", "", ""),
    Line("Building the index of TFRecord files, records/s", "records", "read_file", "index_tfrecord", "", ""),
    Line("Pack, first fit into rows of 2,048, one core, tokens/s", "pack", "loop_first_fit", "penstock_inline", "", ""),
    Line(
        "Engine, threads, batches of 256, us/element",
        "engine_cost", "", "threads_batches_of_256", "dataloader_batches_of_256", "", "cost_us",
    ),
    Line("Engine, threads, single elements, us/element", "engine_cost", "", "threads_elements", "", "", "cost_us"),
    Line(
        "Engine, inline, batches of 256, us/element",
        "engine_cost", "", "inline_batches_of_256", "dataloader_batches_of_256", "", "cost_us",
    ),
    Line("Engine, inline, single elements, us/element", "engine_cost", "", "inline_elements", "", "", "cost_us"),
    Line("Engine, threads, batches of 4, us/batch", "engine_cost", "", "threads_batches_of_4_per_batch", "", "", "cost_us"),
    Line("Engine, inline, batches of 4, us/batch", "engine_cost", "", "inline_batches_of_4_per_batch", "", "", "cost_us"),
    Line(
        "Mix of 35 sources, threads, batches of 256, elements/s",
        "mix", "one_threads_batches_of_256", "mix_threads_batches_of_256", "", "",
    ),
    Line("Mix of 35 sources, threads, single elements, elements/s", "mix", "one_threads_elements", "mix_threads_elements", "", ""),
    Line("`Skip()` while nothing fails, no-op map, batches of 256, extra time", "policies", "", "skip_noop_threads", "", "", "extra"),
    Line("`Skip()` while nothing fails, W1, extra time", "policies", "", "skip_w1_threads", "", "", "extra"),
    Line("`state_dict()`, shuffle, 99th percentile, ms", "state", "", "shuffle", "", "", "p99_ms"),
    Line("`state_dict()`, filter, 99th percentile, ms", "state", "", "filter", "", "", "p99_ms"),
    Line("Async reads of 20 ms, 64 in flight, elements/s", "async_map", "limit", "penstock", "", ""),
    Line("Jobs of 1 ms in 2 processes, jobs/s", "jobs", "pool_small", "penstock_small", "", ""),
    Line("Jobs of 100 ms in 2 processes, jobs/s", "jobs", "pool_large", "penstock_large", "", ""),
    Line("Jobs of 2 ms, then of 40 ms, in 2 processes, jobs/s", "jobs", "pool_uneven", "penstock_uneven", "", ""),
    Line("Jobs of 1 us in 2 processes, jobs/s", "jobs", "pool_tiny", "penstock_tiny", "", ""),
    Line("19 MB batches from 2 processes, batches/s", "enqueuer", "mp_queue", "penstock", "dataloader_queue", ""),
    Line("Two-layer net in NumPy, fed through a queue, steps/s", "classic", "numpy_in_line", "numpy_queue", "", ""),
    Line("Two-layer net in PyTorch, fed through a queue, steps/s", "classic", "torch_in_line", "torch_queue", "", ""),
    Line("FIFOQueue of 16 beside queue.Queue, items/s", "queues", "stdlib_queue", "fifo_queue", "", ""),
    Line("The same, there and back between two threads, us", "queues", "", "fifo_queue", "", "", "ping_pong_us"),
    Line("1,000 waiters at the end of a FIFOQueue, ms", "queues", "", "fifo_queue", "", "", "close_ms"),
    Line("Shuffle of 10^9 elements beside 10^3, peak MB", "shuffle_memory", "penstock_thousand", "penstock_billion", "", ""),
)  # fmt: skip


def load(folder: Path) -> dict[str, Result]:
    """Return the result files of a folder by claim."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def table(results: Mapping[str, Result]) -> str:
    """Return the table: one line per promise, losing lines included; only of claims that have a result."""
    rows = [
        "| | measured against | Penstock | PyTorch DataLoader | in-line loop | promise | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    rows += [_row(line, results[line.claim]) for line in LINES if line.claim in results]
    return "\n".join(rows)


def _row(line: Line, result: Result) -> str:
    cells = [_cell(result, name, line) for name in (line.reference, line.penstock, line.dataloader, line.inline)]
    reference = f"{cells[0]} {line.reference.replace('_', ' ')}" if line.reference else ""
    target = next((one for one in result["targets"] if (one["contestant"], one["metric"]) == (line.penstock, line.metric)), None)
    promise = f"{'≥' if target['sense'] == '>=' else '≤'} {target['bound']:g}" if target else ""
    verdict = {None: "", True: "kept", False: "**not kept**"}[target["met"] if target else None]
    return f"| {line.text} | {reference} | **{cells[1]}** | {cells[2]} | {cells[3]} | {promise} | {verdict} |"


def _cell(result: Result, name: str, line: Line) -> str:
    """Show a contestant's number, and in brackets its ratio to the line's reference where the promise is a ratio."""
    summary = result["summary"]
    key = result["metric"] if line.metric == "ratio" else line.metric
    if key not in summary.get(name, {}):
        return "" if not name else summary.get(name, {}).get("skipped", "-")
    value = summary[name][key]
    if line.metric != "ratio" or name == line.reference:
        return number(value)
    same = summary[name].get("reference") == line.reference
    return f"{number(value)} ({summary[name]['ratio'] if same else value / summary[line.reference][key]:.2f})"


def number(value: float) -> str:
    """Write a number with about three digits and k or M where it is large."""
    if value >= 1e6:
        return f"{value / 1e6:,.3g} M" if value < 1e9 else f"{value / 1e6:,.0f} M"
    if value >= 1e4:
        return f"{value / 1e3:,.3g} k"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.4f}".rstrip("0").rstrip(".") if value >= 0.99 and value <= 1 else f"{value:.3g}"


def details(result: Result) -> str:
    """Return one result file as a table of its contestants."""
    rows = [f"### {result['title']}", "", f"| | {result['unit']} | lowest .. highest | ratio | of |", "|---|---:|---:|---:|---|"]
    for name, row in result["summary"].items():
        if result["metric"] not in row:
            rows.append(f"| {name} | {row.get('skipped') or 'failed'} | | | |")
            continue
        ratio = f"{row['ratio']:.3f} | {row['reference']}" if "ratio" in row else " | "
        rows.append(f"| {name} | {number(row[result['metric']])} | {number(row['lowest'])} .. {number(row['highest'])} | {ratio} |")
    return "\n".join(rows)


def conditions(results: Mapping[str, Result]) -> str:
    """Say on which machine, with which versions and how undisturbed the figures were measured."""
    lines = []
    for claim, result in results.items():
        facts = result["machine"]
        packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items() if version)
        lines.append(f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, Python {facts['python']}, {packages}")
        if result["size"] != "full" or result["noisy"]:
            why = "a trial of small size" if result["size"] != "full" else f"others used {result['other_cores']:.2f} cores meanwhile"
            lines.append(f"`{claim}` is no claim: {why}.")
    return "\n".join(dict.fromkeys(lines))


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description="Print the benchmark table as Markdown.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--details", action="store_true", help="a table of every contestant as well")
    args = parser.parse_args()
    results = load(args.results)
    print(table(results), conditions(results), sep="\n\n")
    if args.details:
        print("", *(details(result) for result in results.values()), sep="\n\n")


if __name__ == "__main__":
    main()
