"""The page for coding agents names what is there, and llms.txt lists every page of the site."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import penstock as ps

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = (DOCS / "for-agents.md").read_text(encoding="utf-8")
LLMS = (DOCS / "llms.txt").read_text(encoding="utf-8")
ENTRY = re.compile(r"^- \[[^\]]+\]\(([^)]+)\): \S.{10,}$")


def test_there_are_ten_habits_and_each_has_code() -> None:
    habits = re.findall(r"^### (\d+)\. (.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert [int(number) for number, _ in habits] == list(range(1, 11))
    assert all("```python\n" in text for _, text in habits)


def test_every_call_of_the_table_of_moves_is_there_and_takes_the_arguments() -> None:
    calls = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| ")][1:]
    assert len(calls) > 20
    owners = {"ps": ps, "feed": ps.Feed}
    for call in calls:
        for owner, name, arguments in re.findall(r"(?:(\w*)\.)?\b(\w+)\(([^()]*)", call):
            parameters = inspect.signature(getattr(owners.get(owner, ps.Dataset), name)).parameters
            assert set(re.findall(r"(\w+)=", arguments)) <= set(parameters), call


def pages_of_the_navigation() -> set[str]:
    """Return the pages that mkdocs.yml names. Of the decisions the first stands for all; the reference is made when the site is built."""
    _, _, navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    found = set(re.findall(r"[\w./-]+\.md|formats/$", navigation, re.MULTILINE))
    decisions = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "decisions").glob("*.md"))
    formats = {path.relative_to(DOCS).as_posix() for path in (DOCS / "formats").glob("*.md")}
    return found - {"formats/"} | formats | {decisions[0]}


def test_llms_txt_lists_every_page_of_the_navigation_and_nothing_else() -> None:
    title, _, rest = LLMS.partition("\n\n")
    assert title == "# Penstock"
    assert rest.startswith("> "), "a summary in a quotation, as llmstxt.org asks for"
    lines = [line for line in rest.splitlines() if line.startswith("- ")]
    entries = [ENTRY.match(line) for line in lines]
    assert [line for line, entry in zip(lines, entries, strict=True) if entry is None] == []
    listed = [entry[1] for entry in entries if entry is not None]
    assert len(listed) == len(set(listed))
    assert set(listed) == pages_of_the_navigation()
    assert [path for path in listed if not (DOCS / path).is_file()] == []
