"""Speed of the console in a terminal: start, keys, processor time, memory, replay.

    python -m benchmarks.console [--rounds 9] [--seconds 60] [--ranks 4096] [--rate 1000]
        [--cases 2000] [--runs 500]

The console runs like a user's, in a separate terminal (200x60), and is timed by its output there.
While `benchmarks.synthetic_run` writes events of that many ranks, keys are pressed. A key is
answered when its effect is on the terminal. The writer uses the other core. Then keys are pressed
on every page, with a suite of that many cases and a home of that many runs.
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

from benchmarks.goals import Figure, format_figures, make_argument_parser
from benchmarks.results_list import write_runs
from benchmarks.synthetic_run import CONSOLE_ARGUMENTS, write_cases, write_recorded
from benchmarks.terminal import Terminal

REPOSITORY = Path(__file__).parent.parent
SPBENCH = str(Path(sys.executable).parent / "spbench")
WARM_UP = 5.0
"""Seconds at the start of watching that are not measured."""
MIN_PAGE_SECONDS = 12.0
"""Seconds of keys on a page: more than 30 keys, so that one of them does not decide on the p95."""
F1 = "\x1bOP"
SHIFT_TAB = "\x1b[Z"
START_TEXTS = ("spbench: opening", "Results", "Palette")
"""Texts of the first line, of the tabs, and of the keys of the first page."""
HEADING = r"p99\W+skew"
TABLE_KEYS = (("s", HEADING), ("j", "▸"), ("k", "▸"), ("S", HEADING))
"""Keys and their effects: sort by the next column, row down, row up, reverse the order.

The heading is drawn whenever rows are sorted, which puts the cursor on the top row. An arrow may
follow each of its titles.
"""
HELP_KEYS = ((F1, "Rows that change"), (F1, "Results"))
"""Keys and their effects: open the help of a table, and close it."""
ROW_KEYS = (("j", "▸"), ("k", "▸"))
KEYS_TO_FIELD = ("5", *[SHIFT_TAB] * 3)  # the page Plan, and from its table back to a field
FIELD_KEYS = (("7", "7"), ("\x7f", "."))  # type a digit into a field, and delete it
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
    parser = make_argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="starts (default: 9)")
    parser.add_argument("--seconds", type=float, default=60, help="of keys (default: 60)")
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--rate", type=int, default=1000, help="events a second")
    parser.add_argument("--cases", type=int, default=2000, help="of the suite on each page")
    parser.add_argument("--runs", type=int, default=500, help="of the home on each page")
    options = parser.parse_args()
    line, frame, page = measure_start(options.rounds)
    figures = [
        Figure("the first line", line, "s", maximum=0.3),
        Figure("the tabs", frame, "s"),
        Figure("the first page with its keys", page, "s", maximum=0.6),
    ]
    cost = measure_watching(options.ranks, options.rate, options.seconds)
    figures += [
        Figure("a key's answer, p50", median(cost.answer_ms), "ms"),
        Figure("a key's answer, p95", compute_p95(cost.answer_ms), "ms", maximum=50),
        Figure("processor time, of one core", cost.load, "%", maximum=30),
        Figure("help opened or closed, p50", median(cost.help_ms), "ms"),
        Figure("help opened or closed, p95", compute_p95(cost.help_ms), "ms"),
        Figure(f"replay of {REPLAYED:,} events", measure_replay(), "s", maximum=3),
    ]
    page_seconds = max(MIN_PAGE_SECONDS, options.seconds / 5)
    figures += measure_pages(options.cases, options.runs, page_seconds)
    keys = len(cost.answer_ms)
    print(f"{options.ranks:,} ranks, {options.rate:,} events a second, {keys} keys")
    print(format_figures([*figures, *measure_memory()]))


def measure_start(rounds: int) -> tuple[float, ...]:
    """Return the median seconds to the first line, the tabs and a complete page."""
    seconds: list[list[float]] = [[] for _ in START_TEXTS]
    with tempfile.TemporaryDirectory() as home:
        for _ in range(rounds):
            with Terminal([SPBENCH, "tui", "--home", home], REPOSITORY) as terminal:
                for index, text in enumerate(START_TEXTS):
                    seconds[index].append(terminal.wait_for_text(text))
    return tuple(map(median, seconds))


@dataclass(frozen=True, slots=True)
class WatchCost:
    """The cost of watching a large run.

    Attributes:
        answer_ms: Times from a key of the table to its effect.
        load: Processor time in % of one core during the keys.
        help_ms: Times to open or close the help over the page.
    """

    answer_ms: list[float]
    load: float
    help_ms: list[float]


def measure_watching(ranks: int, rate: int, seconds: float) -> WatchCost:
    """Return the cost of watching a run of that many ranks and events per second."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as home:
        folder = Path(home, "runs", "20260101-000000-made-up-0000")
        options = f"--ranks {ranks} --rate {rate} --seconds {2 * seconds + 60}".split()
        command = [sys.executable, "-m", "benchmarks.synthetic_run", str(folder), *options]
        writer = subprocess.Popen([*command, *CONSOLE_ARGUMENTS], cwd=REPOSITORY)
        try:
            while not (folder / "events.jsonl").exists():
                time.sleep(0.1)
            with Terminal([SPBENCH, "tui", "--home", home], REPOSITORY) as terminal:
                terminal.wait_for_text("still running")
                terminal.press("y")
                terminal.wait_for_text("timing|setup|node003")
                terminal.rest(WARM_UP)
                spent = terminal.processor_seconds()
                started = time.monotonic()
                answer_ms = _press_keys(terminal, TABLE_KEYS, seconds)
                passed = time.monotonic() - started
                load = 100 * (terminal.processor_seconds() - spent) / passed
                return WatchCost(answer_ms, load, _press_keys(terminal, HELP_KEYS, seconds))
        finally:
            writer.kill()
            writer.wait()


