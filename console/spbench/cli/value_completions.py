"""Shell completion of runs, baselines, cases, faults, benchmarks and launchers.

A shell's prompt is blocked until these return, so each reads as little as possible. On errors
there are no completions; the command itself reports the error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from spbench.errors import SpbenchError

if TYPE_CHECKING:
    from spbench.suites.case import Case

Completion = Callable[[typer.Context, str], list[str]]
MAX_RUNS = 50
"""The number of newest runs that are offered."""


def _make_completion(list_words: Callable[[typer.Context], Iterable[str]]) -> Completion:
    def complete(context: typer.Context, incomplete: str) -> list[str]:
        try:
            return [word for word in list_words(context) if word.startswith(incomplete)]
        except (SpbenchError, OSError):
            return []

    return complete


def _home(context: typer.Context) -> Path:
    from spbench.record.runs.folder import find_home

    return find_home(context.params.get("home"), os.environ)


def _list_runs(context: typer.Context) -> Iterable[str]:
    from spbench.record.runs.folder import list_runs

    newest = list_runs(_home(context))[-MAX_RUNS:]
    return ["last", *(["last~1"] if len(newest) > 1 else []), *(run.id for run in newest[::-1])]


def _list_baselines(context: typer.Context) -> Iterable[str]:
    from spbench.report.baselines.files import list_baseline_names

    return list_baseline_names(_home(context))


def _sides(context: typer.Context) -> Iterable[str]:
    return [*_list_baselines(context), *_list_runs(context)]


def _load_cases(context: typer.Context) -> Sequence[Case]:
    from spbench.suites.loader import load_suite_file

    suite = context.params.get("suite")
    return load_suite_file(Path(suite)).cases if suite else ()


def _cases(context: typer.Context) -> Iterable[str]:
    cases = _load_cases(context)
    # bash splits a word at its = signs
    bash = os.environ.get("_SPBENCH_COMPLETE", "").endswith("bash")
    ids = [case.id for case in cases if not (bash and "=" in case.id)]
    return dict.fromkeys([*(case.name for case in cases), *ids])


def _faults(context: typer.Context) -> Iterable[str]:
    from spbench.suites.inject import list_faults
    from spbench_core.catalog import BENCHMARKS
    from spbench_core.catalog.planted_fault import COMMON_FAULTS

    case_faults = [fault for case in _load_cases(context) for fault in list_faults(case)]
    all_faults = [
        *(fault for entry in BENCHMARKS.values() for fault in entry.faults),
        *COMMON_FAULTS,
    ]
    return dict.fromkeys(case_faults or all_faults)


def _benchmarks(context: typer.Context) -> Iterable[str]:
    from spbench_core.catalog import BENCHMARKS

    return BENCHMARKS


def _launchers(context: typer.Context) -> Iterable[str]:
    from spbench.suites.launcher_names import AUTO, list_launcher_names

    return (AUTO, *list_launcher_names())


def _networks(context: typer.Context) -> Iterable[str]:
    from spbench_core.mxnet_networks.registry import NETWORKS

    return NETWORKS


complete_run = _make_completion(_list_runs)
complete_side = _make_completion(_sides)
complete_baseline = _make_completion(_list_baselines)
complete_case = _make_completion(_cases)
complete_fault = _make_completion(_faults)
complete_benchmark = _make_completion(_benchmarks)
complete_launcher = _make_completion(_launchers)
complete_network = _make_completion(_networks)
