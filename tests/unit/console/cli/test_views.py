"""Tests of the lines and the live table of a run, at several widths."""

import io

import pytest
from rich.console import Console

from spbench.cli.runs.case_table import _EXPLANATIONS, CaseTable
from spbench.cli.runs.lines import LineView, replay_lines
from spbench.cli.runs.live import LiveView
from spbench.record.findings import collect_findings
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.follow import RecordedEvents
from spbench.record.state import RunState
from support.sample_events import (
    build_state,
    case_judged,
    describe_case,
    job_start,
    make_complete_run,
    make_hostile_run,
    make_phases_run,
    make_started_run,
    rank_event,
    record_run,
    run_end,
    run_start,
)


def build_job_events():
    """Return the events of a complete run, each with its job."""
    return [{"job": 1, **event} for event in make_complete_run()]


def render_frame(view, width):
    """Return the frame of a view as text of this width."""
    output = io.StringIO()
    Console(file=output, width=width).print(view.render_frame())
    return output.getvalue()


def render_live(width):
    """Return the state, printed lines and last frame of a live view of a complete run."""
    state = RunState()
    printed = io.StringIO()
    console = Console(file=printed, width=width)
    view = LiveView(state, console, verbosity=0)
    for event in build_job_events():
        state.apply(event)
        view(event)
    frame = render_frame(view, width)
    view.finish("report: x")
    return state, printed.getvalue().splitlines(), frame.splitlines()


@pytest.mark.parametrize(("width", "wide"), [(80, False), (99, False), (100, True), (200, True)])
def test_table_drops_columns_only_if_they_do_not_fit(width, wide):
    state, _, frame = render_live(width)
    heading = next(line for line in frame if line.lstrip().startswith("rank"))
    assert ("p95" in heading) == wide
    assert heading.split()[-1] == "check"
    assert "…" not in "".join(frame)
    assert len(frame) == len(state.ranks) + 3


def print_phases(verbosity, columns=None):
    state = RunState()
    printed = []
    lines = LineView(state, printed.append, verbosity, columns)
    for event in make_phases_run():
        state.apply(event)
        lines({"job": 1, **event})
    return printed


def test_shares_of_a_step_are_printed_if_verbose():
    share = (
        "mean step, all ranks together: spin 60 %, send 10 %, idle 20 %, packing and sending 10 %"
    )
    assert print_phases(1)[-1].strip() == share
    assert not any("spin" in line for line in print_phases(0))
    narrow = print_phases(1, 40)[-3:]
    assert " ".join(" ".join(narrow).split()) == share
    assert max(map(len, narrow)) <= 40


@pytest.mark.parametrize(("width", "replica"), [(80, False), (120, True)])
def test_coordinates_have_separate_columns(width, replica):
    state = RunState()
    printed = io.StringIO()
    console = Console(file=printed, width=width)
    view = LiveView(state, console, verbosity=0)
    for event in make_phases_run()[:-1]:
        state.apply(event)
        view({"job": 1, **event})
    frame = render_frame(view, width)
    view.close()
    lines = frame.splitlines()
    heading = next(line for line in lines if line.startswith("rank"))
    assert ("replica" in heading) == replica
    for name, texts in (("stage", ["0+2", "1+1", "2+0"]), ("tile", ["0,0", "1,0", "2,0"])):
        start = heading.index(name)
        assert [line[start : start + 3] for line in lines[-3:]] == texts


def test_lines_on_a_pipe_are_complete():
    state = RunState()
    printed = []
    lines = LineView(state, printed.append, verbosity=0)
    for event in build_job_events():
        state.apply(event)
        lines(event)
    lines.finish("report: x")
    table = CaseTable(state.cases, state.jobs)
    for case in state.cases.values():
        assert table.render_case(case, 1)[-1] in printed
    assert printed[-1] == "report: x"


@pytest.mark.parametrize(("failed", "printed_cases"), [(2, 2), (15, 12)])
def test_quiet_run_prints_reasons_of_failed_cases(failed, printed_cases, messages):
    names = [f"case{number}" for number in range(failed)]
    events = [
        *make_started_run(*map(describe_case, [*names, "good"])),
        *(case_judged(name, "failed", f"why {name}") for name in names),
        case_judged("good"),
    ]
    printed = []
    LineView(build_state(events), printed.append, verbosity=-1).finish("report: x")
    reasons = [line for line in printed if ": failed, why " in line]
    messages.check(reasons[0])
    assert len(reasons) == printed_cases
    assert ("3 more cases did not pass" in printed) == (failed > printed_cases)
    assert not any("good" in line for line in printed)


