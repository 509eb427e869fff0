"""The files of baselines: ``baselines/NAME.json`` in a home, or any path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spbench.errors import UsageError, did_you_mean
from spbench.record.runs.files import read_json, unwritable_error, write_file
from spbench.record.runs.prune import BASELINES
from spbench.record.runs.report_text import read_report_file
from spbench.report.baselines.model import SCHEMA, BaselineFile

SUFFIX = ".json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RUN_NAME = re.compile(r"last(~\d+)?|\d{8}(-.*)?")
"""The names that are reserved for runs."""


def baseline_path(home: Path, name: str) -> Path:
    """Return the file of a baseline by its name, or by its path to a ``.json`` file.

    Raises:
        UsageError: `name` is neither a path nor a valid name.
    """
    if name.endswith(SUFFIX):
        return Path(name)
    if _RUN_NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a baseline: it names a run")
    if not _NAME.fullmatch(name):
        use = "letters, digits and . _ - with a letter or digit first, or a path to a .json"
        raise UsageError(f"{name!r} cannot name a baseline: use {use}")
    return home / BASELINES / f"{name}{SUFFIX}"


def baseline_name(path: Path) -> str:
    """Return the name of the baseline in a file."""
    return path.name.removesuffix(SUFFIX)


def list_baseline_names(home: Path) -> list[str]:
    """Return the names of a home's baselines."""
    return sorted(baseline_name(path) for path in (home / BASELINES).glob(f"*{SUFFIX}"))


def load_baseline(home: Path, name: str) -> BaselineFile:
    """Load a baseline by its name or path.

    Raises:
        UsageError: There is no such file, or this version of spbench cannot read it.
    """
    path = baseline_path(home, name)
    try:
        document = read_json(path)
    except FileNotFoundError:
        names = list_baseline_names(home)
        hint = did_you_mean(name, names)
        if names and not hint:
            hint = f"; there are {', '.join(names)}"
        raise UsageError(f"there is no baseline {name!r} ({path}){hint}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"baseline {path} cannot be read: {error}") from None
    return _parse_baseline(document, path)


def is_baseline(path: Path) -> bool:
    """Return whether the format of a file is a baseline, in any version."""
    try:
        head, _ = read_report_file(path, lambda case: None)  # works for large reports, too
    except (OSError, ValueError):
        return False
    schema = head.get("schema")
    return isinstance(schema, str) and schema.partition("/")[0] == SCHEMA.partition("/")[0]


def _parse_baseline(document: Any, path: Path) -> BaselineFile:
    schema = document.get("schema") if isinstance(document, dict) else None
    if isinstance(schema, str) and schema != SCHEMA and schema.startswith("spbench.baseline/"):
        raise UsageError(
            f"baseline {path} is of the format {schema}, and this spbench reads {SCHEMA}: install "
            "the version that wrote it, or set the baseline again"
        )
    try:
        return BaselineFile.model_validate(document)
    except ValidationError as error:
        first_error = error.errors()[0]
        field = ".".join(map(str, first_error["loc"]))
        raise UsageError(
            f"{path} is no baseline of spbench: {field}: {first_error['msg']}"
        ) from None


def save_baseline(home: Path, name: str, baseline: BaselineFile) -> Path:
    """Write a baseline under its name or path, and return the file.

    Raises:
        UsageError: The name is invalid, or the file exists and is not a baseline.
        FailedRunError: The file cannot be written.
    """
    path = baseline_path(home, name)
    _check_is_baseline(home, path)
    json_text = baseline.model_dump_json(by_alias=True, indent=1) + "\n"
    write_file(path, json_text, root=path.parent)
    return path


def remove_baseline(home: Path, name: str) -> Path:
    """Remove a baseline, and return its file.

    Raises:
        UsageError: There is no such baseline, or the file is not a baseline.
        FailedRunError: The file cannot be removed.
    """
    path = baseline_path(home, name)
    _check_is_baseline(home, path)
    if not path.exists():
        load_baseline(home, name)  # raises the error, with similar names
    try:
        path.unlink()
    except OSError as error:
        raise unwritable_error(path, error) from None
    return path


def _check_is_baseline(home: Path, path: Path) -> None:
    """Reject a file that is not a baseline and not in the home's folder."""
    if path.exists() and path.parent != home / BASELINES and not is_baseline(path):
        raise UsageError(f"{path} is no baseline of spbench; it stays")


def load_baselines(home: Path) -> Iterator[tuple[str, BaselineFile | UsageError]]:
    """Yield the baselines of a home by name, or the errors of those not readable."""
    for name in list_baseline_names(home):
        try:
            yield name, load_baseline(home, name)
        except UsageError as error:
            yield name, error
