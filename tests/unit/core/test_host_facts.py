"""Facts about devices, cores and memory, read from files of the kernel."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spbench.launch.gpus.facts import HostGpus
from spbench_core import host_facts


@pytest.fixture
def write_kernel_file(tmp_path, monkeypatch):
    """Return a function that writes simulated files of the kernel."""
    for name in ("GPUS", "DRIVER", "PCI", "DEVICE_FILES", "ADAPTERS", "MEMORY_INFO"):
        monkeypatch.setattr(host_facts, name, tmp_path / name)

    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return write


def test_counts_gpus_by_model(write_kernel_file, messages):
    assert host_facts.describe_device() == "cpu"
    for number, model in enumerate(["NVIDIA H200", "NVIDIA A100", "NVIDIA H200"]):
        text = f"Model: \t\t {model}\nIRQ:   \t\t 0\nGPU UUID: \t GPU-1:2\n"
        write_kernel_file(f"GPUS/0000:0{number}:00.0/information", text)
    write_kernel_file("GPUS/0000:09:00.0/information", "no field\n")
    messages.check(host_facts.describe_device())


def test_reports_the_numa_node_of_each_gpu(write_kernel_file):
    for number, node in enumerate((0, 0, 1, 1)):
        address = f"0000:{number}a:00.0"
        write_kernel_file(
            f"GPUS/{address}/information", f"Model: \t NVIDIA H200\nGPU UUID: \t GPU-{number}\n"
        )
        write_kernel_file(f"PCI/{address}/numa_node", f"{node}\n")
        write_kernel_file(f"PCI/{address}/vendor", "0x10de\n")
        write_kernel_file(f"PCI/{address}/class", "0x030200\n")
        write_kernel_file(f"DEVICE_FILES/nvidia{number}", "")
    for name in ("nvidiactl", "nvidia-uvm", "null"):
        write_kernel_file(f"DEVICE_FILES/{name}", "")
    gpus: dict[str, Any] = host_facts.find_gpus()
    assert [card["node"] for card in gpus["cards"]] == [0, 0, 1, 1]
    assert gpus["cards"][2] == {
        "model": "NVIDIA H200",
        "address": "0000:2a:00.0",
        "node": 1,
        "uuid": "GPU-2",
    }
    assert (gpus["undriven"], gpus["files"], gpus["other_files"]) == ([], 4, False)


def test_an_unknown_numa_node_is_none(write_kernel_file):
    write_kernel_file("GPUS/0000:01:00.0/information", "Model: NVIDIA A2\n")
    write_kernel_file("PCI/0000:01:00.0/numa_node", "-1\n")
    (card,) = host_facts.read_cards()
    assert (card["node"], card["uuid"]) == (None, None)


def test_the_uuid_of_an_unopened_gpu_is_none(write_kernel_file):
    write_kernel_file(
        "GPUS/0000:01:00.0/information",
        "Model: \t\t NVIDIA H200\nIRQ:   \t\t 18\n"
        "GPU UUID: \t GPU-????????-????-????-????-????????????\nVideo BIOS: \t ??.??.??.??.??\n",
    )
    (card,) = host_facts.read_cards()
    assert (card["model"], card["uuid"]) == ("NVIDIA H200", None)
    answer = {**host_facts.find_gpus(), "visible": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"}
    assert HostGpus.from_answer(answer).usable == 1


def test_finds_gpus_without_a_driver_on_the_bus(write_kernel_file):
    for address, vendor, device_class in (
        ("0000:01:00.0", "0x10de", "0x030000"),
        ("0000:02:00.0", "0x10de", "0x030200"),
        ("0000:03:00.0", "0x10de", "0x068000"),  # a switch of NVLink
        ("0000:04:00.0", "0x8086", "0x030000"),
    ):
        write_kernel_file(f"PCI/{address}/vendor", f"{vendor}\n")
        write_kernel_file(f"PCI/{address}/class", f"{device_class}\n")
    gpus = host_facts.find_gpus()
    assert (gpus["cards"], gpus["undriven"]) == ([], ["0000:01:00.0", "0000:02:00.0"])


def test_finds_gpus_of_wsl_by_their_device_file(write_kernel_file, messages):
    write_kernel_file("DEVICE_FILES/dxg", "")
    gpus = host_facts.find_gpus()
    assert (gpus["files"], gpus["other_files"]) == (0, True)
    messages.check(host_facts.describe_device())


def test_counts_device_files_if_the_driver_folder_is_hidden(write_kernel_file, messages):
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        write_kernel_file(f"DEVICE_FILES/{name}", "")
    messages.check(host_facts.describe_device())


@pytest.mark.parametrize("kind", ["", " Open"])
def test_reads_the_version_of_the_driver(write_kernel_file, kind):
    assert host_facts.read_driver_version() is None
    module = f"NVIDIA UNIX{kind} Kernel Module for x86_64  580.82.07  Release Build  (root@)"
    write_kernel_file("DRIVER", f"NVRM version: {module}\nGCC version:  gcc version 12.2.0\n")
    assert host_facts.read_driver_version() == "580.82.07"


class _DriverLibrary:
    """A simulated libcuda that supports a CUDA version, or fails."""

    def __init__(self, cuda=0, status=0):
        self._cuda = cuda
        self._status = status

    def cuDriverGetVersion(self, reference):  # noqa: N802 - the driver's name
        reference._obj.value = self._cuda
        return self._status


def test_reads_the_cuda_version_of_the_driver_library(monkeypatch):
    monkeypatch.setattr(host_facts, "DRIVER_LIBRARY", "libnowhere.so.1")
    assert host_facts.read_driver_cuda() is None
    for library, cuda in ((_DriverLibrary(12040), "12.4"), (_DriverLibrary(13000, 1), None)):
        monkeypatch.setattr(ctypes, "CDLL", lambda _, library=library: library)
        assert host_facts.read_driver_cuda() == cuda


def test_without_ctypes_reports_all_other_facts():
    """The source runs on any host; a Python without libffi has no ctypes."""
    source = Path(host_facts.__file__).read_text()
    prelude = "import sys\nsys.modules['ctypes'] = sys.modules['_ctypes'] = None\n"
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{prelude}{source}\nprint(collect_facts()['cores'], read_driver_cuda())",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.stdout.split()[1:] == ["None"], process.stderr


def test_reports_the_size_of_shared_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(host_facts, "SHARED_MEMORY", tmp_path)
    assert host_facts.find_gpus()["shared_gib"] > 0
    monkeypatch.setattr(host_facts, "SHARED_MEMORY", tmp_path / "none")
    assert host_facts.find_gpus()["shared_gib"] is None


def test_lists_each_port_of_each_adapter(write_kernel_file):
    assert host_facts.list_adapters() == []
    write_kernel_file("ADAPTERS/mlx5_0/ports/1/state", "4: ACTIVE\n")
    write_kernel_file("ADAPTERS/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n")
    write_kernel_file("ADAPTERS/mlx5_1/ports/1/state", "1: DOWN\n")
    write_kernel_file("ADAPTERS/mlx5_1/ports/2/gids/0", "fe80\n")
    assert host_facts.list_adapters() == [
        {"name": "mlx5_0", "port": "1", "state": "ACTIVE", "rate": "400 Gb/sec (4X NDR)"},
        {"name": "mlx5_1", "port": "1", "state": "DOWN", "rate": ""},
        {"name": "mlx5_1", "port": "2", "state": "unknown", "rate": ""},
    ]


def test_reports_memory_in_gib(write_kernel_file):
    assert host_facts.collect_facts()["memory_gib"] is None
    write_kernel_file(
        "MEMORY_INFO", "MemTotal:       263913212 kB\nMemFree: 1 kB\nMemAvailable:   1048576 kB\n"
    )
    facts = host_facts.collect_facts()
    assert (facts["memory_gib"], facts["free_gib"]) == (251.7, 1.0)
