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


def read(text, **params):
    reader = OutputReader(parse_expectation(params))
    for line in text.splitlines():
        reader.read_line(line)
    return reader.finish()


def refused(**params):
    with pytest.raises(ExpectationError) as caught:
        parse_expectation(params)
    return str(caught.value)


def test_the_last_line_with_a_number_counts():
    found = read("latency 3 us\nlatency 2.5 us\n", metrics=LATENCY)
    assert found.values == {"latency_us": 2.5}
    assert not found.samples
    assert not found.missing


def test_a_sampled_number_is_kept_each_time_in_its_unit():
    about = {"pattern": r"step (?P<value>\S+) s", "unit": "ms", "scale": 1000}
    found = read("step 0.25 s\nstep 0.5 s\nstep nan s\n", samples={"step_ms": about})
    assert found.samples == {"step_ms": [250.0, 500.0]}
    assert found.values == {"step_ms": 500.0}
    assert found.forbidden == ["step_ms is no number: step nan s"]


def test_each_new_value_is_said_as_it_comes():
    said = []
    reader = OutputReader(parse_expectation({"metrics": LATENCY}), lambda *one: said.append(one))
    reader.read_line("latency 3 us")
    assert said == [("latency_us", 3.0)]


def test_rows_of_a_table_are_points():
    text = (
        "# OSU\n# Size  Latency (us) Validation\n1  0.21 Pass\n\n2  0.25 Pass\nall done\n4 1 Pass\n"
    )
    found = read(text, table=TABLE)
    assert [(p.metric, dict(p.labels), p.value) for p in found.points] == [
        ("latency_us", {"bytes": 1}, 0.21),
        ("latency_us", {"bytes": 2}, 0.25),
    ]
    assert found.values == {"latency_us": 0.25}
    assert not found.forbidden


def test_a_row_without_its_word_is_told():
    found = read("# Size  Latency\n1 0.2 Pass\n2 0.3 Fail\n", table=TABLE)
    assert found.forbidden == ["validation is Fail, not Pass: 2 0.3 Fail"]


def test_tables_of_one_kind_differ_by_fixed_labels():
    tables = [
        {**TABLE, "header": f"^# {name}", "fixed": {"test": name}} for name in ("Ping", "Pong")
    ]
    found = read("# Ping\n1 2 Pass\n# Pong\n1 3 Pass\n", table=tables)
    assert [dict(point.labels) for point in found.points] == [
        {"test": "Ping", "bytes": 1},
        {"test": "Pong", "bytes": 1},
    ]


def test_numbers_in_a_document_are_found_by_their_paths():
    path = {"path": "jobs.0.write.bw", "unit": "MB/s", "scale": 0.001}
    text = "note: verify\n" + json.dumps({"jobs": [{"write": {"bw": 5000}}]}, indent=2)
    assert read(text, json={"bw": path}).values == {"bw": 5.0}
    assert read("{}", json={"bw": path}).missing == ["a value of bw"]
    assert read("no", json={"bw": path}).missing == ["a JSON document", "a value of bw"]


def test_marks_that_are_missing_or_forbidden():
    text = "begin\nERROR 5\n"
    found = read(text, must=["begin", "DONE"], never=["ERROR"])
    assert found.missing == ["DONE"]
    assert found.forbidden == ["ERROR 5"]
    assert not read("DONE\n", must=["DONE"], never=["ERROR"]).missing


@given(st.binary(max_size=300), st.integers(1, 50))
def test_lines_do_not_depend_on_how_bytes_arrive(data, size):
    at_once = LineSplitter()
    lines = LineSplitter()
    expected = [*at_once.feed(data), *at_once.flush()]
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert [line for piece in pieces for line in lines.feed(piece)] + [*lines.flush()] == expected


def test_a_flood_without_an_end_of_line_is_cut():
    lines = LineSplitter()
    found = [line for _ in range(100) for line in lines.feed(b"x" * 1000)]
    assert [len(line) for line in found] == [MAX_LINE_BYTES]
    assert [*lines.feed(b"x\nlast\n")] == ["last"]


