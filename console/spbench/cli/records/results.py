"""``spbench results``: the runs of a home folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.records import history, notes, prune, series
from spbench.cli.request import HomeOption, RunArgument, refuse_folder
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
    from spbench.report.links import LinkMatrix, LinkTable
    from spbench.report.recorded import RecordedRun

MOST_RANKS = 64
"""Ranks of the largest matrix of ranks that is printed; with more it is that of hosts alone."""

_ENDED_BADLY = ("error", "timeout")
"""Statuses of cases whose jobs' output may say why."""

group = typer.Typer(help="The runs of a home folder.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    series.register(group)
    history.register(group)
    notes.register(group)
    prune.register(group)
    app.add_typer(group, name="results")


@group.command("list")
def list_(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Words of id, suite, verdict, host or note; suite:, verdict:, host:, tag:, "
            "since:2026-11-01.",
            metavar="[FILTER]...",
        ),
    ] = None,
    home: HomeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with all fields.")] = False,
) -> None:
    """List the runs that fit a filter, the oldest first."""
    from spbench.record.number_formatting import clean
    from spbench.record.runs.folder import home_of
    from spbench.record.runs.history import select_runs, summaries
    from spbench.record.runs.notes import NO_NOTE
    from spbench.report.times import day_and_time

    runs = summaries(home_of(home, os.environ))
    text = " ".join(words or ())
    chosen = select_runs(runs, text)
    if as_json:
        from spbench.report.export import summary_object

        print(json.dumps([summary_object(run) for run in chosen], indent=1))
    else:
        lines = [
            f"{run.id:<46} {day_and_time(run.started):<20}  {run.verdict:<10} "
            f"{run.passed:>7}  {run.suite}"
            + (f"  {run.note}" if run.note != NO_NOTE else "")
            + (f"  {run.unreadable}" if run.unreadable else "")
            for run in chosen
        ]
        print("".join(f"{clean(line)}\n" for line in lines), end="")
    if runs and not chosen:
        raise NothingSelected(f"the filter {text!r} fits none of the {len(runs)} runs")


@group.command()
def reindex(home: HomeOption = None) -> None:
    """Make the index of the runs again from their folders."""
    from spbench.record.runs.folder import home_of

    root = home_of(home, os.environ)
    if not (root / "runs").is_dir():
        raise UsageError(f"there are no runs under {root}")
    try:
        from spbench.record.runs.index import reindex as index_again
    except ImportError:
        raise MissingError("this Python has no sqlite3; runs are listed without an index") from None
    count, why_not = index_again(root)
    if why_not:
        raise FailedRunError(f"the index cannot be written: {why_not}; runs are listed without it")
    print(f"runs in the index of {root}: {count}")


@group.command()
def show(
    run: RunArgument = "last",
    home: HomeOption = None,
    links: Annotated[
        bool, typer.Option("--links", help="What was measured between ranks, as matrices.")
    ] = False,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="Where each rank was, beside its times.")
    ] = False,
    output: Annotated[
        bool, typer.Option("--output", help="The end of each job's stdout and stderr.")
    ] = False,
) -> None:
    """Show a run's cases, as its events tell; also of a run whose console was killed."""
    from spbench.record.number_formatting import clean
    from spbench.record.runs.folder import find_run, home_of

    folder = find_run(home_of(home, os.environ), run)
    matrices = _matrices(folder) if links else []
    state = folder.replay()
    _show_cases(folder, state)
    for line in _rank_lines(state) if ranks else ():
        print(line)
    for line in _output_lines(folder, state, all_jobs=output):
        print(line)
    for matrix in matrices:
        for table in matrix.tables:
            print(f"\n{clean(f'{matrix.case}: {table.title}')}")
            for line in _table_lines(table):
                print(clean(line))


def _show_cases(folder: RunFolder, state: RunState) -> None:
    from spbench.cli.lines import MOST_WIDTH, Lines, case_line, share_lines
    from spbench.cli.records.replay import unfinished
    from spbench.record.number_formatting import clean, printable

    width = min(MOST_WIDTH, max(map(len, state.cases), default=0))
    for case in state.cases.values():
        print(clean(case_line(case, width)))
        if case.verdict.reason:
            print(printable(f"        {case.verdict.reason}"))
        for line in share_lines(case):
            print(printable(line))
    if state.left_out:
        print(printable(state.left_out))
    ended = state.run is not None and state.run.finished is not None
    if ended:
        Lines(state, print, 0).finish(folder.report_line)
    else:
        print(printable(unfinished(folder)))


