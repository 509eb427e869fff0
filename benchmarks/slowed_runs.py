"""Real slowdowns: the share of trials in which compare detects them.

    python -m benchmarks.slowed_runs [--benchmark compute.gemm] [--factors 1.1] [--trials 100]
    python -m benchmarks.slowed_runs --controls [--sample]

Each trial launches a case unchanged (A) and with the fault `slow=FACTOR` (B), which makes its
iterations really slower by that factor. The launches are interleaved: A B A B, each a separate job,
5 per side. Then compare judges B against A, without earlier runs. With a factor of 1 no fault is
planted, and the share of false verdicts is measured. With several factors, the smallest one that is
detected in 80 % is printed. Outcomes are kept in --log, so that an interrupted command continues;
--again starts from the beginning. A trial takes about 20 s on two cores, and about 50 s with
--iterations 600 of compute.gemm.

`--controls` measures the assumptions of `--fail-on worse`, with two ranks of a ping-pong: a factor
of 10 with one launch per side, a factor of 2 with four, and pairs of one launch without a slowdown.
No launch is in two pairs. Each pair is judged twice: without a history, and with the plain launches
of the pairs before it as recorded runs. Pairs of a noisy case are repeated and counted, since one
launch of a noisy case is never judged. Bounds are those of Clopper and Pearson (1934), one-sided,
95 %. Ends with 1 if a slowdown is missed, or an unchanged pair is called worse. `--sample` runs a
few short pairs without a log, and ignores noisy ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.goals import make_argument_parser
from benchmarks.rates import upper_bound
from benchmarks.trial_log import Line, TrialLog

from spbench.record.runs.folder import list_runs
from spbench.report.comparison.compare import compare
from spbench.report.comparison.conditions import PastLaunches, no_past_launches
from spbench.report.comparison.deciding_factor import MIN_RECORDED_LAUNCHES
from spbench.report.comparison.model import HEADLINE, OUTCOMES, MetricRow
from spbench.report.gate.check import POWER
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun, load_run
from spbench.report.text_tables import align_columns

SPBENCH = str(Path(sys.executable).parent / "spbench")
SIDES = ("plain", "slowed")


@dataclass(frozen=True, slots=True)
class Control:
    """Pairs of a known slowdown; a factor of 1 means no slowdown."""

    factor: float
    launches: int
    pairs: int

    @property
    def name(self) -> str:
        """The text for the control."""
        slowdown = "unchanged" if self.factor == 1 else f"{self.factor:g} times slower"
        return f"{slowdown}, {self.launches} per side"

    def met(self, worse: int, judged: int) -> bool:
        """Return whether the number of pairs that were called worse is as expected."""
        return worse == (0 if self.factor == 1 else judged)


CONTROLS = (Control(10, 1, 50), Control(2, 4, 50), Control(1, 1, 200))
SAMPLE = (Control(10, 1, 2), Control(2, 4, 1), Control(1, 1, 2))
MAX_PAIRS_FACTOR = 2
"""Maximum of measured pairs per required pair; with more, the machine is too noisy."""
LAUNCHES_PER_RUN = 20
"""Launches per side of one run. It has several pairs, because one run starts faster than many."""
PING_PONG: Line = {"benchmark": "link.pingpong", "ranks": 2, "iterations": 300, "sizes": ["64KiB"]}
SHORT: Line = PING_PONG | {"iterations": 50}
"""The ping-pong of a sample. Its slowed ranks may share their cores with other work."""


def main() -> int:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--benchmark", default="compute.gemm")
    parser.add_argument("--factors", default="1.1", help="as 1,1.05,1.1,1.2")
    parser.add_argument("--trials", type=int, default=100, help="of each factor")
    parser.add_argument("--launches", type=int, default=5, help="a side")
    parser.add_argument("--iterations", type=int, help="of a launch (default: the benchmark's)")
    parser.add_argument("--ranks", type=int, default=1, help="of which the last is slow")
    parser.add_argument("--controls", action="store_true", help="check what a gate relies on")
    parser.add_argument("--sample", action="store_true", help="only a few pairs of the controls")
    parser.add_argument("--log", type=Path, default=Path(".spbench/slowed-runs.jsonl"))
    parser.add_argument("--again", action="store_true", help="forget earlier outcomes")
    options = parser.parse_args()
    if options.sample:
        with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
            return _check_controls(SAMPLE, TrialLog(Path(folder) / "log.jsonl"), sample=True)
    log = TrialLog(options.log, restart=options.again)
    if options.controls:
        return _check_controls(CONTROLS, log, sample=False)
    factors = sorted(map(float, options.factors.split(",")))
    settings = {
        "benchmark": options.benchmark,
        "launches": options.launches,
        "ranks": options.ranks,
        "iterations": options.iterations,
    }
    for turn in range(options.trials):  # interleaved, so that drift affects all factors
        for factor in factors:
            if len(log.select(**settings, factor=factor)) <= turn:
                log.add(_run_trial(settings, factor))
                _print_trial(log.lines[-1], turn)
    lines_by_factor = {factor: log.select(**settings, factor=factor) for factor in factors}
    iterations = f" of {options.iterations} iterations" if options.iterations else ""
    launches = f"{options.launches} launches{iterations} a side"
    print(f"\n{options.benchmark} on {options.ranks} ranks, {launches}")
    print("\n".join(_format_table(lines_by_factor)))
    print(_format_smallest(lines_by_factor))
    return 0


def _run_trial(settings: Line, factor: float) -> Line:
    """Launch both sides interleaved, and judge the slowed one."""
    sides = _measure(settings, factor, settings["launches"])
    row = _compare_sides(*sides)
    if row.outcome is None:
        sys.exit(f"slowed_runs: the two sides cannot be judged: {row.reason}")
    estimator = "fastest" if row.by_fastest else "medians"
    outcome = {
        "outcome": row.outcome,
        "ratio": row.ratio,
        "interval": row.interval,
        "by": estimator,
    }
    return {**settings, "factor": factor, **outcome}


def _compare_sides(
    a: RecordedRun, b: RecordedRun, history: PastLaunches = no_past_launches
) -> MetricRow:
    (row,) = (row for row in compare(a, b, history).rows if row.metric == HEADLINE)
    return row


def _measure(settings: Line, factor: float, launches: int) -> tuple[RecordedRun, RecordedRun]:
    """Return both sides from interleaved launches; their case has the same name."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        run = _run_suite(Path(folder), settings, factor, launches)
    a, b = (_select_side(run, name) for name in SIDES)
    return a, b


