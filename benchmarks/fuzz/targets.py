"""The readers that are fuzzed: each reads a mutated input with the product's code.

A target returns the text that a user would read of a valid result, or raises the SpbenchError of an
invalid input. Any other outcome is a defect.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.fuzz import inputs
from benchmarks.fuzz.mutations import mutate_lines, mutate_text, mutate_value

from spbench.cli.runs.lines import LineView, replay_lines
from spbench.engine.connections.collector import Collector
from spbench.engine.connections.rank_connection import RankConnection
from spbench.engine.connections.relay_connection import RelayConnection
from spbench.engine.job_listener import JobListener
from spbench.engine.recorder import Recorder
from spbench.engine.watchdog import Watchdog
from spbench.launch.hosts.hosts import read_hostfile
from spbench.launch.jobs import Job
from spbench.planner.cluster.cluster_file import read_cluster
from spbench.planner.profile.json_file import read_profile_json
from spbench.planner.profile.torchgraph import read_torchgraph
from spbench.record.findings import collect_findings
from spbench.record.number_formatting import replace_controls
from spbench.record.runs.event_log import EventLog
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import read_summary_with_note
from spbench.record.runs.selection import select_runs
from spbench.record.state import RunState
from spbench.report.baselines.creation import make_baseline, make_baseline_run, update_baseline
from spbench.report.baselines.files import load_baseline
from spbench.report.build import build_report
from spbench.report.comparison.compare import compare
from spbench.report.export import EXPORT_FORMATS, export_comparison, export_text, summary_object
from spbench.report.gate.baseline_gate import BaselineGate, GatePolicy
from spbench.report.links import build_link_matrices
from spbench.report.recorded import load_run
from spbench.suites.case import Case
from spbench.suites.loader import load_suite_text
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS
from spbench_core.events.fan_in import encode_frame
from spbench_core.events.fields import EventError
from spbench_core.events.rank_events import decode, encode

Target = Callable[[random.Random, Path], str]
"""Takes a random generator and a separate folder; returns the text that a user would read."""

RUN_JSON = {"console": {"pid": 1, "host": "elsewhere", "started": 1000.0}, "suite": "fuzz"}
PROFILE = inputs.build_profile()
PART_SIZES = (50, 500, 100_000)
RANK_LINES = inputs.build_rank_events(0)


class UnsafeError(AssertionError):
    """A result that contradicts itself, or a text that is unsafe for a terminal."""


def fuzz_line(generator: random.Random, folder: Path) -> str:
    """Decode a line of a rank; if it is valid, encode it and compare."""
    event = generator.choice(RANK_LINES)
    if generator.random() < 0.5:
        text = _encode_line(mutate_value(generator, event))
    else:
        text = mutate_text(generator, _encode_line(event))
    try:
        decoded = decode(text)
    except EventError as error:
        return str(error)
    if decode(encode(decoded)) != decoded:
        raise UnsafeError(f"{decoded} is another one when it is read again")
    return str(decoded["event"])


def fuzz_protocol(generator: random.Random, folder: Path) -> str:
    """Receive the events of two ranks, one mutated; compare the report and its replay."""
    settings = LaunchSettings()
    params = BENCHMARKS["link.pingpong"].complete({})
    cases = [
        Case(name, name, "link.pingpong", params, 2, 1, (), settings, 1) for name in inputs.CASES
    ]
    state = RunState()
    lines = list[str]()
    run = _create_run_folder(folder)
    log = EventLog(run.events)
    recorder = Recorder(log, state, LineView(state, lines.append, 1))
    for event in (inputs.build_run_start(), inputs.build_job_start()):
        recorder.record(
            event.pop("event"), **{k: field for k, field in event.items() if k != "time"}
        )
    watch = Watchdog(
        2, [(name, 0) for name in inputs.CASES], 60.0, dict.fromkeys(inputs.CASES, 60.0), 0.0
    )
    listener = JobListener(Job(1, tuple(cases), 2, settings), recorder, watch)
    collector = Collector(inputs.TOKEN, listener)
    streams = [b"".join(_encode_rank_events(rank)) for rank in (0, 1)]
    mutated_rank = generator.randrange(2)
    streams[mutated_rank] = mutate_lines(generator, inputs.build_rank_events(mutated_rank))
    send = _send_by_relay if generator.random() < 0.5 else _send_directly
    send(generator, collector, streams)
    log.close()
    if listener.failure is not None:
        raise listener.failure
    message = watch.fault.message if watch.fault else ""
    report = build_report(state)
    _check_report(report)
    collect_findings(state)
    _compare_reports(report, build_report(run.replay()))
    return "\n".join([message, *lines])


def _compare_reports(live: Mapping[str, Any], replayed: Mapping[str, Any]) -> None:
    """Compare the report of a run with that of its log.

    Raises:
        UnsafeError: They differ.
    """
    for name in sorted(live.keys() | replayed.keys()):
        live_json = json.dumps(live.get(name))
        replayed_json = json.dumps(replayed.get(name))
        if live_json != replayed_json:
            pairs = enumerate(zip(live_json, replayed_json, strict=False))
            start = max(0, next((index for index, (a, b) in pairs if a != b), 0) - 80)
            excerpt = slice(start, start + 160)
            parts = f"{live_json[excerpt]!r}, then {replayed_json[excerpt]!r}"
            raise UnsafeError(f"{name} differs in the replay: {parts}")


def _encode_rank_events(rank: int) -> Iterator[bytes]:
    return (json.dumps(event).encode() + b"\n" for event in inputs.build_rank_events(rank))


class _DiscardingTransport(asyncio.Transport):
    """The connection to a rank or a relay that reads no answers."""

    closed = False

    def write(self, data: Any) -> None:
        """Discard an answer."""

    def abort(self) -> None:
        """Record that the console closed the connection."""
        self.closed = True


def _send_directly(generator: random.Random, collector: Collector, streams: list[bytes]) -> None:
    """Send each rank's bytes over its own connection, in random parts, mixed."""
    ranks: dict[RankConnection, bytes] = {}
    transports: dict[RankConnection, _DiscardingTransport] = {}
    for stream in streams:
        hello, _, remaining = stream.partition(b"\n")
        event = collector.parse_hello(hello)
        if event is not None:
            transport = _DiscardingTransport()
            rank = RankConnection(collector, transport, "127.0.0.1:9", event)
            ranks[rank] = remaining
            transports[rank] = transport
            rank.begin(event, b"")
    while ranks:
        rank = generator.choice(list(ranks))
        size = generator.choice(PART_SIZES)
        part, ranks[rank] = ranks[rank][:size], ranks[rank][size:]
        if part and not transports[rank].closed:
            rank.receive(part)
        else:
            del ranks[rank]
            rank.finish()


