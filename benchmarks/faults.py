"""The table of faults: the fault, the expected outcome, and spbench's message.

    python -m benchmarks.faults [--only WORDS] [--launchers NAME,...] [--repeats N] [--out FILE]

Each fault is tried with each launcher that it concerns. A fault at a fixed moment is tried --fixed
times. A fault at a random moment is tried --repeats times with Open MPI, with mpirun_rsh and with
the first launcher that it concerns. Outcomes are kept in --log, so that an interrupted command
continues. --again starts from the beginning. After all trials of a row, the command looks for
processes that are left over. The exit code is 1 if an outcome is unexpected.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from benchmarks.goals import make_argument_parser

ROOT = Path(__file__).parents[1]
OFTEN = ("openmpi", "mpirun_rsh")
sys.path.insert(0, str(ROOT / "tests"))

from support.reliability.faults import FAULT_TABLE, Fault  # noqa: E402
from support.reliability.testbeds import TESTBED_NAMES, FaultTestbeds  # noqa: E402
from support.reliability.trials import TrialResultLog, render_table, run_trials  # noqa: E402

HEADING = "## Faults"
SECTION = """\
## Faults

The table lists faults that were injected into runs on one machine, and the first message that a
user read.

- `openmpi` is Open MPI's mpirun, `hydra` MPICH's mpiexec, `srun` a real Slurm with two nodes.
- `openmpi-hosts` is Open MPI over two network namespaces with an sshd each.
- `mpirun_rsh` is a stand-in that behaves like MVAPICH2 2.3.7 in measurements.

A job has two ranks. The victim is random, and with 20 trials the moment is random too. Each trial
checks the message, the exit code and the next case. After all trials of a row, no process of any
may be left after 15 s. Seconds are the median from the fault to the end of the run, including the
next case. Measured on {day}.

```sh
python -m benchmarks.faults --list
```

lists the faults. Without `--list` it tries them and writes this page, within 100 minutes on two
cores.

"""
"""The end of the page, except for the table."""


def main() -> int:
    """Try the faults and print the table."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("--only", default="", help="faults whose name has these words")
    parser.add_argument(
        "--launchers",
        default=",".join(TESTBED_NAMES),
        help=f"comma-separated, of {', '.join(TESTBED_NAMES)}",
    )
    parser.add_argument(
        "--repeats", type=int, default=20, help="trials of a fault at a random moment"
    )
    parser.add_argument("--fixed", type=int, default=3, help="trials of other faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, default=Path(".spbench/faults.jsonl"))
    parser.add_argument("--again", action="store_true", help="delete earlier outcomes")
    parser.add_argument("--list", action="store_true", help="print the faults and exit")
    parser.add_argument("--out", type=Path, help="page with a section of faults to replace")
    options = parser.parse_args()
    if options.again:
        options.log.unlink(missing_ok=True)
    faults = [fault for fault in FAULT_TABLE if options.only in fault.name]
    launchers = options.launchers.split(",")
    if options.list:
        for fault in faults:
            print(f"{fault.name}: {', '.join(fault.testbeds)}")
        return 0
    log = TrialResultLog(options.log)
    with tempfile.TemporaryDirectory(prefix="spf") as folder, FaultTestbeds(Path(folder)) as setups:
        for fault in faults:
            for name in fault.testbeds:
                if name not in launchers:
                    continue
                often = fault.random_moment and name in (*OFTEN, fault.testbeds[0])
                repeats = options.repeats if often else options.fixed
                _run_trials(
                    fault,
                    name,
                    repeats - len(log.select(fault.name, name)),
                    options.seed,
                    setups,
                    log,
                )
    text = render_table(faults, launchers, log)
    if options.out:
        _write_section(options.out, SECTION.format(day=date.today()) + text)
    print(text, end="")
    return int(has_mismatches(faults, launchers, log))


def has_mismatches(faults: Sequence[Fault], launchers: Sequence[str], log: TrialResultLog) -> bool:
    """Whether a trial of a selected fault and launcher had an unexpected outcome."""
    return any(
        trial.mismatches
        for fault in faults
        for launcher in fault.testbeds
        if launcher in launchers
        for trial in log.select(fault.name, launcher)
    )


def _write_section(page: Path, section: str) -> None:
    """Write the end of a page, from `HEADING`; keep the text before it."""
    before = page.read_text().partition(HEADING)[0] if page.exists() else "# Reliability\n\n"
    page.write_text(before + section)


def _run_trials(
    fault: Fault, name: str, repeats: int, seed: int, setups: FaultTestbeds, log: TrialResultLog
) -> None:
    if repeats < 1:
        return
    setup = setups.get(name)
    if isinstance(setup, str):
        print(f"{fault.name}, {name}: not here: {setup}", flush=True)
        return
    done = len(log.select(fault.name, name))
    trials = run_trials(fault, setup, repeats, seed + done)
    log.add(trials)
    for trial in trials:
        text = (
            f"WRONG: {'; '.join(trial.mismatches)}: {trial.message}"
            if trial.mismatches
            else trial.message
        )
        print(f"{fault.name}, {name}, {trial.seconds:g} s: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
