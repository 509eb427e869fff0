"""Tests of `spbench results` and `spbench compare`."""

import csv
import json

import jsonschema
import pytest

from spbench.cli.records.rank_tables import render_link_table
from spbench.cli.runs.lines import replay_lines
from spbench.report.build import build_report
from spbench.report.links import build_link_matrices
from spbench.report.model import report_schema
from spbench.report.recorded import load_run
from spbench.report.text_tables import align_columns
from support.sample_events import (
    case_judged,
    describe_case,
    describe_metric,
    job_start,
    make_complete_run,
    make_hostile_run,
    make_links_run,
    make_started_run,
    rank_event,
    record_run,
    run_end,
    run_start,
)


def build_run(time, *names):
    """Return the events of a run with this time of each case on both ranks."""
    events = make_started_run(*(describe_case(name, checks=[]) for name in names))
    for name in names:
        for rank in (0, 1):
            events.append(rank_event("case_start", rank, case=name))
            events.append(rank_event("samples", rank, case=name, values=[time]))
        events.append(case_judged(name))
    return [*events, run_end()]


def build_repeats(times):
    """Return the events of a run of one case with a repeat per time."""
    events = [run_start(describe_case("a", repeat=len(times), checks=[]))]
    for repeat, time in enumerate(times):
        events.append(job_start("a", job=repeat + 1))
        for rank in (0, 1):
            events.append(rank_event("case_start", rank, case="a", repeat=repeat))
            events.append(rank_event("samples", rank, case="a", repeat=repeat, values=[time]))
    return [*events, case_judged("a"), run_end()]


def record_as(home, events, name, **changes):
    """Record a run under a name, which defines the order of runs."""
    folder = record_run(home, events, **{"verdict": "passed", **changes})
    folder.path.rename(folder.path.with_name(name))
    return name


def test_columns_are_aligned():
    rows = [("case", "a"), ("x", "10"), ("longer", "")]
    assert align_columns(rows, {1}) == ["case     a", "x       10", "longer"]


# results list


@pytest.fixture
def two_runs(home):
    first = record_as(home, build_run(2.0, "a", "b"), "20260101-000000-x-0001", verdict="failed")
    return first, record_as(home, build_run(1.0, "b", "c"), "20260102-000000-x-0002")


def test_filter_selects_runs(spbench, two_runs):
    status, out, err = spbench("results", "list", "verdict:failed", "made")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:]] == [two_runs[0]]


def test_newest_run_is_listed_first(spbench, two_runs):
    heading, *lines = spbench("results", "list").out.splitlines()
    titles = ["run", "started", "status", "passed", "took", "suite", "host"]
    assert heading.split() == titles
    assert [line.split()[0] for line in lines] == [two_runs[1], two_runs[0]]
    spbench("results", "note", "last", "new")
    assert spbench("results", "list").out.splitlines()[0].split() == [*titles, "note"]


@pytest.mark.parametrize("option", ["-n", "--newest"])
def test_newest_option_limits_the_list(spbench, home, two_runs, option):
    third = record_as(home, build_run(1.0, "d"), "20260103-000000-x-0003")
    lines = spbench("results", "list", option, "2").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [third, two_runs[1]]
    objects = json.loads(spbench("results", "list", option, "2", "--json").out)
    assert [run["id"] for run in objects] == [two_runs[1], third]


def make_fingerprint(host):
    return {"id": "x", "hosts": [host], "processors": ["p"], "cores": [2], "mpi": [], "torch": []}


def test_list_marks_planted_faults_and_other_machines(spbench, home):
    plain = record_as(
        home, build_run(2.0, "a"), "20260101-000000-x-0001", fingerprint=make_fingerprint("old")
    )
    faulty = record_as(
        home,
        build_run(2.0, "a"),
        "20260102-000000-x-0002",
        fingerprint=make_fingerprint("new"),
        argv=["run", "x.yaml", "--inject", "slow@a"],
    )
    heading, newest, oldest = spbench("results", "list").out.splitlines()
    assert "mark" in heading.split()
    assert (newest.split()[0], "! fault" in newest) == (faulty, True)
    assert (oldest.split()[0], "≠ other machine" in oldest) == (plain, True)
    older, newer = json.loads(spbench("results", "list", "--json").out)
    assert (older["faults"], older["marks"]) == ([], ["machine"])
    assert (newer["faults"], newer["marks"]) == (["slow@a"], ["fault"])
    (_, only) = spbench("results", "list", "mark:fault").out.splitlines()
    assert only.split()[0] == faulty


