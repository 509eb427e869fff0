"""``spbench report``: a run in the formats of other programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spbench.cli.records.gate_options import MaxUnjudgedOption, ReportFailOnOption, load_gate
from spbench.cli.request import (
    FROM_SUFFIX,
    STDOUT,
    HomeOption,
    OutputOption,
    RunOrReportArgument,
    choose_format,
    reject_folder,
    write_output,
)
from spbench.cli.value_completions import complete_baseline
from spbench.errors import SpbenchError, UsageError

if TYPE_CHECKING:
    from spbench.report.gate.baseline_gate import GateResult
    from spbench.report.recorded import RecordedRun

DEFAULT_FORMAT = "md"
_SUFFIXES = {
    ".html": "html",
    ".htm": "html",
    ".md": "md",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".xml": "junit",
    ".prom": "openmetrics",
}
"""The format of an output file by its suffix; `.json` is missing, since several are JSON."""
_FOR_PEOPLE = ("html", "md", "markdown")
"""The formats for people, which show unjudged cases as not judged."""
_WITH_BASELINE = (*_FOR_PEOPLE, "junit", "annotations")
"""The formats that show how a run compares with a baseline."""
JunitOption = Annotated[
    str | None,
    typer.Option("--junit", help="Write JUnit XML for a CI server", metavar="FILE"),
]
HtmlOption = Annotated[
    str | None, typer.Option("--html", help="Write a web page in one file", metavar="FILE")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(report)


def report(
    run: RunOrReportArgument = "last",
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="html, md, csv, jsonl, junit, openmetrics, grafana, syslog, trace, annotations, "
            f"or a format of a plug-in{FROM_SUFFIX}",
            metavar="FORMAT",
            show_default=DEFAULT_FORMAT,
        ),
    ] = None,
    output: OutputOption = STDOUT,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            help="Compare the run with this baseline (html, md, junit, annotations)",
            metavar="NAME",
            autocompletion=complete_baseline,
        ),
    ] = None,
    fail_on: ReportFailOnOption = None,
    max_unjudged: MaxUnjudgedOption = None,
    push: Annotated[
        str | None,
        typer.Option("--push", help="Send openmetrics to this push gateway", metavar="URL"),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Write a run as a web page, for a CI server or for monitoring."""
    reject_folder("--output", output)
    from spbench.cli.records.recorded import load_run_or_report
    from spbench.record.runs.folder import find_home

    format_ = choose_format(format_, output, _SUFFIXES, DEFAULT_FORMAT)
    if baseline is not None and format_ not in _WITH_BASELINE:
        formats = ", ".join(_WITH_BASELINE)
        raise UsageError(f"--baseline is for {formats}; spbench compare has other formats")
    if push is not None and format_ != "openmetrics":
        raise UsageError("--push is for --format openmetrics, which a push gateway takes")
    gate = load_gate(home, baseline, fail_on, max_unjudged)
    recorded = load_run_or_report(find_home(home, os.environ), run)
    text = _render_report(recorded, format_, gate.judge(recorded) if gate else None)
    if push is not None:
        _push(text, push, recorded)
    if push is None or output != STDOUT:
        write_output(text, output)


def _render_report(run: RecordedRun, format_: str, gate_result: GateResult | None) -> str:
    """Return a report of a run, or of the run's comparison with a baseline."""
    from spbench.report.formats.writing import render_report

    if gate_result is None:
        return render_report(run, format_, None)
    shown = gate_result.run_for_readers if format_ in _FOR_PEOPLE else gate_result.run_for_programs
    return render_report(shown, format_, gate_result.comparison)


def _push(text: str, gateway: str, recorded: RecordedRun) -> None:
    from spbench.report.formats.openmetrics import push_metrics

    sys.stderr.write(f"spbench: pushing {recorded.summary.id} to {gateway}\n")
    address = push_metrics(text, gateway, recorded.summary.suite)
    print(f"pushed {recorded.summary.id} to {address}")


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """The report files that ``spbench run`` writes; None without the option."""

    junit: str | None = None
    html: str | None = None

    def targets(self) -> Iterator[tuple[str, str]]:
        """Yield the format and path of each file."""
        for format_, path in (("junit", self.junit), ("html", self.html)):
            if path is not None:
                yield format_, path

    def check(self) -> None:
        """Reject invalid paths before the run.

        Raises:
            UsageError: A path is a folder, or stdout.
        """
        for format_, path in self.targets():
            reject_folder(f"--{format_}", path)
            if path == STDOUT:
                raise UsageError(
                    f"--{format_} -: the run's lines go to stdout; name a file, or use "
                    f"spbench report last --format {format_}"
                )

    def write(self, run: RecordedRun, gate_result: GateResult | None = None) -> list[str]:
        """Write the files; return a message for each that could not be written."""
        from spbench.record.runs.files import write_file

        unwritten = []
        for format_, path in self.targets():
            try:
                write_file(Path(path), _render_report(run, format_, gate_result))
            except SpbenchError as error:
                unwritten.append(str(error))
        return unwritten

    def write_rejection(self, document: dict[str, Any]) -> None:
        """Write the reports of a run that never started, unless their paths are invalid."""
        try:
            self.check()
        except UsageError:
            return
        if not any(self.targets()):
            return
        from spbench.report.model import Report
        from spbench.report.recorded import make_recorded_run

        for unwritten in self.write(
            make_recorded_run(Report.model_validate(document), Path("report.json"))
        ):
            sys.stderr.write(f"spbench: error: {unwritten}\n")


NO_FILES = ReportFiles()
