"""Baselines made of runs, brought up to date with later ones, and runs held against them."""

from dataclasses import replace
from pathlib import Path

import pytest

from spbench.errors import ExitCode, UsageError
from spbench.report.baselines.making import (
    launch_warnings,
    make_baseline,
    make_baseline_run,
    update_baseline,
)
from spbench.report.comparison.compare import compare
from spbench.report.comparison.model import MetricRow
from spbench.report.comparison.notes import comparison_notes, table_notes
from spbench.report.gate.baseline_gate import (
    BaselineGate,
    GatePolicy,
    compare_with_past,
    describe_difference,
)
from spbench.report.model import LaunchPart, LimitPart
from spbench.report.text_tables import PIPE_WIDTH, wrap_text
from unit.results import case, figure, run, summary, wrong_check

FIVE = [1.00, 1.01, 1.02, 0.99, 0.98]
HOME = Path("no-home")


def launched(factor=1.0, name="a", **changes):
    launches = [factor * launch for launch in FIVE]
    return case(name, {"time_ms": factor}, medians={"time_ms": launches}, **changes)


def on(machine, *cases, **of_summary):
    fingerprint = {"id": machine, "hosts": [machine]}
    return replace(run(*cases, **of_summary), environment={"fingerprint": fingerprint})


def baseline(*cases, id="old"):
    return make_baseline("main", on("node01", *cases, id=id))[0]


def side(of):
    return make_baseline_run(of, Path("baselines/main.json"))


def update(old, *cases, widen=False, id="new", machine="node01"):
    later = on(machine, *cases, id=id)
    return update_baseline(old, later, compare_with_past(HOME, side(old), later), widen=widen)


def launches_of(of):
    return {case.id: case.metrics["time_ms"].launches for case in of.cases}


def test_a_baseline_keeps_that_ranks_shared_cores():
    reference = {"time_ms": LimitPart(value=0.5, unit="ms", measured_by="ping-pong")}
    metrics = {"time_ms": figure(1.0), "exchange_efficiency": figure(0.8, "1", "higher")}
    crowded = LaunchPart(
        launcher="openmpi", version="5", argv=[], hostfile=None, env={}, job=1, oversubscribed=True
    )
    made = baseline(case("a", metrics, limits=reference, launch=crowded))
    [kept] = made.cases
    assert (kept.metrics["exchange_efficiency"].value, kept.crowded) == (0.8, True)
    part = side(made).cases["a"]
    assert part.disturbed
    unknown = side(baseline(case("a", metrics))).cases["a"]
    assert (unknown.disturbed, unknown.crowded) == (False, None)
    roomy = crowded.model_copy(update={"oversubscribed": False})
    assert side(baseline(case("a", metrics, launch=roomy))).cases["a"].crowded is False


def test_a_baseline_is_compared_as_its_run_is():
    first = launched()
    later = launched(1.2)
    held = compare(side(baseline(first)), run(later))
    plain = compare(run(first), run(later))
    assert [row.outcome for row in held.rows] == ["worse"]
    assert [*held.rows] == [*plain.rows]


@pytest.mark.parametrize("reference", [None, 0.5])
def test_a_baseline_keeps_the_reference_of_the_time(reference):
    of = case("a", {"time_ms": 1.0})
    if reference is not None:
        limit = LimitPart(value=reference, unit="ms", measured_by="a copy")
        of = of.model_copy(update={"limits": {"time_ms": limit}})
    made, _ = make_baseline("usual", run(of))
    limits = make_baseline_run(made, Path("usual.json")).cases["a"].limits
    assert [limit.value for limit in limits.values()] == [reference] * (reference is not None)


def test_the_fastest_iterations_of_launches_are_kept_and_joined():
    one, other = (run(case("a", fastest=[base, base + 1.0])) for base in (1.0, 3.0))
    made, _ = make_baseline("usual", replace(one, summary=summary("one")))
    assert make_baseline_run(made, Path("usual.json")).cases["a"].fastest == [1.0, 2.0]
    later = replace(other, summary=summary("other"))
    against = compare(make_baseline_run(made, Path("usual.json")), later)
    wider, _ = update_baseline(made, later, against, widen=True)
    assert wider.cases[0].metrics["time_ms"].fastest == [1.0, 2.0, 3.0, 4.0]
    old = made.model_copy(deep=True)
    old.cases[0].metrics["time_ms"] = (
        made.cases[0].metrics["time_ms"].model_copy(update={"fastest": []})
    )
    joined, _ = update_baseline(old, later, against, widen=True)
    assert joined.cases[0].metrics["time_ms"].fastest == []


