"""What CI runs: each part of `make check`; at the end it says what each took, also where one failed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def ci_run(folder: Path, failing: str = "") -> tuple[int, list[str], list[str]]:
    """Run CI in a folder whose parts of `make check` say their names; return the status, these names, and the lines of the table."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (parts,) = re.findall(r"^CHECKS := (.*)", makefile, re.MULTILINE)
    (recipe,) = re.findall(r"^check:\n(?:\t.*\n)+", makefile, re.MULTILINE)
    head = makefile[makefile.index("SHELL :=") : makefile.index(".NOTPARALLEL")]
    rules = "".join(f"{part}:\n\t@echo part {part}{'; false' * (part == failing)}\n" for part in parts.split())
    for name in (".ci/run", "tools/timed"):
        (folder / name).parent.mkdir()
        shutil.copy(ROOT / name, folder / name)
    (folder / "Makefile").write_text(f"{head}CHECKS := {parts}\n.PHONY: check $(CHECKS)\n{recipe}{rules}.venv/.check:\n\t@true\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["bash", str(folder / ".ci/run")]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    output, _, table = done.stdout.partition("### what it cost\n")
    return done.returncode, re.findall(r"^part (\w+)", output, re.MULTILINE), re.sub(r" +\d+ s  ", " ", table).splitlines()


PARTS = ["style", "types", "layers", "guards", "snippets", "docs", "coverage", "slow", "interop", "sanitize", "pythons"]


def test_every_part_runs_in_order_and_has_a_line_of_the_table(tmp_path: Path) -> None:
    status, ran, table = ci_run(tmp_path)
    assert (status, ran) == (0, PARTS)
    assert table == ["  install ok", *(f"  {part} ok" for part in PARTS), "make check ok"]


def test_the_part_that_fails_ends_the_run_and_is_in_the_table(tmp_path: Path) -> None:
    status, ran, table = ci_run(tmp_path, failing="layers")
    assert (status, ran) == (2, ["style", "types", "layers"])
    assert table == ["  install ok", "  style ok", "  types ok", "  layers FAILED", "make check FAILED"]


def test_the_table_is_of_this_run_alone(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "cost.txt").write_text("of an earlier run\n")
    assert ci_run(tmp_path, failing="style")[2] == ["  install ok", "  style FAILED", "make check FAILED"]
