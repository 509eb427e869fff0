"""Changes modules on import, in Python processes with this folder in PYTHONPATH.

``GPU_ONCE_CHANGES`` has items `MODULE=CHANGER:FUNCTION`, separated by spaces. After MODULE has been
imported, FUNCTION of the module CHANGER is called with it. Processes that never import MODULE are
unchanged.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class ChangedModules(importlib.abc.MetaPathFinder):
    """Finds the modules to change, each once."""

    def __init__(self, changes: dict[str, str]) -> None:
        self._remaining = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        changer = self._remaining.pop(name, None)
        spec = importlib.util.find_spec(name) if changer else None
        if changer is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            source, _, function = changer.partition(":")
            getattr(importlib.import_module(source), function)(module)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


_changes = os.environ.get("GPU_ONCE_CHANGES", "").split()
sys.meta_path.insert(0, ChangedModules(dict(change.split("=", 1) for change in _changes)))
