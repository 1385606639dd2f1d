"""Print the Markdown table of docs/benchmarks.md from the result files: `python benchmarks/report.py [--details]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rounds import RESULTS, TIMES

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: which contestants of which result file stand in it, and the target it is compared with."""

    text: str
    claim: str
    reference: str
    penstock: str
    dataloader: str
    inline: str
    metric: str = "ratio"


LINES = (
    Line("W1: JPEG to float32 CHW, images/s", "w1", "limit", "penstock", "dataloader", "inline"),
    Line("W1: the same with `crop_only=True`, images/s", "w1", "limit", "penstock_crop_only", "", ""),
    Line("W1: peak memory, MB (PSS)", "w1", "inline", "penstock", "dataloader", "inline", "peak_pss_mb"),
    Line("W1u: JPEG to uint8 HWC, images/s", "w1u", "limit", "penstock", "dataloader", "inline"),
    Line("W1u: the same with `crop_only=True`, images/s", "w1u", "limit", "penstock_crop_only", "", ""),
    Line("W2: tf.train.Example, shuffled, records/s", "w2", "limit", "penstock_2", "", ""),
    Line("W2: the same, beside tf.data's faster form", "w2", "tfdata_best", "penstock_2", "", "", "times_tfdata_best"),
    Line("W2: the same, beside DALI", "w2", "dali", "penstock_2", "", "", "times_dali"),
    Line("W2: the same, two threads beside one", "w2", "penstock_1", "penstock_2", "", "", "times_penstock_1"),
    Line("W2: tf.train.Example, in file order, records/s", "w2", "limit_ordered", "penstock_2_ordered", "", ""),
    Line(
        "W2: the same, beside tf.data's faster form",
        "w2", "tfdata_best_ordered", "penstock_2_ordered", "", "", "times_tfdata_best_ordered",
    ),
    Line("W2: the same, beside DALI", "w2", "dali_ordered", "penstock_2_ordered", "", "", "times_dali_ordered"),
    Line("W2: the same, two threads beside one", "w2", "penstock_1_ordered", "penstock_2_ordered", "", "", "times_penstock_1_ordered"),
    Line("W2: how much later a sleeping thread wakes, ms", "w2", "", "wake", "", "", "added_ms"),
    Line("W3: small images, the user's function, images/s", "w3", "inline", "penstock_function", "dataloader", "inline"),
    Line("W3: the same with a NumPy generator, images/s", "w3", "inline_rng", "penstock_rng", "", "inline_rng"),
    Line("W3: Penstock's own operators, images/s", "w3", "inline", "penstock_operators", "dataloader", "inline"),
    Line("W4: token windows, `from_arrays`, tokens/s", "w4", "limit", "penstock_view", "dataloader_no_workers", "inline"),
    Line("W4: token windows, `from_source`, tokens/s", "w4", "limit", "penstock_source", "dataloader_no_workers", "inline"),
    *(
        Line(f"The user's function, 2 processes, {what}, elements/s", f"functions_{name}", other, "processes", "dataloader", "loop", metric)
        for what, name, other, metric in (
            ("W1", "w1", "limit", "times_limit"), ("W3", "w3", "loop", "ratio"), ("W4", "w4", "loop", "ratio"),
            ("W5", "w5", "limit", "times_limit"), ("a tokeniser", "words", "dataloader", "times_dataloader"),
        )
    ),
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
    Line("Bytes of random 1 kB lines through an index, one thread, records/s", "records", "", "spans", "", "", "rate"),
    Line("Random 1 kB lines as elements of `read_text`, one thread, records/s", "records", "pread", "elements", "", ""),
    Line("Random 1 kB records as elements of `read_tfrecord`, one thread, records/s", "records", "", "tfrecord_elements", "", "", "rate"),
    Line("Building the index of TFRecord files, records/s", "records", "read_file", "index_tfrecord", "", ""),
    Line("Building the index of text files, records/s", "records", "read_file", "index_text", "", ""),
    *(
        Line(f"Random {what}, one worker, lines/s", "text", f"python_{kind}", f"penstock_{kind}_1", "", "")
        for what, kind in (
            ("lines of text", "text"), ("JSON values", "jsonl"), ("CSV records as text", "csv"), ("CSV records as numbers", "numbers"),
        )
    ),
    Line("Tar, samples of 100 kB, shuffled, samples/s", "tar", "webdataset_best", "penstock", "", ""),
    Line("Tar, samples of 1 kB, shuffled, samples/s", "tar", "webdataset_best_small", "penstock_small", "", ""),
    Line("Parquet in order, rows/s", "parquet", "pyarrow_best", "penstock_in_order", "", ""),
    Line("Parquet in windows of 8 row groups, rows/s", "parquet", "pyarrow_best", "penstock_in_windows", "", ""),
    *(
        Line(f"Remote, 100 kB records, {who}, {order}, MB/s", "remote", f"{moto}plain_{end}", f"{contestant}_{end}", "", "")
        for order, end in (("shuffled", "shuffled"), ("in order", "ordered"))
        for who, moto, contestant in (
            ("S3, blocks of known places", "", "penstock_s3"), ("web, blocks of known places", "", "penstock_http"),
            ("S3, a feed", "", "feed_s3"), ("web, a feed", "", "feed_http"), ("moto, a feed", "moto_", "moto_feed"),
        )
    ),
    *(
        Line(f"{what}, CPU time beside the fastest peer's", "images", "", name, "", "", "beside")
        for what, name in (
            ("`resize`, 500 x 375 to 224 x 224", "resize"), ("`resize`, cubic", "resize_cubic"),
            ("`resize(antialias=False)`", "resize_plain"), ("`random_resized_crop`", "random_resized_crop"),
            ("`random_flip`", "random_flip"),
        )
    ),
    *(
        Line(f"Detection to 640 x 640, beside {what}, images/s", "detection", name, "penstock", name, "", f"times_{name}")
        for what, name in (("the steps by hand", "dataloader_by_hand"), ("Albumentations", "albumentations_dataloader"))
    ),
    Line("Packing JPEG files, two workers, images/s", "packing", "limit", "penstock", "", ""),
    Line("Heavy work packed, beside it in a feed, images/s", "packing", "heavy_feed", "heavy_packed", "", "heavy_in_line"),
    Line("Pack, first fit into rows of 2,048, one core, tokens/s", "pack", "", "penstock_inline", "", "loop_first_fit", "rate"),
    Line("Pack, padding beside that of Grain's published rule", "pack", "", "penstock_inline", "", "", "waste_beside_emit_all"),
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
    Line("Opening 10^5 TFRecord shards, shards/s", "shards", "files", "start", "", "", "rate"),
    Line("The same, memory, bytes per shard beside its path", "shards", "", "start", "", "", "bytes_a_shard"),
    Line("`state_dict()`, filter, 99th percentile, ms", "state", "", "filter", "", "", "p99_ms"),
    Line("`finalize_step` of a JAX step, extra time, us", "finalize_step", "", "jax", "", "", "added_us"),
    Line("`finalize_step` of a PyTorch step, extra time, us", "finalize_step", "", "torch", "", "", "added_us"),
    Line("`finalize_step` of a TensorFlow step, extra time, us", "finalize_step", "", "tensorflow", "", "", "added_us"),
    Line("`finalize_step` without a framework, extra time, us", "finalize_step", "", "no_framework", "", "", "added_us"),
    Line("Async reads of 20 ms, 64 in flight, of 3,200/s", "async_map", "limit", "penstock", "", "", "of_allowed"),
    Line("Async reads of 20 ms, 64 in flight, beside bare asyncio, elements/s", "async_map", "limit", "penstock", "", ""),
    Line("The same with `executor=\"inline\"`, elements/s", "async_map", "limit", "penstock_inline", "", ""),
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
    Line("Tensors in place of NumPy arrays, us more a batch of two", "outputs", "", "torch", "", "", "added_us"),
    Line("The same behind a DataLoader, us more a batch", "outputs", "", "torch_behind_data_loader", "", "", "added_us"),
    Line("JAX arrays in place of NumPy arrays, us more a batch of two", "outputs", "", "jax", "", "", "added_us"),
    Line("`to_tf()` beside samples of `from_generator`, batches/s", "outputs", "tensorflow_from_generator", "tensorflow_to_tf", "", ""),
    *(
        Line(f"`from_dataloader`, {what}, elements/s", "loaders", f"torch_{name}_loader", f"torch_{name}_feed", f"torch_{name}_loader", "")
        for what, name in (
            ("classification", "classification"), ("two crops an image", "contrastive"), ("torch transforms", "torch_transforms"),
            ("segmentation", "segmentation"), ("video clips", "clips"), ("PNG", "png"), ("zlib", "compressed"),
            (".npy files", "npy_files"), ("spectrograms", "audio"), ("tokens", "tokens"),
        )
    ),
    *(
        Line(f"The gain that the advice says, {what}: so many times off", "advice", "", name, "", "", "off")
        for what, name in (
            ("pure Python", "python"), ("NumPy", "numpy"), ("waiting", "sleeping"), ("behind decoding", "decoding"),
            ("`collate_fn`", "collate_fn"), ("a map of batches", "after_batch"), ("behind a generator", "generator"),
            ("a source", "source"), ("large elements", "large"), ("tiny elements", "tiny"), ("a slow loop", "slow_loop"),
            ("a filter", "filter"),
        )
    ),
    Line("Elements that wait 4 ms, threads by default, of 16, elements/s", "waiting", "penstock_16", "penstock", "", ""),
    *(
        Line(f"16 simulated CPUs, steps of {step}: {what}, steps/s", "manycore", f"{work}_{step}_ceiling", f"{work}_{step}_feed", "", "")
        for step in ("50ms", "2ms")
        for work, what in (
            ("photos", "own operators"), ("users", "the user's function in 16 worker processes"), ("small", "small records"),
            ("waits", "waiting in threads"), ("trivial", "own operators and a trivial function of the user's"),
        )
    ),
    Line("W1 with events beside W1 without, images/s", "observing", "w1_silent", "w1_events", "", ""),
    Line("A no-op with events beside one without, elements/s", "observing", "noop_silent", "noop_events", "", ""),
    Line("W1 with TensorBoard curves, images/s", "observing", "w1_events", "w1_curves", "", ""),
    Line("W1 with a timeline, images/s", "observing", "w1_events", "w1_timeline", "", ""),
    Line("From the end of an epoch to the next first batch, ms", "epochs", "", "two_workers", "", "", "next_ms"),
    Line("The same with 2 worker processes, ms", "epochs", "dataloader", "two_processes", "", "", "next_ms"),
    Line("A batch of 19 MB from worker processes, ms of the loop's thread", "large_batches", "", "in_place_19mb", "", "", "hand_over_ms"),
    Line("A batch of 77 MB from worker processes, ms of the loop's thread", "large_batches", "", "in_place_77mb", "", "", "hand_over_ms"),
    Line("Batches of 77 MB copied by 2 worker processes, beside memcpy", "large_batches", "", "copied", "", "", "of_memcpy"),
    Line("A step of 30 ms of Python, fed with W1, steps/s", "heavy_step", "no_input", "processes", "dataloader", "dataloader_no_workers"),
    Line("2 million paths in 2 processes, memory of all, MB", "list_memory", "inline", "processes", "dataloader_fork", ""),
    Line("First batch of 2 worker processes, ms", "start", "dataloader_2_fork", "processes_2", "", "", "first_ms"),
    Line("First batch of 16 worker processes, ms", "start", "dataloader_16_spawn", "processes_16", "", "", "first_ms"),
    Line("Beyond one import of PyTorch, 16 processes that need it, ms", "start", "", "torch_processes_16", "", "", "beyond_import_ms"),
    Line("Memory that an idle worker shares with no other, MB", "start", "", "processes_16", "", "", "idle_mb"),
    Line("The same, with PyTorch, MB", "start", "", "torch_processes_16", "", "", "idle_mb"),
    Line("Shuffle of 10^9 elements beside 10^3, peak MB", "shuffle_memory", "penstock_thousand", "penstock_billion", "", ""),
)  # fmt: skip


