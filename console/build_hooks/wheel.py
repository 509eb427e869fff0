"""Adds the version to a wheel, in the file where the package reads it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VERSION_PATH = "spbench/version.txt"


class VersionFile(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the version into the wheel; for an editable installation, into the tree."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        text = f"{self.metadata.version}\n"
        if version == "editable":
            Path(self.root, "console", VERSION_PATH).write_text(text)
            return
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name, "version.txt")
        path.write_text(text)
        build_data["force_include"][str(path)] = VERSION_PATH

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()
