"""Timelines as the tests read them, and what holds for each of them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def loaded(path: Path) -> list[Record]:
    """Read strict JSON: without NaN, without a name twice."""

    def refuse(word: str) -> Any:
        raise ValueError(word)

    def once(pairs: list[tuple[str, Any]]) -> Record:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    records: list[Record] = json.loads(path.read_text(), parse_constant=refuse, object_pairs_hook=once)
    return records


def spans_of(records: list[Record]) -> dict[int, list[Record]]:
    """Return the spans of each row."""
    out: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        if record["ph"] == "X":
            out[record["tid"]].append(record)
    return out


def rows_of(records: list[Record]) -> dict[str, list[Record]]:
    """Return what stands in each row, by the name of the row."""
    names = {record["tid"]: record["args"]["name"] for record in records if record["name"] == "thread_name"}
    out: dict[str, list[Record]] = {name: [] for name in names.values()}
    for record in records:
        if record["ph"] in "Xi":
            out[names[record["tid"]]].append(record)
    return out


def marks_of(records: list[Record]) -> list[Record]:
    """Return the marks: retries, losses, notices."""
    return [record for record in records if record["ph"] == "i"]


def check_names(records: list[Record], pid: int) -> None:
    """Every row and the process have a name, and no other process is named."""
    named = {record["tid"] for record in records if record["name"] == "thread_name"}
    assert {record["tid"] for record in records if record["ph"] in "Xisf"} <= named
    assert [record["args"]["name"] for record in records if record["name"] == "process_name"] == [f"penstock, process {pid}"]
    assert {record["pid"] for record in records} == {pid}


def check_nesting(records: list[Record]) -> None:
    """Spans of a row stand beside or inside each other."""
    for spans in spans_of(records).values():
        ends: list[float] = []
        for span in sorted(spans, key=lambda one: (one["ts"], -one["dur"])):
            while ends and ends[-1] <= span["ts"] + 0.0005:
                ends.pop()
            assert not ends or span["ts"] + span["dur"] <= ends[-1] + 0.001, (span, ends)
            ends.append(span["ts"] + span["dur"])


def check_arrows(records: list[Record]) -> dict[int, tuple[Record, Record]]:
    """No arrow leads back in time, and each end lies in a span; return (begin, end) of each."""
    begins = {record["id"]: record for record in records if record["ph"] == "s"}
    ends = {record["id"]: record for record in records if record["ph"] == "f"}
    assert begins.keys() == ends.keys()
    assert all(begins[number]["ts"] <= ends[number]["ts"] for number in begins)
    spans = spans_of(records)
    for record in (*begins.values(), *ends.values()):
        assert any(span["ts"] - 0.001 <= record["ts"] <= span["ts"] + span["dur"] for span in spans[record["tid"]])
    return {number: (begins[number], ends[number]) for number in begins}
