"""The fields of the last plan, kept for the next console."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from spbench.safe_files import make_folders, replace_file

_FILE = "console/last-plan.json"
_MODE = 0o600
_MAX_SECONDS = 3.0
"""The longest planning that is repeated without a key."""


@dataclass(frozen=True, slots=True)
class LastPlan:
    """The fields of a plan, and the time of planning.

    Attributes:
        fields: The texts of the fields by their ids, with the mode.
        seconds: The time that planning took.
    """

    fields: Mapping[str, str]
    seconds: float

    @property
    def title(self) -> str:
        """The profile and the cluster."""
        return f"{self.fields.get('profile', '')} for {self.fields.get('cluster', '')}"

    @property
    def is_quick(self) -> bool:
        """Whether planning takes so little time that no key is needed."""
        return self.seconds <= _MAX_SECONDS


def save_last_plan(home: Path, last_plan: LastPlan) -> None:
    """Keep the fields of a plan; a folder that cannot be written keeps none."""
    path = home / _FILE
    with suppress(OSError):
        make_folders(path.parent)
        replace_file(path, [json.dumps(asdict(last_plan))], _MODE, root=path.parent)


def load_last_plan(home: Path, folder: Path, newest_profile: str) -> LastPlan | None:
    """Return the last plan; None without one, or if a profile was written after it.

    Args:
        home: The folder of the runs.
        folder: The folder of relative paths.
        newest_profile: The newest profile.
    """
    path = home / _FILE
    try:
        if (folder / newest_profile).stat().st_mtime > path.stat().st_mtime:
            return None
        content = json.loads(path.read_text())
        fields = {str(id): str(text) for id, text in content["fields"].items()}
        if not (folder / fields["profile"].strip()).is_file():
            return None
        return LastPlan(fields, float(content["seconds"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # a first start, or a damaged file
