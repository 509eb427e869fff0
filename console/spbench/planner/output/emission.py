"""The suite that runs a plan with the parameters of the ``model.*`` benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spbench.planner.cluster.machines import Cluster
from spbench.planner.errors import PlannerError
from spbench.planner.plans import Plan, format_span
from spbench.planner.profile.layers import Origin, Profile
from spbench.planner.profile.measurement import TIMEOUT, make_suite_word
from spbench.report.predictions import PLANNED_CASE, format_planned_time
from spbench.suites.case import SCHEMA, Suite
from spbench.suites.edit.yaml_format import format_key
from spbench.suites.loader import load_suite_text
from spbench_core.catalog import BENCHMARKS
from spbench_core.layout.stages import ModelLayout, build_layout

ITERATIONS = {"warmup": 2, "iterations": 9}
"""Enough iterations to detect a slow rank, which divides them into eight parts."""


@dataclass(frozen=True, slots=True)
class EmittedSuite:
    """The suite of one case that runs a plan.

    Attributes:
        text: The YAML text.
        suite: The suite of that text.
        rank_count: The number of ranks.
    """

    text: str
    suite: Suite
    rank_count: int


def emit_suite(plan: Plan, profile: Profile, cluster: Cluster, path: Path) -> EmittedSuite:
    """Return the suite that runs a plan, to be written to `path`.

    Raises:
        PlannerError: spbench has no model of the profile, or no layout of ranks is the plan.
    """
    origin = _find_origin(profile)
    layout = _find_layout(plan, cluster)
    params = {**_make_batch_params(plan, profile, layout), **_make_recompute_params(plan)}
    params |= {**_select_model_params(origin), **ITERATIONS}
    lines = [
        *_generate_comments(plan),
        f"schema: {SCHEMA}",
        f"name: plan-{make_suite_word(profile.name)}",
        *format_key("launch", _make_launch_settings(origin), 0),
        "cases:",
        f"  - name: {PLANNED_CASE}",
        f"    benchmark: {_choose_benchmark_name(origin)}",
        *format_key("params", params, 4),
    ]
    text = "\n".join(lines) + "\n"
    return EmittedSuite(text, load_suite_text(text, path), layout.rank_count)


def _make_launch_settings(origin: Origin) -> dict[str, Any]:
    """Return the launch settings, which do not let ranks share a device."""
    return {"threads": origin.threads, "timeout": TIMEOUT, "oversubscribe": False}


def _find_origin(profile: Profile) -> Origin:
    origin = profile.origin
    if origin is None:
        raise PlannerError(
            f"the profile {profile.name} does not say which model it is of, so a plan of it cannot"
            " be run; take one of spbench profile"
        )
    if _choose_benchmark_name(origin) not in BENCHMARKS:
        raise PlannerError(
            f"the profile is of {origin.model}, which no benchmark runs; spbench runs plans of"
            " resnet, amoebanet and networks that were profiled with an image_size"
        )
    return origin


def _choose_benchmark_name(origin: Origin) -> str:
    """Return the name of the benchmark for a profile's model, which need not exist."""
    is_own_network = ":" in origin.model and "image_size" in dict(origin.params)
    return "model.network" if is_own_network else f"model.{origin.model}"


def _select_model_params(origin: Origin) -> dict[str, Any]:
    param_names = {param.name for param in BENCHMARKS[_choose_benchmark_name(origin)].params}
    network = {"network": origin.model} if ":" in origin.model else {}
    return network | {name: value for name, value in origin.params if name in param_names}


def _generate_comments(plan: Plan) -> Iterator[str]:
    yield f"# {plan.profile} as spbench plan cut it for the cluster {plan.cluster}."
    yield format_planned_time(1000.0 * plan.step_s)
    for index, stage in enumerate(plan.stages):
        layers = format_span(plan.state_names, stage.start, stage.end)
        devices = " ".join(map(str, stage.devices))
        noun = "device" if stage.device_count == 1 else "devices"
        yield f"# Stage {index}: {layers} on {noun} {devices}."


