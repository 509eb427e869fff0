"""Exports of runs and comparisons as CSV, JSON and Markdown."""

import csv
import io
import json
from dataclasses import replace

import jsonschema
import pytest

from spbench.errors import UsageError
from spbench.report.build import build_report
from spbench.report.comparison.compare import compare
from spbench.report.export import (
    EXPORT_FORMATS,
    RUN_COLUMNS,
    export_comparison,
    export_text,
    run_rows,
    summary_object,
)
from spbench.report.model import LimitPart, report_schema
from spbench.report.recorded import load_run
from spbench.report.times import format_day_and_time
from support.sample_events import (
    make_complete_run,
    make_hostile_run,
    make_links_run,
    record_run,
    run_end,
    run_start,
)
from support.sample_runs import make_case, make_metric, make_run


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


LIMITED = make_case(
    "a",
    {"time_ms": make_metric(2.0, n=3), "rate": make_metric(1 / 3, "GB/s", "higher", n=1)},
    params={"halo_len": 1, "sizes": [8, 64]},
    limits={"rate": LimitPart(value=20.0, unit="GB/s", measured_by="memory.copy")},
)
LOST = make_case(
    "b", {}, params={"method": "square"}, status="error", reason='rank 3 said "no",\nand'
)


# CSV


def test_csv_has_a_row_for_each_case_and_metric():
    rows = read_csv(export_text(make_run(LIMITED, LOST), "csv"))
    assert [(row["case"], row["metric"]) for row in rows] == [
        ("a", "time_ms"),
        ("a", "rate"),
        ("b", ""),
    ]
    rate = rows[1]
    assert (float(rate["value"]), rate["unit"], rate["better"]) == (1 / 3, "GB/s", "higher")
    assert (float(rate["limit"]), rate["n"]) == (20.0, "1")
    assert (rate["run"], rate["suite"], rate["host"]) == (make_run().summary.id, "made-up", "login")
    assert rate["started"] == "1970-01-01T00:16:40.000+00:00"
    assert (rows[0]["min"], rows[0]["p95"], rows[0]["limit"]) == ("1.0", "3.0", "")


def test_csv_has_a_column_for_each_parameter():
    rows = read_csv(export_text(make_run(LIMITED, LOST), "csv"))
    assert [row["params.halo_len"] for row in rows] == ["1", "1", ""]
    assert [row["params.method"] for row in rows] == ["", "", "square"]
    assert json.loads(rows[0]["params.sizes"]) == [8, 64]


def test_csv_has_the_reason_of_a_case_without_metrics():
    lost = read_csv(export_text(make_run(LIMITED, LOST), "csv"))[-1]
    assert (lost["status"], lost["reason"], lost["value"]) == ("error", LOST.reason, "")


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)"])
def test_csv_escapes_formulas(text):
    [row] = read_csv(
        export_text(make_run(make_case(text, {}, params={"of": text}, reason=text)), "csv")
    )
    assert (row["case"], row["reason"], row["params.of"]) == (f"'{text}",) * 3
    compared = read_csv(
        export_comparison(compare(make_run(make_case(text)), make_run(make_case(text))), "csv")
    )
    assert compared[0]["case"] == f"'{text}"


def test_csv_keeps_negative_numbers():
    [row] = read_csv(export_text(make_run(make_case("a", {"time_ms": make_metric(-2.0)})), "csv"))
    assert (row["value"], row["min"]) == ("-2.0", "-3.0")


@pytest.mark.parametrize("kind", EXPORT_FORMATS)
def test_export_contains_no_control_characters(kind, tmp_path):
    folder = record_run(tmp_path, make_hostile_run(), suite="s\x1b[2J\x9b")
    text = export_text(load_run(folder), kind)
    assert all(line.isprintable() for line in text.splitlines())
    assert ("?\\[2J" if kind == "md" else "?[2J") in text


def test_run_without_cases_is_an_empty_csv():
    assert export_text(make_run(), "csv") == ""


# JSON


def test_json_is_the_report(tmp_path):
    folder = record_run(tmp_path, make_complete_run(), verdict="passed")
    report = build_report(folder.replay())
    folder.write_json("report.json", report)
    folder.events.unlink()
    assert json.loads(export_text(load_run(folder), "json")) == report


@pytest.mark.parametrize("content", [None, "{", "{}", '{"schema": "spbench.report/1"}'])
def test_json_is_built_from_events_without_a_valid_report(tmp_path, content):
    folder = record_run(tmp_path, make_complete_run()[:-1])
    if content is not None:
        folder.report.write_text(content)
    report = json.loads(export_text(load_run(folder), "json"))
    jsonschema.validate(report, report_schema())
    assert (report["run"]["finished"], report["cases"][0]["status"]) == (None, "passed")


def test_rejects_json_of_a_run_without_events(tmp_path):
    folder = record_run(tmp_path, [])
    with pytest.raises(UsageError, match=f"nothing was recorded of run {folder.id}"):
        export_text(load_run(folder), "json")


def test_summary_object_is_valid_json(tmp_path):
    document = summary_object(make_run().summary)
    assert json.loads(json.dumps(document)) == document
    assert (document["started"], document["finished"]) == (
        "1970-01-01T00:16:40.000+00:00",
        "1970-01-01T00:16:42.500+00:00",
    )
    assert (document["verdict"], document["argv"]) == ("passed", ["run", "made-up.yaml"])


# Markdown


def test_markdown_has_a_table_of_metrics(messages):
    heading, empty, *lines = export_text(make_run(LIMITED, LOST), "md").splitlines()
    messages.check(heading)
    assert empty == ""
    messages.check(lines)


