"""Write the pages of the API reference: one for each public module, made from the docstrings while `make docs` builds the site.

Each page of docs/ is copied into the site as Markdown too, for docs/llms.txt.

mkdocs.yml names this file as a hook. A public name without a docstring is a warning, which ends the strict build;
tests/docs/test_reference.py finds it too.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

OWN_PAGES = ("Dataset", "Feed")
"""The classes of `penstock` that have a page each."""

MODULES = ("errors", "image", "observe", "queues", "jobs", "packing", "testing", "text")
"""The public modules. A name that `penstock` has too stands on the page of `penstock`."""

FURTHER = {
    "adapters": ("penstock.adapters.hugging_face.FeedTrainerMixin",),
    "formats": ("penstock.formats.tfrecord.RecordWriter", "penstock.formats.tar.TarWriter"),
}
"""The classes that docs/ import from packages which are private otherwise."""

_OF_PENSTOCK = """Functions and values of the package itself: `import penstock as ps`.

[`ps.Dataset`](dataset.md) and [`ps.Feed`](feed.md) have pages of their own, and so has each public module."""


class Page(NamedTuple):
    """One page of the reference."""

    title: str
    text: str
    """Its first paragraphs."""
    objects: dict[str, Any]
    """What it documents, by the names that users import."""


def pages() -> dict[str, Page]:
    """Return the pages by their paths in the site."""
    package = importlib.import_module("penstock")
    found = {f"reference/{name.lower()}.md": Page(f"ps.{name}", "", {f"penstock.{name}": getattr(package, name)}) for name in OWN_PAGES}
    own = {f"penstock.{name}": getattr(package, name) for name in package.__all__ if name not in OWN_PAGES}
    own = {name: value for name, value in own.items() if not isinstance(value, ModuleType | str)}
    found["reference/penstock.md"] = Page("penstock", _OF_PENSTOCK, own)
    seen = {id(value) for page in found.values() for value in page.objects.values()}
    for name in MODULES:
        module = importlib.import_module(f"penstock.{name}")
        values = {f"penstock.{name}.{member}": getattr(module, member) for member in module.__all__}
        text = inspect.cleandoc(module.__doc__ or "")
        if others := sorted(full for full, value in values.items() if id(value) in seen):
            links = [f"[`{full.rpartition('.')[2]}`][{_definition(full, values[full])}]" for full in others]
            text += f"\n\nOn another page: {', '.join(links)}."
        own = {full: value for full, value in values.items() if id(value) not in seen}
        found[f"reference/{name}.md"] = Page(f"penstock.{name}", text, own)
        seen |= set(map(id, own.values()))
    for name, members in FURTHER.items():
        values = {full: getattr(importlib.import_module(full.rpartition(".")[0]), full.rpartition(".")[2]) for full in members}
        imports = "\n".join("from {} import {}".format(*full.rsplit(".", 1)) for full in members)
        found[f"reference/{name}.md"] = Page(f"penstock.{name}", f"```python\n{imports}\n```", values)
    return found


def undocumented() -> Iterator[str]:
    """Give the full name of each public object, method and property that has no docstring."""
    for page in pages().values():
        for full, value in page.objects.items():
            if not value.__doc__:
                yield full
            if inspect.isclass(value):
                yield from (f"{full}.{name}" for name in _undocumented_members(value))


def _undocumented_members(kind: type) -> Iterator[str]:
    """Give the public methods and properties that Penstock defines; fields of a dataclass are described in its own docstring."""
    for home in kind.__mro__:
        if home.__module__.split(".")[0] == "penstock":
            for name, member in vars(home).items():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if not name.startswith("_") and inspect.isfunction(function) and not function.__doc__:
                    yield name


def _definition(full: str, value: Any) -> str:
    """Return the name where an object is defined: a public name may be that of a module too, as `penstock.observe.trace`."""
    return f"{value.__module__}.{value.__qualname__}" if inspect.isclass(value) or inspect.isfunction(value) else full


def _block(full: str, value: Any) -> str:
    """Return what mkdocstrings replaces by the documentation of one object."""
    lines = [f"::: {_definition(full, value)}", "    options:", f"      show_bases: {str(_is_error(value)).lower()}"]
    if full.rpartition(".")[2] in OWN_PAGES:  # nobody calls their constructors
        lines.append("      merge_init_into_class: false")
    return "\n".join(lines)


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


# What mkdocs calls.


def on_config(config: Any) -> None:
    """Put every page of a folder where the navigation names the folder."""
    config.nav = [_with_folders(entry, Path(config.docs_dir)) for entry in config.nav]


def _with_folders(entry: Any, docs: Path) -> Any:
    if isinstance(entry, dict):
        return {title: _with_folders(below, docs) for title, below in entry.items()}
    if isinstance(entry, list):
        return [_with_folders(below, docs) for below in entry]
    if entry == "reference/":
        return list(pages())
    return sorted(path.relative_to(docs).as_posix() for path in (docs / entry).glob("*.md")) if entry.endswith("/") else entry


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the reference to the files of the site."""
    from mkdocs.structure.files import File

    log = logging.getLogger("mkdocs.hooks.reference")
    for name in undocumented():
        log.warning("%s is public and has no docstring", name)
    for path, page in pages().items():
        blocks = [_block(full, value) for full, value in page.objects.items()]
        files.append(File.generated(config, path, content="\n\n".join([f"# {page.title}", page.text, *blocks, ""])))
    return files


_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?:benchmarks|examples|README)[^)]*)\)")
_NO_RUN = re.compile(r"^# no-run: .*\n", re.MULTILINE)


def on_page_markdown(text: str, **_: Any) -> str:
    """Write a link to a file of the repository that is not in the site as its path, and leave out why a snippet is not run."""
    text = _NO_RUN.sub("", text)
    return _OUTSIDE.sub(lambda link: f"`{link[2]}`" if link[1].strip("`") == link[2] else f"{link[1]} (`{link[2]}`)", text)


def on_post_build(config: Any) -> None:
    """Put the Markdown of each page beside its HTML: docs/llms.txt links to it."""
    docs = Path(config.docs_dir)
    for path in sorted(docs.rglob("*.md")):
        target = Path(config.site_dir) / path.relative_to(docs)
        target.write_text(on_page_markdown(path.read_text(encoding="utf-8")), encoding="utf-8")
