"""Trace events in Chrome's JSON format, with all times by the console's clock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from spbench.errors import UsageError
from spbench.record.number_formatting import replace_controls
from spbench.record.runs.files import replace_controls_in_json
from spbench.record.runs.follow import RecordedEvents
from spbench.report.formats.trace.clocks import ClockOffset
from spbench.report.formats.trace.spans import RunSpans, Span
from spbench.report.recorded import RecordedRun

_CONSOLE = 1
"""The process id of the console; hosts have the following ids."""
_US_PER_S = 1e6

Offsets = Mapping[tuple[int, str], ClockOffset]


def render_trace(run: RecordedRun) -> str:
    """Return a run as trace events, one per line.

    Raises:
        UsageError: There are no events of the run, for example next to a single report file.
    """
    folder = run.summary.folder
    if not folder.events.is_file():
        raise UsageError(
            f"a trace is made of a run's events, and there are none at {folder.events}; "
            "name the run by its id, with --home"
        )
    run_spans = RunSpans()
    run_spans.add_events(RecordedEvents(folder.events))
    in_order = folder.read_json("run.json").get("collected") is None
    offsets = {
        (job, host): offset
        for job, clocks in run_spans.clocks.items()
        for host, offset in clocks.estimate_offsets(in_order=in_order).items()
    }
    events = _make_events(run_spans, offsets, run)
    lines = ",\n".join(json.dumps(event, allow_nan=False) for event in events)
    other_data = {"run": replace_controls(run.summary.id), "clocks": [*_describe_clocks(offsets)]}
    head = f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(other_data)}, "traceEvents": ['
    return f"{head}\n{lines}\n]}}\n"


def _make_events(
    run_spans: RunSpans, offsets: Offsets, run: RecordedRun
) -> Iterator[dict[str, Any]]:
    """Yield metadata events of processes and threads, then an event for each span."""
    hosts = list(dict.fromkeys(host for _, host in offsets))
    process_by_host = {host: _CONSOLE + 1 + index for index, host in enumerate(hosts)}
    yield _make_name_event("process_name", _CONSOLE, 0, f"console, run {run.summary.id}")
    for host, process in process_by_host.items():
        clocks = [offset.description for (_, name), offset in offsets.items() if name == host]
        clock = f"clock: see otherData, {len(clocks)} jobs"
        if len(set(clocks)) == 1:
            clock = clocks[0]
        yield _make_name_event("process_name", process, 0, f"{host}, {clock}")
        yield {
            **_make_metadata_event("process_sort_index", process, 0),
            "args": {"sort_index": process},
        }

    spans = run_spans.spans
    processes_and_ranks = {
        (process_by_host[span.host], span.rank) for span in spans if span.rank is not None
    }
    for process, rank in sorted(processes_and_ranks):
        yield _make_name_event("thread_name", process, rank + 1, f"rank {rank}")

    start_s = min((_to_console_time_s(span.start, span, offsets) for span in spans), default=0.0)
    for span in spans:
        process = _CONSOLE if span.rank is None else process_by_host[span.host]
        yield _make_event(span, process, start_s, offsets)


def _make_event(span: Span, process: int, start_s: float, offsets: Offsets) -> dict[str, Any]:
    begin_us = round((_to_console_time_s(span.start, span, offsets) - start_s) * _US_PER_S, 3)
    event = {
        "name": replace_controls(span.name),
        "cat": span.kind,
        "pid": process,
        "tid": span.lane if span.rank is None else span.rank + 1,
        "ts": begin_us,
        "args": replace_controls_in_json({**span.details, "job": span.job}),
    }
    if span.end is None:
        return {**event, "ph": "i", "s": "t"}
    # Relative to the rounded begin: otherwise a phase might appear to end after its case.
    end_us = (_to_console_time_s(span.end, span, offsets) - start_s) * _US_PER_S
    return {**event, "ph": "X", "dur": round(end_us - begin_us, 3)}


def _to_console_time_s(host_time_s: float, span: Span, offsets: Offsets) -> float:
    """Return a time by the console's clock."""
    if span.rank is None or (span.job, span.host) not in offsets:
        return host_time_s
    return host_time_s - offsets[span.job, span.host].seconds


def _describe_clocks(offsets: Offsets) -> Iterator[str]:
    for (job, host), offset in offsets.items():
        yield f"job {job}, {replace_controls(host)}: {offset.description}"


def _make_name_event(event_name: str, process: int, thread: int, text: str) -> dict[str, Any]:
    return {
        **_make_metadata_event(event_name, process, thread),
        "args": {"name": replace_controls(text)},
    }


def _make_metadata_event(event_name: str, process: int, thread: int) -> dict[str, Any]:
    return {"name": event_name, "ph": "M", "pid": process, "tid": thread}
