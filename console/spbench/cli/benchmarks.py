"""``spbench benchmarks``: the benchmarks, or the parameters and metrics of one."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.text_layout import format_definitions, wrap_description
from spbench.cli.value_completions import complete_benchmark
from spbench.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from spbench_core.catalog.benchmark import Benchmark, Metric
    from spbench_core.catalog.parameters import Param

MAX_COLUMNS = 100


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(benchmarks)


def benchmarks(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Benchmark to describe, such as halo.exchange",
            metavar="NAME",
            autocompletion=complete_benchmark,
        ),
    ] = None,
) -> None:
    """List the benchmarks, or the parameters and metrics of one."""
    from spbench_core.catalog import BENCHMARKS

    width = min(shutil.get_terminal_size().columns, MAX_COLUMNS)
    if name is None:
        rows = [(entry.name, entry.summary) for entry in BENCHMARKS.values()]
        print("\n".join(format_definitions(rows, width, indent=0)))
        return
    if name not in BENCHMARKS:
        suggestion = did_you_mean(name, BENCHMARKS)
        raise UsageError(f"unknown benchmark {name}{suggestion}; see spbench benchmarks")
    for line in _describe(BENCHMARKS[name], width):
        print(line)


def _describe(entry: Benchmark, width: int) -> list[str]:
    from spbench.suites.case import DERIVED_METRICS
    from spbench_core.catalog.default_texts import list_default_texts
    from spbench_core.catalog.planted_fault import COMMON_FAULTS

    lines = wrap_description(f"{entry.name}: {entry.summary}", width)
    if entry.plugin:
        lines.append(f"from the plug-in {entry.plugin}")
    defaults = list_default_texts(entry)
    params = [(param.name, _param_text(param, defaults[param.name])) for param in entry.params]
    metrics = [(metric.name, _metric_text(metric)) for metric in (*entry.metrics, *DERIVED_METRICS)]
    if entry.has_chosen_metrics:
        metrics.append(("...", "metrics that the parameters name"))
    faults = ", ".join([*entry.faults, *COMMON_FAULTS])
    sections: list[tuple[str, list[str]]] = [
        ("Parameters (params, matrix or zip of a case)", format_definitions(params, width)),
        ("Metrics (expect of a case)", format_definitions(metrics, width)),
        ("Checks (the case fails if one fails)", _wrap_indented(", ".join(entry.checks), width)),
        ("Faults (--inject, to see a check fail)", _wrap_indented(faults, width)),
    ]
    for title, body in sections:
        lines += ["", f"{title}:", *body]
    return lines


def _param_text(param: Param, default: str) -> str:
    from spbench_core.catalog.default_texts import describe_without_default

    text = describe_without_default(param, default)
    if param.choices:
        text += f" [{' | '.join(param.choices)}]"
    return f"{text} [default: {default}]" if default else text


def _wrap_indented(text: str, width: int) -> list[str]:
    return [f"  {line}" for line in wrap_description(text, width - 2)]


def _metric_text(metric: Metric) -> str:
    separate = ", measured separately" if metric.separate else ""
    return f"{metric.help} ({metric.unit}, better: {metric.better}{separate})"
