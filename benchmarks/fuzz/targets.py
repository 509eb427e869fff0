"""The readers that are fuzzed: each takes a mutated input as the product takes it.

A target returns what a user would be shown of a right result, or raises the SpbenchError that a
user would be told; anything else is a defect.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.fuzz import inputs
from benchmarks.fuzz.mutations import mutated_lines, mutated_text, mutated_value

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
from spbench.record.number_formatting import strip_controls
from spbench.record.runs.event_log import EventLog
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import read_summary, select_runs
from spbench.record.state import RunState
from spbench.report.baselines.files import load_baseline
from spbench.report.baselines.making import make_baseline, make_baseline_run, update_baseline
from spbench.report.build import build_report
from spbench.report.comparison.compare import compare
from spbench.report.export import KINDS, export_comparison, export_text, summary_object
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
"""Takes a generator and a folder of its own; returns what is shown."""

LONG_AGO = {"console": {"pid": 1, "host": "elsewhere", "started": 1000.0}, "suite": "fuzz"}
PROFILE = inputs.profile()
PARTS = (50, 500, 100_000)
RANK_LINES = inputs.rank_lines(0)


class UnsafeError(AssertionError):
    """A result that contradicts itself, or a text that no terminal should be given."""


def line(draw: random.Random, folder: Path) -> str:
    """A line of a rank is decoded; what passes is encoded again, and is then the same."""
    said = draw.choice(RANK_LINES)
    if draw.random() < 0.5:
        text = _line(mutated_value(draw, said))
    else:
        text = mutated_text(draw, _line(said))
    try:
        event = decode(text)
    except EventError as error:
        return str(error)
    if decode(encode(event)) != event:
        raise UnsafeError(f"{event} is another one when it is read again")
    return str(event["event"])


def protocol(draw: random.Random, folder: Path) -> str:
    """Two ranks speak, one of them wrongly; the log then replays to the report of the run."""
    settings = LaunchSettings()
    params = BENCHMARKS["link.pingpong"].complete({})
    cases = [
        Case(name, name, "link.pingpong", params, 2, 1, (), settings, 1) for name in inputs.CASES
    ]
    state = RunState()
    shown = list[str]()
    run = _run_folder(folder)
    log = EventLog(run.events)
    recorder = Recorder(log, state, LineView(state, shown.append, 1))
    for event in (inputs.run_start(), inputs.job_start()):
        recorder.record(event.pop("event"), **{k: of for k, of in event.items() if k != "time"})
    watch = Watchdog(
        2, [(name, 0) for name in inputs.CASES], 60.0, dict.fromkeys(inputs.CASES, 60.0), 0.0
    )
    listener = JobListener(Job(1, tuple(cases), 2, settings), recorder, watch)
    collector = Collector(inputs.TOKEN, listener)
    streams = [b"".join(_lines(rank)) for rank in (0, 1)]
    wrong = draw.randrange(2)
    streams[wrong] = mutated_lines(draw, inputs.rank_lines(wrong))
    (_by_relay if draw.random() < 0.5 else _by_themselves)(draw, collector, streams)
    log.close()
    if listener.failure is not None:
        raise listener.failure
    told = watch.fault.message if watch.fault else ""
    report = build_report(state)
    _look_at_report(report)
    collect_findings(state)
    _compare_reports(report, build_report(run.replay()))
    return "\n".join([told, *shown])


def _compare_reports(live: Mapping[str, Any], replayed: Mapping[str, Any]) -> None:
    """Compare the report of a run with that of its log.

    Raises:
        UnsafeError: They differ.
    """
    for name in sorted(live.keys() | replayed.keys()):
        one = json.dumps(live.get(name))
        other = json.dumps(replayed.get(name))
        if one != other:
            pairs = enumerate(zip(one, other, strict=False))
            at = max(0, next((at for at, (a, b) in pairs if a != b), 0) - 80)
            parts = f"{one[at : at + 160]!r}, then {other[at : at + 160]!r}"
            raise UnsafeError(f"{name} differs in the replay: {parts}")


def _lines(rank: int) -> Iterator[bytes]:
    return (json.dumps(event).encode() + b"\n" for event in inputs.rank_lines(rank))


class _Wire(asyncio.Transport):
    """The way back to a rank or a relay that reads no answers."""

    closed = False

    def write(self, data: Any) -> None:
        """Take an answer."""

    def abort(self) -> None:
        """Note that the console ended the connection."""
        self.closed = True


def _by_themselves(draw: random.Random, collector: Collector, streams: list[bytes]) -> None:
    """Let ranks speak over connections of their own, in parts of random length, mixed."""
    ranks: dict[RankConnection, bytes] = {}
    wires: dict[RankConnection, _Wire] = {}
    for stream in streams:
        hello, _, rest = stream.partition(b"\n")
        event = collector.parse_hello(hello)
        if event is not None:
            wire = _Wire()
            rank = RankConnection(collector, wire, "127.0.0.1:9", event)
            ranks[rank] = rest
            wires[rank] = wire
            rank.begin(event, b"")
    while ranks:
        rank = draw.choice(list(ranks))
        size = draw.choice(PARTS)
        part, ranks[rank] = ranks[rank][:size], ranks[rank][size:]
        if part and not wires[rank].closed:
            rank.receive(part)
        else:
            del ranks[rank]
            rank.finish()


def _by_relay(draw: random.Random, collector: Collector, streams: list[bytes]) -> None:
    """Let ranks speak through a relay, whose own pieces are mutated at times."""
    pieces = []
    rests = dict(enumerate(streams, 1))
    while rests:
        channel = draw.choice(list(rests))
        size = draw.choice(PARTS)
        part, rests[channel] = rests[channel][:size], rests[channel][size:]
        pieces.append(encode_frame(channel, part))
        if not part:
            del rests[channel]
    said = b"".join(pieces)
    said = mutated_text(draw, said) if draw.random() < 0.3 else said
    wire = _Wire()
    hello = {"event": "hello", "relay": True, "host": "node01"}
    relay = RelayConnection(collector, "127.0.0.1:9", hello, said[:100])
    relay.connection_made(wire)
    if not wire.closed:
        relay.data_received(said[100:])
    relay.connection_lost(None)


def log(draw: random.Random, folder: Path) -> str:
    """A run's log is read, replayed, exported and compared, without a report."""
    run = _run_folder(folder)
    run.events.write_bytes(mutated_lines(draw, inputs.recorded_run()))
    return _shown(run)