@pytest.mark.parametrize("columns", [80, 120])
def test_list_fits_the_terminal(spbench, home, two_runs, monkeypatch, columns):
    spbench("results", "note", "last", "#rack2", *["many words"] * 20)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert spbench("results", "list").out.splitlines()[1].endswith("many words")
    monkeypatch.setattr("spbench.cli.records.results._find_terminal_width", lambda: columns)
    lines = spbench("results", "list").out.splitlines()
    assert columns - 1 <= max(map(len, lines)) <= columns  # no space precedes the ellipsis
    assert lines[1].endswith("…")
    assert ("started" in lines[0]) == (columns >= 120)
    assert "#rack2" in lines[1]


@pytest.mark.parametrize(
    ("columns", "shown"),
    [(60, []), (66, ["took"]), (80, ["took", "host"]), (None, ["took", "host"])],
)
def test_narrow_list_drops_host_then_duration(spbench, home, monkeypatch, columns, shown):
    console = {"pid": 1, "host": "login", "started": 1000.0}
    name = "20260101-000000-x-0001"
    record_as(home, build_run(2.0, "a"), name, console=console, finished=1065.0)
    spbench("results", "note", "last", "new")
    monkeypatch.setattr("spbench.cli.records.results._find_terminal_width", lambda: columns)
    heading, line = spbench("results", "list").out.splitlines()
    assert [title for title in ("took", "host") if title in heading.split()] == shown
    assert [cell for cell in ("1 min 05 s", "login") if cell in line] == [
        {"took": "1 min 05 s", "host": "login"}[title] for title in shown
    ]


def test_runs_are_listed_as_json(spbench, two_runs):
    status, out, _ = spbench("results", "list", "--json")
    assert status == 0
    assert [(run["id"], run["verdict"]) for run in json.loads(out)] == [
        (two_runs[0], "failed"),
        (two_runs[1], "passed"),
    ]


def test_filter_without_matches_exits_with_5(spbench, two_runs, messages):
    status, out, err = spbench("results", "list", "nothing", "--json")
    assert (status, json.loads(out)) == (5, [])
    messages.check(err)


def test_invalid_filter_exits_with_2(spbench, two_runs, messages):
    status, out, err = spbench("results", "list", "suit:x")
    assert (status, out) == (2, "")
    messages.check(err)


def test_note_explains_why_other_loops_do_not_add_up(spbench, home):
    metrics = [describe_metric("time_ms", "ms"), describe_metric("exchange_ms", "ms")]
    case = describe_case(np=4, benchmark="halo.compute", metrics=metrics)
    four = make_started_run(case, hosts=["node01"] * 4)
    record_run(home, [*four, rank_event("metric", 0, name="exchange_ms", value=1.0)])
    _, out, _ = spbench("results", "show")
    text = " ".join(out.split())
    assert "in other loops: exchange 1.00 ms " in text
    assert "do not add up to the time, since ranks that share cores take turns there, too" in text
    assert "Each metric is explained by `spbench benchmarks NAME`, such as halo.compute." in text


def test_references_of_repeats_show_their_range(spbench, home):
    references = [
        rank_event("metric", 0, repeat=repeat, name="time_ms", value=value, measured_by="a copy")
        for repeat, value in enumerate((0.08, 0.07, 0.09))
    ]
    record_run(home, [*make_started_run(describe_case(repeat=3)), *references])
    _, out, _ = spbench("results", "show")
    assert "reference of time: 80.0 us, a copy; 70.0 us to 90.0 us over 3 repeats" in out


def test_json_of_no_runs_is_an_empty_list(spbench):
    assert spbench("results", "list", "--json") == (0, "[]\n", "")


