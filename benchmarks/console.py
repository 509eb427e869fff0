"""Speed of the console in the terminal: start, keys, processor time, memory, replay.

    python -m benchmarks.console [--rounds 9] [--seconds 60] [--ranks 4096] [--rate 1000]
        [--cases 2000] [--runs 500]

The console runs as a user runs it, in a terminal of its own (200x60), and is timed by what it
writes there. While `benchmarks.made_up_run` writes events of so many ranks, keys are pressed: one
is answered when its effect is on the terminal. The writer uses the other core. Then keys are
pressed on every page in turn, with a suite of so many cases and a home of so many runs.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from benchmarks.goals import Figure, argument_parser, table
from benchmarks.made_up_run import write_cases, write_recorded
from benchmarks.results_list import write_runs
from benchmarks.terminal import Terminal

REPOSITORY = Path(__file__).parent.parent
SPBENCH = str(Path(sys.executable).parent / "spbench")
WARM_UP = 5.0
"""Seconds after the run is watched that are not measured."""
F1 = "\x1bOP"
BACKWARDS = "\x1b[Z"
TABLE_KEYS = (("s", "p95 ms"), ("j", "▸"), ("S", "p95 ms"), ("k", "▸"))
"""Sort by the next column, a row down, turn the order round, a row up: and what then appears.

The heading is drawn whenever rows are sorted; its arrow is missing where they are in natural order.
"""
HELP_KEYS = ((F1, "Sort"), (F1, "Results"))
ROW_KEYS = (("j", "▸"), ("k", "▸"))
TO_A_FIELD = ("5", *[BACKWARDS] * 3)
"""The page Plan, and from its table back to a field."""
FIELD_KEYS = (("7", "7"), ("\x7f", "."))
"""A digit into a field, and away again."""
MANY = """\
schema: spbench.suite/1
name: many
cases:
  - name: pingpong
    benchmark: link.pingpong
    np: 2
    matrix:
      iterations: [{values}]
"""
REPLAYED = 100_000
SAMPLES = 1_000_000


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="starts (default: 9)")
    parser.add_argument("--seconds", type=float, default=60, help="of keys (default: 60)")
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--rate", type=int, default=1000, help="events a second")
    parser.add_argument("--cases", type=int, default=2000, help="of the suite on each page")
    parser.add_argument("--runs", type=int, default=500, help="of the home on each page")
    words = parser.parse_args()
    paint, page = first_paint(words.rounds)
    figures = [
        Figure("first paint", paint, "s", most=0.6),
        Figure("the first page with its keys", page, "s"),
    ]
    watching = under_load(words.ranks, words.rate, words.seconds)
    figures += [
        Figure("a key's answer, p50", median(watching.answers), "ms"),
        Figure("a key's answer, p95", quantiles(watching.answers, n=20)[-1], "ms", most=50),
        Figure("processor time, of one core", watching.load, "%", most=30),
        Figure("help opened or closed, p50", median(watching.help), "ms"),
        Figure("help opened or closed, p95", quantiles(watching.help, n=20)[-1], "ms"),
        Figure(f"replay of {REPLAYED:,} events", replay(), "s", most=3),
    ]
    figures += on_pages(words.cases, words.runs, words.seconds / 5)
    keys = len(watching.answers)
    print(f"{words.ranks:,} ranks, {words.rate:,} events a second, {keys} keys")
    print(table([*figures, *memory()]))


def first_paint(rounds: int) -> tuple[float, float]:
    """Return the median seconds from the command's start to its tabs, and to a whole page."""
    paints = []
    pages = []
    with tempfile.TemporaryDirectory() as home:
        for _ in range(rounds):
            with Terminal([SPBENCH, "tui", "--home", home], REPOSITORY) as terminal:
                paints.append(terminal.wait_for("Results"))
                pages.append(terminal.wait_for("Palette"))
    return median(paints), median(pages)


@dataclass(frozen=True, slots=True)
class Watching:
    """The cost of watching a large run.

    Attributes:
        answers: Times in ms of answers to the table's keys.
        load: Processor time in % of one core meanwhile.
        help: Times in ms to open the help over the page, and to close it again.
    """

    answers: list[float]
    load: float
    help: list[float]


