"""One element of an indexable plan, computed in the caller's thread."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock._engine.chunk import Failure
from penstock._engine.failing import prepare
from penstock._engine.operators import evaluator
from penstock._ops.block import ElementFailed
from penstock._ops.worker import WorkerContext
from penstock._plan.node import Node

__all__ = ["Peek"]


class Peek:
    """The whole of a plan as one function of a position. Safe from several threads."""

    def __init__(self, root: Node) -> None:
        """Lower the plan once."""
        self._chain = evaluator(root)

    def element(self, place: int) -> Any:
        """Compute the element at root position `place`: what the feed delivers there, and the same error if it fails."""
        try:
            return self._chain.run(np.zeros(1, np.int64), np.array([place], np.int64), WorkerContext(0)).rows()[0]
        except ElementFailed as failed:
            if isinstance(failed.error, KeyboardInterrupt):
                raise failed.error from None
            failure = Failure(0, failed.error, failed.stage, 0)
            raise prepare(failure, self._chain.where(0, place), self._chain.key(0, place)).error from None