def test_metrics_of_other_loops_are_marked(spbench, home):
    metrics = [describe_metric("time_ms", "ms"), describe_metric("exchange_ms", "ms")]
    case = describe_case(benchmark="halo.compute", metrics=metrics)
    events = [*make_started_run(case), rank_event("metric", 0, name="exchange_ms", value=1.0)]
    record_run(home, events)
    _, out, _ = spbench("results", "show")
    assert "\n        in other loops: exchange 1.00 ms\n" in out
    assert "in other loops: measured outside of the timed iterations" in out
    _, out, _ = spbench("benchmarks", "halo.compute")
    description = " ".join(out.partition("  exchange_ms ")[2].split())
    assert "(ms, better: lower, measured separately)" in description


# results show --links


def test_links_are_shown_as_matrices(spbench, home):
    ends = [(rank, f"node{rank // 2}") for rank in range(4)]
    pairs = [(first, second) for first in ends for second in ends if first < second]
    latency = {pair: 2.0 if pair[0][1] == pair[1][1] else 5.0 for pair in pairs}
    latency[ends[1], ends[2]] = 12.0
    record_run(home, make_links_run(latency, {}))
    status, out, err = spbench("results", "show", "--links")
    assert (status, err) == (0, "")
    assert "passed     links" in out
    assert out.endswith(
        "links: latency_us, 8 B\n"
        "rank     0     1     2     3\n"
        "   0        2.00  5.00  5.00\n"
        "   1  2.00        12.0  5.00\n"
        "   2  5.00  12.0        2.00\n"
        "   3  5.00  5.00  2.00\n"
        "the worst pair of ranks on each two hosts\n"
        "host   node0  node1\n"
        "node0   2.00   12.0\n"
        "node1   12.0   2.00\n"
    )


def test_slow_link_is_marked(spbench, home):
    ranks = [(rank, "node") for rank in range(3)]
    latency = {(ranks[0], ranks[1]): 2.0, (ranks[0], ranks[2]): 2.0, (ranks[1], ranks[2]): 9.0}
    events = make_links_run(latency, {})
    events[0]["cases"][0]["benchmark"] = "link.pingpong"
    record_run(home, events)
    _, out, _ = spbench("results", "show", "--links")
    assert (
        "   1  2.00         9.00!\n   2  2.00  9.00!\n! at least 1.5x worse than the median" in out
    )


def test_many_ranks_show_only_the_matrix_of_hosts(home):
    latency = {((0, "x"), (1, "y")): 2.0, ((1, "y"), (2, "y")): 3.0}
    run = load_run(record_run(home, make_links_run(latency, {})))
    [table] = [table for matrix in build_link_matrices(run) for table in matrix.tables]
    assert list(render_link_table(table, max_ranks=2)) == [
        "the worst pair of ranks on each two hosts",
        "host     x     y",
        "x           2.00",
        "y     2.00  3.00",
    ]


def test_run_without_links_exits_with_5(spbench, home):
    record_run(home, make_complete_run()[:3])
    status, out, err = spbench("results", "show", "--links")
    assert (status, out) == (5, "")
    assert "no case that measured links between ranks" in err
    assert spbench("results", "show")[0] == 0


# results export


def test_run_is_exported_to_stdout(spbench, two_runs):
    status, out, err = spbench("results", "export", "last~1")
    assert (status, err) == (0, "")
    rows = list(csv.DictReader(out.splitlines()))
    assert [(row["case"], row["metric"], row["value"]) for row in rows[::2]] == [
        ("a", "time_ms", "2.0"),
        ("b", "time_ms", "2.0"),
    ]


