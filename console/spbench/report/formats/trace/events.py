"""Trace events in Chrome's JSON: the console and each host's ranks, all on the console's clock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from spbench.errors import UsageError
from spbench.record.number_formatting import strip_controls
from spbench.record.runs.files import strip_controls_from_json
from spbench.record.runs.follow import RecordedEvents
from spbench.report.formats.trace.clocks import ClockOffset
from spbench.report.formats.trace.spans import RunSpans, Span
from spbench.report.recorded import RecordedRun

_CONSOLE = 1
"""The process of the console; those of hosts follow."""
_MICRO = 1e6

Offsets = Mapping[tuple[int, str], ClockOffset]


def render_trace(run: RecordedRun) -> str:
    """Return a run as trace events, one a line.

    Raises:
        UsageError: The run's events are not at hand, as beside a report's file.
    """
    folder = run.summary.folder
    if not folder.events.is_file():
        raise UsageError(
            f"a trace is made of a run's events, and there are none at {folder.events}; "
            "name the run by its id, with --home"
        )
    found = RunSpans()
    found.add_events(RecordedEvents(folder.events))
    in_order = folder.read_json("run.json").get("collected") is None
    offsets = {
        (job, host): offset
        for job, clocks in found.clocks.items()
        for host, offset in clocks.estimate_offsets(in_order=in_order).items()
    }
    lines = ",\n".join(json.dumps(one, allow_nan=False) for one in _events(found, offsets, run))
    about = {"run": strip_controls(run.summary.id), "clocks": [*_clock_words(offsets)]}
    head = f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": ['
    return f"{head}\n{lines}\n]}}\n"


def _events(found: RunSpans, offsets: Offsets, run: RecordedRun) -> Iterator[dict[str, Any]]:
    hosts = list(dict.fromkeys(host for _, host in offsets))
    processes = {host: _CONSOLE + 1 + at for at, host in enumerate(hosts)}
    yield _named("process_name", _CONSOLE, 0, f"console, run {run.summary.id}")
    for host, process in processes.items():
        told = [offset.description for (_, of), offset in offsets.items() if of == host]
        words = told[0] if len(set(told)) == 1 else f"clock: see otherData, {len(told)} jobs"
        yield _named("process_name", process, 0, f"{host}, {words}")
        yield {**_meta("process_sort_index", process, 0), "args": {"sort_index": process}}
    ranks = dict.fromkeys((span.host, span.rank) for span in found.spans if span.rank is not None)
    for host, rank in sorted(ranks, key=lambda one: (processes[one[0]], one[1] or 0)):
        yield _named("thread_name", processes[host], (rank or 0) + 1, f"rank {rank}")
    start = min((_true(span.start, span, offsets) for span in found.spans), default=0.0)
    for span in found.spans:
        process = _CONSOLE if span.rank is None else processes[span.host]
        yield _event(span, process, start, offsets)


def _event(span: Span, process: int, start: float, offsets: Offsets) -> dict[str, Any]:
    began = round((_true(span.start, span, offsets) - start) * _MICRO, 3)
    told = {
        "name": strip_controls(span.name),
        "cat": span.kind,
        "pid": process,
        "tid": 0 if span.rank is None else span.rank + 1,
        "ts": began,
        "args": strip_controls_from_json({**span.details, "job": span.job}),
    }
    if span.end is None:
        return {**told, "ph": "i", "s": "t"}
    # From one end to the other as drawn: rounded by itself, a phase might outlast its case.
    ended = (_true(span.end, span, offsets) - start) * _MICRO
    return {**told, "ph": "X", "dur": round(ended - began, 3)}


def _true(time: float, span: Span, offsets: Offsets) -> float:
    """Return a time by the console's clock."""
    if span.rank is None or (span.job, span.host) not in offsets:
        return time
    return time - offsets[span.job, span.host].seconds


def _clock_words(offsets: Offsets) -> Iterator[str]:
    for (job, host), offset in offsets.items():
        yield f"job {job}, {strip_controls(host)}: {offset.description}"


def _named(kind: str, process: int, thread: int, text: str) -> dict[str, Any]:
    return {**_meta(kind, process, thread), "args": {"name": strip_controls(text)}}


def _meta(kind: str, process: int, thread: int) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread}
