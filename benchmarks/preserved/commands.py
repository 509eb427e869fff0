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
    """Record how each shipped suite is checked and launched, and what wrong commands print."""
    for path in sorted((ROOT / "suites").glob("*.yaml")):
        suite = f"suites/{path.name}"
        transcripts.record(f"{path.stem}.validate", "validate", "-v", suite)
        for launcher, words in LAUNCHERS.items():
            transcripts.record(
                f"{path.stem}.{launcher}.dry-run", "run", suite, "--dry-run", *words, *HOSTS
            )
            transcripts.record(f"{path.stem}.{launcher}.command", "command", suite, *words, *HOSTS)
    for name, wrong in WRONG.items():
        transcripts.record(f"wrong.{name}", *wrong)


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
        words = (profile, "--global-batch-size", "64", "--machines", "2x4", "--format", "json")
        for mode in ("best", "hpgo"):
            transcripts.record(f"{name}.{mode}", "plan", *words, "--mode", mode)


def record_runs(transcripts: Transcripts, home: Path | None) -> None:
    """Record what is shown of recorded runs, of old ones and of those of ``home``."""
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
        for form in ("csv", "json"):
            transcripts.record(
                f"{run}.export.{form}", "results", "export", run, "--format", form, home=copy
            )
        for form in FORMATS:
            transcripts.record(f"{run}.{form}", "report", run, "--format", form, home=copy)
    for before, after in pairwise(runs):
        transcripts.record(f"{before}.{after}.compare", "compare", before, after, home=copy)
        transcripts.record(
            f"{before}.{after}.json", "compare", before, after, "--format", "json", home=copy
        )
