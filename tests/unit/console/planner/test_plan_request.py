"""Plans asked for in words, planned in a process of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace

import pytest

from spbench.errors import UsageError
from spbench.planner import worker_process
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
from unit.console.planner.made_up import chain, write_torchgraph

SIX = chain([1.0, 2.0, 3.0, 1.0, 2.0, 3.0], [8.0] * 6, [1e6] * 6)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "six.json").write_text(write_profile_json(SIX))
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "graph.txt").write_text(write_torchgraph(SIX))
    (tmp_path / "two.yaml").write_text(
        "schema: spbench.cluster/1\ndevices: {core: {memory: 4GB}}\n"
        "links: {bus: {bandwidth: 3GB/s}}\n"
        "machines: [{name: here, devices: {core: 2}, link: bus}]\n"
    )
    (tmp_path / "notes.txt").write_text("nothing of ours\n")
    return tmp_path


def asked(folder, **changes):
    words = {"profile": "six.json", "cluster": "two.yaml", "global_batch_size": "8"}
    words |= {"profile_batch_size": "", "micro_batch_size": "", "mode": "best", **changes}
    return parse_plan_request(home=folder / "home", folder=folder, **words)


def test_clusters_are_named_in_four_ways(folder):
    named = {text: find_cluster(text, folder, folder) for text in ("2, 4", "two.yaml")}
    assert [cluster.sizes for cluster in named.values()] == [(2, 2), (2,)]
    assert find_cluster("2x2", folder, folder).machines == named["2, 4"].machines
    assert find_cluster("2x2,1x3", folder, folder).sizes == (2, 2, 3)
    assert find_cluster("dapple-b", folder, folder) is PRESETS["dapple-b"]
    for text, words in (
        ("", "say where to plan for"),
        ("4,,2", "write machines times devices"),
        ("gone.yaml", "there is no such file"),
        ("dapple-d", "did you mean"),
        ("last", "no run"),
    ):
        with pytest.raises(UsageError, match=words):
            find_cluster(text, folder, folder)


def test_files_near_are_told_by_how_they_begin(folder):
    os.utime(folder / "six.json", (1, 1))
    (folder / "new.json").write_text(write_profile_json(SIX))
    near = find_nearby_files(folder)
    assert near.profiles == ("new.json", "six.json")
    assert near.torchgraphs == ("profiles/graph.txt",)
    assert near.clusters == ("two.yaml",)
    assert find_nearby_files(folder / "gone") == type(near)()


@pytest.mark.parametrize(
    ("typed", "whole"),
    [("si", "six.json"), ("pro", "profiles/"), ("profiles/g", "profiles/graph.txt"), ("x", None)],
)
def test_paths_are_completed(folder, typed, whole):
    assert complete_path(folder, typed) == whole


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"profile": " "}, "choose a profile"),
        ({"global_batch_size": ""}, "give a global batch size"),
        ({"global_batch_size": "0"}, "the global batch size is 0"),
        ({"micro_batch_size": "two"}, "the micro-batch size is two"),
        ({"profile_batch_size": "-1"}, "the profile's batch size is -1"),
    ],
)
def test_what_cannot_be_is_one_sentence(folder, changes, words):
    with pytest.raises(PlannerError, match=words):
        asked(folder, **changes)


@pytest.mark.slow
async def test_a_process_of_its_own_gives_the_same_plan_and_the_same_error(folder):
    request = asked(folder)
    found = await plan_in_process(request)
    assert found.plan == plan(load_profile(request.profile), found.cluster, 8)
    assert [memory.peak for memory in found.memory] == list(found.step.peak_bytes)
    assert {memory.capacity for memory in found.memory} == {4e9}
    with pytest.raises(PlannerError, match="cannot read"):
        await plan_in_process(replace(request, profile=folder / "gone.json"))


async def test_planning_that_is_cancelled_leaves_no_process(folder, monkeypatch):
    started = []
    begin = asyncio.create_subprocess_exec

    async def noted(*words, **pipes):
        started.append(await begin(*words, **pipes))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    task = asyncio.create_task(plan_in_process(asked(folder)))
    while not started:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert started[0].returncode == -9


async def test_a_process_that_breaks_is_told(monkeypatch, folder):
    monkeypatch.setattr(worker_process, "_MODULE", "spbench.planner.no_such_module")
    with pytest.raises(PlannerError, match=r"exit code 1: .*no_such_module"):
        await plan_in_process(asked(folder))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(PlannerError, match="cannot start /no/such/python"):
        await plan_in_process(asked(folder))


def test_memory_is_drawn_against_the_devices_where_that_can_be_seen():
    half = StageMemory(1.0, 3.0, 1.0, 10.0)
    little = StageMemory(0.2, 0.2, 0.1, 10.0)
    assert find_bar_limits([half, little]) == ([10.0, 10.0], True)
    assert find_bar_limits([little, replace(little, fixed=0.1)]) == ([0.5, 0.5], False)
    assert find_bar_limits([half, replace(half, capacity=None)]) == ([5.0, 5.0], False)


def test_a_request_is_what_was_typed(folder):
    request = asked(folder, micro_batch_size=" 2 ", profile_batch_size="4", mode="hpgo")
    assert request == PlanRequest(
        folder / "six.json", "two.yaml", 8, 4, 2, "hpgo", folder / "home", folder
    )
