"""Ranks whose lines a relay carries: `launch.fan_in: node`."""

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


def relays(run: str) -> list[int]:
    return [
        pid for pid in find_processes(run) if b"relay" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_a_relay_that_dies_is_named_and_the_next_job_has_its_own(tmp_path: Path) -> None:
    words = ("--set", "launch.fan_in=node")
    running = RunProcess(LONG, *words, home=tmp_path / "home").wait_for_timing()
    (relay,) = relays(running.folder.name)
    os.kill(relay, signal.SIGKILL)
    ended = running.wait()
    assert ended.code == 4, ended.stderr
    assert ended.statuses == {"long": "error", "after": "passed"}
    assert ended.case("long")["reason"].startswith(f"the relay of {socket.gethostname()} ended")
    ended.assert_no_process_left()
    ended.assert_no_event_missing()