def _send_by_relay(generator: random.Random, collector: Collector, streams: list[bytes]) -> None:
    """Send the ranks' bytes through a relay, sometimes with mutated frames."""
    pieces = []
    remaining = dict(enumerate(streams, 1))
    while remaining:
        channel = generator.choice(list(remaining))
        size = generator.choice(PART_SIZES)
        part, remaining[channel] = remaining[channel][:size], remaining[channel][size:]
        pieces.append(encode_frame(channel, part))
        if not part:
            del remaining[channel]
    frames = b"".join(pieces)
    if generator.random() < 0.3:
        frames = mutate_text(generator, frames)
    transport = _DiscardingTransport()
    hello = {"event": "hello", "relay": True, "host": "node01"}
    relay = RelayConnection(collector, "127.0.0.1:9", hello, frames[:100])
    relay.connection_made(transport)
    if not transport.closed:
        relay.data_received(frames[100:])
    relay.connection_lost(None)


def fuzz_log(generator: random.Random, folder: Path) -> str:
    """Read, replay, export and compare the log of a run without a report."""
    run = _create_run_folder(folder)
    run.events.write_bytes(mutate_lines(generator, inputs.build_recorded_run()))
    return _render_run(run)


def fuzz_report(generator: random.Random, folder: Path) -> str:
    """Read, export and compare the report of a run that also has its log."""
    run = _create_run_folder(folder)
    run.events.write_bytes(b"".join(map(_encode_line, inputs.build_recorded_run())))
    valid = build_report(run.replay())
    if generator.random() < 0.7:
        run.report.write_text(json.dumps(mutate_value(generator, valid)))
    else:
        run.report.write_bytes(mutate_text(generator, json.dumps(valid).encode()))
    return _render_run(run)


def fuzz_baseline(generator: random.Random, folder: Path) -> str:
    """Read a baseline, compare its run with it, and update it from the run."""
    run = _create_run_folder(folder)
    run.events.write_bytes(b"".join(map(_encode_line, inputs.build_recorded_run())))
    (run.path / "run.json").write_text(json.dumps(RUN_JSON | {"verdict": "passed"}))
    recorded = load_run(run)
    path = folder / "fuzz.json"
    valid = make_baseline("fuzz", recorded)[0].model_dump(by_alias=True)
    if generator.random() < 0.7:
        path.write_text(json.dumps(mutate_value(generator, valid)))
    else:
        path.write_bytes(mutate_text(generator, json.dumps(valid).encode()))
    loaded = load_baseline(folder, str(path))
    gate = BaselineGate(folder, make_baseline_run(loaded, path), GatePolicy(frozenset({"worse"})))
    gate_result = gate.judge(recorded)
    lines = [
        *export_comparison(gate_result.comparison, "csv").splitlines(),
        *gate_result.failure_reasons,
    ]
    gate_result.print_to(lines.append)
    lines += update_baseline(loaded, recorded, gate_result.comparison, widen=True)[1]
    return replace_controls("\n".join(lines))


