import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench_core.programs.expectation import ExpectationError, parse_expectation
from spbench_core.programs.output import (
    MAX_LINE_BYTES,
    LineSplitter,
    OutputReader,
    find_document,
    parse_number,
)

LATENCY = {"latency_us": {"pattern": r"latency (?P<value>[\d.]+) us", "unit": "us"}}
TABLE = {
    "header": r"^# Size\s+Latency",
    "columns": ["bytes", "latency_us", "validation"],
    "labels": ["bytes"],
    "metrics": {"latency_us": {"unit": "us", "better": "lower"}},
    "must": {"validation": "Pass"},
}


def read_output(text, **params):
    reader = OutputReader(parse_expectation(params))
    for line in text.splitlines():
        reader.read_line(line)
    return reader.finish()


def get_rejection(**params):
    with pytest.raises(ExpectationError) as caught:
        parse_expectation(params)
    return str(caught.value)


def test_keeps_the_value_of_the_last_match():
    output = read_output("latency 3 us\nlatency 2.5 us\n", metrics=LATENCY)
    assert output.values == {"latency_us": 2.5}
    assert not output.samples
    assert not output.missing


def test_keeps_each_sample_in_its_unit(messages):
    metric = {"pattern": r"step (?P<value>\S+) s", "unit": "ms", "scale": 1000}
    output = read_output("step 0.25 s\nstep 0.5 s\nstep nan s\n", samples={"step_ms": metric})
    assert output.samples == {"step_ms": [250.0, 500.0]}
    assert output.values == {"step_ms": 500.0}
    messages.check(output.forbidden)


def test_reports_each_new_value_immediately():
    reported = []
    reader = OutputReader(
        parse_expectation({"metrics": LATENCY}), lambda *report: reported.append(report)
    )
    reader.read_line("latency 3 us")
    assert reported == [("latency_us", 3.0)]


def test_reads_table_rows_as_points():
    text = (
        "# OSU\n# Size  Latency (us) Validation\n1  0.21 Pass\n\n2  0.25 Pass\nall done\n4 1 Pass\n"
    )
    output = read_output(text, table=TABLE)
    assert [(point.metric, dict(point.labels), point.value) for point in output.points] == [
        ("latency_us", {"bytes": 1}, 0.21),
        ("latency_us", {"bytes": 2}, 0.25),
    ]
    assert output.values == {"latency_us": 0.25}
    assert not output.forbidden


def test_reports_a_row_without_its_required_word(messages):
    output = read_output("# Size  Latency\n1 0.2 Pass\n2 0.3 Fail\n", table=TABLE)
    messages.check(output.forbidden)


def test_fixed_labels_distinguish_similar_tables():
    tables = [
        {**TABLE, "header": f"^# {name}", "fixed": {"test": name}} for name in ("Ping", "Pong")
    ]
    output = read_output("# Ping\n1 2 Pass\n# Pong\n1 3 Pass\n", table=tables)
    assert [dict(point.labels) for point in output.points] == [
        {"test": "Ping", "bytes": 1},
        {"test": "Pong", "bytes": 1},
    ]


def test_finds_numbers_in_a_document_by_path(messages):
    metric = {"path": "jobs.0.write.bw", "unit": "MB/s", "scale": 0.001}
    text = "note: verify\n" + json.dumps({"jobs": [{"write": {"bw": 5000}}]}, indent=2)
    assert read_output(text, json={"bw": metric}).values == {"bw": 5.0}
    messages.check(read_output("{}", json={"bw": metric}).missing)
    messages.check(read_output("no", json={"bw": metric}).missing)


def test_reports_missing_and_forbidden_marks():
    text = "begin\nERROR 5\n"
    output = read_output(text, must=["begin", "DONE"], never=["ERROR"])
    assert output.missing == ["DONE"]
    assert output.forbidden == ["ERROR 5"]
    assert not read_output("DONE\n", must=["DONE"], never=["ERROR"]).missing


@given(st.binary(max_size=300), st.integers(1, 50))
def test_lines_do_not_depend_on_the_chunks(data, size):
    whole_splitter = LineSplitter()
    splitter = LineSplitter()
    expected = [*whole_splitter.feed(data), *whole_splitter.flush()]
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert [line for piece in pieces for line in splitter.feed(piece)] + [
        *splitter.flush()
    ] == expected


def test_cuts_an_endless_line():
    splitter = LineSplitter()
    lines = [line for _ in range(100) for line in splitter.feed(b"x" * 1000)]
    assert [len(line) for line in lines] == [MAX_LINE_BYTES]
    assert [*splitter.feed(b"x\nlast\n")] == ["last"]


