"""Programs that the commands of `benchmarks` run."""

from __future__ import annotations

import sys

import pytest
from benchmarks.commands import MISSING_STATUS, find_program, run_command


def test_missing_program_ends_the_benchmark_with_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/spbench/benchmarks/allreduce.py"])
    with pytest.raises(SystemExit) as error:
        find_program("no-such-program")
    assert error.value.code == MISSING_STATUS
    assert capsys.readouterr().err.startswith("allreduce: no-such-program is ")


def test_failed_command_ends_the_benchmark_with_both_outputs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as error:
        run_command(["sh", "-c", "echo printed; echo failed >&2; exit 7"])
    assert error.value.code == 1
    assert capsys.readouterr().err.endswith("exit 7\nprinted\nfailed\n")