def test_markdown_has_the_findings_and_escapes_bars(tmp_path):
    folder = record_run(tmp_path, [run_start(), run_end(findings=["All alike."])])
    assert export_text(load_run(folder), "md").endswith("\n\nAll alike.\n")
    assert "| a\\|b | passed |" in export_text(make_run(make_case("a|b")), "md")


HOSTILE = "<script>alert(1)</script> **bold** [x](javascript:1) ![i](//x) `c` a|b\n# head"
ESCAPED = (
    r"\<script\>alert(1)\</script\> \*\*bold\*\* \[x\](javascript:1) "
    r"\!\[i\](//x) \`c\` a\|b \# head"
)


def test_markdown_escapes_html_and_markdown_everywhere():
    recorded_run = make_run(make_case(HOSTILE))
    hostile = replace(
        recorded_run,
        findings=(HOSTILE,),
        summary=replace(recorded_run.summary, host=HOSTILE),
    )
    heading, _, _, _, row, _, finding = export_text(hostile, "md").splitlines()
    assert heading.endswith(f" on {ESCAPED}")
    assert row.startswith(f"| {ESCAPED} | passed |")
    assert finding == ESCAPED


def test_comparison_escapes_html_in_markdown():
    text = export_comparison(
        compare(make_run(make_case(HOSTILE)), make_run(make_case(HOSTILE))), "md"
    )
    assert "<script>" not in text.replace("\\<", "")


# Tables


def test_every_row_has_all_columns():
    assert {len(row) for row in run_rows(make_run(LIMITED, LOST))} == {len(RUN_COLUMNS)}


def test_ratio_has_no_unit():
    [row] = run_rows(make_run(make_case("a", {"skew": make_metric(1.5, "1", n=1)})))
    assert row == ("a", "passed", "skew", "1.50x", "", "", "1", "", "")


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "unknown"), (1e9, "2001-09-09T01:46:40Z"), (0.0, None)]
)
def test_formats_times_in_utc(seconds, text):
    assert format_day_and_time(seconds) == (text or "1970-01-01T00:00:00Z")


# Comparisons


@pytest.fixture
def comparison():
    a = make_run(
        make_case("a", {"m": 2.0, "gone": 1.0}, medians={"m": [2.0] * 4}),
        make_case("b"),
        make_case("lost", {}, status="error"),
        id="A",
    )
    b = make_run(
        make_case("a", {"m": 1.0}, params={"halo_len": 1, "more": 4}, medians={"m": [1.0] * 4}),
        make_case("c"),
        make_case("lost", {}, status="error"),
        id="B",
    )
    return compare(a, b)


def test_exports_a_comparison_as_markdown(comparison):
    text = export_comparison(comparison, "md")
    assert text.startswith("a: A, passed, 1970-01-01T00:16:40Z on login; b: B, passed, ")
    summary, _, details = text.partition("<details>")
    assert "| ? not judged | a |  |  |  |  |\n" in summary
    assert "\n\n0 of 4 cases judged, 3 not judged, 1 broken.\n" in summary
    assert "\n\nBroken in b, error: lost.\n" in summary
    assert "| a | m | 2.00 ms | 1.00 ms | 0.500x | 0.500 to 0.500 | ▲ better |\n" in details


def test_exports_a_comparison_as_csv(comparison):
    rows = read_csv(export_comparison(comparison, "csv"))
    assert [(row["case"], row["metric"], row["note"]) for row in rows] == [
        ("a", "m", "only in b: more=4"),
        ("a", "gone", "not measured in b; only in b: more=4"),
        ("lost", "", "error in a, error in b"),
        ("b", "", "only in a"),
        ("c", "", "only in b"),
    ]
    assert (rows[0]["a"], rows[0]["b"], rows[0]["ratio"]) == ("2.0", "1.0", "0.5")
    assert (rows[0]["low"], rows[0]["high"], rows[1]["low"]) == ("0.5", "0.5", "")
    assert (rows[0]["outcome"], rows[1]["ratio"]) == ("better", "")


def test_exports_a_comparison_as_json(comparison, messages):
    document = json.loads(export_comparison(comparison, "json"))
    assert (document["a"]["id"], document["b"]["id"]) == ("A", "B")
    assert (document["only_a"], document["only_b"]) == (["b"], ["c"])
    first, second = document["cases"][0]["rows"]
    assert (first["ratio"], first["outcome"], first["reason"]) == (0.5, "better", None)
    assert (first["interval"], first["launches"]) == ([0.5, 0.5], [4, 4])
    assert (second["ratio"], second["outcome"], second["b"]) == (None, None, None)
    assert [case["judgement"] for case in document["judgements"]] == [
        *("unjudged", "unjudged", "broken", "unjudged"),
    ]
    messages.check(document["cases"][0]["differences"])


@pytest.mark.parametrize("export", [export_text, export_comparison])
def test_rejects_an_unknown_format(export, messages):
    exported = make_run() if export is export_text else compare(make_run(), make_run())
    for kind in EXPORT_FORMATS:
        if export is export_comparison or kind != "json":
            export(exported, kind)
    with messages.raises(UsageError):
        export(exported, "jsn")


def test_json_of_a_run_has_its_measurements(tmp_path):
    pair = ((0, "node01"), (1, "node02"))
    folder = record_run(tmp_path, make_links_run({pair: 1.5}, {}))
    report = json.loads(export_text(load_run(folder), "json"))
    assert report["cases"][0]["measurements"][0]["value"] == 1.5
