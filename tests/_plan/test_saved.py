from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock._plan.saved import FORMAT, checked, sealed
from penstock.errors import StateDamaged, StateMismatch

PLAN = ["from_arrays(int64[], 12 elements)", "shuffle(seed=7)", "batch(4)"]
DATASET = [{"kind": "arrays", "count": 12, "sample_crc32": 77}]


def state(**changes: Any) -> dict[str, Any]:
    record = {
        "penstock_state": FORMAT,
        "version": "0.1.0",
        "plan": PLAN,
        "dataset": DATASET,
        "shard": [],
        "step": 3,
        "position": {"source": [0, 3], "done": [], "again": [], "folds": [[0, 0, [1, []], 0, 0]]},
        "global": None,
    }
    return sealed({**record, **changes})


def damaged(given: Any) -> StateDamaged:
    with pytest.raises(StateDamaged) as caught:
        checked(given)
    assert caught.value.where == "load_state_dict()"
    return caught.value


@pytest.mark.parametrize(
    "form", [lambda given: given, json.dumps, lambda given: json.dumps(given).encode(), lambda given: bytearray(json.dumps(given), "ascii")]
)
def test_a_state_comes_back_as_it_was_from_a_dict_and_from_its_json(form: Any) -> None:
    assert checked(form(state())) == state()


def test_every_flipped_bit_of_a_states_text_is_found() -> None:
    text = json.dumps(state()).encode()
    assert checked(text) == state()
    for place in range(len(text)):
        for bit in range(8):
            flipped = bytearray(text)
            flipped[place] ^= 1 << bit
            try:
                found = checked(bytes(flipped))
            except (StateDamaged, StateMismatch):
                continue
            assert found == state(), (place, bit)


@pytest.mark.parametrize("given", [b"", "", "not json", b"\x80\x04K\x01.", "[" * 100_000, b"\xff\xfe\x00"])
def test_what_is_not_json_is_refused_and_never_executed(given: Any) -> None:
    error = damaged(given)
    assert "the state is not JSON" in error.what
    assert "older checkpoint" in error.fix
    assert "what json.load() or torch.load() returns" in error.fix


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "a NoneType None"),
        (7, "a int 7"),
        ([1, 2], "a list [1, 2]"),
        ({"model": 1}, "a dict {'model': 1}"),
        ("{}", "a dict {}"),
        ("[]", "a list []"),
        ({"x": "y" * 500}, "yyy..."),
    ],
)
def test_what_is_no_state_at_all_is_refused_and_shown(given: Any, words: str) -> None:
    error = damaged(given)
    assert error.what.startswith("this is no penstock state but ")
    assert words in error.what
    assert len(error.what) < 200
    assert "what state_dict() returned" in error.fix


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with `change` made of each of its numbers, texts and lists."""
    if isinstance(value, dict):
        return {name: mapped(inner, change) for name, inner in value.items()}
    return change([mapped(inner, change) for inner in value] if isinstance(value, list) else value)


def is_int(value: Any) -> bool:
    return type(value) is int


CARRIERS: dict[str, Callable[[Any], Any]] = {
    "scalars of NumPy": lambda s: mapped(s, lambda one: np.int64(one) if is_int(one) else one),
    "arrays without dimensions": lambda s: mapped(s, lambda one: np.asarray(one) if is_int(one) else one),
    "arrays for lists of numbers": lambda s: mapped(
        s, lambda one: np.asarray(one) if isinstance(one, list) and one and all(map(is_int, one)) else one
    ),
    "tuples for lists": lambda s: mapped(s, lambda one: tuple(one) if isinstance(one, list) else one),
    "floats": lambda s: mapped(s, lambda one: float(one) if is_int(one) else one),
    "without what is None or empty": lambda s: {name: value for name, value in s.items() if value not in (None, [])},
    "the checksum as a text": lambda s: {**s, "crc32": str(s["crc32"])},
    "an array of its JSON": lambda s: np.array(json.dumps(s)),
    "bytes of its JSON in an array": lambda s: np.frombuffer(json.dumps(s).encode(), np.uint8),
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_what_checkpoints_make_of_a_state_is_the_state_that_was_saved(carrier: str) -> None:
    assert checked(CARRIERS[carrier](state())) == state()
    with pytest.raises((StateDamaged, StateMismatch)):
        checked(CARRIERS[carrier]({**state(), "step": state()["step"] + 1}))


@pytest.mark.parametrize("key", sorted(set(state()) - {"penstock_state", "global", "shard"}))  # those two are None and empty
def test_a_missing_part_is_named(key: str) -> None:
    cut = state()
    del cut[key]
    assert damaged(cut).what == f"the state lacks {key}"


@pytest.mark.parametrize("number", [0, FORMAT + 1, 99, None, "1"])
def test_another_format_is_refused_with_both_numbers_and_the_version_that_wrote_it(number: Any) -> None:
    with pytest.raises(StateMismatch) as caught:
        checked(state(penstock_state=number, version="7.0.0"))
    assert f"format {number!r}" in caught.value.what
    assert "written by penstock '7.0.0'" in caught.value.what
    assert f"reads formats 1, 2, {FORMAT}" in caught.value.what
    assert "resume with the penstock version that wrote it" in caught.value.fix


OLD_POSITION = {"folded": True, "source": [0, 3], "done": [[], [[4, [0]]]], "sequencers": [[0, 0, [1, []], 0, 0]]}


def test_a_state_has_the_position_of_its_own_format() -> None:
    for number in (1, 2):
        old = state(penstock_state=number, position=OLD_POSITION)
        assert checked(old) == old
        assert "position.done is [], not a list of 2" in damaged(state(penstock_state=number)).what
    assert "position" in damaged(state(position=OLD_POSITION)).what
