"""Refuse what a room must not reach: extras at module level, clocks and threads in pure rooms, the environment, global state.

The layers themselves are import-linter's (pyproject.toml); this guard knows what it cannot: where in a file an import stands, and Python's
own modules.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence

from findings import Module, finish, python_modules, root_of

PACKAGE = "src/penstock"

EXTRAS = {
    "PIL": ("cli", "image"),
    "accelerate": ("adapters",),
    "cv2": ("cli", "image"),
    "jax": ("adapters", "cli"),
    "keras": ("adapters", "cli"),
    "pyarrow": ("formats",),
    "obstore": ("_storage",),
    "rich": ("observe",),
    "ray": ("_workers", "cli"),
    "simplejpeg": ("cli", "image"),
    "tensorflow": ("adapters", "cli"),
    "tifffile": ("image",),
    "tokenizers": ("text",),
    "torch": ("adapters", "cli", "image"),
    "transformers": ("adapters",),
}
"""Optional packages, and the rooms whose functions may import them: never at module level."""

DEPENDENCIES = {"cloudpickle": ("_workers",)}
"""Packages beside NumPy that are always there, and the rooms that may import them."""

SLOW_TO_IMPORT = {
    "asyncio", "concurrent", "email", "http", "inspect", "logging", "multiprocessing", "sqlite3", "ssl", "unittest", "urllib", "xml",
}  # fmt: skip
"""Modules of Python that cost milliseconds: imported inside the function that needs them, except in cli."""

PURE = ("_order", "_ops", "_plan")
IMPURE_MODULES = {
    "_thread", "asyncio", "concurrent", "multiprocessing", "queue", "random", "sched", "secrets", "select", "selectors", "signal", "socket",
    "subprocess", "threading", "time",
}  # fmt: skip
"""What a room that starts nothing, waits for nothing and reads no clock has no use for."""

UNSEEN = {"_engine": ("formats", "image", "observe", "sources")}
"""Rooms below that a room must not see all the same: the engine announces events and asks protocols."""

READS_ENVIRONMENT = ("cli", "kernels")
ASKS_ENVIRONMENT = ("_system/memory.py", "sources/indexing.py", "adapters/ranks.py", "_workers/executed.py")
"""Modules that may ask the environment where the user's folders are, which rank of how many this process is, and what a child gets."""


def main(arguments: Sequence[str]) -> int:
    """Check the tree and return the exit status."""
    modules = list(python_modules(root_of(arguments), PACKAGE))
    problems = [problem for module in modules for problem in problems_of(module)]
    return finish("check_rooms", problems, len(modules), "modules")


def problems_of(module: Module) -> Iterator[str]:
    """Name what one module must not reach."""
    room = room_of(module)
    for node, at_import in walk_with_level(module.tree):
        place = f"{module.name}:{getattr(node, 'lineno', 1)}"
        for target in imported(node):
            problem = import_problem(room, target, at_import)
            if problem:
                yield f"{place}: {problem}"
        if isinstance(node, ast.Global):
            yield f"{place}: `global {', '.join(node.names)}`: state belongs to an object that somebody closes"
        if reads_environment(node) and room not in READS_ENVIRONMENT and not module.name.endswith(ASKS_ENVIRONMENT):
            yield f"{place}: only {' and '.join(READS_ENVIRONMENT)} read the environment"


def import_problem(room: str, target: str, at_import: bool) -> str:
    """Say what is wrong with importing `target` in a room, or nothing."""
    top = target.partition(".")[0]
    if top == "penstock":
        other = target.split(".")[1] if "." in target else ""
        return f"{room} must not see {other}" if other in UNSEEN.get(room, ()) else ""
    if top == "numpy":
        return ""
    if top in sys.stdlib_module_names:
        if room in PURE and top in IMPURE_MODULES:
            return f"{room} is pure, it has no use for {top}"
        slow = at_import and room != "cli" and top in SLOW_TO_IMPORT
        return f"{top} is slow to import: import it inside the function that needs it" if slow else ""
    if top in DEPENDENCIES:
        return "" if room in DEPENDENCIES[top] else f"{top} may be imported only in {', '.join(DEPENDENCIES[top])}"
    if top not in EXTRAS:
        return f"{top} is not a dependency of any extra"
    if room not in EXTRAS[top]:
        return f"{top} may be imported only in {', '.join(EXTRAS[top])}"
    return f"{top} is optional: import it inside the function that needs it" if at_import else ""


def room_of(module: Module) -> str:
    """Return the room of a module: its folder, or its own name when it stands at the top."""
    return module.name.removeprefix(f"{PACKAGE}/").split("/")[0].removesuffix(".py")


def walk_with_level(node: ast.AST, at_import: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """Walk a tree and tell for every node whether it runs when the module is imported."""
    for child in ast.iter_child_nodes(node):
        yield child, at_import
        inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        only_types = isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"
        yield from walk_with_level(child, at_import and not inside and not only_types)


def imported(node: ast.AST) -> list[str]:
    """List the dotted names that an import statement asks for; relative imports are ruff's to refuse."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def reads_environment(node: ast.AST) -> bool:
    """Tell whether a node is os.environ, os.environb or os.getenv, or imports one of them."""
    if isinstance(node, ast.ImportFrom) and node.module == "os":
        return any(alias.name in ("environ", "environb", "getenv") for alias in node.names)
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("environ", "environb", "getenv")
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