def test_run_is_exported_to_a_file(spbench, two_runs, tmp_path):
    path = tmp_path / "below" / "out.json"
    args = ("results", "export", two_runs[0], "--format", "json", "--output", str(path))
    assert spbench(*args) == (0, "", "")
    report = json.loads(path.read_text())
    jsonschema.validate(report, report_schema())
    assert [case["id"] for case in report["cases"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "options", "kind"),
    [
        ("x.json", (), "json"),
        ("x.MD", (), "md"),
        ("x.csv", (), "csv"),
        ("x.other", (), "csv"),
        ("x.json", ("--format", "md"), "md"),
    ],
)
def test_suffix_of_the_output_selects_the_export_format(
    spbench, two_runs, tmp_path, name, options, kind
):
    path = tmp_path / name
    assert spbench("results", "export", *options, "-o", str(path)) == (0, "", "")
    assert path.read_text() == spbench("results", "export", "--format", kind).out


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["results", "export", "last", "--format", "xml"], 2, "no format 'xml'"),
        (["results", "export", "2030"], 2, "no run '2030'"),
        (["results", "export", "last", "-o", "/proc/none/x"], 4, "cannot write /proc/none/x"),
        (["compare", "last", "2030"], 2, "no run '2030'"),
        (["compare", "last", "last~2"], 2, "none of them last~2"),
        (["compare", "last", "last~1", "--format", "xml"], 2, "no format 'xml'"),
    ],
)
def test_invalid_request_is_a_one_line_error(spbench, two_runs, args, status, message):
    done = spbench(*args)
    assert (done.status, done.out) == (status, "")
    assert done.error_line.startswith("spbench: error: ")
    assert message.lower() in done.error_line.lower()


# compare


def test_two_runs_are_compared(spbench, two_runs, messages):
    status, out, err = spbench("compare", "last~1", "last")
    assert (status, err) == (0, "")
    first, second, empty, *lines = out.splitlines()
    assert first.split()[:2] == ["a", two_runs[0]]
    assert second.split()[:2] == ["b", two_runs[1]]
    assert empty == ""
    messages.check(lines)


def test_all_lists_each_metric_with_its_unit(spbench, two_runs, messages):
    status, out, _ = spbench("compare", "last~1", "last", "--all")
    assert status == 0
    messages.check(out.splitlines()[3:6])


def test_the_last_two_runs_are_compared_by_default(spbench, two_runs):
    a, b = two_runs
    explicit = spbench("compare", a, b)
    assert spbench("compare") == spbench("compare", a) == explicit


def test_only_option_filters_rows_and_keeps_notes(spbench, two_runs):
    _, complete, _ = spbench("compare", "--format", "md")
    _, shown, _ = spbench("compare", "--format", "md", "--only", "worse")
    notes = [
        line for line in complete.splitlines() if "judged" in line and not line.startswith("|")
    ]
    assert notes
    assert all(note in shown.splitlines() for note in notes)
    assert "too few launches" in shown


def test_comparison_fits_the_terminal(spbench, two_runs, monkeypatch):
    long_word = "comparison lines are wrapped " * 10
    monkeypatch.setattr(
        "spbench.report.comparison.text.comparison_notes", lambda comparison: [long_word]
    )
    piped = spbench("compare", "last~1", "last").out.splitlines()
    assert 110 < max(map(len, piped)) <= 120
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    shown = spbench("compare", "last~1", "last").out.splitlines()
    assert 70 < max(map(len, shown)) <= 80


def test_comparison_warns_of_a_planted_fault(spbench, home, two_runs, messages):
    run = home / "runs" / two_runs[1] / "run.json"
    content = json.loads(run.read_text()) | {"request": {"inject": ["slow@b"]}}
    run.write_text(json.dumps(content | {"id": two_runs[1]}))
    warning = "warning: run b was made with the planted fault slow (case b)"
    assert spbench("compare", "last~1", "last").out.splitlines()[0] == warning
    markdown = spbench("compare", "last~1", "last", "--format", "md").out
    assert "**Warning:** run b was made with the planted fault slow (case b)" in markdown
    assert "planted fault" not in spbench("compare", "last~1", "last", "--format", "json").out
    done = spbench("baseline", "set", "slow", "last")
    messages.check(done.err)


@pytest.mark.parametrize("kind", ["csv", "md", "json"])
def test_comparison_is_exported(spbench, two_runs, kind):
    status, out, _ = spbench("compare", *two_runs, "--format", kind)
    assert status == 0
    assert ("| time |" if kind == "md" else "time_ms") in out
    assert out.endswith("\n")


