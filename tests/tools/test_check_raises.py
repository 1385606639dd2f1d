from __future__ import annotations

from pathlib import Path

import pytest
from tools.files import write

from check_raises import main

ERRORS = "class PenstockError(Exception):\n    pass\n\n\nclass PlanError(PenstockError, ValueError):\n    pass\n"


def check(root: Path, text: str, name: str = "dataset.py") -> int:
    write(root, "src/penstock/errors.py", ERRORS)
    write(root, f"src/penstock/{name}", text)
    return main([str(root)])


@pytest.mark.parametrize(
    "text",
    [
        'raise PlanError("what", where="here", fix="do")\n',
        'raise errors.PlanError(f"{x} is bad", where=place, fix=advice) from error\n',
        'raise PlanError(what="what", where="here", fix="do")\n',
        "try:\n    f()\nexcept OSError as error:\n    raise error\n",
        "try:\n    f()\nexcept OSError:\n    raise\n",
        "raise missing_extra('image')\n",
        "class A:\n    def __next__(self):\n        raise StopIteration\n",
        "class A:\n    async def __anext__(self):\n        raise StopAsyncIteration\n",
        "def __getattr__(name):\n    raise AttributeError(name)\n",
    ],
)
def test_a_complete_error_of_ours_and_what_the_language_asks_for_pass(tmp_path: Path, text: str) -> None:
    assert check(tmp_path, text) == 0


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ("PlanError('what')", "where=, fix="),
        ("PlanError('what', where='here')", "fix="),
        ("PlanError(where='here', fix='do')", "what"),
        ("PlanError('what', where='', fix='  ')", "where=, fix="),
        ("PlanError('what', where=None, fix='do')", "where="),
        ("errors.PlanError(*parts, where='here', fix='do')", "what"),
        ("PlanError('what', **rest)", "where=, fix="),
    ],
)
def test_an_error_that_says_too_little_is_named_with_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], call: str, missing: str
) -> None:
    assert check(tmp_path, f"x = 1\nraise {call}\n") == 1
    assert f"src/penstock/dataset.py:2: PlanError does not give {missing}\n" in capsys.readouterr().out


def test_an_error_that_is_built_and_raised_elsewhere_is_checked_too(tmp_path: Path) -> None:
    assert check(tmp_path, "def bad():\n    return PlanError('what')\n") == 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("raise ValueError('x')\n", "ValueError"),
        ("raise NotImplementedError\n", "NotImplementedError"),
        ("def work():\n    raise StopIteration\n", "StopIteration"),
        ("raise KeyboardInterrupt()\n", "KeyboardInterrupt"),
    ],
)
def test_an_exception_of_python_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, name: str) -> None:
    assert check(tmp_path, text) == 1
    assert f"raises {name}, which is not ours" in capsys.readouterr().out


@pytest.mark.parametrize("handler", ["except:", "except Exception:", "except (OSError, BaseException) as error:"])
def test_a_broad_handler_passes_only_when_it_ends_in_raise(tmp_path: Path, capsys: pytest.CaptureFixture[str], handler: str) -> None:
    assert check(tmp_path, f"try:\n    f()\n{handler}\n    note()\n    raise\n") == 0
    assert check(tmp_path, f"try:\n    f()\n{handler}\n    note()\n") == 1
    assert "dataset.py:3: a broad `except` that does not end in `raise`" in capsys.readouterr().out


def test_the_worker_loop_may_keep_every_error_and_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, "try:\n    f()\nexcept BaseException as error:\n    keep(error)\n", name="_workers/threads.py") == 0
    assert "src/penstock/_workers/threads.py:3: broad handler, allowed here" in capsys.readouterr().out


def test_a_narrow_handler_may_end_as_it_likes(tmp_path: Path) -> None:
    assert check(tmp_path, "try:\n    f()\nexcept (OSError, KeyError):\n    pass\n") == 0
