"""Random keys, clicks, pastes and sizes of the terminal on the console's pages.

    python -m benchmarks.random_keys [--events 20000] [--seed 1]

No event may cause an error. The console runs in this process, on synthetic runs in a separate
folder. It starts no run and asks no host. Each event is drawn from --seed, so that an error can be
repeated. The seed and the last events are printed with the error, and the exit code is 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import random
import shutil
import string
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.goals import make_argument_parser
from benchmarks.synthetic_run import write_cases, write_recorded
from textual.events import Paste
from textual.pilot import Pilot

from spbench.tui.app import ConsoleApp
from spbench.tui.context import ConsoleOptions
from spbench.tui.hosts.page import HostsPage
from spbench.tui.pages import PAGES

SUITES = Path(__file__).parents[1] / "suites"
LETTERS = f"{string.ascii_letters}/?:+-=.,[]{{}}#'\"0123456789 äß│"
KEYS = (
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "tab", "shift+tab"),
    *("enter", "escape", "space", "backspace", "delete", "ctrl+p", "ctrl+z", "ctrl+y", "ctrl+s"),
    *("ctrl+n", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "shift+down", "ctrl+u", "ctrl+a"),
    *("ctrl+f", "ctrl+r", "colon", "question_mark", "slash"),  # searches and the list of keys
)
WORDS = ("results", "halo", "rank", "node01", "iter", "failed")
"""Texts that are typed as a whole, for searches that find something."""
PASTES = ("1, 2", "{a: [1, 2", "\n- name: x\n  benchmark: halo.exchange\n", "\x1b[31m", "é" * 300)
SIZES = ((80, 24), (200, 60), (120, 36), (40, 10), (20, 5), (300, 80))
SHARES = (
    *(("page", 6), ("letter", 38), ("key", 40), ("click", 8)),
    *(("word", 2), ("paste", 2), ("size", 4)),
)
"""The kinds of events, and their shares in percent."""
LAST_EVENTS = 40
SETTLE = 0.001
PROGRESS_EVENTS = 500
FIRST_DAY = 20260101
DrawnEvent = tuple[str, Any]


class DrivenApp(ConsoleApp):
    """The console without effects outside of it; an error ends it."""

    CSS_PATH = Path(inspect.getfile(ConsoleApp)).with_name("console.tcss")
    CONTAINS_FAILURES = False

    def __init__(self, options: ConsoleOptions) -> None:
        super().__init__(options)
        vars(self.context).update(start_run=start_no_run)


def start_no_run(
    args: Sequence[str],
    folder: Path | None = None,
    start_again: Callable[[], None] | None = None,
    show: bool = True,
) -> None:
    """Ignore a start; the signature is that of `ConsoleContext.start_run`."""


def draw_event(generator: random.Random, app: ConsoleApp) -> DrawnEvent:
    """Return an event of a random kind."""
    (kind,) = generator.choices([name for name, _ in SHARES], [share for _, share in SHARES])
    match kind:
        case "page":
            return kind, generator.choice(PAGES).name
        case "letter":
            return kind, generator.choice(LETTERS)
        case "key":
            return kind, generator.choice(KEYS)
        case "click":
            width, height = app.size
            offset = generator.randrange(max(1, width)), generator.randrange(max(1, height))
            return kind, (offset, generator.choice((1, 1, 2)))
        case "word":
            return kind, generator.choice(WORDS)
        case "paste":
            return kind, generator.choice(PASTES)
    return kind, generator.choice(SIZES)


EventSource = Callable[[random.Random, ConsoleApp], DrawnEvent]
"""Draws the next event of a console."""


def main() -> int:
    """Draw the events and send them to the console."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        error, last = asyncio.run(
            try_events(Path(folder), options.seed, options.events, progress=True)
        )
    if error is None:
        print(f"{options.events:,} events, seed {options.seed}: no error")
        return 0
    print("".join(traceback.format_exception(error)))
    print(f"an error with --seed {options.seed}; the last events:", *last, sep="\n")
    return 1