def test_reports_are_compared_like_their_runs(spbench, home, two_runs, tmp_path):
    _, expected, _ = spbench("compare", *two_runs, "--format", "csv")
    files = [str(tmp_path / f"{run}.json") for run in two_runs]
    for run, file in zip(two_runs, files, strict=True):
        assert spbench("results", "export", run, "--format", "json", "-o", file)[0] == 0
    tally = "spbench: 0 of 3 cases judged, 3 not judged\n"
    assert spbench("compare", *files, "--format", "csv") == (0, expected, tally)
    (tmp_path / "x.json").write_text("{}")
    status, _, err = spbench("compare", str(tmp_path / "x.json"), "last")
    assert (status, "is no report of spbench" in err) == (2, True)


@pytest.mark.parametrize(
    ("factor", "args", "status"),
    [
        (1.2, [], 0),
        (1.2, ["--fail-on", "worse"], 1),
        (0.8, ["--fail-on", "worse"], 0),
        (0.8, ["--fail-on", "any"], 1),
        (1.0, ["--fail-on", "any"], 0),
    ],
)
def test_fail_on_makes_a_worse_run_fail(spbench, home, factor, args, status):
    for number, times in ((1, 1.0), (2, factor)):
        launches = [times * (1 + n / 1000) for n in range(5)]
        record_as(home, build_repeats(launches), f"2026010{number}-000000-x-000{number}")
    code, out, _ = spbench("compare", "last~1", "last", "--only", "same", *args)
    assert code == status
    assert ("= same" in out) == (factor == 1.0)
    assert "1 of 1 case judged" in out
    assert spbench("compare", "last~1", "last", "--only", "equal")[0] == 2


@pytest.mark.parametrize(("args", "status"), [([], 0), (["--fail-on", "worse"], 1)])
def test_fail_on_makes_a_case_without_results_fail(spbench, home, args, status):
    record_as(home, build_repeats([1.0]), "20260101-000000-x-0001")
    wrong = [*build_repeats([1.0])[:-1], case_judged("a", "error", "it died")]
    record_as(home, wrong, "20260102-000000-x-0002")
    done = spbench("compare", "last~1", "last", *args)
    assert (done.status, "Broken in b, error: a." in done.out) == (status, True)


def test_runs_without_a_common_case_exit_with_5(spbench, home, two_runs, messages):
    record_as(home, build_run(1.0, "d"), "20260103-000000-x-0003")
    status, out, err = spbench("compare", "last~1", "last")
    assert status == 5
    assert "0 of 3 cases judged, 3 not judged" in out
    messages.check(err)
    gated = spbench("compare", "last~1", "last", "--fail-on", "worse")
    assert (gated.status, "no case was judged" in gated.err) == (6, True)


def record_launches(home, *launches, status="passed"):
    """Record a run of the same case for each list of launch times."""
    for number, times in enumerate(launches, 1):
        record_as(home, build_repeats(times), f"2026010{number}-000000-x-000{number}")


@pytest.mark.parametrize(
    ("factor", "args", "status"),
    [
        (1.0, [], 0),
        (1.0, ["--fail-on", "never"], 0),
        (1.0, ["--fail-on", "worse"], 6),
        (1.0, ["--fail-on", "any"], 6),
        (1.0, ["--fail-on", "worse", "--max-unjudged", "9"], 6),
        (1089.0, ["--fail-on", "worse"], 1),
        (1089.0, [], 0),
        (1.0, ["--max-unjudged", "9"], 2),
    ],
)
def test_single_launch_per_side_never_passes_silently(spbench, home, factor, args, status):
    record_launches(home, [1.0], [factor])
    done = spbench("compare", "last~1", "last", *args)
    assert done.status == status
    assert ("no case was judged against" in done.err) == (status == 6)
    if status != 2:
        assert f"{int(factor > 1)} of 1 case judged" in done.out


def test_comparison_as_json_has_the_judgements(spbench, home):
    record_launches(home, [1.0], [1089.0])
    done = spbench("compare", "last~1", "last", "--format", "json", "--fail-on", "worse")
    [judgement] = json.loads(done.out)["judgements"]
    assert (judgement["judgement"], judgement["outcome"]) == ("judged", "worse")


# results series


def test_series_lists_the_oldest_run_first(spbench, two_runs):
    status, out, err = spbench("results", "series", "b")
    assert (status, err) == (0, "")
    heading, names, *rows = (line.split() for line in out.splitlines())
    assert heading[:2] == ["b:", "time_ms,"]
    assert names == ["over", "value", "least", "p95", "verdict"]
    assert [row[:3] for row in rows] == [
        [two_runs[0], "2.00", "ms"],
        [two_runs[1], "1.00", "ms"],
    ]


