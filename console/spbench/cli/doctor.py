"""``spbench doctor``: checks of this machine or hosts, with fixes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spbench.cli.request import HostfileOption, HostsOption, print_progress
from spbench.errors import ExitCode, UsageError
from spbench.launch.finding import FindingStatus
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.launch.finding import Finding
    from spbench.launch.hosts.hosts import Hosts
    from spbench.launch.survey.facts import HostFacts

WIDTH = 12
RANKS = 4
_LONGEST = len("unreachable")
_GLYPHS = {
    FindingStatus.OK: "✓",
    FindingStatus.NOTE: "!",
    FindingStatus.MISSING: "✗",
    FindingStatus.UNREACHABLE: "✗",
}


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(doctor)


def doctor(
    python: Annotated[
        str | None,
        typer.Option(
            "--python",
            help="Python interpreter of the ranks",
            metavar="FILE",
            show_default="this one",
        ),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            "--np",
            help="Ranks that you want to run here",
            metavar="N",
            min=1,
            show_default=str(RANKS),
        ),
    ] = None,
    hostfile: HostfileOption = None,
    hosts: HostsOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for this machine and the hosts")
    ] = False,
) -> None:
    """Check this machine or hosts, and show how to fix what is missing.

    Lists launchers, MPI library, torch, devices and cores. With hosts, it also lists how a host
    differs from the others.
    """
    from spbench.launch.doctor import examine_machine
    from spbench.launch.hosts.hostfiles import read_host_options

    hosts_to_survey = read_host_options(hostfile, hosts)
    if hosts_to_survey is not None and ranks is not None:
        raise UsageError(
            "--np is for this machine; with hosts, their slots set the number of ranks"
        )
    machine_findings = (
        examine_machine(python, ranks or RANKS, os.environ)
        if as_json or hosts_to_survey is None
        else []
    )
    facts_of_hosts = _survey_hosts(hosts_to_survey, python) if hosts_to_survey is not None else []
    if as_json:
        _print_json(machine_findings, facts_of_hosts)
    elif hosts_to_survey is None:
        for finding in machine_findings:
            _print_finding(finding, finding.subject, finding.text)
    else:
        _print_hosts(facts_of_hosts)
    findings: Sequence[Finding | HostFacts] = (
        machine_findings if hosts_to_survey is None else facts_of_hosts
    )
    if not all(finding.status.is_fit for finding in findings):
        raise typer.Exit(ExitCode.MISSING)


def _survey_hosts(hosts: Hosts, python: str | None) -> list[HostFacts]:
    """Return the facts of the hosts, in the order of the hosts."""
    import asyncio

    from spbench.launch.survey.survey import survey_hosts
    from spbench.suites.settings import LaunchSettings

    async def collect_answers() -> dict[str, HostFacts]:
        answers = survey_hosts(hosts.names, settings, os.environ, print_progress)
        return {facts.host: facts async for facts in answers}

    settings = LaunchSettings.model_validate({"python": python} if python else {})
    facts_by_host = asyncio.run(collect_answers())
    return [facts_by_host[name] for name in hosts.names]


def _print_json(machine: Sequence[Finding], hosts: Sequence[HostFacts]) -> None:
    from spbench.launch.survey.differences import find_differences

    document = {
        "machine": [finding.to_json() for finding in machine],
        "hosts": [_to_json(facts) for facts in hosts],
        "differences": [finding.to_json() for finding in find_differences(hosts)],
    }
    print(json.dumps(document, indent=1, allow_nan=False))


def _to_json(facts: HostFacts) -> dict[str, Any]:
    """Return the facts of a host as JSON: GPU names, and other GPU facts separately."""
    fields = asdict(facts)
    findings = [finding.to_json() for finding in facts.findings]
    return fields | {
        "findings": findings,
        "gpus": facts.gpus.names,
        "gpu_facts": fields["gpus"],
    }


def _print_hosts(hosts: Sequence[HostFacts]) -> None:
    from spbench.launch.hosts.names import fold
    from spbench.launch.survey.differences import find_differences
    from spbench.launch.survey.facts import group_findings

    rows = [_format_cells(facts) for facts in hosts if facts.cores is not None]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    host_width = max(WIDTH, *(len(facts.host) for facts in hosts))
    for facts in hosts:
        padded = (
            f"{cell:<{column_width}}"
            for cell, column_width in zip(_format_cells(facts), widths, strict=False)
        )
        description = facts.reason if facts.cores is None else "  ".join(padded)
        glyph = _GLYPHS[facts.status]
        print(
            f"{glyph} {facts.status:<{_LONGEST}} {facts.host:<{host_width}} {description}".rstrip()
        )
    for finding, names in group_findings(hosts).items():
        _print_finding(finding, fold(names), finding.title, host_width, _LONGEST)
    for finding in find_differences(hosts):
        _print_finding(finding, finding.subject, finding.text, host_width, _LONGEST)


def _format_cells(facts: HostFacts) -> list[str]:
    from spbench.launch.gpus.findings import describe_torch

    cuda_version_of_torch = facts.torch_cuda if facts.gpus.any_present else None
    return [
        format_quantity(facts.cores, "core") if facts.cores is not None else "? cores",
        f"{facts.memory_gib or '?'} GiB, {facts.free_gib or '?'} free",
        f"load {facts.load}",
        f"{facts.devices}, driver {facts.gpus.driver}" if facts.gpus.driver else facts.devices,
        facts.links or "no adapter",
        facts.mpi or "no MPI",
        f"torch {describe_torch(facts.torch, cuda_version_of_torch)}"
        if facts.torch
        else "no torch",
        f"Python {facts.python}",
    ]


def _print_finding(
    finding: Finding, subject: str, text: str, width: int = WIDTH, status_width: int = 8
) -> None:
    print(f"{_GLYPHS[finding.status]} {finding.status:<{status_width}} {subject:<{width}} {text}")
    if finding.remedy:
        print(f"  {'':<{status_width}} {'':<{width}} fix: {finding.remedy}")