def test_cases_without_results_have_no_part_in_it():
    wrong = launched(name="b", status="failed", checks=[wrong_check()])
    dead = launched(name="c", status="error")
    slow = launched(name="d", status="failed", reason="an expectation")
    made, told = make_baseline("main", run(launched(), wrong, dead, slow))
    assert [case.id for case in made.cases] == ["a", "d"]
    assert told == ["left out, check halo failed: b", "left out, error: c"]


def test_a_run_without_results_makes_none():
    with pytest.raises(UsageError, match="no case of run x has results"):
        make_baseline("main", run(launched(status="error"), id="x"))


def test_a_run_that_goes_on_makes_none():
    with pytest.raises(UsageError, match="run x is still running"):
        make_baseline("main", run(launched(), id="x", verdict="running"))


def test_what_is_better_takes_the_place_of_what_was():
    new, told = update(baseline(launched()), launched(0.8))
    assert launches_of(new) == {"a": [0.8 * launch for launch in FIVE]}
    assert told == ["replaced, better in the run: a"]
    assert (new.run, new.runs) == ("old", ["new"])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [(None, True, True), (True, None, True), (False, None, None), (False, False, False)],
)
def test_launches_of_two_runs_are_crowded_if_those_of_one_are(old, new, expected):
    def launch(crowded):
        nowhere = {"argv": [], "hostfile": None, "env": {}, "job": 1}
        known = LaunchPart(launcher="openmpi", version="5", oversubscribed=bool(crowded), **nowhere)
        return None if crowded is None else known

    before = baseline(launched(launch=launch(old)))
    widened, _ = update(before, launched(launch=launch(new)), widen=True)
    assert widened.cases[0].crowded is expected


@pytest.mark.parametrize(("factor", "seen"), [(1.2, "worse"), (1.0, "same")])
def test_what_is_not_better_is_taken_in_by_an_explicit_word_alone(factor, seen):
    old = baseline(launched())
    same, told = update(old, launched(factor))
    assert same == old
    assert told == [f"kept, {seen} in the run (--widen adds its launches): a"]
    new, told = update(old, launched(factor), widen=True)
    assert launches_of(new) == {"a": [*FIVE, *(factor * launch for launch in FIVE)]}
    assert new.runs == ["old", "new"]
    assert told == [f"widened, {seen} in the run, launches added: a"]


def test_no_run_is_taken_in_twice():
    once, _ = update(baseline(launched()), launched(1.0), widen=True)
    twice, told = update(once, launched(1.0), widen=True)
    assert twice == once
    assert told == ["kept, already part of it: a"]


def test_cases_that_are_new_are_added_and_those_that_are_missing_stay():
    new, told = update(baseline(launched()), launched(name="b"))
    assert launches_of(new).keys() == {"a", "b"}
    assert told == ["kept, no time in the run to compare: a", "added, new in the run: b"]


def test_other_machines_do_not_update_it():
    with pytest.raises(UsageError, match="run new cannot update main: hosts node01 in a, node02"):
        update(baseline(launched()), launched(0.5), machine="node02")


def test_another_version_of_a_benchmark_is_not_comparable():
    held = compare(side(baseline(launched())), run(launched(version=2)))
    [row] = held.rows
    assert row.outcome == "not comparable"
    assert row.reason == "version 1 of made.up in a, 2 in b"


# A run held against a baseline


def judged(later, fails=("worse",), machine="node01", most_unjudged=0):
    policy = GatePolicy(frozenset(fails), most_unjudged)
    gate = BaselineGate(HOME, side(baseline(launched(), launched(name="b"))), policy)
    result = gate.judge(on(machine, later, launched(name="b"), id="later"))
    said = []
    result.print_to(said.append)
    return result, said


