"""``spbench results``: the runs of a home folder."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.help_pages import HelpGroup
from spbench.cli.records import history, upkeep
from spbench.cli.records.rank_tables import render_link_table, render_rank_tables
from spbench.cli.request import (
    FROM_SUFFIX,
    STDOUT,
    HomeOption,
    OutputOption,
    RunArgument,
    choose_format,
    reject_folder,
    write_output,
)
from spbench.errors import (
    FailedRunError,
    MissingError,
    NothingSelected,
    UsageError,
    did_you_mean,
)

if TYPE_CHECKING:
    from spbench.record.runs.folder import RunFolder
    from spbench.record.state import RunState
    from spbench.report.links import LinkMatrix
    from spbench.report.recorded import RecordedRun

DEFAULT_FORMAT = "csv"
_SUFFIXES = {".csv": "csv", ".json": "json", ".md": "md", ".parquet": "parquet"}
"""The format of an exported file by its suffix."""
_ENDED_BADLY = ("error", "timeout")
"""Statuses of cases for which the output of the job is shown."""

group = typer.Typer(cls=HelpGroup, help="List, show, export and remove runs.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    history.register(group)
    upkeep.register(group)
    app.add_typer(group, name="results")


@group.command("list")
def list_(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Words of the id, suite, status, host, mark or note; or suite:NAME, "
            "status:STATUS, host:NAME, tag:NAME, mark:MARK, since:DATE",
            metavar="FILTER",
        ),
    ] = None,
    newest: Annotated[
        int | None,
        typer.Option("-n", "--newest", help="List only the newest N runs", metavar="N", min=1),
    ] = None,
    home: HomeOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON with all fields, the oldest run first")
    ] = False,
) -> None:
    """List runs, the newest first.

    A mark shows that a run had a planted fault, or that its machine or libraries differ from those
    of the newest run of its suite.
    """
    from spbench.record.number_formatting import replace_controls
    from spbench.record.runs.folder import find_home
    from spbench.record.runs.history import list_summaries
    from spbench.record.runs.marks import MARK_WORDS, find_marks
    from spbench.record.runs.selection import select_runs

    runs = list_summaries(find_home(home, os.environ))
    text = " ".join(words or ())
    chosen = select_runs(runs, text)
    chosen = chosen if newest is None else chosen[-newest:]
    marks_by_run = find_marks(runs)
    if as_json:
        from spbench.report.export import summary_object

        word_by_mark = {mark: word for word, mark in MARK_WORDS.items()}
        objects = [
            summary_object(run)
            | {
                "faults": list(run.faults),
                "marks": [word_by_mark[mark] for mark in marks_by_run.get(run.id, ())],
            }
            for run in chosen
        ]
        print(json.dumps(objects, indent=1))
    else:
        from spbench.cli.records.run_list import format_runs

        for line in format_runs(chosen[::-1], marks_by_run, _find_terminal_width()):
            print(replace_controls(line))
    if runs and not chosen:
        raise NothingSelected(f"the filter {text!r} fits none of the {len(runs)} runs")


def _find_terminal_width() -> int | None:
    """Return the columns of the terminal; None for a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


@group.command()
def reindex(home: HomeOption = None) -> None:
    """Make the index of the runs again from their folders."""
    from spbench.record.runs.folder import find_home

    root = find_home(home, os.environ)
    if not (root / "runs").is_dir():
        raise UsageError(f"there are no runs under {root}")
    try:
        from spbench.record.runs.index import reindex as rebuild_index
    except ImportError:
        raise MissingError("this Python has no sqlite3; runs are listed without an index") from None
    count, why_not = rebuild_index(root)
    if why_not:
        raise FailedRunError(f"the index cannot be written: {why_not}; runs are listed without it")
    print(f"runs in the index of {root}: {count}")


@group.command()
def show(
    run: RunArgument = "last",
    home: HomeOption = None,
    links: Annotated[
        bool, typer.Option("--links", help="Show latencies and bandwidths between ranks as tables")
    ] = False,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="Show host, cores and time of each rank")
    ] = False,
    logs: Annotated[
        bool, typer.Option("--logs", help="Show the end of stdout and stderr of each job")
    ] = False,
) -> None:
    """Show the cases of a run, also of one that was killed."""
    from spbench.record.number_formatting import replace_controls
    from spbench.record.runs.folder import find_home, find_run

    folder = find_run(find_home(home, os.environ), run)
    matrices = _load_matrices(folder) if links else []
    state = folder.replay()
    _show_cases(folder, state)
    for line in render_rank_tables(state) if ranks else ():
        print(line)
    for line in _generate_output(folder, state, all_jobs=logs):
        print(line)
    for matrix in matrices:
        for table in matrix.tables:
            print(f"\n{replace_controls(f'{matrix.case}: {table.title}')}")
            for line in render_link_table(table):
                print(replace_controls(line))


