"""The fluent builder: what to read and what to do with it. Nothing runs until it is fed.

The engine and the sources are imported where they are first needed: `import penstock` costs half as much without them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Never

from penstock._contracts.element import flatten, leaf_paths, spec_of, structure_of, unflatten
from penstock._contracts.event import Listener
from penstock._contracts.options import ExecutorOption, Options, OutputOption
from penstock._contracts.policy import Policy
from penstock._ops.stack import refuse_leaf
from penstock._order.arithmetic import INFINITE
from penstock._plan import check
from penstock._plan.base import Node, sources, walk
from penstock._plan.facts import (
    MOST,
    free_dimensions,
    is_indexable,
    known_length,
    known_spec,
    length_of,
    lines,
    spec_of_plan,
)
from penstock.dataset.foreign import attribute_hint, moved_option, unknown_argument
from penstock.dataset.known import KnownMethods
from penstock.dataset.operators import ElementMethods, GroupMethods, OrderMethods
from penstock.errors import OutOfRange, PlanError

if TYPE_CHECKING:
    from penstock.feed import Feed

__all__ = ["Dataset"]


class _Keep:
    """In place of an option that is not given."""

    def __repr__(self) -> str:
        return "..."


KEEP: Any = _Keep()

_NO_CLASSES = ": only datasets of read_images, and read_coco(contiguous_labels=True), have classes, the same for all sources of one"


class _DatasetKind(type):
    """The type of the class `Dataset`, which says what replaces a constructor of another library."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            text = f"type object {cls.__name__!r} has no attribute {name!r}{attribute_hint(name)}"
            raise AttributeError(text, name=name, obj=cls)


