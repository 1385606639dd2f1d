"""A plan with its options, and the one step that all builder methods take."""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, cast

from penstock._contracts.options import Options
from penstock._plan import check
from penstock._plan import node as plan
from penstock._plan.base import walk
from penstock.dataset.foreign import checked_keywords
from penstock.errors import PlanError

if TYPE_CHECKING:
    from penstock.dataset.builder import Dataset

__all__ = ["LATER", "Chaining", "branches"]

LATER = "put it below the filter, flat_map or generator (the elements that are left are the same), or feed the result and batch it yourself"
_HAS_KEYWORDS = 0x08  # inspect.CO_VARKEYWORDS: a method that takes any keyword looks at them itself


class Chaining:
    """Holds a plan; each builder method returns a new holder."""

    __slots__ = ("_num_iterated", "_options", "_peek", "_root", "_tuning_cache")

    def __init__(self, root: plan.Node, options: Options | None = None) -> None:
        """Wrap a plan. Use the functions `ps.from_...` and `ps.read_...` instead."""
        self._root = root
        self._options = options or Options()
        self._peek: Any = None
        self._tuning_cache: Any = None  # what its feeds found out about sizes
        self._num_iterated = 0

    def __init_subclass__(cls) -> None:
        """Have the public methods refuse keywords that they do not have in words of Penstock."""
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_") and not method.__code__.co_flags & _HAS_KEYWORDS:
                setattr(cls, name, checked_keywords(method))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the plan and the options.

        Raises:
            PlanError: it has a cache.
        """
        if not all(node.can_pickle for node in walk(self._root)):
            raise PlanError(
                "what a cache keeps is counted and locked in this process, so it cannot be pickled or copied",
                where="pickle of a Dataset with cache()",
                fix="pickle the dataset below cache(), and call cache() on it in the other process; with the same folder both share it",
            )
        return type(self), (self._root, self._options)

    def __copy__(self) -> Self:
        """Return itself: a dataset does not change."""
        return self

    def _with(self, root: plan.Node) -> Dataset:
        check.bounded(root)
        return cast("Dataset", type(self)(root, self._options))


def branches(parts: Iterable[Any], operator: str) -> tuple[plan.Node, ...]:
    """Return the plans of several datasets that an operator takes elements of by position.

    Raises:
        PlanError: one is no dataset, has no positions, or has workers of its own.
    """
    roots = []
    for part in parts:
        if not isinstance(part, Chaining):
            raise PlanError(f"{part!r} is not a Dataset", where=f"{operator}()", fix="wrap it with ps.from_source or ps.from_arrays")
        check.indexable(part._root, operator, LATER)
        check.shared_workers(part._root, operator)
        roots.append(part._root)
    return tuple(roots)
