from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _plan.test_node import KINDS

import penstock as ps
from penstock._plan.facts import is_indexable

PAGE = (Path(__file__).parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")]
SIGNATURES = [row[0].strip("`") for row in ROWS]
NAMES = [signature.partition("(")[0] for signature in SIGNATURES]

CALLS: dict[str, Any] = {
    "map": (abs,),
    "filter": (bool,),
    "flat_map": (list,),
    "shard": (2, 0),
    "take": (2,),
    "skip": (2,),
    "batch": (2,),
    "padded_batch": (2,),
    "ragged_batch": (2,),
    "window": (2,),
    "prefetch": (2,),
    "bucket_by_length": (len, [2], [2, 2]),
    "batch_by_cost": (int, 8),
    "pack_sequences": (8,),
    "rejection_resample": (int, [1, 1]),
    "interleave": (lambda number: ps.from_arrays(np.arange(2)),),
}
OTHER_NAMES = {
    "mix": "sample_from_datasets",
    "bucket_by_length": "bucket_by_sequence_length",
    "batch_by_cost": "none",
    "pack_sequences": "none",
    "shard_by_rank": "none",
    "as_completed": "none",
}


@pytest.mark.parametrize("signature", SIGNATURES)
def test_each_row_is_a_method_with_exactly_these_arguments(signature: str) -> None:
    name = signature.partition("(")[0]
    parameters = list(inspect.signature(getattr(ps.Dataset, name)).parameters.values())[1:]
    words = [str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in parameters]
    keyword_only = [place for place, parameter in enumerate(parameters) if parameter.kind is parameter.KEYWORD_ONLY]
    if keyword_only and not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        words.insert(keyword_only[0], "*")
    assert f"{name}({', '.join(words)})" == signature


def test_there_is_a_row_for_every_operator() -> None:
    nodes = {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in KINDS} - {"pick", "read", "read_stream"}
    assert nodes | {"shard_by_rank", "batch_by_cost", "pack_sequences"} == set(NAMES)  # of the same node as shard, and beside known numbers
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_what_the_table_calls_random_access_can_be_indexed_and_what_is_stateful_cannot(row: list[str]) -> None:
    name = row[0].strip("`").partition("(")[0]
    dataset = ps.from_arrays(np.arange(6))
    arguments = (dataset,) if name in ("zip", "concatenate", "mix") else CALLS.get(name, ())
    result = getattr(dataset, name)(*arguments)
    assert is_indexable(result._root) == (row[1] != "stateful")
    behind = dataset.filter(bool)
    if name == "shuffle":
        assert dataset.filter(bool).shuffle(3) is not None
    if name == "shuffle" or row[1] == "random access":
        with pytest.raises(ps.errors.PlanError) as caught:
            getattr(behind, name)(*arguments)
        assert f"{name} needs positions that are known before reading" in caught.value.what
    else:
        assert getattr(behind, name)(*arguments) is not None


def test_every_operator_that_is_named_like_tf_datas_has_its_name() -> None:
    assert [row[4].strip("`") for row in ROWS] == [OTHER_NAMES.get(name, name) for name in NAMES]
