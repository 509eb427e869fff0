"""Site files, ``spbench.site/1``: name and batch settings of a system.

::

    schema: spbench.site/1
    name: mycluster
    batch:
      scheduler: slurm
      account: proj42
      partition: compute
      time: 1:00:00
      modules: [python/3.11, openmpi/5.0]
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import Field, ValidationError
from pydantic.json_schema import SkipJsonSchema

from spbench.config_files import UntrustedFileError, open_trusted
from spbench.errors import Diagnostic, SuiteError
from spbench.suites.file_errors import FileErrors
from spbench.suites.loader import read_suite_file
from spbench.suites.model import Name
from spbench.suites.settings import BatchSettings, StrictModel
from spbench.suites.validation_messages import report_errors
from spbench.suites.yaml_nodes import YamlError, parse_yaml

FILE_NAME = "site.yaml"


class SiteFile(StrictModel):
    """A whole site file."""

    schema_: Literal["spbench.site/1"] = Field(alias="schema", description="the format")
    name: Name | SkipJsonSchema[None] = Field(
        default=None, description="the system, as references of suites name it"
    )
    batch: BatchSettings = Field(
        default=BatchSettings(), description="what batch jobs of this site ask for"
    )


def find_user_site() -> Path:
    """Return the path of the site file in the user's configuration."""
    from platformdirs import user_config_path

    return user_config_path("spbench") / FILE_NAME


def read_site_file(path: Path, open_: Callable[[Path], BinaryIO] | None = None) -> SiteFile:
    """Read and check a site file.

    Args:
        path: The file.
        open_: Opens the file instead of `open`.

    Raises:
        UsageError: It cannot be read.
        SuiteError: It has errors; the exception contains all of them.
    """
    try:
        document = parse_yaml(read_suite_file(path, open_))
    except YamlError as error:
        mark = error.mark
        raise SuiteError([Diagnostic(str(path), mark.line, mark.column, str(error))]) from None
    errors = FileErrors(str(path), document)
    data = document.root.data
    try:
        site = SiteFile.model_validate(data)
    except ValidationError as error:
        report_errors(error, data, errors, SiteFile)
        errors.raise_if_any()
        raise
    errors.raise_if_any()
    return site


def find_system(home: Path, warn: Callable[[str], None]) -> str:
    """Return the name of this system, from a site file or from the host's name.

    The site file of the home comes first, then that of the user's configuration. A file that
    another user may have written is skipped with a warning.

    Raises:
        UsageError: A site file cannot be read.
        SuiteError: A site file has errors.
    """
    for path in (home / FILE_NAME, find_user_site()):
        if not os.path.isfile(path):
            continue
        try:
            name = read_site_file(path, open_trusted).name
        except UntrustedFileError as error:
            warn(f"{error}; its name is not used, give the system with --system")
            continue
        if name is not None:
            return name
    return derive_system_name(socket.gethostname())


def derive_system_name(host: str) -> str:
    """Return the common name of a cluster's hosts: ``node`` for ``node017.org``."""
    label = host.partition(".")[0]
    return label.rstrip("0123456789").rstrip("-_") or label
