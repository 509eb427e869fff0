"""Time that a session saves: 24 small cases in one launch or in 24 launches.

    python -m benchmarks.session [--rounds 1]

Each round runs the session, and then each case twice more, interleaved: as a separate `spbench
run`, and with the standalone command that `spbench command` prints. Four ranks exchange the halos
of a small image, so that nearly all of the time is start-up. The gap between two cases of a session
is read from its events: from the last rank's case_end to the first and the last rank's next
case_start. The first may be negative, because ranks do not wait for each other between cases. A
round takes minutes.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.goals import Figure, format_figures, make_argument_parser

SPBENCH = str(Path(sys.executable).parent / "spbench")
STANDALONE_TITLE = "#   by hand, "
MIN_SPEEDUP = 10
GAP_MS = 50

SLICE_METHODS = ("vertical", "horizontal", "square")
HALO_LENGTHS = (1, 2, 3, 4)
CHANNELS = (1, 3)

PARAMS = {"image_size": 64, "num_spatial_parts": 4, "iterations": 5}


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of one round, and the gaps of its session in ms."""

    session: float
    launches: float
    standalone: float
    to_first_start: list[float]
    to_last_start: list[float]


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="rounds of all (default: 1)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = SessionBench(Path(folder))
        print(f"{bench.count} cases on 4 ranks, rounds: {options.rounds}")
        print(format_rounds([bench.round(number) for number in range(options.rounds)]))


def format_rounds(rounds: Sequence[Round]) -> str:
    session = median(round_.session for round_ in rounds)
    launches = median(round_.launches for round_ in rounds)
    standalone = median(round_.standalone for round_ in rounds)
    ratio = median(round_.launches / round_.session for round_ in rounds)
    standalone_ratio = median(round_.standalone / round_.session for round_ in rounds)
    first = [gap for round_ in rounds for gap in round_.to_first_start]
    last = [gap for round_ in rounds for gap in round_.to_last_start]
    return format_figures(
        [
            Figure("one session (spbench run)", session, "s"),
            Figure("a launch a case (spbench run)", launches, "s"),
            Figure("a launch a case, by hand", standalone, "s"),
            Figure("session sooner than launches", ratio, "times", minimum=MIN_SPEEDUP),
            Figure("session sooner than by hand", standalone_ratio, "times", minimum=MIN_SPEEDUP),
            Figure("gap to the first rank's start", median(first), "ms", maximum=GAP_MS),
            Figure("gap to the first rank's start, max", max(first), "ms", maximum=GAP_MS),
            Figure("gap to the last rank's start", median(last), "ms", maximum=GAP_MS),
            Figure("gap to the last rank's start, max", max(last), "ms", maximum=GAP_MS),
        ]
    )


class SessionBench:
    """The suites in a separate folder, and their runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._session = self._write_suite("session", SLICE_METHODS, HALO_LENGTHS, CHANNELS)
        combinations = itertools.product(SLICE_METHODS, HALO_LENGTHS, CHANNELS)
        self._singles = [
            self._write_suite(f"single-{number}", [method], [length], [channels])
            for number, (method, length, channels) in enumerate(combinations)
        ]
        self._commands = list_standalone_commands(self._session)
        if len(self._commands) != self.count:
            sys.exit(f"session: {len(self._commands)} lines by hand for {self.count} cases")

    @property
    def count(self) -> int:
        return len(self._singles)

    def round(self, number: int) -> Round:
        """Run the session and the single cases once."""
        home = self._folder / f"home-{number}"
        session = time_command(build_run_command(self._session, home))
        first, last = read_gaps(next(home.glob("runs/*/events.jsonl")))
        if len(last) != self.count - 1:
            sys.exit(f"session: {len(last)} gaps between {self.count} cases")
        launches = standalone = 0.0
        for suite, command in zip(self._singles, self._commands, strict=True):
            launches += time_command(build_run_command(suite, self._folder / "singles"))
            standalone += time_command(["bash", "-c", command])
        return Round(session, launches, standalone, first, last)

    def _write_suite(
        self, name: str, methods: Sequence[str], lengths: Sequence[int], channels: Sequence[int]
    ) -> Path:
        matrix = {"slice_method": methods, "halo_len": lengths, "in_channels": channels}
        case = {"name": "exchange", "benchmark": "halo.exchange", "params": PARAMS}
        suite = {
            "schema": "spbench.suite/1",
            "name": "session",
            "cases": [case | {"matrix": matrix}],
        }
        path = self._folder / f"{name}.yaml"
        path.write_text(json.dumps(suite))
        return path


def build_run_command(suite: Path, home: Path) -> list[str]:
    return [SPBENCH, "run", str(suite), "--headless", "--home", str(home)]


def list_standalone_commands(suite: Path) -> list[str]:
    """Return the printed commands that run the cases one by one without the console."""
    printed = run_command([SPBENCH, "command", str(suite)]).splitlines()
    return [
        line for title, line in itertools.pairwise(printed) if title.startswith(STANDALONE_TITLE)
    ]


def time_command(command: list[str]) -> float:
    started = time.monotonic()
    run_command(command)
    return time.monotonic() - started


def run_command(command: list[str]) -> str:
    completed = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if completed.returncode:
        output = completed.stdout + completed.stderr
        sys.exit(f"session: {' '.join(command)}: exit {completed.returncode}\n{output}")
    return completed.stdout


def read_gaps(events: Path) -> tuple[list[float], list[float]]:
    """Return the gaps in ms to the first and the last start of each next case.

    A gap starts at the last case_end of a case.
    """
    starts: dict[str, list[float]] = {}
    ends: dict[str, list[float]] = {}
    with events.open("rb") as file:
        for event in map(json.loads, file):
            if event["event"] == "case_start":
                starts.setdefault(event["case"], []).append(event["time"])
            elif event["event"] == "case_end":
                ends.setdefault(event["case"], []).append(event["time"])
    order = sorted(starts, key=lambda case: min(starts[case]))
    pairs = list(itertools.pairwise(order))
    to_first = [(min(starts[after]) - max(ends[before])) * 1e3 for before, after in pairs]
    to_last = [(max(starts[after]) - max(ends[before])) * 1e3 for before, after in pairs]
    return to_first, to_last


if __name__ == "__main__":
    main()
