"""Run every Python snippet of README.md and docs/: those of one page in order, in one namespace, in an empty folder of their own.

A snippet that starts with `# no-run: REASON` is listed and not run. Warnings are errors, but for that of a skipped element. Each page
runs in a process of its own.
A translation (`PAGE.zh.md` beside `PAGE.md`) is not run: its snippets must be those of the original.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from findings import finish, root_of

TIMEOUT_S = 120
NO_RUN = "# no-run:"

_RUNNER = """
import itertools, linecache, sys
page, separator = sys.argv[1], sys.argv[2]
namespace, lines = {"__name__": "__main__"}, []
for text in sys.stdin.read().split(separator):
    lines = [new if new.strip() else old for old, new in itertools.zip_longest(lines, text.splitlines(True), fillvalue="\\n")]
    linecache.cache[page] = len(text), None, lines, page  # functions have a source text, as those of a file
    exec(compile(text, page, "exec"), namespace)
"""
_SEPARATOR = "\n# ---- next snippet ----\n"


class Snippet(NamedTuple):
    """One fenced block of Python, with the number of its first line in the page."""

    line: int
    text: str


def main(arguments: Sequence[str]) -> int:
    """Run the snippets and return the exit status."""
    root = root_of(arguments)
    problems: list[str] = []
    num_snippets = 0
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        if not page.is_file():
            continue
        name = page.relative_to(root).as_posix()
        found = list(snippets(page.read_text(encoding="utf-8")))
        num_snippets += len(found)
        if (original := original_of(page)) is not None:
            problems += differences(name, found, original.name, list(snippets(original.read_text(encoding="utf-8"))))
            continue
        to_run = []
        for snippet in found:
            if not snippet.text.startswith(NO_RUN):
                to_run.append(snippet)
            elif reason := snippet.text.splitlines()[0].removeprefix(NO_RUN).strip():
                print(f"{name}:{snippet.line}: not run: {reason}")
            else:
                problems.append(f"{name}:{snippet.line}: `{NO_RUN}` gives no reason")
        if to_run:
            problems += run_page(name, to_run)
    return finish("check_docs", problems, num_snippets, "snippets")


def original_of(page: Path) -> Path | None:
    """Return the page that a page `NAME.LANGUAGE.md` is a translation of; None for any other page."""
    stem, dot, _ = page.stem.rpartition(".")
    return original if dot and (original := page.with_name(f"{stem}.md")).is_file() else None


def differences(name: str, found: Sequence[Snippet], original: str, expected: Sequence[Snippet]) -> list[str]:
    """Say which snippets of a translation are not those of its original."""
    problems = [
        f"{name}:{ours.line}: not the snippet of {original}:{theirs.line}"
        for ours, theirs in zip(found, expected, strict=False)
        if ours.text != theirs.text
    ]
    if len(found) != len(expected):
        problems.append(f"{name}:1: {len(found)} snippets, but {original} has {len(expected)}")
    return problems


def snippets(text: str) -> Iterator[Snippet]:
    """Give the blocks fenced with ``` or ~~~ whose language is python or py; a block in a list may be indented."""
    lines = text.splitlines()
    start, fence, is_python = 0, "", False
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not fence and stripped.startswith(("```", "~~~")):
            marker = stripped[0]
            info = stripped.lstrip(marker)
            start, fence = number, marker * (len(stripped) - len(info))
            is_python = info.strip().split(" ")[0].split("{")[0].lower() in ("python", "py")
        elif fence and stripped.startswith(fence) and not stripped.strip(fence[0]):
            if is_python:
                yield Snippet(start + 1, textwrap.dedent("\n".join(lines[start : number - 1])))
            fence = ""


def run_page(name: str, to_run: Sequence[Snippet]) -> list[str]:
    """Run the snippets of one page and return the problem, if any, with page and line."""
    # Empty lines in front make the line numbers of a traceback those of the page.
    program = _SEPARATOR.join("\n" * (snippet.line - 1) + snippet.text for snippet in to_run)
    with tempfile.TemporaryDirectory(prefix="snippets-") as folder, tempfile.TemporaryDirectory(prefix="snippets-tmp-") as temporary:
        command = [sys.executable, "-W", "error", "-W", "ignore:element epoch", "-c", _RUNNER, name, _SEPARATOR]
        # Temporary files stand in a folder of the page's own: a snippet that checks for leaks must not see those of other programs.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": temporary}
        try:
            done = subprocess.run(
                command, input=program, capture_output=True, text=True, cwd=folder, timeout=TIMEOUT_S, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            return [f"{name}:{to_run[0].line}: the snippets of this page did not end within {TIMEOUT_S} s"]
    if done.returncode == 0:
        return []
    return [
        f"{name}:{failed_line(name, done.stderr) or to_run[0].line}: a snippet failed\n{textwrap.indent(done.stdout + done.stderr, '    ')}"
    ]


def failed_line(name: str, traceback: str) -> int | None:
    """Find the first line of the page that a traceback names."""
    mark = f'File "{name}", line '
    _, found, rest = traceback.partition(mark)
    digits = rest.split(",")[0].split("\n")[0]
    return int(digits) if found and digits.isdigit() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
