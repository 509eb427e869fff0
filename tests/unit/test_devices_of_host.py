"""Devices, cores and memory as the kernel tells them."""

from __future__ import annotations

import pytest

from spbench_workers import devices_of_host


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Writes files of the kernel's."""
    for name in ("GPUS", "ADAPTERS", "MEMORY"):
        monkeypatch.setattr(devices_of_host, name, tmp_path / name)

    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return write


def test_gpus_are_counted_by_kind(kernel):
    assert devices_of_host.describe() == "cpu"
    for number, model in enumerate(["NVIDIA H200", "NVIDIA A100", "NVIDIA H200"]):
        text = f"Model: \t\t {model}\nIRQ:   \t\t 0\nGPU UUID: \t GPU-1:2\n"
        kernel(f"GPUS/0000:0{number}:00.0/information", text)
    kernel("GPUS/0000:09:00.0/information", "no field\n")
    assert devices_of_host.gpus() == ["NVIDIA H200", "NVIDIA A100", "NVIDIA H200", "GPU"]
    assert devices_of_host.describe() == "2 x NVIDIA H200, 1 x NVIDIA A100, 1 x GPU"


def test_each_port_of_each_adapter(kernel):
    assert devices_of_host.adapters() == []
    kernel("ADAPTERS/mlx5_0/ports/1/state", "4: ACTIVE\n")
    kernel("ADAPTERS/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n")
    kernel("ADAPTERS/mlx5_1/ports/1/state", "1: DOWN\n")
    kernel("ADAPTERS/mlx5_1/ports/2/gids/0", "fe80\n")
    assert devices_of_host.adapters() == [
        {"name": "mlx5_0", "port": "1", "state": "ACTIVE", "rate": "400 Gb/sec (4X NDR)"},
        {"name": "mlx5_1", "port": "1", "state": "DOWN", "rate": ""},
        {"name": "mlx5_1", "port": "2", "state": "unknown", "rate": ""},
    ]


def test_memory_in_gib(kernel):
    assert devices_of_host.facts()["memory_gib"] is None
    kernel("MEMORY", "MemTotal:       263913212 kB\nMemFree: 1 kB\nMemAvailable:   1048576 kB\n")
    facts = devices_of_host.facts()
    assert (facts["memory_gib"], facts["free_gib"]) == (251.7, 1.0)
