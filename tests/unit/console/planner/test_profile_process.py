"""Measuring profiles in a separate process."""

import pytest

from spbench.planner.errors import PlannerError
from spbench.planner.profile_process import measure_profile


def replace_program(monkeypatch, tmp_path, text):
    """Let a script with this text measure instead of spbench."""
    script = tmp_path / "program"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(script))


async def test_returns_the_path_of_the_profile(monkeypatch, tmp_path):
    replace_program(monkeypatch, tmp_path, 'echo "$@" > arguments')
    path = await measure_profile("resnet-11", tmp_path, tmp_path / "home")
    assert path == "profiles/resnet-11.json"
    assert (tmp_path / "profiles").is_dir()
    arguments = (tmp_path / "arguments").read_text()
    assert "spbench profile resnet --set depth=11 --output profiles/resnet-11.json" in arguments


async def test_reports_the_error_of_the_process(monkeypatch, tmp_path):
    replace_program(monkeypatch, tmp_path, "echo 'error: no torch' >&2; exit 3")
    with pytest.raises(PlannerError, match="exit code 3: no torch"):
        await measure_profile("resnet-11", tmp_path, tmp_path / "home")
