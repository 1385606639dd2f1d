from __future__ import annotations

import pickle
from typing import Any

import pytest

from penstock import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_what_where_and_fix(kind: type[errors.PenstockError]) -> None:
    error = kind("4 is not 5", where="line 3", fix="count again")
    assert str(error) == "4 is not 5\n  where: line 3\n  fix:   count again"
    assert (error.what, error.where, error.fix) == ("4 is not 5", "line 3", "count again")
    assert isinstance(error, errors.PenstockError)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_survives_pickling_with_its_type_and_parts(kind: type[errors.PenstockError]) -> None:
    error = pickle.loads(pickle.dumps(kind("what", where="where", fix="fix")))
    assert type(error) is kind
    assert (error.what, error.where, error.fix) == ("what", "where", "fix")


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("arguments", [{}, {"where": "here"}, {"fix": "so"}])
def test_no_error_can_be_made_without_where_and_fix(kind: Any, arguments: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="missing"):
        kind("what", **arguments)


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("PlanError", ValueError),
        ("ListFileError", ValueError),
        ("DecodeError", ValueError),
        ("SpecError", ValueError),
        ("StopRaised", RuntimeError),
        ("FeedClosed", RuntimeError),
        ("FeedStalled", TimeoutError),
        ("StillRunning", RuntimeError),
        ("CoordinationError", RuntimeError),
        ("MissingExtra", ImportError),
        ("QueueClosed", RuntimeError),
        ("QueueTimeout", TimeoutError),
        ("QueueStarved", RuntimeError),
    ],
)
def test_an_error_is_also_of_the_builtin_kind_that_python_users_catch(name: str, builtin: type[Exception]) -> None:
    assert issubclass(getattr(errors, name), builtin)


@pytest.mark.parametrize(
    ("name", "parent"),
    [
        ("ListFileError", "SourceError"),
        ("LengthMismatch", "SourceError"),
        ("StateMismatch", "StateError"),
        ("StateDamaged", "StateError"),
        ("StateUnavailable", "StateError"),
    ],
)
def test_an_error_can_be_caught_by_its_branch(name: str, parent: str) -> None:
    assert issubclass(getattr(errors, name), getattr(errors, parent))


def test_the_drawn_tree_names_every_class_and_its_builtin_parent() -> None:
    drawing = errors.__doc__ or ""
    for kind in CLASSES:
        assert kind.__name__ in drawing
        for base in kind.__bases__:
            if base is not Exception and not issubclass(base, errors.PenstockError):
                assert f"{kind.__name__} ({base.__name__})" in drawing


def test_the_numbers_of_a_queue_error_travel_with_it() -> None:
    error = errors.QueueClosed("what", where="where", fix="fix")
    error.num_done, error.num_left = 3, 4
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.num_done, copy.num_left) == (3, 4)
