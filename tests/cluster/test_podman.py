"""Ranks in containers of a real podman.

SPBENCH_TEST_PODMAN_IMAGE names an image with a libc. Python and torch are mounted. To create one:
debootstrap --variant=minbase bookworm R; tar -C R -c . | podman import - localhost/bookworm
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from support.paths import ROOT
from support.runs import RunProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(90)]

SUITE = """
schema: spbench.suite/1
name: boxed
launch:
  python: {python}
  container:
    image: {image}
    runtime: podman
    mounts: {mounts}
    args: {args}
cases:
  - name: link
    benchmark: link.pingpong
    np: 2
    params: {{sizes: [8, 64KiB], iterations: 20}}
"""
LIMITED_ARGS = [
    "--runtime",
    "runc",
    "--ulimit",
    "nofile=10000:10000",
    "--ulimit",
    "nproc=10000:10000",
]


@pytest.fixture(scope="session")
def image() -> str:
    """The name of an image of podman."""
    name = os.environ.get("SPBENCH_TEST_PODMAN_IMAGE")
    if name is None or shutil.which("podman") is None:
        pytest.skip("SPBENCH_TEST_PODMAN_IMAGE names no image, or there is no podman")
    return name


def test_ranks_in_containers_connect_and_leave_no_process(image, tmp_path):
    mounts = {str(Path(path)) for path in (sys.prefix, sys.base_prefix, ROOT)}
    fields = {"mounts": json.dumps(sorted(mounts)), "args": json.dumps(LIMITED_ARGS)}
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE.format(python=sys.executable, image=image, **fields))
    result = RunProcess(str(suite), home=tmp_path / "home").wait()
    assert result.code == 0, result.stdout + result.stderr
    result.assert_no_process_left()
