"""A page or docstring that says that something is not there has a program here, which fails as soon as it is there."""

from __future__ import annotations

import ast
import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.cli import main
from penstock.errors import LengthUnknown

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "formats").glob("*.md"))]
ABSENT = r"(?:there|public|supported|implemented|possible|available|built)"
KIND = re.compile(
    rf"[^.;:|]*(?:\bcannot do yet\b|\bnot {ABSENT} yet\b|\bnot (?:yet )?(?:implemented|supported)\b|\b(?:is|are) to come\b|\bcomes? later\b"
    rf"|\bplanned\b|\bin a later (?:version|release)\b|\bworkers(?: of a \w+)? are (?:threads|processes)(?! or| \())[^.;|]*",
    re.IGNORECASE,
)


def no_readers_are_shared() -> None:
    assert [name for name in dir(ps) if re.match("serve|.*service|.*readers", name.lower())] == []


def compressed_records_have_no_index(folder: Path) -> None:
    (folder / "records.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(LengthUnknown):
        len(ps.read_tfrecord(str(folder / "records.gz"), compression="GZIP"))


def arrays_of_objects_are_not_measured(folder: Path) -> None:
    np.save(folder / "objects.npy", np.array([{}, None]), allow_pickle=True)
    assert main(["bench", str(folder / "objects.npy")]) != 0


# The beginning of each sentence, and the program; what stands in a list below a sentence has one as well.
CLAIMS: dict[str, Callable[..., None]] = {
    "## What it cannot do yet": no_readers_are_shared,
    "there is no service of readers that several ranks share": no_readers_are_shared,
    "Compressed TFRecord files are read as streams, without random access": compressed_records_have_no_index,
    "arrays of Python objects are not supported": arrays_of_objects_are_not_measured,
}

# Of what happens in a run, not of what the library can do.
OF_A_RUN = (
    "children that were not there yet gave nothing",
    "the name is not there yet",
    "blocks that are not there yet",
    "records that are not there yet",
)


def texts() -> Iterator[tuple[str, str]]:
    """Yield the pages, and the strings of the sources that have a blank: docstrings, hints, errors."""
    for page in PAGES:
        yield page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield path.relative_to(ROOT).as_posix(), node.value


def sentences() -> list[tuple[str, str]]:
    found = []
    for where, text in texts():
        flat = re.sub(r"\s+", " ", text)
        found += [(where, match.group().strip()) for match in KIND.finditer(flat)]
    return found


@pytest.mark.slow
def test_each_sentence_of_something_that_is_not_there_has_a_program() -> None:
    without = [(where, text) for where, text in sentences() if not any(known in text for known in (*CLAIMS, *OF_A_RUN))]
    assert without == []


def test_each_program_belongs_to_a_sentence_that_is_still_there() -> None:
    everything = re.sub(r"\s+", " ", " ".join(text for _, text in texts()))
    assert [claim for claim in CLAIMS if claim not in everything] == []


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_is_said_not_to_be_there_is_not_there(claim: str, tmp_path: Path) -> None:
    program = CLAIMS[claim]
    program(tmp_path) if program.__code__.co_argcount else program()


def test_the_kind_of_sentence_is_recognised() -> None:
    hint = "leave it out: the workers of a feed are threads"
    for text in ("Workers are threads", "processes come later", "worker processes are to come", "not supported", hint):
        assert KIND.search(text), text
    for text in ("**Workers** are threads or processes", "one batch comes, later batches follow"):
        assert not KIND.search(text), text
