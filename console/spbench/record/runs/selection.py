"""A filter for the runs of a home: words, and terms such as ``suite:halo``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from spbench.errors import UsageError, did_you_mean
from spbench.record.runs.history import RUN_STATUSES, RunSummary
from spbench.record.runs.marks import MARK_WORDS, RunMarks, find_marks

_Test = Callable[[RunSummary, RunMarks], bool]


def select_runs(
    runs: Sequence[RunSummary], text: str, marks: RunMarks | None = None
) -> list[RunSummary]:
    """Return the runs that match every term of a filter; an empty filter matches all.

    A term must be in the id, the suite's name, the status, the host, the marks or the note, in any
    case. ``suite:halo`` and ``host:node`` search only there. ``status:failed`` and ``tag:rack2``
    match exactly. ``mark:fault`` matches runs with this mark of `find_marks`. ``since:2026-11-01``
    matches runs that started then or later (UTC, and a time may follow the day:
    ``since:2026-11-01T08:30``).

    Args:
        runs: The runs.
        text: The filter.
        marks: The marks of all runs of the home; None finds them among ``runs``.

    Raises:
        UsageError: A term with a colon is invalid.
    """
    tests = [_parse_filter(word) for word in text.split()]
    if marks is None:
        marks = find_marks(runs) if tests else {}
    return [run for run in runs if all(test(run, marks) for test in tests)]


def _parse_filter(word: str) -> _Test:
    key, colon, searched = word.partition(":")
    if not colon:
        return lambda run, marks: any(
            _contains(word, text)
            for text in (
                *(run.id, run.suite, run.status, run.host, str(run.note)),
                *(marks.get(run.id, ())),
            )
        )
    if key not in _FILTERS:
        suggestion = did_you_mean(key, _FILTERS)
        raise UsageError(f"unknown filter {key}:{suggestion}; choose from {_list_filters()}")
    if not searched:
        raise UsageError(f"the filter {key}: has no value; write it after the colon")
    return _FILTERS[key](searched)


def _contains(word: str, text: str | None) -> bool:
    return text is not None and word.lower() in text.lower()


def _match_suite(value: str) -> _Test:
    return lambda run, marks: _contains(value, run.suite)


def _match_host(value: str) -> _Test:
    return lambda run, marks: _contains(value, run.host)


def _match_status(value: str) -> _Test:
    status = value.lower()
    if status not in RUN_STATUSES:
        suggestion = did_you_mean(status, RUN_STATUSES)
        raise UsageError(
            f"unknown status {value!r}{suggestion}; choose from {', '.join(RUN_STATUSES)}"
        )
    return lambda run, marks: run.status == status


def _match_mark(value: str) -> _Test:
    mark = MARK_WORDS.get(value.lower())
    if mark is None:
        suggestion = did_you_mean(value.lower(), MARK_WORDS)
        raise UsageError(f"unknown mark {value!r}{suggestion}; choose from {', '.join(MARK_WORDS)}")
    return lambda run, marks: mark in marks.get(run.id, ())


def _match_tag(value: str) -> _Test:
    return lambda run, marks: value.lower() in map(str.lower, run.note.tags)


def _match_since(value: str) -> _Test:
    try:
        since = datetime.fromisoformat(value)
    except ValueError:
        raise UsageError(
            f"since:{value}: invalid day (expected since:2026-11-01 or since:2026-11-01T08:30)"
        ) from None
    earliest = (since if since.tzinfo else since.replace(tzinfo=UTC)).timestamp()
    return lambda run, marks: run.started is not None and run.started >= earliest


_FILTERS: dict[str, Callable[[str], _Test]] = {
    "suite": _match_suite,
    "status": _match_status,
    "host": _match_host,
    "tag": _match_tag,
    "mark": _match_mark,
    "since": _match_since,
    "verdict": _match_status,  # the name of earlier versions
}


def _list_filters() -> str:
    return ", ".join(f"{key}:" for key in _FILTERS if key != "verdict")
