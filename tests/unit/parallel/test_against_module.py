"""The comparison with a module announces itself if it takes long."""

import time

from mpi4py import MPI

from spbench_parallel.validation import module_check


def test_announces_only_a_long_comparison(capsys, messages):
    with module_check.announce(MPI.COMM_SELF, "Net"):
        pass
    assert capsys.readouterr().err == ""
    with module_check.announce(MPI.COMM_SELF, "Net", quiet_seconds=0.01):
        time.sleep(0.2)
    messages.check(capsys.readouterr().err)
