"""A dataset as one with positions: what only reading tells is counted, or read once into a file, before it is packed."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Literal

from penstock._contracts.event import ElementLost, Event
from penstock._contracts.policy import Policy
from penstock._plan import node as plan
from penstock._plan.describe import describe
from penstock._plan.identity import identity
from penstock._plan.length import is_indexable, never_ends, walk
from penstock.dataset import Dataset
from penstock.errors import PackError, PlanError
from penstock.formats.sizes import size_words
from penstock.packing.disk import Disk
from penstock.packing.inputs import check_apart
from penstock.packing.splitting import ELEMENTWISE, counted, for_part, policy_of
from penstock.packing.ticks import bar
from penstock.sources.kept import Keeper

__all__ = ["Positioned", "lost_record", "positioned"]

_PREFIX, _SUFFIX = ".penstock-", ".kept"
_LOOK_BYTES = 64 << 20
_LEFT_FREE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Positioned:
    """A dataset with positions.

    Attributes:
        dataset: the one that was given, or the same over elements that were read into a file.
        below: the part of its plan that was read for that; None for nothing.
        lost: a record of each element that was left out meanwhile.
    """

    dataset: Dataset
    below: plan.Node | None = None
    lost: tuple[dict[str, Any], ...] = ()


@contextmanager
def positioned(
    dataset: Any,
    folder: str | None,
    *,
    on_error: Policy | None,
    variants: int,
    num_threads: int,
    progress: bool | Literal["always"],
    disk: Disk,
) -> Iterator[Positioned]:
    """Give a dataset positions for as long as the `with` block takes. One that has them is given back as it is.

    What can be read again from its beginning is counted. Of anything else the part below the last maps, filters, flat_maps and unbatches
    is read here, once, into a file that is gone behind the block. A kill leaves the file there; the next call for that folder removes it.

    Args:
        dataset: it must end.
        folder: for the file; made if it is not there. None for one of the system's.
        on_error: what is done about elements that fail while they are read; None for the dataset's own policy.
        variants: passes that will be made over it.
        num_threads: for operators in the part that is read.
        progress: whether to show how many were read, as for `pack`.
        disk: makes the folder.

    Raises:
        PlanError: it is no dataset, is endless, or its random numbers would be the same in all variants.
        SpecError: an element cannot be kept: it has no pickle.
        PackError: the disk is nearly full.
        OSError: as the system says it.
        BaseException: what reading it raises.
    """
    if not isinstance(dataset, Dataset):
        raise PlanError(f"{dataset!r} is not a Dataset", where="pack()", fix="wrap it with ps.from_source or ps.from_arrays")
    root = counted(dataset._root)
    below, above = _only_read(root)
    if below is None:
        yield Positioned(dataset=Dataset(root, dataset._options))
        return
    _check(below, variants)
    policy = policy_of(dataset._options, on_error)
    if folder is not None:
        check_apart(root, folder)
    with _new_file(folder, disk) as file:
        keeper, lost = _kept(Dataset(below, dataset._options), file, policy, num_threads, progress)
        whole: plan.Node = plan.Read(source=keeper.finish(identity(below, "")))
        for node in above:
            whole = replace(node, child=whole)  # type: ignore[arg-type]
        yield Positioned(dataset=Dataset(whole, dataset._options), below=below, lost=tuple(lost))


def lost_record(event: ElementLost) -> dict[str, Any]:
    """Return what a manifest says of an element that was left out."""
    record = {"where": event.where, "stage": event.stage, "error": type(event.error).__name__, "text": str(event.error)}
    return {"key": [list(key) for key in event.keys], **record, "retries": event.retries}


def _only_read(root: plan.Node) -> tuple[plan.Node | None, list[plan.Node]]:
    """Return the part of a plan that has no positions, None where all has them; and what stands above it, from below."""
    above: list[plan.Node] = []
    while isinstance(root, (*ELEMENTWISE, plan.Prefetch)) and not is_indexable(root):
        above.insert(0, root)
        root = root.child
    return (None if is_indexable(root) else root), above


def _check(below: plan.Node, variants: int) -> None:
    if never_ends(below):
        raise PlanError("an endless dataset cannot be packed", where="pack()", fix="give repeat a count, use take(n), or variants=K")
    drawn = next((node for node in walk(below) if isinstance(node, plan.Map) and node.random), None)
    if variants > 1 and drawn is not None:
        raise PlanError(
            f"{describe(drawn)} draws random numbers in a part of the plan that is read once, for all variants",
            where=f"pack(variants={variants})",
            fix=f"put that map above {describe(below)}, or leave variants= out",
        )


def _kept(dataset: Dataset, file: BinaryIO, policy: Policy, num_threads: int, progress: Any) -> tuple[Keeper, list[dict[str, Any]]]:
    """Read all elements into a file; return what holds them, and what was left out."""
    keeper = Keeper(file, describe(dataset._root))
    lost: list[dict[str, Any]] = []

    def listen(event: Event) -> None:
        if isinstance(event, ElementLost):
            lost.append(lost_record(event))

    looked_at = 0
    fixed: dict[str, Any] = {"ordered": True, "quarantine": None, "record": None, "replay": None, "on_error": for_part(policy)}
    with (
        bar(progress, "reading", None) as advance,
        dataset.feed(listeners=[listen], executor="threads", num_workers=num_threads, **fixed) as feed,
    ):
        feed.warns_when_empty = False
        for element in feed:
            keeper.add(element)
            if keeper.num_bytes >= looked_at + _LOOK_BYTES:
                looked_at = keeper.num_bytes
                _check_room(file.name, keeper)
            if advance is not None:
                advance(1)
    return keeper, lost


def _check_room(path: str, keeper: Keeper) -> None:
    """Stop before the disk is full: an endless stream would fill it, and others need it too.

    Raises:
        PackError: less than a twentieth of it is free.
    """
    status = os.statvfs(path)
    if status.f_bavail < _LEFT_FREE * status.f_blocks:
        raise PackError(
            f"{size_words(keeper.num_bytes)} of what can only be read once were kept to be packed, and the disk is nearly full: "
            f"{size_words(status.f_bavail * status.f_frsize)} are free",
            where=f"pack() in {os.path.dirname(path)!r}",
            fix="make room; if the stream has no end, give it one with take(n)",
        )


@contextmanager
def _new_file(folder: str | None, disk: Disk) -> Iterator[BinaryIO]:
    """Make a file for elements, for its owner alone; it is gone at the end, and the folder too if it is new and nothing is in it.

    A lock that ends with the process tells the next one whether somebody still needs it.
    """
    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
        elif not os.path.isdir(folder):
            disk.make_folder(folder)
            stack.callback(_remove_empty, folder)
        _remove_left(folder)
        descriptor, path = tempfile.mkstemp(dir=folder, prefix=_PREFIX, suffix=_SUFFIX)
        stack.callback(_remove, path)  # also when it cannot be closed, because the disk is full
        file = stack.enter_context(open(path, "wb", opener=lambda *_: descriptor))
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file


def _remove_left(folder: str) -> None:
    """Remove the files that killed processes left."""
    for name in os.listdir(folder):
        if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
            continue
        path = os.path.join(folder, name)
        with suppress(OSError), open(path, "rb") as file:  # BlockingIOError: it is in use
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _remove_empty(folder: str) -> None:
    with suppress(OSError):  # what was packed is in it
        os.rmdir(folder)
