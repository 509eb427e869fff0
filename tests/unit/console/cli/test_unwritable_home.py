"""Tests of a home that cannot record a run."""

import json

import pytest


@pytest.mark.slow
def test_run_exits_with_3_and_writes_its_report(spbench, tmp_path):
    pytest.importorskip("mpi4py")
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        "schema: spbench.suite/1\nname: s\ncases: [{name: a, benchmark: program.run, "
        "np: 1, params: {argv: ['true']}}]\n"
    )
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "home"
    report = tmp_path / "report.json"
    done = spbench("run", str(suite), "--headless", "--home", str(home), "--json", str(report))
    assert done.status == 3
    assert f"cannot write {home}" in done.error_line
    assert "choose another folder by --home" in done.error_line
    assert json.loads(report.read_text())["run"]["exit_code"] == 3
