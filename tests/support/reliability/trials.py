"""Series of trials, the log of their results, and the table of all results."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from benchmarks.trial_log import TrialLog

from support.reliability.faults import Fault
from support.reliability.testbeds import FaultTestbed
from support.reliability.trial import FaultTrial, TrialResult, find_first_reason, find_leftover_runs
from support.runs import RunResult

JOB_END_LIMIT = 15.0
"""The time in s within which a fault that no launcher detects must end its job."""


def run_trial(fault: Fault, testbed: FaultTestbed, folder: Path, seed: int) -> TrialResult:
    """Try a fault once; an exception of the trial itself is a result, too."""
    trial = FaultTrial(testbed, folder, seed)
    try:
        result = fault.act(trial)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return TrialResult(fault.name, testbed.name, message, -1, 0.0, ["the trial raised"])
    seconds = time.monotonic() - trial.fault_time
    message = find_first_reason(result)
    return TrialResult(
        fault.name,
        testbed.name,
        message,
        result.code,
        round(seconds, 1),
        mismatches=list(_find_mismatches(fault, trial, result, message)),
        runs=sorted(path.name for path in result.home.glob("runs/*")),
    )


def _find_mismatches(
    fault: Fault, trial: FaultTrial, result: RunResult, message: str
) -> Iterable[str]:
    # If a signal kills an isolated controller, its namespace ends with a status, not by a signal.
    if result.code % 256 != fault.code:
        yield f"exit {result.code} instead of {fault.code}"
    for word in fault.expected_words:
        expected = word.format(rank=trial.victim, host=trial.host)
        if expected not in message:
            yield f"{expected!r} is not in the message"
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
        leftover_runs = set(find_leftover_runs([run for result in results for run in result.runs]))
    for result in results:
        if leftover_runs.intersection(result.runs):
            result.mismatches.append("processes are left after 15 s")
    return results


class TrialResultLog:
    """The results of trials in a file, one per line, so that a command can be resumed."""

    def __init__(self, path: Path) -> None:
        self._log = TrialLog(path)
        self.results = [TrialResult(**line) for line in self._log.lines]

    def select(self, fault: str, testbed: str) -> list[TrialResult]:
        """Return the results of a fault on a testbed."""
        key = (fault, testbed)
        return [result for result in self.results if (result.fault, result.testbed) == key]

    def add(self, results: Iterable[TrialResult]) -> None:
        """Append results to the file."""
        for result in results:
            self._log.add(asdict(result))
            self.results.append(result)


def render_table(faults: Sequence[Fault], testbeds: Sequence[str], log: TrialResultLog) -> str:
    """Return a Markdown table of the results, with a row per fault and testbed."""
    rows = ["| fault | launcher | expected | message | seconds | passed |", "| --- " * 6 + "|"]
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
