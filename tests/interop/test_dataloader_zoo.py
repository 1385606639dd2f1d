"""ps.from_dataloader under one law: each program of the zoo gets what its loader gives, the same in every run, and after a resume."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feeds import resumed

import penstock as ps

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:This DataLoader will create")]  # more than the CPUs here

from interop.loader_zoo import PROGRAMS, write_files  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from penstock.adapters.loaders import LoaderOrder, indices_of  # noqa: E402

NAMES = list(PROGRAMS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("zoo"))


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(7)


def same(one: Any, other: Any, *, values: bool = True) -> bool:
    """Tell whether two batches are of the same types, structure and dtypes, and have the same values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        alike = (one.dtype, one.shape, one.layout) == (other.dtype, other.shape, other.layout)
        return alike and (not values or torch.equal(one.to_dense(), other.to_dense()))
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and (not values or np.array_equal(one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key], values=values) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(*pair, values=values) for pair in zip(one, other, strict=True))
    return not values or bool(one == other)


def all_same(some: list[Any], others: list[Any], *, values: bool = True) -> bool:
    return len(some) == len(others) and all(same(*pair, values=values) for pair in zip(some, others, strict=True))


def let_go(loader: Any) -> None:
    """Close the file that a dataset has opened."""
    close = getattr(getattr(loader.dataset, "handle", None), "close", None)
    if close is not None:
        close()


def recorded(loader: Any, epoch: int) -> Any:
    """Return a loader with the indices of an epoch of a feed, which the loader itself then gives in that order."""
    torch.manual_seed(7)
    indices = [indices_of(draw) for draw in LoaderOrder(loader).open(epoch)]
    order: dict[str, Any] = {"batch_sampler": indices}
    if loader.batch_sampler is None:
        order = {"batch_size": None, "sampler": indices}
    return DataLoader(loader.dataset, collate_fn=loader.collate_fn, **order)


@pytest.mark.parametrize("name", NAMES)
def test_each_epoch_is_what_the_loader_gives_for_the_same_indices_and_a_resume_goes_on_in_it(name: str, folder: Path) -> None:
    make, draws = PROGRAMS[name]
    loader = make(folder, 0)
    before = torch.get_rng_state(), np.random.get_state(legacy=False)
    with ps.from_dataloader(loader).feed() as feed:
        epochs = [list(feed), list(feed)]
    assert torch.equal(before[0], torch.get_rng_state())
    assert str(before[1]) == str(np.random.get_state(legacy=False))
    for number, epoch in enumerate(epochs):
        assert all_same(epoch, list(recorded(loader, number)), values=not draws)
    cut = len(epochs[0]) // 2
    torch.manual_seed(7)
    with ps.from_dataloader(loader).feed() as feed:
        assert all_same(list(islice(feed, cut)), epochs[0][:cut])
        state = json.loads(json.dumps(feed.state_dict()))
    let_go(loader)
    with ps.from_dataloader(make(folder, 1 + NAMES.index(name) % 3)).feed() as feed:
        feed.load_state_dict(state)
        assert all_same(list(feed), epochs[0][cut:])
        assert all_same(list(feed), epochs[1])


@pytest.mark.parametrize("name", ["numpy.random", "MixUp in collate_fn"])
def test_any_number_of_workers_gives_the_same_epochs(name: str, folder: Path) -> None:
    def run(num_workers: int) -> list[Any]:
        torch.manual_seed(7)
        with ps.from_dataloader(PROGRAMS[name].make(folder, num_workers)).feed() as feed:
            return [*feed, *feed]

    want = run(0)
    assert all(all_same(run(num_workers), want) for num_workers in (1, 2, 3))


def test_a_state_saved_by_worker_processes_goes_on_in_the_program(folder: Path) -> None:
    make, _ = PROGRAMS["weighted, with replacement"]
    with ps.from_dataloader(make(folder, 2)).feed() as feed:
        list(feed)
        epoch = iter(feed)
        next(epoch)
        state = json.loads(json.dumps(feed.state_dict()))
        rest = list(epoch)
    torch.manual_seed(8)  # the state says the seed
    assert all_same(resumed(ps.from_dataloader(make(folder, 0)), state), rest)


def test_another_seed_gives_another_order(folder: Path) -> None:
    def labels(seed: int, name: str) -> list[int]:
        torch.manual_seed(seed)
        with ps.from_dataloader(PROGRAMS[name].make(folder, 0)).feed() as feed:
            return [int(label) for _, labels in feed for label in labels]

    assert labels(7, "torch.rand") == labels(7, "torch.rand") != labels(8, "torch.rand")
    assert labels(7, "a loader's generator") == labels(8, "a loader's generator")
