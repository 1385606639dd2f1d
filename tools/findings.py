"""What the guards share: which Python files there are, and how problems are told."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)


class Module(NamedTuple):
    """One parsed Python file."""

    path: Path
    name: str
    """The path under the root, with slashes."""
    source: str
    tree: ast.Module


def root_of(arguments: Sequence[str]) -> Path:
    """Return the tree to check: the first argument, or the repository that this file stands in."""
    return Path(arguments[0]) if arguments else ROOT


def python_modules(root: Path, *folders: str) -> Iterator[Module]:
    """Parse every Python file under the folders, in the order of their names."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            source, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
            try:
                tree = ast.parse(source, name, feature_version=OLDEST_PYTHON)
            except SyntaxError as error:
                sys.exit(f"{name}:{error.lineno}: not Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]}: {error.msg}")
            yield Module(path, name, source, tree)


def finish(guard: str, problems: Iterable[str], num_checked: int, what: str) -> int:
    """Print the problems, one a line, and return the exit status. A guard that found nothing to look at has failed."""
    lines = list(problems)
    for line in lines:
        print(line)
    if num_checked == 0:
        print(f"{guard}: found no {what} to check")
        return 1
    print(f"{guard}: {len(lines)} problems in {num_checked} {what}")
    return 1 if lines else 0