def test_a_worse_time_fails_the_run_and_its_case():
    found, said = judged(launched(1.5))
    assert found.exit_code(ExitCode.PASSED) == ExitCode.FAILED
    assert found.exit_code(ExitCode.MISSING) == ExitCode.MISSING
    [why] = found.failure_reasons
    assert why == "a: time_ms is 1.5 times that of baseline main (95 %: 1.46 to 1.55)"
    tally = "against baseline main: 2 of 2 cases judged (1 worse, 1 same)"
    notes = comparison_notes(found.comparison) + table_notes(found.comparison)
    assert said == [
        "a: baseline main, b: run later",
        "outcome  case        a        b    b/a  95 % interval",
        "▼ worse  a     1.00 ms  1.50 ms  1.50x  1.46 to 1.55",
        "= same   b     1.00 ms  1.00 ms  1.00x  0.971 to 1.03",
        *(line for note in notes for line in wrap_text(note, PIPE_WIDTH)),
        tally,
        "error: 1 case worse compared with main",
    ]
    quiet = []
    found.print_to(quiet.append, quiet=True)
    assert quiet == said
    assert [case.status for case in found.run_for_programs.cases.values()] == ["failed", "passed"]
    assert f"a: {found.run_for_programs.cases['a'].reason}" == why
    assert (found.run_for_programs.summary.verdict, found.run_for_programs.summary.exit_code) == (
        "failed",
        1,
    )


def test_a_time_that_is_worse_by_its_fastest_iterations_says_so():
    row = MetricRow("a", "time_ms", "ms", "lower", 1.0, 1.05, 1.05, (0.9, 1.4), (5, 5))
    assert describe_difference(row, "usual") == (
        "time_ms is 1.05 times that of baseline usual (95 %: 0.90 to 1.40)"
    )
    assert describe_difference(replace(row, fastest=1.1, by_fastest=True), "usual") == (
        "the fastest iteration of each launch takes 1.1 times that of baseline usual, "
        "and the medians 1.05 times"
    )


@pytest.mark.parametrize(
    ("factor", "fails", "code"),
    [(1.5, (), 0), (0.5, ("worse",), 0), (0.5, ("worse", "better"), 1), (1.0, ("worse",), 0)],
)
def test_what_fails_a_run_is_chosen(factor, fails, code):
    found, _ = judged(launched(factor), fails)
    assert found.exit_code(ExitCode.PASSED) == code


def test_other_machines_are_unjudged():
    found, said = judged(launched(1.5), machine="node02", most_unjudged=99)
    assert found.exit_code(ExitCode.PASSED) == ExitCode.UNJUDGED
    assert said == [
        "warning: machines or libraries differ: hosts node01 in a, node02 in b",
        "a: baseline main, b: run later",
        "outcome       case        a        b    b/a  95 % interval",
        "? not judged  a     1.00 ms  1.50 ms  1.50x  1.46 to 1.55",
        "? not judged  b     1.00 ms  1.00 ms  1.00x  0.971 to 1.03",
        "Not judged, other machines or libraries (see the warning): a, b. "
        "Set a baseline on these machines, or use `spbench",
        "  compare --force`.",
        *(line for note in table_notes(found.comparison) for line in wrap_text(note, PIPE_WIDTH)),
        "against baseline main: 0 of 2 cases judged, 2 not judged",
        "error: no case was judged against main",
    ]
    assert [case.status for case in found.run_for_programs.cases.values()] == ["failed", "failed"]


@pytest.mark.parametrize(("most", "code"), [(0, 1), (1, 0)])
def test_unjudged_cases_fail_beyond_a_number(most, code):
    one_launch = case("a", {"time_ms": 1.0})
    found, said = judged(one_launch, most_unjudged=most)
    assert found.exit_code(ExitCode.PASSED) == code
    assert said[2].startswith("? not judged  a     1.00 ms  1.00 ms")
    why = [line for line in said if line.startswith("Not judged")]
    assert why[0].startswith("Not judged, too few launches (5 in a, 1 in b, 5 per side needed): a.")
    assert any("a case is judged only if its ratio is beyond 1.50x." in line for line in said)
    assert ("error: 1 case not judged, and --max-unjudged allows 0" in said) == (code == 1)
    assert found.run_for_programs.cases["a"].status == ("failed" if code else "passed")
    assert found.run_for_readers.cases["a"].status == "passed"
    assert found.run_for_readers.summary.verdict == ("failed" if code else "passed")
    assert bool(found.run_for_readers.errors) == bool(code)
    quiet = []
    found.print_to(quiet.append, quiet=True)
    tally = "against baseline main: 1 of 2 cases judged (1 same), 1 not judged"
    assert quiet == (said if code else [tally])


UNCLEAR = case("b", medians={"time_ms": [0.5, 0.6, 0.8, 0.9, 1.04]})
"""Against `FIVE` its interval rules out a slowdown above 10 %, but not that it is the same."""


