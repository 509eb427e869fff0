"""Commands with the same output at two commits."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

from benchmarks.preserved.transcripts import ROOT, Transcripts

PROFILES = Path("..") / "shared" / "data" / "profiles"
LAUNCHERS = {
    "openmpi": ("--assume", "openmpi-5.0.7"),
    "mpirun_rsh": ("--assume", "mvapich2-2.3.7"),
    "hydra": ("--assume", "mpich-4.2.0"),
    "srun": ("--assume", "mpich-4.2.0", "--launcher", "srun"),
}
HOSTS = ("--hosts", "node[01-04]:8")
SCHEMAS = ("suite", "report", "baseline", "plan", "cluster", "profile", "site")
FORMATS = ("html", "md", "csv", "jsonl", "junit", "openmetrics", "grafana", "syslog", "trace")
WRONG = {
    "no-suite": ("run", "suites/missing.yaml", "--headless"),
    "no-case": ("run", "suites/halo.yaml", "--headless", "--case", "missing"),
    "wrong-suite": ("validate", "tests/data/suites/wrong.yaml"),
    "wrong-parameter": ("validate", "suites/halo.yaml", "--set", "image_size=x"),
    "wrong-fault": ("run", "suites/halo.yaml", "--inject", "drop-halos", "--dry-run"),
    "wrong-launcher": ("command", "suites/halo.yaml", "--launcher", "mpirunrsh"),
    "wrong-library": ("command", "suites/halo.yaml", "--assume", "slurm-23"),
    "wrong-scheduler": ("script", "suites/halo.yaml", "--scheduler", "torque"),
    "no-run": ("results", "show", "missing"),
}


def record_suites(transcripts: Transcripts) -> None:
    """Record the checks and launches of each shipped suite, and wrong commands."""
    for path in sorted((ROOT / "suites").glob("*.yaml")):
        suite = f"suites/{path.name}"
        transcripts.record(f"{path.stem}.validate", "validate", "-v", suite)
        for launcher, options in LAUNCHERS.items():
            transcripts.record(
                f"{path.stem}.{launcher}.dry-run", "run", suite, "--dry-run", *options, *HOSTS
            )
            transcripts.record(
                f"{path.stem}.{launcher}.command", "command", suite, *options, *HOSTS
            )
    for name, arguments in WRONG.items():
        transcripts.record(f"wrong.{name}", *arguments)


def record_catalog(transcripts: Transcripts) -> None:
    """Record the schemas of all files, and the description of each benchmark."""
    from spbench_core.catalog import BENCHMARKS

    for kind in SCHEMAS:
        transcripts.record(f"schema.{kind}", "schema", kind)
    transcripts.record("benchmarks", "benchmarks")
    transcripts.record("networks", "networks")
    for benchmark in BENCHMARKS:
        transcripts.record(benchmark, "benchmarks", benchmark)


def record_plans(transcripts: Transcripts) -> None:
    """Record the plans of each profile, by both planners."""
    for path in sorted((ROOT / PROFILES).rglob("*.txt")):
        if path.name.startswith("LICENSE"):
            continue
        name = f"{path.parent.name}.{path.stem}"
        profile = str(PROFILES / path.relative_to(ROOT / PROFILES))
        arguments = (
            profile,
            "--global-batch-size",
            "64",
            "--machines",
            "2x4",
            "--format",
            "json",
        )
        for mode in ("best", "hpgo"):
            transcripts.record(f"{name}.{mode}", "plan", *arguments, "--mode", mode)


def record_runs(transcripts: Transcripts, home: Path | None) -> None:
    """Record the output for recorded runs, from tests/data and from ``home``."""
    copy = transcripts.scratch / "recorded"
    if home is not None:
        shutil.copytree(home, copy)
    for folder in sorted((ROOT / "tests" / "data" / "runs").iterdir()):
        shutil.copytree(folder, copy / "runs" / folder.name)
    runs = sorted(path.name for path in (copy / "runs").iterdir())
    transcripts.run("results", "reindex", home=copy)
    transcripts.record("results.list", "results", "list", "-n", "100", home=copy)
    for run in runs:
        transcripts.record(f"{run}.show", "results", "show", run, "--logs", home=copy)
        transcripts.record(f"{run}.replay", "replay", run, "--headless", "-v", home=copy)
        for output_format in ("csv", "json"):
            transcripts.record(
                f"{run}.export.{output_format}",
                "results",
                "export",
                run,
                "--format",
                output_format,
                home=copy,
            )
        for output_format in FORMATS:
            transcripts.record(
                f"{run}.{output_format}", "report", run, "--format", output_format, home=copy
            )
    for before, after in pairwise(runs):
        transcripts.record(f"{before}.{after}.compare", "compare", before, after, home=copy)
        transcripts.record(
            f"{before}.{after}.json", "compare", before, after, "--format", "json", home=copy
        )
