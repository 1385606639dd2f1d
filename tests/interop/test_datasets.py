"""Datasets of PyTorch, Hugging Face and Grain in front of from_source and from_stream: shuffled, resumed and named in errors alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from interop.resuming import resumed

import penstock as ps

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")]  # torchdata looks it up

COUNT = 300


def row(number: int, failing: int) -> dict[str, Any]:
    if number == failing:
        raise ValueError(f"number {number}")
    return {"x": np.int64(number)}


def of_torch(failing: int) -> Any:
    data = pytest.importorskip("torch.utils.data", reason="torch is not installed")

    class Rows(data.Dataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, index: int) -> Any:
            return row(index, failing)

    return Rows()


def of_hugging_face(failing: int) -> Any:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")

    def rows(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": [row(number, failing)["x"] for number in batch["x"]]}

    return datasets.Dataset.from_dict({"x": range(COUNT)}).with_transform(rows)


def of_grain(failing: int) -> Any:
    grain = pytest.importorskip("grain", reason="grain is not installed")
    return grain.MapDataset.range(COUNT).map(lambda number: row(int(number), failing))


@pytest.mark.parametrize("make", [of_torch, of_hugging_face, of_grain])
def test_a_dataset_is_shuffled_globally_and_goes_on_exactly_and_an_error_names_its_element(make: Callable[[int], Any]) -> None:
    whole = resumed(lambda: ps.from_source(make(-1)).shuffle(seed=3).batch(7).repeat(2), (0, 1, 21, 60))
    assert sorted(number for batch in whole[: len(whole) // 2] for number in batch) == list(range(COUNT))
    failing = make(77)
    ds = ps.from_source(failing).batch(10)
    with pytest.raises(ValueError, match="number 77") as caught, ds.feed(executor="threads", num_workers=3) as feed:
        list(feed)
    assert any(f"index 77 (element 77 of {type(failing).__name__})" in note for note in caught.value.__notes__)
    with ds.feed(on_error=ps.Skip(1)) as feed:
        assert [int(number) for batch in feed for number in batch["x"]] == [number for number in range(COUNT) if number != 77]


def iterable_of_torch() -> ps.Dataset:
    data = pytest.importorskip("torch.utils.data", reason="torch is not installed")

    class Stream(data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[int]:
            assert data.get_worker_info() is None
            return iter(range(COUNT))

    return ps.from_stream(Stream(), fast_forward=True).repeat(2)


def loader_of_torchdata() -> ps.Dataset:
    loaders = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    return ps.from_stream(loaders.StatefulDataLoader(list(range(COUNT)), batch_size=7, collate_fn=np.array))


def iterable_of_hugging_face() -> ps.Dataset:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    stream = datasets.Dataset.from_dict({"x": range(COUNT)}).to_iterable_dataset(num_shards=4).with_format("numpy")
    return ps.from_stream(stream.map(lambda row: {"x": row["x"]}), length=COUNT).repeat(2)


def iterable_of_grain(change: Callable[[Any], Any] = lambda ds: ds) -> ps.Dataset:
    grain = pytest.importorskip("grain", reason="grain is not installed")
    return ps.from_stream(change(grain.MapDataset.range(COUNT).shuffle(seed=1).to_iter_dataset()))


def filtered_by_grain() -> ps.Dataset:
    return iterable_of_grain(lambda ds: ds.filter(lambda number: number % 3 == 0))


def batched_by_grain() -> ps.Dataset:
    return iterable_of_grain(lambda ds: ds.batch(4))


def loader_of_grain() -> ps.Dataset:
    grain = pytest.importorskip("grain", reason="grain is not installed")
    sampler = grain.samplers.IndexSampler(num_records=COUNT, num_epochs=1, shard_options=grain.sharding.NoSharding(), shuffle=True, seed=3)
    return ps.from_stream(grain.DataLoader(data_source=grain.sources.RangeDataSource(0, COUNT, 1), sampler=sampler, worker_count=0))


@pytest.mark.parametrize(
    ("made", "step", "passes"),
    [
        (iterable_of_torch, 1, 2),
        (loader_of_torchdata, 1, 1),
        (iterable_of_hugging_face, 1, 2),
        (iterable_of_grain, 1, 1),
        (filtered_by_grain, 3, 1),
        (batched_by_grain, 1, 1),
        (loader_of_grain, 1, 1),
    ],
)
def test_an_iterable_goes_on_exactly_where_it_was(made: Callable[[], ps.Dataset], step: int, passes: int) -> None:
    whole = resumed(made, (0, 1, 40, 299, 300, 400))
    numbers = [number for item in whole for number in np.atleast_1d(item).tolist()]
    assert sorted(numbers) == sorted([*range(0, COUNT, step)] * passes)
