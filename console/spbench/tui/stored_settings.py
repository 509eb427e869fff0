"""The settings of a console and the file that keeps them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from spbench.errors import UsageError
from spbench.tui.settings import (
    check_action_ids,
    find_settings_path,
    has_explicit_path,
    load_settings,
    save_setting,
)


class StoredSettings:
    """The settings of a console, and their file.

    Args:
        environ: The environment, which may name the file.
        themes: The names of all themes.

    Attributes:
        path: The file; it need not exist.
        current: The valid settings.
        errors: An error message for each of the others.
    """

    def __init__(self, environ: Mapping[str, str], themes: Collection[str]) -> None:
        self.path = find_settings_path(environ)
        self._explicit = has_explicit_path(environ)
        loaded = load_settings(self.path, themes, explicit=self._explicit)
        self.current = loaded.settings
        self.errors = loaded.errors

    def check_keys(self, ids: Collection[str]) -> None:
        """Add an error message for each unknown action of the setting ``keys``."""
        self.errors += check_action_ids(self.path, self.current, ids)

    def save(self, name: str, value: str | float) -> None:
        """Write a setting into the file, if it has another value.

        Raises:
            SpbenchError: The file has errors, or cannot be changed.
        """
        if getattr(self.current, name) == value:
            return
        if self.errors:
            raise UsageError(f"fix {self.path} first; it was left unchanged")
        save_setting(self.path, name, value, explicit=self._explicit)
        changes: dict[str, Any] = {name: value}
        self.current = replace(self.current, **changes)
