"""Run contestants side by side: each in a fresh process, in alternating rounds, every other round reversed.

A script hands `main` its claim and its contestants. Without `--contestant` it is the referee: it starts itself again once per contestant
and round, so that imports, thread pools and memory of one never help or hurt another, collects one JSON line from each, and writes
medians and per-round ratios to benchmarks/results/. With `--contestant NAME` it runs that one and prints the line.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import machine
from data import DEFAULT_ROOT, SIZES, Size

RESULTS = Path(__file__).resolve().parent / "results"
_PREFIX = "RESULT "
_NOISY_CORES = 0.10
_ORPHANS_S = 5.0
TIMES = "times_"
"""Begins the name of a metric that is the ratio to another contestant than the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a contestant is told: the size of its data and the folder they lie in."""

    size: Size
    root: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A bound on one metric of one contestant: `sense` is ">=" or "<=". The metric "times_NAME" is its ratio to the contestant NAME."""

    contestant: str
    metric: str
    sense: str
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one script shows.

    Attributes:
        name: name of the result file.
        title: one line for people.
        unit: unit of the metric "rate" (or of `metric`).
        metric: the metric that ratios are made of.
        reference: the contestant that others are compared with: metric "ratio" is theirs over its, in the same round.
        references: contestants that are compared with another one.
        best: a name for the one of several contestants that has the highest median: a peer that can be used in several ways is
            compared in its best.
        targets: the figures that Penstock is to reach.
        memory_round: whether to run one more round, not timed, that samples the memory of each contestant's processes.
        also: further metrics to print.
        timeout_s: how long one contestant may take in one round.
        prepare: makes the data; runs once, in the referee.
    """

    name: str
    title: str
    unit: str
    prepare: Callable[[Size, Path], None]
    metric: str = "rate"
    reference: str = "limit"
    references: Mapping[str, str] = field(default_factory=dict)
    best: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    memory_round: bool = False
    also: tuple[str, ...] = ()
    timeout_s: float = 300.0


Contestants = Mapping[str, Callable[[Run], dict[str, Any]]]


class Missing(Exception):
    """A contestant cannot take part because a package is not installed; its text names it."""


def torch() -> Any:
    """Import PyTorch; raise `Missing` where it is not installed."""
    try:
        import torch as module
    except ImportError:
        raise Missing("torch is not installed") from None
    return module


def main(claim: Claim, contestants: Contestants, flags: Sequence[str] = ()) -> None:
    """Be the referee or one contestant, as the command line says; exit with 1 when a contestant failed.

    Args:
        claim: what is measured.
        contestants: name -> function that measures itself and returns numbers; in the order of the first round.
        flags: flags of the script itself that its contestants need again.
    """
    args = _arguments(claim, contestants)
    size = SIZES["quick" if args.quick else args.size]
    if args.contestant:
        _compete(contestants[args.contestant], Run(size=size, root=args.data))
        return
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles what it imports, on the clock of some claims
    machine.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs the finally clauses, which end the contestant's session
    claim.prepare(size, args.data)
    names = args.only or list(contestants)
    command = [sys.executable, sys.argv[0], "--size", size.name, "--data", str(args.data), *flags]
    runs = _all_rounds(claim, names, command, args.rounds or size.rounds)
    report = _report(claim, size, runs)
    _print(claim, report)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"{claim.name}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {path}")
    if any("failed" in run for run in runs):
        sys.exit(1)


def _arguments(claim: Claim, contestants: Contestants) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=claim.title)
    parser.add_argument("--quick", action="store_true", help="the same as --size quick: for trying, not for claims")
    parser.add_argument("--size", choices=list(SIZES), default="full")
    parser.add_argument("--rounds", type=int, default=0, help="rounds instead of the size's own number")
    parser.add_argument("--only", nargs="+", choices=list(contestants), help="run these contestants only")
    parser.add_argument("--data", type=Path, default=DEFAULT_ROOT, help="folder of the generated data")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    parser.add_argument("--contestant", choices=list(contestants), help=argparse.SUPPRESS)
    return parser.parse_args()


def _compete(function: Callable[[Run], dict[str, Any]], run: Run) -> None:
    machine.die_with_parent()
    try:
        result = function(run)
    except Missing as reason:
        result = {"skipped": str(reason)}
    else:
        result["peak_rss_mb"] = machine.peak_rss_mb()
    print(_PREFIX + json.dumps(result), flush=True)


def _all_rounds(claim: Claim, names: list[str], command: list[str], num_rounds: int) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = []
    out = set()  # who failed or was skipped once does not start again
    for turn in range(num_rounds + claim.memory_round):
        memory = turn == num_rounds
        for name in names if turn % 2 == 0 else reversed(names):
            if name in out:
                continue
            result = _start(claim, [*command, "--contestant", name], memory)
            runs.append({"contestant": name, "round": turn, "memory": memory, **result})
            if "failed" in result or "skipped" in result:
                out.add(name)
            keys = (claim.metric, *claim.also, "peak_pss_mb", "other_cores", "failed", "skipped")
            shown = {key: result[key] for key in keys if key in result}
            print(f"  round {turn} {name}: {shown}", flush=True)
    return runs


def _start(claim: Claim, command: list[str], memory: bool) -> dict[str, Any]:
    """Run one contestant to its end; sample its memory ten times a second when asked to (which slows it down a little)."""
    everybody, own, start, children = machine.busy_s(), _children_cpu_s(), time.monotonic(), machine.children()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        peak_mb, deadline = 0.0, time.monotonic() + claim.timeout_s
        try:
            while process.poll() is None and time.monotonic() < deadline:
                if memory:
                    peak_mb = max(peak_mb, machine.session_pss_mb(process.pid))
                try:
                    process.wait(0.1 if memory else deadline - time.monotonic())
                except subprocess.TimeoutExpired:
                    continue
        finally:
            _end_session(process, children)
        output.seek(0)
        text = output.read().decode(errors="replace")
    lines = text.splitlines()
    found = [json.loads(line[len(_PREFIX) :]) for line in lines if line.startswith(_PREFIX)]
    if not found:
        code = f"stopped after {claim.timeout_s} s" if time.monotonic() >= deadline else f"exit status {process.returncode}"
        return {"failed": f"{code}: {lines[-1] if lines else 'no output'}", "output": lines[-40:]}
    if "skipped" in found[-1]:
        return dict(found[-1])
    other_s = machine.busy_s() - everybody - (_children_cpu_s() - own)
    # Of the whole life of the process, where the contestant did not look at its timed part itself.
    result: dict[str, Any] = {"other_cores": max(0.0, other_s / (time.monotonic() - start)), **found[-1]}
    return {"peak_pss_mb": peak_mb, **_untimed(result)} if memory else result


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _untimed(result: dict[str, Any]) -> dict[str, Any]:
    return {key: result[key] for key in ("peak_rss_mb", "batch") if key in result}


def _end_session(process: subprocess.Popen[bytes], own: set[str]) -> None:
    """Kill what is left of the session that this referee started, so that a failed contestant does not run beside the next one.

    What it left behind, such as a fork server, is this process's child by then: waited for, its CPU time counts as the contestant's.

    `own` are the children that the referee had before.
    """
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # the usual case: everything has ended
    process.wait()
    deadline = time.monotonic() + _ORPHANS_S
    try:
        while machine.children() - own and time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
    except ChildProcessError:
        pass  # there is none left


def _report(claim: Claim, size: Size, runs: list[dict[str, Any]]) -> dict[str, Any]:
    summary = summarise(runs, claim)
    noise = statistics.median([run["other_cores"] for run in runs if "other_cores" in run] or [0.0])
    return {
        "claim": claim.name,
        "title": claim.title,
        "unit": claim.unit,
        "metric": claim.metric,
        "reference": claim.reference,
        "size": size.name,
        "noisy": noise > _NOISY_CORES,
        "other_cores": round(noise, 3),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.facts(),
        "summary": summary,
        "targets": judge(claim.targets, summary),
        "rounds": runs,
    }


def summarise(runs: Sequence[Mapping[str, Any]], claim: Claim) -> dict[str, dict[str, Any]]:
    """Return per contestant the median of every number, the extremes of the metric, and its ratios to others, round by round."""
    runs = [*runs, *_best_runs(runs, claim)]
    return {name: _row(name, runs, claim) for name in dict.fromkeys(run["contestant"] for run in runs)}


def _best_runs(runs: Sequence[Mapping[str, Any]], claim: Claim) -> list[dict[str, Any]]:
    """Return the runs of the best of several contestants once more, under their common name."""
    found = []
    for name, members in claim.best.items():
        medians = {
            member: statistics.median(values)
            for member in members
            if (values := [run[claim.metric] for run in runs if run["contestant"] == member and claim.metric in run])
        }
        if medians:
            best = max(medians, key=lambda member: medians[member])
            found += [{**run, "contestant": name, "is": best} for run in runs if run["contestant"] == best]
    return found


def _row(name: str, runs: Sequence[Mapping[str, Any]], claim: Claim) -> dict[str, Any]:
    own = [run for run in runs if run["contestant"] == name]
    row: dict[str, Any] = {}
    for key in dict.fromkeys(key for run in own for key in run):
        values = [run[key] for run in own if key in run]
        if key in ("failed", "skipped", "batch", "is"):
            row[key] = values[-1]
        elif key not in ("round", "memory", "output", "contestant"):
            row[key] = statistics.median(values)
    timed = [run for run in own if claim.metric in run]
    if timed:
        row["lowest"] = min(run[claim.metric] for run in timed)
        row["highest"] = max(run[claim.metric] for run in timed)
    reference = claim.references.get(name, claim.reference)
    ratios = _ratios(timed, runs, reference, claim)
    if ratios and name != reference:
        row.update(reference=reference, ratio=statistics.median(ratios), ratio_lowest=min(ratios), ratio_highest=max(ratios))
    for target in claim.targets:
        other = target.metric.removeprefix(TIMES)
        if target.contestant == name and other != target.metric and (times := _ratios(timed, runs, other, claim)):
            row[target.metric] = statistics.median(times)
    return row


def _ratios(timed: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]], other: str, claim: Claim) -> list[float]:
    """Divide the metric of a contestant's runs by another's of the same round."""
    base = {run["round"]: run[claim.metric] for run in runs if run["contestant"] == other and claim.metric in run}
    return [run[claim.metric] / base[run["round"]] for run in timed if run["round"] in base]


def judge(targets: Sequence[Target], summary: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one record per target: what was got (None where it was not measured) and whether it was met."""
    records = []
    for target in targets:
        got = summary.get(target.contestant, {}).get(target.metric)
        met = None if got is None else (got >= target.bound if target.sense == ">=" else got <= target.bound)
        records.append(
            {"contestant": target.contestant, "metric": target.metric, "sense": target.sense, "bound": target.bound, "got": got, "met": met}
        )
    return records


