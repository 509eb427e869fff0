"""Support of MPI for GPU memory, by versions of libraries and their answers."""

import subprocess
import sys

import pytest

from spbench_parallel.device.mpi_memory import QueryAnswers, classify_library
from spbench_parallel.errors import CannotRunError


def format_mvapich2_version(device, configure):
    """Return the text of MPI_Get_library_version, with its tabs."""
    return (
        "MVAPICH2 Version      :\t2.3.7\n"
        "MVAPICH2 Release date :\tWed March 02 22:00:00 EST 2022\n"
        f"MVAPICH2 Device       :\t{device}\n"
        f"MVAPICH2 configure    :\t--prefix=/opt/mvapich2 {configure}\n"
        "MVAPICH2 CC           :\tgcc    -DNDEBUG -DNVALGRIND -O2\n"
    )


def format_mvapich_version(version, device, configure=""):
    return (
        f"MVAPICH Version:\t{version}\nMVAPICH Release date:\t01 01 2025\n"
        f"MVAPICH Device:\t{device}\nMVAPICH configure:\t{configure}\n"
    )


SOCK = format_mvapich2_version(
    "ch3:sock", "--with-device=ch3:sock --with-pm=mpirun:hydra --disable-rdma-cm"
)
SOCK_WITH_CUDA = format_mvapich2_version(
    "ch3:sock", "--with-device=ch3:sock --enable-cuda --with-cuda=/usr/cuda"
)
RAIL = format_mvapich2_version("ch3:mrail", "--with-device=ch3:mrail --with-rdma=gen2")
RAIL_DISABLE_CUDA = format_mvapich2_version("ch3:mrail", "--disable-cuda --with-device=ch3:mrail")
RAIL_NO_CUDA = format_mvapich2_version("ch3:mrail", "--enable-cuda=no --with-cuda=no")
RAIL_WITH_CUDA = format_mvapich2_version(
    "ch3:mrail", "--disable-mcast --enable-cuda --with-cuda=/usr/local/cuda"
)
RAIL_CUDA_PATH_ONLY = format_mvapich2_version(
    "ch3:mrail", "--with-cuda=/usr/local/cuda --with-rdma=gen2"
)
RAIL_WITH_BASIC = format_mvapich2_version("ch3:mrail", "--enable-cuda=basic --enable-fast=O1")
RAIL_GDR = format_mvapich2_version("ch3:mrail", "").replace(
    "/opt/mvapich2", "/opt/mvapich2/gdr/2.3.7"
)
OPEN_MPI = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11"
MPICH = "MPICH Version:      5.0.2\nMPICH ABI:          18:2:6\nMPICH Device:       ch4:ofi\n"
CRAY = "MPI VERSION    : CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)\n"
INTEL = "Intel(R) MPI Library 2021.18 for Linux* OS"
ON = {"MV2_USE_CUDA": "1"}