class Dataset(ElementMethods, OrderMethods, GroupMethods, KnownMethods, metaclass=_DatasetKind):
    """A description of elements in an order: a source and operators on it. Immutable and cheap; each method returns a new one.

    `for batch in ds` and `ds.feed()` run it. `len(ds)`, `ds[i]`, `ds.spec()`, `print(ds)` and `ds.explain()` look at it.
    The order is a function of the description alone: it does not depend on workers, blocks or timing.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # else checkers would take any name for one of a dataset

        def __getattr__(self, name: str) -> Any:
            hint = _NO_CLASSES if name == "classes" else attribute_hint(name)
            text = f"{type(self).__name__!r} object has no attribute {name!r}{hint}"
            raise AttributeError(text, name=name, obj=self)

    # -- running ------------------------------------------------------------------------------------------------------------------

    def with_options(
        self,
        *,
        num_workers: int | Literal["auto"] = KEEP,
        executor: ExecutorOption = KEEP,
        memory_bytes: int | Literal["auto"] = KEEP,
        ordered: bool = KEEP,
        on_error: Policy = KEEP,
        output: OutputOption = KEEP,
        stall_timeout_s: float | None = KEEP,
        on_stall: Literal["raise", "warn", "skip"] = KEEP,
        grace_period_s: float = KEEP,
        **unknown: Never,
    ) -> Dataset:
        """Return the same dataset with other defaults for `feed`: options of `ps.Options`, as checked there; what is not given stays."""
        return type(self)(self._root, _options(self._options, locals(), "with_options"))

    def feed(
        self,
        *,
        listeners: Sequence[Listener] = (),
        num_workers: int | Literal["auto"] = KEEP,
        executor: ExecutorOption = KEEP,
        memory_bytes: int | Literal["auto"] = KEEP,
        ordered: bool = KEEP,
        on_error: Policy = KEEP,
        output: OutputOption = KEEP,
        stall_timeout_s: float | None = KEEP,
        on_stall: Literal["raise", "warn", "skip"] = KEEP,
        grace_period_s: float = KEEP,
        **unknown: Never,
    ) -> Feed:
        """Return a new feed: epoch 0 of this dataset, then the next at each `for` over it.

        The options are those of `ps.Options`, which says what each does; what is not given is as `with_options` set it.

        Args:
            listeners: callables that are given every event of the engine, from its threads, or from `next()` where worker processes
                compute; they must be quick.
            num_workers: threads; "auto" is one per available CPU, 0 does everything in the caller's thread.
            executor: "auto", "inline", "threads", "processes", "ray"; `ps.Threads`, `ps.Processes`, `ps.Ray`; or one of your own.
            memory_bytes: bound on what is held, in bytes; "auto" is 256 MB.
            ordered: False delivers batches, or elements where nothing makes batches, as they are finished.
            on_error: what to do about an element that fails: `ps.Raise()`, `ps.Retry()`, `ps.Skip()`, `ps.Replace()`.
            output: what batches are given as: "numpy", "torch" or "jax"; or `ps.Torch(device=...)` or `ps.Jax(device=...)`.
            stall_timeout_s: how long one element may run while the caller waits, in seconds; None is for ever.
            on_stall: what to do then: "raise" or "warn"; or, with executor="processes" or "ray", "skip".
            grace_period_s: how long `close()` waits for running functions, in seconds.
            **unknown: refused.

        Raises:
            PlanError: an option is of another type, out of bounds or not there; the plan cannot run so; there is no such device.
            MissingExtra: PyTorch, JAX or Ray is not installed.
        """
        options = locals()
        from penstock._engine.tuning import TuningCache
        from penstock.adapters import output_of
        from penstock.adapters.ranks import comparison, unsharded_notice
        from penstock.feed.compiled import Compiled
        from penstock.feed.feed import Feed

        if self._tuning_cache is None:
            self._tuning_cache = TuningCache()
        chosen = _options(self._options, options, "feed")
        made = None if chosen.output == "numpy" else output_of(chosen.output)
        tuning_cache = self._tuning_cache if made is None or made.allocate is None else TuningCache()  # whose buffers are of its allocator
        heard = check.listeners_argument(listeners)
        compiled = Compiled(self._root, chosen, made)
        agree = None if compiled.ranks is None else comparison(compiled.ranks)
        notice = "" if compiled.shards else unsharded_notice()
        return Feed(compiled, heard, tuning_cache=tuning_cache, agree=agree, notice=notice)

    def to_tf(self, feed: Feed | None = None, *, output_signature: Any = None) -> Any:
        """Return a `tf.data.Dataset` of whole batches: its iterations are the epochs of a feed. TensorFlow copies no array.

        Dimensions that may differ between batches are None in its `element_spec`: the first where the last batch of a pass may be short,
        all of them behind `padded_batch`, `ragged_batch` and `bucket_by_length`. Texts are tf.string. A `prefetch` of tf.data runs ahead
        of training, and the feed's state with it.

        Args:
            feed: a feed of this dataset, whose state you save; a new one by default.
            output_signature: the tree of `tf.TensorSpec` of a batch, if you know better.

        Raises:
            MissingExtra: TensorFlow is not installed.
        """
        from penstock.adapters.keras import signature_of, tf_dataset

        signature = signature_of(self.spec(), free_dimensions(self._root)) if output_signature is None else output_signature
        return tf_dataset((self.feed(output="numpy") if feed is None else feed).__iter__, signature)

    def to_keras(
        self, inputs: Any, targets: Any = None, weights: Any = None, *, feed: Feed | None = None, output_signature: Any = None
    ) -> Any:
        """Return what `fit`, `evaluate` and `predict` of Keras 3 take as data: `model.fit(ds.to_keras("image", "label"), epochs=9)`.

        Each epoch of Keras is one of the feed, which is its attribute `feed`; `steps_per_epoch` is not needed. It works with the
        TensorFlow, PyTorch and JAX backends. Elements that are batches already are taken as they are: the first dimension of their arrays
        is the number of rows, and the last batch may be short.

        Args:
            inputs: what the model is given: a key of the batch, or a place in it, or a list of keys, for a dict of these.
            targets: the same for the targets; None for none.
            weights: the same for sample weights.
            feed: a feed of this dataset with NumPy output, whose state you save; a new one by default.
            output_signature: the tree of `tf.TensorSpec` of a batch, if you know better; only the TensorFlow backend asks for it.

        Raises:
            MissingExtra: Keras is not installed.
        """
        from penstock.adapters.keras import keras_data, signature_of

        parts = [part for part in (inputs, targets, weights) if part is not None]
        own = self.feed(output="numpy") if feed is None else feed
        free = free_dimensions(self._root, of_batches=True)
        spec = self.spec() if output_signature is None else None
        signature = (lambda: signature_of(spec, free)) if output_signature is None else lambda: output_signature
        return keras_data(own, signature, lambda batch: tuple(_part(batch, part) for part in parts))

    def __iter__(self) -> Iterator[Any]:
        """Run it: epoch 0 of a new feed with default options, each time the same.

        Warns:
            UserWarning: once, when it is begun a second time and its order or its random numbers should change from epoch to epoch.
        """
        self._num_iterated += 1
        if self._num_iterated == 2 and any(node.varies for node in walk(self._root)):
            warnings.warn(
                "this dataset is iterated again, and gives the same order and the same random numbers as before: make `feed = ds.feed()` "
                "once and iterate the feed, each `for` over it is the next epoch",
                stacklevel=2,
            )
        return iter(self.feed())

    # -- looking ------------------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of elements.

        Raises:
            TypeError: when it is endless, or only known after reading.
        """
        return known_length(self._root, "len(ds)")

    def __bool__(self) -> bool:
        """Return True: a dataset is a description, whatever it will give; `if ds:` does not count it."""
        return True

    def __getitem__(self, index: int) -> Any:
        """Compute element `index` in the caller's thread: what the feed delivers at that place.

        Raises:
            IndexError: when it is out of range. Negative indices count from the end.
            PlanError: behind a filter, flat_map, unbatch, generator or compressed file; or it is no whole number, such as a slice.
        """
        check.indexable(self._root, "ds[i]", "iterate, or index the dataset before the filter")
        length = length_of(self._root)
        place = check.index_argument(index)
        if place < 0 and length not in (None, INFINITE):
            place += int(length or 0)
        if not 0 <= place < (MOST if length in (None, INFINITE) else length):
            fix = "use 0..len(ds)-1" if length else "check the source and take(): they left nothing to look at"
            raise OutOfRange(f"index {index} of {length} elements", where="ds[i]", fix=fix)
        from penstock._engine.lowering import Evaluator

        if self._peek is None:
            self._peek = Evaluator(self._root)
        return self._peek.element(place)

    @property
    def classes(self) -> list[str]:
        """The names of the classes of `read_images` or `read_coco(contiguous_labels=True)`, by label: `ds.classes[label]`.

        Operators keep them, also where a function of yours changes the labels.

        Raises:
            AttributeError: no source below has classes, one is something else, or two have other classes.
        """
        found = {tuple(getattr(node.source, "class_names", ())) for node in sources(self._root)}
        if len(found) != 1 or () in found:
            raise AttributeError  # the words are those of `__getattr__`, which Python asks then
        return list(found.pop())

    def spec(self) -> Any:
        """Push one element through and return the tree of `ArraySpec` (shape, dtype) of its arrays and fields.

        A generator is started for it, and closed again. What a `map(fn, output_spec=...)` declares is taken as declared, and neither fn nor
        what stands below it is run: a size is then None where the declaration says so, or where only reading tells how full a batch is.
        """
        return spec_of_plan(self._root, lambda node: type(self)(node, self._options)._dry_run())

    def _dry_run(self) -> Any:
        if is_indexable(self._root):
            return _spec_of_element(self[0])
        with self.feed(executor="inline") as feed:
            for element in feed:
                return _spec_of_element(element)
        raise PlanError("the dataset gave no element to take a spec from", where="ds.spec()", fix="check the source and the filters")

    def explain(self, *, measure: int = 0) -> str:
        """Show how the plan will run: segments, stages, what is fused, what is written straight into the batch, and what it costs.

        It follows the options of `with_options`; a feed whose functions cannot be sent to worker processes says so in a notice.

        Args:
            measure: run up to so many elements in this thread first, and say what one costs in each stage. 0 runs nothing.

        Raises:
            PlanError: `measure` is no whole number >= 0.
            Exception: what a function of the plan raises while it is measured.
        """
        from penstock._engine.lowering import lower
        from penstock._workers.choice import placed
        from penstock.feed.compiled import explain

        count = check.count_argument(measure, "measure", "explain")
        plan = explain(self._root, *placed(lower(self._root), self._options))
        if count == 0:
            return plan
        with self.feed(executor="inline") as feed:
            for _ in zip(range(count), feed, strict=False):
                pass
            stages = feed.stats().stages
        costs = [f"  stage {one.name!r}: {one.us_per_element:.1f} us, {100 * one.cpu_share:.0f} % of it on a CPU" for one in stages]
        return "\n".join([plan, "costs of an element on one worker", *costs])

    def __repr__(self) -> str:
        """Show the plan, from the source up."""
        return "\n".join([f"Dataset ({_count_words(self._root)})", *("  " + line for line in lines(self._root))])

    def _repr_html_(self) -> str:
        """Show the plan as a table in a notebook: operators from the source up, how many elements each gives, and an element's spec.

        Reads and computes nothing: the spec is there where sources of arrays or `map(output_spec=...)` declare it.
        """
        from html import escape  # 1 ms to import

        spec = known_spec(self._root)
        element = "known when one is computed: ds.spec()" if spec is None else f"<code>{escape(repr(spec))}</code>"
        return (
            f"<table><caption>Dataset ({_count_words(self._root)})</caption><thead><tr><th>operator</th><th>gives</th></tr></thead>"
            f"<tbody>{''.join(_html_rows(self._root, escape))}</tbody><tfoot><tr><td>element: {element}</td><td></td></tr></tfoot></table>"
        )