def _show_cases(folder: RunFolder, state: RunState) -> None:
    from spbench.cli.runs.case_details import CASE_INDENT, render_detail_legend, render_details
    from spbench.cli.runs.case_table import CaseTable
    from spbench.cli.runs.lines import LineView, describe_unfinished, list_remarks
    from spbench.cli.text_layout import indent_text, output_width
    from spbench.record.judge import describe_not_judged
    from spbench.record.number_formatting import replace_line_controls

    width = output_width(sys.stdout)
    table = CaseTable(state.cases, state.jobs, width, detailed=True)
    for case in state.cases.values():
        for line in table.render_case(case):
            print(line)
        for remark in (*list_remarks(case, case.execution.reason), *describe_not_judged(case)):
            for line in indent_text(remark, width, CASE_INDENT):
                print(line)
        for line in render_details(case, state.jobs, width, table.metrics_in_row(case)):
            print(line)
    for note in (*table.render_legend(), *render_detail_legend(state.cases.values(), state.jobs)):
        for line in indent_text(note, width):
            print(line)
    if state.skipped_message:
        print(replace_line_controls(state.skipped_message))
    ended = state.run is not None and state.run.finished is not None
    if ended:
        LineView(state, print, 0, width).finish(folder.report_line)
    else:
        print(replace_line_controls(describe_unfinished(folder)))


def _generate_output(folder: RunFolder, state: RunState, *, all_jobs: bool) -> Iterator[str]:
    """Yield tracebacks of ranks, and the output of all jobs or of those with errors."""
    from spbench.record.number_formatting import replace_line_controls
    from spbench.record.runs.job_output import read_job_output

    failed_jobs = set()
    for case in state.cases.values():
        errors_of_ranks = [
            (rank, part.error) for rank, part in case.measured.ranks.items() if part.error
        ]
        if case.status in _ENDED_BADLY and case.execution.job is not None:
            failed_jobs.add(case.execution.job)
        for rank, error in sorted(errors_of_ranks, key=lambda pair: pair[0]):
            yield replace_line_controls(
                f"\n{case.id}, rank {rank}: {error.get('message', 'an error')}"
            )
            yield from map(
                replace_line_controls, (error.get("traceback") or "").rstrip().splitlines()
            )
    for job in state.jobs if all_jobs else sorted(failed_jobs):
        for stream in read_job_output(folder, job):
            yield f"\njob {job}: {stream.title}"
            yield from stream.text.rstrip().splitlines()


def _load_matrices(folder: RunFolder) -> list[LinkMatrix]:
    from spbench.cli.records.recorded import read_run
    from spbench.report.links import build_link_matrices

    matrices = build_link_matrices(read_run(folder))
    if not matrices:
        raise NothingSelected(
            f"run {folder.id} has no case that measured links between ranks; "
            "run one, as in suites/links.yaml"
        )
    return matrices


@group.command()
def export(
    run: RunArgument = "last",
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"csv, json, md or parquet{FROM_SUFFIX}",
            metavar="FORMAT",
            show_default=DEFAULT_FORMAT,
        ),
    ] = None,
    output: OutputOption = STDOUT,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            help="Table of a parquet file: metrics, samples or points",
            metavar="TABLE",
            show_default="metrics",
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Export the metrics of a run, or its whole report."""
    reject_folder("--output", output)
    from spbench.cli.records.recorded import read_run
    from spbench.record.runs.folder import find_home, find_run
    from spbench.report.export import export_text

    format_ = choose_format(format_, output, _SUFFIXES, DEFAULT_FORMAT)
    recorded = read_run(find_run(find_home(home, os.environ), run))
    if format_ == "parquet":
        _export_parquet(recorded, output, table or "metrics")
        return
    if table is not None:
        raise UsageError("--table is for --format parquet; csv has the metrics, json all of it")
    write_output(export_text(recorded, format_), output)


def _export_parquet(recorded: RecordedRun, output: str, table: str) -> None:
    from spbench.report.frames import TABLES, write_parquet

    if output == STDOUT:
        raise UsageError("--format parquet writes a file: name it with --output")
    if table not in TABLES:
        suggestion = did_you_mean(table, TABLES)
        raise UsageError(f"there is no table {table!r}{suggestion}; there are {', '.join(TABLES)}")
    write_parquet(recorded, Path(output), TABLES[TABLES.index(table)])
