"""The fuzzing of all readers: a sample, and detection of planted defects."""

from contextlib import suppress

import pytest
from benchmarks.fuzz.__main__ import main
from benchmarks.fuzz.targets import TARGETS

from spbench.errors import UsageError


@pytest.mark.slow
def test_readers_survive_a_sample_of_mutations(capsys):
    assert main(["--seed", "7", "--mutations", "1000"]) == 0, capsys.readouterr().out


@pytest.mark.slow
def test_finds_a_replay_that_differs_from_its_run(monkeypatch, capsys):
    monkeypatch.setattr("spbench.engine.job_listener.may_have_controls", lambda text: False)
    assert main(["--only", "protocol", "--mutations", "500"]) == 1
    assert "differs in the replay" in capsys.readouterr().out


def raise_unexpected(draw, folder):
    raise KeyError("unexpected")


def run_forever(draw, folder):
    while True:
        with suppress(Exception):
            draw.random()


def report_too_much(draw, folder):
    raise UsageError("x" * 200_000)


def report_defect(draw, folder):
    return "a case: a defect of spbench at state.py:1: KeyError: 'x'"


def report_limit_of_python(draw, folder):
    raise UsageError("np: Exceeds the limit; use sys.set_int_max_str_digits()")


@pytest.mark.parametrize(
    "target",
    [raise_unexpected, run_forever, report_too_much, report_defect, report_limit_of_python],
)
def test_finds_defects_with_a_command_to_repeat_them(monkeypatch, capsys, target):
    monkeypatch.setitem(TARGETS, "suite", (target, 100))
    arguments = ["--seed", "3", "--only", "suite", "--first", "5", "--mutations", "1"]
    assert main(arguments, max_seconds=0.05) == 1
    stdout = capsys.readouterr().out
    assert "python -m benchmarks.fuzz --seed 3 --only suite --first 5 --mutations 1" in stdout
    assert stdout.endswith("1 defects\n")
