"""Time that a session saves: 24 small cases in one launch against 24 launches of one case each.

    python -m benchmarks.session [--rounds 1]

Each round runs the session, and then each case twice more, by turns: as a `spbench run` of its
own, and by hand as `spbench command` prints it. Four ranks exchange the halos of a small image,
so that nearly all of the time is start-up. The gap between two cases of a session is read from
its events: from the last rank's case_end to the first and the last rank's next case_start. The
first may be negative: a rank that is through goes on to the next case. A round takes minutes.
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

from benchmarks.goals import Figure, argument_parser, table

SPBENCH = str(Path(sys.executable).parent / "spbench")
BY_HAND = "#   by hand, "
TIMES_SOONER = 10
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
    by_hand: float
    to_first_start: list[float]
    to_last_start: list[float]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="rounds of all (default: 1)")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = SessionBench(Path(folder))
        print(f"{bench.count} cases on 4 ranks, rounds: {words.rounds}")
        print(report([bench.round(number) for number in range(words.rounds)]))


def report(rounds: Sequence[Round]) -> str:
    ratio = median(one.launches / one.session for one in rounds)
    by_hand_ratio = median(one.by_hand / one.session for one in rounds)
    first = [gap for one in rounds for gap in one.to_first_start]
    last = [gap for one in rounds for gap in one.to_last_start]
    return table(
        [
            Figure("one session (spbench run)", median(one.session for one in rounds), "s"),
            Figure("a launch a case (spbench run)", median(one.launches for one in rounds), "s"),
            Figure("a launch a case, by hand", median(one.by_hand for one in rounds), "s"),
            Figure("session sooner than launches", ratio, "times", least=TIMES_SOONER),
            Figure("session sooner than by hand", by_hand_ratio, "times", least=TIMES_SOONER),
            Figure("gap to the first rank's start", median(first), "ms", most=GAP_MS),
            Figure("gap to the first rank's start, max", max(first), "ms", most=GAP_MS),
            Figure("gap to the last rank's start", median(last), "ms", most=GAP_MS),
            Figure("gap to the last rank's start, max", max(last), "ms", most=GAP_MS),
        ]
    )


class SessionBench:
    """Has the suites, in a folder of its own, and runs them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._session = self._suite("session", SLICE_METHODS, HALO_LENGTHS, CHANNELS)
        points = itertools.product(SLICE_METHODS, HALO_LENGTHS, CHANNELS)
        self._singles = [
            self._suite(f"single-{number}", [method], [length], [channels])
            for number, (method, length, channels) in enumerate(points)
        ]
        self._lines = by_hand_lines(self._session)
        if len(self._lines) != self.count:
            sys.exit(f"session: {len(self._lines)} lines by hand for {self.count} cases")

    @property
    def count(self) -> int:
        return len(self._singles)

    def round(self, number: int) -> Round:
        """Run all once."""
        home = self._folder / f"home-{number}"
        session = seconds(run_words(self._session, home))
        first, last = gaps(next(home.glob("runs/*/events.jsonl")))
        if len(last) != self.count - 1:
            sys.exit(f"session: {len(last)} gaps between {self.count} cases")
        launches = by_hand = 0.0
        for suite, line in zip(self._singles, self._lines, strict=True):
            launches += seconds(run_words(suite, self._folder / "singles"))
            by_hand += seconds(["bash", "-c", line])
        return Round(session, launches, by_hand, first, last)

    def _suite(
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


def run_words(suite: Path, home: Path) -> list[str]:
    return [SPBENCH, "run", str(suite), "--headless", "--home", str(home)]


def by_hand_lines(suite: Path) -> list[str]:
    """Return the lines that run the cases one by one without the console, as printed."""
    printed = output([SPBENCH, "command", str(suite)]).splitlines()
    return [line for title, line in itertools.pairwise(printed) if title.startswith(BY_HAND)]


def seconds(command: list[str]) -> float:
    started = time.monotonic()
    output(command)
    return time.monotonic() - started


def output(command: list[str]) -> str:
    ended = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if ended.returncode:
        said = ended.stdout + ended.stderr
        sys.exit(f"session: {' '.join(command)}: exit {ended.returncode}\n{said}")
    return ended.stdout


def gaps(events: Path) -> tuple[list[float], list[float]]:
    """Return the ms from each case's last case_end to the next one's first and last case_start."""
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