def under_load(ranks: int, rate: int, seconds: float) -> Watching:
    """Return what it costs to watch a run of so many ranks and events a second."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as home:
        folder = Path(home, "runs", "20260101-000000-made-up-0000")
        options = f"--ranks {ranks} --rate {rate} --seconds {2 * seconds + 60}".split()
        writer = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.made_up_run", str(folder), *options], cwd=REPOSITORY
        )
        try:
            while not (folder / "events.jsonl").exists():
                time.sleep(0.1)
            with Terminal([SPBENCH, "tui", "--home", home], REPOSITORY) as terminal:
                terminal.wait_for("still running")
                terminal.press("y")
                terminal.wait_for("timing|setup|node003")
                terminal.rest(WARM_UP)
                spent = terminal.processor_seconds()
                started = time.monotonic()
                answers = _press(terminal, TABLE_KEYS, seconds)
                passed = time.monotonic() - started
                load = 100 * (terminal.processor_seconds() - spent) / passed
                return Watching(answers, load, _press(terminal, HELP_KEYS, seconds))
        finally:
            writer.kill()
            writer.wait()


def _press(terminal: Terminal, keys: Sequence[tuple[str, str]], seconds: float) -> list[float]:
    """Press keys at random times for so long; return the ms until each one's effect is shown."""
    answers: list[float] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for key, effect in keys:
            terminal.rest(random.uniform(0.2, 0.5))
            terminal.press(key)
            answers.append(1000 * terminal.wait_for(effect))
    return answers


def on_pages(cases: int, runs: int, seconds: float) -> list[Figure]:
    """Return the p95 of a key's answer on each page, with so many cases and runs."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as place:
        home = Path(place, "home")
        suite = Path(place, "many.yaml")
        write_runs(home, runs - 1)
        write_cases(home / "runs" / "20300101-000000-many-0000", cases, 4, 5)
        values = ", ".join(map(str, range(1, cases + 1)))
        suite.write_text(MANY.format(values=values))
        words = [SPBENCH, "tui", str(suite), "--home", str(home)]
        with Terminal(words, REPOSITORY) as terminal:
            terminal.wait_for(f"{cases:,} cases|{cases} cases")
            figures = [_answers("Suites", terminal, ROW_KEYS, seconds)]
            terminal.press("3")
            terminal.wait_for("many")
            terminal.rest(2.0)
            figures.append(_answers("Results", terminal, ROW_KEYS, seconds))
            terminal.press("o")
            terminal.wait_for("events/s|passed|failed")
            terminal.rest(2.0)
            figures.append(_answers("Run", terminal, ROW_KEYS, seconds))
            for opens, page, keys in (("4", "Hosts", ROW_KEYS), (TO_A_FIELD, "Plan", FIELD_KEYS)):
                for key in opens:
                    terminal.press(key)
                    terminal.rest(1.0)
                figures.append(_answers(page, terminal, keys, seconds))
    return figures


def _answers(
    page: str, terminal: Terminal, keys: Sequence[tuple[str, str]], seconds: float
) -> Figure:
    answers = _press(terminal, keys, seconds)
    return Figure(f"a key on the page {page}, p95", quantiles(answers, n=20)[-1], "ms", most=50)


def replay() -> float:
    """Return the seconds from the start of a replay at full speed to its verdict."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as home:
        folder = Path(home, "runs", "20260101-000000-made-up-0000")
        write_recorded(folder, 64, REPLAYED)
        words = [SPBENCH, "replay", folder.name, "--speed", "max", "--home", home]
        with Terminal(words, REPOSITORY) as terminal:
            seconds = terminal.wait_for("passed 1/1")
            terminal.press("q")
        return seconds


def memory() -> list[Figure]:
    """Return how much the process grows with a million samples, in this process."""
    from spbench.record.runs.folder import RunFolder
    from spbench.record.runs.follow import RecordedEvents
    from spbench.tui.feed import Feed, ReplaySource

    with tempfile.TemporaryDirectory(prefix="spbench-") as home:
        folder = RunFolder(Path(home, "made-up"))
        write_recorded(folder.path, 64, SAMPLES // 10, values=10)
        before = resident()
        feed = Feed(folder, ReplaySource(RecordedEvents(folder.events), None))
        asyncio.run(feed.follow())
        grown = resident() - before
        samples = sum(feed.rows.row(rank).iterations for rank in feed.rows.ranks())
    return [Figure(f"memory for {samples:,} samples", grown, "MiB", most=64)]


def resident() -> float:
    """Return this process's memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    os.environ.setdefault("TERM", "xterm-256color")
    main()
