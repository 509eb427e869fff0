"""Failures of launchers: their own messages, put into one sentence."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """A message that a launcher prints, and what it says in plain words."""

    pattern: re.Pattern[str]
    sentence: str | Callable[[re.Match[str]], str]

    def tell(self, match: re.Match[str]) -> str:
        """Return the sentence with the message's numbers and names filled in."""
        if callable(self.sentence):
            return self.sentence(match)
        return self.sentence.format(*match.groups(), **match.groupdict())


def failure(pattern: str, sentence: str | Callable[[re.Match[str]], str]) -> Failure:
    """Return a Failure; ``{name}`` in the sentence stands for the pattern's group."""
    return Failure(re.compile(pattern, re.MULTILINE), sentence)


def first_sentence(failures: Sequence[Failure], text: str) -> str | None:
    """Return the sentence of the first failure, in the order given, that the text holds."""
    for known in failures:
        match = known.pattern.search(text)
        if match:
            return known.tell(match)
    return None


def killed(who: str, number: int, *, many: bool = False) -> str:
    """Return ``WHO was killed by signal 9 (SIGKILL)``."""
    try:
        name = f" ({signal.Signals(number).name})"
    except ValueError:
        name = ""
    return f"{who} {'were' if many else 'was'} killed by signal {number}{name}"


SSH_FAILURES = (
    failure(
        r"Could not resolve hostname (?P<host>[^\s:]+)",
        "host {host} cannot be reached: its name does not resolve",
    ),
    failure(
        r"connect to host (?P<host>\S+) port \d+: (?P<why>[^\r\n]+)",
        "host {host} cannot be reached by ssh: {why}",
    ),
    failure(
        r"^(?:\S+@)?(?P<host>[^\s:]+): Permission denied \(",
        "host {host} refuses ssh without a password: give it this account's key",
    ),
    failure(
        r"Host key verification failed",
        "ssh does not know the key of a host: connect to each host once by hand",
    ),
)
"""What ssh itself says; every launcher that starts hosts by ssh passes it on."""
