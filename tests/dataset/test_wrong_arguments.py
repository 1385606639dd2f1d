"""Every argument of every `read_*` function, given something of a wrong type: an error of Penstock at the call, or a dataset."""

from __future__ import annotations

import inspect
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import PenstockError, PlanError

SPEC = ps.ArraySpec((2,), np.float32)

WRONG: list[Any] = [
    SPEC, 3, -1, 1.5, float("nan"), "x", b"x", [1], [SPEC], [None], (), {}, {"a": SPEC}, {"a": 3}, {"a": object()}, {"a": []}, {"a": {}},
    {"a": "f4,i4"}, {"a": "3f4"}, {"a": [("x", "f4")]}, {1: "int64"}, {None: "i8"}, {"a": ps.FixedLenFeature((), "int64")},
    {"a": np.zeros(3)}, object(), int, np.zeros(()), True, {"a"}, ["a", "a"], len, ...,
]  # fmt: skip

READ: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "read_csv": lambda: (_text("a.csv", "a,b\n1,2\n"), {}),
    "read_files": lambda: (_text("a.txt", "a\n"), {}),
    "read_jsonl": lambda: (_text("a.jsonl", '{"a": 1}\n'), {}),
    "read_list": lambda: (_text("list.txt", "list.txt 0\n"), {}),
    "read_packed": lambda: (_packed("tfrecord"), {}),
    "read_parquet": lambda: (_packed("parquet") + "/*.parquet", {}),
    "read_tar": lambda: (_tar(), {}),
    "read_text": lambda: (_text("a.txt", "a\n"), {}),
    "read_tfrecord": lambda: (_packed("tfrecord") + "/*.tfrecord", {}),
    "read_tokens": lambda: (_tokens(), {"length": 4, "dtype": "uint16"}),
}


def _text(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


def _packed(fmt: Any) -> str:
    ps.pack(ps.from_arrays({"a": np.arange(4)}), fmt, format=fmt, executor="threads")
    return str(fmt)


def _tar() -> str:
    with tarfile.open("a.tar", "w") as archive:
        member = tarfile.TarInfo("0.txt")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    return "a.tar"


def _tokens() -> str:
    np.arange(64, dtype=np.uint16).tofile("t.bin")
    return "t.bin"


@pytest.mark.parametrize("name", READ)
@pytest.mark.filterwarnings("ignore")
def test_an_argument_of_a_wrong_type_is_an_error_of_penstock(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "read_parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    monkeypatch.chdir(tmp_path)
    path, options = READ[name]()
    read = getattr(ps, name)
    first, *others = inspect.signature(read).parameters
    odd = []
    for argument in (first, *others):
        for value in WRONG:
            given = {first: path, **options, argument: value}
            try:
                repr(read(given.pop(first), **given))
            except (PenstockError, FileNotFoundError):
                continue
            except Exception as error:
                odd.append(f"{argument}={value!r}: {type(error).__name__}: {error}")
    assert odd == []


def test_a_spec_in_the_place_of_a_dtype_is_refused_with_the_dtype(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"a": 1}\n')
    refused = r"float32\[2\] is declared for 'a'\n  where: read_jsonl\n  fix:   declare the dtype alone, \{'a': 'float32'\}"
    with pytest.raises(PlanError, match=refused):
        ps.read_jsonl(tmp_path / "a", fields={"a": SPEC})
    with pytest.raises(PlanError, match=r"missing=3 is a int\n  where: read_csv\(\)\n  fix:   give missing a dict by column"):
        ps.read_csv(tmp_path / "a", missing=3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"columns=3 is a int\n  where: read_parquet\(\)\n  fix:   give columns a list of names"):
        ps.read_parquet(tmp_path / "a", columns=3)  # type: ignore[arg-type]
