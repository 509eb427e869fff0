"""Slowdowns that are really there: in how many trials compare finds them.

    python -m benchmarks.slowed_runs [--benchmark compute.gemm] [--factors 1.1] [--trials 100]
    python -m benchmarks.slowed_runs --controls [--sample]

Each trial launches a case as it is and the same case with the fault `slow=FACTOR`, whose iterations
really take so many times as long, by turns: A B A B, each launch a job of its own, 5 a side. Then
compare judges B against A, without earlier runs. A factor of 1 plants nothing: how often is that
called better or worse? With several factors the smallest that is found in 80 % is named.
Outcomes are kept in --log, so that a command that was cut short goes on; --again begins anew. A
trial takes some 20 s on two cores, with --iterations 600 of compute.gemm some 50 s.

`--controls` measures what `--fail-on worse` relies on, with two ranks of a ping-pong: a factor of
10 with one launch per side, a factor of 2 with four, and pairs of one launch without a slowdown. No
launch is in two pairs. Each pair is judged twice: without a history, and with the plain launches of
the pairs before it as recorded runs. Pairs of a noisy case are repeated and counted, since one
launch of a noisy case is never judged. Bounds are those of Clopper and Pearson (1934), one-sided,
95 %. Ends with 1 if a slowdown is missed, or an unchanged pair is called worse. `--sample` takes a
few short pairs without a log, and passes over noisy ones.
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

from benchmarks.goals import argument_parser
from benchmarks.rates import upper_bound
from benchmarks.trial_log import Line, TrialLog

from spbench.record.runs.folder import list_runs
from spbench.report.comparison.compare import compare
from spbench.report.comparison.deciding_factor import LEAST_RECORDED
from spbench.report.comparison.model import HEADLINE, OUTCOMES, MetricRow
from spbench.report.comparison.past import PastLaunches, no_past_launches
from spbench.report.gate.check import POWER
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun, load_run
from spbench.report.text_tables import align_columns

SPBENCH = str(Path(sys.executable).parent / "spbench")
SIDES = ("plain", "slowed")


@dataclass(frozen=True, slots=True)
class Control:
    """Pairs of a known slowdown; a factor of 1 is none."""

    factor: float
    launches: int
    pairs: int

    @property
    def name(self) -> str:
        """The control in words."""
        slowdown = "unchanged" if self.factor == 1 else f"{self.factor:g} times slower"
        return f"{slowdown}, {self.launches} per side"

    def met(self, worse: int, judged: int) -> bool:
        """Return whether the number of pairs that were called worse is as it must be."""
        return worse == (0 if self.factor == 1 else judged)


CONTROLS = (Control(10, 1, 50), Control(2, 4, 50), Control(1, 1, 200))
SAMPLE = (Control(10, 1, 2), Control(2, 4, 1), Control(1, 1, 2))
MOST_NOISY = 2
"""Measured pairs per wanted pair, at most; with more the machine is too noisy."""
LAUNCHES_PER_RUN = 20
"""The launches per side of one run, which has several pairs: it starts more quickly than many."""
PING_PONG: Line = {"benchmark": "link.pingpong", "ranks": 2, "iterations": 300, "sizes": ["64KiB"]}
SHORT: Line = PING_PONG | {"iterations": 50}
"""The ping-pong of a sample, whose slowed ranks may share their cores with other work."""


def main() -> int:
    parser = argument_parser(__doc__)
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
    words = parser.parse_args()
    if words.sample:
        with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
            return _check_controls(SAMPLE, TrialLog(Path(folder) / "log.jsonl"), sample=True)
    log = TrialLog(words.log, again=words.again)
    if words.controls:
        return _check_controls(CONTROLS, log, sample=False)
    factors = sorted(map(float, words.factors.split(",")))
    about = {"benchmark": words.benchmark, "launches": words.launches, "ranks": words.ranks}
    about["iterations"] = words.iterations
    for turn in range(words.trials):  # by turns, so that drift meets all factors alike
        for factor in factors:
            if len(log.of(**about, factor=factor)) <= turn:
                log.add(_tried(about, factor))
                _tell(log.lines[-1], turn)
    found = {factor: log.of(**about, factor=factor) for factor in factors}
    of = f" of {words.iterations} iterations" if words.iterations else ""
    print(f"\n{words.benchmark} on {words.ranks} ranks, {words.launches} launches{of} a side")
    print("\n".join(_table(found)))
    print(_smallest(found))
    return 0


def _tried(about: Line, factor: float) -> Line:
    """Launch both sides by turns, and judge the slowed one."""
    sides = _measure(about, factor, about["launches"])
    row = _judge(*sides)
    if row.outcome is None:
        sys.exit(f"slowed_runs: the two sides cannot be judged: {row.reason}")
    by = "fastest" if row.by_fastest else "medians"
    result = {"outcome": row.outcome, "ratio": row.ratio, "interval": row.interval, "by": by}
    return {**about, "factor": factor, **result}


def _judge(a: RecordedRun, b: RecordedRun, past: PastLaunches = no_past_launches) -> MetricRow:
    (row,) = (row for row in compare(a, b, past).rows if row.metric == HEADLINE)
    return row


def _measure(about: Line, factor: float, launches: int) -> tuple[RecordedRun, RecordedRun]:
    """Return both sides from interleaved launches; their case has the same name."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        run = _run(Path(folder), about, factor, launches)
    a, b = (_side(run, name) for name in SIDES)
    return a, b


