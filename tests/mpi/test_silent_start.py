"""A start of CUDA that holds Python's global lock, so that no heartbeat is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.runs import run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

SUITE = """\
schema: spbench.suite/1
name: silent-start
launch: {silence_timeout: 5}
cases:
  - {name: gemm, benchmark: compute.gemm, np: 2, params: {n: 32, iterations: 5, device: auto}}
"""
SLOW_DRIVER = """\
# A build of torch for CUDA with a driver that takes 10 s to report that there is no GPU.
import ctypes, importlib.machinery, sys

class SlowDriver:
    def find_spec(self, name, path=None, target=None):
        if name != "spbench_workers.device_choice":
            return None
        sys.meta_path.remove(self)
        import torch
        torch.version.cuda = "13.0"
        calls = []
        def is_available():
            if not calls:
                calls.append(True)
                ctypes.PyDLL(None).sleep(10)  # unlike CDLL it keeps the lock
            return False
        torch.cuda.is_available = is_available
        torch.cuda.device_count = lambda: 0
        return None

sys.meta_path.insert(0, SlowDriver())
"""


@pytest.mark.long
def test_start_of_cuda_does_not_count_as_silence(tmp_path: Path) -> None:
    suite = tmp_path / "silent-start.yaml"
    suite.write_text(SUITE)
    (tmp_path / "sitecustomize.py").write_text(SLOW_DRIVER)
    env = {"PYTHONPATH": str(tmp_path)}
    result = run(str(suite), home=tmp_path / "home", env=env)
    assert result.code == 0, result.stdout + result.stderr
    assert result.seconds > 10
    (choice,) = [e for e in result.events if e["event"] == "choice" and e["name"] == "device"]
    assert "for CUDA 13.0 counts 0 usable GPUs" in choice["reason"]
