"""The parts of a report on the load of hosts and GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from spbench.record.case_state import CaseState
from spbench.record.machine.gpu_loads import GpuFigures
from spbench.record.machine.host_loads import LoadHistory
from spbench.record.state import RunState
from spbench_core.events.gpu_readings import GpuReading

_DIGITS = 4


def describe_hosts(state: RunState) -> list[dict[str, Any]]:
    """Return the fields of each host: its load, and its GPUs."""
    gpus_by_host: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for gpu in state.gpu_loads.values():
        gpus_by_host[gpu.host].append(_describe_gpu(gpu.facts, gpu.figures))
    loads_by_host = dict(state.host_loads.items())
    hosts = dict.fromkeys([*loads_by_host, *gpus_by_host])
    return [
        _describe_load(host, loads_by_host.get(host, {})) | {"gpus": gpus_by_host.get(host, [])}
        for host in hosts
    ]


def describe_case_gpus(case: CaseState, state: RunState) -> Iterator[dict[str, Any]]:
    """Yield the fields of each GPU of a case, by host and number."""
    for (host, index), figures in sorted(case.measured.gpus.items()):
        facts = state.gpu_loads.get((host, index)).facts
        yield {"host": host, **_describe_gpu(facts, figures)}


def _describe_load(host: str, loads: Mapping[str, LoadHistory]) -> dict[str, Any]:
    loads_by_quantity = {
        name: {"mean": round(load.mean, 4), "most": load.maximum} for name, load in loads.items()
    }
    return {"host": host, **loads_by_quantity}


def _describe_gpu(facts: GpuReading, figures: GpuFigures) -> dict[str, Any]:
    """Return the fields of a GPU in the report."""
    shares = figures.throttle_shares
    return {
        "index": facts.index,
        "address": facts.address,
        "name": facts.name,
        "lost": figures.lost,
        "readings": figures.num_readings,
        "mean_utilization": _round(figures.utilization.mean),
        "most_memory_bytes": figures.memory_used_bytes.highest,
        "memory_bytes": facts.memory_total_bytes,
        "mean_power_w": _round(figures.power_w.mean),
        "power_limit_w": facts.power_limit_w,
        "min_sm_clock_mhz": figures.sm_clock_mhz.lowest,
        "max_sm_clock_mhz": facts.max_sm_clock_mhz,
        "max_temperature_c": figures.temperature_c.highest,
        "throttled": (
            None
            if shares is None
            else {reason.value: round(share, _DIGITS) for reason, share in shares.items()}
        ),
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