@pytest.mark.parametrize("repeat", [1, 3])
def test_legend_explains_values_of_repeated_cases(repeat):
    state = build_state(make_started_run(describe_case("a", repeat=repeat)))
    table = CaseTable(state.cases, state.jobs)
    table.render_case(state.cases["a"], 1)
    note = "Values of repeated cases, and their references, are the medians of their repeats."
    assert (note in table.render_legend()) == (repeat > 1)


def test_legend_explains_iterations_of_few_benchmarks():
    names = ["link.pingpong", "link.barrier", "memory.copy", "compute.noise"]
    for count in (1, 4):
        cases = [describe_case(f"a{index}", benchmark=names[index]) for index in range(count)]
        state = build_state(make_started_run(*cases))
        table = CaseTable(state.cases, state.jobs)
        for case in state.cases.values():
            table.render_case(case)
        legend = list(table.render_legend())
        explained = "link.pingpong: an iteration is one round trip of the largest message."
        assert (explained in legend) == (count == 1)
        assert (_EXPLANATIONS in legend) == (count == 4)
        assert not any("efficiency" in line for line in legend)  # there are no references


def test_quiet_run_prints_no_lines_before_its_end():
    state = RunState()
    printed = []
    lines = LineView(state, printed.append, verbosity=-1)
    for event in build_job_events():
        state.apply(event)
        lines(event)
    assert printed == []


def test_long_phase_is_printed_after_2_s_and_every_10_s(messages):
    state = RunState()
    printed = []
    lines = LineView(state, printed.append, verbosity=0)
    steps = [
        rank_event("progress", 0, case="a", phase="check", done=done, total=100, time=1001.0 + done)
        for done in range(30)
    ]
    for event in [*make_started_run(describe_case("a")), *steps]:
        state.apply(event)
        lines({"job": 1, **event})
    messages.check([line for line in printed if "check " in line])


# Stragglers


def build_lagging(seconds, case="a", slow=(3,), start=1001.0):
    """Return five samples per second and rank, slow ones doubled, and heartbeats."""
    events = []
    for second in range(seconds + 1):
        for rank in range(4):
            values = [20.0 if rank in slow else 10.0] * 5
            events.append(
                rank_event("samples", rank, case=case, values=values) | {"time": start + second}
            )
        events.append(rank_event("heartbeat", 0) | {"time": start + 0.5 + second})
    return events


def print_notes(events, verbosity=0):
    """Return the printed notes on stragglers, unwrapped."""
    state = RunState()
    printed = []
    lines = LineView(state, printed.append, verbosity)
    for event in events:
        state.apply(event)
        lines({"job": 1, **event})
    text = "\n".join(printed).replace("\n    ", " ")
    return [line for line in text.splitlines() if "median" in line]


HOSTS = ("node01", "node01", "node02", "node02")
TWO_CASES = make_started_run(describe_case("a", 4), describe_case("b", 4), hosts=HOSTS)


def test_straggler_is_printed_once_after_5_s():
    assert print_notes([*TWO_CASES, *build_lagging(4)]) == []
    expected = [
        "  note: rank 3 on node02 takes 2.00x the time of the median rank in a for 5.0 s so far; "
        "check its host with: spbench doctor --hosts node02"
    ]
    assert print_notes([*TWO_CASES, *build_lagging(6)]) == expected
    assert print_notes([*TWO_CASES, *build_lagging(60)]) == expected


def test_straggler_is_printed_again_in_the_next_case():
    second = [rank_event("case_start", rank, case="b") for rank in range(4)]
    notes = print_notes(
        [*TWO_CASES, *build_lagging(8), *second, *build_lagging(8, "b", start=1100.0)]
    )
    assert [line.split(" in ")[1][0] for line in notes] == ["a", "b"]


