"""The places that one can jump to: suites, runs, hosts and cases; and the search for one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from spbench.record.runs.history import KnownRuns, RunSummary, update_known_runs
from spbench.suites.case import Case
from spbench.tui.cells import format_status
from spbench.tui.context import ConsoleOptions
from spbench.tui.feed import Feed
from spbench.tui.hosts.sources import read_sources
from spbench.tui.suites.tree import list_files

_PREFIX_SCORE = 4
_PART_SCORE = 3
_ELSEWHERE_SCORE = 2
_LETTERS_SCORE = 1


class PlaceKind(Enum):
    """A kind of place."""

    SUITE = "suite"
    RUN = "run"
    HOST = "host"
    CASE = "case"


@dataclass(frozen=True, slots=True)
class Place:
    """A suite, run, host or case.

    Attributes:
        name: Its name.
        location: Where it is, for the user.
        key: The path of a suite, the source of a host, or the page of a case.
    """

    kind: PlaceKind
    name: str
    location: str
    key: str = ""

    @property
    def search_text(self) -> str:
        """The text in which words are looked for, in lower case."""
        return f"{self.kind.value} {self.name} {self.location}".lower()


class PlaceReader:
    """Reads the places on disk; a second time it reads only what has changed."""

    def __init__(self, options: ConsoleOptions) -> None:
        self._options = options
        self._runs: KnownRuns | None = None

    def read(self) -> list[Place]:
        """Return suites, runs, the newest first, and hosts; call it in a thread."""
        return [*self._list_suites(), *self._list_runs(), *self._list_hosts()]

    def _list_suites(self) -> Iterator[Place]:
        folder = self._options.folder
        for parent, paths in list_files(folder).items():
            for path in paths:
                yield Place(PlaceKind.SUITE, path.name, _shorten(parent, folder), str(path))

    def _list_runs(self) -> Iterator[Place]:
        self._runs = update_known_runs(self._options.home, self._runs, keep=False)
        for _, run in reversed(self._runs.values()):
            yield Place(PlaceKind.RUN, run.id, _describe_run(run))

    def _list_hosts(self) -> Iterator[Place]:
        for source in read_sources(self._options):
            for name in source.hosts.names if source.hosts is not None else ():
                yield Place(PlaceKind.HOST, name, source.title, source.name)


def _shorten(parent: Path, folder: Path) -> str:
    relative = os.path.relpath(parent, folder)
    return f"{relative if len(relative) < len(str(parent)) else parent}/"


def _describe_run(run: RunSummary) -> str:
    return f"{run.suite} {format_status(run.status)}"


def list_suite_cases(suite: Path, cases: Iterable[Case]) -> list[Place]:
    """Return the cases of the open suite."""
    return [Place(PlaceKind.CASE, case.id, suite.name, "suites") for case in cases]


def list_run_cases(feed: Feed) -> list[Place]:
    """Return the cases of the watched run."""
    location = f"run {feed.folder.id}"
    return [Place(PlaceKind.CASE, id, location, "run") for id in feed.state.cases]


def find_places(places: Sequence[Place], text: str) -> list[Place]:
    """Return the places that have all words of a text, the best matches first.

    A word matches if it is part of a place, or if the name has its letters in the same order.
    """
    words = text.lower().split()
    if not words:
        return list(places)
    scored: list[tuple[int, Place]] = []
    for place in places:
        score = _rate(words, place)
        if score:
            scored.append((score, place))
    scored.sort(key=lambda pair: -pair[0])
    return [place for _, place in scored]


def _rate(words: Iterable[str], place: Place) -> int:
    """Return the sum of the scores of all words; 0 if one does not match."""
    name = place.name.lower()
    text = place.search_text
    total = 0
    for word in words:
        score = _rate_word(word, name, text)
        if not score:
            return 0
        total += score
    return total


def _rate_word(word: str, name: str, text: str) -> int:
    if name.startswith(word):
        return _PREFIX_SCORE
    if word in name:
        return _PART_SCORE
    if word in text:
        return _ELSEWHERE_SCORE
    return _LETTERS_SCORE if _has_letters(name, word) else 0


def _has_letters(name: str, word: str) -> bool:
    """Return whether a name has the letters of a word in their order."""
    letters = iter(name)
    return all(letter in letters for letter in word)
