"""The fuzzing of all readers: a sample of it, and that it finds what it looks for."""

from contextlib import suppress

import pytest
from benchmarks.fuzz.__main__ import main
from benchmarks.fuzz.targets import TARGETS

from spbench.errors import UsageError


@pytest.mark.slow
def test_a_sample_of_mutations_is_borne(capsys):
    assert main(["--seed", "7", "--mutations", "1000"]) == 0, capsys.readouterr().out


@pytest.mark.slow
def test_a_replay_that_differs_from_its_run_is_found(monkeypatch, capsys):
    monkeypatch.setattr("spbench.engine.job_listener.may_have_controls", lambda text: False)
    assert main(["--only", "protocol", "--mutations", "500"]) == 1
    assert "differs in the replay" in capsys.readouterr().out


def raises(draw, folder):
    raise KeyError("unexpected")


def never_ends(draw, folder):
    while True:
        with suppress(Exception):
            draw.random()


def tells_too_much(draw, folder):
    raise UsageError("x" * 200_000)


def shows_a_defect(draw, folder):
    return "a case: a defect of spbench at state.py:1: KeyError: 'x'"


def shows_pythons_limit(draw, folder):
    raise UsageError("np: Exceeds the limit; use sys.set_int_max_str_digits()")


@pytest.mark.parametrize(
    "broken", [raises, never_ends, tells_too_much, shows_a_defect, shows_pythons_limit]
)
def test_what_a_reader_does_wrong_is_found_and_can_be_repeated(monkeypatch, capsys, broken):
    monkeypatch.setattr("benchmarks.fuzz.__main__.PATIENCE", 0.05)
    monkeypatch.setitem(TARGETS, "suite", (broken, 100))
    assert main(["--seed", "3", "--only", "suite", "--first", "5", "--mutations", "1"]) == 1
    told = capsys.readouterr().out
    assert "python -m benchmarks.fuzz --seed 3 --only suite --first 5 --mutations 1" in told
    assert told.endswith("1 defects\n")
