"""Messages between the memories of two ranks' devices."""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]


@pytest.mark.long
def test_each_path_transfers_all_bytes(tmp_path):
    assert run_cases_on_ranks(2, "ping_devices.py", tmp_path) == []
