"""Plans as JSON, ``spbench.plan/1``. Times are milliseconds, sizes bytes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from spbench.planner.plans import Mode, Plan, PlanStage, SkipRoute
from spbench.suites.settings import build_json_schema
from spbench_core.schedule.orders import ZERO_BUBBLE, Schedule

SCHEMA = "spbench.plan/1"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class StagePart(_Part):
    """A stage of the plan."""

    start: int = Field(description="its first state")
    end: int = Field(
        description="the state after its last one; in mode hpgo the last stage's is its last state"
    )
    layers: tuple[str, str] = Field(description="its first and its last state by name")
    replicas: int = Field(description="devices that share its work")
    devices: list[int]
    forward_ms: float = Field(description="one micro-batch, shared by the devices")
    backward_ms: float = Field(description="likewise, recomputation included")
    weights_ms: float | None = Field(
        description="the part of it that computes gradients of weights later, in zb-h1; else null"
    )
    send_ms: float = Field(description="one micro-batch's inputs of the next stage")
    all_reduce_ms: float = Field(description="once a step")
    memory_bytes: float = Field(
        description="the peak of each of its devices, for all stages that they have"
    )
    recompute: bool


class BaselinePart(_Part):
    """Another way to train the same model; ``reason`` explains a missing time."""

    name: str
    step_ms: float | None
    speedup: float | None
    reason: str
    stages: list[tuple[int, int, list[int]]] = Field(description="start, end, devices")


class MemoryPart(_Part):
    """Peak memory."""

    largest_bytes: float = Field(description="of any device")
    stages: list[float] = Field(description="of each device of each stage")


class PlanFile(_Part):
    """A whole plan."""

    schema_: Literal["spbench.plan/1"] = Field(alias="schema")
    mode: Mode
    profile: str
    cluster: str
    global_batch_size: int
    micro_batch_size: int
    micro_batches: int = Field(description="through each pipeline in a step")
    rounds: int = Field(description="stages of each device; more than 1 if interleaved")
    pipelines: int = Field(description="side by side; a stage's devices are those of all of them")
    schedule_: Schedule = Field(alias="schedule")
    skips: SkipRoute | None = Field(
        description="how outputs go past stages that do not read them: straight, or along from "
        "stage to stage; null where there are none"
    )
    speedup: float = Field(description="one device's time for the whole batch over the step's")
    step_ms: float
    single_ms: float = Field(description="the whole batch on one device, whatever its memory")
    stages: list[StagePart]
    memory: MemoryPart
    baselines: list[BaselinePart]


def build_plan_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as a JSON object."""
    memory_bytes = [stage.memory_bytes for stage in plan.stages]
    fields = {
        "schema": SCHEMA,
        "mode": plan.mode,
        "profile": plan.profile,
        "cluster": plan.cluster,
        "global_batch_size": plan.global_batch_size,
        "micro_batch_size": plan.micro_batch_size,
        "micro_batches": plan.micro_batches,
        "rounds": plan.rounds,
        "pipelines": plan.pipelines,
        "schedule": plan.schedule,
        "skips": plan.skips,
        "speedup": plan.speedup,
        "step_ms": 1000.0 * plan.step_s,
        "single_ms": 1000.0 * plan.single_s,
        "stages": [_build_stage_fields(plan, stage) for stage in plan.stages],
        "memory": {"largest_bytes": max(memory_bytes), "stages": memory_bytes},
        "baselines": [
            {
                "name": baseline.name,
                "step_ms": None if baseline.step_s is None else 1000.0 * baseline.step_s,
                "speedup": baseline.speedup,
                "reason": baseline.reason,
                "stages": [(start, end, list(devices)) for start, end, devices in baseline.stages],
            }
            for baseline in plan.baselines
        ],
    }
    return PlanFile.model_validate(fields).model_dump(mode="json", by_alias=True)


def _build_stage_fields(plan: Plan, stage: PlanStage) -> dict[str, Any]:
    end = stage.end
    if plan.mode == "hpgo" and stage is plan.stages[-1]:
        end -= 1  # HPGO's last end is inclusive
    is_split = plan.schedule == ZERO_BUBBLE
    return {
        "start": stage.start,
        "end": end,
        "layers": (plan.state_names[stage.start], plan.state_names[stage.end - 1]),
        "replicas": stage.device_count,
        "devices": list(stage.devices),
        "forward_ms": 1000.0 * stage.forward_s,
        "backward_ms": 1000.0 * stage.backward_s,
        "weights_ms": 1000.0 * stage.backward_s * (1.0 - stage.data_share) if is_split else None,
        "send_ms": 1000.0 * stage.send_s,
        "all_reduce_ms": 1000.0 * stage.all_reduce_s,
        "memory_bytes": stage.memory_bytes,
        "recompute": stage.recompute,
    }


def plan_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan."""
    return build_json_schema(PlanFile, mode="serialization")
