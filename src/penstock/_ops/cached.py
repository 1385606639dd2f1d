"""The leaf of the operator `cache`: elements from a store, or computed and put there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock._contracts.element import bytes_of_all
from penstock._contracts.store import RecordStore
from penstock._ops.block import UNLIMITED, Block, ElementFailed, Ints, Keys
from penstock._ops.operator import Leaf
from penstock._ops.worker import WorkerContext
from penstock.formats.cache_stores import pack, unpack

__all__ = ["CacheLeaf"]


@dataclass(frozen=True, slots=True)
class CacheLeaf:
    """Elements of `child` as of epoch 0, under keys of the epoch that they are asked for in.

    What is handed on is always read from a record, whether that was found, just stored, or did not fit: so its arrays are read-only, its
    containers plain and nobody else's, and it holds no memory of the child's, in every pass alike. Two workers that miss one element at
    the same time both compute it; the store keeps one.
    """

    child: Leaf
    store: RecordStore
    passes: int

    def run(self, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        places = positions.tolist()
        try:
            records = self.store.get(places)
        except BaseException as error:
            raise ElementFailed(0, "cache", error, whole=True) from error
        absent = [offset for offset, record in enumerate(records) if record is None]
        if absent:
            self._compute(records, places, absent, worker)
        rows = [unpack(record) for record in records if record is not None]
        block = Block(*self.keys(epochs, positions), rows=rows)
        block.num_bytes = bytes_of_all(rows)
        return block

    def _compute(self, records: list[bytes | None], places: list[int], absent: list[int], worker: WorkerContext) -> None:
        """Compute the absent elements, put their records into the store and into `records`."""
        asked = [places[offset] for offset in absent]
        try:
            with worker.given_room(UNLIMITED):
                rows = self.child.run(np.zeros(len(asked), np.int64), np.array(asked, np.int64), worker).rows()
        except ElementFailed as failed:
            raise failed.moved(absent[failed.offset]) from failed.error
        packed = []
        for offset, row in zip(absent, rows, strict=True):
            try:
                packed.append(pack(row))
            except BaseException as error:
                raise ElementFailed(offset, "cache", error) from error
            records[offset] = packed[-1]
        try:
            self.store.put(asked, packed)
        except BaseException as error:
            raise ElementFailed(absent[0], "cache", error, whole=True) from error

    def where(self, epoch: int, position: int) -> str:
        return self.child.where(0, position)

    def key(self, epoch: int, position: int) -> tuple[int, int]:
        pass_number, index = self.child.key(0, position)
        return epoch * self.passes + pass_number, index

    def keys(self, epochs: Ints, positions: Ints) -> Keys:
        pass_numbers, indices, lanes = self.child.keys(np.zeros(len(positions), np.int64), positions)
        return epochs * self.passes + pass_numbers, indices, lanes
