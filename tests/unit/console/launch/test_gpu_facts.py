"""Tests of the GPUs of a host: which ones ranks can use, and messages if none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spbench.launch.gpus.facts import Card, HostGpus, explain_old_driver, explain_unusable
from spbench.launch.gpus.findings import (
    describe_torch,
    find_problems,
    list_gpus,
    make_mpi_memory_finding,
)
from spbench.launch.survey.facts import HostFacts

EIGHT = HostGpus(
    tuple(
        Card("NVIDIA H200", f"0000:{number}a:00.0", number // 4, f"GPU-{number}f")
        for number in range(8)
    ),
    files=8,
    driver="580.82.07",
    cuda="13.0",
    shared_gib=64.0,
)
ONE = replace(EIGHT, cards=EIGHT.cards[:1], files=1)
NONE = HostGpus(shared_gib=1.0)


@pytest.mark.parametrize(
    ("visible", "usable"),
    [
        (None, 8),
        ("0,1", 2),
        (" 0 , 7", 2),
        ("", 0),
        ("-1", 0),
        ("NoDevFiles", 0),
        ("0,8,1", 1),
        ("0,-1,1", 1),
        ("0,0", 0),
        ("GPU-3f", 1),
        ("GPU-3,GPU-4f", 2),
        ("GPU-9f", 0),
        ("MIG-8f", None),
    ],
)
def test_visible_devices_limit_the_usable_gpus(visible, usable):
    assert replace(EIGHT, visible=visible).usable == usable


def test_gpu_without_a_device_file_is_usable():
    assert replace(EIGHT, files=1, visible="1").usable == 1


def test_uuid_may_match_a_gpu_of_unknown_uuid():
    some = (replace(EIGHT.cards[0], uuid=None), *EIGHT.cards[1:])
    assert replace(EIGHT, cards=some, visible="GPU-9f").usable == 1
    assert HostGpus(files=2, visible="GPU-9f").usable == 1


@pytest.mark.parametrize(
    ("gpus", "count"),
    [
        (EIGHT, 8),
        (NONE, 0),
        (replace(EIGHT, files=0), 8),  # the driver creates the files on first use
        (replace(EIGHT, files=1), 8),
        (replace(EIGHT, cards=EIGHT.cards[:1]), 8),
        (HostGpus(files=2), 2),
        (HostGpus(other_files=True), None),
        (HostGpus(files=1, other_files=True), None),
    ],
)
def test_counts_gpus_of_the_driver_and_device_files(gpus, count):
    assert gpus.count == count
    assert gpus.any_present == (count != 0)


def test_unlisted_gpu_is_reported(messages):
    jetson = HostGpus(other_files=True)
    messages.check([finding.text for finding in list_gpus(jetson)])
    messages.check(HostFacts("a", "ok", gpus=jetson).devices)
    message = "a GPU here, torch is a CPU build (2.11.0): no rank uses a GPU"
    assert list_notes(jetson, "") == [("torch", message)]


def test_gpus_without_a_model_are_called_gpu(messages):
    messages.check((HostGpus(files=2).models, EIGHT.models, NONE.models))


@pytest.mark.parametrize(
    ("driver", "cuda", "torch_cuda", "message"),
    [
        ("580.65.06", None, "13.0", None),
        ("580.65.05", None, "13.0", "the driver is 580.65.05, and torch is built for CUDA 13.0, "),
        ("525.60.13", None, "12.8", None),
        ("470.82.01", None, "12.8", "needs driver 525.60.13 or newer"),
        ("450.80.02", None, "11.8", None),
        ("450.51.06", None, "11.8", "needs driver 450.80.02 or newer"),
        # a container brings a newer library of the driver
        ("535.104.05", "13.0", "13.0", None),
        ("550.54.15", "12.4", "12.8", None),
        ("550.54.15", "12.4", "13.0", "driver 550.54.15 takes CUDA up to 12.4, and torch is"),
        (None, "12.4", "13.0", "the driver takes CUDA up to 12.4"),
        (None, None, "13.0", None),
        ("600.10", None, "14.0", None),
    ],
)
def test_driver_too_old_for_torch_is_explained(driver, cuda, torch_cuda, message):
    explanation = explain_old_driver(HostGpus(files=1, driver=driver, cuda=cuda), torch_cuda)
    assert explanation is None if message is None else message in explanation


@pytest.mark.parametrize(
    ("gpus", "torch_cuda", "message"),
    [
        (EIGHT, "13.0", None),
        (EIGHT, None, None),
        (NONE, "13.0", "there is no GPU, neither in /proc/driver/nvidia/gpus nor as /dev/nvidia0"),
        (replace(NONE, undriven=("0000:01:00.0",)), "13.0", "1 on the PCI bus without a driver"),
        (EIGHT, "", "torch 2.11.0 is a build without CUDA"),
        (replace(EIGHT, cuda="12.4"), "13.0", "driver 580.82.07 takes CUDA up to 12.4"),
        (
            replace(EIGHT, visible=""),
            "13.0",
            "CUDA_VISIBLE_DEVICES is '', which shows no GPU; there are 8",
        ),
        (replace(ONE, visible="7"), "13.0", "is '7', which shows no GPU; there is 1"),
        (replace(EIGHT, visible="3"), "13.0", None),
        (HostGpus(other_files=True), "13.0", None),
    ],
)
def test_unusable_gpus_are_explained(gpus, torch_cuda, message):
    explanation = explain_unusable(gpus, "2.11.0", torch_cuda)
    assert explanation is None if message is None else message in explanation


def list_notes(gpus: HostGpus, torch_cuda: str | None = "13.0") -> list[tuple[str, str]]:
    findings = list(find_problems(gpus, "2.11.0", torch_cuda))
    assert {finding.status for finding in findings} <= {"note"}
    assert all(finding.remedy for finding in findings)
    return [(finding.subject, finding.text) for finding in findings]


def test_no_notes_if_all_fits_or_no_gpu_exists():
    assert list_notes(EIGHT) == []
    assert list_notes(EIGHT, None) == []
    assert list_notes(NONE, "") == []


@pytest.mark.parametrize(
    ("gpus", "torch_cuda", "subject", "text"),
    [
        (EIGHT, "", "torch", "8 x NVIDIA H200 here, torch is a CPU build (2.11.0): no rank uses"),
        (replace(EIGHT, cuda="12.2"), "13.0", "driver", "takes CUDA up to 12.2, and torch is"),
        (replace(EIGHT, cuda=None), "13.0", "driver", "libcuda.so.1 cannot be loaded"),
        (replace(EIGHT, visible="1,2"), "13.0", "devices", "is '1,2', which shows 2 of 8 GPUs"),
        (replace(EIGHT, visible=""), "13.0", "devices", "is '', which shows no GPU; there are 8"),
        (replace(EIGHT, shared_gib=0.0625), "13.0", "shared memory", "/dev/shm has 0.06 GiB"),
        (
            replace(NONE, undriven=tuple(f"0000:0{n}:00.0" for n in range(6))),
            "13.0",
            "driver",
            "on the PCI bus (0000:00:00.0, 0000:01:00.0, 0000:02:00.0, 0000:03:00.0 and 2 more)",
        ),
    ],
)
def test_gpu_problem_is_a_note_with_a_fix(gpus, torch_cuda, subject, text):
    ((found_subject, found_text),) = list_notes(gpus, torch_cuda)
    assert found_subject == subject
    assert text in found_text


def test_single_gpu_needs_no_shared_memory():
    single = replace(EIGHT, cards=EIGHT.cards[:1], files=1, shared_gib=0.01)
    assert list_notes(single) == []
    assert "shared memory" not in [finding.subject for finding in list_gpus(single)]


def test_each_gpu_is_listed_with_its_address(messages):
    texts = {finding.subject: finding.text for finding in list_gpus(EIGHT)}
    messages.check(texts["devices"])
    messages.check(texts["GPU 3"])
    messages.check(texts["GPU 4"])
    messages.check(texts["driver"])
    messages.check(texts["shared memory"])
    assert [finding.text for finding in list_gpus(NONE)] == ["cpu"]


@pytest.mark.parametrize(
    ("aware", "route"),
    [
        (True, "by device pointers"),
        (False, "by way of pinned host memory"),
        (None, "not known before ranks start"),
    ],
)
def test_mpi_memory_is_described_with_its_evidence(aware, route):
    finding = make_mpi_memory_finding((aware, "Open MPI: it says so"))
    assert (finding.status, finding.text) == ("ok", f"{route}: Open MPI: it says so")


def test_torch_build_is_described_if_known():
    descriptions = [describe_torch("2.11.0", built) for built in ("13.0", "", None)]
    assert descriptions == ["2.11.0, built for CUDA 13.0", "2.11.0, without CUDA", "2.11.0"]