def test_a_progress_line_counts_from_its_last_return():
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
        ({"table": {**TABLE, "labels": ["size"]}}, "table: size is none of its columns, bytes"),
        ({"table": [TABLE, {}]}, "table[1]"),
        ({"must": ["["]}, "must: '[' is no regular expression"),
        ({"table": {**TABLE, "context": ["a"]}}, "table.context: a pattern has no named group"),
        ({"table": {**TABLE, "rows": "("}}, "table.rows: '(' is no regular expression"),
        ({"table": {**TABLE, "optional": 1}}, "table: optional is true or false, not 1"),
        ({"metrics": LATENCY, "table": TABLE}, "metrics: latency_us is asked for twice"),
    ],
)
def test_what_cannot_be_expected_is_refused(params, message):
    assert refused(**params).startswith(message)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), ("1e3", 1000.0), ("1,234.5", 1234.5), ("1_0", None), ("inf", None), ("x", None)],
)
def test_numbers(text, value):
    assert parse_number(text) == value


ROWS = {**TABLE, "rows": r"^\d+\s"}


def test_lines_of_others_stand_between_rows_that_are_told_apart():
    text = "# Size Latency\n[n01:7] closed\n1 0.2 Pass\nWarning: 3\n2 0.3 Pass\n"
    found = read(text, table=ROWS)
    assert [(dict(point.labels), point.value) for point in found.points] == [
        ({"bytes": 1}, 0.2),
        ({"bytes": 2}, 0.3),
    ]
    assert not found.forbidden


def test_a_row_that_cannot_be_read_is_told():
    found = read("# Size Latency\n1 0.2 Pass\n2 0.3[n01:7] closed\n", table=ROWS)
    assert found.forbidden == ["a row that cannot be read: 2 0.3[n01:7] closed"]


def test_one_of_several_words_may_stand_in_a_row():
    table = {**TABLE, "must": {"validation": ["Pass", "N/A"]}}
    assert not read("# Size  Latency\n1 2 N/A\n2 2 Pass\n", table=table).forbidden
    found = read("# Size  Latency\n1 2 Fail\n", table=table)
    assert found.forbidden == ["validation is Fail, not Pass or N/A: 1 2 Fail"]


def test_lines_above_a_table_label_its_rows():
    context = [r"^# Test (?P<test>\w+)", r"^# ranks = (?P<ranks>\d+)( of (?P<all>\d+))?"]
    table = {**TABLE, "context": context}
    text = "# Test A\n# ranks = 2 of 4\n# Size  Latency\n1 2 Pass\n# ranks = 4\n1 3 Pass\n"
    assert [dict(point.labels) for point in read(text, table=table).points] == [
        {"test": "A", "ranks": 2, "all": 4, "bytes": 1},
        {"test": "A", "ranks": 4, "bytes": 1},
    ]


def test_what_is_optional_is_missed_only_once_its_table_has_begun():
    table = {**TABLE, "optional": True}
    optional = {"late_us": {"pattern": "late (?P<value>.)", "unit": "us", "optional": True}}
    assert not read("done\n", table=table, metrics=optional).missing
    assert read("# Size  Latency\n", table=table).missing == ["a value of latency_us"]
    assert read("late 3\n", metrics=optional).values == {"late_us": 3.0}


def test_a_key_of_a_document_may_have_dots():
    about = {"path": ["clat", "99.0"], "unit": "ns"}
    assert read('{"clat": {"99.0": 7}}', json={"p99": about}).values == {"p99": 7.0}


def test_lines_of_others_may_stand_in_a_document():
    lines = json.dumps({"a": [1, 2], "b": {"c": 3}}, indent=1).splitlines()
    for place in range(len(lines) + 1):
        text = "\n".join([*lines[:place], "[n01:7] {warning}: 3 more", *lines[place:]])
        assert find_document(text) == {"a": [1, 2], "b": {"c": 3}}, text


@pytest.mark.parametrize("size", [1, 20, 40])
def test_a_document_that_breaks_off_is_none(size):
    assert find_document(json.dumps({"a": [1, 2], "b": {"c": 3}}, indent=1)[:size]) is None
