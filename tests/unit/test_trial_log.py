"""The log of long benchmarks: trials that are kept after an interruption."""

from __future__ import annotations

from pathlib import Path

from benchmarks.trial_log import TrialLog


def test_keeps_complete_trials_of_an_interrupted_command(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "log.jsonl"
    for number in range(2):
        TrialLog(path).add({"factor": 1.1, "number": number})
    with path.open("a") as file:
        file.write('{"factor": 1.')
    log = TrialLog(path)
    log.add({"factor": 1.2, "number": 2})
    assert TrialLog(path).lines == log.lines
    assert [line["number"] for line in log.select(factor=1.1)] == [0, 1]
    assert TrialLog(path, restart=True).lines == []