def _press_keys(terminal: Terminal, keys: Sequence[tuple[str, str]], seconds: float) -> list[float]:
    """Press keys at random times for that many seconds; return their times in ms.

    A key's time ends when its effect is shown.
    """
    answer_ms: list[float] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for key, effect in keys:
            terminal.rest(random.uniform(0.2, 0.5))
            terminal.press(key)
            answer_ms.append(1000 * terminal.wait_for_text(effect))
    return answer_ms


def measure_pages(cases: int, runs: int, seconds: float) -> list[Figure]:
    """Return the p95 of a key's answer on each page, with that many cases and runs."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        home = Path(folder, "home")
        suite = Path(folder, "many.yaml")
        write_runs(home, runs - 1)
        write_cases(home / "runs" / "20300101-000000-many-0000", cases, 4, 5)
        values = ", ".join(map(str, range(1, cases + 1)))
        suite.write_text(MANY.format(values=values))
        command = [SPBENCH, "tui", str(suite), "--home", str(home)]
        with Terminal(command, REPOSITORY) as terminal:
            terminal.wait_for_text(f"{cases:,} cases|{cases} cases")
            figures = [_measure_page("Suites", terminal, ROW_KEYS, seconds)]
            terminal.press("3")
            terminal.wait_for_text("many")
            terminal.rest(2.0)
            figures.append(_measure_page("Results", terminal, ROW_KEYS, seconds))
            terminal.press("o")
            terminal.wait_for_text("events/s|passed|failed")
            terminal.rest(2.0)
            figures.append(_measure_page("Run", terminal, ROW_KEYS, seconds))
            for opens, page, keys in (
                ("4", "Hosts", ROW_KEYS),
                (KEYS_TO_FIELD, "Plan", FIELD_KEYS),
            ):
                for key in opens:
                    terminal.press(key)
                    terminal.rest(1.0)
                figures.append(_measure_page(page, terminal, keys, seconds))
    return figures


def _measure_page(
    page: str, terminal: Terminal, keys: Sequence[tuple[str, str]], seconds: float
) -> Figure:
    answer_ms = _press_keys(terminal, keys, seconds)
    return Figure(f"a key on the page {page}, p95", compute_p95(answer_ms), "ms", maximum=50)


def compute_p95(values: Sequence[float]) -> float:
    """Return the 95th percentile, which is between two of the values."""
    return quantiles(values, n=20, method="inclusive")[-1]


def measure_replay() -> float:
    """Return the seconds from the start of a replay at full speed to its end."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as home:
        folder = Path(home, "runs", "20260101-000000-made-up-0000")
        write_recorded(folder, 64, REPLAYED)
        command = [SPBENCH, "replay", folder.name, "--speed", "max", "--home", home]
        with Terminal(command, REPOSITORY) as terminal:
            seconds = terminal.wait_for_text("passed 1/1")
            terminal.press("\x11")  # Ctrl+Q
        return seconds


def measure_memory() -> list[Figure]:
    """Return the growth of this process's memory with a million samples."""
    from spbench.record.runs.folder import RunFolder
    from spbench.record.runs.follow import RecordedEvents
    from spbench.tui.feed import Feed, ReplaySource

    with tempfile.TemporaryDirectory(prefix="spbench-") as home:
        folder = RunFolder(Path(home, "made-up"))
        write_recorded(folder.path, 64, SAMPLES // 10, values=10)
        before = read_resident_memory()
        feed = Feed(folder, ReplaySource(RecordedEvents(folder.events), None))
        asyncio.run(feed.follow())
        grown = read_resident_memory() - before
        samples = sum(feed.rows.row(rank).iterations for rank in feed.rows.ranks())
    return [Figure(f"memory for {samples:,} samples", grown, "MiB", maximum=64)]


def read_resident_memory() -> float:
    """Return this process's resident memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    os.environ.setdefault("TERM", "xterm-256color")
    main()
