"""The page about the inside is true: its operator and executor, made by its steps in a copy, work; its tables name what is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
DRAWING = ROOT / "docs" / "images" / "how-it-works.svg"
PACKAGE = ROOT / "src" / "penstock"
STEP = re.compile(r"^<!-- edit: (\S+), (after|instead of): ([^\n]+) -->\n```python\n# no-run: [^\n]+\n(.*?)^```$", re.MULTILINE | re.DOTALL)

NEW = re.compile(r"^<!-- new: (\S+) -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

OPERATOR = """
import sys
import warnings
from pathlib import Path

import numpy as np

import penstock as ps
from penstock import testing
from penstock.errors import PlanError

assert Path(ps.__file__).is_relative_to(sys.argv[1]), ps.__file__

rotated = ps.from_arrays(np.arange(10)).rotate(3)
wanted = [3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
assert list(rotated) == wanted and [rotated[place] for place in range(10)] == wanted and len(rotated) == 10
assert str(rotated).splitlines()[-1].strip() == "rotate(3)"
assert str(rotated.spec()) == "int64[]"
assert list(ps.from_arrays(np.arange(4)).rotate(2**63 - 1)) == [3, 0, 1, 2]
assert len(ps.from_arrays(np.arange(0)).rotate(3)) == 0

shuffled = list(ps.from_arrays(np.arange(10)).shuffle(seed=5))
assert list(ps.from_arrays(np.arange(10)).shuffle(seed=5).rotate(3)) == shuffled[3:] + shuffled[:3]
assert list(rotated.shuffle(seed=5)) == [wanted[place] for place in shuffled]

batched = ps.from_arrays(np.arange(10)).rotate(3).map(lambda value: value * 10).batch(4).repeat(2)
whole = [[30, 40, 50, 60], [70, 80, 90, 0], [10, 20]] * 2
for options in ({"executor": "inline"}, {"num_workers": 1}, {"num_workers": 3}):
    with batched.feed(**options) as feed:
        assert [batch.tolist() for batch in feed] == whole
    for step in range(len(whole)):
        with batched.feed(**options) as feed:
            got = [next(feed).tolist() for _ in range(step)]
            state = feed.state_dict()
        with batched.feed(executor="threads", num_workers=2) as feed:
            feed.load_state_dict(state)
            assert got + [batch.tolist() for batch in feed] == whole, step
threads = {"executor": "threads", "num_workers": 2}
assert [batch.tolist() for batch in ps.from_arrays(np.arange(6)).batch(2).rotate(1).feed(**threads)] == [[2, 3], [4, 5], [0, 1]]
for rotated_batches in (ps.from_arrays(np.arange(6)).rotate(2).batch(2), ps.from_arrays(np.arange(6)).batch(2).rotate(1)):
    with rotated_batches.feed(**threads, ordered=False) as feed:
        assert sorted(batch.tolist() for batch in feed) == [[0, 1], [2, 3], [4, 5]]

testing.check_operator(lambda ds: ds.rotate(2))

def refused(make, words):
    try:
        make()
    except PlanError as error:
        assert words in str(error), error
        return
    raise AssertionError(words)

refused(lambda: rotated.filter(bool).rotate(1), "rotate needs positions that are known before reading")
refused(lambda: rotated.repeat().rotate(1), "rotate of an endless dataset")
refused(lambda: rotated.as_completed().rotate(1), "rotate needs positions that are known before reading")

def odd(value):
    if value % 2 == 0:
        raise ValueError(value)
    return value

warnings.simplefilter("ignore", RuntimeWarning)  # of the first element that is skipped
with ps.from_arrays(np.arange(6)).map(odd).batch(2).rotate(1).feed(on_error=ps.Skip()) as feed:
    assert [batch.tolist() for batch in feed] == [[3], [5], [1]]
print("works")
"""

EXECUTOR = """
import sys
from pathlib import Path

import penstock as ps

assert Path(ps.__file__).is_relative_to(sys.argv[1]), ps.__file__
assert "penstock._engine.engine" not in sys.modules
assert "Plain" in dir(ps)

numbers = ps.from_source(range(60)).shuffle(seed=1)
plans = [
    numbers.map(lambda x: x * x).batch(7).repeat(2),
    numbers.filter(lambda x: x % 3).flat_map(lambda x: [x, -x]).batch(4),
    numbers.map(lambda x: x + 1, concurrency=2).map(abs, executor="processes").batch(5),
]
for plan in plans:
    whole = [batch.tolist() for batch in plan.feed(executor="inline")]
    for num_workers in (1, 3):
        with plan.feed(executor=ps.Plain(), num_workers=num_workers) as feed:
            got = [next(feed).tolist() for _ in range(5)]
            state = feed.state_dict()
            assert got + [batch.tolist() for batch in feed] == whole
            assert len(list(feed)) == len(whole)
        with plan.feed(executor=ps.Plain(), num_workers=num_workers) as feed:
            feed.load_state_dict(state)
            assert got + [batch.tolist() for batch in feed] == whole
    with plan.feed(executor=ps.Plain(), ordered=False) as feed:
        assert sorted(x for batch in feed for x in batch.tolist()) == sorted(x for batch in whole for x in batch)
with numbers.map(lambda x: 1 // x).feed(executor=ps.Plain(), num_workers=2) as feed:
    try:
        list(feed)
    except ZeroDivisionError as error:
        assert "element epoch 0 index 0" in error.__notes__[0]
        print("works")
"""


class Step(NamedTuple):
    """One change that the page asks for."""

    file: str
    how: str
    anchor: str
    text: str


def recipe(name: str) -> str:
    """Return a part of the page."""
    return PAGE.partition(f"## Add {name}\n")[2].partition("\n## ")[0]


def steps(name: str) -> list[Step]:
    return [Step(*found) for found in STEP.findall(recipe(name))]


def changed(text: str, step: Step) -> str:
    """Return a file with one step made: after the only line that begins with the anchor, or instead of the only place of the anchor."""
    after = step.how == "after"
    places = [
        place.span() for place in re.finditer(rf"^{re.escape(step.anchor)}.*\n" if after else re.escape(step.anchor), text, re.MULTILINE)
    ]
    assert len(places) == 1, f"{step.file} has {len(places)} times {step.anchor!r}"
    begin, end = places[0]
    return text[:end] + f"\n{step.text}\n" + text[end:] if after else text[:begin] + step.text.rstrip("\n") + text[end:]


def copied(to: Path) -> Path:
    """Copy the package without compiled modules of Python; its kernels come along."""
    shutil.copytree(PACKAGE, to / "penstock", ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.h"))
    return to / "penstock"


RECIPES = {
    "an operator": (OPERATOR, ["_plan/node.py", "_ops/reading.py", "_engine/lowering.py", "dataset/operators.py"]),
    "an executor": (EXECUTOR, ["_workers/plain.py", "__init__.py"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_what_the_page_adds_works_in_a_copy_of_the_package(name: str, tmp_path: Path) -> None:
    package = copied(tmp_path / "copy")
    for file, text in NEW.findall(recipe(name)):
        (package / file.removeprefix("src/penstock/")).write_text(text, encoding="utf-8")
    for step in steps(name):
        file = package / step.file.removeprefix("src/penstock/")
        file.write_text(changed(file.read_text(encoding="utf-8"), step), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": ""}  # it starts many processes
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RECIPES[name][0], str(package)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.stdout == "works\n", done.stderr


@pytest.mark.parametrize("name", RECIPES)
def test_the_steps_touch_the_files_that_the_page_numbers_and_no_others(name: str) -> None:
    numbered = re.findall(r"^\*\*\d\. `([\w/.]+)`", recipe(name), re.MULTILINE)
    touched = [*(file for file, _ in NEW.findall(recipe(name))), *(step.file for step in steps(name))]
    assert numbered == RECIPES[name][1]
    assert list(dict.fromkeys(touched)) == [f"src/penstock/{file}" for file in numbered]
    assert len(touched) == recipe(name).count("<!-- edit:") + recipe(name).count("<!-- new:")
    assert recipe(name).count("```python") - len(touched) == (name == "an executor")  # which the page runs too
    assert recipe(name).count("# no-run:") == len(steps(name))


def test_a_step_whose_place_is_gone_fails() -> None:
    step = Step("a.py", "after", "here", "new\n")
    assert changed("here\nbehind\n", step) == "here\n\nnew\n\nbehind\n"
    assert changed("a, b", step._replace(how="instead of", anchor="a", text="a, c\n")) == "a, c, b"
    with pytest.raises(AssertionError, match=r"a\.py has 0 times 'here'"):
        changed("there\n", step)
    with pytest.raises(AssertionError, match=r"a\.py has 2 times 'here'"):
        changed("here\nhere\n", step)


def test_the_table_has_every_file_of_the_engine_and_tests_that_are_there() -> None:
    rows = re.findall(r"^\| `(\w+\.py)` \| .+? \| (.+) \|$", PAGE, re.MULTILINE)
    assert sorted(file for file, _ in rows) == sorted(path.name for path in (PACKAGE / "_engine").glob("*.py") if path.stem != "__init__")
    for _, tests in rows:
        for name in re.findall(r"`([\w/.]+)`", tests):
            assert (ROOT / (name if "/" in name else f"tests/_engine/{name}")).is_file(), name


def test_every_path_that_the_page_names_is_there() -> None:
    new = {"sources/squares.py", "_workers/plain.py", "observe/longest.py"}
    prose = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    names = set(re.findall(r"`((?:tests/|docs/|\w+/)[\w/]*(?:\.\w+)?)`", prose)) - new
    missing = [name for name in sorted(names) if not ((PACKAGE / name).exists() or (ROOT / name).exists())]
    assert len(names) > 40
    assert missing == []
    assert [name for name in new if (PACKAGE / name).exists()] == []


def test_the_drawing_is_small_and_names_files_that_are_there() -> None:
    assert DRAWING.stat().st_size < 20_000
    texts = [text for one in ElementTree.parse(DRAWING).iter() if (text := one.text)]
    names = {name for text in texts for name in re.findall(r"[\w/]+\.py\b", text)}
    missing = [name for name in sorted(names) if not ((PACKAGE / name).is_file() or (PACKAGE / "_engine" / name).is_file())]
    assert len(names) > 10
    assert missing == []


def test_the_contract_has_ten_sentences() -> None:
    contract = PAGE.partition("## The contract of the engine\n\n")[2].partition("\n\n")[0]
    sentences = re.sub(r"\n {3}", " ", contract).splitlines()
    assert [sentence.partition(". **")[0] for sentence in sentences] == [str(number) for number in range(1, 11)]
    assert [sentence for sentence in sentences if not sentence.endswith(".") or sentence.count(". ") != 1] == []