def _output_lines(folder: RunFolder, state: RunState, *, all_jobs: bool) -> Iterator[str]:
    """The errors of ranks with their tracebacks, and what jobs wrote; else of those with errors."""
    from spbench.record.number_formatting import printable
    from spbench.record.runs.job_output import job_output

    failed = set()
    for case in state.cases.values():
        raised = [(rank, part.error) for rank, part in case.measured.ranks.items() if part.error]
        if case.status in _ENDED_BADLY and case.verdict.job is not None:
            failed.add(case.verdict.job)
        for rank, error in sorted(raised, key=lambda pair: pair[0]):
            yield printable(f"\n{case.id}, rank {rank}: {error.get('message', 'an error')}")
            yield from map(printable, (error.get("traceback") or "").rstrip().splitlines())
    for job in state.jobs if all_jobs else sorted(failed):
        for end in job_output(folder, job):
            yield f"\njob {job}: {end.title}"
            yield from end.text.rstrip().splitlines()


def _rank_lines(state: RunState) -> Iterator[str]:
    """The ranks of each case: where they were, and the median of their times."""
    from spbench.cli.tables import aligned
    from spbench.record.machine.cores import place_cells
    from spbench.record.number_formatting import number, printable

    for case in state.cases.values():
        medians = case.rank_medians()
        rows = [["rank", "host", "local", "CPUs", "NUMA", "device", "adapters", "ms"]]
        for rank, part in sorted(case.measured.ranks.items()):
            time = number(medians[rank]) if rank in medians else ""
            rows.append([str(rank), *place_cells(part), time])
        yield f"\n{case.id}"
        yield from map(printable, aligned(rows, (0, 2, 7)))


def _matrices(folder: RunFolder) -> list[LinkMatrix]:
    from spbench.cli.records.recorded import read_run
    from spbench.report.links import link_matrices

    matrices = link_matrices(read_run(folder))
    if not matrices:
        raise NothingSelected(
            f"run {folder.id} has no case that measured links between ranks; "
            "run one, as in suites/links.yaml"
        )
    return matrices


def _table_lines(table: LinkTable) -> Iterator[str]:
    """The matrix of ranks where it is not too large, that of hosts where there are several."""
    from spbench.cli.tables import aligned
    from spbench.record.findings import NOTABLE_LINK

    if len(table.ranks) <= MOST_RANKS:
        rows = _rank_rows(table)
        yield from aligned(rows, range(len(rows[0])))
    rows = _host_rows(table)
    if len(rows) > 2:
        yield "the worst pair of ranks on each two hosts"
        yield from aligned(rows, range(1, len(rows[0])))
    if table.slow():
        yield f"! at least {NOTABLE_LINK}x worse than the median within a host or between hosts"


def _rank_rows(table: LinkTable) -> list[list[str]]:
    marks = {end: "!" for pair in table.slow() for end in (pair, pair[::-1])}
    rows = [["rank", *map(str, table.ranks)]]
    for source in table.ranks:
        cells = [
            _cell(table.at(source, target)) + marks.get((source, target), "")
            for target in table.ranks
        ]
        rows.append([str(source), *cells])
    return rows


def _host_rows(table: LinkTable) -> list[list[str]]:
    by_host = table.by_host()
    hosts = sorted({host for pair in by_host for host in pair})
    return [
        ["host", *hosts],
        *([host, *(_cell(by_host.get((host, other))) for other in hosts)] for host in hosts),
    ]


def _cell(value: float | None) -> str:
    from spbench.record.number_formatting import number

    return "" if value is None else number(value)


@group.command()
def export(
    run: RunArgument = "last",
    format_: Annotated[
        str, typer.Option("--format", help="csv, json, md or parquet.", metavar="FORMAT")
    ] = "csv",
    output: Annotated[
        str, typer.Option("--output", "-o", help="A file; - is stdout.", metavar="PATH|-")
    ] = "-",
    table: Annotated[
        str | None,
        typer.Option(
            "--table", help="metrics, samples or points (parquet): metrics.", metavar="TABLE"
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Export what a run measured: a row for each case and metric, or its whole report."""
    refuse_folder("--output", output)
    from spbench.cli.records.recorded import read_run
    from spbench.record.runs.folder import find_run, home_of, write_whole
    from spbench.report.export import export_text

    recorded = read_run(find_run(home_of(home, os.environ), run))
    if format_ == "parquet":
        _export_parquet(recorded, output, table or "metrics")
        return
    if table is not None:
        raise UsageError("--table is for --format parquet; csv has the metrics, json all of it")
    text = export_text(recorded, format_)
    if output == "-":
        print(text, end="")
    else:
        write_whole(Path(output), text)


def _export_parquet(recorded: RecordedRun, output: str, table: str) -> None:
    from spbench.report.frames import TABLES, write_parquet

    if output == "-":
        raise UsageError("--format parquet writes a file: name it with --output")
    if table not in TABLES:
        near = did_you_mean(table, TABLES)
        raise UsageError(f"there is no table {table!r}{near}; there are {', '.join(TABLES)}")
    write_parquet(recorded, Path(output), TABLES[TABLES.index(table)])
