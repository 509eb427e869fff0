"""The log of benchmarks whose trials take hours: what it keeps when a command was cut short."""

from __future__ import annotations

from pathlib import Path

from benchmarks.trial_log import TrialLog


def test_a_command_goes_on_where_it_was_cut_short(tmp_path: Path) -> None:
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
