"""What holds for every node of a plan, and the functions that go through all nodes of one.

A kind of node (`penstock._plan.node`) overrides what is different for it; nothing else asks of which kind a node is.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import ArraySpec, map_leaves
from penstock._contracts.policy import Policy
from penstock._contracts.source import ColumnSource, GroupedSource, NumberedSource
from penstock._contracts.storage import RecordStore
from penstock._contracts.transform import Drawing, Transform
from penstock._order.arithmetic import INFINITE, Length
from penstock._order.mixing import History
from penstock._system.text import redacted
from penstock.errors import PlanError, SourceError

Ints = NDArray[np.int64]

_RUNS_ONLY = ("child", "children", "concurrency", "executor", "asynchronous")
"""Fields that do not change what an operator gives."""


class OnlyByComputing(Exception):
    """Nothing is declared: the spec is that of an element."""


class Descent(NamedTuple):
    """A place on its way from the root of a plan down to the shard: `position` counts the elements of one node, in pass `epoch`.

    `lead` is that of a `Skip` on the way. `repeated` tells that a repeat was passed, and `ended` that the place is behind its last pass.
    """

    position: int
    epoch: int = 0
    lead: int = 0
    repeated: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """One operator of a plan with its arguments. Frozen; compared by identity.

    Attributes:
        streams: only reading tells which element stands where behind it.
        aligned: element i is made of element i of its child.
        per_element: it makes nothing, one or several elements of each, whatever stands beside it.
        selects: its elements are those of its child, in another order or number.
        groups_elements: each of its elements is made of several of its child.
        makes_batches: these are batches.
        starts_chain: positions are known on its own account: a source, a cache, or several children.
        is_hint: it changes how a plan runs, not what it gives. Saved states and identities leave it out.
        moves_as: how a saved place passes it on its way to another number of shards: "same", "batch" or "repeat", of which the last two
            can come once; "" for not at all.
        can_pickle: nothing that it holds is bound to this process.
    """

    streams: ClassVar[bool] = False
    aligned: ClassVar[bool] = False
    per_element: ClassVar[bool] = False
    selects: ClassVar[bool] = False
    groups_elements: ClassVar[bool] = False
    makes_batches: ClassVar[bool] = False
    starts_chain: ClassVar[bool] = False
    is_hint: ClassVar[bool] = False
    moves_as: ClassVar[str] = ""
    can_pickle: ClassVar[bool] = True

    # -- arguments that only some operators have ----------------------------------------------------------------------------------

    @property
    def on_error(self) -> Policy | None:
        """The operator's own policy."""
        return None

    def without_policy(self) -> Self:
        """Return the node without a policy of its own; itself where it has none."""
        none: dict[str, Any] = {"on_error": None}
        return self if self.on_error is None else replace(self, **none)

    @property
    def concurrency(self) -> int | None:
        """How many workers of its own the operator has; None for the shared ones."""
        return None

    @property
    def asynchronous(self) -> bool:
        """Whether its function is awaited."""
        return False

    @property
    def random(self) -> bool:
        """Whether its function gets a random generator."""
        return False

    @property
    def output_spec(self) -> Any:
        """The tree of specs that its elements are declared to have, or None."""
        return None

    @property
    def transform(self) -> tuple[Transform, int] | None:
        """The transform that it applies, with its seed."""
        return None

    @property
    def store(self) -> RecordStore | None:
        """Where it keeps elements."""
        return None

    @property
    def known_numbers(self) -> Mapping[str, ColumnSource]:
        """What is known of each of its elements without computing it, by name."""
        return {}

    @property
    def nameless(self) -> tuple[Callable[..., Any], str] | None:
        """Its function, whose name says too little, and the name of the node: a lambda, or a function with values of its own."""
        return None

    # -- the tree -----------------------------------------------------------------------------------------------------------------

    @property
    def children(self) -> tuple[Node, ...]:
        """The nodes that it reads from."""
        return ()

    def with_children(self, children: Sequence[Node]) -> Self:
        """Return a node that reads from other nodes; itself where they are the same."""
        return self

    @property
    def history(self) -> History | None:
        """The weights of its children, with the positions they hold from; None where all children are alike."""
        return None

    def with_history(self, history: History | None, children: Sequence[Node]) -> Self:
        """Return a node with other children, and another history of their weights; None leaves it as it is."""
        return self.with_children(children)

    # -- words --------------------------------------------------------------------------------------------------------------------

    @property
    def operator(self) -> str:
        """The name of the operator's method."""
        return re.sub(r"\B(?=[A-Z])", "_", type(self).__name__).lower()

    def line(self, *, saved: bool = False) -> str:
        """Describe the node; with `saved`, without what a state does not depend on: the numbers of a shard, the place of a source."""
        return f"{self.operator}()"

    def identity(self) -> str:
        """Describe what its elements depend on. The children's lines come before, so the list of a plan has one reading."""
        return self.line()

    def values(self) -> tuple[Any, ...]:
        """Return all that its elements depend on, but for its children, as values."""
        own = (getattr(self, one.name) for one in fields(self) if one.name not in _RUNS_ONLY)
        return (type(self).__name__, len(self.children), *own)

    def component(self, number: int) -> str:
        """Name child `number` for the errors of a resume; "" where it needs no name."""
        return ""

    # -- lengths and numbers ------------------------------------------------------------------------------------------------------

    def num_elements(self, below: Sequence[Length]) -> Length:
        """Return the number of elements for those of its children: INFINITE for no end, None when only reading can tell."""
        return None

    def endless(self, below: Sequence[bool]) -> bool:
        """Tell whether a pass has no end, also where the length is not known; `below` tells it of the children."""
        length = length_of(self)
        return any(below) if length is None else length == INFINITE

    @property
    def limit(self) -> int | None:
        """How many elements come at most, however many there are below."""
        return None

    @property
    def num_passes(self) -> int | None:
        """How many passes of its children one pass holds; None for no end."""
        return 1

    def batch_size_each(self) -> int | None:
        """Return how many elements each of its elements is made of: 1 where nothing makes batches, None where that differs."""
        return None if any(part.makes_batches for part in walk(self)) else 1

    @property
    def may_be_short(self) -> bool | None:
        """Whether the last of its elements may have fewer rows than the others; None where it makes no rows."""
        return None

    @property
    def any_shape(self) -> bool:
        """Whether all dimensions of its arrays may differ from element to element."""
        return False

    # -- order --------------------------------------------------------------------------------------------------------------------

    def group_starts(self) -> Ints | None:
        """Return the borders of the groups that its elements lie in, as `groups_of` does; None for no groups."""
        return None

    @property
    def changes_order(self) -> bool:
        """Whether an element stands at two positions, or at another position in another pass."""
        return False

    @property
    def varies(self) -> bool:
        """Whether another pass has other elements, or another order."""
        return False

    def reading_notes(self) -> list[str]:
        """Name the sources that decode whole groups and have to decode them again and again for its order."""
        return []

    # -- elements -----------------------------------------------------------------------------------------------------------------

    def spec(self, of: Callable[[Node], Any]) -> Any:
        """Return what it makes of the specs `of` its children.

        Raises:
            OnlyByComputing: they do not say.
        """
        raise OnlyByComputing

    # -- places -------------------------------------------------------------------------------------------------------------------

    def given_below(self, position: int) -> Sequence[int | None]:
        """Return how many elements each child has given when the node has given `position`; None for unknown.

        All shards are at the same place, as they are at every step.
        """
        return [None] * len(self.children)

    def descend(self, place: Descent) -> tuple[Node, Descent] | None:
        """Return the child that a place falls in, and the place there; None at the shard or where there is nothing below."""
        return None

    def ascend(self, place: Descent) -> Descent | None:
        """Return the place of the node for one of its child: what `descend` goes down from; None between two of its elements."""
        return place


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceNode(Node):
    """A node that reads a source."""

    starts_chain: ClassVar[bool] = True

    source: Any

    @property
    def known_numbers(self) -> Mapping[str, ColumnSource]:
        return self.source.known_numbers() if isinstance(self.source, NumberedSource) else {}

    def line(self, *, saved: bool = False) -> str:
        label = str(self.source.label())
        return label.partition("(")[0] if saved else label

    def identity(self) -> str:
        return self.line(saved=True)  # the place of a source does not count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnaryNode(Node):
    """A node with one child."""

    child: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)

    def with_children(self, children: Sequence[Node]) -> Self:
        return self if children[0] is self.child else replace(self, child=children[0])

    def num_elements(self, below: Sequence[Length]) -> Length:
        if self.streams:
            return 0 if below[0] == 0 else None
        return below[0]

    def batch_size_each(self) -> int | None:
        whole = self.aligned or (self.selects and not self.streams)
        return self.child.batch_size_each() if whole else Node.batch_size_each(self)

    def group_starts(self) -> Ints | None:
        return self.child.group_starts() if self.aligned else None

    def spec(self, of: Callable[[Node], Any]) -> Any:
        return of(self.child) if self.selects else Node.spec(self, of)

    def given_below(self, position: int) -> Sequence[int | None]:
        return [position if self.aligned else None]

    def descend(self, place: Descent) -> tuple[Node, Descent] | None:
        return self.child, place


