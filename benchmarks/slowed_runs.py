"""Slowdowns that are really there: in how many trials compare finds them.

    python -m benchmarks.slowed_runs [--benchmark compute.gemm] [--factors 1.1] [--trials 100]

Each trial launches a case as it is and the same case with the fault `slow=FACTOR`, whose iterations
really take so many times as long, by turns: A B A B, each launch a job of its own, 5 a side. Then
compare judges B against A, without earlier runs. A factor of 1 plants nothing: how often is that
called better or worse? With several factors the smallest that is found in 80 % is named.
Outcomes are kept in --log, so that a command that was cut short goes on; --again begins anew. A
trial takes some 20 s on two cores, with --iterations 600 of compute.gemm some 50 s.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.goals import argument_parser
from benchmarks.trial_log import Line, TrialLog

from spbench.cli.tables import aligned
from spbench.record.runs.folder import list_runs
from spbench.report.compare import HEADLINE, OUTCOMES, MetricRow, compare
from spbench.report.gate.check import POWER
from spbench.report.recorded import RecordedRun, load_run

SPBENCH = str(Path(sys.executable).parent / "spbench")
SIDES = ("plain", "slowed")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--benchmark", default="compute.gemm")
    parser.add_argument("--factors", default="1.1", help="as 1,1.05,1.1,1.2")
    parser.add_argument("--trials", type=int, default=100, help="of each factor")
    parser.add_argument("--launches", type=int, default=5, help="a side")
    parser.add_argument("--iterations", type=int, help="of a launch (default: the benchmark's)")
    parser.add_argument("--ranks", type=int, default=1, help="of which the last is slow")
    parser.add_argument("--log", type=Path, default=Path(".spbench/slowed-runs.jsonl"))
    parser.add_argument("--again", action="store_true", help="forget earlier outcomes")
    words = parser.parse_args()
    log = TrialLog(words.log, again=words.again)
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


def _tried(about: Line, factor: float) -> Line:
    """Launch both sides by turns, and judge the slowed one."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as place:
        run = _run(Path(place), about, factor)
    a, b = (_side(run, name) for name in SIDES)
    (row,) = (row for row in compare(a, b).rows if row.metric == HEADLINE)
    return {**about, "factor": factor, **_told(row)}


def _told(row: MetricRow) -> Line:
    if row.outcome is None:
        sys.exit(f"slowed_runs: the two sides cannot be judged: {row.reason}")
    by = "fastest" if row.by_fastest else "medians"
    return {"outcome": row.outcome, "ratio": row.ratio, "interval": row.interval, "by": by}


def _run(home: Path, about: Line, factor: float) -> RecordedRun:
    of_each = {"benchmark": about["benchmark"], "np": about["ranks"], "repeat": about["launches"]}
    if about["iterations"]:
        of_each["params"] = {"iterations": about["iterations"]}
    # Cases of other launch settings are jobs of their own.
    cases = [{"name": name, **of_each, "launch": {"env": {"SIDE": name}}} for name in SIDES]
    suite = home / "slowed.yaml"
    suite.write_text(json.dumps({"schema": "spbench.suite/1", "name": "slowed", "cases": cases}))
    words = [SPBENCH, "run", str(suite), "--headless", "--quiet", "--home", str(home)]
    if factor > 1:
        words += ["--inject", f"slow={factor:g}@{SIDES[1]}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != int(factor > 1):  # no check notices that a rank is slow
        sys.exit(f"slowed_runs: {' '.join(words)}: exit {done.returncode}\n{done.stderr}")
    (folder,) = list_runs(home)
    return load_run(folder)


def _side(run: RecordedRun, name: str) -> RecordedRun:
    """Return a run of one side alone, its case under the name of both."""
    return replace(run, cases={"both": run.cases[name].model_copy(update={"id": "both"})})


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
    return aligned(rows, set(range(len(rows[0]))))


def _smallest(found: dict[float, list[Line]]) -> str:
    often = [factor for factor, lines in found.items() if factor > 1 and _share(lines) >= POWER]
    if often:
        return f"The smallest slowdown that is found in {100 * POWER:.0f} %: {min(often):g}."
    return f"No slowdown is found in {100 * POWER:.0f} %."


def _share(lines: Sequence[Line]) -> float:
    return [line["outcome"] for line in lines].count("worse") / len(lines)


if __name__ == "__main__":
    main()
