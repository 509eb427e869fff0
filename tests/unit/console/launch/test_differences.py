"""Tests of differences between hosts that should be equal."""

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


def make_host(number: int, **other: object) -> HostFacts:
    return HostFacts(f"node{number:02}", "ok", **USUAL | other)


def list_differences(*hosts: HostFacts) -> list[tuple[str, str]]:
    findings = find_differences(hosts)
    assert {finding.status for finding in findings} <= {"note"}
    return [(finding.subject, finding.text) for finding in findings]


def test_equal_hosts_have_no_differences():
    assert list_differences() == []
    assert list_differences(make_host(1)) == []
    # firmware takes a little memory, and adapters may have other names
    renamed = (Adapter("mlx5_7", "1", "ACTIVE", "400 Gb/sec (4X NDR)"),)
    assert (
        list_differences(
            make_host(1), make_host(2, memory_gib=250.9), make_host(3, adapters=renamed)
        )
        == []
    )


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
def test_differing_host_is_reported(other, subject, text):
    assert list_differences(make_host(1), make_host(2), make_host(3, **other)) == [(subject, text)]


def test_hosts_with_the_same_difference_are_grouped():
    hosts = [
        make_host(number, torch="2.5") if number in (3, 4) else make_host(number)
        for number in range(9)
    ]
    assert list_differences(*hosts) == [("torch", "node[03-04] have torch 2.5, the others 2.6.0")]


def test_groups_are_compared_with_the_majority():
    hosts = [make_host(1, cores=8), make_host(2, cores=16), *map(make_host, range(3, 8))]
    assert list_differences(*hosts) == [
        ("cores", "node01 has 8 cores, most 64"),
        ("cores", "node02 has 16 cores, most 64"),
    ]


def test_all_values_are_reported_without_a_majority():
    assert list_differences(make_host(1), make_host(2, torch="2.5")) == [
        ("torch", "hosts differ: node01 torch 2.6.0; node02 torch 2.5")
    ]


def test_unknown_values_are_not_differences():
    lacking = make_host(3, torch=None, mpi=None, memory_gib=None, torch_cuda=None)
    assert (
        list_differences(
            make_host(1), make_host(2), lacking, make_unreachable("node04", "no answer")
        )
        == []
    )