@pytest.mark.parametrize(
    ("version", "answers", "environ", "is_supported", "evidence"),
    [
        # The channel decides: ch3:sock reads no such variable, and crashes on a device pointer.
        (SOCK, {}, ON, False, "MVAPICH2: its device is ch3:sock, and ch3:mrail alone takes it"),
        (SOCK_WITH_CUDA, {"cuda": True}, ON, False, "MVAPICH2: its device is ch3:sock, "),
        (
            format_mvapich2_version("ch3:nemesis", ""),
            {},
            ON,
            False,
            "MVAPICH2: its device is ch3:nemesis, ",
        ),
        (RAIL, {}, ON, False, "MVAPICH2: its ch3:mrail was configured without CUDA"),
        (RAIL_DISABLE_CUDA, {}, ON, False, "configured without CUDA"),
        (RAIL_NO_CUDA, {}, ON, False, "configured without CUDA"),
        (RAIL_CUDA_PATH_ONLY, {}, ON, False, "configured without CUDA"),
        (RAIL_WITH_CUDA, {}, ON, True, "ch3:mrail configured with CUDA, and MV2_USE_CUDA=1"),
        (RAIL_WITH_CUDA, {}, {}, False, "MVAPICH2: MV2_USE_CUDA is not set, not 1"),
        (RAIL_WITH_CUDA, {}, {"MV2_USE_CUDA": "0"}, False, "MV2_USE_CUDA is '0', not 1"),
        (RAIL_WITH_CUDA, {"cuda": False}, ON, False, "configured without CUDA"),
        (RAIL_WITH_BASIC, {}, ON, True, "configured with CUDA"),
        (RAIL_GDR, {}, ON, True, "configured with CUDA"),
        (RAIL, {"cuda": True}, ON, True, "configured with CUDA"),
        ("MVAPICH2 Version      :\t2.3.7", {}, ON, False, "its device is not told"),
        # MVAPICH 3 and 4 answer the same calls as MPICH, and their switches have other names.
        (
            format_mvapich_version("4.0", "ch4:ucx"),
            {"gpu": True},
            {},
            True,
            "MPIX_GPU_query_support says yes",
        ),
        (
            format_mvapich_version("4.0", "ch4:ofi"),
            {"gpu": False},
            {},
            False,
            "MPIX_GPU_query_support says no",
        ),
        # mpirun_rsh sets this one, which only ch3:mrail reads.
        (
            format_mvapich_version("3.0", "ch4:ucx"),
            {"gpu": True},
            {"MVP_USE_CUDA": "0"},
            True,
            "says yes",
        ),
        (
            format_mvapich_version("4.0", "ch4:ofi"),
            {"cuda": True},
            {},
            False,
            "has no MPIX_GPU_query_support",
        ),
        (
            format_mvapich_version("4.0", "ch4:ofi"),
            {"gpu": True},
            {"MVP_ENABLE_GPU": "0"},
            False,
            "MVAPICH: MVP_ENABLE_GPU=0",
        ),
        (
            format_mvapich_version("3.0", "ch3:mrail"),
            {"gpu": True},
            {"MVP_USE_CUDA": "1"},
            False,
            "without CUDA",
        ),
        (
            format_mvapich_version("3.0", "ch3:mrail", "--enable-cuda"),
            {},
            {"MVP_USE_CUDA": "1"},
            True,
            "MVAPICH: ch3:mrail configured with CUDA, and MVP_USE_CUDA=1",
        ),
        (
            format_mvapich_version("3.0", "ch3:mrail", "--enable-cuda"),
            {},
            {"MVP_USE_CUDA": "0"},
            False,
            "'0'",
        ),
        (OPEN_MPI, {"cuda": True}, {}, True, "Open MPI: MPIX_Query_cuda_support says yes"),
        (OPEN_MPI, {"cuda": False}, ON, False, "Open MPI: MPIX_Query_cuda_support says no"),
        (OPEN_MPI, {}, {}, False, "Open MPI: it has no MPIX_Query_cuda_support"),
        (OPEN_MPI, {"cuda": True}, {"UCX_TLS": "rc,sm"}, False, "UCX_TLS=rc,sm leaves cuda_copy"),
        (OPEN_MPI, {"cuda": True}, {"UCX_TLS": "^cuda"}, False, "UCX_TLS=^cuda leaves cuda_copy"),
        (OPEN_MPI, {"cuda": True}, {"UCX_TLS": "^cuda_ipc"}, True, "says yes"),
        (OPEN_MPI, {"cuda": True}, {"UCX_TLS": "rc,sm,cuda_copy"}, True, "says yes"),
        (OPEN_MPI, {"cuda": True}, {"UCX_TLS": "all"}, True, "says yes"),
        (MPICH, {"gpu": True}, {}, True, "MPICH: MPIX_GPU_query_support says yes"),
        (MPICH, {"gpu": False, "cuda": False}, {}, False, "MPICH: MPIX_GPU_query_support says no"),
        (MPICH, {}, {}, False, "MPICH: it has no MPIX_GPU_query_support"),
        (CRAY, {"gpu": True}, {}, False, "MPICH_GPU_SUPPORT_ENABLED is not set"),
        (CRAY, {}, {"MPICH_GPU_SUPPORT_ENABLED": "1"}, True, "MPICH_GPU_SUPPORT_ENABLED=1"),
        (CRAY, {"gpu": False}, {"MPICH_GPU_SUPPORT_ENABLED": "1"}, False, "says no"),
        (INTEL, {}, {}, False, "Intel MPI: I_MPI_OFFLOAD is not set, which is off"),
        (INTEL, {"cuda": True}, {"I_MPI_OFFLOAD": "0"}, False, "I_MPI_OFFLOAD is '0'"),
        (INTEL, {}, {"I_MPI_OFFLOAD": "1"}, True, "Intel MPI: I_MPI_OFFLOAD=1"),
        (
            INTEL,
            {},
            {"I_MPI_OFFLOAD": "1", "I_MPI_OFFLOAD_MODE": "level_zero"},
            False,
            "I_MPI_OFFLOAD_MODE=level_zero is not for CUDA",
        ),
        (INTEL.replace("18", "9"), {}, {"I_MPI_OFFLOAD": "1"}, False, "before 2021.11"),
        (
            "Intel(R) MPI Library 2019 Update 9 for Linux* OS",
            {},
            {"I_MPI_OFFLOAD": "1"},
            False,
            "before 2021.11",
        ),
        ("Pigeon MPI 1.0", {"cuda": True, "gpu": True}, {}, False, "the library is not known"),
        ("", {"cuda": True}, {}, False, "the library is not known"),
    ],
)
def test_classifies_a_library_by_evidence(version, answers, environ, is_supported, evidence):
    answer, reason = classify_library(version, QueryAnswers(**answers), environ)
    assert answer is is_supported
    assert evidence in reason
    assert "\n" not in reason