def odd_batches(summary: Mapping[str, Mapping[str, Any]], claim: Claim) -> list[str]:
    """Name the contestants whose batches differ in shape or dtype from their reference's."""
    odd = []
    for name, row in summary.items():
        reference = claim.references.get(name, claim.reference)
        other = summary.get(reference, {}).get("batch")
        if other and "batch" in row and row["batch"] != other:
            odd.append(f"{name} delivers {row['batch']}, {reference} {other}")
    return odd


def _print(claim: Claim, report: Mapping[str, Any]) -> None:
    print(f"\n{claim.title} ({report['size']}, {report['machine']['cpu']}, {report['machine']['cores']} cores)")
    for name, row in report["summary"].items():
        also = "".join(f"  {key} {row[key]:.4g}" for key in claim.also if key in row)
        if claim.metric not in row:
            print(f"  {name:24} {row.get('skipped') or row.get('failed') or also.strip()}")
            continue
        ratio = f"  {row['ratio']:.3f} of {row['reference']}" if "ratio" in row else ""
        ratio += f"  (is {row['is']})" if "is" in row else ""
        memory = f"  {row['peak_pss_mb']:.0f} MB" if "peak_pss_mb" in row else ""
        print(f"  {name:24} {row[claim.metric]:14,.4g} {claim.unit}  [{row['lowest']:,.4g} .. {row['highest']:,.4g}]{ratio}{also}{memory}")
    for target in report["targets"]:
        verdict = {None: "not measured", True: "met", False: "MISSED"}[target["met"]]
        got = "-" if target["got"] is None else f"{target['got']:.4g}"
        print(f"  target {target['contestant']} {target['metric']} {target['sense']} {target['bound']:g}: got {got}: {verdict}")
    for odd in odd_batches(report["summary"], claim):
        print(f"  ODD: {odd}")
    if report["noisy"]:
        print(f"  NOISY: other processes used {report['other_cores']:.2f} cores meanwhile: trust no figure of this run")