async def try_events(
    folder: Path,
    seed: int,
    events: int,
    *,
    progress: bool = False,
    draw_event: EventSource = draw_event,
) -> tuple[BaseException | None, Sequence[DrawnEvent]]:
    """Send events to consoles, one after another, until an error.

    Args:
        folder: An empty folder, which they may write into.
        seed: The seed of the events.
        events: The number of events.
        progress: Whether progress is printed.
        draw_event: Returns the next event of a console.

    Returns:
        The error or None, and the last events.
    """
    write_inputs(folder)
    generator = random.Random(seed)
    last = deque[DrawnEvent](maxlen=LAST_EVENTS)
    start_survey = HostsPage._start_survey
    setattr(HostsPage, "_start_survey", _skip_survey)  # noqa: B010 mypy allows no other way
    count = 0
    try:
        with contextlib.chdir(folder):
            while count < events:
                async for _ in _drive_console(folder, generator, draw_event, events - count, last):
                    count += 1
                    if progress and count % PROGRESS_EVENTS == 0:
                        print(f"{count:,} of {events:,} events", file=sys.stderr, flush=True)
    except BaseException as error:
        return error, last
    finally:
        setattr(HostsPage, "_start_survey", start_survey)  # noqa: B010
    return None, last


def write_inputs(folder: Path) -> None:
    """Write suites, hosts and synthetic runs into an empty folder."""
    (folder / "suites").mkdir()
    for name in ("halo.yaml", "smoke.yaml", "links.yaml"):
        shutil.copy(SUITES / name, folder / "suites" / name)
    (folder / "suites" / "wrong.yaml").write_text("schema: spbench.suite/1\nname: wrong\n")
    (folder / "hostfiles").mkdir()
    (folder / "hostfiles" / "four.hosts").write_text("node[01-04]:2\n")
    runs = folder / "home" / "runs"
    for number in range(6):
        write_recorded(runs / f"{FIRST_DAY + number}-000000-made-up-000{number}", 8, 200)
    write_cases(runs / f"{FIRST_DAY + 9}-000000-cases-0000", 40, 4, 5, 2)


def _skip_survey(page: HostsPage, queries: Any) -> None:
    queries.close()


async def _drive_console(
    folder: Path,
    generator: random.Random,
    draw_event: EventSource,
    events: int,
    last: deque[DrawnEvent],
) -> AsyncIterator[None]:
    """Send events to a console until it ends or no events remain; yield after each."""
    environ = dict(os.environ) | {"SPBENCH_CONFIG": str(folder / "console.yaml")}
    options = ConsoleOptions(
        home=folder / "home",
        environ=environ,
        folder=folder,
        suite=folder / "suites" / generator.choice(("halo.yaml", "links.yaml")),
        page=generator.choice(PAGES).name,
    )
    app = DrivenApp(options)
    count = 0
    async with app.run_test(size=generator.choice(SIZES[:3])) as pilot:
        while count < events and app.is_running and app._exit is False:
            event = draw_event(generator, app)
            last.append(event)
            count += 1
            await _send_event(pilot, event)
            yield


async def _send_event(pilot: Pilot[Any], event: DrawnEvent) -> None:
    app = pilot.app
    (kind, argument) = event
    match kind:
        case "page":
            if not app.screen.is_modal:
                app.context.show_page(argument)  # type: ignore[attr-defined]
        case "click":
            with contextlib.suppress(Exception):  # the screen may be smaller by now
                (offset, times) = argument
                await pilot.click(offset=offset, times=times)
        case "word":
            await pilot.press(*argument)
        case "paste":
            app.post_message(Paste(argument))
        case "size":
            await pilot.resize_terminal(*argument)
        case _:
            await pilot.press(argument)
    await pilot.pause(SETTLE)


if __name__ == "__main__":
    sys.exit(main())
