"""Which threads could come to an object: from what their stacks hold, and from what the code on them names.

A thread of a notebook's kernel, of a progress bar or of a log cannot fill a queue that it does not know. What a thread knows is found from
its frames: their variables, and the globals that the user's code names, functions that these call included. Modules and the dictionaries of
modules are not searched as a whole, for everything leads to everything through them. Breadth first, with limits: asked only where no
thread is known to have used the queue.
"""

from __future__ import annotations

import gc
import opcode
import signal
import sys
import threading
import weakref
from collections import deque
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

from penstock.queues.standing import INSTALLED, OURS, PYTHONS, USERS, kind_of

__all__ = ["Search"]

_MOST = 50_000
"""So many objects are looked at for one thread: 30 ms. Beyond that a thread with the user's code on its stack is taken to come to the
object, and one that has only code of packages on it is not: the kernel of a notebook and a test runner lead to all that there is."""

_DEEPEST = 12
"""Steps from the stack of a thread that has only code of packages on it. A coroutine in an event loop is found in 8."""

_IMPORT, _EXTENDED = opcode.opmap["IMPORT_NAME"], opcode.opmap["EXTENDED_ARG"]
_HEAP_TYPE = 1 << 9
_BARREN = (ModuleType, CodeType, FrameType, TracebackType)
_BY_NAME_ONLY = (ContextVar, threading.local)  # what they hold in another thread cannot be seen from here
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)


class Search:
    """One look at the threads of this process, for one of some objects."""

    def __init__(self, targets: Collection[object]) -> None:
        self._targets = {id(target) for target in targets}
        self._module_dicts = {id(vars(module)) for module in list(sys.modules.values()) if isinstance(module, ModuleType)}
        self._module_dicts.add(id(sys.modules))

    def from_thread(self, frame: FrameType | None, thread: threading.Thread | None) -> bool:
        """Return whether a thread could come to one of the objects; `frame` is the innermost of its stack, None before it runs."""
        roots: list[Any] = [thread]
        users = frame is None  # it was not started, or starts in this moment
        unknown = False
        while frame is not None:
            code, kind = frame.f_code, kind_of(frame.f_code.co_filename)
            users = users or kind == USERS
            if frame.f_locals is not frame.f_globals:
                roots += list(frame.f_locals.values())
            if kind in (USERS, INSTALLED):
                unknown = unknown or (kind == USERS and _imports_unknown(code))
                roots += self._named(code, frame.f_globals)
            frame = frame.f_back
        return unknown or self._found(roots, users)

    def from_signals(self) -> bool:
        """Return whether the handler of a signal could come to one of the objects."""
        handlers = [signal.getsignal(number) for number in signal.valid_signals()]
        return self._found([handler for handler in handlers if callable(handler) and handler is not signal.default_int_handler], False)

    def _found(self, roots: list[Any], users: bool) -> bool:
        seen: dict[int, Any] = {}  # the objects too, so that no other one gets the number of one that goes meanwhile
        level, depth = roots, 0
        while level and (users or depth < _DEEPEST):
            below: list[Any] = []
            for item in level:
                if id(item) in seen or id(item) in self._module_dicts:
                    continue
                if id(item) in self._targets or (users and type(item) is _Unknown):
                    return True
                seen[id(item)] = item
                if len(seen) > _MOST or (type(item) in _CONTAINERS and len(item) > _MOST):
                    return users
                below += [other for other in self._below(item) if gc.is_tracked(other)]
            level, depth = below, depth + 1
        return False

    def _below(self, item: Any) -> list[Any]:
        kind = type(item)  # not isinstance(): a proxy of a user may run code when it is asked for its class
        if issubclass(kind, _BARREN):
            return []
        if kind is FunctionType:
            return self._of_function(item)
        if issubclass(kind, type):
            return _of_type(item)
        below = gc.get_referents(item)
        if issubclass(kind, weakref.ref):
            below.append(weakref.ref.__call__(item))
        return below

    def _of_function(self, function: FunctionType) -> list[Any]:
        held: list[Any] = [function.__closure__, function.__defaults__, function.__kwdefaults__, vars(function)]
        kind = kind_of(function.__code__.co_filename)
        if kind in (PYTHONS, OURS):
            return held
        if kind == USERS and _imports_unknown(function.__code__):
            held.append(_Unknown())
        return held + self._named(function.__code__, function.__globals__)

    def _named(self, code: CodeType, known: dict[str, Any]) -> list[Any]:
        """Return the globals that code names, and what it names of the modules among them."""
        names = set(_names(code))
        values = [known[name] for name in names if name in known]
        modules = [value for value in values if issubclass(type(value), ModuleType)]
        modules += [sys.modules[name] for name in names if name in sys.modules and name not in known]
        for module in modules:
            if kind_of(vars(module).get("__file__") or "<frozen ") in (USERS, INSTALLED) or module.__name__ == "__main__":
                values += [vars(module)[name] for name in names if name in vars(module)]
        return [_Unknown() if issubclass(type(value), _BY_NAME_ONLY) else value for value in values]


class _Unknown:
    """In place of something that cannot be looked into: an instance is tracked by the collector, so it is not sorted out."""


def _of_type(kind: type) -> list[Any]:
    """Return what a class of the user holds: its methods, its attributes, its bases."""
    if not kind.__flags__ & _HEAP_TYPE:
        return []
    module = sys.modules.get(str(kind.__module__))
    file = getattr(module, "__file__", None) or ("<frozen " if kind.__module__ in sys.builtin_module_names else "<user>")
    return [*vars(kind).values(), *kind.__bases__] if kind_of(file) == USERS else []


def _names(code: CodeType) -> Iterator[str]:
    """Give the names in code, that of functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _imports_unknown(code: CodeType) -> bool:
    """Return whether code imports what was not imported yet: nothing is known of what that will do."""
    extended, raw = 0, code.co_code
    for place in range(0, len(raw), 2):
        operation, number = raw[place], raw[place + 1] | extended
        extended = number << 8 if operation == _EXTENDED else 0
        if operation == _IMPORT and code.co_names[number] not in sys.modules:
            return True
    return any(_imports_unknown(constant) for constant in code.co_consts if isinstance(constant, CodeType))
