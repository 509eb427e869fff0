"""Runs as JSON lines and as messages of syslog."""

import json
import re
from dataclasses import replace

import pytest

from spbench.report.formats.lines import render_json_lines, render_syslog
from support.sample_runs import make_case, make_metric, make_run

PASSED = make_case("a", {"time_ms": make_metric(2.0), "rate": make_metric(3.0, "GB/s", "higher")})
FAILED = make_case("b", {}, status="failed", reason='it said "no]"\nand left')
RFC_5424 = re.compile(
    r"<(\d+)>1 (\S+) (\S+) spbench - case "
    r'\[spbench@32473((?: [a-z_]+="(?:[^"\\\]]|\\["\\\]])*")*)\] ([^\n]*)'
)


def test_each_case_and_metric_is_an_object_without_null_fields(messages):
    rows = [json.loads(line) for line in render_json_lines(make_run(PASSED, FAILED)).splitlines()]
    values = [(row["case"], row.get("metric"), row.get("value")) for row in rows]
    assert values == [("a", "time_ms", 2.0), ("a", "rate", 3.0), ("b", None, None)]
    assert "reason" not in rows[0]
    messages.check(rows[2]["reason"])


def test_each_case_is_a_syslog_message():
    messages = [
        RFC_5424.fullmatch(line) for line in render_syslog(make_run(PASSED, FAILED)).splitlines()
    ]
    assert all(messages), render_syslog(make_run(PASSED, FAILED))
    passed, failed = (message for message in messages if message)
    assert int(passed[1]) == 16 * 8 + 6
    assert 'time_ms="2.0"' in passed[4]
    assert passed[5] == "passed a, 2.00 ms"
    assert int(failed[1]) == 16 * 8 + 4
    assert failed[5] == 'failed b: it said "no]" and left'


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("node\n<128>1 - x - - - forged", "node_<128>1_-_x_-_-_-_forged"),
        ("a b\tc\r\x1b[2J", "a_b_c__[2J"),
        ("größe", "gr__e"),
        ("x" * 300, "x" * 255),
        ("", "-"),
    ],
)
def test_hostile_host_name_does_not_split_a_record(host, shown):
    recorded_run = make_run(PASSED)
    hostile = replace(recorded_run, summary=replace(recorded_run.summary, host=host))
    (line,) = render_syslog(hostile).splitlines()
    assert line.split(" ")[2] == shown
    assert RFC_5424.fullmatch(line)


def test_hostile_name_stays_within_its_field():
    lines = render_syslog(
        make_run(make_case('x"] y="1', {}, status="error", reason="r"))
    ).splitlines()
    (message,) = (RFC_5424.fullmatch(line) for line in lines)
    assert message
    assert r"case=\"x\\\"" in repr(message[4]) or 'case="x\\"\\] y=\\"1"' in message[4]
    assert int(message[1]) % 8 == 3
