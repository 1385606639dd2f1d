"""The C library is taken when it fits this code and is wanted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from programs import output_of

import penstock.kernels
from penstock.kernels import backend, library
from penstock.kernels.library import SIGNATURES, WITHOUT_LIBRARY, chosen, chosen_library, load_library
from penstock.kernels.lines import find_lines_twin

PROGRAM = """
import sys
import numpy as np
from penstock import kernels
out = np.empty((1, 3, 4, 6), np.float32)
kernels.normalize(np.arange(72, dtype=np.uint8).reshape(1, 4, 6, 3)[:, :, ::-1], np.ones(3, np.float32), np.zeros(3, np.float32), out, True)
print(kernels.backend(), kernels.permute(np.arange(5), 1000, 3).tolist(), out.sum())
"""


def run_with(**environment: str) -> list[str]:
    return output_of("-c", PROGRAM, **{"PENSTOCK_KERNELS": "", **environment}).split(maxsplit=1)


def test_the_environment_can_ask_for_numpy_and_gets_the_same_numbers() -> None:
    name, numbers = run_with(PENSTOCK_KERNELS="numpy")
    assert name == "numpy"
    assert run_with()[1] == numbers


@pytest.mark.skipif(load_library() is None, reason="the C library was not built here")
def test_without_the_switch_the_c_library_is_used_where_it_was_built() -> None:
    assert run_with()[0] == "c"
    assert run_with(PENSTOCK_KERNELS="c")[0] == "c"


def test_without_the_library_the_same_program_runs_on_numpy(tmp_path: Path) -> None:
    # The real thing: a copy of the package in which the library is missing.
    package = Path(penstock.kernels.__file__).parents[1]
    for room in (".", "_contracts", "kernels"):
        (tmp_path / "penstock" / room).mkdir(parents=True, exist_ok=True)
    for path in [package / "errors.py", *(package / "kernels").glob("*.py")]:
        (tmp_path / "penstock" / path.relative_to(package)).write_bytes(path.read_bytes())
    (tmp_path / "penstock" / "__init__.py").touch()
    name, numbers = run_with(PYTHONPATH=str(tmp_path))
    assert name == "numpy"
    assert numbers == run_with()[1]


def test_the_choice_is_made_once_and_for_all_functions() -> None:
    library = chosen_library()
    assert chosen_library() is library
    assert backend() == ("numpy" if library is None else "c")
    found = chosen("find_lines", find_lines_twin)
    assert found.args == (find_lines_twin,) if library is None else found is library.find_lines


LONG = """
import numpy as np
from penstock import kernels
from penstock.kernels.framing import crc32c
before = kernels.slow_twins()
for _ in range(200):
    crc32c(bytes(100_000))
print(before == "", kernels.slow_twins() == kernels.WITHOUT_LIBRARY, kernels.backend())
"""


@pytest.mark.parametrize("switch", ["numpy", "c", "not built"])
def test_more_than_a_little_work_of_a_twin_is_told_unless_the_user_switched_to_it(switch: str) -> None:
    hidden = "from penstock.kernels import library\nlibrary.load_library = lambda: None\n" if switch == "not built" else ""
    before, told, used = output_of("-c", hidden + LONG, PENSTOCK_KERNELS=switch).split()
    assert (before, told) == ("True", str(used == "numpy" and switch != "numpy"))
    assert "the wheel of your platform" in WITHOUT_LIBRARY


def test_a_file_that_is_no_library_or_not_there_gives_none_and_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_switched_off", lambda: False)
    (tmp_path / "other.so").write_bytes(b"not a library")
    assert load_library(tmp_path / "other.so") is None
    why = library.why_numpy(tmp_path / "other.so")
    assert why.startswith("the C library cannot be opened here: ")
    assert "other.so" in why
    assert str(tmp_path) not in why, "a report of a bug names no folders"
    assert load_library(tmp_path / "absent.so") is None
    assert library.why_numpy(tmp_path / "absent.so").startswith("the C library was not built: ")


@pytest.mark.skipif(load_library() is None, reason="the C library was not built here")
def test_a_library_of_another_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_switched_off", lambda: False)
    monkeypatch.setattr(library, "_INTERFACE", -1)
    assert load_library() is None
    assert library.why_numpy().startswith("the C library is of another version of Penstock")


def test_the_table_has_every_function_of_the_c_files_with_as_many_arguments() -> None:
    declared = {}
    for path in Path(penstock.kernels.__file__).parent.glob("*.c"):
        for name, parameters in re.findall(r"^API \w+ penstock_(\w+)\(([^)]*)\) {", path.read_text(), re.MULTILINE):
            declared[name] = parameters.count(",") + (parameters != "void")
    assert declared.pop("interface") == 0
    assert declared.pop("take_framed_examples") == 6, "called from C alone"
    assert declared == {name: len(signature.arguments) for name, signature in SIGNATURES.items()}
