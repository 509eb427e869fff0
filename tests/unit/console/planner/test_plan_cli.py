"""Tests of ``spbench plan`` and ``spbench profile``: formats and errors."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace

import jsonschema
import pytest

from spbench.cli.app import run_command_line
from spbench.cli.planning.output import _cut_stages, render_plan, render_verification
from spbench.planner.cluster.cluster_file import load_cluster
from spbench.planner.cluster.machines import (
    Cluster,
    DeviceKind,
    Link,
    Machine,
    make_cluster_from_ends,
)
from spbench.planner.output.plan_description import describe_memory, describe_step_parts
from spbench.planner.output.plan_json import plan_json_schema
from spbench.planner.output.plan_text import CSV_COLUMNS
from spbench.planner.output.verification import TimeComparison, Verification
from spbench.planner.planning import find_default_jobs
from spbench.planner.planning import plan as compute_plan
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.json_file import write_profile_json
from support.paths import DOCS
from support.planner.sample_profiles import find_shared_file, make_chain

CLUSTER = """
schema: spbench.cluster/1
devices: {core: {memory: 1GB}}
links: {bus: {bandwidth: 1GB/s}}
machines: [{name: here, devices: {core: 2}, link: bus}]
"""


@pytest.fixture
def files(tmp_path):
    """Write a profile of four layers, one with a narrow output, and a cluster."""
    profile = tmp_path / "four.json"
    layers = make_chain([10.0, 30.0, 10.0, 30.0], [4e6, 1e3, 4e6, 40.0], [1e8] * 4, batch_size=8)
    profile.write_text(write_profile_json(layers))
    cluster = tmp_path / "two.yaml"
    cluster.write_text(CLUSTER)
    return str(profile), str(cluster)


@pytest.fixture
def plan(files, capsys):
    def run(*args: str, batch: str = "16") -> tuple[int, str, str]:
        profile, cluster = files
        cluster_args = [] if "--machines" in args or "--cluster" in args else ["--cluster", cluster]
        status = run_command_line(
            ["plan", profile, "--global-batch-size", batch, *cluster_args, *args]
        )
        return status, *capsys.readouterr()

    return run


def test_table_lists_stages_and_alternatives(plan, messages):
    status, out, err = plan("--micro-batch-size", "2")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    messages.check(lines[0])
    assert lines[3].startswith("links: ")
    messages.check(lines[4])
    assert lines[7].split()[:5] == ["0", "n0", "to", "n1", "0-1"]
    assert lines[8].split()[:5] == ["1", "n2", "to", "n3", "2-3"]
    assert lines[-1].split()[:2] == ["this", "plan"]
    assert sum(line.startswith("DP") for line in lines) == 3


def test_table_shows_times_and_sizes_with_units(plan):
    out = plan("--micro-batch-size", "2")[1]
    head, stages, alternatives = out.split("\n\n")
    assert re.search(r"^step [\d.]+ m?s, [\d.]+x as fast as one device \([\d.]+ m?s\)$", head, re.M)
    [heading, *rows] = stages.splitlines()[:3]
    assert heading.split()[4:] == ["forward", "backward", "send", "all-reduce", "memory"]
    for row in rows:
        assert len(re.findall(r" [\d.]+ (?:ns|us|ms|s)(?= )", row)) == 4
        assert re.search(r" [\d.]+ [kMG]?B$", row)
    assert "states: the numbers of the layers" in stages
    assert "e+" not in out
    assert re.search(r"^this plan +[\d.]+ m?s +[\d.]+x$", alternatives, re.M)


EXAMPLE = [
    str(DOCS / "examples" / "resnet-20.json"),
    "--cluster",
    str(DOCS / "examples" / "two-cores.yaml"),
]
PIPELINE = ["plan", *EXAMPLE, "--micro-batch-size", "1"]


@pytest.fixture
def run_in_terminal(monkeypatch, capsys):
    """Return a function that runs a command in a terminal, or in a pipe if None."""

    def run(width: int | None, args: Sequence[str]) -> list[str]:
        if width is not None:
            monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
            monkeypatch.setenv("COLUMNS", str(width))
        assert run_command_line(args) == 0
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize("width", [60, 80, 100, 120, None])
def test_tables_fit_the_terminal(run_in_terminal, width):
    lines = run_in_terminal(width, [*PIPELINE, "--global-batch-size", "8"])
    assert max(map(len, lines)) <= (width or 120)
    start = next(index for index, line in enumerate(lines) if line.startswith("stage "))
    heading, *rows = lines[start : start + 5]
    assert len({len(row) for row in (heading, *rows)}) == 1  # no row is wrapped
    assert all(row.endswith(" MB") for row in rows)
    left_out = {60: {"states", "send", "all-reduce"}, 80: {"states"}}.get(width or 120, set())
    assert {"states", "send", "all-reduce"} - set(heading.split()) == left_out
    assert any(line.startswith("states: ") for line in lines) == ("states" not in left_out)
    assert ("stack1_block2 to stack2_block1" in rows[1]) == (width in (120, None))


@pytest.mark.parametrize("width", [60, 80, 100, 120, None])
def test_each_batch_size_takes_one_row(run_in_terminal, width):
    lines = run_in_terminal(width, [*PIPELINE, "--jobs", "1", "--global-batch-size", "8,16"])
    assert max(map(len, lines)) <= (width or 120)
    assert [line.split()[0] for line in lines[:3]] == ["batch", "8", "16"]


def test_stages_are_cut_at_their_boundaries():
    stages = ["0-5@0", "6-8@1", "9-11@2", "12-14@3"]
    assert _cut_stages(stages, 40) == "0-5@0 6-8@1 9-11@2 12-14@3"
    assert _cut_stages(stages, 25) == "0-5@0 6-8@1 … 12-14@3"
    assert _cut_stages(stages, 17) == "0-5@0 … 12-14@3"
    assert _cut_stages(["0-5@0,2,4,6,8,10,12"], 12) == "0-5@0,…10,12"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_device_list_fits_the_terminal(width):
    profile = load_profile(DOCS / "examples" / "resnet-20.json")
    planned = compute_plan(profile, make_cluster_from_ends([2]), 16)
    [stage] = planned.stages
    scattered = replace(planned, stages=(replace(stage, devices=tuple(range(0, 400, 2))),))
    assert max(map(len, render_plan(scattered, make_cluster_from_ends([400]), width))) <= width


def test_note_on_overlap_needs_an_overlapped_all_reduce(run_in_terminal, messages):
    lines = run_in_terminal(None, ["plan", *EXAMPLE, "--global-batch-size", "16"])
    [note] = [line for line in lines if "overlap the last backward pass" in line]
    messages.check(note)
    lines = run_in_terminal(None, [*PIPELINE, "--global-batch-size", "8"])
    assert not [line for line in lines if "overlap the last backward pass" in line]


@pytest.mark.slow
def test_plan_with_more_devices_than_samples_is_marked(messages):
    profile = load_profile(DOCS / "examples" / "unet.json")
    cluster = make_cluster_from_ends([8, 16, 24, 32])
    planned = compute_plan(profile, cluster, 32, micro_batch_size=1)
    [note] = [line for line in render_plan(planned, cluster, 120) if "cannot be run" in line]
    messages.check(note)
    runnable_plan = compute_plan(profile, make_cluster_from_ends([2]), 32)
    assert not [
        line
        for line in render_plan(runnable_plan, make_cluster_from_ends([2]), 120)
        if "cannot be run" in line
    ]


def test_links_show_their_all_reduce_bandwidth(messages):
    cluster = make_cluster_from_ends([8, 16])
    profile = load_profile(DOCS / "examples" / "resnet-50.json")
    planned = compute_plan(profile, cluster, 64)
    [links] = [line for line in render_plan(planned, cluster, 120) if " links: " in line]
    messages.check(links)


def test_recomputing_stages_are_listed_once_below_the_table():
    profile = load_profile(DOCS / "examples" / "resnet-20.json")
    planned = compute_plan(profile, make_cluster_from_ends([2]), 8, micro_batch_size=1)
    stages = tuple(replace(stage, recompute=True) for stage in planned.stages)
    lines = list(render_plan(replace(planned, stages=stages), make_cluster_from_ends([2]), 80))
    [note] = [line for line in lines if "recomputed" in line]
    last = len(stages) - 1
    assert note == f"stages 0-{last}: activations are recomputed in the backward pass"


@pytest.mark.parametrize("width", [60, 80])
def test_measured_times_fit_the_terminal(width):
    profile = load_profile(DOCS / "examples" / "resnet-20.json")
    cluster = load_cluster(DOCS / "examples" / "two-cores.yaml")
    planned = compute_plan(profile, cluster, 8, micro_batch_size=1)
    compared = tuple(TimeComparison(300.0, 320.0) for _ in planned.stage_groups)
    spent = dict.fromkeys(("passes and messages", "optimizer", "bubble", "other"), 12.0)
    lines = list(render_verification(planned, Verification(compared[0], compared, 1, spent), width))
    assert max(map(len, lines)) <= width
    assert len(set(map(len, lines[: 2 + len(compared)]))) == 1
    assert " ".join(" ".join(lines).split()).endswith(
        "The prediction covers the passes, but not the optimizer."
    )


def test_verification_reports_the_predicted_exposed_allreduce():
    planned = compute_plan(
        load_profile(DOCS / "examples" / "resnet-20.json"), make_cluster_from_ends([2]), 8
    )
    [stage] = planned.stages
    compared = TimeComparison(10.0, 12.0)
    parts_ms = {"passes and messages": 9.0, "bubble": 2.96, "optimizer": 0.04}

    def describe(overlapped_s, step_s):
        stages = (replace(stage, all_reduce_s=3e-3, overlapped_s=overlapped_s),)
        verification = Verification(compared, (compared,), 0, parts_ms)
        return describe_step_parts(replace(planned, stages=stages, step_s=step_s), verification)

    description = describe(2e-3, step_s=0.01)
    assert "passes and messages take 9.00 ms, bubble 2.96 ms. The prediction" in description
    assert description.endswith(
        "the passes and an all-reduce of 3.00 ms (1.00 ms of it after the passes), but not the"
        " optimizer."
    )
    assert "an all-reduce of 3.00 ms during them, but not" in describe(2.99e-3, step_s=0.01)
    assert describe(0.0, step_s=1.0).endswith("covers the passes, but not the optimizer.")


def test_memory_of_every_device_kind_is_described(messages):
    def machine(*sizes):
        kinds = tuple(DeviceKind("core", size) for size in sizes)
        return Cluster("mixed", (Machine("here", kinds, Link("bus", 1e9)),))

    messages.check(describe_memory(machine(16e9, 8e9, 16e9)))
    messages.check(describe_memory(machine(8e9, None)))
    messages.check(describe_memory(machine(None)))


def test_format_table_is_a_deprecated_alias_of_text(plan, messages):
    old = plan("--format", "table")
    new = plan("--format", "text")
    assert old[:2] == new[:2]
    messages.check(old[2])


@pytest.mark.parametrize("mode", ["best", "hpgo"])
def test_json_matches_its_schema(plan, mode):
    status, out, _ = plan("--micro-batch-size", "2", "--mode", mode, "--format", "json")
    document = json.loads(out)
    assert status == 0
    jsonschema.validate(document, plan_json_schema())
    assert document["schema"] == "spbench.plan/1"
    assert document["speedup"] == pytest.approx(document["single_ms"] / document["step_ms"])
    assert document["memory"]["stages"] == [stage["memory_bytes"] for stage in document["stages"]]
    # HPGO's last end is its last state.
    assert document["stages"][-1]["end"] == (3 if mode == "hpgo" else 4)
    assert sorted(n for stage in document["stages"] for n in stage["devices"]) == [0, 1]


def test_schema_command_prints_the_plan_schema(capsys):
    assert run_command_line(["schema", "plan"]) == 0
    assert json.loads(capsys.readouterr().out) == plan_json_schema()


def test_csv_has_the_columns_of_hpgo_for_many_batches(plan):
    status, out, _ = plan("--format", "csv", "--mode", "hpgo", batch="8,16:48:16")
    head, *rows = csv.reader(io.StringIO(out))
    assert status == 0
    assert tuple(head) == CSV_COLUMNS
    assert [row[0] for row in rows] == ["8", "16", "32", "48"]
    assert all(float(cell) > 0 for row in rows for cell in row[1:5])
    _, hpgo, _ = plan("--format", "hpgo", "--mode", "hpgo", batch="8,16:48:16")
    assert [f"({row[4]}, {row[5]})" for row in rows] == hpgo.splitlines()


@pytest.mark.parametrize(
    ("threads", "jobs"), [("3", 3), (None, 2), ("0", 2), ("many", 2), ("-1", 2), ("9" * 30, 2)]
)
def test_default_jobs_are_cores_or_the_threads_of_hpgo(monkeypatch, threads, jobs):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {4, 7})
    assert find_default_jobs({} if threads is None else {"RAYON_NUM_THREADS": threads}) == jobs


def test_plan_uses_the_default_number_of_jobs(plan, monkeypatch):
    job_counts: list[int] = []

    def call_in_this_process(make, calls, options, jobs):
        job_counts.append(jobs)
        return [make(*call, **options) for call in calls]

    monkeypatch.setattr("spbench.planner.planning.call_in_processes", call_in_this_process)
    monkeypatch.setenv("RAYON_NUM_THREADS", "5")
    assert plan(batch="8,16")[0] == 0
    assert plan("--jobs", "2", batch="8,16")[0] == 0
    assert plan(batch="8")[0] == 0
    assert job_counts == [5, 2, 5]


def test_other_batches_are_planned_if_one_has_no_plan(plan, messages):
    status, out, err = plan("--micro-batch-size", "8", batch="12,16")
    assert status == 2
    *rows, legend = out.splitlines()
    assert [row.split()[0] for row in rows] == ["batch", "12", "16"]
    assert rows[1].endswith("no plan")
    messages.check(legend)
    messages.check(err)


def test_dot_has_a_node_per_stage(plan):
    _, out, _ = plan("--micro-batch-size", "2", "--format", "dot")
    assert out.startswith("digraph plan {")
    assert "stage0 -> stage1" in out


def test_timelines_are_written_in_each_format(plan, tmp_path):
    args = ("--micro-batch-size", "2", "--timeline")
    _, text, _ = plan(*args, "text")
    assert [line.split()[0] for line in text.splitlines()[:2]] == ["stage", "stage"]
    assert "in flight at most" in text
    _, svg, _ = plan(*args, "svg")
    assert svg.startswith("<svg")
    target = tmp_path / "trace.json"
    assert plan(*args, "trace", "--output", str(target)) == (0, "", "")
    assert json.loads(target.read_text())["traceEvents"]


def test_cluster_by_name_gives_the_plan_of_its_machines(capsys):
    profile = str(find_shared_file("profiles/dapple/bert-48-pbs-2.txt"))
    args = ["plan", profile, "--profile-batch-size", "2", "--mode", "hpgo", "--format", "hpgo"]
    outputs = []
    for cluster in (["--machines", "8,16"], ["--cluster", "dapple-a"]):
        assert run_command_line([*args, *cluster, "--global-batch-size", "64"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("(")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--machines", "2", "--cluster", "dapple-a"], "by one of --machines, --cluster"),
        (["--machines", "2,y"], "write machines times devices: 4x8"),
        (["--machines", "٣"], "write machines times devices"),
        (["--machines", "2x8x2"], "write each part as machines times devices"),
        (["--machines", "2x8,4"], "write each part as machines times devices"),
        (["--machines", "0x8"], "at least 1 machine with 1 device"),
        (["--machines", "1000000x1000000"], "give it at most"),
        (["--machines", "9" * 5000], "--machines has a number of over 100 digits"),
        (["--machines", "99999999999"], "has 99999999999 devices; give it at most 65536"),
        (["--machines", "4,2"], "must be rising device numbers above 0"),
        (["--machines", "0"], "must be rising device numbers above 0"),
        (["--cluster", "dapple-d"], "there is no such file (did you mean dapple-"),
        (["--format", "xml"], "there is no such format"),
        (["--mode", "worst"], "there is no such mode"),
        (["--timeline", "gif"], "there is no such timeline"),
        (["--micro-batch-size", "3"], "do not divide"),
        (["--jobs", "0"], "jobs plan nothing"),
        (["--jobs", "2"], "--jobs plans several batch sizes at once"),
        (["--format", "text", "--timeline", "text"], "give one of them"),
        (["--hosts", "a,b"], "--hosts is for running the plan; give --verify as well"),
        (["--oversubscribe"], "--oversubscribe is for running the plan"),
        (["--launcher", "hydra"], "--launcher is for running the plan"),
        (["-q"], "--quiet is for running the plan"),
        (["-v"], "--verbose is for running the plan"),
        (["--output", "."], "--output .: cannot write to a folder; name a file in it"),
        (["--output", ""], "cannot write to a folder; name a file in it"),
        (["--emit", "."], "--emit .: cannot write to a folder; name a file in it"),
        (["--peak-activation-bytes", "1e308"], "must be from 1 to 1e18 bytes"),
        (["--profile-batch-size", "4"], "was measured at batch size 8, not 4"),
        (["--emit", "x.yaml"], "does not say which model it is of"),
    ],
)
def test_invalid_options_give_a_one_line_error(plan, args, message):
    status, _, err = plan(*args)
    assert status == 2
    assert err.startswith("spbench: error: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ("0", "whole numbers above 0"),
        ("8:16", "first:last:step"),
        ("8:16:0", "--global-batch-size 8:16:0: write whole numbers above 0"),
        ("٣", "whole numbers above 0"),
        ("9" * 20, "give at most 262144 samples"),
        ("9" * 5000, "a number of over 100 digits"),
        ("16:8:4", "first:last:step"),
        ("1:99999:1", "more than 10000"),
        ("8,16 --verify", "whole numbers above 0"),
    ],
)
def test_rejects_invalid_batch_sizes(plan, batch, message):
    status, _, err = plan(batch=batch)
    assert status == 2
    assert message in err


def test_verify_rejects_several_batch_sizes(plan, messages):
    status, _, err = plan("--verify", batch="8,16")
    assert status == 2
    messages.check(err)


@pytest.fixture
def runnable_profile(files, tmp_path):
    """Replace the profile of `files` by one of a model that spbench runs."""
    profile = tmp_path / "four.json"
    document = json.loads(profile.read_text()) | {
        "origin": {"model": "resnet", "params": {"depth": 11}}
    }
    fifth = document["layers"][0] | {"name": "n4"}
    document["layers"].append(fifth)
    document["edges"].append(["n3", "n4"])
    profile.write_text(json.dumps(document))


@pytest.fixture
def started_jobs(monkeypatch):
    """Return the jobs that are started on a machine that seems to have two cores."""
    started_jobs = []

    async def start(self, *_):
        started_jobs.append(self)

    monkeypatch.setattr("spbench.launch.devices.count_cores", lambda: 2)
    monkeypatch.setattr("spbench.engine.capacity.count_cores", lambda: 2)
    monkeypatch.setattr("spbench.engine.run.Run._run_jobs", start)
    return started_jobs


def test_plan_for_too_many_devices_is_not_started(
    plan, runnable_profile, started_jobs, tmp_path, capsys, messages
):
    pytest.importorskip("mpi4py")
    suite = tmp_path / "plan.yaml"
    home = ("--home", str(tmp_path / "home"))
    args = ("--machines", "32", "--emit", str(suite), "--verify", *home)
    status, _, err = plan(*args, batch="64")
    assert status == 3, err
    assert "is for 32 devices, one for each rank, and this machine has 2 cores: plan for 2" in err
    assert run_command_line(["run", str(suite), "--headless", *home]) == 3
    messages.check(capsys.readouterr().err)
    status, _, err = plan(*args, "--hosts", "localhost:4", batch="64")
    assert status == 3, err
    assert "32 ranks need 32 slots, and --hosts has 4" in err
    assert started_jobs == []
    shared = ("--set", "launch.oversubscribe=true")
    assert run_command_line(["run", str(suite), "--headless", *shared, *home]) == 3
    messages.check(capsys.readouterr().err)
    assert started_jobs == []
    run_command_line(["run", str(suite), "--headless", "--oversubscribe", *home])
    assert len(started_jobs) == 1


def test_verify_uses_the_requested_launcher(plan, runnable_profile, messages):
    status, _, err = plan("--micro-batch-size", "8", "--verify", "--launcher", "nope")
    assert status == 2, err
    messages.check(err)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nothing"], "'nothing' is none of resnet, amoebanet, and no module:callable"),
        (["resnet", "--batch-sizes", "2,1"], "batch_sizes must rise"),
        (["resnet", "--batch-sizes", "two"], "whole numbers above 0"),
        (["resnet", "--set", "pool3=avg"], "pool3 is no parameter of model resnet"),
        (["mine:net", "--set", "depth=20"], "depth is no parameter of model mine:net"),
        (["resnet", "--set", "depth=21"], "has no depth 21"),
        (["resnet", "--np", "2"], "add --busy"),
    ],
)
def test_profile_rejects_invalid_options(args, message, capsys):
    status = run_command_line(["profile", *args])
    err = capsys.readouterr().err
    assert status == 2
    assert err.startswith("spbench: error: ")
    assert err.count("\n") == 1
    assert message in err
