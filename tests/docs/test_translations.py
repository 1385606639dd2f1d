"""A translation has the headings, code, outputs, pictures and tables of its original; its snippets are run there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from check_docs import original_of

DOCS = Path(__file__).parents[2] / "docs"
PAIRS = [(original, page) for page in sorted(DOCS.rglob("*.md")) if (original := original_of(page)) is not None]
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def shape_of(text: str) -> list[str]:
    """Return headings by their level, places of blocks, pictures by their file and rows of tables by their number of cells."""
    found = []
    for line in BLOCK.sub("<block>", text).splitlines():
        if mark := re.match(r"#+ |<block>|\|", line):
            found.append(f"| {line.count(' | ')}" if mark[0] == "|" else mark[0])
        found += re.findall(r"!\[[^\]]*\](\([^)]*\))", line)
    return found


def test_there_is_a_translation() -> None:
    assert ("classic.md", "classic.zh.md") in [(original.name, page.name) for original, page in PAIRS]


@pytest.mark.parametrize(("original", "page"), PAIRS, ids=lambda path: path.name)
def test_code_outputs_and_structure_are_those_of_the_original(original: Path, page: Path) -> None:
    ours, theirs = page.read_text(encoding="utf-8"), original.read_text(encoding="utf-8")
    assert BLOCK.findall(ours) == BLOCK.findall(theirs)
    assert shape_of(ours) == shape_of(theirs)


@pytest.mark.parametrize(("original", "page"), PAIRS, ids=lambda path: path.name)
def test_both_pages_name_each_other_at_the_top(original: Path, page: Path) -> None:
    assert f"]({page.name})" in original.read_text(encoding="utf-8").split("\n## ")[0]
    assert f"]({original.name})" in page.read_text(encoding="utf-8").split("\n## ")[0]
