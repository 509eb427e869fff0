"""Messages between the memories of two ranks' devices."""

import pytest

from support.runs import answers_of

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]


@pytest.mark.long
def test_every_path_brings_every_byte(tmp_path):
    assert answers_of(2, "ping_devices.py", tmp_path) == []
