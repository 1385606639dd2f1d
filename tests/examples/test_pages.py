from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from core import core
from programs import python

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/quickstart.md",
    "docs/resume.md",
    "docs/errors.md",
    "docs/queues.md",
    "docs/from-dataloader.md",
    "docs/guide.md",
    "docs/gpu-is-idle.md",
    "docs/how-it-works.md",
    "docs/image-recipes.md",
    "docs/looking.md",
    "docs/policies.md",
    "docs/ranks.md",
    "docs/enqueuer.md",
    "docs/jobs.md",
    "docs/language-models.md",
    "docs/classic.md",
    "docs/testing.md",
]
BLOCKS = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
WORKER = re.compile(r"\bworker \d+")
END = "<end of snippet>"
RUNNER = """
import linecache, sys
text = sys.stdin.read()
linecache.cache["<string>"] = len(text), None, text.splitlines(True), "<string>"  # functions have a source text, as those of a file
exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
"""


@pytest.mark.parametrize("page", core(PAGES, 2))
def test_what_a_page_says_a_snippet_prints_is_what_it_prints(page: str, tmp_path: Path) -> None:
    blocks = [(code, said) for code, said in BLOCKS.findall((ROOT / page).read_text(encoding="utf-8")) if not code.startswith("# no-run:")]
    assert blocks
    program = "".join(f"{code}\nprint({END!r}, flush=True)\n" for code, _ in blocks)
    done = python("-W", "error", "-W", "ignore:element epoch", "-c", RUNNER, given=program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(END + "\n")
    for (code, said), text in zip(blocks, printed, strict=False):
        if said:
            assert same(text, said), f"{page}\n{code}\nprints\n{text}\nnot\n{said}"


def same(text: str, said: str) -> bool:
    """Compare line by line; three dots in what the page says stand for anything in the line, and which worker it was may differ."""
    lines, patterns = (WORKER.sub("worker N", each).splitlines() for each in (text, said))
    return len(lines) == len(patterns) and all(map(fits, lines, patterns))


def fits(line: str, pattern: str) -> bool:
    escaped = pattern.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")
    return fnmatchcase(line.rstrip(), escaped.replace("...", "*").rstrip())


def test_the_comparison_sees_another_line_and_a_missing_one() -> None:
    assert same("a [1] 2.5 s\nb\n", "a [1] ... s\nb\n")
    assert not same("a [2] 2.5 s\nb\n", "a [1] ... s\nb\n")
    assert not same("a\n", "a\nb\n")
    assert same("stage 'a', worker 12, index 1\n", "stage 'a', worker 0, index 1\n")
    assert not same("stage 'a', worker 1, index 1\n", "stage 'a', worker 1, index 2\n")
