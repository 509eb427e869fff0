"""Summaries of the runs of a home, from their run.json alone, and a filter over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spbench.errors import UsageError, did_you_mean
from spbench.record.runs.folder import FileStamp, RunFolder, list_stamped_runs, why_unreadable
from spbench.record.runs.notes import NO_NOTE, RunNote, has_note, read_note
from spbench_core.events.statuses import FINAL_STATUSES, CaseStatus, RunStatus

VERDICTS = tuple(status for status in RunStatus if status is not RunStatus.BASELINE)
"""The statuses of runs in a list."""
UNKNOWN = "?"

_YEAR_10000 = 253402300800.0


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in short. Times are seconds since the epoch, None where run.json does not say.

    Attributes:
        suite: The suite's name, ``?`` where it is not known.
        file: The suite's file, as the command line named it.
        verdict: One of `VERDICTS`.
        host: Where its console ran.
        counts: Its cases by status; None where it goes on, or is older than these counts.
        note: What somebody wrote of it.
        unreadable: Why it cannot be read; None if it can.
    """

    folder: RunFolder
    id: str
    suite: str
    file: str | None
    started: float | None
    finished: float | None
    verdict: RunStatus
    exit_code: int | None
    argv: tuple[str, ...]
    duration_s: float | None
    host: str | None
    counts: Mapping[str, int] | None = field(default=None, hash=False)
    note: RunNote = NO_NOTE
    unreadable: str | None = None

    @property
    def passed(self) -> str:
        """``3/4``, the cases that passed of all; nothing where that is not known."""
        counts = self.counts
        return f"{counts.get(CaseStatus.PASSED, 0)}/{sum(counts.values())}" if counts else ""


KnownRuns = dict[str, tuple[FileStamp, RunSummary]]
"""Runs by id, the oldest first, each with the stamp of the run.json that was read."""


def list_summaries(home: Path) -> list[RunSummary]:
    """Return the runs under a home, the oldest first; a damaged run.json hides none of them."""
    return [summary for _, summary in update_known_runs(home).values()]


def update_known_runs(
    home: Path, known: KnownRuns | None = None, *, keep: bool = True
) -> KnownRuns:
    """Return the runs under a home; of those that have ended only what has changed is read again.

    Args:
        home: The folder of the runs.
        known: The runs as they were; None: as its index has them.
        keep: Whether that index may be told what it lacks.
    """
    index = None if known is not None else _Index(home)
    found: KnownRuns = {}
    for folder, stamp in list_stamped_runs(home):
        was = known.get(folder.id) if known is not None else None
        if was is not None and was[0] == stamp and was[1].verdict.is_final:
            summary = was[1]
        else:
            summary = index.summary(folder, stamp) if index else read_run_summary(folder)
        note = read_note(folder) if has_note(folder) else NO_NOTE
        found[folder.id] = stamp, summary if summary.note == note else replace(summary, note=note)
    if index and keep:
        index.keep(found)
    return found