@pytest.mark.parametrize("value", ["0", "1"])
@pytest.mark.parametrize("version", [SOCK, RAIL_WITH_CUDA, OPEN_MPI, MPICH, INTEL, ""])
def test_the_user_overrides_the_detection(version, value):
    answer = classify_library(version, QueryAnswers(), {"SPBENCH_CUDA_AWARE": value})
    assert answer == (value == "1", f"SPBENCH_CUDA_AWARE={value}")


def test_rejects_an_unknown_override(messages):
    with messages.raises(CannotRunError):
        classify_library(OPEN_MPI, QueryAnswers(), {"SPBENCH_CUDA_AWARE": "yes"})


@pytest.mark.parametrize(
    ("version", "environ", "is_supported"),
    [
        (OPEN_MPI, {}, None),
        (MPICH, {}, None),
        (format_mvapich_version("4.0", "ch4:ofi"), {}, None),
        (CRAY, {}, False),
        (INTEL, {"I_MPI_OFFLOAD": "1"}, True),
        (SOCK, ON, False),
        (RAIL_WITH_CUDA, ON, True),
    ],
)
def test_some_libraries_answer_only_after_mpi_starts(version, environ, is_supported):
    answer, reason = classify_library(version, QueryAnswers(started=False), environ)
    assert answer is is_supported
    assert ("tells after MPI_Init alone" in reason) == (is_supported is None)


@pytest.mark.parametrize(
    ("version", "switch"),
    [
        (RAIL_WITH_CUDA, "MV2_USE_CUDA"),
        (format_mvapich_version("3.0", "ch3:mrail", "--enable-cuda"), "MVP_USE_CUDA"),
    ],
)
def test_the_switch_may_be_missing_before_mpi_starts(version, switch):
    answer, reason = classify_library(version, QueryAnswers(started=False), {})
    assert answer is None
    assert (
        f"by device pointers under mpirun_rsh, which sets {switch}=1 where it sees a GPU" in reason
    )
    assert "under other launchers by way of pinned host memory" in reason
    # A variable that is set counts already; a started rank without it will not get one.
    assert classify_library(version, QueryAnswers(started=False), {switch: "1"})[0] is True
    assert classify_library(version, QueryAnswers(started=False), {switch: "0"})[0] is False
    assert classify_library(version, QueryAnswers(), {})[0] is False


BEFORE_INIT = """
import json, sys
import mpi4py
mpi4py.rc.initialize = mpi4py.rc.finalize = False
from spbench_parallel.device.mpi_memory import detect_cuda_awareness
awareness = detect_cuda_awareness(started=False, environ={})
print(json.dumps([awareness, "torch" in sys.modules]))
"""


def test_detects_support_before_mpi_without_torch(messages):
    pytest.importorskip("mpi4py")
    completed = subprocess.run(
        [sys.executable, "-c", BEFORE_INIT], capture_output=True, text=True, timeout=60, check=False
    )
    assert completed.returncode == 0, completed.stderr
    messages.check(completed.stdout)
    assert completed.stdout.strip().endswith(", false]")
