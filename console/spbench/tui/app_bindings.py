"""The keys that work on all pages."""

from __future__ import annotations

from spbench.tui.pages import PAGES
from spbench.tui.widgets.keys import make_binding

APP_BINDINGS = (
    *(
        make_binding(
            f"app.{entry.name}",
            str(digit),
            f"show_page('{entry.name}')",
            entry.title,
            f"Show the page {entry.title}",
        )
        for digit, entry in enumerate(PAGES, 1)
    ),
    make_binding(
        "launch.launcher",
        "L",
        "choose('launcher')",
        "Launcher",
        "Choose the launcher of runs, or show launch lines",
    ),
    make_binding(
        "launch.hosts", "H", "choose('hosts')", "Choose hosts", "Choose the hosts of runs from here"
    ),
    make_binding(
        "launch.environment",
        "E",
        "choose('environment')",
        "Environment",
        "Add to the environment of the ranks of runs from here",
    ),
    make_binding("app.quit", "ctrl+q", "leave", "Quit", "Quit the console", show=True),
    make_binding("app.ask-to-quit", "q", "leave(True)", "Ask to quit", "Ask, then quit"),
    make_binding(
        "app.cheat-sheet",
        "question_mark",
        "cheat_sheet",
        "Keys",
        "Show the most important keys of this page",
        show=True,
    ),
    make_binding(
        "app.settings",
        "comma",
        "settings",
        "Settings",
        "Settings (preferences): theme, refresh rate and keys",
    ),
    make_binding("app.jump", "colon", "jump", "Jump", "Go to a suite, run, host or case"),
    make_binding(
        "app.messages", "f9", "messages", "Messages", "Show the messages so far, also those gone"
    ),
    make_binding(
        "app.help",
        "f1",
        "help",
        "Help",
        "Explain the focused pane and list its keys",
        show=True,
    ),
    make_binding(
        "app.palette", "ctrl+p", "command_palette", "Palette", "Find any action", show=True
    ),
)