class _Index:
    """What the index has of the runs, and what it lacks; without sqlite3 it has nothing."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._new: dict[str, tuple[FileStamp, Mapping[str, Any]]] = {}
        try:
            from spbench.record.runs import index  # only here, since a Python may lack sqlite3
        except ImportError:
            self._index = None
            self._heads = {}
        else:
            self._index = index
            self._heads = index.read_heads(home)

    def summary(self, folder: RunFolder, stamp: FileStamp) -> RunSummary:
        """Return one run in short, read again where its run.json is not as the index has it."""
        if reason := why_unreadable(stamp):  # first, since the index may know an empty head
            return _unreadable_summary(folder, reason)
        known = self._heads.get(folder.id)
        if known is not None and known[0] == stamp:
            return make_summary(folder, known[1])
        run = folder.read_json("run.json")
        summary = make_summary(folder, run)
        if self._index and summary.verdict.is_final:
            self._new[folder.id] = stamp, self._index.make_head(run)
        return summary

    def keep(self, found: KnownRuns) -> None:
        """Tell the index what it lacks, and which runs are gone."""
        if self._index:
            self._index.update_heads(self._home, self._new, self._heads.keys() - found.keys())


def index_ended_run(
    folder: RunFolder, report: Mapping[str, Any], cases: Iterable[Mapping[str, Any]]
) -> None:
    """Tell the index of a run that has ended; it may lack that, and nobody is the worse for it.

    Args:
        folder: The folder of the run.
        report: Its report, of which the cases are not used.
        cases: The cases of the report.
    """
    with suppress(ImportError):
        from spbench.record.runs.index import add_run  # a Python may lack sqlite3

        add_run(folder, report, cases)


def read_summary(folder: RunFolder) -> RunSummary:
    """Return one run in short, with its note."""
    return replace(read_run_summary(folder), note=read_note(folder))


def read_run_summary(folder: RunFolder) -> RunSummary:
    """Return one run in short, as its run.json has it."""
    if reason := folder.why_unreadable():
        return _unreadable_summary(folder, reason)
    return make_summary(folder, folder.read_json("run.json"))


def _unreadable_summary(folder: RunFolder, reason: str) -> RunSummary:
    return RunSummary(
        folder=folder,
        id=folder.id,
        suite=UNKNOWN,
        file=None,
        started=None,
        finished=None,
        verdict=RunStatus.UNREADABLE,
        exit_code=None,
        argv=(),
        duration_s=None,
        host=None,
        unreadable=reason,
    )


def make_summary(folder: RunFolder, run: Mapping[str, Any]) -> RunSummary:
    """Return one run in short, from the content of its run.json."""
    console = run.get("console")
    console = console if isinstance(console, dict) else {}
    started = _moment(console.get("started"))
    finished = _moment(run.get("finished"))
    code = run.get("exit_code")
    words = run.get("argv")
    return RunSummary(
        folder=folder,
        id=folder.id,
        suite=_text(run.get("suite")) or UNKNOWN,
        file=_text(run.get("file")),
        started=started,
        finished=finished,
        verdict=_verdict(folder, run.get("verdict")),
        exit_code=code if type(code) is int else None,
        argv=tuple(map(str, words)) if isinstance(words, list) else (),
        duration_s=_between(started, finished),
        host=_text(console.get("host")),
        counts=_counts(run.get("counts")),
    )


def _counts(value: Any) -> Mapping[str, int] | None:
    told = value if isinstance(value, dict) else {}
    return {name: of for name, of in told.items() if type(of) is int and of > 0} or None


def _verdict(folder: RunFolder, recorded: Any) -> RunStatus:
    if recorded in FINAL_STATUSES:
        return RunStatus(recorded)
    return RunStatus.UNFINISHED if folder.is_alive() is False else RunStatus.RUNNING


def _between(started: float | None, finished: float | None) -> float | None:
    return None if started is None or finished is None else round(max(0.0, finished - started), 6)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _moment(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value < _YEAR_10000 else None


_Test = Callable[[RunSummary], bool]


def select_runs(runs: Iterable[RunSummary], text: str) -> list[RunSummary]:
    """Return the runs that fit every word of a filter; a blank one fits all.

    A word stands in the id, the suite's name, the verdict, the host or the note, in capitals or
    not. ``suite:halo`` and ``host:node`` look there alone, ``verdict:failed`` is that very verdict,
    ``tag:rack2`` that very tag, and
    ``since:2026-11-01`` takes the runs that started then or later (UTC; a time may follow the day,
    as in ``since:2026-11-01T08:30``).

    Raises:
        UsageError: A word is none of these.
    """
    tests = [_test(word) for word in text.split()]
    return [run for run in runs if all(test(run) for test in tests)]


def _test(word: str) -> _Test:
    key, colon, value = word.partition(":")
    if not colon:
        return lambda run: any(
            _within(word, part)
            for part in (run.id, run.suite, run.verdict, run.host, str(run.note))
        )
    if key not in _KEYS:
        near = did_you_mean(key, _KEYS)
        raise UsageError(f"no filter is called {key}:{near}; there are {_list_keys()}")
    if not value:
        raise UsageError(f"the filter {key}: has no value; write it behind the colon")
    return _KEYS[key](value)


def _within(word: str, part: str | None) -> bool:
    return part is not None and word.lower() in part.lower()


def _of_suite(value: str) -> _Test:
    return lambda run: _within(value, run.suite)


def _of_host(value: str) -> _Test:
    return lambda run: _within(value, run.host)


def _of_verdict(value: str) -> _Test:
    verdict = value.lower()
    if verdict not in VERDICTS:
        near = did_you_mean(verdict, VERDICTS)
        raise UsageError(f"no verdict is called {value!r}{near}; there are {', '.join(VERDICTS)}")
    return lambda run: run.verdict == verdict


def _of_tag(value: str) -> _Test:
    return lambda run: value.lower() in map(str.lower, run.note.tags)


def _since(value: str) -> _Test:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise UsageError(
            f"since:{value} names no day; write it as since:2026-11-01 or since:2026-11-01T08:30"
        ) from None
    first = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return lambda run: run.started is not None and run.started >= first


_KEYS: dict[str, Callable[[str], _Test]] = {
    "suite": _of_suite,
    "verdict": _of_verdict,
    "host": _of_host,
    "tag": _of_tag,
    "since": _since,
}


def _list_keys() -> str:
    return ", ".join(f"{key}:" for key in _KEYS)
