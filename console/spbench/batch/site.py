"""What batch jobs of a cluster ask for, whatever the suite: the settings of site files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from spbench.config_files import UntrustedFileError, open_trusted
from spbench.errors import UsageError
from spbench.suites.case import Suite
from spbench.suites.settings import BatchSettings
from spbench.suites.site_file import FILE_NAME, find_user_site, read_site_file

_KEY = "launch.batch."


def batch_settings(
    suite: Suite,
    overrides: Sequence[str],
    site: Path | None,
    home: Path,
    warn: Callable[[str], None],
) -> BatchSettings:
    """Return what a suite's batch job asks for; each key is the first's that has it.

    ``--set`` comes first, then the file of ``--site``, the suite, ``site.yaml`` of the home, and
    ``site.yaml`` of the user's configuration. The last two are skipped with a warning if somebody
    else may have written them: even the home may be another user's folder.

    Raises:
        UsageError: A site file cannot be read, or has errors.
    """
    own = suite.launch.batch
    layers = [_only(own, _set(overrides)), *([read_site(site)] if site else []), own]
    for path in (home / FILE_NAME, find_user_site()):
        if os.path.isfile(path):
            try:
                layers.append(read_site(path, open_trusted))
            except UntrustedFileError as error:
                warn(f"{error}; to use it as it is, name it with --site")
    return merge_settings(layers)


def read_site(path: Path, open_: Callable[[Path], BinaryIO] | None = None) -> BatchSettings:
    """Return the batch settings of a site file; arguments and errors as for `read_site_file`."""
    return read_site_file(path, open_).batch


def merge_settings(layers: Iterable[BatchSettings]) -> BatchSettings:
    """Return the settings of which each key is the first layer's that sets it."""
    given: dict[str, object] = {}
    for layer in layers:
        given = {name: getattr(layer, name) for name in layer.model_fields_set} | given
    return BatchSettings().model_copy(update=given)


def _set(overrides: Sequence[str]) -> set[str]:
    keys = (text.partition("=")[0] for text in overrides)
    return {key.removeprefix(_KEY) for key in keys if key.startswith(_KEY)}


def _only(settings: BatchSettings, names: set[str]) -> BatchSettings:
    return BatchSettings().model_copy(update={name: getattr(settings, name) for name in names})


def count_slots(settings: BatchSettings, ranks_per_host: int | None) -> int | None:
    """Return how many ranks an allocation takes; None where that is not said."""
    if settings.nodes is None or ranks_per_host is None:
        return None
    return settings.nodes * ranks_per_host


def reject_unsupported(keyword: str | None, name: str, scheduler: str) -> None:
    """Refuse a setting that a scheduler has no option for.

    Raises:
        UsageError: It is set.
    """
    if keyword is not None:
        raise UsageError(
            f"launch.batch.{name}: {scheduler} has no option of that meaning; write your site's "
            "own into launch.batch.directives"
        )
