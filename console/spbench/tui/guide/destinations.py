"""Suites, runs, hosts and cases to jump to, and the search for one of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path

from spbench.errors import SpbenchError
from spbench.record.number_formatting import format_status
from spbench.record.runs.case_names import list_recorded_cases
from spbench.record.runs.folder import FileStamp, file_stamp
from spbench.record.runs.history import KnownRuns, RunSummary, update_known_runs
from spbench.suites.case import Case
from spbench.suites.loader import load_suite_file
from spbench.suites.shipped import PREFIX, needs_copy
from spbench.tui.context import ConsoleOptions
from spbench.tui.feed import Feed
from spbench.tui.hosts.sources import read_sources
from spbench.tui.suites.tree import SHIPPED, list_files

_EXACT_SCORE = 5
_PREFIX_SCORE = 4
_PART_SCORE = 3
_ELSEWHERE_SCORE = 2
_LETTERS_SCORE = 1
_RateWord = Callable[[str, str, str], int]
"""Returns the score of a word in a name or a text; 0 if it does not match."""


class DestinationKind(Enum):
    """A kind of destination; the value is shown in its row."""

    SUITE = "suite"
    RUN = "run"
    HOST = "host"
    SUITE_CASE = "case in suite"
    RUN_CASE = "case of run"


_KINDS = tuple(DestinationKind)
_CASE_KINDS = frozenset({DestinationKind.SUITE_CASE, DestinationKind.RUN_CASE})


@dataclass(frozen=True)
class Destination:
    """A suite, run, host or case.

    Attributes:
        name: Its name.
        location: The folder, suite, run or hostfile that it belongs to, for the user.
        key: The path of a suite, the source of a host, or the page of a case.
        owner: The path of the suite, or the id of the run, that has the case; empty for those that
            the page shows already.
        benchmark: The benchmark of a case, which the search finds, too; empty if it is unknown.
    """

    kind: DestinationKind
    name: str
    location: str
    key: str = ""
    owner: str = ""
    benchmark: str = ""

    @property
    def is_shipped(self) -> bool:
        """Whether it is a shipped suite or a case of one."""
        return PREFIX in (self.key[: len(PREFIX)], self.owner[: len(PREFIX)])

    @property
    def is_shown(self) -> bool:
        """Whether it is a case of the open suite or of the watched run."""
        if self.kind is DestinationKind.SUITE_CASE:
            return not self.owner
        return self.kind is DestinationKind.RUN_CASE and self.key == "run"

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """The order of equal matches: by kind, with shown cases before others."""
        is_other_case = self.kind in _CASE_KINDS and not self.is_shown
        return self.is_shipped, is_other_case, _KINDS.index(self.kind)

    @cached_property
    def search_text(self) -> str:
        """The text in which words are looked for, in lower case."""
        return f"{self.kind.value} {self.name} {self.location} {self.benchmark}".lower()


class DestinationReader:
    """Reads the destinations on disk, later only those that are new or have changed."""

    def __init__(self, options: ConsoleOptions) -> None:
        self._options = options
        self._runs: KnownRuns | None = None
        self._cases: dict[Path, tuple[FileStamp, tuple[Case, ...]]] = {}

    def read(self) -> list[Destination]:
        """Return suites, runs, the newest first, hosts and cases; call it in a thread."""
        suites = list(self._list_suites())
        return [
            *(suite for suite, _ in suites),
            *self._list_runs(),
            *self._list_hosts(),
            *self._list_cases(suites),
            *self._list_recorded_cases(),
        ]

    def _list_suites(self) -> Iterator[tuple[Destination, Path]]:
        """Yield each suite and its file."""
        folder = self._options.folder
        for parent, paths in list_files(folder).items():
            is_shipped = needs_copy(parent, folder)
            location = SHIPPED if is_shipped else _shorten(parent, folder)
            for path in paths:
                key = f"{PREFIX}{path.stem}" if is_shipped else str(path)
                yield Destination(DestinationKind.SUITE, path.name, location, key), path

    def _list_cases(self, suites: Iterable[tuple[Destination, Path]]) -> Iterator[Destination]:
        for suite, path in suites:
            location = f"{suite.location.removesuffix('/')}/{suite.name}"
            for case in self._read_cases(path):
                yield _make_case(case, location, suite.key)

    def _read_cases(self, path: Path) -> tuple[Case, ...]:
        """Return the cases of a suite; none if it has errors."""
        stamp = file_stamp(path)
        previous = self._cases.get(path)
        if previous is not None and previous[0] == stamp:
            return previous[1]
        cases: tuple[Case, ...] = ()
        with suppress(SpbenchError):  # the Suites page lists the errors
            cases = load_suite_file(path).cases
        self._cases[path] = stamp, cases
        return cases

    def _list_recorded_cases(self) -> Iterator[Destination]:
        """Yield each case in the newest run of its suite that has it."""
        runs = self._runs or {}
        listed: set[tuple[str, str]] = set()
        for run, case in list_recorded_cases(self._options.home):
            suite = runs[run][1].suite if run in runs else None
            if suite is not None and (suite, case) not in listed:
                listed.add((suite, case))
                yield Destination(DestinationKind.RUN_CASE, case, run, "results", run)

    def _list_runs(self) -> Iterator[Destination]:
        self._runs = update_known_runs(self._options.home, self._runs, keep=False)
        for _, run in reversed(self._runs.values()):
            yield Destination(DestinationKind.RUN, run.id, _describe_run(run))

    def _list_hosts(self) -> Iterator[Destination]:
        for source in read_sources(self._options):
            for name in source.hosts.names if source.hosts is not None else ():
                yield Destination(DestinationKind.HOST, name, source.title, source.name)


def _shorten(parent: Path, folder: Path) -> str:
    relative = os.path.relpath(parent, folder)
    return f"{relative if len(relative) < len(str(parent)) else parent}/"


def _describe_run(run: RunSummary) -> str:
    return f"{run.suite} {format_status(run.status, run.status_text)}"


def list_suite_cases(suite: Path, folder: Path, cases: Iterable[Case]) -> list[Destination]:
    """Return the cases of the open suite, located from the console's folder."""
    location = f"{_shorten(suite.parent, folder).removesuffix('/')}/{suite.name}"
    return [_make_case(case, location) for case in cases]


