"""The comparison of a training script with its module says so if it takes long."""

import time

from mpi4py import MPI

from spbench_parallel.validation import against_module


def test_a_long_comparison_is_announced_and_a_short_one_is_not(monkeypatch, capsys):
    with against_module.announced(MPI.COMM_SELF, "Net"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(against_module, "QUIET_SECONDS", 0.01)
    with against_module.announced(MPI.COMM_SELF, "Net"):
        time.sleep(0.2)
    assert "comparing two training steps of Net" in capsys.readouterr().err
