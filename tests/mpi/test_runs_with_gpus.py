"""The load of GPUs in a run with ranks, with a stand-in for nvidia-ml-py."""

import json
import os

import pytest

from support.paths import TESTS
from support.runs import run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

SUITE = """\
schema: spbench.suite/1
name: gpus
cases:
  - {name: busy, benchmark: program.run, np: 2, params: {argv: [sleep, "5"]}}
"""
POWER_CAP = 0x4
CALLS_BEFORE_LOSS = 20
"""The number of calls after which the last GPU is lost, in the second reading."""
GPUS = [
    {"bus": 0x18, "reasons": POWER_CAP},
    {"bus": 0x28, "utilization": 0},
    {"bus": 0x38, "utilization": 0, "lost_after": CALLS_BEFORE_LOSS},
]


def test_run_reports_throttled_and_lost_gpus(tmp_path):
    suite = tmp_path / "gpus.yaml"
    suite.write_text(SUITE)
    path = f"{TESTS / 'standins' / 'nvml'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    env = {"PYTHONPATH": path.rstrip(os.pathsep), "STANDIN_GPUS": json.dumps(GPUS)}
    result = run(str(suite), home=tmp_path / "home", env=env)
    result.assert_no_event_missing()
    assert result.statuses == {"busy": "passed"}

    (host,) = result.report["hosts"]
    gpus = {gpu["index"]: gpu for gpu in host["gpus"]}
    assert gpus[0]["throttled"] == {"power cap": 1.0}
    assert gpus[0]["power_limit_w"] == 700.0
    assert [index for index, gpu in gpus.items() if gpu["lost"]] == [2]
    assert host["gpu"]["most"] > 0

    # The program reports no GPU, so that only the busy one counts.
    (gpu,) = result.case("busy")["gpus"]
    assert (gpu["index"], gpu["address"]) == (0, "0000:18:00.0")
    assert gpu["readings"] >= 3
    findings = result.report["run"]["findings"]
    assert any("GPU 2 on " in finding and "lost" in finding for finding in findings)
    assert any("GPU 0 on " in finding and "power cap" in finding for finding in findings)


def test_run_on_a_host_without_gpus_reports_none(tmp_path):
    suite = tmp_path / "gpus.yaml"
    suite.write_text(SUITE.replace('"5"', '"2"'))
    result = run(str(suite), home=tmp_path / "home")
    assert [host["gpus"] for host in result.report["hosts"]] == [[]]
    assert result.case("busy")["gpus"] == []