def _find_layout(plan: Plan, cluster: Cluster) -> ModelLayout:
    """Return the layout with one rank per device, in order, for the plan's stages.

    Replicas of the whole pipeline do the same as several members per stage, without sums between
    them within a step. So they are preferred if they are on the same machines.

    Raises:
        PlannerError: There is no such layout.
    """
    used_devices = sorted(
        device for stage, *_ in plan.stage_groups for device in plan.stages[stage].devices
    )
    if used_devices != list(range(len(used_devices))):
        raise PlannerError(
            "the plan leaves devices idle between others, or uses one twice; no layout of ranks"
            " is that"
        )

    def list_machines(devices: Iterable[int]) -> list[int]:
        return sorted(map(cluster.find_machine, devices))

    planned_machines = [list_machines(stage.devices) for stage in plan.stages]
    for layout in _generate_layouts(plan):
        replicas = range(layout.replicas)
        ranks_by_stage = (
            [rank for replica in replicas for rank in layout.list_stage_ranks(stage, replica)]
            for stage in range(len(plan.stages))
        )
        if [list_machines(ranks) for ranks in ranks_by_stage] == planned_machines:
            return layout
    raise PlannerError(
        "the plan's stages lie on the machines in an order that no layout of ranks has; plan with"
        " the machines in another order"
    )


def _generate_layouts(plan: Plan) -> Iterator[ModelLayout]:
    devices_by_stage = [stage.device_count for stage in plan.stages]
    rounds = plan.rounds
    for replicas in dict.fromkeys((devices_by_stage[0], plan.pipelines, 1)):
        if all(count % replicas == 0 for count in devices_by_stage):
            members_by_stage = [count // replicas for count in devices_by_stage]
            if replicas == plan.pipelines or replicas == 1 or set(members_by_stage) == {1}:
                yield build_layout(
                    len(devices_by_stage),
                    members=members_by_stage,
                    replicas=replicas,
                    rounds=rounds,
                )


def _make_recompute_params(plan: Plan) -> dict[str, Any]:
    """Return the parameters of stages that recompute their activations."""
    stages = [index for index, stage in enumerate(plan.stages) if stage.recompute]
    if len(stages) == len(plan.stages):
        return {"recompute": "stage"}
    return {"recompute": "stage", "recompute_stages": stages} if stages else {}


def _make_batch_params(plan: Plan, profile: Profile, layout: ModelLayout) -> dict[str, Any]:
    """Return the parameters of the layout, the batch and its micro-batches.

    Raises:
        PlannerError: A rank would have no images.
    """
    batch = plan.global_batch_size
    replicas = layout.replicas
    members_by_stage = [stage.members for stage in layout.stages]
    if batch % replicas:
        raise PlannerError(
            f"{replicas} replicas cannot share a batch of {batch};"
            f" plan for a multiple of {replicas}"
        )
    min_batch = replicas * plan.micro_batches * max(members_by_stage)
    if batch < min_batch:
        micro_batch_size = -(-min_batch // batch) * plan.micro_batch_size
        raise PlannerError(
            f"micro-batches of {plan.micro_batch_size} cannot be shared by the devices of a stage;"
            f" plan with --micro-batch-size {micro_batch_size} or more"
        )
    run_params: dict[str, Any] = {"batch_size": batch // replicas, "parts": plan.micro_batches}
    if layout.rank_count == 1:
        return {"scheme": "sequential", **run_params, "validate": "auto"}
    run_params = {"scheme": "lp", "split_size": len(layout.stages), **run_params}
    if len(layout.stages) > 1:
        run_params["balance"] = ",".join(map(str, _compute_balance(plan, profile)))
    run_params["schedule"] = plan.schedule
    if plan.skips is not None:
        run_params["skips"] = plan.skips
    if plan.rounds > 1:
        run_params["rounds"] = plan.rounds
    if set(members_by_stage) != {1}:
        run_params["local_DP"] = ",".join(map(str, members_by_stage))
    if replicas > 1:
        run_params["replicas"] = replicas
    return {**run_params, "validate": "auto", "baseline": False}


def _compute_balance(plan: Plan, profile: Profile) -> list[int]:
    """Return the layers of each stage.

    Raises:
        PlannerError: The layers are not a chain, so layers and states differ.
    """
    if plan.state_count != len(profile.layers):
        raise PlannerError(
            f"the profile {profile.name} has {len(profile.layers)} layers, the plan"
            f" {plan.state_count} states; only a chain of layers can be run"
        )
    ends = [stage.end for stage in plan.stages]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