def test_series_is_limited_by_a_filter(spbench, two_runs):
    _, out, _ = spbench("results", "series", "b", "--filter", "verdict:failed")
    assert [line.split()[0] for line in out.splitlines()[2:]] == [two_runs[0]]


def test_series_over_a_swept_parameter(spbench, home, messages):
    cases = [
        describe_case(f"a[halo_len={n}]", name="a", params={"halo_len": n}, checks=[])
        for n in (4, 1)
    ]
    events = make_started_run(*cases)
    for case in cases:
        for rank in (0, 1):
            events.append(rank_event("case_start", rank, case=case["id"]))
            values = [float(case["params"]["halo_len"])]
            events.append(rank_event("samples", rank, case=case["id"], values=values))
        events.append(case_judged(case["id"]))
    record_as(home, [*events, run_end()], "20260101-000000-x-0001")
    status, out, _ = spbench("results", "series", "a", "time_ms", "--over", "halo_len")
    assert status == 0
    assert [line.split()[:2] for line in out.splitlines()[2:]] == [["1", "1.00"], ["4", "4.00"]]
    status, _, err = spbench("results", "series", "a", "--over", "halo")
    assert status == 2
    messages.check(err)


def test_series_without_values_exits_with_5(spbench, two_runs, messages):
    status, out, err = spbench("results", "series", "b", "speed")
    assert (status, out) == (5, "")
    messages.check(err)


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ("results", "list"),
        ("results", "show"),
        ("results", "show", "--links"),
        ("results", "series", "a?[2J?]0;owned??31m???"),
        ("compare", "last", "last"),
        ("compare", "last", "last", "--format", "csv"),
        ("compare", "last", "last", "--format", "md"),
        ("results", "export"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("reported", [False, True])
def test_untrusted_folder_prints_no_control_characters(spbench, home, args, reported):
    folder = record_run(home, make_hostile_run(), suite="s\x1b[2J", host="h\x1b[2J")
    if reported:
        folder.write_json("report.json", build_report(folder.replay()))
    _, out, err = spbench(*args)
    assert "?[2J" in (out + err).replace("\\[", "[")  # Markdown escapes brackets
    assert all(letter.isprintable() or letter == "\n" for letter in out + err)


def test_show_prints_errors_of_ranks_and_job_output(spbench, home):
    error = {"message": "ValueError: no such tile", "traceback": "Traceback\n  in halo.py\n"}
    left_out = ("case_end", "bye", "case_judged", "job_end", "run_end")
    events = [event for event in make_complete_run() if event["event"] not in left_out]
    events += [
        rank_event("case_end", 1, status="error", error=error),
        case_judged("a", "error", "rank 1: ValueError: no such tile"),
        run_end("error", 4),
    ]
    folder = record_run(home, events)
    (folder.create_job_folder(1) / "stderr.log").write_text("MPI_ABORT was invoked\n")
    out = spbench("results", "show", "last")[1]
    assert "a, rank 1: ValueError: no such tile\nTraceback\n  in halo.py\n" in out
    assert f"job 1: stderr ({folder.path}/jobs/1/stderr.log)\nMPI_ABORT was invoked\n" in out


def test_show_prints_output_of_passed_jobs_only_on_request(spbench, home):
    folder = record_run(home, make_complete_run())
    (folder.create_job_folder(1) / "stdout.log").write_text("hello\n")
    assert "hello" not in spbench("results", "show", "last")[1]
    assert "hello" in spbench("results", "show", "last", "--output")[1]


def test_missing_report_is_not_named(spbench, home):
    folder = record_run(home, make_complete_run())
    replayed = []
    replay_lines(folder, None, replayed.append, 0)
    for out in (spbench("results", "show")[1], "\n".join(replayed)):
        assert f"no report was written; events: {folder.events}" in out
        assert "report.json" not in out
    folder.write_json("report.json", build_report(folder.replay()))
    assert f"report: {folder.report}" in spbench("results", "show")[1]
