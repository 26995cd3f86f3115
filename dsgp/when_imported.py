"""An action that runs when a module is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call ``action`` once the module ``name`` is imported: now, or just after its first import."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Watch(name, action))


class _Watch(MetaPathFinder):
    """Finds a module in the usual way, and lets its loader call the action."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name = name
        self.action = action
        self._looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name or self._looking:
            return None
        self._looking = True
        try:
            spec = find_spec(fullname)
        finally:
            self._looking = False
        if spec is None or spec.loader is None:
            return None
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if module.__name__ == self.name and self in sys.meta_path:
                sys.meta_path.remove(self)
                self.action()

        # On the loader itself: the module refers to it as its own, and other libraries check its
        # type.
        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
