"""The README stays short, and every link between the pages leads to a file and to a heading that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIRST = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "RELEASING", "SECURITY")]
PAGES = [*FIRST, *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def prose_of(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made as the usual renderers make them."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(prose_of(page))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose_of(page)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


def test_the_readme_has_120_lines_at_most_and_names_the_first_pages_to_read() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert {"docs/quickstart.md", "docs/from-dataloader.md", "docs/guide.md"} <= set(LINK.findall(text))
    guide = set(LINK.findall((ROOT / "docs" / "guide.md").read_text(encoding="utf-8")))
    assert {"quickstart.md", "from-dataloader.md"} <= guide
