"""Plant slow ranks, and count the runs that name the right rank.

    python -m benchmarks.stragglers [--trials 20] [--quiet-trials 50] [--sample]

Each trial runs `halo.exchange` once. In some trials the last rank really takes 1.5, 2 or 10 times
as long (`--inject slow=FACTOR`); other trials have no fault. Two ranks have a core each on a
machine of two cores.

All exchanges have the transport `datatype`, which counts copies as waits. A virtual machine's
neighbours can slow down the copies of one core by up to 3 times, for many seconds. With another
transport this rank is really slow, and is named.

For each setting the command prints how many runs named only the right rank, another rank, or none,
and the upper 95 % bound of the rate of runs that named a wrong rank (exact, after Clopper and
Pearson, 1934).

The settings are interleaved, so that drift of the machine affects all of them. Outcomes are kept in
--log: if you interrupt the command, run it again to continue; --again deletes earlier outcomes.
`--sample` tries each setting with fewer iterations and without a log. It repeats a setting up to
three times until its outcome is right, since other programs may use the cores for a moment. The
command exits with 1 if a run named a wrong rank, or missed a planted one; with `--sample`, if no
repetition of a setting was right.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.goals import make_argument_parser
from benchmarks.rates import upper_bound
from benchmarks.trial_log import TrialLog

from spbench.report.text_tables import align_columns

SPBENCH = (sys.executable, "-m", "spbench")
OUTCOMES = ("right", "wrong", "none")
ITERATIONS = {2: 4000, 4: 1000}
"""Iterations by number of ranks: an exchange of four takes longer, since they share cores."""
SAMPLE_ITERATIONS = {2: 1000, 4: 100}
SAMPLE_REPETITIONS = 3
TIMEOUT = 600
"""Seconds of a case: with other work on the machine, a factor of ten takes very long."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Trials of one kind; with a factor of 1, no fault is planted."""

    ranks: int
    factor: float

    @property
    def quiet(self) -> bool:
        """Whether no rank may be named."""
        return self.factor == 1

    @property
    def expected(self) -> str:
        """The outcome that every trial must have."""
        return "none" if self.quiet else "right"


