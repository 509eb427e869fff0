"""Tests of plan requests: parsing, completion, and planning in a child process."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace

import pytest

from spbench.errors import UsageError
from spbench.planner import worker_process
from spbench.planner.cluster import this_machine
from spbench.planner.cluster.lookup import find_cluster
from spbench.planner.cluster.machines import PRESETS
from spbench.planner.errors import PlannerError
from spbench.planner.nearby_files import complete_path, find_nearby_files
from spbench.planner.planning import plan
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.json_file import write_profile_json
from spbench.planner.request import PlanRequest, parse_plan_request
from spbench.planner.simulation.stage_memory import StageMemory, find_bar_limits
from spbench.planner.worker_process import plan_in_process
from support.planner.sample_profiles import make_chain, render_torchgraph

SIX = make_chain([1.0, 2.0, 3.0, 1.0, 2.0, 3.0], [8.0] * 6, [1e6] * 6)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "six.json").write_text(write_profile_json(SIX))
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "graph.txt").write_text(render_torchgraph(SIX))
    (tmp_path / "two.yaml").write_text(
        "schema: spbench.cluster/1\ndevices: {core: {memory: 4GB}}\n"
        "links: {bus: {bandwidth: 3GB/s}}\n"
        "machines: [{name: here, devices: {core: 2}, link: bus}]\n"
    )
    (tmp_path / "notes.txt").write_text("nothing of ours\n")
    return tmp_path


def parse_request(folder, **changes):
    fields = {"profile": "six.json", "cluster": "two.yaml", "global_batch_size": "8"}
    fields |= {"profile_batch_size": "", "micro_batch_size": "", "mode": "best", **changes}
    return parse_plan_request(home=folder / "home", folder=folder, **fields)


def test_clusters_are_found_by_size_file_and_preset(folder):
    clusters = {text: find_cluster(text, folder, folder) for text in ("2, 4", "two.yaml")}
    assert [cluster.sizes for cluster in clusters.values()] == [(2, 2), (2,)]
    assert find_cluster("2x2", folder, folder).machines == clusters["2, 4"].machines
    assert find_cluster("2x2,1x3", folder, folder).sizes == (2, 2, 3)
    assert find_cluster("dapple-b", folder, folder) is PRESETS["dapple-b"]
    for text, message in (
        ("", "choose a cluster"),
        ("4,,2", "write machines times devices"),
        ("gone.yaml", "there is no such file"),
        ("dapple-d", "did you mean"),
        ("last", "no run"),
        ("~no-such-user/two", "unknown home directory"),
        ("~no-such-user/two.yaml", "unknown home directory"),
    ):
        with pytest.raises(UsageError, match=message):
            find_cluster(text, folder, folder)


def test_this_machine_is_a_cluster_of_its_cores(folder, monkeypatch):
    monkeypatch.setattr(this_machine, "count_cores", lambda: 4)
    monkeypatch.setattr(this_machine, "read_memory_kib", lambda: 4_000_000)
    cluster = find_cluster("this-machine", folder, folder)
    assert cluster.sizes == (4,)
    assert {kind.memory_bytes for kind in cluster.kinds} == {1_024_000_000}


def test_nearby_files_are_found_in_each_folder_that_is_not_hidden(folder):
    for name in ("examples", ".spbench"):
        (folder / name).mkdir()
        (folder / name / "mine.json").write_text(write_profile_json(SIX))
    assert set(find_nearby_files(folder).profiles) == {"six.json", "examples/mine.json"}


def test_nearby_files_are_recognized_by_content(folder):
    os.utime(folder / "six.json", (1, 1))
    (folder / "new.json").write_text(write_profile_json(SIX))
    files = find_nearby_files(folder)
    assert files.profiles == ("new.json", "six.json")
    assert files.torchgraphs == ("profiles/graph.txt",)
    assert files.clusters == ("two.yaml",)
    assert find_nearby_files(folder / "gone") == type(files)()


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("si", "six.json"),
        ("pro", "profiles/"),
        ("profiles/g", "profiles/graph.txt"),
        ("x", None),
        ("~no-such-user/s", None),
    ],
)
def test_paths_are_completed(folder, typed, completed):
    assert complete_path(folder, typed) == completed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile": " "}, "choose a profile"),
        ({"global_batch_size": ""}, "give a global batch size"),
        ({"global_batch_size": "0"}, "the global batch size is 0"),
        ({"micro_batch_size": "two"}, "the micro-batch size is two"),
        ({"profile_batch_size": "-1"}, "the profile's batch size is -1"),
    ],
)
def test_rejects_invalid_fields(folder, changes, message):
    with pytest.raises(PlannerError, match=message):
        parse_request(folder, **changes)


def test_rejects_profile_in_an_unknown_home_directory(folder):
    with pytest.raises(UsageError, match="unknown home directory"):
        parse_request(folder, profile="~no-such-user/six.json")


@pytest.mark.slow
async def test_child_process_gives_the_same_plan_and_error(folder):
    request = parse_request(folder)
    response = await plan_in_process(request)
    assert response.plan == plan(load_profile(request.profile), response.cluster, 8)
    assert [memory.peak_bytes for memory in response.memory] == list(response.simulation.peak_bytes)
    assert {memory.capacity_bytes for memory in response.memory} == {4e9}
    with pytest.raises(PlannerError, match="cannot read"):
        await plan_in_process(replace(request, profile=folder / "gone.json"))


async def test_cancelled_planning_kills_its_process(folder, monkeypatch):
    processes = []
    create_process = asyncio.create_subprocess_exec

    async def record_process(*args, **pipes):
        processes.append(await create_process(*args, **pipes))
        return processes[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", record_process)
    task = asyncio.create_task(plan_in_process(parse_request(folder)))
    while not processes:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes[0].returncode == -9


async def test_failing_process_is_reported(monkeypatch, folder, messages):
    monkeypatch.setattr(worker_process, "_MODULE", "spbench.planner.no_such_module")
    with pytest.raises(PlannerError, match=r"exit code 1: .*no_such_module"):
        await plan_in_process(parse_request(folder))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with messages.raises(PlannerError):
        await plan_in_process(parse_request(folder))


def test_memory_bars_use_capacity_however_little_is_used():
    large = StageMemory(1.0, 3.0, 1.0, 10.0)
    small = StageMemory(0.2, 0.2, 0.1, 10.0)
    assert find_bar_limits([large, small]) == ([10.0, 10.0], True)
    assert find_bar_limits([small, replace(small, fixed_bytes=0.1)]) == ([10.0, 10.0], True)
    assert find_bar_limits([large, replace(large, capacity_bytes=None)]) == ([5.0, 5.0], False)


def test_request_has_the_typed_values(folder):
    request = parse_request(folder, micro_batch_size=" 2 ", profile_batch_size="4", mode="hpgo")
    assert request == PlanRequest(
        folder / "six.json", "two.yaml", 8, 4, 2, "hpgo", folder / "home", folder
    )
