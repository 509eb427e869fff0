"""The fault matrix: each planted fault, the checks that find it, and their errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.planted_faults import FORMATS, LAYOUTS, MODELS
from benchmarks.preserved.transcripts import ROOT, Transcripts, build_environment

from spbench_core.catalog import BENCHMARKS

NO_FAULT = "none"
VARYING = {"compute.noise", "halo.fused", "kvstore.push_pull", "link.barrier", "model.profile"}
"""Benchmarks with checks of data that depends on times: their errors differ from run to run."""
_ERRORS = ("max_abs_error", "tolerance", "detail")
_SHORT = {"warmup": 1, "iterations": 2}
_TILES: Mapping[str, Any] = {**_SHORT, "image_size": "20x28", "grid": "2x2"}
_LAYERS: Mapping[str, Any] = {**_TILES, "in_channels": 2, "out_channels": 3}
_STORE: Mapping[str, Any] = {"network": "lenet", "gpus": 2, "num_batches": 4}
_TWO = {"np": 2}
SETTINGS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "halo.exchange": [_TILES, {**_TILES, "halo_len": 3}],
    "halo.compute": [_LAYERS],
    "halo.fused": [{**_TILES, "out_channels": 3}],
    "link.pingpong": [{**_SHORT, **_TWO, "sizes": [8, 4096]}],
    "link.ring": [{**_SHORT, "np": 3, "sizes": [8, 4096], "rings": 1}],
    "link.bisection": [{**_SHORT, **_TWO, "size": 4096, "cuts": 1}],
    "link.effective": [{**_SHORT, "np": 3, "sizes": [8, 4096], "rings": 1}],
    "link.barrier": [{**_SHORT, "np": 3}],
    "memory.copy": [{**_SHORT, **_TWO, "size": 65536}],
    "compute.gemm": [{**_SHORT, **_TWO, "n": 32}],
    "compute.conv": [{**_SHORT, **_TWO, "image_size": 16, "in_channels": 2, "out_channels": 3}],
    "compute.burn": [{**_TWO, "n": 32, "seconds": 0.05}],
    "compute.noise": [{**_TWO, "quantum_us": 100, "iterations": 20}],
    "allreduce.sweep": [
        {**_SHORT, "np": 3, "size": 4096, "algorithm": algorithm}
        for algorithm in ("ring", "recursive_doubling", "native")
    ],
    "kvstore.push_pull": [
        {**_STORE, "kv_store": "device"},
        {**_STORE, "kv_store": "device", "gc_type": "2bit"},
        {**_STORE, "kv_store": "dist_sync", "num_workers": 2, "num_servers": 1, "gpus": 1},
    ],
    "model.profile": [{**_TWO, **_SHORT, "depth": 11, "batch_sizes": [1]}],
    "program.run": [
        {**_TWO, "argv": ["echo", "rank {rank} of {np}"], "must": ["rank 0 of 2"]},
        {**_TWO, "argv": ["echo", "done"], "never": ["error"]},
    ],
}
"""Small parameters of each benchmark; ``np`` if they do not determine the number of ranks."""
SAMPLES: Sequence[tuple[Sequence[str], Sequence[str], Sequence[str]]] = (
    (["resnet"], list(LAYOUTS), ["fp32"]),
    (["resnet", "network"], ["sp-lp", "gems-sp"], list(FORMATS)),
)
"""Models, layouts and formats of the sample."""


def record_faults(transcripts: Transcripts, *, full: bool) -> None:
    """Plant each fault of each benchmark and format; record the checks that find it."""
    for benchmark, settings in SETTINGS.items():
        transcripts.write(
            benchmark, "\n".join(_record_matrix(transcripts, benchmark, settings)) + "\n"
        )
    samples = ((list(MODELS), list(LAYOUTS), list(FORMATS)),) if full else SAMPLES
    log = transcripts.scratch / "faults.jsonl"
    for selection in samples:
        names = ("--models", "--layouts", "--formats")
        options = [
            option
            for name, values in zip(names, selection, strict=True)
            for option in (name, ",".join(values))
        ]
        command = [sys.executable, "-m", "benchmarks.planted_faults", "--log", str(log), *options]
        environment = build_environment(transcripts.scratch / "home")
        subprocess.run(command, cwd=ROOT, env=environment, check=False, stdout=subprocess.DEVNULL)
    transcripts.write("model", "".join(sorted(log.read_text().splitlines(keepends=True))))


def _record_matrix(
    transcripts: Transcripts, benchmark: str, settings: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Run a suite without a fault and with each; yield the checks of its cases."""
    suite = transcripts.scratch / f"{benchmark}.yaml"
    cases = list(_build_cases(benchmark, settings))
    suite.write_text(json.dumps({"schema": "spbench.suite/1", "name": "faults", "cases": cases}))
    for fault in (NO_FAULT, *BENCHMARKS[benchmark].faults):
        report = transcripts.scratch / f"{benchmark}.{fault}.json"
        options = ("--inject", fault) if fault != NO_FAULT else ()
        result = transcripts.run(
            *("run", str(suite), "--headless", "--quiet", "--oversubscribe", *options),
            *("--json", str(report)),
        )
        cases_of_report = json.loads(report.read_text())["cases"]
        assert cases_of_report, f"{benchmark}: exit {result.returncode}: {result.stderr}"
        yield f"{fault}: exit {result.returncode}"
        for case in cases_of_report:
            yield f"  {case['id']}: {case['status']}"
            for check in case["checks"]:
                left_out = _ERRORS if benchmark in VARYING else ()
                line = {key: value for key, value in check.items() if key not in left_out}
                yield f"    {json.dumps(line, sort_keys=True)}"


def _build_cases(benchmark: str, settings: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for index, setting in enumerate(settings):
        params = {key: value for key, value in setting.items() if key != "np"}
        ranks = {"np": setting["np"]} if "np" in setting else {}
        for name, value in _list_formats(benchmark):
            case_params = {**params, name: value} if name else params
            case = {"name": f"{index}-{value or 'any'}", "benchmark": benchmark, **ranks}
            yield {**case, "params": case_params}


def _list_formats(benchmark: str) -> list[tuple[str, str]]:
    """Return the format's parameter with each value that a CPU supports."""
    for name in ("dtype", "precision"):
        param = BENCHMARKS[benchmark].find_param(name)
        if param is not None and param.choices:
            return [(name, value) for value in param.choices if value != "tf32"]
    return [("", "")]
