"""Pairs of runs of the same code: how often compare calls them the same.

    python -m benchmarks.equal_runs [--pairs 100] [--suites smoke,links,...] [--launches 5]

The shipped suites run interleaved, with that many launches per case. Each run is compared with the
previous run of the same suite: a pair. Printed are the shares of the verdicts, for the cases' times
and for all other metrics. Then the smallest detectable slowdown is printed for each case, like with
`spbench gate check`. A pair is judged with the history before it. Runs are kept in --home, and
their ids in --log: an interrupted command continues, and a complete one judges the runs again.
--again deletes them. The exit code is 1 if more than 5 % of the times are called better or worse,
or if no pair was judged. The suite `network` runs over two hosts made of network namespaces, with
links slowed to --rate (needs root, sshd and iproute2).
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

from benchmarks.goals import make_argument_parser
from benchmarks.trial_log import Line, TrialLog
from benchmarks.two_hosts import RunTarget, two_hosts

from spbench.record.runs.folder import RunFolder, list_runs
from spbench.report.comparison.compare import compare
from spbench.report.comparison.conditions import make_past_lookup
from spbench.report.comparison.model import HEADLINE, OUTCOMES
from spbench.report.gate.check import check_gate
from spbench.report.gate.check_text import gate_check_lines
from spbench.report.recorded import RecordedRun, load_run
from spbench.report.text_tables import PIPE_WIDTH, align_columns
from spbench.suites.yaml_nodes import parse_yaml

SUITES = Path(__file__).parents[1] / "suites"
SPBENCH = str(Path(sys.executable).parent / "spbench")
SHIPPED = "smoke,links,bringup,halo"
NOT_JUDGED = "not judged"
MAX_WRONG_SHARE = 0.05
OVER_TWO_HOSTS = "network"


def main() -> int:
    """Run the suites, and print the shares of the verdicts."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=100, help="of all suites together")
    parser.add_argument("--suites", default=SHIPPED, help=f"names in suites/ (default: {SHIPPED})")
    parser.add_argument("--launches", type=int, default=5, help="of each case in a run")
    parser.add_argument("--rate", default="1gbit", help="of the links of the suite `network`")
    parser.add_argument("--home", type=Path, default=Path(".spbench/equal-runs"))
    parser.add_argument("--log", type=Path, default=Path(".spbench/equal-runs.jsonl"))
    parser.add_argument("--again", action="store_true", help="forget earlier runs")
    options = parser.parse_args()
    if options.again and options.home.exists():
        shutil.rmtree(options.home)
    log = TrialLog(options.log, restart=options.again)
    suites = options.suites.split(",")
    paths = {name: _write_suite(name, options.launches, options.home) for name in suites}
    with _open_targets(suites, options.rate) as targets:
        for turn in range(-(-options.pairs // len(suites)) + 1):
            for name in suites:
                if len(_read_log(log, name, options.launches)) <= turn:
                    log.add(_run_next(name, targets[name], paths[name], options, log))
    verdicts = [line for name in suites for line in _judge_pairs(options.home, name, options, log)]
    print("\n".join(_format_shares(verdicts)))
    for name in suites:
        print("\n".join(_format_detectable(options.home, name, verdicts)))
    times = Counter(outcome for line in verdicts for outcome in line["times"].values())
    wrong = times["better"] + times["worse"]
    judged_times = wrong + times["same"]
    return int(not judged_times or wrong > MAX_WRONG_SHARE * times.total())


def _read_log(log: TrialLog, suite: str, launches: int) -> list[Line]:
    return log.select(suite=suite, launches=launches)


def _write_suite(name: str, launches: int, home: Path) -> Path:
    """Write a shipped suite with that many launches per case."""
    suite = parse_yaml((SUITES / f"{name}.yaml").read_text()).root.data
    assert isinstance(suite, dict), "a shipped suite is a mapping"
    suite["cases"] = [case | {"repeat": launches} for case in suite["cases"]]
    path = home / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(suite))
    return path


@contextmanager
def _open_targets(suites: Sequence[str], rate: str) -> Iterator[Mapping[str, RunTarget]]:
    """Create the hosts that a suite needs; yield the target of each suite."""
    targets = dict.fromkeys(suites, RunTarget())
    if OVER_TWO_HOSTS not in targets:
        yield targets
        return
    with two_hosts(rate) as target:
        yield targets | {OVER_TWO_HOSTS: target}


def _run_next(
    name: str, target: RunTarget, path: Path, options: argparse.Namespace, log: TrialLog
) -> Line:
    """Run a suite, print the comparison with its previous run, and return its line."""
    started = time.monotonic()
    run = _run_suite(path, target, options.home)
    line: Line = {"suite": name, "launches": options.launches, "run": run.summary.id}
    earlier = _read_log(log, name, options.launches)
    verdicts = _judge_run(options.home, earlier[-1]["run"], run) if earlier else {"times": {}}
    counts = Counter(verdicts["times"].values())
    text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "the first"
    print(f"{name} {len(earlier)}, {time.monotonic() - started:.0f} s: {text}", flush=True)
    return line


def _judge_pairs(
    home: Path, name: str, options: argparse.Namespace, log: TrialLog
) -> Iterator[Line]:
    """Yield the verdicts of each pair of a suite."""
    previous = None
    for line in _read_log(log, name, options.launches):
        run = line["run"]
        verdicts: Line = {"times": {}, "others": {}}
        if previous is not None:
            verdicts = _judge_run(home, previous, _load_run(home, run))
        yield {"suite": name, "run": run} | verdicts
        previous = run


def _judge_run(home: Path, previous: str, run: RecordedRun) -> Line:
    """Return the verdicts on a run and a previous one, with the history until then."""
    verdicts: Line = {"times": {}, "others": {}}
    reference = _load_run(home, previous)
    for row in compare(reference, run, make_past_lookup(home, reference, run)).rows:
        kind = "times" if row.metric == HEADLINE else "others"
        verdicts[kind][f"{row.case} {row.metric}"] = row.outcome or NOT_JUDGED
    return verdicts


def _run_suite(path: Path, target: RunTarget, home: Path) -> RecordedRun:
    earlier_ids = {folder.id for folder in list_runs(home)}
    command = [SPBENCH, "run", str(path), "--headless", "--quiet", "--home", str(home)]
    command += target.options
    completed = subprocess.run(
        command, env=target.environ, capture_output=True, text=True, check=False
    )
    new_runs = [folder for folder in list_runs(home) if folder.id not in earlier_ids]
    # The exit code is 1 if an expectation failed, which may happen by chance.
    if completed.returncode not in (0, 1) or len(new_runs) != 1:
        sys.exit(
            f"equal_runs: {' '.join(command)}: exit {completed.returncode}\n{completed.stderr}"
        )
    return load_run(new_runs[0])


def _load_run(home: Path, run: str) -> RecordedRun:
    return load_run(RunFolder(home / "runs" / run))


def _format_shares(verdicts: Sequence[Line]) -> Iterator[str]:
    """Yield the table of the verdicts' shares: a row per suite and kind of metric."""
    columns = [*OUTCOMES, NOT_JUDGED]
    rows = [("suite", "metrics", "pairs", "verdicts", *columns)]
    for kind in ("times", "others"):
        names = list(dict.fromkeys(line["suite"] for line in verdicts))
        for name in [*names, "all"]:
            lines = [line for line in verdicts if name in (line["suite"], "all") and line[kind]]
            counts = Counter(outcome for line in lines for outcome in line[kind].values())
            cells = (f"{100 * counts[column] / max(1, counts.total()):.1f} %" for column in columns)
            rows.append((name, kind, str(len(lines)), str(counts.total()), *cells))
    yield ""
    yield from align_columns(rows, set(range(2, len(rows[0]))))


def _format_detectable(home: Path, name: str, verdicts: Sequence[Line]) -> Iterator[str]:
    """Yield the smallest slowdowns that a comparison with the last run would detect."""
    run = _load_run(home, [line["run"] for line in verdicts if line["suite"] == name][-1])
    check = check_gate(run, make_past_lookup(home, run, run))
    yield f"\n{name}"
    yield from gate_check_lines(check, PIPE_WIDTH)


if __name__ == "__main__":
    sys.exit(main())
