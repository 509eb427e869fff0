"""Messages between the memories of two ranks' devices."""

import json
from pathlib import Path

import pytest

from running import on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

PROGRAM = Path(__file__).parent / "programs" / "ping_devices.py"


def test_every_path_brings_every_byte(tmp_path):
    said = tmp_path / "results.json"
    ended = on_ranks(2, str(PROGRAM), str(said), OMPI_MCA_mpi_yield_when_idle="1")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(said.read_text()) == []
