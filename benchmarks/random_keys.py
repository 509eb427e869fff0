"""Random keys, clicks, pastes and sizes of the terminal, on all pages: none may break the console.

    python -m benchmarks.random_keys [--events 20000] [--seed 1] [--log FILE]

The console is driven in this process, on made-up runs in a folder of its own; it starts no run and
asks no host. Each event is drawn from --seed, so that what went wrong can be done again; the last
ones are printed with the error. Ends with 1 where there was one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.goals import argument_parser
from benchmarks.made_up_run import write_cases, write_recorded
from textual.events import Paste
from textual.pilot import Pilot

from spbench.tui.app import ConsoleApp
from spbench.tui.context import ConsoleOptions
from spbench.tui.hosts.page import HostsPage
from spbench.tui.pages import PAGES

SUITES = Path(__file__).parents[1] / "suites"
LETTERS = "abcdefghijklmnopqrstuvwxyzBDEGHLNSW/?+-=.,:[]{}#'\"0123456789 äß│"
KEYS = (
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "tab", "shift+tab"),
    *("enter", "escape", "space", "backspace", "delete", "ctrl+p", "ctrl+z", "ctrl+y", "ctrl+s"),
    *("ctrl+n", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "shift+down", "ctrl+u", "ctrl+a"),
)
PASTES = ("1, 2", "{a: [1, 2", "\n- name: x\n  benchmark: halo.exchange\n", "\x1b[31m", "é" * 300)
SIZES = ((80, 24), (200, 60), (120, 36), (40, 10), (20, 5), (300, 80))
SHARES = (("page", 6), ("letter", 40), ("key", 40), ("click", 8), ("paste", 2), ("size", 4))
"""The kinds of events, and how many of a hundred each has."""
REMEMBERED = 40
SETTLE = 0.001
TOLD_EVERY = 500
DAY = 20260101
Drawn = tuple[str, Any]


class DrivenApp(ConsoleApp):
    """The console without what it would do outside of itself; an error ends it."""

    CSS_PATH = Path(inspect.getfile(ConsoleApp)).with_name("console.tcss")
    CONTAINS_FAILURES = False

    def __init__(self, opening: ConsoleOptions) -> None:
        super().__init__(opening)
        vars(self.context).update(start_run=lambda words, folder=None: None)


def main() -> int:
    """Draw the events and give them to the console."""
    parser = argument_parser(__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        error, last = asyncio.run(tried(Path(folder), words.seed, words.events, told=True))
    if error is None:
        print(f"{words.events:,} events, seed {words.seed}: no error")
        return 0
    print("".join(traceback.format_exception(error)), "the last events:", *last, sep="\n")
    return 1


async def tried(
    folder: Path, seed: int, events: int, *, told: bool = False
) -> tuple[BaseException | None, Sequence[Drawn]]:
    """Give so many events to consoles, one after another; return the first error, and the last.

    Args:
        folder: An empty folder, which they may write into.
        seed: Of the draws.
        events: The number of events.
        told: Whether progress is printed.
    """
    furnish(folder)
    draw = random.Random(seed)
    last = deque[Drawn](maxlen=REMEMBERED)
    asking = HostsPage._start_survey
    setattr(HostsPage, "_start_survey", _ask_nobody)  # noqa: B010 mypy allows no other way
    done = 0
    try:
        with contextlib.chdir(folder):
            while done < events:
                async for _ in _one_console(folder, draw, events - done, last):
                    done += 1
                    if told and done % TOLD_EVERY == 0:
                        print(f"{done:,} of {events:,} events", file=sys.stderr, flush=True)
    except BaseException as error:
        return error, last
    finally:
        setattr(HostsPage, "_start_survey", asking)  # noqa: B010
    return None, last


def furnish(folder: Path) -> None:
    """Write suites, hosts and made-up runs into an empty folder."""
    (folder / "suites").mkdir()
    for name in ("halo.yaml", "smoke.yaml", "links.yaml"):
        shutil.copy(SUITES / name, folder / "suites" / name)
    (folder / "suites" / "wrong.yaml").write_text("schema: spbench.suite/1\nname: wrong\n")
    (folder / "hostfiles").mkdir()
    (folder / "hostfiles" / "four.hosts").write_text("node[01-04]:2\n")
    runs = folder / "home" / "runs"
    for number in range(6):
        write_recorded(runs / f"{DAY + number}-000000-made-up-000{number}", 8, 200)
    write_cases(runs / f"{DAY + 9}-000000-cases-0000", 40, 4, 5, 2)


def _ask_nobody(page: HostsPage, asking: Any) -> None:
    asking.close()


async def _one_console(
    folder: Path, draw: random.Random, events: int, last: deque[Drawn]
) -> AsyncIterator[None]:
    """Give events to a console until it is left, or there are no more; yield after each."""
    environ = dict(os.environ) | {"SPBENCH_CONFIG": str(folder / "console.yaml")}
    opening = ConsoleOptions(
        home=folder / "home",
        environ=environ,
        folder=folder,
        suite=folder / "suites" / draw.choice(("halo.yaml", "links.yaml")),
        page=draw.choice(PAGES).name,
    )
    app = DrivenApp(opening)
    given = 0
    async with app.run_test(size=draw.choice(SIZES[:3])) as pilot:
        while given < events and app.is_running and app._exit is False:
            drawn = _draw(draw, app)
            last.append(drawn)
            given += 1
            await _give(pilot, drawn)
            yield


def _draw(draw: random.Random, app: ConsoleApp) -> Drawn:
    (kind,) = draw.choices([name for name, _ in SHARES], [share for _, share in SHARES])
    match kind:
        case "page":
            return kind, draw.choice(PAGES).name
        case "letter":
            return kind, draw.choice(LETTERS)
        case "key":
            return kind, draw.choice(KEYS)
        case "click":
            width, height = app.size
            return kind, (draw.randrange(max(1, width)), draw.randrange(max(1, height)))
        case "paste":
            return kind, draw.choice(PASTES)
    return kind, draw.choice(SIZES)


async def _give(pilot: Pilot[Any], drawn: Drawn) -> None:
    app = pilot.app
    (kind, what) = drawn
    match kind:
        case "page":
            if not app.screen.is_modal:
                app.context.show_page(what)  # type: ignore[attr-defined]
        case "click":
            with contextlib.suppress(Exception):  # the screen may be smaller by now
                await pilot.click(offset=what)
        case "paste":
            app.post_message(Paste(what))
        case "size":
            await pilot.resize_terminal(*what)
        case _:
            await pilot.press(what)
    await pilot.pause(SETTLE)


if __name__ == "__main__":
    sys.exit(main())
