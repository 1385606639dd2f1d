"""What goes by its name and what by value, and what of it comes back."""

from __future__ import annotations

import importlib.util
import os
import pickle
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from _workers.in_workers import SlowToRead, busy
from core import core
from programs import output_of

import penstock as ps
from penstock._workers.sending import digest, dumps_to_program, dumps_to_worker

CODE = "import functools\nSIZE = 3\ndef fn(x):\n    return x * SIZE\nclass Point:\n    pass\n"


@pytest.fixture
def imported(tmp_path: Path) -> Iterator[Any]:
    """Make modules of a folder of their own, forgotten afterwards."""
    names = []

    def make(name: str, code: str = CODE, *, listed: bool = True, by_path: bool = False) -> ModuleType:
        names.append(name)
        (tmp_path / f"{name}.py").write_text(code)
        if not by_path:
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        if listed:
            sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    def by_path(name: str, **options: Any) -> ModuleType:
        return make(name, by_path=True, **options)

    make.by_path = by_path  # type: ignore[attr-defined]
    sys.path.insert(0, str(tmp_path))
    yield make
    sys.path.remove(str(tmp_path))
    for name in names:
        sys.modules.pop(name, None)


def goes_by_name(value: Any) -> bool:
    """Tell whether a pickle names a function or class instead of holding it."""
    data = dumps_to_worker(value)
    return b"cloudpickle" not in data


def test_what_a_worker_can_import_goes_by_its_name(imported: Any) -> None:
    module = imported("one_of_many")
    for value in (busy, SlowToRead, np.add, os.path.join, ps.from_source, module.fn, module.Point, module, np):
        assert goes_by_name(value) or isinstance(value, ModuleType), value
    assert pickle.loads(dumps_to_worker(module)) is module


def test_a_module_that_was_loaded_by_its_path_or_made_by_hand_goes_by_value(imported: Any, tmp_path: Path) -> None:
    sys.path.remove(str(tmp_path))
    try:
        for module in (imported.by_path("my_config"), imported.by_path("unlisted", listed=False)):
            assert not goes_by_name(module.fn)
            assert not goes_by_name(module.Point)
            assert pickle.loads(dumps_to_worker(module.fn))(2) == 6
        sys.modules["by_hand"] = module = ModuleType("by_hand")
        exec(CODE, vars(module))
        assert not goes_by_name(module.fn)
        assert pickle.loads(dumps_to_worker(module)).fn(2) == 6
    finally:
        sys.path.insert(0, str(tmp_path))
        sys.modules.pop("by_hand", None)


def test_another_module_of_the_same_name_is_not_taken_for_it(imported: Any, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "twofold.py").write_text("def fn(x):\n    return -x\n")
    module = imported("twofold")
    sys.path.insert(0, str(tmp_path / "sub"))
    try:
        assert not goes_by_name(module.fn)
    finally:
        sys.path.remove(str(tmp_path / "sub"))


