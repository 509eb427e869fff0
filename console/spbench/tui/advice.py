"""Messages of the command line in terms of the TUI: its keys instead of options."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spbench.errors import Advice

KEYS_BY_ADVICE: Mapping[Advice, str] = {
    Advice.ONLY_SHOW_LINES: "L chooses a launcher that is installed here",
    Advice.LEAVE_HOSTS_OUT: "or H chooses hosts without them",
    Advice.FIX_OR_SKIP_HOSTS: "r on the Hosts page shows how to fix it, H chooses other hosts",
}
"""The remedy in the TUI for each advice that names options."""
SETTING_KEY = "D in the cases of the Suites page"
"""The key for a setting of all cases of a suite."""
_TEXT_BY_COMMAND = {
    " `spbench gate check` shows how many launches find which slowdown.": "",
    "use `spbench compare --force`": "choose another baseline with b",
    "Use `spbench compare --force` to compare anyway.": (
        "Mark two other runs with Space to compare them."
    ),
}
"""Texts for commands instead of which the TUI has keys."""
_ITERATIONS = re.compile(r"take more iterations \(`--set iterations=(\d+)`\)")
"""The advice for one case that was too short."""
_TEXT_BY_OPTION = {
    " `--fail-on worse` accepts that.": "",
    "--hostfile": "the hostfile",
    "--hosts": "the list of hosts",
    "--exclude-hosts": "the hosts to leave out",
    "--assume": "the assumed library",
    "--launcher ": "launcher ",
    "--case ": "case ",
    "planted by --inject ": "fault found, as planted: ",
    "--inject ": "fault ",
    "--profile-batch-size": "it in the field next to the profile",
    "--micro-batch-size": "Micro-batch",
}
"""Texts for the options that a user of the TUI does not type."""
_SETTING = re.compile(r"`?--set (\w+)=(\w+)`?")
"""A setting as an option, such as ``--set repeat=4``."""
_DOCTOR = re.compile(r"check its host with: spbench doctor( --hosts \S+)?")
"""The advice to examine a host."""
_SHOW_RUN = re.compile(r"See `spbench results show \S+` for the details\.")
"""The advice to show a run."""
_COMMAND = re.compile(r"(spbench [a-z][^;,`]*)")
"""A command to run in a shell, which keeps its options."""


def name_keys(message: str) -> str:
    """Return a message with the keys and dialogs of the TUI instead of options."""
    for advice, keys in KEYS_BY_ADVICE.items():
        message = message.replace(advice.value, keys)
    for command, text in _TEXT_BY_COMMAND.items():
        message = message.replace(command, text)
    message = _SHOW_RUN.sub("Enter on a case shows its details in b.", message)
    message = _DOCTOR.sub(_name_hosts_page, message)
    parts = _COMMAND.split(message)
    # Every second part is a command.
    parts[::2] = [_replace_options(part) for part in parts[::2]]
    return "".join(parts)


def _name_hosts_page(doctor: re.Match[str]) -> str:
    return "page 4 checks its host" if doctor[1] else "page 4 checks this machine"


def _replace_options(text: str) -> str:
    for option, replacement in _TEXT_BY_OPTION.items():
        text = text.replace(option, replacement)
    text = _ITERATIONS.sub(r"take \1 iterations (F3 on the Suites page)", text)
    return _SETTING.sub(rf"\1: \2 ({SETTING_KEY})", text)