def fuzz_summary(generator: random.Random, folder: Path) -> str:
    """Read a run.json for the list of runs."""
    run = _create_run_folder(folder)
    valid = RUN_JSON | {"verdict": "passed", "finished": 1003.0, "argv": ["run"], "exit_code": 0}
    (run.path / "run.json").write_text(json.dumps(mutate_value(generator, valid)))
    summary = read_summary_with_note(run)
    select_runs([summary], "fuzz since:2026-01-01 host:a")
    return json.dumps(summary_object(summary), allow_nan=False)


def _create_run_folder(folder: Path) -> RunFolder:
    for name in ("events.jsonl", "report.json"):
        (folder / name).unlink(missing_ok=True)
    (folder / "run.json").write_text(json.dumps(RUN_JSON))
    return RunFolder(folder)


def _encode_line(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode() + b"\n"


def _render_run(run: RunFolder) -> str:
    """Return the output of all commands that read a recorded run."""
    recorded = load_run(run)
    texts = [export_text(recorded, kind) for kind in EXPORT_FORMATS]
    comparison = compare(recorded, recorded)
    texts += [export_comparison(comparison, kind) for kind in EXPORT_FORMATS]
    for matrix in build_link_matrices(recorded):
        texts += [f"{table.title} {sorted(table.find_slow_pairs())}" for table in matrix.tables]
    _check_report(json.loads(texts[EXPORT_FORMATS.index("json")]))
    replay_lines(run, None, texts.append, 1)
    return "\n".join(texts)


def _check_report(report: dict[str, Any]) -> None:
    json.dumps(report, allow_nan=False)
    for case in report["cases"]:
        for check in case["checks"]:
            error = check["max_abs_error"]
            if check["status"] == "passed" and error is not None and error > check["tolerance"]:
                raise UnsafeError(f"{check['name']} passed with an error of {error}")


def fuzz_suite(generator: random.Random, folder: Path) -> str:
    """Read a suite and expand its cases."""
    text = mutate_text(generator, inputs.SUITE).decode(errors="replace")
    suite = load_suite_text(text, folder / "fuzz.yaml")
    return "\n".join(f"{case.id!r} {case.np}" for case in suite.cases)


def fuzz_override(generator: random.Random, folder: Path) -> str:
    """Read a suite with a mutated override."""
    text = mutate_text(generator, generator.choice(inputs.OVERRIDES)).decode(errors="replace")
    changed = load_suite_text(inputs.SUITE.decode(), folder / "fuzz.yaml", [text])
    return "\n".join(f"{case.id!r} {case.np}" for case in changed.cases)


def fuzz_hostfile(generator: random.Random, folder: Path) -> str:
    """Read a hostfile."""
    path = folder / "fuzz.hosts"
    path.write_bytes(mutate_text(generator, inputs.HOSTFILE))
    return read_hostfile(path).fold()


def fuzz_cluster(generator: random.Random, folder: Path) -> str:
    """Read a cluster."""
    text = mutate_text(generator, inputs.CLUSTER).decode(errors="replace")
    return read_cluster(text, "fuzz.yaml", "fuzz").name


def fuzz_profile(generator: random.Random, folder: Path) -> str:
    """Read a profile in either format."""
    if generator.random() < 0.5:
        text = mutate_text(generator, PROFILE).decode(errors="replace")
        return read_profile_json(text, "fuzz.json", "fuzz").name
    text = mutate_text(generator, inputs.TORCHGRAPH).decode(errors="replace")
    return read_torchgraph(text, "fuzz.txt", "fuzz", 8).name


TARGETS: dict[str, tuple[Target, int]] = {
    "line": (fuzz_line, 500),
    "protocol": (fuzz_protocol, 50),
    "log": (fuzz_log, 10),
    "report": (fuzz_report, 6),
    "baseline": (fuzz_baseline, 20),
    "summary": (fuzz_summary, 44),
    "suite": (fuzz_suite, 100),
    "override": (fuzz_override, 20),
    "hostfile": (fuzz_hostfile, 100),
    "cluster": (fuzz_cluster, 120),
    "profile": (fuzz_profile, 30),
}
"""Each target and its share of 1000 mutations; slow targets have a smaller one."""
