"""Profiles measured here: the suite that measures one, and the profile in its report."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from spbench.planner.errors import PlannerError
from spbench.planner.profile.graph import Edge
from spbench.planner.profile.layers import BatchMeasurement, LayerProfile, Profile
from spbench.planner.profile.origin import Origin
from spbench.suites.case import SCHEMA
from spbench.suites.edit.writing import format_key
from spbench_core.catalog import BENCHMARKS
from spbench_core.events.statuses import CaseStatus

BENCHMARK = "model.profile"
TIMEOUT = 1200
"""Seconds for the measurement; ``--set launch.timeout=...`` changes them."""
SKIPPED = "skipped_layers"
"""The figure of a layer that reads the output of one further up, its ``source``."""
_NOT_OF_THE_MODEL = ("model", "batch_sizes", "warmup", "iterations", "seed")


def render_profile_suite(model: str, batch_sizes: Sequence[int], ranks: int | None) -> str:
    """Return a suite that measures a model's layers.

    Args:
        model: ``resnet``, ``amoebanet``, or a ``module:callable``.
        batch_sizes: Images at once, rising.
        ranks: How many do the same at once; None for all slots.
    """
    params = {"model": model, "batch_sizes": list(batch_sizes)}
    lines = [
        f"schema: {SCHEMA}",
        f"name: profile-{make_suite_word(model)}",
        *format_key("launch", {"timeout": TIMEOUT}, 0),
        "cases:",
        "  - name: profile",
        f"    benchmark: {BENCHMARK}",
        *([] if ranks is None else [f"    np: {ranks}"]),
        *format_key("params", params, 4),
    ]
    return "\n".join(lines) + "\n"


def make_suite_word(text: str) -> str:
    """Return a text as part of a suite's name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-") or "model"


def read_measured_profile(report: Mapping[str, Any], name: str | None = None) -> Profile:
    """Return the profile that a run of ``model.profile`` measured, from its report.

    Its own batch size is the largest one, with what does not grow with the batch spread widest.

    Raises:
        PlannerError: It measured none.
    """
    cases = [case for case in report["cases"] if case["benchmark"] == BENCHMARK]
    if not cases or cases[0]["status"] != CaseStatus.PASSED:
        raise PlannerError(f"the run {report['run']['id']} has measured no profile")
    case = cases[0]
    params = case["params"]
    points, names = _points(case["measurements"])
    measured = [BatchMeasurement(size, _layers(points[size], names)) for size in sorted(points)]
    *also, first = measured
    threads = report["environment"]["ranks"]["threads"]
    known = {param.name for param in BENCHMARKS[BENCHMARK].params} - set(_NOT_OF_THE_MODEL)
    given = {key: value for key, value in params.items() if key in known and value is not None}
    return Profile(
        name or params["model"],
        first.batch_size,
        first.layers,
        _edges(case["measurements"], names),
        tuple(also),
        Origin(
            params["model"],
            tuple(given.items()),
            case["np"],
            min(threads) if isinstance(threads, list) else threads,
        ),
    )


_Figures = dict[str, dict[str, float]]


def _points(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[int, _Figures], list[str]]:
    """Return figures by batch size, layer and name, and the layers in their order."""
    points: dict[int, _Figures] = defaultdict(lambda: defaultdict(dict))
    parameters: dict[str, float] = {}
    for row in rows:
        layer = row["layer"]
        if row["name"] == SKIPPED:
            continue
        if row["name"] == "parameter_bytes":
            parameters[layer] = row["value"]
        else:
            points[row["batch_size"]][layer][row["name"]] = row["value"]
    for figures in points.values():
        for layer, each in figures.items():
            each["parameter_bytes"] = parameters[layer]
    return points, list(parameters)


def _edges(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[Edge, ...]:
    """Return the edges: each layer follows the one before, and may read those further up."""
    place = {name: at for at, name in enumerate(names)}
    found = {(at - 1, at) for at in range(1, len(names))}
    found |= {(place[row["source"]], place[row["layer"]]) for row in rows if row["name"] == SKIPPED}
    return tuple(sorted(found))


def _layers(figures: _Figures, names: Sequence[str]) -> tuple[LayerProfile, ...]:
    return tuple(LayerProfile(name, name, **figures[name]) for name in names)
