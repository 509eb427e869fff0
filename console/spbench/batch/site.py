"""Site files, ``spbench.site/1``: what batch jobs of a cluster ask for, whatever the suite.

::

    schema: spbench.site/1
    batch:
      scheduler: slurm
      account: proj42
      partition: compute
      time: 1:00:00
      modules: [python/3.11, openmpi/5.0]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import Field, ValidationError

from spbench.config_files import UntrustedFileError, open_trusted
from spbench.errors import Diagnostic, SuiteError, UsageError
from spbench.suites.case import Suite
from spbench.suites.findings import Findings
from spbench.suites.loader import read_file
from spbench.suites.settings import BatchSettings, StrictModel
from spbench.suites.wording import tell
from spbench.suites.yaml_nodes import YamlError, compose

NAME = "site.yaml"
_KEY = "launch.batch."


class SiteFile(StrictModel):
    """A whole site file."""

    schema_: Literal["spbench.site/1"] = Field(alias="schema", description="the format")
    batch: BatchSettings = Field(
        default=BatchSettings(), description="what batch jobs of this site ask for"
    )


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
    for path in (home / NAME, user_site()):
        if os.path.isfile(path):
            try:
                layers.append(read_site(path, open_trusted))
            except UntrustedFileError as error:
                warn(f"{error}; to use it as it is, name it with --site")
    return merged(layers)


def user_site() -> Path:
    """Return the path of the site file in the user's configuration."""
    from platformdirs import user_config_path

    return user_config_path("spbench") / NAME


def read_site(path: Path, open_: Callable[[Path], BinaryIO] | None = None) -> BatchSettings:
    """Return the settings of a site file.

    Args:
        path: The file.
        open_: Opens the file instead of `open`.

    Raises:
        UsageError: It cannot be read.
        SuiteError: It has errors; it holds them all.
    """
    try:
        document = compose(read_file(path, open_))
    except YamlError as error:
        mark = error.mark
        raise SuiteError([Diagnostic(str(path), mark.line, mark.column, str(error))]) from None
    findings = Findings(str(path), document)
    data = document.root.data
    settings = BatchSettings()
    try:
        settings = SiteFile.model_validate(data).batch
    except ValidationError as error:
        tell(error, data, findings, SiteFile)
    findings.raise_if_any()
    return settings


def merged(layers: Iterable[BatchSettings]) -> BatchSettings:
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


def slots(settings: BatchSettings, ranks_per_host: int | None) -> int | None:
    """Return how many ranks an allocation takes; None where that is not said."""
    if settings.nodes is None or ranks_per_host is None:
        return None
    return settings.nodes * ranks_per_host


def refuse_unknown(keyword: str | None, name: str, scheduler: str) -> None:
    """Refuse a setting that a scheduler has no option for.

    Raises:
        UsageError: It is set.
    """
    if keyword is not None:
        raise UsageError(
            f"launch.batch.{name}: {scheduler} has no option of that meaning; write your site's "
            "own into launch.batch.directives"
        )
