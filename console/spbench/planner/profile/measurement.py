"""Measurement of profiles: the suite to run, and the profile from its report."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spbench.errors import SuiteError, UsageError
from spbench.planner.errors import PlannerError
from spbench.planner.profile.graph import Edge
from spbench.planner.profile.layers import BatchMeasurement, LayerProfile, Origin, Profile
from spbench.suites.case import SCHEMA, Suite
from spbench.suites.edit.yaml_format import format_key
from spbench.suites.loader import load_suite_text
from spbench_core.catalog import BENCHMARKS
from spbench_core.events.statuses import CaseStatus

if TYPE_CHECKING:
    from spbench.engine.plan import Request

BENCHMARK = "model.profile"
TIMEOUT = 1200
"""Seconds for the measurement; ``--set launch.timeout=...`` changes it."""
SKIPPED = "skipped_layers"
"""The name of a measurement for a layer that reads the output of an earlier one, its ``source``."""
_MEASUREMENT_PARAMS = ("model", "batch_sizes", "warmup", "iterations", "seed")


def render_profile_suite(
    model: str, batch_sizes: Sequence[int] | None = None, ranks: int | None = 1
) -> str:
    """Return a suite that measures a model's layers.

    Args:
        model: ``resnet``, ``amoebanet``, or a ``module:callable``.
        batch_sizes: Images per batch, rising; None for those of the benchmark.
        ranks: Ranks that do the same work at the same time; None for all slots.
    """
    params: dict[str, Any] = {"model": model}
    if batch_sizes is not None:
        params["batch_sizes"] = list(batch_sizes)
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


def load_profile_suite(request: Request, text: str) -> Suite:
    """Return the suite of `render_profile_suite` with the settings of a request.

    Raises:
        UsageError: The suite is invalid; the message has no positions in the generated text.
    """
    from spbench.engine.plan import build_settings

    try:
        return load_suite_text(text, request.suite, build_settings(request))
    except SuiteError as error:
        messages = [
            diagnostic.message.removeprefix("profile: ") for diagnostic in error.diagnostics
        ]
        raise UsageError("; ".join(messages)) from None


def make_suite_word(text: str) -> str:
    """Return a text with the characters that a suite's name may have."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-") or "model"


def read_measured_profile(report: Mapping[str, Any], name: str | None = None) -> Profile:
    """Return the profile that a run of ``model.profile`` measured, from its report.

    The profile's batch size is the largest one, which spreads fixed costs over the most samples.

    Raises:
        PlannerError: The run did not measure a profile.
    """
    cases = [case for case in report["cases"] if case["benchmark"] == BENCHMARK]
    if not cases or cases[0]["status"] != CaseStatus.PASSED:
        raise PlannerError(f"the run {report['run']['id']} has measured no profile")
    case = cases[0]
    params = case["params"]
    figures_by_batch_size, layer_names = _group_measurements(case["measurements"])
    measurements = [
        BatchMeasurement(size, _build_layers(figures_by_batch_size[size], layer_names))
        for size in sorted(figures_by_batch_size)
    ]
    *also, largest_batch = measurements
    threads = report["environment"]["ranks"]["threads"]
    model_param_names = {param.name for param in BENCHMARKS[BENCHMARK].params} - set(
        _MEASUREMENT_PARAMS
    )
    params_of_model = {
        param_name: value
        for param_name, value in params.items()
        if param_name in model_param_names and value is not None
    }
    return Profile(
        name or params["model"],
        largest_batch.batch_size,
        largest_batch.layers,
        _build_edges(case["measurements"], layer_names),
        tuple(also),
        Origin(
            params["model"],
            tuple(params_of_model.items()),
            case["np"],
            min(threads) if isinstance(threads, list) else threads,
        ),
    )


_Figures = dict[str, dict[str, float]]


def _group_measurements(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[int, _Figures], list[str]]:
    """Return the figures by batch size, layer and name, and the layers in order."""
    figures_by_batch_size: dict[int, _Figures] = defaultdict(lambda: defaultdict(dict))
    parameter_bytes: dict[str, float] = {}
    for row in rows:
        layer = row["layer"]
        if row["name"] == SKIPPED:
            continue
        if row["name"] == "parameter_bytes":
            parameter_bytes[layer] = row["value"]
        else:
            figures_by_batch_size[row["batch_size"]][layer][row["name"]] = row["value"]
    for figures in figures_by_batch_size.values():
        for layer, layer_figures in figures.items():
            layer_figures["parameter_bytes"] = parameter_bytes[layer]
    return figures_by_batch_size, list(parameter_bytes)


def _build_edges(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[Edge, ...]:
    """Return the edges: each layer reads the one before, and may read earlier ones."""
    position_by_layer = {name: index for index, name in enumerate(names)}
    edges = {(index - 1, index) for index in range(1, len(names))}
    edges |= {
        (position_by_layer[row["source"]], position_by_layer[row["layer"]])
        for row in rows
        if row["name"] == SKIPPED
    }
    return tuple(sorted(edges))


def _build_layers(figures: _Figures, names: Sequence[str]) -> tuple[LayerProfile, ...]:
    return tuple(LayerProfile(name, name, **figures[name]) for name in names)