def test_a_line_starts_after_its_last_carriage_return():
    assert [*LineSplitter().feed(b"10 %\r20 %\r30 %\r\n")] == ["30 %"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"metrics": {"a b": {}}}, "metrics.a b: its pattern is missing"),
        ({"metrics": {"x": {"pattern": "("}}}, "metrics.x: '(' is no regular expression"),
        ({"metrics": {"x": {"pattern": "1"}}}, "metrics.x: its pattern has no group value"),
        ({"metrics": {"x": {"patern": "1"}}}, "metrics.x: 'patern' is none of pattern, unit"),
        ({"metrics": ["x"]}, "metrics: it is a mapping"),
        ({"json": {"x": {}}}, "json.x: its path is missing"),
        ({"json": {"x y": {}}}, "json.x y: a metric's name has letters, digits and _ alone"),
        ({"table": {**TABLE, "labels": ["size"]}}, "table: size is none of its columns, bytes"),
        ({"table": [TABLE, {}]}, "table[1]"),
        ({"must": ["["]}, "must: '[' is no regular expression"),
        ({"table": {**TABLE, "context": ["a"]}}, "table.context: a pattern has no named group"),
        ({"table": {**TABLE, "rows": "("}}, "table.rows: '(' is no regular expression"),
        ({"table": {**TABLE, "optional": 1}}, "table: optional is true or false, not 1"),
        ({"metrics": LATENCY, "table": TABLE}, "metrics: latency_us is asked for twice"),
    ],
)
def test_rejects_invalid_expectations(params, message):
    assert get_rejection(**params).startswith(message)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), ("1e3", 1000.0), ("1,234.5", 1234.5), ("1_0", None), ("inf", None), ("x", None)],
)
def test_parses_numbers(text, value):
    assert parse_number(text) == value


ROWS = {**TABLE, "rows": r"^\d+\s"}


def test_skips_foreign_lines_between_recognizable_rows():
    text = "# Size Latency\n[n01:7] closed\n1 0.2 Pass\nWarning: 3\n2 0.3 Pass\n"
    output = read_output(text, table=ROWS)
    assert [(dict(point.labels), point.value) for point in output.points] == [
        ({"bytes": 1}, 0.2),
        ({"bytes": 2}, 0.3),
    ]
    assert not output.forbidden


def test_reports_an_unreadable_row(messages):
    output = read_output("# Size Latency\n1 0.2 Pass\n2 0.3[n01:7] closed\n", table=ROWS)
    messages.check(output.forbidden)


def test_accepts_each_of_several_required_words(messages):
    table = {**TABLE, "must": {"validation": ["Pass", "N/A"]}}
    assert not read_output("# Size  Latency\n1 2 N/A\n2 2 Pass\n", table=table).forbidden
    output = read_output("# Size  Latency\n1 2 Fail\n", table=table)
    messages.check(output.forbidden)


def test_context_lines_above_a_table_label_its_rows():
    context = [r"^# Test (?P<test>\w+)", r"^# ranks = (?P<ranks>\d+)( of (?P<all>\d+))?"]
    table = {**TABLE, "context": context}
    text = "# Test A\n# ranks = 2 of 4\n# Size  Latency\n1 2 Pass\n# ranks = 4\n1 3 Pass\n"
    assert [dict(point.labels) for point in read_output(text, table=table).points] == [
        {"test": "A", "ranks": 2, "all": 4, "bytes": 1},
        {"test": "A", "ranks": 4, "bytes": 1},
    ]


def test_an_optional_table_is_missing_only_after_its_header(messages):
    table = {**TABLE, "optional": True}
    optional = {"late_us": {"pattern": "late (?P<value>.)", "unit": "us", "optional": True}}
    assert not read_output("done\n", table=table, metrics=optional).missing
    messages.check(read_output("# Size  Latency\n", table=table).missing)
    assert read_output("late 3\n", metrics=optional).values == {"late_us": 3.0}


def test_accepts_document_keys_with_dots():
    metric = {"path": ["clat", "99.0"], "unit": "ns"}
    assert read_output('{"clat": {"99.0": 7}}', json={"p99": metric}).values == {"p99": 7.0}


def test_finds_a_document_with_foreign_lines():
    lines = json.dumps({"a": [1, 2], "b": {"c": 3}}, indent=1).splitlines()
    for index in range(len(lines) + 1):
        text = "\n".join([*lines[:index], "[n01:7] {warning}: 3 more", *lines[index:]])
        assert find_document(text) == {"a": [1, 2], "b": {"c": 3}}, text


@pytest.mark.parametrize("size", [1, 20, 40])
def test_returns_none_for_a_truncated_document(size):
    assert find_document(json.dumps({"a": [1, 2], "b": {"c": 3}}, indent=1)[:size]) is None