class SelectingNode(UnaryNode):
    """A node whose elements are those of its child, in another order or number."""

    __slots__ = ()
    selects: ClassVar[bool] = True


class GroupNode(UnaryNode):
    """A node that makes one element of several."""

    __slots__ = ()
    groups_elements: ClassVar[bool] = True
    makes_batches: ClassVar[bool] = True

    @property
    def drop_remainder(self) -> bool:
        """Whether a last group that is not full is left out."""
        return False

    @property
    def may_be_short(self) -> bool | None:
        return not self.drop_remainder

    @property
    def any_shape(self) -> bool:
        return True

    def _drop_words(self) -> str:
        return ", drop_remainder=True" if self.drop_remainder else ""

    def _padding_words(self, padded_shapes: Any, padding_values: Any) -> str:
        return self._drop_words() + padding_words(padded_shapes, padding_values)

    def stacked_spec(self, of: Callable[[Node], Any], size: int, stride: int) -> Any:
        """Return the spec of `size` elements, each `stride` behind the last: their number is that of the first group, None for unknown."""
        length, rows = length_of(self.child), None
        if self.drop_remainder or length == INFINITE:
            rows = size
        elif length is not None:
            rows = min(size, -(-int(length) // stride))
        return map_leaves(lambda leaf: ArraySpec((rows, *leaf.shape), leaf.dtype), of(self.child))


def padding_words(padded_shapes: Any, padding_values: Any) -> str:
    """Return the arguments that say how arrays are padded, as they stand in a line; nothing for those that are not given."""
    given = (("padded_shapes", padded_shapes), ("padding_values", padding_values))
    return "".join(f", {name}={value!r}" for name, value in given if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BranchingNode(Node):
    """A node with several children."""

    starts_chain: ClassVar[bool] = True

    children: tuple[Node, ...] = field()  # without a default, which the property of `Node` would be otherwise

    def with_children(self, children: Sequence[Node]) -> Self:
        return self if tuple(children) == self.children else replace(self, children=tuple(children))

    def spec(self, of: Callable[[Node], Any]) -> Any:
        return of(next((child for child in self.children if length_of(child) != 0), self.children[0]))


def walk(node: Node) -> list[Node]:
    """List the nodes of a plan from the sources up: each child before its parent."""
    out: list[Node] = []
    for child in node.children:
        out.extend(walk(child))
    return [*out, node]


def sources(root: Node) -> list[SourceNode]:
    """List the sources of a plan, in the order of its lines."""
    return [cast("SourceNode", node) for node in walk(root) if not node.children]


def substituted(node: Node, others: Mapping[Node, Node]) -> Node:
    """Return a plan with others in place of some of its nodes; below these nothing is changed."""
    return others[node] if node in others else node.with_children([substituted(child, others) for child in node.children])


def length_of(node: Node) -> Length:
    """Return the number of elements of one pass, INFINITE, or None when only reading can tell."""
    return node.num_elements([length_of(child) for child in node.children])


def chain_of(root: Node) -> list[Node]:
    """List the nodes from the last branching (or the source) up to the root."""
    out = [root]
    while True:
        below = out[-1].children
        if len(below) != 1:
            return out[::-1]
        out.append(below[0])


def num_indexed(chain: Sequence[Node]) -> int:
    """Count the nodes of the first segment whose positions are arithmetic."""
    start = max(place for place, node in enumerate(chain) if node.starts_chain)  # what a cache keeps is made at once
    cuts = [place for place, node in enumerate(chain) if node.streams]
    return next((place for place in cuts if place >= start), len(chain))


def counted_node(root: Node) -> Node:
    """Return the node whose elements the positions of a state count: the top of the first segment, or the stream itself."""
    chain = [node for node in chain_of(root) if not node.is_hint]
    return chain[max(0, num_indexed(chain) - 1)]


def period_of(root: Node) -> int:
    """Return the elements of one pass below an endless repeat, the longest of all such passes; 0 for a plan that ends."""
    if length_of(root) != INFINITE:
        return 0
    passes = [length_of(node.children[0]) for node in walk(root) if node.num_passes is None]
    return max((int(length) for length in passes if length and length != INFINITE), default=0)


def never_ends(node: Node) -> bool:
    """Tell whether a pass of the plan has no end, also where its length is not known. A stream is taken to end."""
    return node.endless([never_ends(child) for child in node.children])


def batch_leaf(spec: ArraySpec) -> ArraySpec:
    """Return a spec with the dtype that stands in a batch: that of str and bytes is object."""
    return ArraySpec(spec.shape, np.dtype(object)) if spec.dtype.kind in "US" else spec


# -- groups -----------------------------------------------------------------------------------------------------------------------


def groups_of(node: Node) -> Ints:
    """Return the borders of the groups of a plan's elements.

    Returns:
        int64 [groups + 1], ascending without repeats, from 0: the first element of each group that has one, then the length.

    Raises:
        PlanError: they lie in no groups.
        SourceError: a source says borders that are none.
    """
    found = node.group_starts()
    if found is None:
        raise PlanError(
            "shuffle(window_groups=...) needs elements that lie in groups: row groups of Parquet, files of records",
            where="shuffle()",
            fix="put it right after such a source (map, take, skip, shard, concatenate and cache may stand between), leave window_groups "
            "out, or give your source group_starts()",
        )
    return found


def group_mark(node: Node) -> str:
    """Return a short check sum of the borders, which a saved order depends on."""
    return f"{zlib.crc32(groups_of(node).astype('<i8').tobytes()):08x}"


def joined_groups(parts: list[Ints]) -> Ints:
    """Return the borders of several parts, one after the other."""
    ends = np.cumsum([int(part[-1]) for part in parts])
    return np.unique(np.concatenate([part + (end - int(part[-1])) for part, end in zip(parts, ends.tolist(), strict=True)]))


def source_groups(source: GroupedSource) -> Ints:
    """Return the borders of a source's groups.

    Raises:
        SourceError: they are none.
    """
    given: Any = source.group_starts()
    starts = np.asarray(given)
    good = starts.ndim == 1 and starts.dtype.kind in "iu" and len(starts) > 0
    if not good or starts[0] != 0 or starts[-1] != len(source) or (np.diff(starts.astype(np.int64)) < 0).any():
        raise SourceError(
            f"group_starts() gave {starts.dtype.name}{list(starts.shape)}, which are no borders of groups of {len(source)} elements",
            where=source.label(),
            fix="return int64 [groups + 1]: the index of the first element of each group, ascending from 0, then len()",
        )
    return np.unique(starts.astype(np.int64))


# -- functions of the user --------------------------------------------------------------------------------------------------------

_COROUTINE, _ASYNC_GENERATOR = 0x80, 0x200  # inspect.CO_COROUTINE and CO_ASYNC_GENERATOR: `inspect` costs 10 ms to import


def function_name(fn: Callable[..., Any]) -> str:
    """Name a function without its address: its qualified name, or the repr of a frozen operator without passwords and the like."""
    name = getattr(fn, "__qualname__", None)
    if isinstance(name, str):
        return name.replace("<locals>.", "")
    if isinstance(fn, partial):
        return f"partial({function_name(fn.func)})"
    text = repr(fn)
    return type(fn).__qualname__ if " at 0x" in text else redacted(text)


def has_name(fn: Any) -> bool:
    """Tell whether a function's name says which one it is.

    Two lambdas have one name; so have `partial(crop, 32)` and `partial(crop, 64)`, a function that its maker gave other values, and the
    method of another object.
    """
    if isinstance(fn, Transform):
        return True
    if (held := getattr(fn, "users_object", None)) is not None:
        return all(map(has_name, held)) if type(held) is tuple else has_name(held)
    if isinstance(fn, FunctionType):
        return fn.__closure__ is None and fn.__name__ != "<lambda>"
    if isinstance(fn, MethodType):
        return isinstance(fn.__self__, type)
    if isinstance(fn, partial):
        return False
    return isinstance(getattr(fn, "__qualname__", None), str) or " at 0x" not in repr(fn)


def wants_rng(fn: Callable[..., Any]) -> bool:
    """Tell whether `fn` has a parameter named `rng` that is not given yet."""
    if isinstance(fn, Drawing):
        return fn.num_draws > 0
    code, given = _code_of(fn)
    return code is not None and "rng" not in given and "rng" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def is_async(fn: Any) -> bool:
    """Tell whether `fn` is an `async def` function, an object whose `__call__` is one, or a partial of one."""
    code, _ = _code_of(fn)
    return code is not None and bool(code.co_flags & _COROUTINE)


def is_async_generator(fn: Any) -> bool:
    """Tell whether `fn` is an `async def` function with a `yield`, or holds one as `is_async` says."""
    code, _ = _code_of(fn)
    return code is not None and bool(code.co_flags & _ASYNC_GENERATOR)


def _code_of(fn: Any) -> tuple[CodeType | None, set[str]]:
    """Return the code that a call runs, where Python shows it, and the keywords that partials give."""
    given: set[str] = set()
    while not hasattr(fn, "__code__"):
        if isinstance(fn, partial):
            given.update(fn.keywords)
            fn = fn.func
        elif hasattr(fn, "__func__"):
            fn = fn.__func__
        elif not isinstance(fn, type) and hasattr(type(fn).__call__, "__code__"):
            fn = type(fn).__call__
        else:
            return None, given
    return fn.__code__, given