def _make_case(case: Case, location: str, suite: str = "") -> Destination:
    return Destination(
        DestinationKind.SUITE_CASE, case.id, location, "suites", suite, case.benchmark
    )


def list_run_cases(feed: Feed) -> list[Destination]:
    """Return the cases of the watched run."""
    run = feed.folder.id
    return [Destination(DestinationKind.RUN_CASE, id, run, "run", run) for id in feed.state.cases]


def find_destinations(destinations: Sequence[Destination], text: str) -> list[Destination]:
    """Return the destinations that have all words of a text, the best matches first.

    A word matches if it is part of a destination. If no destination has all words, it also matches
    a name that has its letters in the same order. Equal matches are grouped by kind. Cases of the
    open suite and of the watched run come before other cases. Shipped suites and their cases come
    last.
    """
    wanted_words = text.lower().split()
    if not wanted_words:
        return list(destinations)
    return _rank(destinations, wanted_words, _rate_part) or _rank(
        destinations, wanted_words, _rate_letters
    )


def _rank(
    destinations: Iterable[Destination], wanted_words: Iterable[str], rate_word: _RateWord
) -> list[Destination]:
    """Return the destinations that match all words, the best ones first."""
    scored: list[tuple[int, Destination]] = []
    for destination in destinations:
        score = _rate(wanted_words, destination, rate_word)
        if score:
            scored.append((score, destination))
    scored.sort(key=lambda pair: (-pair[0], pair[1].rank))
    return [destination for _, destination in scored]


def _rate(wanted_words: Iterable[str], destination: Destination, rate_word: _RateWord) -> int:
    """Return the sum of the scores of all words; 0 if one does not match."""
    names = [destination.name.lower()]
    if destination.kind is DestinationKind.RUN:
        names.append(destination.location.lower())  # the suite, since ids start with the time
    text = destination.search_text
    total = 0
    for word in wanted_words:
        score = max(rate_word(word, name, text) for name in names)
        if not score:
            return 0
        total += score
    return total


def _rate_part(word: str, name: str, text: str) -> int:
    """Return the score of a word that a name or text contains; 0 without a match."""
    if name.removesuffix(".yaml") == word.removesuffix(".yaml"):
        return _EXACT_SCORE
    if name.startswith(word):
        return _PREFIX_SCORE
    if word in name:
        return _PART_SCORE
    return _ELSEWHERE_SCORE if word in text else 0


def _rate_letters(word: str, name: str, text: str) -> int:
    """Return the score of a word that may also be scattered over a name."""
    score = _rate_part(word, name, text)
    return score or (_LETTERS_SCORE if _has_letters(name, word) else 0)


def _has_letters(name: str, word: str) -> bool:
    """Return whether a name has the letters of a word in their order."""
    letters = iter(name)
    return all(letter in letters for letter in word)