def test_slow_host_is_printed_instead_of_its_ranks(messages):
    hosts = ("node01", "node02", "node02", "node01")
    events = make_started_run(describe_case("a", 6), hosts=(*hosts, "node03", "node03"))
    normal = [
        rank_event("samples", rank, values=[10.0] * 5) | {"time": 1001.0 + second}
        for second in range(8)
        for rank in (4, 5)
    ]
    samples = sorted([*build_lagging(7, slow=(1, 2)), *normal], key=lambda event: event["time"])
    messages.check(print_notes([*events, *samples]))


def test_quiet_run_prints_no_stragglers():
    assert print_notes([*TWO_CASES, *build_lagging(60)], verbosity=-1) == []


# Many ranks


def test_table_of_many_ranks_has_the_slowest():
    hosts = [f"node{number // 8:02}" for number in range(64)]
    state = RunState()
    console = Console(file=io.StringIO(), width=120)
    view = LiveView(state, console, verbosity=0)
    times = [rank_event("samples", rank, values=[10.0 + rank]) for rank in range(64)]
    for event in [*make_started_run(describe_case("a", 64), hosts=hosts), *times]:
        state.apply(event)
        view({"job": 1, **event})
    frame = render_frame(view, 120)
    view.close()
    rows = [line.split() for line in frame.splitlines()]
    assert [row[0] for row in rows if "setup" in row] == [str(63 - rank) for rank in range(16)]
    assert "the slowest 16 of 64 ranks" in frame


def test_table_has_times_and_status():
    _, _, frame = render_live(120)
    first, second = (" ".join(line.split()) for line in frame[-2:])
    assert first == "0 node01 0,0 ended 3 3.00 ms 2.00 ms 2.90 ms 2.98 ms 1.00x ✓ passed"
    assert second == "1 node01 0,1 ended 3 4.00 ms 2.00 ms 3.80 ms 3.96 ms 1.00x ✓ passed"


# Replay


def replay(folder, speed=None, verbosity=0):
    printed = []
    replay_lines(folder, speed, printed.append, verbosity)
    return printed


@pytest.mark.parametrize("verbosity", [0, 1])
def test_replay_prints_the_lines_of_the_run(tmp_path, verbosity, messages):
    folder = record_run(tmp_path, make_complete_run())
    state = RunState()
    printed = []
    lines = LineView(state, printed.append, verbosity)
    for event in RecordedEvents(folder.events):
        state.apply(event)
        lines(event)
    lines.finish(folder.report_line)
    assert replay(folder, verbosity=verbosity) == printed
    messages.check(printed[-2])


def test_control_characters_of_ranks_are_replaced(tmp_path):
    events = [
        rank_event("log", 0, level="error", message="\x1b[2Jone\r\n\ttwo"),
        rank_event("case_start", 0),
        case_judged("a", "error", "rank 0: \x1b]0;x\x07"),
    ]
    printed = replay(record_run(tmp_path, [run_start(), job_start(), *events, run_end("error", 4)]))
    assert "        rank 0: ?[2Jone\n        two" in printed
    assert "        rank 0: ?]0;x?" in printed
    assert "1 case" in printed[1]
    assert "1 cases" not in printed[1]


def test_untrusted_run_prints_no_control_characters(tmp_path):
    printed = replay(record_run(tmp_path, make_hostile_run()), verbosity=1)
    assert any("?[2J" in line for line in printed)
    state = RunState()
    output = io.StringIO()
    view = LiveView(state, Console(file=output, width=200), 1)
    frames = io.StringIO()
    for event in make_hostile_run():
        event = {"job": 1, **event}
        state.apply(event)
        view(event)
        Console(file=frames, width=200).print(view.render_frame())
    view.finish("report")
    for text in ("\n".join(printed), output.getvalue(), frames.getvalue()):
        assert "[2J" in text
        assert "\x1b[2J" not in text
        assert not {"\x07", "\x9b", "\u202e", "\ud800"} & set(text)


def test_replay_at_high_speed_prints_the_same(tmp_path):
    folder = record_run(tmp_path, make_complete_run())
    assert replay(folder, 1e9) == replay(folder)


@pytest.mark.parametrize(
    ("pid", "end"), [(None, "still running"), (1, "the console ended before the run did")]
)
def test_replay_of_an_unfinished_run_is_marked(tmp_path, monkeypatch, pid, end):
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: pid is None)
    folder = record_run(tmp_path, make_complete_run()[:-1])
    assert replay(folder)[-1] == f"unfinished: {end}; events: {folder.events}"


