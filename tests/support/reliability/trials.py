"""Series of trials, the log of their results, and the table of all results."""

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

JOB_END_LIMIT = 15.0
"""The time in s within which a fault that no launcher detects must end its job."""


def run_trial(fault: Fault, testbed: FaultTestbed, folder: Path, seed: int) -> TrialResult:
    """Try a fault once; an exception of the test itself is a result too."""
    trial = Trial(testbed, folder, seed)
    try:
        result = fault.act(trial)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return TrialResult(fault.name, testbed.name, message, -1, 0.0, ["broke"])
    seconds = time.monotonic() - trial.fault_time
    message = find_first_reason(result)
    return TrialResult(
        fault.name,
        testbed.name,
        message,
        result.code,
        round(seconds, 1),
        mismatches=list(_find_mismatches(fault, trial, result, message)),
        run=next((path.name for path in result.home.glob("runs/*")), ""),
    )


def _find_mismatches(fault: Fault, trial: Trial, result: RunResult, message: str) -> Iterable[str]:
    # If a signal kills an isolated controller, its namespace ends with a status, not by a signal.
    if result.code % 256 != fault.code:
        yield f"exit {result.code} in place of {fault.code}"
    words = [word.format(rank=trial.victim, host=trial.host) for word in fault.expected_words]
    yield from (f"{word!r} is not said" for word in words if word not in message)
    victim = f"rank {trial.victim} on {trial.host}"
    if fault.names_victim and not re.match(rf"{re.escape(victim)}\b", message):
        yield f"{victim} is not named first"
    if trial.job_end_seconds is not None and trial.job_end_seconds > JOB_END_LIMIT:
        yield f"the job ended after {trial.job_end_seconds:.1f} s"
    if fault.next_case_passes and list(result.statuses.values())[-1] != "passed":
        yield "the case after it did not pass"
    if "Traceback" in result.stderr:
        yield "a traceback on stderr"


def run_trials(fault: Fault, testbed: FaultTestbed, repeats: int, seed: int) -> list[TrialResult]:
    """Try a fault several times; then look for leftover processes of all trials.

    A trial mostly waits. So two trials run at once, unless they share hosts.
    """
    workers = 1 if testbed.hosts or testbed.slurm else 2
    with tempfile.TemporaryDirectory(prefix="spf", ignore_cleanup_errors=True) as temporary:
        folders = [Path(temporary) / str(number) for number in range(repeats)]
        for folder in folders:
            folder.mkdir()
        with ThreadPoolExecutor(workers) as pool:
            futures = [
                pool.submit(run_trial, fault, testbed, folder, seed + number)
                for number, folder in enumerate(folders)
            ]
            results = [future.result() for future in futures]
        leftover_runs = find_leftover_runs([result.run for result in results if result.run])
    for result in results:
        if result.run in leftover_runs:
            result.mismatches.append("processes are left after 15 s")
    return results


class TrialLog:
    """The results of trials in a file, one per line, so that a command can be resumed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.results = [TrialResult(**json.loads(line)) for line in lines]

    def select(self, fault: str, testbed: str) -> list[TrialResult]:
        """Return the results of a fault on a testbed."""
        key = (fault, testbed)
        return [result for result in self.results if (result.fault, result.testbed) == key]

    def add(self, results: Iterable[TrialResult]) -> None:
        """Append results to the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            for result in results:
                self.results.append(result)
                file.write(result.to_json() + "\n")


def render_table(faults: Sequence[Fault], testbeds: Sequence[str], log: TrialLog) -> str:
    """Return a Markdown table of the results, with a row per fault and testbed."""
    rows = ["| fault | launcher | expected | seen | seconds | right |", "| --- " * 6 + "|"]
    for fault in faults:
        rows += [
            _render_row(fault, testbed, results)
            for testbed in fault.testbeds
            if testbed in testbeds and (results := log.select(fault.name, testbed))
        ]
    return "\n".join(rows) + "\n"


def _render_row(fault: Fault, testbed: str, results: Sequence[TrialResult]) -> str:
    correct = [result for result in results if not result.mismatches]
    expected = ["the victim first"] if fault.names_victim else []
    expected += [f"“{word}”" for word in fault.expected_words]
    expected.append(f"exit {fault.code}")
    if fault.next_case_passes:
        expected.append("the next case passes")
    example = (correct or list(results))[-1]
    message = re.sub(r"\S*/spf\w+/\d+/", "", example.message)  # without the temporary folder
    message = message.replace("|", "\\|").replace("\n", " ")
    if len(message) > 160:
        message = message[:159] + "…"
    median = sorted(result.seconds for result in results)[len(results) // 2]
    cells = [fault.name, testbed, ", ".join(expected), message or "-", f"{median:g}"]
    return f"| {' | '.join(cells)} | {len(correct)} of {len(results)} |"
