"""Ranks that send their events through a relay: `launch.fan_in: node`."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from spbench.engine.processes import find_processes
from support.paths import TEST_SUITES
from support.runs import RunProcess

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

LONG = str(TEST_SUITES / "long.yaml")


def find_relays(run_id: str) -> list[int]:
    return [
        pid
        for pid in find_processes(run_id)
        if b"relay" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_dead_relay_is_named_and_the_next_job_has_its_own(tmp_path: Path) -> None:
    options = ("--set", "launch.fan_in=node")
    run = RunProcess(LONG, *options, home=tmp_path / "home").wait_for_timing()
    (relay,) = find_relays(run.folder.name)
    os.kill(relay, signal.SIGKILL)
    result = run.wait()
    assert result.code == 4, result.stderr
    assert result.statuses == {"long": "error", "after": "passed"}
    assert result.case("long")["reason"].startswith(f"the relay of {socket.gethostname()} ended")
    result.assert_no_process_left()
    result.assert_no_event_missing()
