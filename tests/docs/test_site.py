"""The first pages of the site: the figures are measured, the names are there, llms.txt lists every page, and search finds names."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import penstock as ps

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX, AGENTS = ((DOCS / name).read_text(encoding="utf-8") for name in ("index.md", "for-agents.md"))
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

# Of each row: the result, the two contestants, the figure, and what one of the page's unit is.
FIGURES = {
    "w1.py": ("w1", "penstock", "dataloader", "rate", 1, 1),
    "w2.py": ("w2", "penstock_2", "tfdata_best", "rate", 1e6, 1e3),
    "functions.py": ("functions_w3", "processes", "dataloader", "rate", 1e3, 1e3),
    "w6.py": ("w6", "penstock", "dataloader", "of_allowed", 1, 1),
    "start.py": ("start", "processes_2", "dataloader_2_fork", "first_ms", 1e3, 1e3),
}


def rows_of(text: str, first: str) -> list[list[str]]:
    """Return the cells of the table whose first column has that title."""
    lines = text[text.index(f"| {first} |") :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_the_five_figures_are_those_of_the_results() -> None:
    seen = []
    for _, ours, theirs, _, script in rows_of(INDEX, "Work"):
        name = re.search(r"benchmarks/(\w+\.py)\)", script)
        assert name is not None
        seen.append(name[1])
        result, *contestants, figure, our_unit, their_unit = FIGURES[name[1]]
        summary = json.loads((ROOT / "benchmarks" / "results" / f"{result}.json").read_text(encoding="utf-8"))["summary"]
        for cell, contestant, unit in ((ours, contestants[0], our_unit), (theirs.partition(": ")[2], contestants[1], their_unit)):
            number = cell.split()[0]
            measured = summary[contestant][figure] / unit
            decimals = len(number.partition(".")[2])
            assert number == f"{measured:,.{decimals}f}", f"{name[1]}, {contestant}: {measured}"
    assert seen == list(FIGURES)


def test_there_are_ten_habits_and_each_has_code() -> None:
    habits = re.findall(r"^### (\d+)\. (.*?)(?=^##)", AGENTS, re.MULTILINE | re.DOTALL)
    assert [int(number) for number, _ in habits] == list(range(1, 11))
    assert all("```python\n" in text for _, text in habits)


def test_every_call_of_the_table_of_moves_is_there_and_takes_the_arguments() -> None:
    calls = [row[0] for row in rows_of(AGENTS, "Penstock")]
    assert len(calls) > 20
    owners = {"ps": ps, "feed": ps.Feed}
    for call in calls:
        for owner, name, arguments in re.findall(r"(?:(\w*)\.)?\b(\w+)\(([^()]*)", call):
            parameters = inspect.signature(getattr(owners.get(owner, ps.Dataset), name)).parameters
            assert set(re.findall(r"(\w+)=", arguments)) <= set(parameters), call


def pages_of_the_navigation() -> set[str]:
    """Return the pages that mkdocs.yml names. Of the decisions the first stands for all; the reference is made when the site is built."""
    found = set(re.findall(r"[\w./-]+\.md|(?:formats|decisions)/$", CONFIG.partition("\nnav:\n")[2], re.MULTILINE))
    for folder in ("formats/", "decisions/"):
        found.remove(folder)
    formats, decisions = (
        sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / name).glob("*.md")) for name in ("formats", "decisions")
    )
    return {*found, *formats, decisions[0]}


def test_llms_txt_lists_every_page_of_the_navigation_and_nothing_else() -> None:
    title, _, rest = (DOCS / "llms.txt").read_text(encoding="utf-8").partition("\n\n")
    assert title == "# Penstock"
    assert rest.startswith("> "), "a summary in a quotation, as llmstxt.org asks for"
    lines = [line for line in rest.splitlines() if line.startswith("- ")]
    entries = [re.fullmatch(r"- \[[^\]]+\]\(([^)]+)\): \S.{10,}", line) for line in lines]
    assert [line for line, entry in zip(lines, entries, strict=True) if entry is None] == []
    listed = [entry[1] for entry in entries if entry is not None]
    assert len(listed) == len(set(listed))
    assert set(listed) == pages_of_the_navigation()
    assert [path for path in listed if not (DOCS / path).is_file()] == []


def test_search_finds_names_inside_calls() -> None:
    separator = re.search(r"^  - search:\n(?:.*\n)*?      separator: '(.*)'$", CONFIG, re.MULTILINE)
    assert separator is not None
    for text in ("feed(num_workers=8)", "`num_workers`,", "ps.Options(num_workers=2)", "feed.num_workers."):
        assert "num_workers" in re.split(separator[1], text), text
    assert "0.1.2" in re.split(separator[1], "version 0.1.2")