def report(draw: random.Random, folder: Path) -> str:
    """A run's report is read, exported and compared, beside the log that it came from."""
    run = _run_folder(folder)
    run.events.write_bytes(b"".join(map(_line, inputs.recorded_run())))
    right = build_report(run.replay())
    if draw.random() < 0.7:
        run.report.write_text(json.dumps(mutated_value(draw, right)))
    else:
        run.report.write_bytes(mutated_text(draw, json.dumps(right).encode()))
    return _shown(run)


def baseline(draw: random.Random, folder: Path) -> str:
    """A baseline is read, compared with the run that it is of, and brought up to date with it."""
    run = _run_folder(folder)
    run.events.write_bytes(b"".join(map(_line, inputs.recorded_run())))
    (run.path / "run.json").write_text(json.dumps(LONG_AGO | {"verdict": "passed"}))
    recorded = load_run(run)
    path = folder / "fuzz.json"
    right = make_baseline("fuzz", recorded)[0].model_dump(by_alias=True)
    if draw.random() < 0.7:
        path.write_text(json.dumps(mutated_value(draw, right)))
    else:
        path.write_bytes(mutated_text(draw, json.dumps(right).encode()))
    found = load_baseline(folder, str(path))
    gate = BaselineGate(folder, make_baseline_run(found, path), GatePolicy(frozenset({"worse"})))
    result = gate.judge(recorded)
    shown = [*export_comparison(result.comparison, "csv").splitlines(), *result.failure_reasons]
    result.print_to(shown.append)
    shown += update_baseline(found, recorded, result.comparison, widen=True)[1]
    return strip_controls("\n".join(shown))