def _run_suite(home: Path, settings: Line, factor: float, launches: int) -> RecordedRun:
    case = {"benchmark": settings["benchmark"], "np": settings["ranks"], "repeat": launches}
    case["params"] = {
        name: settings[name] for name in ("iterations", "sizes") if settings.get(name)
    }
    # Different launch settings make the two cases separate jobs.
    cases = [{"name": name, **case, "launch": {"env": {"SIDE": name}}} for name in SIDES]
    suite = home / "slowed.yaml"
    suite.write_text(json.dumps({"schema": "spbench.suite/1", "name": "slowed", "cases": cases}))
    command = [SPBENCH, "run", str(suite), "--headless", "--quiet", "--home", str(home)]
    if factor > 1:
        command += ["--inject", f"slow={factor:g}@{SIDES[1]}"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode != int(factor > 1):  # a planted fault always fails the run
        sys.exit(
            f"slowed_runs: {' '.join(command)}: exit {completed.returncode}\n"
            f"{completed.stdout}{completed.stderr}"
        )
    (folder,) = list_runs(home)
    return load_run(folder)


def _select_side(run: RecordedRun, name: str) -> RecordedRun:
    """Return a run with only one side; its case has the name "both"."""
    return replace(run, cases={"both": run.cases[name].model_copy(update={"id": "both"})})


# Controls


def _check_controls(controls: Sequence[Control], log: TrialLog, *, sample: bool) -> int:
    """Measure the pairs that the log misses, print a table, and return the exit code."""
    settings, max_factor = (SHORT, 1) if sample else (PING_PONG, MAX_PAIRS_FACTOR)
    rows = [("control", "history", "pairs", "noisy", "worse", "better", "95 % bound", "")]
    failed = False
    for control in controls:
        lines = _measure_pairs(control, log, settings, max_factor * control.pairs)
        quiet = [line for line in lines if not line["noisy"]][: control.pairs]
        enough = sample or len(quiet) == control.pairs
        for history in ("without", "with"):
            outcomes = [line[history] for line in quiet if line[history] is not None]
            counts = Counter(outcomes)
            met = enough and control.met(counts["worse"], len(outcomes))
            failed |= not met
            result = "met" if met else "NOT met"
            rows.append(
                (
                    *(control.name, history, str(len(outcomes)), str(len(lines) - len(quiet))),
                    *(str(counts["worse"]), str(counts["better"])),
                    _format_bound(control, counts["worse"], len(outcomes)),
                    result if outcomes else "nothing judged",
                )
            )
    print("\n".join(align_columns(rows, {2, 3, 4, 5})))
    return int(failed)


def _measure_pairs(control: Control, log: TrialLog, settings: Line, limit: int) -> list[Line]:
    """Measure pairs until a control has enough quiet ones or ``limit``; return all."""
    key = {**settings, "control": control.name}
    while True:
        lines = log.select(**key)
        quiet = sum(not line["noisy"] for line in lines)
        if quiet >= control.pairs or len(lines) >= limit:
            return lines
        pairs = min(control.pairs - quiet, LAUNCHES_PER_RUN // control.launches)
        started = time.monotonic()
        sides = _measure(settings, control.factor, pairs * control.launches)
        for a, b in zip(*(_split_launches(side, control.launches) for side in sides), strict=True):
            log.add(key | _judge_pair(a, b, [line["plain"] for line in lines]))
        launch_seconds = (time.monotonic() - started) / (2 * pairs * control.launches)
        print(
            f"{control.name}: {len(log.select(**key))} pairs, {launch_seconds:.2f} s per launch",
            flush=True,
        )


def _split_launches(side: RecordedRun, launches: int) -> Iterator[RecordedRun]:
    """Yield the launches of a side in parts of ``launches``, each as a run."""
    case = side.cases["both"]
    medians = case.medians[HEADLINE]
    for start in range(0, len(medians), launches):
        part = slice(start, start + launches)
        yield replace(
            side, cases={"both": _select_launches(case, medians[part], case.fastest[part])}
        )


def _select_launches(case: CasePart, medians: list[float], fastest: list[float]) -> CasePart:
    changes = {"medians": {HEADLINE: medians}, "fastest": fastest}
    metrics = {HEADLINE: case.metrics[HEADLINE].model_copy(update={"value": median(medians)})}
    return case.model_copy(update=changes | {"metrics": metrics})


def _judge_pair(a: RecordedRun, b: RecordedRun, earlier: list[list[float]]) -> Line:
    """Return a pair's line of the log, judged without a history and with earlier runs."""
    noisy = any(side.cases["both"].noisy for side in (a, b))
    without = _compare_sides(a, b)
    outcome_with_history = None
    if sum(map(len, earlier)) >= MIN_RECORDED_LAUNCHES:
        outcome_with_history = _compare_sides(a, b, lambda case, metric: earlier).outcome
    plain = a.cases["both"].medians[HEADLINE]
    line = {"noisy": noisy, "ratio": without.ratio, "plain": plain}
    return line | {"without": without.outcome, "with": outcome_with_history}


def _format_bound(control: Control, worse: int, pairs: int) -> str:
    if control.factor == 1:
        return f"called worse: at most {100 * upper_bound(worse, pairs):.2f} %"
    return f"found: at least {100 * (1 - upper_bound(pairs - worse, pairs)):.2f} %"


# Tables


def _print_trial(line: Line, turn: int) -> None:
    print(f"{turn + 1:3}  {line['factor']:g}: {line['outcome']}, {line['ratio']:.3f}x", flush=True)


def _format_table(lines_by_factor: dict[float, list[Line]]) -> list[str]:
    outcomes = OUTCOMES[:-1]
    rows = [("factor", "trials", "median ratio", *outcomes)]
    for factor, lines in lines_by_factor.items():
        counts = Counter(line["outcome"] for line in lines)
        ratio = f"{median(line['ratio'] for line in lines):.3f}"
        counts_of_outcomes = (str(counts[outcome]) for outcome in outcomes)
        rows.append((f"{factor:g}", str(len(lines)), ratio, *counts_of_outcomes))
    return align_columns(rows, set(range(len(rows[0]))))


def _format_smallest(lines_by_factor: dict[float, list[Line]]) -> str:
    detected = [
        factor
        for factor, lines in lines_by_factor.items()
        if factor > 1 and _detected_share(lines) >= POWER
    ]
    if detected:
        return f"The smallest slowdown that is found in {100 * POWER:.0f} %: {min(detected):g}."
    return f"No slowdown is found in {100 * POWER:.0f} %."


def _detected_share(lines: Sequence[Line]) -> float:
    return [line["outcome"] for line in lines].count("worse") / len(lines)


if __name__ == "__main__":
    sys.exit(main())
