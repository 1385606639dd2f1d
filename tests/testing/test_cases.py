from __future__ import annotations

import numpy as np

import penstock as ps
from penstock.sources import ArraySource, GeneratorSource
from penstock.testing.executor import as_dataset, random_datasets, small_datasets
from penstock.testing.runs import plain


def test_the_small_datasets_give_whole_numbers_and_run_again() -> None:
    for name, dataset in small_datasets().items():
        if name != "no element":
            elements = list(dataset)
            assert elements == list(dataset), name
            assert all(int(element) == element for element in elements)


def test_random_datasets_are_the_same_for_the_same_seed_and_of_many_kinds() -> None:
    first = [repr(dataset) for dataset in random_datasets(200, 1)]
    assert first == [repr(dataset) for dataset in random_datasets(200, 1)]
    assert first != [repr(dataset) for dataset in random_datasets(200, 2)]
    text = "\n".join(first)
    for word in (
        "from_arrays",
        "from_generator",
        "filter",
        "flat_map",
        "shuffle",
        "shard",
        "repeat",
        "padded_batch",
        "concatenate",
        "prefetch",
    ):
        assert word in text


def test_a_source_of_any_kind_becomes_a_dataset() -> None:
    dataset = ps.from_source([1])
    assert as_dataset(dataset) is dataset
    for source in ([0, 1, 2], ArraySource(np.arange(3)), GeneratorSource(lambda: iter(range(3)))):
        assert [plain(element) for element in as_dataset(source)] == [0, 1, 2]
