"""Summaries of the runs of a home, from their run.json alone, and a filter over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spbench.errors import UsageError, did_you_mean
from spbench.record.number_formatting import GLYPHS
from spbench.record.runs.folder import RunFolder, list_runs

RUNNING, UNFINISHED = "running", "unfinished"
"""In place of a verdict: its console still runs, so far as is known, or ended before the run."""
VERDICTS = (*GLYPHS, RUNNING, UNFINISHED)
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
    """

    folder: RunFolder
    id: str
    suite: str
    file: str | None
    started: float | None
    finished: float | None
    verdict: str
    exit_code: int | None
    argv: tuple[str, ...]
    duration_s: float | None
    host: str | None


def summaries(home: Path) -> list[RunSummary]:
    """Return the runs under a home, the oldest first; a damaged run.json hides none of them."""
    return [summary_of(folder) for folder in list_runs(home)]


def summary_of(folder: RunFolder) -> RunSummary:
    """Return one run in short."""
    run = folder.read_json("run.json")
    console = run.get("console")
    console = console if isinstance(console, dict) else {}
    started, finished = _moment(console.get("started")), _moment(run.get("finished"))
    code, words = run.get("exit_code"), run.get("argv")
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
    )


def _verdict(folder: RunFolder, recorded: Any) -> str:
    if isinstance(recorded, str) and recorded in GLYPHS:
        return recorded
    return UNFINISHED if folder.alive() is False else RUNNING


def _between(started: float | None, finished: float | None) -> float | None:
    return None if started is None or finished is None else round(finished - started, 6)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _moment(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value < _YEAR_10000 else None


_Test = Callable[[RunSummary], bool]


def select_runs(runs: Iterable[RunSummary], text: str) -> list[RunSummary]:
    """Return the runs that fit every word of a filter; a blank one fits all.

    A word stands in the id, the suite's name, the verdict or the host, in capitals or not.
    ``suite:halo`` and ``host:node`` look there alone, ``verdict:failed`` is that very verdict, and
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
            _within(word, part) for part in (run.id, run.suite, run.verdict, run.host)
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
    "since": _since,
}


def _list_keys() -> str:
    return ", ".join(f"{key}:" for key in _KEYS)
