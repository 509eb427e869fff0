"""Settings of a site's batch jobs for all suites, from site files."""

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


def collect_batch_settings(
    suite: Suite,
    overrides: Sequence[str],
    site: Path | None,
    home: Path,
    warn: Callable[[str], None],
) -> BatchSettings:
    """Return the settings of a batch job, each from the first source that has it.

    The sources are ``--set``, the file of ``--site``, the suite, ``site.yaml`` of the home, and
    ``site.yaml`` of the user's configuration. The last two are skipped with a warning if another
    user may have written them: even the home may be another user's folder.

    Raises:
        UsageError: A site file cannot be read, or has errors.
    """
    suite_settings = suite.launch.batch
    overridden_settings = _select_settings(suite_settings, _list_overridden_keys(overrides))
    layers = [overridden_settings, *([read_site(site)] if site else []), suite_settings]
    for path in (home / FILE_NAME, find_user_site()):
        if os.path.isfile(path):
            try:
                layers.append(read_site(path, open_trusted))
            except UntrustedFileError as error:
                warn(f"{error}; to use it as it is, name it with --site")
    return merge_settings(layers)


def read_site(path: Path, open_: Callable[[Path], BinaryIO] | None = None) -> BatchSettings:
    """Read the batch settings of a site file; see `read_site_file`."""
    return read_site_file(path, open_).batch


def merge_settings(layers: Iterable[BatchSettings]) -> BatchSettings:
    """Return settings with each key from the first layer that sets it."""
    value_by_name: dict[str, object] = {}
    for layer in layers:
        value_by_name = {
            name: getattr(layer, name) for name in layer.model_fields_set
        } | value_by_name
    return BatchSettings().model_copy(update=value_by_name)


def _list_overridden_keys(overrides: Sequence[str]) -> set[str]:
    keys = (text.partition("=")[0] for text in overrides)
    return {key.removeprefix(_KEY) for key in keys if key.startswith(_KEY)}


def _select_settings(settings: BatchSettings, names: set[str]) -> BatchSettings:
    return BatchSettings().model_copy(update={name: getattr(settings, name) for name in names})


def count_slots(settings: BatchSettings, ranks_per_host: int | None) -> int | None:
    """Return the number of ranks in an allocation; None if nodes or ranks are not set."""
    if settings.nodes is None or ranks_per_host is None:
        return None
    return settings.nodes * ranks_per_host


def reject_unsupported(setting: str | None, name: str, scheduler: str) -> None:
    """Reject a setting for which a scheduler has no option.

    Raises:
        UsageError: The setting has a value.
    """
    if setting is not None:
        raise UsageError(
            f"launch.batch.{name}: {scheduler} has no option of that meaning; write your site's "
            "own into launch.batch.directives"
        )