def _part(batch: Any, wanted: Any) -> Any:
    """Return the part of a batch that a key or a list of keys names."""
    return {key: batch[key] for key in wanted} if isinstance(wanted, list) else batch[wanted]


def _count_words(node: Node) -> str:
    length = length_of(node)
    return "unknown length" if length is None else "endless" if length == INFINITE else f"{length} elements"


def _html_rows(node: Node, escape: Callable[[str], str], depth: int = 0) -> Iterator[str]:
    """Give a table's row for each node, from the sources up; branches are indented, as in `lines`."""
    for child in node.children:
        yield from _html_rows(child, escape, depth + (len(node.children) > 1))
    call = f'<td style="text-align: left; padding-left: {1 + 2 * depth}em"><code>{escape(node.line())}</code></td>'
    yield f"<tr>{call}<td>{_count_words(node)}</td></tr>"


def _spec_of_element(element: Any) -> Any:
    structure, leaves = structure_of(element), flatten(element)
    for path, leaf in zip(leaf_paths(structure), leaves, strict=True):
        if isinstance(leaf, list):
            refuse_leaf(leaf, path, "ds.spec()")
    return unflatten(structure, map(spec_of, leaves))


def _options(base: Options, given: dict[str, Any], call: str) -> Options:
    """Change some options: those of the arguments of a call that are not KEEP."""
    known = Options.__dataclass_fields__
    for name in given["unknown"]:
        raise moved_option(name, call) or unknown_argument(f"there is no option {name!r}", "feed options", name, known)
    return replace(base, **{name: value for name, value in given.items() if name in known and value is not KEEP})
