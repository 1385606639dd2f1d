"""The table of docs/benchmarks.md: no target is left out, no verdict is given for what was not measured."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks measure with /proc")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("report"), importlib.import_module("rounds")
    for name in ("report", "rounds", "data", "machine"):
        sys.modules.pop(name, None)


W2_TARGETS = (
    ("penstock_2", "ratio", ">=", 0.25),
    ("penstock_2", "times_tfdata_best", ">=", 10.0),
    ("penstock_2", "times_dali", ">=", 10.0),
    ("wake", "added_ms", "<=", 0.3),
    ("penstock_3", "ratio", ">=", 0.25),
)


def w2_of(rounds: ModuleType, rates: dict[str, list[float]], **more: float) -> dict[str, Any]:
    """Return a result of W2 with these rates round by round."""
    claim = rounds.Claim(
        name="w2",
        title="W2",
        unit="records/s",
        prepare=lambda size, root: None,
        best={"tfdata_best": ("tfdata_interleave", "tfdata_files")},
        targets=tuple(rounds.Target(contestant=name, metric=metric, sense=sense, bound=bound) for name, metric, sense, bound in W2_TARGETS),
    )
    runs = [
        {"contestant": name, "round": turn, "rate": rate, **(more if name == "wake" else {})}
        for name, values in rates.items()
        for turn, rate in enumerate(values)
    ]
    summary = rounds.summarise(runs, claim)
    facts = {"cpu": "a CPU", "cores": 2, "memory_gib": 4, "python": "3.11", "packages": {}}
    return {
        "metric": "rate",
        "size": "full",
        "noisy": False,
        "machine": facts,
        "rounds": runs,
        "summary": summary,
        "targets": rounds.judge(claim.targets, summary),
    }


def test_a_line_shows_the_ratio_to_its_own_reference_the_target_the_verdict_and_the_rounds(modules: tuple[ModuleType, ModuleType]) -> None:
    report, rounds = modules
    rates = {"limit": [1000.0, 500.0], "tfdata_interleave": [10.0, 5.0], "tfdata_files": [20.0, 10.0], "penstock_2": [300.0, 150.0]}
    text = report.table({"w2": w2_of(rounds, {**rates, "wake": [1.0, 1.0]}, added_ms=0.5)})
    shuffled, beside, _ = text.splitlines()[2:5]
    assert [cell.strip() for cell in shuffled.split("|")[2:9]] == ["750 limit", "**225 (0.30)**", "", "", "≥ 0.25", "met", "2"]
    assert [cell.strip() for cell in beside.split("|")[2:9]] == ["15 tfdata files", "**225 (15.00)**", "", "", "≥ 10", "met", "2"]
    woken = next(line for line in text.splitlines() if "wakes" in line)
    assert [cell.strip() for cell in woken.split("|")[2:9]] == ["", "**0.5**", "", "", "≤ 0.3", "**missed**", "2"]


def test_what_was_not_measured_stays_in_the_table_without_a_verdict(modules: tuple[ModuleType, ModuleType]) -> None:
    report, rounds = modules
    text = report.table({"w2": w2_of(rounds, {"limit": [10.0], "penstock_2": [5.0]})})
    assert len(text.splitlines()) == 2 + sum(line.claim == "w2" for line in report.LINES)
    assert {line.split("|")[7].strip() for line in text.splitlines()[3:]} == {"not measured"}


def test_a_missed_target_without_a_line_is_named_below_the_table(modules: tuple[ModuleType, ModuleType]) -> None:
    report, rounds = modules
    missed = w2_of(rounds, {"limit": [10.0], "penstock_2": [1.0], "penstock_3": [2.0]})
    assert report.others({"w2": missed}) == "Missed as well: `w2` penstock_3, ratio 0.2 (≥ 0.25).\n\n"
    assert report.others({"w2": w2_of(rounds, {"limit": [10.0], "penstock_3": [4.0]})}) == ""


def test_results_of_one_round_are_named(modules: tuple[ModuleType, ModuleType]) -> None:
    report, rounds = modules
    once, twice = (w2_of(rounds, {"limit": [10.0] * count, "penstock_2": [5.0] * count}) for count in (1, 2))
    assert report.conditions({"w2": once, "w3": twice}).splitlines()[-1] == "One round only, so no median: `w2`."


def test_every_line_has_a_script_and_no_line_stands_twice(modules: tuple[ModuleType, ModuleType]) -> None:
    report, _ = modules
    scripts = (
        {path.stem for path in BENCHMARKS.glob("*.py")} | {"w1u"} | {f"functions_{name}" for name in ("w1", "w3", "w4", "w5", "words")}
    )
    assert {line.claim for line in report.LINES} <= scripts
    keys = [(line.claim, line.penstock, line.reference, line.metric) for line in report.LINES]
    assert len(set(keys)) == len(keys)


def test_the_table_of_the_docs_is_that_of_the_result_files(modules: tuple[ModuleType, ModuleType]) -> None:
    report, _ = modules
    page = (BENCHMARKS.parent / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    between = page.partition("<!-- benchmarks:begin -->\n")[2].partition("<!-- benchmarks:end -->")[0]
    results = report.load(report.RESULTS)
    assert between == f"{report.table(results)}\n\n{report.others(results)}{report.conditions(results)}\n"


def test_every_script_with_a_missed_target_has_a_row_with_its_cause(modules: tuple[ModuleType, ModuleType]) -> None:
    report, _ = modules
    page = (BENCHMARKS.parent / "docs" / "decisions" / "0007-figures-not-reached.md").read_text(encoding="utf-8")
    explained = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    missed = {claim for claim, result in report.load(report.RESULTS).items() if any(one["met"] is False for one in result["targets"])}
    assert missed
    assert missed <= explained
