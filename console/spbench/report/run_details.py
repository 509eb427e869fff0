"""The facts about a run or a case that explain its numbers, as labels and texts."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spbench.record.number_formatting import (
    format_duration,
    format_exact,
    format_number,
    format_percent,
    format_value,
)
from spbench.record.planted_faults import format_result_count
from spbench.record.runs.marks import RunMark
from spbench.report.model import CasePart, CheckPart
from spbench.report.recorded import RecordedRun
from spbench.report.times import format_day_and_time
from spbench.suites.expand import format_label
from spbench_core.events.statuses import CaseStatus
from spbench_core.number_text import format_quantity

_TIME = "time_ms"
MAX_HOSTS = 4
"""The largest number of hosts that are named."""
MAX_LEAST_EFFICIENT = 4
"""The number of cases with the lowest efficiencies that are named."""
MAX_FAILED = 8
"""The largest number of failed cases that are named."""
_MARK_TEXTS: Mapping[RunMark, str] = {
    RunMark.OTHER_MACHINE: "hosts, processors or cores differ from the newest run of the suite",
    RunMark.OTHER_VERSIONS: "MPI library or torch differ from the newest run of the suite",
    RunMark.BATCH: "collected from its folder",
}


class Fact(NamedTuple):
    """A label and a text about a run, a case or a host."""

    label: str
    text: str


def list_run_facts(run: RecordedRun, marks: Iterable[RunMark] = ()) -> list[Fact]:
    """Return the known facts about a run, from its times to its failed cases.

    Args:
        run: The run.
        marks: The marks of the run in a list.
    """
    summary = run.summary
    started = "" if summary.started is None else format_day_and_time(summary.started)
    took = "" if summary.duration_s is None else format_duration(summary.duration_s)
    facts = [
        Fact("started", started),
        Fact("took", took),
        *(Fact(*_describe_mark(mark, summary.faults)) for mark in marks),
        Fact("note", str(summary.note)),
        *_generate_case_counts(run),
        Fact("hosts", _describe_hosts(run)),
        Fact("machine", _describe_machine(run)),
        Fact("load", _describe_load(run.environment)),
        Fact("versions", _describe_versions(run)),
        Fact("launcher", _describe_launchers(run)),
        Fact("command", _describe_command(run)),
        *_generate_failed_cases(run),
    ]
    return [fact for fact in facts if fact.text]


def list_case_facts(case: CasePart) -> list[Fact]:
    """Return the known facts about a case, from its reason to its launch."""
    reference = case.limits.get(_TIME)
    reference_text = ""
    if reference is not None and reference.value is not None:
        value = format_value(reference.value, reference.unit, _TIME)
        reference_text = f"{value}, measured by {reference.measured_by}"
    parameters = [
        f"{name} {format_label(value)}" for name, value in case.params.items() if value is not None
    ]
    facts = [
        Fact("reason", case.reason or ""),
        Fact("noise", case.noisy or ""),
        Fact("ranks", f"{case.np}, {case.benchmark}"),
        Fact("reference", reference_text),
        *(Fact("check", _describe_check(check)) for check in case.checks),
        Fact("parameters", ", ".join(parameters)),
        Fact("launch", case.launch.command_line if case.launch else ""),
    ]
    return [fact for fact in facts if fact.text]


def _describe_check(check: CheckPart) -> str:
    ranks = f"{check.ranks_passed} of {check.ranks_passed + check.ranks_failed} ranks"
    error = ""
    if check.max_abs_error is not None:
        tolerance = format_exact(check.tolerance)
        error = f", largest error {format_exact(check.max_abs_error)} (tolerance {tolerance})"
    return f"{check.name} {check.status} on {ranks}{error}"


def _describe_mark(mark: RunMark, faults: Iterable[str]) -> tuple[str, str]:
    if mark is RunMark.FAULT:
        return mark, f"planted: {', '.join(faults)}"
    return mark, _MARK_TEXTS[mark]


def _generate_case_counts(run: RecordedRun) -> Iterator[Fact]:
    """Yield the cases by status, noise, ranks and the lowest efficiencies."""
    cases = list(run.cases.values())
    if not cases:
        return
    count_by_status = Counter(case.status_text for case in cases)
    counts = (format_result_count(number, status) for status, number in count_by_status.items())
    yield Fact("cases", ", ".join(counts))
    noisy_count = sum(case.noisy is not None for case in cases)
    count = format_quantity(len(cases), "case")
    if noisy_count:
        yield Fact("noise", f"other work used the cores in {noisy_count} of {count}")
    yield Fact("ranks", ", ".join(map(str, sorted({case.np for case in cases}))))
    efficiencies = sorted(
        (efficiency, case.id)
        for case in cases
        if (efficiency := case.efficiency()) is not None and efficiency < 1
    )
    lowest = (
        f"{case} {format_percent(efficiency)}"
        for efficiency, case in efficiencies[:MAX_LEAST_EFFICIENT]
    )
    if efficiencies:
        yield Fact("efficiency", f"lowest: {', '.join(lowest)}")


def _describe_hosts(run: RecordedRun) -> str:
    hosts = _list_texts(run.fingerprint.get("hosts"))
    if len(hosts) <= MAX_HOSTS:
        return ", ".join(hosts)
    return f"{len(hosts)} hosts: {', '.join(hosts[:MAX_HOSTS])} and {len(hosts) - MAX_HOSTS} more"


def _describe_machine(run: RecordedRun) -> str:
    processors = _list_texts(run.fingerprint.get("processors"))
    cores = _list_texts(run.fingerprint.get("cores"))
    core_text = f"{' or '.join(cores)} {'core' if cores == ['1'] else 'cores'}" if cores else ""
    memory = run.environment.get("memory_gib")
    memory_text = f"{format_number(memory)} GiB" if isinstance(memory, (int, float)) else ""
    return ", ".join(filter(None, (*processors, core_text, memory_text)))


def _describe_load(environment: Mapping[str, Any]) -> str:
    loads = [
        f"{format_number(load)} {moment}"
        for name, moment in (("load", "at the start"), ("load_after", "at the end"))
        if isinstance(load := environment.get(name), (int, float))
    ]
    return ", ".join(loads)


def _describe_versions(run: RecordedRun) -> str:
    environment = run.environment
    texts = [*_list_texts(run.fingerprint.get("mpi"))]
    texts += [f"torch {version}" for version in _list_texts(run.fingerprint.get("torch"))]
    for label, name in (("Python", "python"), ("spbench", "spbench")):
        if isinstance(version := environment.get(name), str):
            texts.append(f"{label} {version}")
    return ", ".join(texts)


def _describe_launchers(run: RecordedRun) -> str:
    jobs_by_launcher: dict[str, list[frozenset[int]]] = {}
    for case in run.cases.values():
        if case.launch is not None:
            name = f"{case.launch.launcher} ({case.launch.version})"
            jobs = frozenset(case.launches) or frozenset({case.launch.job})
            jobs_by_launcher.setdefault(name, []).append(jobs)
    return ", ".join(f"{name}, {_count_launches(jobs)}" for name, jobs in jobs_by_launcher.items())


def _count_launches(jobs_of_cases: Sequence[frozenset[int]]) -> str:
    """Return ``6 launches, 3 of each case``, given the jobs that ran each case."""
    total = len(frozenset[int]().union(*jobs_of_cases))
    counts = sorted({len(jobs) for jobs in jobs_of_cases})
    text = format_quantity(total, "launch", "launches")
    if counts == [total] or counts == [1]:
        return text
    count = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return f"{text}, {count} of each case"


def _describe_command(run: RecordedRun) -> str:
    arguments = run.summary.argv
    return shlex.join(["spbench", *arguments]) if arguments else ""


def _generate_failed_cases(run: RecordedRun) -> Iterator[Fact]:
    failed = [
        case
        for case in run.cases.values()
        if case.status in (CaseStatus.FAILED, CaseStatus.ERROR, CaseStatus.TIMEOUT)
    ]
    for case in failed[:MAX_FAILED]:
        reason = f": {case.reason}" if case.reason else ""
        yield Fact(case.status_text, f"{case.id}{reason}")
    if len(failed) > MAX_FAILED:
        yield Fact("failed", f"{len(failed) - MAX_FAILED} more cases")


def _list_texts(value: Any) -> list[str]:
    return list(map(str, value)) if isinstance(value, list) else []
