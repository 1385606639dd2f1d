"""Refuse private words as names in src: of modules, classes, functions and attributes.

Each has a plain one in its place. `tools/house.toml` lists in how many modules an old word may still be given as a name; a count may only
shrink. Uses of a name, parameters and local variables do not count. An underscore before or behind does not matter.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from check_rooms import room_of
from check_sizes import DEFINITIONS
from findings import Module, finish, python_modules, root_of

CEILINGS = "tools/house.toml"
ENGINE = ("_engine", "_workers", "feed")
BLOCKS = (*ENGINE, "_ops")
FOLDS = ("_order",)
PACKING = ("cli", "formats", "jobs", "packing")

EVERYWHERE = {
    "Unit": "Chunk",
    "Flow": "Scheduler",
    "Mishap": "LostElement",
    "Books": "LossLedger",
    "Rescue": "ErrorHandler",
    "GONE": "SKIPPED",
    "Sequencer": "FoldRunner",
    "Bucketing": "BucketFold",
    "Buffering": "ShuffleBufferFold",
    "FirstFit": "PackFold",
    "Weighed": "Measured",
    "weight_of": "size_of",
    "HandOver": "Delivery",
    "Lanes": "AsyncCalls",
    "Peek": "Evaluator",
    "Learned": "TuningCache",
    "mender": "retry_worker",
}
IN_ROOMS = {
    ENGINE: {
        "unit": "chunk",
        "Task": "WorkItem or Outcome",
        "flow": "scheduler",
        "mishap": "lost",
        "mishaps": "losses",
        "Tally": "LossCounts",
        "tally": "loss_counts",
        "rescue": "error_handler",
        "treat": "handle",
        "mended": "the result of ErrorHandler.handle",
        "Case": "FailedElement",
        "sequencer": "fold_runner",
        "Piece": "KeyedElement",
        "Record": "FoldState",
        "Known": "KnownLoss",
        "Done": "CompletedRuns",
        "Note": "StreamState",
        "Form": "PlanVariant",
        "Part": "ResumeStep",
        "moving": "resharding",
        "hand": "delivery",
        "Post": "WorkerMonitor",
        "bench": "idle_workers",
        "lot": "waiters",
        "ring": "unpark",
        "whole": "poison_on_interrupt or all_in_place",
        "torn": "poisoned",
        "alone": "one_batch_per_chunk",
        "widest": "max_stage_concurrency",
        "ahead": "batch_rows_in_place",
        "direct": "delivers_directly",
        "peek": "evaluator",
    },
    BLOCKS: {
        "sift": "filter_step",
        "lane": "sub_index or call_slot",
        "guess": "expected_spec",
        "loose": "unordered",
        "up": "apply",
        "down": "source_positions",
        "climb": "apply_all",
        "top": "batch_ops",
        "levels": "positions_per_op",
    },
    FOLDS: {
        "Taking": "TakeFold",
        "Skipping": "SkipFold",
        "Sharding": "ShardFold",
        "Numbering": "EnumerateFold",
        "Batching": "BatchFold",
        "Passes": "RepeatFold",
        "Mixing": "MixFold",
        "Resampling": "ResampleFold",
        "Interleaving": "InterleaveFold",
        "Concatenating": "ConcatenateFold",
        "Windowing": "WindowFold",
        "Held": "BufferedElement",
    },
    PACKING: {
        "heads": "magic",
        "looks": "inspect",
        "sheet": "contact_sheet",
        "ticks": "progress_pipe",
        "keeping": "spool",
        "ledger": "results",
    },
}
"""Old words and plain ones. Ordinary words are refused only in the rooms that give them a meaning of their own."""


def main(arguments: Sequence[str]) -> int:
    """Check the tree and return the exit status."""
    root = root_of(arguments)
    modules = list(python_modules(root, "src/penstock"))
    path = root / CEILINGS
    allowed = tomllib.loads(path.read_text("utf-8")).get("words", {}) if path.exists() else {}
    return finish("check_words", problems_of(places_of_words(modules), allowed), len(modules), "modules")


def places_of_words(modules: Sequence[Module]) -> dict[str, list[str]]:
    """Return where old words are given as names, of each module the first place."""
    places = defaultdict[str, list[str]](list)
    for module in modules:
        lines = dict(reversed([(name.strip("_"), line) for name, line in names_given(module)]))
        for word in lines.keys() & words_of(room_of(module)).keys():
            places[word].append(f"{module.name}:{lines[word]}")
    return dict(places)


def words_of(room: str) -> dict[str, str]:
    """Return the words that a room must not use, and what to say instead."""
    words = dict(EVERYWHERE)
    for rooms, others in IN_ROOMS.items():
        if room in rooms:
            words |= others
    return words


def names_given(module: Module) -> Iterator[tuple[str, int]]:
    """Give the name of a module and those that it gives, with lines."""
    yield module.path.stem, 1
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Module, ast.ClassDef)):
            yield from ((name.id, name.lineno) for statement in node.body for name in targets_of(statement) if isinstance(name, ast.Name))
        if isinstance(node, DEFINITIONS):
            yield node.name, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def targets_of(statement: ast.stmt) -> list[ast.expr]:
    """Return what an assignment binds."""
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def problems_of(places: Mapping[str, Sequence[str]], allowed: Mapping[str, int]) -> Iterator[str]:
    """Name the words that are names in more modules than is allowed."""
    plain = {word: then for words in (EVERYWHERE, *IN_ROOMS.values()) for word, then in words.items()}
    for word in sorted({*places, *allowed}):
        where, most = places.get(word, ()), allowed.get(word, 0)
        if len(where) > most:
            yield f"{word}: a name in {len(where)} modules, {most} at most: say {plain[word]} ({', '.join(where)})"
        elif len(where) < most:
            yield f"{word}: a name in {len(where)} modules; {CEILINGS} allows {most}: lower this line"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