def _run(home: Path, about: Line, factor: float, launches: int) -> RecordedRun:
    of_each = {"benchmark": about["benchmark"], "np": about["ranks"], "repeat": launches}
    of_each["params"] = {name: about[name] for name in ("iterations", "sizes") if about.get(name)}
    # Cases of other launch settings are jobs of their own.
    cases = [{"name": name, **of_each, "launch": {"env": {"SIDE": name}}} for name in SIDES]
    suite = home / "slowed.yaml"
    suite.write_text(json.dumps({"schema": "spbench.suite/1", "name": "slowed", "cases": cases}))
    words = [SPBENCH, "run", str(suite), "--headless", "--quiet", "--home", str(home)]
    if factor > 1:
        words += ["--inject", f"slow={factor:g}@{SIDES[1]}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != int(factor > 1):  # a planted fault always fails the run
        sys.exit(
            f"slowed_runs: {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        )
    (folder,) = list_runs(home)
    return load_run(folder)


def _side(run: RecordedRun, name: str) -> RecordedRun:
    """Return a run of one side alone, its case under the name of both."""
    return replace(run, cases={"both": run.cases[name].model_copy(update={"id": "both"})})


# Controls


def _check_controls(controls: Sequence[Control], log: TrialLog, *, sample: bool) -> int:
    """Measure the pairs that are not in the log, print a table, and return the exit code."""
    about, most = (SHORT, 1) if sample else (PING_PONG, MOST_NOISY)
    rows = [("control", "history", "pairs", "noisy", "worse", "better", "95 % bound", "")]
    failed = False
    for control in controls:
        lines = _control_pairs(control, log, about, most * control.pairs)
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
                    _bound_in_words(control, counts["worse"], len(outcomes)),
                    result if outcomes else "nothing judged",
                )
            )
    print("\n".join(align_columns(rows, {2, 3, 4, 5})))
    return int(failed)


def _control_pairs(control: Control, log: TrialLog, about: Line, most: int) -> list[Line]:
    """Measure missing pairs until a control has enough quiet ones or ``most``; return all."""
    key = {**about, "control": control.name}
    while True:
        lines = log.of(**key)
        quiet = sum(not line["noisy"] for line in lines)
        if quiet >= control.pairs or len(lines) >= most:
            return lines
        pairs = min(control.pairs - quiet, LAUNCHES_PER_RUN // control.launches)
        started = time.monotonic()
        sides = _measure(about, control.factor, pairs * control.launches)
        for a, b in zip(*(_parts(side, control.launches) for side in sides), strict=True):
            log.add(key | _judged_pair(a, b, [line["plain"] for line in lines]))
        each = (time.monotonic() - started) / (2 * pairs * control.launches)
        print(f"{control.name}: {len(log.of(**key))} pairs, {each:.2f} s per launch", flush=True)


def _parts(side: RecordedRun, launches: int) -> Iterator[RecordedRun]:
    """Yield the launches of a side in parts of ``launches``, each as a run."""
    case = side.cases["both"]
    medians = case.medians[HEADLINE]
    for start in range(0, len(medians), launches):
        part = slice(start, start + launches)
        yield replace(side, cases={"both": _part(case, medians[part], case.fastest[part])})


def _part(case: CasePart, medians: list[float], fastest: list[float]) -> CasePart:
    changes = {"medians": {HEADLINE: medians}, "fastest": fastest}
    metrics = {HEADLINE: case.metrics[HEADLINE].model_copy(update={"value": median(medians)})}
    return case.model_copy(update=changes | {"metrics": metrics})


def _judged_pair(a: RecordedRun, b: RecordedRun, before: list[list[float]]) -> Line:
    """Return a pair as the log has it: judged without a history, and with the runs before."""
    noisy = any(side.cases["both"].noisy for side in (a, b))
    without = _judge(a, b)
    known = None
    if sum(map(len, before)) >= LEAST_RECORDED:
        known = _judge(a, b, lambda case, metric: before).outcome
    plain = a.cases["both"].medians[HEADLINE]
    line = {"noisy": noisy, "ratio": without.ratio, "plain": plain}
    return line | {"without": without.outcome, "with": known}


def _bound_in_words(control: Control, worse: int, pairs: int) -> str:
    if control.factor == 1:
        return f"called worse: at most {100 * upper_bound(worse, pairs):.2f} %"
    return f"found: at least {100 * (1 - upper_bound(pairs - worse, pairs)):.2f} %"


# Tables


def _tell(line: Line, turn: int) -> None:
    print(f"{turn + 1:3}  {line['factor']:g}: {line['outcome']}, {line['ratio']:.3f}x", flush=True)


def _table(found: dict[float, list[Line]]) -> list[str]:
    judged = OUTCOMES[:-1]
    rows = [("factor", "trials", "median ratio", *judged)]
    for factor, lines in found.items():
        counts = Counter(line["outcome"] for line in lines)
        ratio = f"{median(line['ratio'] for line in lines):.3f}"
        told = (str(counts[outcome]) for outcome in judged)
        rows.append((f"{factor:g}", str(len(lines)), ratio, *told))
    return align_columns(rows, set(range(len(rows[0]))))


def _smallest(found: dict[float, list[Line]]) -> str:
    often = [factor for factor, lines in found.items() if factor > 1 and _share(lines) >= POWER]
    if often:
        return f"The smallest slowdown that is found in {100 * POWER:.0f} %: {min(often):g}."
    return f"No slowdown is found in {100 * POWER:.0f} %."


def _share(lines: Sequence[Line]) -> float:
    return [line["outcome"] for line in lines].count("worse") / len(lines)


if __name__ == "__main__":
    sys.exit(main())
