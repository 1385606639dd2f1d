"""A dataset as one with positions: what only reading tells is counted, or read once into a file, before it is packed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from penstock._contracts.event import ElementLost, Event
from penstock._contracts.options import Options
from penstock._contracts.policy import Policy
from penstock._plan import node as plan
from penstock._plan.length import is_indexable
from penstock.dataset import Dataset
from penstock.errors import PackError, PlanError
from penstock.formats.sizes import size_words
from penstock.packing.disk import Disk
from penstock.packing.inputs import changed, check_apart, look
from penstock.packing.keeping import file_in
from penstock.packing.manifest import lost_record
from penstock.packing.splitting import check_ends, counted, for_part, leaving_out, policy_of
from penstock.packing.ticks import Watching
from penstock.sources.kept import Keeper, KeptSource

__all__ = ["Positioned", "positioned"]

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
    watching: Watching,
    disk: Disk,
    check: Callable[[Dataset], object],
) -> Iterator[Positioned]:
    """Give a dataset positions for as long as the `with` block takes. One that has them is given back as it is.

    What can be read again from its beginning is counted. Of anything else a part is read here, once, into a file that is gone behind the
    block: up to the last operator that is not elementwise, and to the last random map, unless it is the source alone, whose elements
    keep their numbers. A kill leaves the file there; the next call for that folder removes it.

    Args:
        dataset: it must end.
        folder: for the file; made if it is not there, and locked while elements are read. None for one of the system's.
        on_error: what is done about elements that fail while they are read; None for the dataset's own policy.
        variants: passes that will be made over it.
        num_threads: for operators in the part that is read, unless the dataset says that it is read inline.
        watching: shows how many were read.
        disk: makes the folder.
        check: called before anything is read, with a dataset that has all but the elements; raises what speaks against packing it.

    Raises:
        PlanError: it is no dataset, is endless, or would be the same in all variants.
        SpecError: an element cannot be kept: it has no pickle. No policy leaves it out.
        SourceError: an input file changed meanwhile.
        PackError: the disk is nearly full; another packer is at work in the folder.
        OSError: as the system says it.
        BaseException: what reading it raises.
    """
    if not isinstance(dataset, Dataset):
        raise PlanError(f"{dataset!r} is not a Dataset", where="pack()", fix="wrap it with ps.from_source or ps.from_arrays")
    root = leaving_out(counted(dataset._root))
    below, above = _only_read(root)
    if below is None:
        yield Positioned(dataset=Dataset(root, dataset._options))
        return
    _check(below, variants)
    policy = policy_of(dataset._options, on_error)
    check(_over(KeptSource.none(below.line()), above, dataset._options))
    if folder is not None:
        check_apart(root, folder)
    with file_in(folder, disk) as (file, done_writing):
        source, lost = _kept(Dataset(below, dataset._options), file, policy, num_threads, watching)
        done_writing()
        yield Positioned(dataset=_over(source, above, dataset._options), below=below, lost=tuple(lost))


def _only_read(root: plan.Node) -> tuple[plan.Node | None, list[plan.Node]]:
    """Return the part of a plan that is to be read, None where all has positions; and what stands above it, from below.

    Random numbers are drawn by an element's number in its source: only behind a source alone do the kept elements have the same.
    """
    above: list[plan.Node] = []
    while (root.per_element or root.is_hint) and not is_indexable(root):
        above.insert(0, root)
        root = root.children[0]
    if is_indexable(root):
        return None, above
    if root.children:
        drawn = max((place for place, node in enumerate(above) if node.random), default=-1)
        root, above = above[drawn] if drawn >= 0 else root, above[drawn + 1 :]
    return root, above


def _check(below: plan.Node, variants: int) -> None:
    check_ends(below)
    if variants > 1 and below.children:
        raise PlanError(
            f"what {below.line()} gives is read once, and would be the same in all variants",
            where=f"pack(variants={variants})",
            fix="put take, batch, shuffle and the like below filters, or repeat(k) in place of variants=k",
        )


def _over(source: KeptSource, above: Sequence[plan.Node], options: Options) -> Dataset:
    root: plan.Node = plan.Read(source=source)
    for node in above:
        root = node.with_children([root])
    return Dataset(root, options)


def _kept(
    dataset: Dataset, file: BinaryIO, policy: Policy, num_threads: int, watching: Watching
) -> tuple[KeptSource, list[dict[str, Any]]]:
    """Read all elements into a file; return what gives them, and what was left out."""
    keeper = Keeper(file, dataset._root.line())
    lost: list[dict[str, Any]] = []

    def listen(event: Event) -> None:
        if isinstance(event, ElementLost):
            lost.append(lost_record(event))

    inputs, looked_at = look(dataset._root), 0
    fixed: dict[str, Any] = {"ordered": True, "quarantine": None, "record": None, "replay": None, "on_error": for_part(policy)}
    if dataset._options.executor != "inline" and dataset._options.num_workers != 0:
        fixed |= {"executor": "threads", "num_workers": num_threads}
    listeners = [one for one in (listen, watching.listener("reading")) if one is not None]
    with watching.bar("reading", None) as advance, dataset.feed(listeners=listeners, **fixed) as feed:
        feed._warns_when_empty = False
        for element in feed:
            keeper.add(element)
            if keeper.num_bytes >= looked_at + _LOOK_BYTES:
                looked_at = keeper.num_bytes
                _check_room(file.name, keeper)
            if advance is not None:
                advance(1)
    error = changed(dataset._root, inputs)
    if error is not None:
        raise error
    return keeper.finish(tuple(sorted(str(one["key"]) for one in lost))), lost


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