SETTINGS = (
    *(Setting(2, factor) for factor in (1, 1.5, 2, 10)),
    *(Setting(4, factor) for factor in (1, 10)),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials and print the table."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("--trials", type=int, default=20, help="per setting with a slow rank")
    parser.add_argument("--quiet-trials", type=int, default=50, help="on 2 ranks; half of it on 4")
    parser.add_argument("--log", type=Path, default=Path(".spbench/stragglers.jsonl"))
    parser.add_argument("--again", action="store_true", help="forget earlier outcomes")
    parser.add_argument("--sample", action="store_true", help="a few short trials")
    options = parser.parse_args(arguments)
    if options.sample:
        return run_sample()
    counts = {
        setting: options.quiet_trials // (setting.ranks // 2) if setting.quiet else options.trials
        for setting in SETTINGS
    }
    return _run_trials(TrialLog(options.log, restart=options.again), counts)


def run_sample() -> int:
    """Try each setting of the sample until it is right; return 1 if one never is."""
    outcomes: dict[Setting, list[str]] = {setting: [] for setting in SETTINGS}
    for setting, setting_outcomes in outcomes.items():
        while (
            len(setting_outcomes) < SAMPLE_REPETITIONS and setting.expected not in setting_outcomes
        ):
            outcome, descriptions = try_setting(setting, SAMPLE_ITERATIONS[setting.ranks])
            setting_outcomes.append(outcome)
            _print_trial(len(setting_outcomes), setting, outcome, descriptions)
    print("\n".join(render_table(outcomes)))
    return int(any(setting.expected not in outcomes[setting] for setting in SETTINGS))


def _run_trials(log: TrialLog, counts: dict[Setting, int]) -> int:
    for turn in range(max(counts.values())):
        for setting, count in counts.items():
            fields = {"ranks": setting.ranks, "factor": setting.factor}
            if turn < count and len(log.select(**fields)) <= turn:
                outcome, descriptions = try_setting(setting, ITERATIONS[setting.ranks])
                log.add({**fields, "outcome": outcome, "named": descriptions})
                _print_trial(turn + 1, setting, outcome, descriptions)
    outcomes = {
        setting: [
            line["outcome"] for line in log.select(ranks=setting.ranks, factor=setting.factor)
        ]
        for setting in SETTINGS
    }
    print("\n".join(render_table(outcomes)))
    wrong = (
        set(setting_outcomes) - {setting.expected} for setting, setting_outcomes in outcomes.items()
    )
    return int(any(wrong))


def try_setting(setting: Setting, iterations: int) -> tuple[str, list[str]]:
    """Run the benchmark once; return one of `OUTCOMES`, and the reported ranks."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        case = run_case(setting, iterations, Path(folder))
    descriptions = [
        "rank {rank}: {ratio:.2f}x for {duration_s:.2g} s".format(**straggler)
        for straggler in case["stragglers"]
    ]
    return judge_case(case, setting), descriptions


def _print_trial(number: int, setting: Setting, outcome: str, descriptions: list[str]) -> None:
    print(
        f"{number:3}  {_format_setting(setting)}: {'; '.join([outcome, *descriptions])}", flush=True
    )


def write_suite(setting: Setting, iterations: int, folder: Path) -> Path:
    """Write the suite of a setting; return its path."""
    params = {
        "num_spatial_parts": setting.ranks,
        "image_size": 1024,
        "in_channels": 16,
        "halo_len": 3,
        "iterations": iterations,
        "transport": "datatype",
        **({"slice_method": "vertical"} if setting.ranks == 2 else {}),
    }
    launch = {"timeout": TIMEOUT}
    case = {"name": "exchange", "benchmark": "halo.exchange", "params": params, "launch": launch}
    suite = folder / "stragglers.yaml"
    content = {"schema": "spbench.suite/1", "name": "stragglers", "cases": [case]}
    suite.write_text(json.dumps(content))
    return suite


def run_case(setting: Setting, iterations: int, home: Path) -> dict[str, Any]:
    """Run the benchmark once; return its case of report.json."""
    suite = write_suite(setting, iterations, home)
    command = [*SPBENCH, "run", str(suite), "--headless", "--quiet", "--json", "-"]
    command += ["--home", str(home)]
    if not setting.quiet:
        command += ["--inject", f"slow={setting.factor:g}"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode != int(not setting.quiet):  # a planted fault always fails the run
        sys.exit(
            f"stragglers: {' '.join(command)}: exit {completed.returncode}\n{completed.stderr}"
        )
    (case,) = json.loads(completed.stdout)["cases"]
    assert isinstance(case, dict)
    return case


def judge_case(case: dict[str, Any], setting: Setting) -> str:
    """Return whether a case reports only the planted rank, another rank, or none."""
    ranks = [straggler["rank"] for straggler in case["stragglers"]]
    if not ranks:
        return "none"
    correct_rank = (
        not setting.quiet and ranks == [setting.ranks - 1] and case["stragglers"][0]["cause"]
    )
    is_found = str(case["reason"]).startswith("fault found, as planted")
    return "right" if correct_rank and is_found else "wrong"


def render_table(outcomes: dict[Setting, list[str]]) -> list[str]:
    """Return a row per setting: trials, outcomes, and the bound of the wrong ones."""
    rows: list[tuple[str, ...]] = [("setting", "trials", *OUTCOMES, "wrong at most")]
    for setting, setting_outcomes in outcomes.items():
        trials = len(setting_outcomes)
        counts = [setting_outcomes.count(outcome) for outcome in OUTCOMES]
        bound = f"{100 * upper_bound(counts[1], trials):.1f} %" if trials else "-"
        rows.append((_format_setting(setting), str(trials), *map(str, counts), bound))
    return align_columns(rows, range(1, len(rows[0])))


def _format_setting(setting: Setting) -> str:
    planted = "quiet" if setting.quiet else f"slow={setting.factor:g}"
    return f"{planted} on {setting.ranks} ranks"


if __name__ == "__main__":
    sys.exit(main())