def summary(draw: random.Random, folder: Path) -> str:
    """A run.json is read for the list of runs."""
    run = _run_folder(folder)
    right = LONG_AGO | {"verdict": "passed", "finished": 1003.0, "argv": ["run"], "exit_code": 0}
    (run.path / "run.json").write_text(json.dumps(mutated_value(draw, right)))
    found = read_summary(run)
    select_runs([found], "fuzz since:2026-01-01 host:a")
    return json.dumps(summary_object(found), allow_nan=False)


def _run_folder(folder: Path) -> RunFolder:
    for name in ("events.jsonl", "report.json"):
        (folder / name).unlink(missing_ok=True)
    (folder / "run.json").write_text(json.dumps(LONG_AGO))
    return RunFolder(folder)


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode() + b"\n"


def _shown(run: RunFolder) -> str:
    """Return what the commands of recorded runs print of one."""
    recorded = load_run(run)
    shown = [export_text(recorded, kind) for kind in KINDS]
    compared = compare(recorded, recorded)
    shown += [export_comparison(compared, kind) for kind in KINDS]
    for matrix in build_link_matrices(recorded):
        shown += [f"{table.title} {sorted(table.find_slow_pairs())}" for table in matrix.tables]
    _look_at_report(json.loads(shown[KINDS.index("json")]))
    replay_lines(run, None, shown.append, 1)
    return "\n".join(shown)


def _look_at_report(report: dict[str, Any]) -> None:
    json.dumps(report, allow_nan=False)
    for case in report["cases"]:
        for check in case["checks"]:
            error = check["max_abs_error"]
            if check["status"] == "passed" and error is not None and error > check["tolerance"]:
                raise UnsafeError(f"{check['name']} passed with an error of {error}")


def suite(draw: random.Random, folder: Path) -> str:
    """A suite is read, its cases expanded."""
    text = mutated_text(draw, inputs.SUITE).decode(errors="replace")
    found = load_suite_text(text, folder / "fuzz.yaml")
    return "\n".join(f"{case.id!r} {case.np}" for case in found.cases)


def override(draw: random.Random, folder: Path) -> str:
    """A suite is read with an override that was mutated."""
    text = mutated_text(draw, draw.choice(inputs.OVERRIDES)).decode(errors="replace")
    changed = load_suite_text(inputs.SUITE.decode(), folder / "fuzz.yaml", [text])
    return "\n".join(f"{case.id!r} {case.np}" for case in changed.cases)


def hostfile(draw: random.Random, folder: Path) -> str:
    """A hostfile is read."""
    path = folder / "fuzz.hosts"
    path.write_bytes(mutated_text(draw, inputs.HOSTFILE))
    return read_hostfile(path).fold()


def cluster(draw: random.Random, folder: Path) -> str:
    """A cluster is read."""
    text = mutated_text(draw, inputs.CLUSTER).decode(errors="replace")
    return read_cluster(text, "fuzz.yaml", "fuzz").name


def profile(draw: random.Random, folder: Path) -> str:
    """A profile is read, in either format."""
    if draw.random() < 0.5:
        text = mutated_text(draw, PROFILE).decode(errors="replace")
        return read_profile_json(text, "fuzz.json", "fuzz").name
    text = mutated_text(draw, inputs.TORCHGRAPH).decode(errors="replace")
    return read_torchgraph(text, "fuzz.txt", "fuzz", 8).name


TARGETS: dict[str, tuple[Target, int]] = {
    "line": (line, 500),
    "protocol": (protocol, 50),
    "log": (log, 10),
    "report": (report, 6),
    "baseline": (baseline, 20),
    "summary": (summary, 44),
    "suite": (suite, 100),
    "override": (override, 20),
    "hostfile": (hostfile, 100),
    "cluster": (cluster, 120),
    "profile": (profile, 30),
}
"""Each target, and its share of a thousand mutations: the dear ones have less."""