def test_a_module_found_by_a_relative_path_goes_by_value_after_a_change_of_folder(
    imported: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("sub")
    (tmp_path / "sub" / "relative_one.py").write_text(CODE)
    module = importlib.import_module("relative_one")
    assert goes_by_name(module.fn)
    monkeypatch.chdir("/")
    assert not goes_by_name(module.fn)
    sys.modules.pop("relative_one")


def test_a_module_that_was_edited_since_goes_by_value(imported: Any, tmp_path: Path) -> None:
    module = imported("edited")
    (tmp_path / "edited.py").write_text(CODE.replace("x * SIZE", "x * SIZE * 1000"))
    assert not goes_by_name(module.fn)
    assert pickle.loads(dumps_to_worker(module.fn))(2) == 6
    (tmp_path / "edited.py").write_text(CODE + "# a remark\n")
    assert goes_by_name(module.fn)


def test_a_decorator_in_the_module_is_left_there_and_one_applied_by_hand_goes_along(imported: Any) -> None:
    wrapped = "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def call(x):\n        return 2 * f(x)\n    return call\n"
    lib = imported("lib_of_decorators", wrapped)
    module = imported("decorated", "from lib_of_decorators import twice\n@twice\ndef fn(x):\n    return x\n\ndef plain(x):\n    return x\n")
    assert goes_by_name(module.fn)
    module.plain = lib.twice(module.plain)
    assert not goes_by_name(module.plain)
    assert pickle.loads(dumps_to_worker(module.plain))(3) == 6


def test_an_open_file_is_refused_and_not_read_into_memory() -> None:
    with open(os.devnull) as file:
        for dumps in (dumps_to_worker, dumps_to_program):
            with pytest.raises(TypeError, match=r"cannot pickle '(_io\.)?TextIOWrapper'"):
                dumps(lambda: file)


@pytest.mark.parametrize("dumps", [dumps_to_worker, dumps_to_program])
def test_a_memory_map_keeps_its_byte_order(dumps: Any, tmp_path: Path) -> None:
    np.arange(6).astype(">i2").tofile(tmp_path / "heights")
    given = np.memmap(tmp_path / "heights", ">i2", "r")
    for part in (given, given[::2]):
        found = pickle.loads(dumps(part))
        assert (type(found), found.dtype, found.tolist()) == (np.memmap, part.dtype, part.tolist())


@pytest.mark.parametrize("draw", [random.random, random.randint, np.random.rand, np.random.randint])
def test_functions_of_a_generator_of_the_process_are_those_of_the_other_process(draw: Any) -> None:
    data = dumps_to_worker(draw)
    assert len(data) < 500  # without a state
    assert pickle.loads(data).__self__ is draw.__self__


PROGRAM = """
import dataclasses, enum, typing, penstock as ps, types, sys
class MyError(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")
        self.a = a
class Pair(typing.NamedTuple):
    x: int
class Kind(enum.Enum):
    A = 1
@dataclasses.dataclass
class Data:
    v: int
    seen: typing.ClassVar[int] = 0
module = types.ModuleType("by_hand")
exec("class Held:\\n    pass\\n", vars(module))
def local():
    class Local:
        pass
    return Local
Local = local()
def fn(i):
    if i == 20:
        raise MyError(1, 2)
    Data.seen += 1
    return [Pair(i), Kind.A, Data(i), module.Held(), Local()]
print("begins")
got = []
try:
    with ps.from_source(range(30)).map(fn).feed(executor="processes", num_workers=2) as feed:
        for one in feed:
            got.append(one)
except MyError as error:
    print(error.a, len(got))
print(Data.seen, {tuple(map(type, one)) == (Pair, Kind, Data, module.Held, Local) and one[1] is Kind.A for one in got})
"""


@pytest.mark.parametrize("way", core(["a file", "a text", "stdin"]))
def test_a_program_is_run_once_and_its_classes_come_back_as_themselves(way: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = {"a file": ["program.py"], "a text": ["-c", PROGRAM], "stdin": ["-"]}[way]
    assert output_of(*command, cwd=tmp_path, given=PROGRAM) == "begins\n1 20\n0 {True}\n"


class Holder:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __call__(self, element: Any) -> Any:
        return element


def test_a_digest_changes_with_each_attribute_and_with_nothing_else() -> None:
    holder = Holder(size=1, array=np.zeros(1000), names=["a", "b"], inner=Holder(deep={"x": 1}))
    before = digest([holder])
    assert digest([holder]) == before
    for change in (
        lambda: setattr(holder, "size", 2),
        lambda: holder.array.__setitem__(7, 1.0),  # type: ignore[attr-defined]
        lambda: holder.names.append("c"),  # type: ignore[attr-defined]
        lambda: holder.inner.deep.update(x=2),  # type: ignore[attr-defined]
    ):
        change()
        before, last = digest([holder]), before
        assert before != last


def test_what_is_large_is_told_by_identity_and_length(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = Holder(large=list(range(200_000)), array=np.zeros(9 << 20), text=b"x" * (65 << 20))
    before = digest(holder)
    holder.large[5] = holder.array[5] = 7  # type: ignore[attr-defined]
    assert digest(holder) == before
    holder.large.append(1)  # type: ignore[attr-defined]
    assert digest(holder) != before


LATER = """
import functools, typing
import penstock as ps

UserId = typing.NewType("UserId", int)

@functools.lru_cache(maxsize=7)
def load(number):
    return number + load(number - 1) if number else load.cache_parameters()["maxsize"]

class Rows:
    def __len__(self):
        return 3
    @functools.cached_property
    def offset(self):
        return UserId(10)
    def __getitem__(self, index):
        return self.offset + load(index)

rows = Rows()
rows.offset
feed = ps.from_source(rows).feed(num_workers=2)
print(list(feed), *feed.stats().notices)
"""


@pytest.mark.slow
def test_cached_functions_and_properties_and_new_types_of_the_program_go_along(tmp_path: Path) -> None:
    told = "'Rows': called in 2 worker processes; what they change there stays there"
    assert output_of("-c", LATER, cwd=tmp_path) == f"[17, 18, 20] {told}\n"