@pytest.mark.parametrize(
    ("fails", "code"), [("worse", ExitCode.PASSED), ("worse better", ExitCode.FAILED)]
)
def test_a_case_that_cannot_be_worse_does_not_fail_as_not_judged(fails, code):
    policy = GatePolicy(frozenset(fails.split()))
    old = side(baseline(launched(), launched(name="b")))
    found = BaselineGate(HOME, old, policy).judge(on("node01", launched(), UNCLEAR, id="later"))
    assert [item.judgement for item in found.comparison.judgements] == ["judged", "unjudged"]
    assert found.exit_code(ExitCode.PASSED) == code
    assert found.run_for_readers.summary.verdict == (
        "passed" if code == ExitCode.PASSED else "failed"
    )


def test_an_error_counts_only_cases_that_may_be_slower():
    names = ("a", "b", "c")
    old = side(baseline(*(launched(name=name) for name in names)))
    one_launch = case("c", {"time_ms": 1.0})
    gate = BaselineGate(HOME, old, GatePolicy(frozenset({"worse"})))
    found = gate.judge(on("node01", launched(), UNCLEAR, one_launch, id="later"))
    [error] = found.run_for_readers.errors
    assert error == "1 case not judged and maybe slower, and --max-unjudged allows 0"


def test_a_case_of_the_baseline_that_is_missing_from_the_run_fails_it():
    policy = GatePolicy(frozenset({"worse"}))
    old = side(baseline(launched(), launched(name="b")))
    found = BaselineGate(HOME, old, policy).judge(on("node01", launched(), id="later"))
    assert found.exit_code(ExitCode.PASSED) == ExitCode.FAILED
    assert found.failure_reasons[0] == "b: not judged against main: only in baseline main"
    assert "b: not judged against main: only in baseline main" in found.run_for_programs.errors


def test_a_lost_check_fails_a_run_that_passed():
    passed = {"status": "passed", "max_abs_error": 0.0, "ranks_failed": 0}
    check = wrong_check().model_copy(update=passed)
    old = side(baseline(launched(checks=[check])))
    found = BaselineGate(HOME, old, GatePolicy(frozenset({"worse"}))).judge(
        on("node01", launched())
    )
    assert found.exit_code(ExitCode.PASSED) == ExitCode.FAILED
    assert found.run_for_programs.cases["a"].reason == "check halo is missing"
    assert found.run_for_readers.cases == found.run.cases
    assert found.run_for_readers.errors == ("1 case broken compared with main",)
    assert found.run_for_readers.summary.verdict == "failed"
    never = BaselineGate(HOME, old, GatePolicy(frozenset())).judge(on("node01", launched()))
    assert never.exit_code(ExitCode.PASSED) == ExitCode.PASSED
    assert never.run_for_programs.cases == never.run.cases


def test_a_baseline_of_a_noisy_case_is_not_held_against_one_launch():
    one = case("a", {"time_ms": 1.0}, noisy="other work had its cores")
    [row] = compare(side(baseline(one)), run(case("a", {"time_ms": 9.0}))).rows
    assert row.outcome == "not enough samples"


def test_few_launches_are_warned_of_with_the_repeat_to_set():
    few = case("a")
    enough = [launched(name=name) for name in "bcd"]
    [warning] = launch_warnings(baseline(few, *enough))
    assert warning == (
        "warning: too few launches to find a difference (1 per case, 5 needed): a; "
        "repeat the run with `--set repeat=5`"
    )
    assert [*launch_warnings(baseline(*enough))] == []


def test_names_of_a_file_make_no_lines_of_their_own():
    hostile = baseline(launched()).model_copy(update={"name": "x\n::error::y\x1b[2J"})
    said = []
    held_by = BaselineGate(HOME, side(hostile), GatePolicy(frozenset()))
    held_by.judge(on("node01", launched(2.0))).print_to(said.append)
    assert all(line.isprintable() for line in said)
    assert [line.split(":")[0] for line in said if "::error::" in line] == [
        "a",
        "against baseline x?",
    ]


def test_a_report_has_the_comparison_and_the_verdict_that_follows():
    found, _ = judged(launched(1.5))
    report = {"run": {"verdict": "passed", "exit_code": 0}, "errors": []}
    told = found.add_to_report(report)
    assert told["run"] == {"verdict": "failed", "exit_code": 1}
    assert told["errors"] == found.failure_reasons
    assert [pair["id"] for pair in told["comparison"]["cases"]] == ["a", "b"]
    same, _ = judged(launched(1.0))
    assert same.add_to_report(report)["run"] == {"verdict": "passed", "exit_code": 0}
