"""Trials of faults one after another, what is known of earlier ones, and the table of all."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.reliability.faults import Fault
from support.reliability.testbeds import FaultTestbed
from support.reliability.trial import Trial, TrialResult, find_first_reason, find_leftover_runs
from support.runs import RunResult

NAMED_WITHIN = 15.0
"""Seconds within which a fault that no launcher notices has to end its job."""


def run_trial(fault: Fault, place: FaultTestbed, folder: Path, seed: int) -> TrialResult:
    """Try a fault once; a harness that is cut short is told as an outcome too."""
    trial = Trial(place, folder, seed)
    try:
        ended = fault.act(trial)
    except Exception as error:
        return TrialResult(
            fault.name, place.name, f"{type(error).__name__}: {error}", -1, 0.0, ["broke"]
        )
    seconds = time.monotonic() - trial.fault_time
    sentence = find_first_reason(ended)
    run = next((path.name for path in ended.home.glob("runs/*")), "")
    wrong = list(_wrong(fault, trial, ended, sentence))
    return TrialResult(fault.name, place.name, sentence, ended.code, round(seconds, 1), wrong, run)


def _wrong(fault: Fault, trial: Trial, ended: RunResult, sentence: str) -> Iterable[str]:
    # A process in a namespace of its own that a signal kills has a status and no signal.
    if ended.code % 256 != fault.code:
        yield f"exit {ended.code} in place of {fault.code}"
    words = [word.format(rank=trial.victim, host=trial.host) for word in fault.expected_words]
    yield from (f"{word!r} is not said" for word in words if word not in sentence)
    if fault.names_victim and not re.match(
        rf"rank {trial.victim} on {re.escape(trial.host)}\b", sentence
    ):
        yield f"rank {trial.victim} on {trial.host} is not named first"
    if trial.job_end_seconds is not None and trial.job_end_seconds > NAMED_WITHIN:
        yield f"the job ended after {trial.job_end_seconds:.1f} s"
    if fault.next_case_passes and list(ended.statuses.values())[-1] != "passed":
        yield "the case after it did not pass"
    if "Traceback" in ended.stderr:
        yield "a traceback on stderr"


def run_trials(fault: Fault, place: FaultTestbed, repeats: int, seed: int) -> list[TrialResult]:
    """Try a fault several times, and look for what all of them have left together.

    Most of a trial is waiting: two go on at once where they do not share hosts.
    """
    at_once = 1 if place.hosts or place.slurm else 2
    with tempfile.TemporaryDirectory(prefix="spf", ignore_cleanup_errors=True) as folder:
        folders = [Path(folder) / str(number) for number in range(repeats)]
        for one in folders:
            one.mkdir()
        with ThreadPoolExecutor(at_once) as pool:
            seeds = range(seed, seed + repeats)
            found = list(
                pool.map(lambda one, seed: run_trial(fault, place, one, seed), folders, seeds)
            )
        left = find_leftover_runs([seen.run for seen in found if seen.run])
    for seen in found:
        if seen.run in left:
            seen.mismatches.append("processes are left after 15 s")
    return found


class TrialLog:
    """The outcomes of trials in a file, a line each, so that a command can be taken up again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.results = [TrialResult(**json.loads(line)) for line in lines]

    def select(self, fault: str, place: str) -> list[TrialResult]:
        """Return the outcomes of a fault at a place."""
        return [seen for seen in self.results if (seen.fault, seen.testbed) == (fault, place)]

    def add(self, found: Iterable[TrialResult]) -> None:
        """Keep outcomes."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            for seen in found:
                self.results.append(seen)
                file.write(seen.to_json() + "\n")


def render_table(faults: Sequence[Fault], places: Sequence[str], log: TrialLog) -> str:
    """Return the table of outcomes as Markdown: a row for each fault and place."""
    rows = ["| fault | launcher | expected | seen | seconds | right |", "| --- " * 6 + "|"]
    for fault in faults:
        tried_at = [place for place in fault.testbeds if place in places]
        outcomes = ((place, log.select(fault.name, place)) for place in tried_at)
        rows += [_row(fault, place, found) for place, found in outcomes if found]
    return "\n".join(rows) + "\n"


def _row(fault: Fault, place: str, found: Sequence[TrialResult]) -> str:
    right = [seen for seen in found if not seen.mismatches]
    shown = (right or list(found))[-1]
    expected = ["the victim first"] if fault.names_victim else []
    expected += [f"“{word}”" for word in fault.expected_words]
    expected += [f"exit {fault.code}"] + (
        ["the next case passes"] if fault.next_case_passes else []
    )
    # without the trial's temporary folder
    sentence = re.sub(r"\S*/spf\w+/\d+/", "", shown.message)
    sentence = sentence.replace("|", "\\|").replace("\n", " ")
    if len(sentence) > 160:
        sentence = sentence[:159] + "…"
    seconds = sorted(seen.seconds for seen in found)[len(found) // 2]
    cells = [fault.name, place, ", ".join(expected), sentence or "-", f"{seconds:g}"]
    return f"| {' | '.join(cells)} | {len(right)} of {len(found)} |"