@pytest.mark.parametrize(
    ("alive", "end"),
    [
        (None, "still running on node09, as far as its log shows"),
        (False, "nothing came from the console on node09 for long"),
    ],
)
def test_replay_of_a_run_of_another_host_is_marked(tmp_path, monkeypatch, alive, end):
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: alive)
    folder = record_run(tmp_path, make_complete_run()[:-1], console={"host": "node09"})
    assert replay(folder)[-1] == f"unfinished: {end}; events: {folder.events}"


@pytest.mark.parametrize("wrong", ["nonsense", '{"event":"samples","time":1.0}'])
def test_replay_reports_the_invalid_line(tmp_path, wrong):
    folder = record_run(tmp_path, make_complete_run()[:3])
    with folder.events.open("a") as file:
        file.write(wrong + "\n")
    *_, left_out, end = replay(folder)
    assert (
        left_out == f"{folder.events}:4: this is no event of a run; what it reported was left out"
    )
    assert end.startswith("unfinished")


def test_last_line_counts_open_expectations(messages):
    state = RunState()
    printed = []
    lines = LineView(state, printed.append, -1)
    left_open = {"metric": "time_ms", "op": "max", "limit": None, "value": None}
    left_open |= {"expression": "case(b).time_ms", "status": "skipped", "reason": "b is left out"}
    events = build_job_events()
    for event in events:
        if event["event"] == "case_judged":
            event["expectations"] = [left_open]
        state.apply(event)
        lines(event)
    lines.finish("report: x")
    messages.check(printed[-2])


# Printed once


def print_lines(events, verbosity=0, **options):
    state = RunState()
    printed = []
    lines = LineView(state, printed.append, verbosity, **options)
    for event in events:
        state.apply(event)
        lines({"job": 1, **event})
    lines.finish("report: x")
    return printed


def build_sharing_run():
    """Return the events of a run with four ranks on two cores."""
    events = [
        *make_started_run(describe_case("a", 4), hosts=("node01",) * 4),
        *(rank_event("samples", rank, values=[1.0]) for rank in range(4)),
        *(rank_event("case_end", rank) for rank in range(4)),
        case_judged("a"),
    ]
    state = RunState()
    for event in events:
        state.apply({"job": 1, **event})
    return [*events, run_end(findings=collect_findings(state))]


def test_shared_cores_are_reported_once_above_the_table():
    printed = print_lines(build_sharing_run())
    sharing = [index for index, line in enumerate(printed) if "4 ranks share 2 cores" in line]
    header = next(index for index, line in enumerate(printed) if line.lstrip().startswith("status"))
    assert len(sharing) == 1
    assert printed[sharing[0]].startswith("warning: ")
    assert sharing[0] < header


def test_quiet_run_prints_shared_cores_in_its_findings():
    printed = print_lines(build_sharing_run(), verbosity=-1)
    assert sum("4 ranks share 2 cores" in line for line in printed) == 1


def test_other_work_is_reported_once(messages):
    events = build_sharing_run()
    events[0]["environment"] = {"host": "login", "other_work": ["load 9.5 on 2 cores"]}
    busy = "the machine was busy when the run started (load 9.5 on 2 cores): times may be inflated"
    events[-1]["findings"].append(busy)
    printed = print_lines(events)
    messages.check([line for line in printed if "load 9.5" in line])


def test_expectation_open_in_all_cases_is_reported_once():
    left_open = {"metric": "time_ms", "op": "max", "limit": None, "value": None}
    left_open |= {"status": "skipped", "reason": "no reference for system vm"}
    events = [
        *make_started_run(describe_case("a"), describe_case("b")),
        case_judged("a", expectations=[left_open]),
        case_judged("b", expectations=[left_open]),
        run_end(),
    ]
    printed = print_lines(events)
    assert sum("no reference for system vm" in line for line in printed) == 1


def test_next_step_is_the_last_line_unless_quiet(messages):
    messages.check(print_lines(build_sharing_run(), next_step="spbench tui")[-1])
    assert (
        print_lines(build_sharing_run(), verbosity=-1, next_step="spbench tui")[-1] == "report: x"
    )
