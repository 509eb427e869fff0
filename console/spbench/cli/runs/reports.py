"""The reports of ``spbench run``, also of a rejected request."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.cli.records.report import NO_FILES, ReportFiles
from spbench.cli.request import STDOUT
from spbench.errors import SpbenchError, UsageError

if TYPE_CHECKING:
    from spbench.report.document import ReportDocument

REPORT_OPTIONS = ("--json", "--junit", "--html")
"""The options that name a file for a report."""


def report_usage(message: str, arguments: list[str]) -> None:
    """Write the reports that a ``run`` with invalid arguments asks for."""
    targets = {
        argument: arguments[index + 1]
        for index, argument in enumerate(arguments[:-1])
        if argument in REPORT_OPTIONS
    }
    if arguments[:1] == ["run"] and targets:
        json_target, junit, html = (targets.get(option) for option in REPORT_OPTIONS)
        report_rejection(UsageError(message), json_target, ReportFiles(junit, html))


def report_rejection(
    error: SpbenchError, json_target: str | None, files: ReportFiles = NO_FILES
) -> None:
    """Write the reports of a run that was rejected, if options ask for them."""
    from spbench.report.build import build_rejected_report
    from spbench.report.document import ReportDocument

    report = build_rejected_report(str(error), error.exit_code, sys.argv[1:])
    try:
        write_report(ReportDocument.from_json(report), json_target, False)
    except SpbenchError as unwritten:
        # The reason for the rejection matters more than a report that could not be written.
        sys.stderr.write(f"spbench: error: {unwritten}\n")
    files.write_rejection(report)


def write_report(report: ReportDocument, target: str | None, no_samples: bool) -> None:
    """Write a report to the target of ``--json``, if there is one.

    Raises:
        FailedRunError: The report could not be written.
    """
    if target is None:
        return
    from spbench.record.runs.files import unwritable_error, write_chunks

    chunks = report.chunks(with_samples=not no_samples)
    if target != STDOUT:
        write_chunks(Path(target), chunks)
        return
    try:
        sys.stdout.writelines(chunks)
        sys.stdout.flush()
    except OSError as error:
        # If the reader has gone, the exit code still shows the result.
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise unwritable_error(Path("/dev/stdout"), error) from None
