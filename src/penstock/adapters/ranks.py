"""Which rank of how many this process is, and whether all ranks run the same plan from the same place."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from penstock._contracts.element import map_leaves
from penstock.errors import PlanError

_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPICH", "PMI_RANK", "PMI_SIZE"),
)
"""A launcher, and the variables that it sets in each process. Not SLURM_NTASKS: it stands in the one process of a batch script too."""


def current_rank() -> tuple[int, int]:
    """Return (rank, number of ranks): of torch.distributed, JAX or Ray Train where they run, else of the environment, else (0, 1).

    Raises:
        PlanError: a launcher's variables are incomplete or no numbers.
    """
    group = _torch_group()
    if group is not None:
        return group.get_rank(), group.get_world_size()
    jax = _jax_processes()
    if jax is not None:
        return jax.process_index(), jax.process_count()
    return _ray_train_rank() or rank_of_environment(os.environ)


def rank_of_environment(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return (rank, number of ranks) as the first launcher says whose variables are there; (0, 1) where there are none.

    Raises:
        PlanError: one of a launcher's two variables is missing, or they are no numbers.
    """
    for launcher, rank, count in _LAUNCHERS:
        values = [environment.get(rank), environment.get(count)]
        if values == [None, None] or (launcher == "srun" and values[1] is None):
            continue
        try:
            numbers = [int(value) for value in values if value is not None]
            if len(numbers) == 2 and 0 <= numbers[0] < numbers[1]:
                return numbers[0], numbers[1]
        except ValueError:
            pass
        raise PlanError(
            f"{rank}={values[0]} with {count}={values[1]} in the environment, which {launcher} sets, is no rank",
            where="shard_by_rank()",
            fix=f"start the program with {launcher}, set both variables, or give rank= and num_ranks=",
        )
    return 0, 1


def unsharded_notice() -> str:
    """Say that each rank gets everything of a plan without a shard; "" where this process is alone."""
    try:
        rank, count = current_rank()
    except PlanError:  # half a rank in the environment is no business of a plan that does not ask
        return ""
    if count == 1:
        return ""
    return (
        f"this process is rank {rank} of {count}, and the pipeline has no shard_by_rank(): each rank trains on everything, unless the "
        "source gives it a part. Call shard_by_rank() before batch()"
    )


def valid_rows(batch: Any) -> Any:
    """Return a batch of `shard_by_rank(even="mask")` without its padded rows and without the field `valid`: it may have no row left.

    A feed does so with `ps.Torch(transform=valid_rows)`.
    """
    valid = batch["valid"]
    rows = {key: value for key, value in batch.items() if key != "valid"}
    if bool(valid.all()):
        return rows
    places = np.flatnonzero(valid.cpu() if hasattr(valid, "cpu") else valid)  # none for the one `valid` of a whole batch
    return map_leaves(lambda leaf: leaf[places] if getattr(leaf, "ndim", 0) else leaf, rows)


def gatherer() -> Callable[[Any], list[Any]] | None:
    """Return what gives each rank the objects of all, in the order of the ranks; None where this process is alone. All must call it."""
    group = _torch_group()
    if group is not None and group.get_world_size() > 1:

        def gather(own: Any) -> list[Any]:
            out: list[Any] = [None] * group.get_world_size()
            group.all_gather_object(out, own)
            return out

        return gather
    jax = _jax_processes()
    return None if jax is None or jax.process_count() == 1 else _gather_with_jax


def _gather_with_jax(own: Any) -> list[Any]:
    import json

    from jax.experimental import multihost_utils

    text = json.dumps(own).encode()
    sizes = multihost_utils.process_allgather(np.array(len(text)))
    padded = np.frombuffer(text.ljust(int(sizes.max())), np.uint8)
    return [json.loads(bytes(row)) for row in np.asarray(multihost_utils.process_allgather(padded))]


def comparison(rank: tuple[int, int] | None) -> Callable[[Sequence[str]], None] | None:
    """Return what compares with the other ranks what one of them is about to run; None where this process is alone."""
    gather = None if rank is None else gatherer()
    return None if rank is None or gather is None else lambda own: agree(gather, own, rank)


def agree(gather: Callable[[Any], list[Any]], own: Sequence[str], rank: tuple[int, int]) -> None:
    """Compare what all ranks are about to run, each thing a line, and the part that each has. Blocks until all ranks have called it.

    Raises:
        PlanError: on every rank, with the first difference between rank 0 and another one, or the part that two ranks have.
    """
    every = gather([list(own), list(rank)])
    (first, (_, num_ranks)), where = every[0], "shard_by_rank(), the first batch of a feed"
    for number, (lines, (_, count)) in enumerate(every):
        if count != num_ranks:
            lines, first = [*lines, f"{count} ranks"], [*first, f"{num_ranks} ranks"]
        different = next(((mine, other) for mine, other in zip_longest(first, lines) if mine != other), None)
        if different is not None:
            raise PlanError(
                f"rank 0 runs another pipeline than rank {number}: {different[0] or 'nothing'!r} is {different[1] or 'nothing'!r} there",
                where=where,
                fix="make the same dataset with the same arguments on every rank, and load states that were saved after the same step",
            )
    parts = [part for _, (part, _) in every]
    if len(every) != num_ranks or sorted(parts) != list(range(num_ranks)):
        raise PlanError(
            f"{len(every)} processes have the parts {parts} of {num_ranks} ranks: some elements would come twice, or never",
            where=where,
            fix="call shard_by_rank() without rank= and num_ranks=, or give each process another rank",
        )


def _torch_group() -> Any:
    """Return torch.distributed where its default group is initialized; nothing is imported for it."""
    group = sys.modules.get("torch.distributed")
    return group if group is not None and group.is_available() and group.is_initialized() else None


def _ray_train_rank() -> tuple[int, int] | None:
    """Return the rank of a worker of Ray Train; None elsewhere. Nothing is imported for it."""
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        rank, count = context.get_world_rank(), context.get_world_size()
    except RuntimeError:  # no worker of Ray Train
        return None
    return None if rank is None or count is None else (rank, count)


def _jax_processes() -> Any:
    """Return JAX where jax.distributed is initialized; nothing is imported for it."""
    jax = sys.modules.get("jax")
    return jax if jax is not None and jax.distributed.is_initialized() else None