def load(folder: Path) -> dict[str, Result]:
    """Return the result files of a folder by claim, without those that have no targets: they stand in pages of their own."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    return {claim: result for claim, result in results.items() if "targets" in result}


def table(results: Mapping[str, Result]) -> str:
    """Return the table: a line per target, missed ones included; all lines of the claims that have a result, and no others."""
    rows = [
        "| | measured against | Penstock | PyTorch DataLoader | baseline without workers | target | | rounds |",
        "|---|---:|---:|---:|---:|---:|---|---:|",
    ]
    rows += [_row(line, results[line.claim]) for line in LINES if line.claim in results]
    return "\n".join(rows)


def _row(line: Line, result: Result) -> str:
    cells = [_cell(result, name, line) for name in (line.reference, line.penstock, line.dataloader, line.inline)]
    is_measured = all(cell != "-" for cell in cells[:2])
    reference = f"{cells[0]} {_called(line.reference, result)}" if line.reference else ""
    target = next((one for one in result["targets"] if (one["contestant"], one["metric"]) == (line.penstock, line.metric)), None)
    bound = _bound(target) if target else ""
    verdict = {None: "not measured", True: "met", False: "**missed**"}[target["met"]] if target else ""
    if not is_measured:
        verdict = "not measured"
    rounds = _num_rounds(result, line.penstock)
    return f"| {line.text} | {reference} | **{cells[1]}** | {cells[2]} | {cells[3]} | {bound} | {verdict} | {rounds or '-'} |"


def others(results: Mapping[str, Result]) -> str:
    """Name the missed targets that have no line in the table; an empty string where there are none."""
    lines = {(line.claim, line.penstock, line.metric) for line in LINES}
    missed = [
        f"`{claim}` {one['contestant']}, {one['metric']} {number(one['got'])} ({_bound(one)})"
        for claim, result in results.items()
        for one in result["targets"]
        if one["met"] is False and (claim, one["contestant"], one["metric"]) not in lines
    ]
    return f"Missed as well: {'; '.join(missed)}.\n\n" if missed else ""


def _bound(target: Mapping[str, Any]) -> str:
    return f"{'≥' if target['sense'] == '>=' else '≤'} {number(target['bound'])}"


def _num_rounds(result: Result, name: str) -> int:
    """Return in how many rounds a contestant was timed."""
    return sum(run["contestant"] == name and result["metric"] in run for run in result["rounds"])


def _called(name: str, result: Result) -> str:
    """Return a contestant's name; for the best of several that of the one it is."""
    return str(result["summary"].get(name, {}).get("is", name)).replace("_", " ")


