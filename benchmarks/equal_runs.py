"""Pairs of runs of one code: how often compare calls them the same, and what it would find.

    python -m benchmarks.equal_runs [--pairs 100] [--suites smoke,links,...] [--launches 5]

The shipped suites run by turns, each of their cases in so many launches, and each run is compared
with the one before it of the same suite: a pair. Printed are the verdicts' shares, of the cases'
times and of all other metrics, and then for each case the smallest slowdown that a comparison
would find among the runs that were made (as `spbench gate check`). A pair is judged by what the
runs before it tell. Runs stay in --home, and their ids in --log, so that a command that was cut
short goes on, and one that is through judges them again; --again forgets them. Ends with 1 where
more than 5 % of the times are called better or worse, or no pair was judged. The suite `network`
runs over two hosts made of network namespaces, whose links are slowed to --rate (root, sshd,
iproute2).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.goals import argument_parser
from benchmarks.trial_log import Line, TrialLog
from benchmarks.two_hosts import RunPlace, two_hosts

from spbench.record.runs.folder import RunFolder, list_runs
from spbench.report.comparison.compare import compare
from spbench.report.comparison.model import HEADLINE, OUTCOMES
from spbench.report.comparison.past import find_past_launches
from spbench.report.gate.check import check_gate
from spbench.report.gate.check_text import gate_check_lines
from spbench.report.recorded import RecordedRun, load_run
from spbench.report.text_tables import PIPE_WIDTH, align_columns
from spbench.suites.yaml_nodes import parse_yaml

SUITES = Path(__file__).parents[1] / "suites"
SPBENCH = str(Path(sys.executable).parent / "spbench")
SHIPPED = "smoke,links,bringup,halo"
NOT_JUDGED = "not judged"
MOST_WRONG = 0.05
OVER_TWO_HOSTS = "network"


def main() -> int:
    """Run the suites, and print what their comparisons say."""
    parser = argument_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=100, help="of all suites together")
    parser.add_argument("--suites", default=SHIPPED, help=f"names in suites/ (default: {SHIPPED})")
    parser.add_argument("--launches", type=int, default=5, help="of each case in a run")
    parser.add_argument("--rate", default="1gbit", help="of the links of the suite `network`")
    parser.add_argument("--home", type=Path, default=Path(".spbench/equal-runs"))
    parser.add_argument("--log", type=Path, default=Path(".spbench/equal-runs.jsonl"))
    parser.add_argument("--again", action="store_true", help="forget earlier runs")
    words = parser.parse_args()
    if words.again and words.home.exists():
        shutil.rmtree(words.home)
    log = TrialLog(words.log, again=words.again)
    suites = words.suites.split(",")
    paths = {name: _with_launches(name, words.launches, words.home) for name in suites}
    with _places(suites, words.rate) as places:
        for turn in range(-(-words.pairs // len(suites)) + 1):
            for name in suites:
                if len(_runs(log, name, words.launches)) <= turn:
                    log.add(_next(name, places[name], paths[name], words, log))
    judged = [line for name in suites for line in _judged_again(words.home, name, words, log)]
    print("\n".join(_shares(judged)))
    for name in suites:
        print("\n".join(_found(words.home, name, judged)))
    times = Counter(outcome for line in judged for outcome in line["times"].values())
    wrong = times["better"] + times["worse"]
    judged_times = wrong + times["same"]
    return int(not judged_times or wrong > MOST_WRONG * times.total())


def _runs(log: TrialLog, suite: str, launches: int) -> list[Line]:
    return log.of(suite=suite, launches=launches)


def _with_launches(name: str, launches: int, home: Path) -> Path:
    """Write a shipped suite whose cases are launched so often."""
    suite = parse_yaml((SUITES / f"{name}.yaml").read_text()).root.data
    assert isinstance(suite, dict), "a shipped suite is a mapping"
    suite["cases"] = [case | {"repeat": launches} for case in suite["cases"]]
    path = home / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(suite))
    return path


@contextmanager
def _places(suites: Sequence[str], rate: str) -> Iterator[Mapping[str, RunPlace]]:
    """Make the hosts that a suite needs, and yield where each of the suites runs."""
    places = dict.fromkeys(suites, RunPlace())
    if OVER_TWO_HOSTS not in places:
        yield places
        return
    with two_hosts(rate) as hosts:
        yield places | {OVER_TWO_HOSTS: hosts}


def _next(name: str, place: RunPlace, path: Path, words: argparse.Namespace, log: TrialLog) -> Line:
    """Run a suite, and compare with its run before."""
    started = time.monotonic()
    run = _run(path, place, words.home)
    line: Line = {"suite": name, "launches": words.launches, "run": run.summary.id}
    before = _runs(log, name, words.launches)
    judged = _judged(words.home, before[-1]["run"], run) if before else {"times": {}}
    counted = Counter(judged["times"].values())
    said = ", ".join(f"{count} {outcome}" for outcome, count in counted.items()) or "the first"
    print(f"{name} {len(before)}, {time.monotonic() - started:.0f} s: {said}", flush=True)
    return line


def _judged_again(
    home: Path, name: str, words: argparse.Namespace, log: TrialLog
) -> Iterator[Line]:
    """Yield the verdicts of each pair of a suite."""
    before = None
    for line in _runs(log, name, words.launches):
        run = line["run"]
        judged: Line = {"times": {}, "others": {}}
        if before is not None:
            judged = _judged(home, before, _of(home, run))
        yield {"suite": name, "run": run} | judged
        before = run


def _judged(home: Path, before: str, run: RecordedRun) -> Line:
    """Return the verdicts on a run beside one before it, by what the runs until then tell."""
    judged: Line = {"times": {}, "others": {}}
    a = _of(home, before)
    for row in compare(a, run, find_past_launches(home, a, run)).rows:
        kind = "times" if row.metric == HEADLINE else "others"
        judged[kind][f"{row.case} {row.metric}"] = row.outcome or NOT_JUDGED
    return judged


def _run(path: Path, place: RunPlace, home: Path) -> RecordedRun:
    before = {folder.id for folder in list_runs(home)}
    words = [SPBENCH, "run", str(path), "--headless", "--quiet", "--home", str(home), *place.words]
    done = subprocess.run(words, env=place.environ, capture_output=True, text=True, check=False)
    made = [folder for folder in list_runs(home) if folder.id not in before]
    if done.returncode not in (0, 1) or len(made) != 1:  # an expectation may fail by chance
        sys.exit(f"equal_runs: {' '.join(words)}: exit {done.returncode}\n{done.stderr}")
    return load_run(made[0])


def _of(home: Path, run: str) -> RecordedRun:
    return load_run(RunFolder(home / "runs" / run))


def _shares(told: Sequence[Line]) -> Iterator[str]:
    """Yield the table of the verdicts' shares: a row for each suite and kind of metric."""
    columns = [*OUTCOMES, NOT_JUDGED]
    rows = [("suite", "metrics", "pairs", "verdicts", *columns)]
    for kind in ("times", "others"):
        names = list(dict.fromkeys(line["suite"] for line in told))
        for name in [*names, "all"]:
            lines = [line for line in told if name in (line["suite"], "all") and line[kind]]
            counts = Counter(outcome for line in lines for outcome in line[kind].values())
            cells = (f"{100 * counts[each] / max(1, counts.total()):.1f} %" for each in columns)
            rows.append((name, kind, str(len(lines)), str(counts.total()), *cells))
    yield ""
    yield from align_columns(rows, set(range(2, len(rows[0]))))


def _found(home: Path, name: str, told: Sequence[Line]) -> Iterator[str]:
    """Yield what a comparison with the last run of a suite would find."""
    run = _of(home, [line["run"] for line in told if line["suite"] == name][-1])
    check = check_gate(run, find_past_launches(home, run, run))
    yield f"\n{name}"
    yield from gate_check_lines(check, PIPE_WIDTH)


if __name__ == "__main__":
    sys.exit(main())
