"""Text of a comparison: width, units, and no repeated messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from spbench.record.number_formatting import format_factor
from spbench.report.baselines.creation import launch_warnings, make_baseline
from spbench.report.comparison.compare import compare
from spbench.report.comparison.model import JudgementKind, RunComparison, RunConditions
from spbench.report.comparison.notes import (
    comparison_notes,
    comparison_summary,
    comparison_warnings,
    noise_notes,
    table_notes,
)
from spbench.report.comparison.rows import OutcomeLabel, case_rows, metric_rows
from spbench.report.comparison.text import comparison_lines, gate_lines
from spbench.report.comparison.unjudged import join_case_ids
from spbench.report.model import CasePart, LaunchPart, LimitPart
from spbench.report.recorded import RecordedRun
from spbench_core.events.statuses import CaseStatus, RunStatus
from support.sample_runs import make_case, make_failed_check, make_metric, make_run

FIVE = [1.00, 1.01, 1.02, 0.99, 0.98]
SIX = [*FIVE, 1.005]
NOISE = "the ranks on vm waited {}% of their time for a core: other work had it"
LONG_ID = "exchange[slice_method={},halo_len=3,image_size=1024,transport=datatype]"
METHODS = ("vertical", "horizontal", "square", "diagonal")
CROWDED = LaunchPart(
    launcher="openmpi", version="5", argv=[], hostfile=None, env={}, job=1, oversubscribed=True
)
WIDTHS = (80, 100, 120)


def long_case(method: str, factor: float, **changes: Any) -> CasePart:
    """Return a case with a long id, six launches, and values that are far from 1."""
    metrics = {
        "time_ms": make_metric(2.5e-5 * factor, n=6, spread=1e-6),
        "bandwidth_gb_s": make_metric(12345.0 / factor, "GB/s", "higher"),
        "bytes_sent": make_metric(3.0e9, "B", "none"),
        "exchange_efficiency": make_metric(0.42, "1", "higher"),
    }
    medians = {
        "time_ms": [2.5e-5 * factor * launch for launch in SIX],
        "bandwidth_gb_s": [12345.0 / factor * launch for launch in SIX],
    }
    part: CasePart = make_case(
        LONG_ID.format(method),
        metrics,
        medians=medians,
        launch=CROWDED,
        noisy=NOISE.format(round(10 * factor)),
    )
    if "status" in changes:
        changes["status"] = CaseStatus(changes["status"])
    return part.model_copy(update=changes)


def runs_with_every_outcome() -> tuple[RecordedRun, RecordedRun]:
    """Return two runs with worse, better, equal, unjudged and broken cases."""
    vertical, horizontal, square, diagonal = METHODS
    a = make_run(
        long_case(square, 1.0),
        long_case(vertical, 1.0),
        long_case(horizontal, 1.0),
        long_case(diagonal, 1.0),
        *(make_case(f"few[n={n}]") for n in range(12)),
        make_case("old"),
        id="20260101-000000-halo-exchange-with-a-long-name-0001",
    )
    b = make_run(
        long_case(square, 1.0),
        long_case(vertical, 123456.0),
        long_case(horizontal, 0.5),
        long_case(diagonal, 1.0, status="failed", checks=[make_failed_check()]),
        *(make_case(f"few[n={n}]", {"time_ms": 2.1}) for n in range(12)),
        make_case("new"),
        id="20260102-000000-halo-exchange-with-a-long-name-0002",
        argv=("run", "x.yaml", "--inject", "slow@exchange"),
    )
    return a, b


@pytest.fixture(name="comparison")
def comparison_fixture() -> RunComparison:
    return compare(*runs_with_every_outcome())


def render_lines(comparison: RunComparison, width: int, **options: Any) -> list[str]:
    return list(comparison_lines(comparison, width, **options))


@pytest.mark.parametrize("all_metrics", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_longer_than_the_width(
    comparison: RunComparison, width: int, all_metrics: bool
) -> None:
    lines = render_lines(comparison, width, all_metrics=all_metrics)
    assert max(map(len, lines)) <= width
    assert max(map(len, gate_lines(comparison, width))) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_start_with_whole_outcomes(comparison: RunComparison, width: int) -> None:
    text = "\n".join(render_lines(comparison, width))
    labels = set(OutcomeLabel) - {OutcomeLabel.CANCELLED, OutcomeLabel.NOT_SLOWER}  # not in these
    for label in labels:
        assert re.search(rf"^{re.escape(label)}  ", text, re.MULTILINE), label
    metrics = render_lines(comparison, width, all_metrics=True)
    assert {label for label in OutcomeLabel for line in metrics if line.endswith(label)} == labels


@pytest.mark.parametrize("width", WIDTHS)
def test_shortened_ids_stay_different(comparison: RunComparison, width: int) -> None:
    rows = [row for row in render_lines(comparison, width) if re.match(r"[▼✗▲=] \w+ +\w+\[", row)]
    ids = {re.split(r"  +", row)[1] for row in rows}
    assert len(ids) == len(METHODS)


def test_narrow_metric_tables_have_ids_on_separate_lines(
    comparison: RunComparison,
) -> None:
    lines = render_lines(comparison, 80, all_metrics=True)
    assert LONG_ID.format("vertical") in lines
    assert [line for line in lines if line.startswith("  time ") and "123,456x" in line]


@pytest.mark.parametrize("all_metrics", [False, True])
def test_no_message_is_printed_twice(comparison: RunComparison, all_metrics: bool) -> None:
    text = " ".join(line.strip() for line in render_lines(comparison, 120, all_metrics=all_metrics))
    messages = [part for part in re.split(r"(?<=[a-z`)])\. ", text) if len(part) > 20]
    assert len(messages) == len(set(messages))
    assert text.count("slow (case exchange)") == 1
    assert text.count("other work had it") == 2, "once for each run"
    assert text.count("too few launches") == 1


@pytest.mark.parametrize("all_metrics", [False, True])
def test_numbers_have_units_and_no_exponents(comparison: RunComparison, all_metrics: bool) -> None:
    units = {"ns", "us", "ms", "TB/s", "GB/s", "MB/s", "GiB", "%"}
    rows = case_rows(comparison)
    assert {row.a.split()[1] for row in rows if row.a} <= units
    assert {row.b.split()[1] for row in rows if row.b} <= units
    assert all(row.ratio.endswith("x") for row in rows)
    text = "\n".join(render_lines(comparison, 120, all_metrics=all_metrics))
    assert not re.search(r"\d(\.\d+)?e[+-]?\d", text)
    assert ("~42 %" in text) == all_metrics


@pytest.mark.parametrize(
    ("reference", "is_noted"), [(1.2, True), (1.1, True), (1.05, False), (1.0, False), (0.8, False)]
)
def test_note_lists_cases_with_references_that_changed_too(
    reference: float, is_noted: bool
) -> None:
    def side(factor: float, reference_ms: float) -> RecordedRun:
        times = [factor * value for value in FIVE]
        limit = LimitPart(value=reference_ms, unit="ms", measured_by="a copy")
        part = make_case("x", {"time_ms": make_metric(times[0])}, medians={"time_ms": times})
        return make_run(part.model_copy(update={"limits": {"time_ms": limit}}))

    comparison = compare(side(1.0, 0.5), side(1.2, 0.5 * reference))
    notes = [note for note in comparison_notes(comparison) if "machine may have changed" in note]
    assert [note.rpartition(": ")[2] for note in notes] == (
        [f"x ({format_factor(reference)})."] if is_noted else []
    )
    gate = " ".join(" ".join(gate_lines(comparison, 120)).split())
    assert ("machine may have changed" in gate) == is_noted


def test_marks_ratios_of_disturbed_cases(comparison: RunComparison) -> None:
    marked = {row.pair.id for row in case_rows(comparison) if row.ratio.startswith("~")}
    disturbed = {id_ for side in comparison.conditions for id_ in (*side.noise, *side.crowded)}
    assert marked == disturbed & {row.pair.id for row in case_rows(comparison) if row.ratio}
    assert marked
    assert any(note.startswith("~: ") for note in noise_notes(comparison))
    counts = [row for row in metric_rows(comparison) if row.row and row.row.better == "none"]
    assert not any(row.ratio.startswith("~") for row in counts)


def test_worse_and_broken_cases_precede_better_ones(comparison: RunComparison) -> None:
    labels = [row.label for row in case_rows(comparison)]
    assert labels[:4] == [
        OutcomeLabel.WORSE,
        OutcomeLabel.BROKEN,
        OutcomeLabel.BETTER,
        OutcomeLabel.SAME,
    ]
    ids = [row.pair.id for row in case_rows(comparison)][4:]
    assert ids == [f"few[n={n}]" for n in range(12)]


def test_header_names_both_runs(comparison: RunComparison, messages) -> None:
    warning, a, b, empty, *_ = render_lines(comparison, 120)
    messages.check(warning)
    assert a.split() == ["a", comparison.a.id, "1970-01-01T00:16:40Z", "✓", "passed", "login"]
    assert b.split()[:2] == ["b", comparison.b.id]
    assert empty == ""


def compare_and_note(a: Sequence[CasePart], b: Sequence[CasePart]) -> list[str]:
    return comparison_notes(compare(make_run(*a, id="A"), make_run(*b, id="B")))


def test_notes_give_reason_and_remedy_of_unjudged_cases(
    comparison: RunComparison, messages
) -> None:
    notes = comparison_notes(comparison)
    ids = ", ".join(f"few[n={n}]" for n in range(6))
    assert (
        f"Not judged, too few launches (1 in a, 1 in b, 6 per side needed): {ids} and 6 more. "
        "Run both sides with `--set repeat=6`."
    ) in notes
    broken = LONG_ID.format("diagonal")
    assert f"Broken in b, check halo failed: {broken}." in notes
    assert f"See `spbench results show {comparison.b.id}` for the details." in notes
    assert "Not judged, only in a: old." in notes
    messages.check(comparison_summary(comparison))


def test_all_texts_have_one_number_of_needed_launches() -> None:
    """It counts cases without a valid result, and those that are not shown."""
    ids = [f"c{n}" for n in range(7)]
    rates = {"time_ms": make_metric(1.0), "rate": make_metric(2.0, "GB/s", "higher")}
    a = make_run(*(make_case(id_, rates) for id_ in ids), id="A")
    failed = make_case("c0", rates, status=CaseStatus.FAILED)
    b = make_run(failed, *(make_case(id_, rates) for id_ in ids[1:]), id="B")
    comparison = compare(a, b)
    shown = [*comparison_notes(comparison), *comparison_notes(comparison.select_rows("same"))]
    shown += [
        row.reason for row in comparison.rows if row.reason and "per side needed" in row.reason
    ]
    (warning,) = launch_warnings(make_baseline("base", a)[0])
    numbers = re.findall(r"(\d+) (?:per side needed|needed to)", " ".join([warning, *shown]))
    assert len(numbers) > 4
    assert set(numbers) == {"6"}


def test_noise_is_noted_once_per_run_with_its_worst_case(comparison: RunComparison) -> None:
    noise = [note for note in comparison_notes(comparison) if note.startswith("Noise in")]
    worst = LONG_ID.format("vertical")
    assert noise[1] == f"Noise in b (4 cases), most in {worst}: {NOISE.format('1234560 ')}."
    assert len(noise) == 2
    assert "More ranks than cores in a (4 cases) and in b (4 cases)." in comparison_notes(
        comparison
    )


@pytest.mark.parametrize(
    ("a", "b", "note"),
    [
        (
            make_case("x", noisy="why"),
            make_case("x"),
            "With fewer launches, noisy cases are never judged.",
        ),
        (
            make_case("x", medians={"time_ms": [0.7, 1.0, 1.3, 0.8, 1.2]}),
            make_case("x", medians={"time_ms": [0.7, 1.0, 1.3, 0.8, 1.2]}),
            "Not judged, no clear difference, but one above 10 % is possible: x. "
            "Use a larger `repeat` or a quieter machine. `spbench gate check` shows how many "
            "launches find which slowdown.",
        ),
        (
            make_case("x", medians={"time_ms": [0.7, 1.0, 1.3, 0.8, 1.2]}),
            make_case("x", medians={"time_ms": [0.7, 0.71, 0.72, 0.73, 0.74]}),
            "Not slower, a slowdown above 10 % is ruled out, but not a speed-up: x. "
            "`--fail-on worse` accepts that.",
        ),
        (
            make_case("x"),
            make_case("x", params={"halo_len": 3}),
            "Not judged, other parameters or ranks (halo_len 1 in a, 3 in b): x. "
            "Use `spbench compare --force` to compare anyway.",
        ),
        (
            make_case("x", status="error", reason="died"),
            make_case("x"),
            "Not judged, no valid result (error in a): x. Compare runs in which these cases pass.",
        ),
        (
            make_case("x", {"time_ms": make_metric(0.0)}),
            make_case("x"),
            "Not judged, no ratio of times (0 in a): x.",
        ),
        (
            make_case("x", {"m": 1.0}),
            make_case("x", {"m": 1.0}),
            "Not judged, time not measured: x.",
        ),
        (
            make_case("x", {"time_ms": 1.0}),
            make_case("x", {"time_ms": 9.0}),
            "Judged with few launches, since the ratio is large: x (beyond 3.00x).",
        ),
        (
            make_case("x", status="failed", reason="time_ms is above 4", medians={"time_ms": FIVE}),
            make_case("x", medians={"time_ms": FIVE}),
            "Failed in a by an expectation or a planted fault, but compared: x.",
        ),
        (
            make_case("x", params={"halo_len": 1, "seed": 1}, medians={"time_ms": FIVE}),
            make_case("x", params={"halo_len": 1, "seed": 2}, medians={"time_ms": FIVE}),
            "Other settings, seed 1 in a, 2 in b: x.",
        ),
    ],
)
def test_notes_explain_a_case(a: CasePart, b: CasePart, note: str) -> None:
    assert note in compare_and_note([a], [b])


def test_outcome_says_that_a_case_without_a_judgement_is_not_slower() -> None:
    a = make_case("x", medians={"time_ms": [0.7, 1.0, 1.3, 0.8, 1.2]})
    b = make_case("x", medians={"time_ms": [0.7, 0.71, 0.72, 0.73, 0.74]})
    comparison = compare(make_run(a, id="A"), make_run(b, id="B"))
    (row,) = case_rows(comparison)
    assert row.label is OutcomeLabel.NOT_SLOWER
    assert [case.judgement for case in comparison.judgements] == [JudgementKind.UNJUDGED]
    assert comparison_summary(comparison) == "1 of 1 case not slower"
    text = "\n".join(comparison_lines(comparison, 120))
    assert text.lower().count("not slower") == 3  # its row, the summary and one note
    assert "judged" not in text


def test_summary_counts_cases_that_are_not_slower() -> None:
    a = make_case("x", medians={"time_ms": [0.7, 1.0, 1.3, 0.8, 1.2]})
    b = make_case("x", medians={"time_ms": [0.7, 0.71, 0.72, 0.73, 0.74]})
    same = make_case("same", medians={"time_ms": FIVE})
    few = make_case("few")
    without_judged = compare(make_run(a, few), make_run(b, few))
    assert comparison_summary(without_judged) == "1 of 2 cases not slower, 1 not judged"
    with_judged = compare(make_run(a, few, same), make_run(b, few, same))
    expected = "1 of 3 cases judged (1 same), 1 not slower, 1 not judged"
    assert comparison_summary(with_judged) == expected


def test_note_on_a_difference_that_may_be_chance() -> None:
    launches = [1.0, 1.02, 1.04, 1.06, 1.08, 1.1, 1.12, 1.14]
    same = [make_case(f"same[n={n}]", medians={"time_ms": launches}) for n in range(9)]
    slower = [1.07 * launch for launch in launches]
    sides = [make_case("x", medians={"time_ms": times}) for times in (launches, slower)]
    notes = compare_and_note([sides[0], *same], [sides[1], *same])
    assert any(
        note.startswith("Not judged, a difference that may be chance: x. ") for note in notes
    )


def test_table_notes_explain_the_columns(messages) -> None:
    single_launch = compare(make_run(make_case("x")), make_run(make_case("x")))
    assert len(table_notes(single_launch)) == 1
    metrics = {"time_ms": 1.0, "wait_ms": 1.0}
    part = make_case("x", metrics, medians={"time_ms": FIVE}, benchmark="halo.exchange")
    notes = table_notes(compare(make_run(part), make_run(part)), all_metrics=True)
    messages.check(notes[1])
    messages.check(notes[-1])


def test_reports_versions_and_machines_in_warnings_only(messages) -> None:
    a = replace(make_run(make_case("x"), id="A"), environment={"fingerprint": {"hosts": ["n1"]}})
    b = replace(make_run(make_case("x"), id="B"), environment={"fingerprint": {"hosts": ["n2"]}})
    machine_comparison = compare(a, b, mismatch="hosts n1 in a, n2 in b")
    messages.check(comparison_warnings(machine_comparison))
    messages.check(comparison_notes(machine_comparison))
    version_comparison = compare(
        make_run(make_case("x"), id="A"), make_run(make_case("x", version=2), id="B")
    )
    messages.check(comparison_warnings(version_comparison))
    messages.check(comparison_notes(version_comparison))


def test_filter_by_outcome_keeps_the_notes(comparison: RunComparison) -> None:
    lines = render_lines(comparison, 120, shown=comparison.select_rows("worse"))
    labels = [line for line in lines if line.startswith(tuple(OutcomeLabel))]
    assert len(labels) == 1
    assert labels[0].startswith("▼ worse")
    assert f"{comparison_summary(comparison)}." in lines


def test_gate_has_a_row_for_each_case(comparison: RunComparison) -> None:
    lines = list(gate_lines(comparison, 120))
    labels = [line.split("  ")[0].strip() for line in lines if line[:1] in "▼▲✗=?"]
    assert labels[:3] == ["▼ worse", "✗ broken", "▲ better"]
    assert set(labels[3:]) == {"= same", "? not judged"}
    assert not any(line.startswith("Not shown") for line in lines)


def test_gate_of_many_cases_shows_only_different_ones() -> None:
    def side(factor: float) -> RecordedRun:
        cases = [build_case(f"x{number}", 1.0) for number in range(20)]
        return make_run(*cases, build_case("y", factor), build_case("z", None))

    def build_case(name: str, factor: float | None) -> CasePart:
        times = [1.0] if factor is None else [factor * value for value in SIX]
        return make_case(name, {"time_ms": make_metric(times[0])}, medians={"time_ms": times})

    lines = list(gate_lines(compare(side(1.0), side(2.0)), 120))
    assert [line.split()[2] for line in lines if line[:1] in "▼▲✗=?"] == ["y"]
    assert "Not shown: 20 same, 1 not judged." in lines


@pytest.mark.parametrize("earlier_count", [0, 4, 5])
def test_difference_without_earlier_runs_is_provisional(earlier_count: int) -> None:
    def side(factor: float) -> RecordedRun:
        times = [factor * value for value in SIX]
        return make_run(
            make_case("x", {"time_ms": make_metric(times[0])}, medians={"time_ms": times}),
            make_case("y", {"time_ms": make_metric(1.0)}, medians={"time_ms": SIX}),
        )

    earlier_launches = [[1.0 + 0.001 * number] * 6 for number in range(earlier_count)]
    comparison = compare(side(1.0), side(2.0), lambda case, metric: earlier_launches)
    notes = [note for note in comparison_notes(comparison) if note.startswith("Provisional: x.")]
    assert len(notes) == (earlier_count < 5)


def test_counts_cases_instead_of_naming_many(messages) -> None:
    assert join_case_ids(["a", "b"]) == "a, b"
    messages.check(join_case_ids([str(n) for n in range(15)]))


@pytest.mark.parametrize("length", range(30, 80))
def test_hostile_name_gives_no_ci_command(length: int) -> None:
    name = "x" * length + " ::error::y"
    comparison = compare(make_run(make_case(name)), make_run(make_case(name, status="error")))
    assert not [line for line in gate_lines(comparison, 80) if line.lstrip().startswith("::")]


def test_gate_lists_a_broken_case_with_few_launches_once() -> None:
    broken = make_case("x", {"time_ms": 1.1}, status="failed", reason="time is above its limit")
    lines = list(gate_lines(compare(make_run(make_case("x")), make_run(broken)), 120))
    assert sum(line.startswith("✗ broken") for line in lines) == 1
    assert not any(line.startswith("? not judged") for line in lines)


def compare_with_faults(faults_a: tuple[str, ...], faults_b: tuple[str, ...]) -> list[str]:
    comparison = compare(make_run(make_case("x"), id="A"), make_run(make_case("x"), id="B"))
    conditions = (RunConditions(faults=faults_a), RunConditions(faults=faults_b))
    return comparison_warnings(replace(comparison, conditions=conditions))


def test_equal_faults_of_both_runs_are_one_warning(messages) -> None:
    messages.check(compare_with_faults(("slow", "drop"), ("drop", "slow")))
    messages.check(compare_with_faults(("slow",), ("drop",)))
    assert compare_with_faults((), ()) == []


def test_warns_of_runs_that_may_lack_results(messages) -> None:
    running = make_run(make_case("x"), id="A", status=RunStatus.RUNNING)
    unfinished = make_run(make_case("x"), id="B", status=RunStatus.UNFINISHED)
    messages.check(comparison_warnings(compare(running, unfinished)))


def test_warns_of_a_run_compared_with_itself(messages) -> None:
    run = make_run(make_case("x"), id="A")
    messages.check(comparison_warnings(compare(run, run)))
