"""The API reference has every public name, once, and each of them has a docstring."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import penstock as ps
import reference

DOCS = Path(__file__).parents[2] / "docs"
ABOUT_THE_INSIDE = {"how-it-works.md", "remote.md"}
IMPORT = re.compile(r"^from (penstock[\w.]*) import (.+)$", re.MULTILINE)


def documented() -> list[str]:
    return [full for page in reference.pages().values() for full in page.objects]


def test_every_name_of_the_package_and_of_its_public_modules_stands_on_one_page() -> None:
    found = documented()
    assert len(found) == len(set(found))
    values = {name: getattr(ps, name) for name in ps.__all__ if name != "__version__"}
    assert {f"penstock.{name}" for name, value in values.items() if not isinstance(value, ModuleType)} <= set(found)
    modules = {name for name, value in values.items() if isinstance(value, ModuleType)}
    assert modules | {"jobs", "packing", "testing"} == set(reference.MODULES)


def test_what_the_pages_import_is_in_the_reference() -> None:
    objects = [value for page in reference.pages().values() for value in page.objects.values()]
    pages = [page for page in sorted(DOCS.rglob("*.md")) if "decisions" not in page.parts and page.name not in ABOUT_THE_INSIDE]
    imported = {
        f"{module}.{name}": getattr(__import__(module, fromlist=[name]), name)
        for page in pages
        for module, names in IMPORT.findall(page.read_text(encoding="utf-8"))
        for name in names.split(", ")
    }
    missing = [
        full for full, value in imported.items() if not isinstance(value, ModuleType) and not any(value is known for known in objects)
    ]
    assert len(imported) > 5
    assert missing == []


def test_every_public_name_has_a_docstring() -> None:
    assert list(reference.undocumented()) == []


def test_a_name_or_a_method_without_a_docstring_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        def method(self) -> None:
            """Do nothing."""

        def silent(self) -> None:
            pass

        @property
        def quiet(self) -> None:
            pass

        @classmethod
        def made(cls) -> Any:
            pass

        def _private(self) -> None:
            pass

    Bare.__module__ = "penstock.bare"
    page = reference.Page("penstock.bare", "", {"penstock.bare.Bare": Bare})
    monkeypatch.setattr(reference, "pages", lambda: {"reference/bare.md": page})
    assert [full.removeprefix("penstock.bare.") for full in reference.undocumented()] == ["Bare", "Bare.silent", "Bare.quiet", "Bare.made"]


def test_a_link_that_leaves_the_site_becomes_a_path() -> None:
    text = "[the script](../examples/ranks.py), [examples](../examples), [`benchmarks/jobs.py`](../benchmarks/jobs.py), [guide](guide.md)"
    assert reference.on_page_markdown(text) == "the script (`examples/ranks.py`), `examples`, `benchmarks/jobs.py`, [guide](guide.md)"


def test_the_reason_why_a_snippet_is_not_run_is_not_in_the_site() -> None:
    assert reference.on_page_markdown("```python\n# no-run: it needs Grain\nimport grain\n```") == "```python\nimport grain\n```"


def test_the_markdown_of_each_page_is_put_beside_its_html(tmp_path: Path) -> None:
    (tmp_path / "docs" / "formats").mkdir(parents=True)
    (tmp_path / "site" / "formats").mkdir(parents=True)
    for name in ("a.md", "formats/b.md"):
        (tmp_path / "docs" / name).write_text("# no-run: a reason\nText", encoding="utf-8")
    reference.on_post_build(SimpleNamespace(docs_dir=str(tmp_path / "docs"), site_dir=str(tmp_path / "site")))
    assert [(tmp_path / "site" / name).read_text(encoding="utf-8") for name in ("a.md", "formats/b.md")] == ["Text", "Text"]
