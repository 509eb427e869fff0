"""Hosts that should be alike and are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spbench.launch.gpus.facts import Card, HostGpus
from spbench.launch.survey.differences import find_differences
from spbench.launch.survey.facts import Adapter, HostFacts, make_unreachable

H200 = HostGpus(
    tuple(Card("NVIDIA H200", f"0000:{number}a:00.0") for number in range(4)),
    driver="580.82.07",
)
USUAL = {
    "cores": 64,
    "memory_gib": 251.4,
    "gpus": H200,
    "adapters": (Adapter("mlx5_0", "1", "ACTIVE", "400 Gb/sec (4X NDR)"),),
    "mpi": "Open MPI v5.0.11",
    "torch": "2.6.0",
    "torch_cuda": "12.4",
}


def host(number: int, **other: object) -> HostFacts:
    return HostFacts(f"node{number:02}", "ok", **USUAL | other)


def told(*hosts: HostFacts) -> list[tuple[str, str]]:
    found = find_differences(hosts)
    assert {finding.status for finding in found} <= {"note"}
    return [(finding.subject, finding.text) for finding in found]


def test_hosts_that_are_alike():
    assert told() == []
    assert told(host(1)) == []
    # firmware takes a little memory, and adapters may have other names
    renamed = (Adapter("mlx5_7", "1", "ACTIVE", "400 Gb/sec (4X NDR)"),)
    assert told(host(1), host(2, memory_gib=250.9), host(3, adapters=renamed)) == []


@pytest.mark.parametrize(
    ("other", "subject", "text"),
    [
        ({"torch": "2.5.1"}, "torch", "node03 has torch 2.5.1, the others 2.6.0"),
        ({"cores": 32}, "cores", "node03 has 32 cores, the others 64"),
        ({"memory_gib": 125.5}, "memory", "node03 has 126 GiB of memory, the others 251"),
        ({"gpus": HostGpus()}, "devices", "node03 has no GPU, the others 4 x NVIDIA H200"),
        (
            {"gpus": HostGpus(other_files=True, driver=H200.driver)},
            "devices",
            "node03 has a GPU that the kernel does not list, the others 4 x NVIDIA H200",
        ),
        (
            {"adapters": (Adapter("mlx5_0", "1", "ACTIVE", "200 Gb/sec (2X NDR)"),)},
            "adapters",
            "node03 has 1 x 200 Gb/sec (2X NDR), the others 1 x 400 Gb/sec (4X NDR)",
        ),
        (
            {"gpus": replace(H200, driver="535.104.05")},
            "driver",
            "node03 has NVIDIA's driver 535.104.05, the others 580.82.07",
        ),
        (
            {"torch_cuda": "13.0"},
            "torch's build",
            "node03 has a torch built for CUDA 13.0, the others one built for CUDA 12.4",
        ),
        (
            {"torch_cuda": ""},
            "torch's build",
            "node03 has a torch without CUDA, the others one built for CUDA 12.4",
        ),
        (
            {"mpi": "MPICH Version: 4.2"},
            "MPI library",
            "node03 has MPICH Version: 4.2, the others Open MPI v5.0.11",
        ),
    ],
)
def test_a_host_that_differs_is_named(other, subject, text):
    assert told(host(1), host(2), host(3, **other)) == [(subject, text)]


def test_several_that_differ_in_the_same_way_are_one_group():
    hosts = [host(number, torch="2.5") if number in (3, 4) else host(number) for number in range(9)]
    assert told(*hosts) == [("torch", "node[03-04] have torch 2.5, the others 2.6.0")]


def test_several_groups_are_compared_with_what_most_have():
    hosts = [host(1, cores=8), host(2, cores=16), *map(host, range(3, 8))]
    assert told(*hosts) == [
        ("cores", "node01 has 8 cores, most 64"),
        ("cores", "node02 has 16 cores, most 64"),
    ]


def test_where_no_value_is_that_of_most_all_are_told():
    assert told(host(1), host(2, torch="2.5")) == [
        ("torch", "hosts differ: node01 torch 2.6.0; node02 torch 2.5")
    ]


def test_what_a_host_has_not_told_is_no_difference():
    lacking = host(3, torch=None, mpi=None, memory_gib=None, torch_cuda=None)
    assert told(host(1), host(2), lacking, make_unreachable("node04", "no answer")) == []