def _cell(result: Result, name: str, line: Line) -> str:
    """Show a contestant's number, and in brackets its ratio to the line's reference where the target is a ratio."""
    summary = result["summary"]
    is_ratio = line.metric == "ratio" or line.metric.startswith(TIMES)
    key = result["metric"] if is_ratio else line.metric
    if key not in summary.get(name, {}):
        return "" if not name else summary.get(name, {}).get("skipped", "-")
    value = summary[name][key]
    if not is_ratio or name == line.reference or key not in summary.get(line.reference, {}):
        return number(value)
    of_rounds = "ratio" if summary[name].get("reference") == line.reference else f"{TIMES}{line.reference}"
    return f"{number(value)} ({summary[name].get(of_rounds, value / summary[line.reference][key]):.2f})"


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
    once = [claim for claim, result in results.items() if len({run["round"] for run in result["rounds"] if result["metric"] in run}) == 1]
    if once:
        lines.append(f"One round only, so no median: {', '.join(f'`{claim}`' for claim in once)}.")
    return "\n".join(dict.fromkeys(lines))


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description="Print the benchmark table as Markdown.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--details", action="store_true", help="a table of every contestant as well")
    args = parser.parse_args()
    results = load(args.results)
    print(table(results), others(results) + conditions(results), sep="\n\n")
    if args.details:
        print("", *(details(result) for result in results.values()), sep="\n\n")


if __name__ == "__main__":
    main()
