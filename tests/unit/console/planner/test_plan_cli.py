"""``spbench plan`` and ``spbench profile`` on the command line: formats, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace

import jsonschema
import pytest

from places import DOCS
from spbench.cli.app import run_command_line
from spbench.cli.planning.output import _cut_stages, render_plan, render_verification
from spbench.planner.cluster.cluster_file import load_cluster
from spbench.planner.cluster.machines import Cluster, DeviceKind, Link, Machine, cluster_from_ends
from spbench.planner.output.plan_description import describe_memory, describe_step_parts
from spbench.planner.output.plan_json import plan_json_schema
from spbench.planner.output.plan_text import CSV_COLUMNS
from spbench.planner.output.verification import TimeComparison, Verification
from spbench.planner.planning import default_jobs
from spbench.planner.planning import plan as plan_of
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.json_file import write_profile_json
from unit.console.planner.made_up import chain, shared

CLUSTER = """
schema: spbench.cluster/1
devices: {core: {memory: 1GB}}
links: {bus: {bandwidth: 1GB/s}}
machines: [{name: here, devices: {core: 2}, link: bus}]
"""


@pytest.fixture
def files(tmp_path):
    """A profile of four layers with wide outputs but one, and a cluster of two devices."""
    profile = tmp_path / "four.json"
    made = chain([10.0, 30.0, 10.0, 30.0], [4e6, 1e3, 4e6, 40.0], [1e8] * 4, batch_size=8)
    profile.write_text(write_profile_json(made))
    cluster = tmp_path / "two.yaml"
    cluster.write_text(CLUSTER)
    return str(profile), str(cluster)


@pytest.fixture
def plan(files, capsys):
    def run(*words: str, batch: str = "16") -> tuple[int, str, str]:
        profile, cluster = files
        on = [] if "--machines" in words or "--cluster" in words else ["--cluster", cluster]
        status = run_command_line(["plan", profile, "--global-batch-size", batch, *on, *words])
        return status, *capsys.readouterr()

    return run


def test_a_table_has_stages_and_other_ways_to_train(plan):
    status, out, err = plan("--micro-batch-size", "2")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("made-up on two, mode best: 2 stages")
    assert lines[3].startswith("links: ")
    assert lines[4] == "device memory: 1.00 GB"
    assert lines[7].split()[:5] == ["0", "n0", "to", "n1", "0-1"]
    assert lines[8].split()[:5] == ["1", "n2", "to", "n3", "2-3"]
    assert lines[-1].split()[:2] == ["this", "plan"]
    assert sum(line.startswith("DP") for line in lines) == 3


def test_times_and_sizes_of_a_table_have_units(plan):
    out = plan("--micro-batch-size", "2")[1]
    head, stages, ways = out.split("\n\n")
    assert re.search(r"^step [\d.]+ m?s, [\d.]+x as fast as one device \([\d.]+ m?s\)$", head, re.M)
    [heading, *rows] = stages.splitlines()[:3]
    assert heading.split()[4:] == ["forward", "backward", "send", "all-reduce", "memory"]
    for row in rows:
        assert len(re.findall(r" [\d.]+ (?:ns|us|ms|s)(?= )", row)) == 4
        assert re.search(r" [\d.]+ [kMG]?B$", row)
    assert "states: the numbers of the layers" in stages
    assert "e+" not in out
    assert re.search(r"^this plan +[\d.]+ m?s +[\d.]+x$", ways, re.M)


EXAMPLE = [
    str(DOCS / "examples" / "resnet-20.json"),
    "--cluster",
    str(DOCS / "examples" / "two-cores.yaml"),
]
PIPELINE = ["plan", *EXAMPLE, "--micro-batch-size", "1"]


@pytest.fixture
def in_terminal(monkeypatch, capsys):
    """Return the lines of a command in a terminal of a width; None: in a pipe."""

    def run(width: int | None, words: Sequence[str]) -> list[str]:
        if width is not None:
            monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
            monkeypatch.setenv("COLUMNS", str(width))
        assert run_command_line(words) == 0
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize("width", [60, 80, 100, 120, None])
def test_tables_fit_the_terminal(in_terminal, width):
    lines = in_terminal(width, [*PIPELINE, "--global-batch-size", "8"])
    assert max(map(len, lines)) <= (width or 120)
    start = next(at for at, line in enumerate(lines) if line.startswith("stage "))
    heading, *rows = lines[start : start + 5]
    assert len({len(row) for row in (heading, *rows)}) == 1  # no row goes on below itself
    assert all(row.endswith(" MB") for row in rows)
    left_out = {60: {"states", "send", "all-reduce"}, 80: {"states"}}.get(width or 120, set())
    assert {"states", "send", "all-reduce"} - set(heading.split()) == left_out
    assert any(line.startswith("states: ") for line in lines) == ("states" not in left_out)
    assert ("stack1_block2 to stack2_block1" in rows[1]) == (width in (120, None))


@pytest.mark.parametrize("width", [60, 80, 100, 120, None])
def test_batch_sizes_take_one_row_each_in_any_terminal(in_terminal, width):
    lines = in_terminal(width, [*PIPELINE, "--jobs", "1", "--global-batch-size", "8,16"])
    assert max(map(len, lines)) <= (width or 120)
    assert [line.split()[0] for line in lines[:3]] == ["batch", "8", "16"]


def test_stages_of_a_batch_size_are_left_out_whole():
    stages = ["0-5@0", "6-8@1", "9-11@2", "12-14@3"]
    assert _cut_stages(stages, 40) == "0-5@0 6-8@1 9-11@2 12-14@3"
    assert _cut_stages(stages, 25) == "0-5@0 6-8@1 … 12-14@3"
    assert _cut_stages(stages, 17) == "0-5@0 … 12-14@3"
    assert _cut_stages(["0-5@0,2,4,6,8,10,12"], 12) == "0-5@0,…10,12"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_long_list_of_devices_fits_too(width):
    profile = load_profile(DOCS / "examples" / "resnet-20.json")
    made = plan_of(profile, cluster_from_ends([2]), 16)
    [stage] = made.stages
    scattered = replace(made, stages=(replace(stage, devices=tuple(range(0, 400, 2))),))
    assert max(map(len, render_plan(scattered, cluster_from_ends([400]), width))) <= width


def test_an_all_reduce_is_called_overlapped_only_if_it_is(in_terminal):
    lines = in_terminal(None, ["plan", *EXAMPLE, "--global-batch-size", "16"])
    [note] = [line for line in lines if " of all-reduce overlap " in line]
    assert re.fullmatch(r"stage 0: [\d.]+ ms of [\d.]+ ms of all-reduce overlap .*", note)
    lines = in_terminal(None, [*PIPELINE, "--global-batch-size", "8"])
    assert not [line for line in lines if " of all-reduce overlap " in line]


def test_a_plan_with_more_devices_than_samples_says_that_it_cannot_be_run():
    profile = load_profile(DOCS / "examples" / "unet.json")
    cluster = cluster_from_ends([8, 16, 24, 32])
    made = plan_of(profile, cluster, 32, micro_batch_size=1)
    [note] = [line for line in render_plan(made, cluster, 120) if "cannot be run" in line]
    assert re.fullmatch(r"cannot be run: the \d+ devices of stage \d+ share .* or more", note)
    fits = plan_of(profile, cluster_from_ends([2]), 32)
    assert not [
        line for line in render_plan(fits, cluster_from_ends([2]), 120) if "cannot be run" in line
    ]


def test_links_that_are_faster_in_all_reduces_say_so():
    cluster = cluster_from_ends([8, 16])
    profile = load_profile(DOCS / "examples" / "resnet-50.json")
    plan_of_64 = plan_of(profile, cluster, 64)
    [links] = [line for line in render_plan(plan_of_64, cluster, 120) if " links: " in line]
    assert links == (
        "assumed links: 25.0 GB/s within machines, 1.00 GB/s (3.00 GB/s in all-reduces) between "
        "machines"
    )


def test_stages_that_recompute_are_named_once_below_the_table():
    profile = load_profile(DOCS / "examples" / "resnet-20.json")
    made = plan_of(profile, cluster_from_ends([2]), 8, micro_batch_size=1)
    stages = tuple(replace(stage, recompute=True) for stage in made.stages)
    lines = list(render_plan(replace(made, stages=stages), cluster_from_ends([2]), 80))
    [note] = [line for line in lines if "recomputed" in line]
    last = len(stages) - 1
    assert note == f"stages 0-{last}: activations are recomputed in the backward pass"


@pytest.mark.parametrize("width", [60, 80])
def test_measured_times_fit_the_terminal(width):
    profile = load_profile(DOCS / "examples" / "resnet-20.json")
    cluster = load_cluster(DOCS / "examples" / "two-cores.yaml")
    made = plan_of(profile, cluster, 8, micro_batch_size=1)
    compared = tuple(TimeComparison(300.0, 320.0) for _ in made.stage_groups)
    spent = dict.fromkeys(("passes and messages", "optimizer", "bubble", "other"), 12.0)
    lines = list(render_verification(made, Verification(compared[0], compared, 1, spent), width))
    assert max(map(len, lines)) <= width
    assert len(set(map(len, lines[: 2 + len(compared)]))) == 1
    assert " ".join(" ".join(lines).split()).endswith("; predicted: no optimizer")


def test_a_verified_plan_says_how_much_of_the_allreduce_it_expected_after_the_passes():
    made = plan_of(load_profile(DOCS / "examples" / "resnet-20.json"), cluster_from_ends([2]), 8)
    [stage] = made.stages
    made = replace(made, stages=(replace(stage, all_reduce_s=3e-3, overlapped_s=2e-3),))
    compared = TimeComparison(10.0, 12.0)
    words = describe_step_parts(
        made, Verification(compared, (compared,), 0, {"passes and messages": 9.0})
    )
    assert words.endswith(
        "predicted: allreduce 3.00 ms, 1.00 ms of it after the passes, and no optimizer"
    )


def test_the_memory_of_all_kinds_of_devices_is_described():
    def machine(*sizes):
        kinds = tuple(DeviceKind("core", size) for size in sizes)
        return Cluster("mixed", (Machine("here", kinds, Link("bus", 1e9)),))

    assert describe_memory(machine(16e9, 8e9, 16e9)) == "device memory: 8.00 GB or 16.0 GB"
    assert describe_memory(machine(8e9, None)) == "device memory: 8.00 GB or unknown"
    assert describe_memory(machine(None)) == "device memory: unknown"


def test_format_table_is_now_text(plan):
    old = plan("--format", "table")
    new = plan("--format", "text")
    assert old[:2] == new[:2]
    assert old[2] == "warning: --format table is now --format text\n"


@pytest.mark.parametrize("mode", ["best", "hpgo"])
def test_json_is_as_its_schema_says(plan, mode):
    status, out, _ = plan("--micro-batch-size", "2", "--mode", mode, "--format", "json")
    told = json.loads(out)
    assert status == 0
    jsonschema.validate(told, plan_json_schema())
    assert told["schema"] == "spbench.plan/1"
    assert told["speedup"] == pytest.approx(told["single_ms"] / told["step_ms"])
    assert told["memory"]["stages"] == [stage["memory_bytes"] for stage in told["stages"]]
    # HPGO's last end is its last state.
    assert told["stages"][-1]["end"] == (3 if mode == "hpgo" else 4)
    assert sorted(n for stage in told["stages"] for n in stage["devices"]) == [0, 1]


def test_the_schema_is_shipped(capsys):
    assert run_command_line(["schema", "plan"]) == 0
    assert json.loads(capsys.readouterr().out) == plan_json_schema()


def test_csv_has_the_reference_s_columns_for_many_batches(plan):
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
def test_many_batches_take_all_cores_or_as_many_processes_as_hpgo_would(monkeypatch, threads, jobs):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {4, 7})
    assert default_jobs({} if threads is None else {"RAYON_NUM_THREADS": threads}) == jobs


def test_the_command_counts_its_processes_likewise(plan, monkeypatch):
    seen: list[int] = []

    def in_this_process(make, calls, options, jobs):
        seen.append(jobs)
        return [make(*call, **options) for call in calls]

    monkeypatch.setattr("spbench.planner.planning.call_in_processes", in_this_process)
    monkeypatch.setenv("RAYON_NUM_THREADS", "5")
    assert plan(batch="8,16")[0] == 0
    assert plan("--jobs", "2", batch="8,16")[0] == 0
    assert plan(batch="8")[0] == 0
    assert seen == [5, 2, 5]


def test_a_batch_without_a_plan_is_told_and_the_others_are_planned(plan):
    status, out, err = plan("--micro-batch-size", "8", batch="12,16")
    assert status == 2
    *rows, legend = out.splitlines()
    assert [row.split()[0] for row in rows] == ["batch", "12", "16"]
    assert rows[1].endswith("no plan")
    assert legend.startswith("0-17@0-31: a stage of layers 0 to 17 on devices 0 to 31")
    assert err == "spbench: error: micro-batches of 8 do not divide the global batch of 12\n"


def test_dot_has_a_box_for_each_stage(plan):
    _, out, _ = plan("--micro-batch-size", "2", "--format", "dot")
    assert out.startswith("digraph plan {")
    assert "stage0 -> stage1" in out


def test_timelines(plan, tmp_path):
    words = ("--micro-batch-size", "2", "--timeline")
    _, text, _ = plan(*words, "text")
    assert [line.split()[0] for line in text.splitlines()[:2]] == ["stage", "stage"]
    assert "in flight at most" in text
    _, svg, _ = plan(*words, "svg")
    assert svg.startswith("<svg")
    target = tmp_path / "trace.json"
    assert plan(*words, "trace", "--output", str(target)) == (0, "", "")
    assert json.loads(target.read_text())["traceEvents"]


def test_torchgraph_text_and_clusters_by_name(capsys):
    profile = str(shared("profiles/dapple/bert-48-pbs-2.txt"))
    words = ["plan", profile, "--profile-batch-size", "2", "--mode", "hpgo", "--format", "hpgo"]
    found = []
    for cluster in (["--machines", "8,16"], ["--cluster", "dapple-a"]):
        assert run_command_line([*words, *cluster, "--global-batch-size", "64"]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]
    assert found[0].startswith("(")


@pytest.mark.parametrize(
    ("words", "sentence"),
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
def test_what_cannot_be_is_one_sentence(plan, words, sentence):
    status, _, err = plan(*words)
    assert status == 2
    assert err.startswith("spbench: error: ")
    assert err.count("\n") == 1
    assert sentence in err


@pytest.mark.parametrize(
    ("batch", "sentence"),
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
def test_batch_sizes_that_are_none(plan, batch, sentence):
    status, _, err = plan(batch=batch)
    assert status == 2
    assert sentence in err


def test_many_batches_are_not_emitted(plan):
    status, _, err = plan("--verify", batch="8,16")
    assert status == 2
    assert "take one batch size" in err


@pytest.fixture
def runnable(files, tmp_path):
    """A profile in the place of the one of `files`, of a model that spbench runs."""
    profile = tmp_path / "four.json"
    told = json.loads(profile.read_text()) | {
        "origin": {"model": "resnet", "params": {"depth": 11}}
    }
    fifth = told["layers"][0] | {"name": "n4"}
    told["layers"].append(fifth)
    told["edges"].append(["n3", "n4"])
    profile.write_text(json.dumps(told))


@pytest.fixture
def started(monkeypatch):
    """The jobs that were started on a machine that seems to have two cores."""
    jobs = []

    async def start(self, *_):
        jobs.append(self)

    monkeypatch.setattr("spbench.launch.devices.count_cores", lambda: 2)
    monkeypatch.setattr("spbench.engine.capacity.count_cores", lambda: 2)
    monkeypatch.setattr("spbench.engine.run.Run._run_jobs", start)
    return jobs


def test_a_plan_for_more_devices_than_there_are_is_not_started(
    plan, runnable, started, tmp_path, capsys
):
    pytest.importorskip("mpi4py")
    suite = tmp_path / "plan.yaml"
    home = ("--home", str(tmp_path / "home"))
    words = ("--machines", "32", "--emit", str(suite), "--verify", *home)
    status, _, err = plan(*words, batch="64")
    assert status == 3, err
    assert "is for 32 devices, one for each rank, and this machine has 2 cores: plan for 2" in err
    assert run_command_line(["run", str(suite), "--headless", *home]) == 3
    assert "is for 32 devices" in capsys.readouterr().err
    status, _, err = plan(*words, "--hosts", "localhost:4", batch="64")
    assert status == 3, err
    assert "32 ranks need 32 slots, and --hosts has 4" in err
    assert started == []
    shared = ("--set", "launch.oversubscribe=true")
    assert run_command_line(["run", str(suite), "--headless", *shared, *home]) == 3
    assert "wants 32 ranks, and this machine has 2 cores" in capsys.readouterr().err
    assert started == []
    run_command_line(["run", str(suite), "--headless", "--oversubscribe", *home])
    assert len(started) == 1


def test_a_plan_is_verified_by_the_launcher_that_is_asked_for(plan, runnable):
    status, _, err = plan("--micro-batch-size", "8", "--verify", "--launcher", "nope")
    assert status == 2, err
    assert "--launcher nope: unknown launcher; known are auto, " in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
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
def test_profiles_that_cannot_be(words, sentence, capsys):
    status = run_command_line(["profile", *words])
    err = capsys.readouterr().err
    assert status == 2
    assert err.startswith("spbench: error: ")
    assert err.count("\n") == 1
    assert sentence in err
