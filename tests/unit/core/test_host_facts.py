"""Devices, cores and memory as the kernel tells them."""

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
def kernel(tmp_path, monkeypatch):
    """Writes files of the kernel's."""
    for name in ("GPUS", "DRIVER", "PCI", "DEVICE_FILES", "ADAPTERS", "MEMORY_INFO"):
        monkeypatch.setattr(host_facts, name, tmp_path / name)

    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return write


def test_gpus_are_counted_by_kind(kernel):
    assert host_facts.describe_device() == "cpu"
    for number, model in enumerate(["NVIDIA H200", "NVIDIA A100", "NVIDIA H200"]):
        text = f"Model: \t\t {model}\nIRQ:   \t\t 0\nGPU UUID: \t GPU-1:2\n"
        kernel(f"GPUS/0000:0{number}:00.0/information", text)
    kernel("GPUS/0000:09:00.0/information", "no field\n")
    assert host_facts.describe_device() == "2 x NVIDIA H200, 1 x NVIDIA A100, 1 x GPU"


def test_gpus_of_two_sockets_have_their_nodes(kernel):
    for number, node in enumerate((0, 0, 1, 1)):
        address = f"0000:{number}a:00.0"
        kernel(f"GPUS/{address}/information", f"Model: \t NVIDIA H200\nGPU UUID: \t GPU-{number}\n")
        kernel(f"PCI/{address}/numa_node", f"{node}\n")
        kernel(f"PCI/{address}/vendor", "0x10de\n")
        kernel(f"PCI/{address}/class", "0x030200\n")
        kernel(f"DEVICE_FILES/nvidia{number}", "")
    for name in ("nvidiactl", "nvidia-uvm", "null"):
        kernel(f"DEVICE_FILES/{name}", "")
    found: dict[str, Any] = host_facts.find_gpus()
    assert [card["node"] for card in found["cards"]] == [0, 0, 1, 1]
    assert found["cards"][2] == {
        "model": "NVIDIA H200",
        "address": "0000:2a:00.0",
        "node": 1,
        "uuid": "GPU-2",
    }
    assert (found["undriven"], found["files"], found["other_files"]) == ([], 4, False)


def test_a_node_that_the_kernel_does_not_know(kernel):
    kernel("GPUS/0000:01:00.0/information", "Model: NVIDIA A2\n")
    kernel("PCI/0000:01:00.0/numa_node", "-1\n")
    (card,) = host_facts.read_cards()
    assert (card["node"], card["uuid"]) == (None, None)


def test_a_uuid_is_not_known_before_a_process_has_opened_the_gpu(kernel):
    kernel(
        "GPUS/0000:01:00.0/information",
        "Model: \t\t NVIDIA H200\nIRQ:   \t\t 18\n"
        "GPU UUID: \t GPU-????????-????-????-????-????????????\nVideo BIOS: \t ??.??.??.??.??\n",
    )
    (card,) = host_facts.read_cards()
    assert (card["model"], card["uuid"]) == ("NVIDIA H200", None)
    shown = {**host_facts.find_gpus(), "visible": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"}
    assert HostGpus.from_answer(shown).usable == 1


def test_gpus_without_a_driver_are_seen_on_the_bus(kernel):
    for address, vendor, kind in (
        ("0000:01:00.0", "0x10de", "0x030000"),
        ("0000:02:00.0", "0x10de", "0x030200"),
        ("0000:03:00.0", "0x10de", "0x068000"),  # a switch of NVLink
        ("0000:04:00.0", "0x8086", "0x030000"),
    ):
        kernel(f"PCI/{address}/vendor", f"{vendor}\n")
        kernel(f"PCI/{address}/class", f"{kind}\n")
    found = host_facts.find_gpus()
    assert (found["cards"], found["undriven"]) == ([], ["0000:01:00.0", "0000:02:00.0"])


def test_gpus_of_wsl_have_a_file_of_another_name(kernel):
    kernel("DEVICE_FILES/dxg", "")
    found = host_facts.find_gpus()
    assert (found["files"], found["other_files"]) == (0, True)
    assert host_facts.describe_device() == "a GPU that the kernel does not list"


def test_gpus_of_a_container_that_hides_the_drivers_folder_are_counted_by_their_files(kernel):
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        kernel(f"DEVICE_FILES/{name}", "")
    assert host_facts.describe_device() == "2 x GPU"


@pytest.mark.parametrize("kind", ["", " Open"])
def test_the_version_of_the_driver(kernel, kind):
    assert host_facts.read_driver_version() is None
    module = f"NVIDIA UNIX{kind} Kernel Module for x86_64  580.82.07  Release Build  (root@)"
    kernel("DRIVER", f"NVRM version: {module}\nGCC version:  gcc version 12.2.0\n")
    assert host_facts.read_driver_version() == "580.82.07"


class _DriverLibrary:
    """Stands in for libcuda: takes a CUDA, or fails."""

    def __init__(self, cuda=0, status=0):
        self._cuda = cuda
        self._status = status

    def cuDriverGetVersion(self, reference):  # noqa: N802 - the driver's name
        reference._obj.value = self._cuda
        return self._status


def test_the_cuda_that_the_drivers_library_takes(monkeypatch):
    monkeypatch.setattr(host_facts, "DRIVER_LIBRARY", "libnowhere.so.1")
    assert host_facts.read_driver_cuda() is None
    for library, cuda in ((_DriverLibrary(12040), "12.4"), (_DriverLibrary(13000, 1), None)):
        monkeypatch.setattr(ctypes, "CDLL", lambda _, found=library: found)
        assert host_facts.read_driver_cuda() == cuda


def test_a_python_without_ctypes_tells_the_rest():
    """One that was built where libffi was not there; the text is sent to any Python."""
    text = Path(host_facts.__file__).read_text()
    lacking = "import sys\nsys.modules['ctypes'] = sys.modules['_ctypes'] = None\n"
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{lacking}{text}\nprint(collect_facts()['cores'], read_driver_cuda())",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout.split()[1:] == ["None"], ended.stderr


def test_room_for_ranks_of_nccl(monkeypatch, tmp_path):
    monkeypatch.setattr(host_facts, "SHARED_MEMORY", tmp_path)
    assert host_facts.find_gpus()["shared_gib"] > 0
    monkeypatch.setattr(host_facts, "SHARED_MEMORY", tmp_path / "none")
    assert host_facts.find_gpus()["shared_gib"] is None


def test_each_port_of_each_adapter(kernel):
    assert host_facts.list_adapters() == []
    kernel("ADAPTERS/mlx5_0/ports/1/state", "4: ACTIVE\n")
    kernel("ADAPTERS/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n")
    kernel("ADAPTERS/mlx5_1/ports/1/state", "1: DOWN\n")
    kernel("ADAPTERS/mlx5_1/ports/2/gids/0", "fe80\n")
    assert host_facts.list_adapters() == [
        {"name": "mlx5_0", "port": "1", "state": "ACTIVE", "rate": "400 Gb/sec (4X NDR)"},
        {"name": "mlx5_1", "port": "1", "state": "DOWN", "rate": ""},
        {"name": "mlx5_1", "port": "2", "state": "unknown", "rate": ""},
    ]


def test_memory_in_gib(kernel):
    assert host_facts.collect_facts()["memory_gib"] is None
    kernel(
        "MEMORY_INFO", "MemTotal:       263913212 kB\nMemFree: 1 kB\nMemAvailable:   1048576 kB\n"
    )
    facts = host_facts.collect_facts()
    assert (facts["memory_gib"], facts["free_gib"]) == (251.7, 1.0)
