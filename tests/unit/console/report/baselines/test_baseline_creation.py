"""Baselines: created from runs, updated by later runs, and compared with runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from spbench.errors import ExitCode, UsageError
from spbench.report.baselines.creation import (
    launch_warnings,
    make_baseline,
    make_baseline_run,
    update_baseline,
)
from spbench.report.comparison.compare import compare
from spbench.report.comparison.model import MetricRow, Outcome
from spbench.report.comparison.notes import comparison_notes, table_notes
from spbench.report.gate.baseline_gate import (
    BaselineGate,
    GatePolicy,
    compare_with_past,
    describe_difference,
)
from spbench.report.model import LaunchPart, LimitPart
from spbench.report.text_tables import PIPE_WIDTH, wrap_text
from support.sample_runs import make_case, make_failed_check, make_metric, make_run, make_summary

FIVE = [1.00, 1.01, 1.02, 0.99, 0.98]
HOME = Path("no-home")


def build_case(factor=1.0, name="a", **changes):
    launches = [factor * launch for launch in FIVE]
    return make_case(name, {"time_ms": factor}, medians={"time_ms": launches}, **changes)


def make_machine_run(machine, *cases, **summary_fields):
    fingerprint = {"id": machine, "hosts": [machine]}
    return replace(make_run(*cases, **summary_fields), environment={"fingerprint": fingerprint})


def build_baseline(*cases, id="old"):
    return make_baseline("main", make_machine_run("node01", *cases, id=id))[0]


def as_run(baseline):
    return make_baseline_run(baseline, Path("baselines/main.json"))


def update(old, *cases, widen=False, id="new", machine="node01"):
    later = make_machine_run(machine, *cases, id=id)
    return update_baseline(old, later, compare_with_past(HOME, as_run(old), later), widen=widen)


def launches_by_case(baseline):
    return {case.id: case.metrics["time_ms"].launches for case in baseline.cases}


def test_baseline_keeps_whether_ranks_shared_cores():
    reference = {"time_ms": LimitPart(value=0.5, unit="ms", measured_by="ping-pong")}
    metrics = {"time_ms": make_metric(1.0), "exchange_efficiency": make_metric(0.8, "1", "higher")}
    crowded = LaunchPart(
        launcher="openmpi", version="5", argv=[], hostfile=None, env={}, job=1, oversubscribed=True
    )
    baseline = build_baseline(make_case("a", metrics, limits=reference, launch=crowded))
    [saved] = baseline.cases
    assert (saved.metrics["exchange_efficiency"].value, saved.crowded) == (0.8, True)
    part = as_run(baseline).cases["a"]
    assert part.disturbed
    unknown = as_run(build_baseline(make_case("a", metrics))).cases["a"]
    assert (unknown.disturbed, unknown.crowded) == (False, None)
    not_crowded = crowded.model_copy(update={"oversubscribed": False})
    assert (
        as_run(build_baseline(make_case("a", metrics, launch=not_crowded))).cases["a"].crowded
        is False
    )


def test_comparison_with_a_baseline_equals_one_with_its_run():
    first = build_case()
    later = build_case(1.2)
    by_baseline = compare(as_run(build_baseline(first)), make_run(later))
    by_run = compare(make_run(first), make_run(later))
    assert [row.outcome for row in by_baseline.rows] == ["worse"]
    assert [*by_baseline.rows] == [*by_run.rows]


@pytest.mark.parametrize("reference", [None, 0.5])
def test_baseline_keeps_the_reference_of_the_time(reference):
    part = make_case("a", {"time_ms": 1.0})
    if reference is not None:
        limit = LimitPart(value=reference, unit="ms", measured_by="a copy")
        part = part.model_copy(update={"limits": {"time_ms": limit}})
    baseline, _ = make_baseline("usual", make_run(part))
    limits = make_baseline_run(baseline, Path("usual.json")).cases["a"].limits
    assert [limit.value for limit in limits.values()] == [reference] * (reference is not None)


def test_keeps_and_joins_the_fastest_iterations_of_launches():
    first, second = (make_run(make_case("a", fastest=[base, base + 1.0])) for base in (1.0, 3.0))
    baseline, _ = make_baseline("usual", replace(first, summary=make_summary("one")))
    assert make_baseline_run(baseline, Path("usual.json")).cases["a"].fastest == [1.0, 2.0]
    later = replace(second, summary=make_summary("other"))
    comparison = compare(make_baseline_run(baseline, Path("usual.json")), later)
    wider, _ = update_baseline(baseline, later, comparison, widen=True)
    assert wider.cases[0].metrics["time_ms"].fastest == [1.0, 2.0, 3.0, 4.0]
    old = baseline.model_copy(deep=True)
    old.cases[0].metrics["time_ms"] = (
        baseline.cases[0].metrics["time_ms"].model_copy(update={"fastest": []})
    )
    joined, _ = update_baseline(old, later, comparison, widen=True)
    assert joined.cases[0].metrics["time_ms"].fastest == []


def test_baseline_omits_cases_without_results():
    failed_check = build_case(name="b", status="failed", checks=[make_failed_check()])
    error = build_case(name="c", status="error")
    missed_expectation = build_case(name="d", status="failed", reason="an expectation")
    baseline, messages = make_baseline(
        "main", make_run(build_case(), failed_check, error, missed_expectation)
    )
    assert [case.id for case in baseline.cases] == ["a", "d"]
    assert messages == ["left out, check halo failed: b", "left out, error: c"]


def test_rejects_a_run_without_results(messages):
    with messages.raises(UsageError):
        make_baseline("main", make_run(build_case(status="error"), id="x"))


def test_rejects_a_running_run(messages):
    with messages.raises(UsageError):
        make_baseline("main", make_run(build_case(), id="x", status="running"))


def test_update_replaces_launches_by_better_ones():
    new, messages = update(build_baseline(build_case()), build_case(0.8))
    assert launches_by_case(new) == {"a": [0.8 * launch for launch in FIVE]}
    assert messages == ["replaced, better in the run: a"]
    assert (new.run, new.runs) == ("old", ["new"])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [(None, True, True), (True, None, True), (False, None, None), (False, False, False)],
)
def test_joined_launches_are_crowded_if_one_side_is(old, new, expected):
    def launch(crowded):
        fields = {"argv": [], "hostfile": None, "env": {}, "job": 1}
        part = LaunchPart(launcher="openmpi", version="5", oversubscribed=bool(crowded), **fields)
        return None if crowded is None else part

    before = build_baseline(build_case(launch=launch(old)))
    widened, _ = update(before, build_case(launch=launch(new)), widen=True)
    assert widened.cases[0].crowded is expected


@pytest.mark.parametrize(("factor", "outcome"), [(1.2, "worse"), (1.0, "same")])
def test_update_adds_launches_that_are_not_better_only_by_widen(factor, outcome):
    old = build_baseline(build_case())
    unchanged, messages = update(old, build_case(factor))
    assert unchanged == old
    assert messages == [f"kept, {outcome} in the run (--widen adds its launches): a"]
    new, messages = update(old, build_case(factor), widen=True)
    assert launches_by_case(new) == {"a": [*FIVE, *(factor * launch for launch in FIVE)]}
    assert new.runs == ["old", "new"]
    assert messages == [f"widened, {outcome} in the run, launches added: a"]


def test_update_adds_a_run_only_once():
    once, _ = update(build_baseline(build_case()), build_case(1.0), widen=True)
    twice, messages = update(once, build_case(1.0), widen=True)
    assert twice == once
    assert messages == ["kept, already part of it: a"]


def test_update_adds_new_cases_and_keeps_missing_ones():
    new, messages = update(build_baseline(build_case()), build_case(name="b"))
    assert launches_by_case(new).keys() == {"a", "b"}
    assert messages == ["kept, no time in the run to compare: a", "added, new in the run: b"]


def test_rejects_an_update_from_other_machines(messages):
    with messages.raises(UsageError):
        update(build_baseline(build_case()), build_case(0.5), machine="node02")


def test_different_benchmark_version_is_not_comparable(messages):
    comparison = compare(as_run(build_baseline(build_case())), make_run(build_case(version=2)))
    [row] = comparison.rows
    assert row.outcome == "not comparable"
    messages.check(row.reason)


# A run compared with a baseline


def judge_run(later, failing_outcomes=("worse",), machine="node01", most_unjudged=0):
    policy = GatePolicy(frozenset(failing_outcomes), most_unjudged)
    gate = BaselineGate(HOME, as_run(build_baseline(build_case(), build_case(name="b"))), policy)
    result = gate.judge(make_machine_run(machine, later, build_case(name="b"), id="later"))
    lines = []
    result.print_to(lines.append)
    return result, lines


def test_worse_time_fails_the_run_and_its_case(messages):
    verdict, lines = judge_run(build_case(1.5))
    assert verdict.exit_code(ExitCode.PASSED) == ExitCode.FAILED
    assert verdict.exit_code(ExitCode.MISSING) == ExitCode.MISSING
    [reason] = verdict.failure_reasons
    messages.check(reason)
    tally = "against baseline main: 2 of 2 cases judged (1 worse, 1 same)"
    notes = comparison_notes(verdict.comparison) + table_notes(verdict.comparison)
    assert lines == [
        "a: baseline main, b: run later",
        "outcome  case        a        b    b/a  95 % interval",
        "▼ worse  a     1.00 ms  1.50 ms  1.50x  1.46 to 1.55",
        "= same   b     1.00 ms  1.00 ms  1.00x  0.971 to 1.03",
        *(line for note in notes for line in wrap_text(note, PIPE_WIDTH)),
        tally,
        "error: 1 case worse compared with main",
    ]
    quiet_lines = []
    verdict.print_to(quiet_lines.append, quiet=True)
    assert quiet_lines == lines
    assert [case.status for case in verdict.run_for_programs.cases.values()] == ["failed", "passed"]
    assert f"a: {verdict.run_for_programs.cases['a'].reason}" == reason
    assert (
        verdict.run_for_programs.summary.status,
        verdict.run_for_programs.summary.exit_code,
    ) == (
        "failed",
        1,
    )


def test_description_has_the_fastest_iterations_if_they_decided(messages):
    row = MetricRow("a", "time_ms", "ms", "lower", 1.0, 1.05, 1.05, (0.9, 1.4), (5, 5))
    messages.check(describe_difference(row, "usual"))
    messages.check(describe_difference(replace(row, fastest=1.1, by_fastest=True), "usual"))


@pytest.mark.parametrize(
    ("factor", "failing_outcomes", "code"),
    [(1.5, (), 0), (0.5, ("worse",), 0), (0.5, ("worse", "better"), 1), (1.0, ("worse",), 0)],
)
def test_fail_on_chooses_the_failing_outcomes(factor, failing_outcomes, code):
    verdict, _ = judge_run(build_case(factor), failing_outcomes)
    assert verdict.exit_code(ExitCode.PASSED) == code


def test_run_on_other_machines_is_unjudged():
    verdict, lines = judge_run(build_case(1.5), machine="node02", most_unjudged=99)
    assert verdict.exit_code(ExitCode.PASSED) == ExitCode.UNJUDGED
    assert lines == [
        "warning: machines or libraries differ: hosts node01 in a, node02 in b",
        "a: baseline main, b: run later",
        "outcome       case        a        b    b/a  95 % interval",
        "? not judged  a     1.00 ms  1.50 ms  1.50x  1.46 to 1.55",
        "? not judged  b     1.00 ms  1.00 ms  1.00x  0.971 to 1.03",
        "Not judged, other machines or libraries (see the warning): a, b. "
        "Set a baseline on these machines, or use `spbench",
        "  compare --force`.",
        *(line for note in table_notes(verdict.comparison) for line in wrap_text(note, PIPE_WIDTH)),
        "against baseline main: 0 of 2 cases judged, 2 not judged",
        "error: no case was judged against main",
    ]
    assert [case.status for case in verdict.run_for_programs.cases.values()] == ["failed", "failed"]


@pytest.mark.parametrize(("maximum", "code"), [(0, 1), (1, 0)])
def test_unjudged_cases_above_the_maximum_fail_the_run(maximum, code, messages):
    one_launch = make_case("a", {"time_ms": 1.0})
    verdict, lines = judge_run(one_launch, most_unjudged=maximum)
    assert verdict.exit_code(ExitCode.PASSED) == code
    messages.check(lines[2])
    notes = [line for line in lines if line.startswith("Not judged")]
    messages.check(notes[0])
    assert any("a case is judged only if its ratio is beyond 1.50x." in line for line in lines)
    assert ("error: 1 case not judged, and --max-unjudged allows 0" in lines) == (code == 1)
    assert verdict.run_for_programs.cases["a"].status == ("failed" if code else "passed")
    assert verdict.run_for_readers.cases["a"].status == "passed"
    assert verdict.run_for_readers.summary.status == ("failed" if code else "passed")
    assert bool(verdict.run_for_readers.errors) == bool(code)
    quiet_lines = []
    verdict.print_to(quiet_lines.append, quiet=True)
    tally = "against baseline main: 1 of 2 cases judged (1 same), 1 not judged"
    assert quiet_lines == (lines if code else [tally])


UNCLEAR = make_case("b", medians={"time_ms": [0.5, 0.6, 0.8, 0.9, 1.04]})
"""Compared with `FIVE`, its interval rules out a slowdown above 10 % but not equality."""


@pytest.mark.parametrize(
    ("failing_outcomes", "code"), [("worse", ExitCode.PASSED), ("worse better", ExitCode.FAILED)]
)
def test_unjudged_case_that_cannot_be_worse_does_not_fail(failing_outcomes, code):
    policy = GatePolicy(frozenset(failing_outcomes.split()))
    old = as_run(build_baseline(build_case(), build_case(name="b")))
    verdict = BaselineGate(HOME, old, policy).judge(
        make_machine_run("node01", build_case(), UNCLEAR, id="later")
    )
    assert [judgement.judgement for judgement in verdict.comparison.judgements] == [
        "judged",
        "unjudged",
    ]
    assert verdict.exit_code(ExitCode.PASSED) == code
    assert verdict.run_for_readers.summary.status == (
        "passed" if code == ExitCode.PASSED else "failed"
    )


def test_error_counts_only_unjudged_cases_that_may_be_slower(messages):
    names = ("a", "b", "c")
    old = as_run(build_baseline(*(build_case(name=name) for name in names)))
    one_launch = make_case("c", {"time_ms": 1.0})
    gate = BaselineGate(HOME, old, GatePolicy(frozenset({"worse"})))
    verdict = gate.judge(make_machine_run("node01", build_case(), UNCLEAR, one_launch, id="later"))
    [error] = verdict.run_for_readers.errors
    messages.check(error)


def test_missing_case_of_the_baseline_fails_the_run(messages):
    policy = GatePolicy(frozenset({"worse"}))
    old = as_run(build_baseline(build_case(), build_case(name="b")))
    verdict = BaselineGate(HOME, old, policy).judge(
        make_machine_run("node01", build_case(), id="later")
    )
    assert verdict.exit_code(ExitCode.PASSED) == ExitCode.FAILED
    messages.check(verdict.failure_reasons[0])
    messages.check(verdict.run_for_programs.errors)


def test_missing_check_fails_a_passed_run(messages):
    passed_fields = {"status": "passed", "max_abs_error": 0.0, "ranks_failed": 0}
    check = make_failed_check().model_copy(update=passed_fields)
    old = as_run(build_baseline(build_case(checks=[check])))
    verdict = BaselineGate(HOME, old, GatePolicy(frozenset({"worse"}))).judge(
        make_machine_run("node01", build_case())
    )
    assert verdict.exit_code(ExitCode.PASSED) == ExitCode.FAILED
    messages.check(verdict.run_for_programs.cases["a"].reason)
    assert verdict.run_for_readers.cases == verdict.run.cases
    messages.check(verdict.run_for_readers.errors)
    assert verdict.run_for_readers.summary.status == "failed"
    permissive = BaselineGate(HOME, old, GatePolicy(frozenset())).judge(
        make_machine_run("node01", build_case())
    )
    assert permissive.exit_code(ExitCode.PASSED) == ExitCode.PASSED
    assert permissive.run_for_programs.cases == permissive.run.cases


def test_noisy_baseline_case_is_not_judged_by_one_launch():
    noisy_case = make_case("a", {"time_ms": 1.0}, noisy="other work had its cores")
    [row] = compare(
        as_run(build_baseline(noisy_case)), make_run(make_case("a", {"time_ms": 9.0}))
    ).rows
    assert row.outcome is Outcome.TOO_FEW


def test_warns_about_few_launches_with_the_needed_repeat(messages):
    few = make_case("a")
    enough = [build_case(name=name) for name in "bcd"]
    [warning] = launch_warnings(build_baseline(few, *enough))
    messages.check(warning)
    assert [*launch_warnings(build_baseline(*enough))] == []


def test_hostile_name_of_a_baseline_adds_no_lines(messages):
    hostile = build_baseline(build_case()).model_copy(update={"name": "x\n::error::y\x1b[2J"})
    lines = []
    gate = BaselineGate(HOME, as_run(hostile), GatePolicy(frozenset()))
    gate.judge(make_machine_run("node01", build_case(2.0))).print_to(lines.append)
    assert all(line.isprintable() for line in lines)
    messages.check([line.split(":")[0] for line in lines if "::error::" in line])


def test_report_has_the_comparison_and_its_verdict():
    verdict, _ = judge_run(build_case(1.5))
    report = {"run": {"verdict": "passed", "exit_code": 0}, "errors": []}
    changed = verdict.add_to_report(report)
    assert changed["run"] == {"verdict": "failed", "exit_code": 1}
    assert changed["errors"] == verdict.failure_reasons
    assert [pair["id"] for pair in changed["comparison"]["cases"]] == ["a", "b"]
    same, _ = judge_run(build_case(1.0))
    assert same.add_to_report(report)["run"] == {"verdict": "passed", "exit_code": 0}
