"""Results of the steps: cases of reports, a summary, and the documentation's page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.gpu_once.steps import Step

SCHEMA = "spbench.gpu_once/1"
EXIT_FAILED_CHECKS = 1
"""The exit code of a run with failed checks."""
EXIT_BUDGET = 124
"""The exit code of a run that has used up its budget."""


class Status(StrEnum):
    """Status of a step."""

    PASSED = "passed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class StepResult:
    """The outcome of a step.

    Attributes:
        name: The step's name.
        status: Its status.
        seconds: Its duration.
        detail: One line for an engineer.
        cases: The cases of its report, from `build_case_rows`.
    """

    name: str
    status: Status
    seconds: float
    detail: str
    cases: Sequence[Mapping[str, Any]] = ()


def read_report(path: Path) -> Mapping[str, Any]:
    """Return a report of `spbench run`; empty if the run wrote none."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content


def judge_step(
    step: Step, exit_code: int | None, seconds: float, report: Mapping[str, Any]
) -> StepResult:
    """Return the result of a step from its exit code and the report of its run.

    A planted fault is detected only if a check failed in every case.
    """
    cases = build_case_rows(report)
    counts = Counter(case["status"] for case in cases)
    detail = ", ".join(f"{count} {status}" for status, count in counts.items())
    unnoticed = step.exit_code == EXIT_FAILED_CHECKS and set(counts) != {"failed"}
    if exit_code is None or (step.suite is not None and exit_code == EXIT_BUDGET):
        status = Status.TIMEOUT
        detail = f"stopped at its time limit; {detail}"
    elif exit_code == step.exit_code and not unnoticed:
        status = Status.PASSED
    else:
        status = Status.FAILED
        detail = f"exit {exit_code}, expected {step.exit_code}; {detail}"
    reasons = [f"{case['id']}: {case['reason']}" for case in cases if case["reason"]]
    if reasons:
        detail += f"; {reasons[0]}"
    return StepResult(step.name, status, round(seconds, 1), detail or "-", cases)


def build_case_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return name, status, times and limits of the cases of a report."""
    return [
        {
            **{key: case.get(key) for key in ("id", "name", "benchmark", "np", "status", "reason")},
            "metrics": {
                name: {"value": metric["value"], "unit": metric["unit"]}
                for name, metric in case.get("metrics", {}).items()
            },
            "limits": {
                name: {"value": limit["value"], "unit": limit["unit"]}
                for name, limit in case.get("limits", {}).items()
            },
        }
        for case in report.get("cases", ())
    ]


def collect_machine_facts(report: Mapping[str, Any]) -> dict[str, str]:
    """Return GPU, driver and versions from a report."""
    facts: dict[str, str] = {}
    environment = report.get("environment", {})
    for key in ("spbench", "kernel"):
        if environment.get(key):
            facts[key] = str(environment[key])
    for case in report.get("cases", ()):
        device = case.get("choices", {}).get("device")
        if device and device["value"] != "cpu":
            facts |= {"device": device["value"], "about": device["reason"]}
        if case.get("launch"):
            facts["launcher"] = case["launch"]["version"]
    return facts


def render_summary(results: Iterable[StepResult]) -> str:
    """Return the results as a table, a line for each step."""
    rows = list(results)
    if not rows:
        return "no step was run\n"
    width = max(len(result.name) for result in rows)
    return "".join(
        f"{result.name:{width}}  {result.status:7}  {result.seconds:5.0f} s  {result.detail}\n"
        for result in rows
    )


def merge_results(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return several `results.json` as one; the last result of a step counts."""
    steps = {step["name"]: step for run in runs for step in run["steps"]}
    return {**runs[-1], "steps": list(steps.values())}


def render_page(results: Mapping[str, Any]) -> str:
    """Return docs/gpu_results.md for the content of `results.json`.

    Cancelled cases and those with a planted fault are counted by their step and have no row.
    """
    facts = [f"- {name}: {value}" for name, value in results["machine"].items()]
    steps = [
        _format_row(step["name"], step["status"], f"{step['seconds']:.0f} s", step["detail"])
        for step in results["steps"]
    ]
    cases = [
        _format_row(
            f"`{case['id']}`",
            step["name"],
            case["benchmark"],
            case["np"],
            case["status"],
            _format_quantity(case["metrics"].get("time_ms")),
            ", ".join(map(_format_quantity, case["limits"].values())) or "-",
            case["reason"] or "-",
        )
        for step in results["steps"]
        if not step["name"].startswith("fault-")
        for case in step["cases"]
        if case["status"] != "cancelled"
    ]
    return "\n".join(
        [
            "# Results on a GPU",
            "",
            f"The report of `python3 -m benchmarks.gpu_once` of {results['date']}. Ranks share one",
            "GPU. Their checks count, but their times are not those of ranks with a GPU each.",
            "",
            *facts,
            "",
            "## Steps",
            "",
            _format_row("step", "status", "time", "detail"),
            _format_row(*["---"] * 4),
            *steps,
            "",
            "## Cases",
            "",
            "Without those that were cancelled because the time of their step was used up.",
            "",
            _format_row("case", "step", "benchmark", "ranks", "status", "time", "limit", "reason"),
            _format_row(*["---"] * 8),
            *cases,
            "",
        ]
    )


def _format_row(*cells: object) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def _format_quantity(quantity: Mapping[str, Any] | None) -> str:
    """Return a value with its unit in three significant digits, or a dash."""
    if quantity is None or quantity["value"] is None:
        return "-"
    return f"{quantity['value']:.3g} {quantity['unit']}"
