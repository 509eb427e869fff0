"""Tests of the printed lines of shipped suites: width, units and repetition."""

import re
from functools import cache

import pytest

from spbench.cli.runs.lines import LineView
from spbench.engine.run_metadata import describe_case
from spbench.record.state import RunState
from spbench.report.text_tables import PIPE_WIDTH
from spbench.suites.loader import load_suite_file
from spbench.suites.shipped import list_shipped_suites
from spbench_core.catalog import BENCHMARKS
from support.sample_events import case_judged, job_start, rank_event, run_end, run_start

SUITES = list_shipped_suites()
TIMES_MS = (2.95e-05, 0.0282, 1.91, 999.7, 27150.0, 4.2e6)
VALUES = {"ms": TIMES_MS, "1/s": (0.05, 0.418, 3.0, 1234.5, 6.0e7)}
PLAIN_VALUES = (0.0, 1.2e-7, 0.418, 3.0, 1234.5, 6.0e7)
UNITS = (
    r"(?:ps|ns|us|ms|s|min|h|[kMGTP]?B/s|[KMGT]?i?B|[kMGTP]B|[kMGTP]?FLOP/s"
    r"|(?:[kMGTP] )?images/s|[pnum]?s/B)"
)
PLAIN_METRICS = {
    metric.name.replace("_", " ")
    for benchmark in BENCHMARKS.values()
    for metric in benchmark.metrics
    if metric.unit == "1"
}
"""Metrics without a unit that are neither shares nor factors, such as a loss."""
TIME_CELL = re.compile(rf"\d{{1,3}}(\.\d+)? {UNITS}|-")
EXPONENT = re.compile(r"\d[eE][+-]?\d")


def generate_suite_events(path):
    """Yield the events of a run of a suite, with values of every magnitude."""
    suite = load_suite_file(path)
    cases = [describe_case(case, [case.np or 1]) for case in suite.cases]
    start = run_start(*cases)
    start["environment"] |= {"cores": 2, "other_work": ["load 15.2 on 2 cores"]}
    yield start | {"suite": suite.name, "description": suite.description}
    for job, case in enumerate(cases, 1):
        yield job_start(case["id"], np=case["np"], job=job) | {"oversubscribed": case["np"] > 2}
        yield from generate_case_events(case, job)
    yield run_end()


def generate_case_events(case, job):
    """Yield the events of a case: a value per metric, a reference and a status."""
    head = {"case": case["id"], "repeat": 0, "job": job}
    reference = {"name": "time_ms", "value": 0.0141, "measured_by": "a synthetic reference"}
    for rank in range(case["np"]):
        yield rank_event("ready", rank, size=case["np"], host="node01") | {"job": job}
        yield rank_event("case_start", rank) | head
        yield rank_event("metric", rank, **reference) | head
        for index, metric in enumerate(case["metrics"]):
            values = VALUES.get(metric["unit"], PLAIN_VALUES)
            yield (
                build_metric_event(rank, metric["name"], values[(job + index) % len(values)]) | head
            )
        for check in case["checks"]:
            yield rank_event("check", rank, name=check) | head
    if job % 7:
        yield case_judged(case["id"])
    else:
        yield case_judged(case["id"], "failed", "it was slow")


def build_metric_event(rank, name, value):
    if name == "time_ms":
        return rank_event("samples", rank, metric=name, values=[value])
    return rank_event("metric", rank, name=name, value=value)


@cache
def print_lines(name, columns, verbosity=0):
    state = RunState()
    lines = []
    view = LineView(state, lines.append, verbosity, columns)
    for event in generate_suite_events(SUITES[name]):
        state.apply(event)
        view(event)
    view.finish("report: x")
    return "\n".join(lines).splitlines()


@pytest.mark.parametrize("columns", [80, 100, 120, None])
@pytest.mark.parametrize("name", SUITES)
def test_lines_fit_the_terminal_or_pipe(name, columns):
    assert max(map(len, print_lines(name, columns))) <= (columns or PIPE_WIDTH)


def test_narrow_terminal_keeps_reference_and_efficiency():
    (header, *_) = [line for line in print_lines("halo", 80) if " status " in line]
    assert {"time", "reference", "efficiency", "checks"} <= set(header.split())


@pytest.mark.parametrize("name", SUITES)
def test_notes_wrap_between_words(name):
    narrow, wide = (list_words_of_notes(print_lines(name, columns)) for columns in (80, None))
    assert narrow <= wide


def list_words_of_notes(lines):
    """Return the words below the table, without punctuation."""
    return {word.strip(".;,:") for line in lines[lines.index("") :] for word in line.split()}


@pytest.mark.parametrize("name", SUITES)
def test_one_rank_is_singular(name):
    text = "\n".join(print_lines(name, None, verbosity=1))
    assert not re.search(r"\b1 (ranks|cores|hosts|cases)\b", text)


@pytest.mark.parametrize("columns", [80, 100, 120, None])
@pytest.mark.parametrize("name", SUITES)
def test_each_case_has_a_row_with_status_and_time(name, columns):
    lines = print_lines(name, columns)
    headers = [line for line in lines if re.match(r" *status +case ", line)]
    cases = [line for line in lines if re.match(r"(\[ *\d+/\d+\] )?[✓✗] (passed|failed) ", line)]
    assert headers
    assert len(cases) == len(load_suite_file(SUITES[name]).cases)
    header = headers[0]
    for line in lines[lines.index(header) + 1 :]:
        if re.match(r" *status +case ", line):
            header = line
        if line in cases:
            end = header.index(" time") + len(" time")
            assert TIME_CELL.fullmatch(line[end - 8 : end].strip()), line


@pytest.mark.parametrize("verbosity", [0, 1])
@pytest.mark.parametrize("name", SUITES)
def test_every_number_has_a_unit_and_no_exponent(name, verbosity):
    # A value may begin the next line, below its name.
    for line in (
        "\n".join(print_lines(name, None, verbosity)).replace("\n" + " " * 10, " ").split("\n")
    ):
        assert not EXPONENT.search(line), line
        assert not find_unitless_numbers(line), line


def find_unitless_numbers(line):
    """Return the decimal numbers of a line without a unit, except plain metrics."""
    text = re.sub(r"(load|Open MPI|python|mpi|p95) [\d.]+", "", line)
    for metric in PLAIN_METRICS:
        text = re.sub(rf"\b{metric} [\d.,]+", "", text)
    return re.findall(rf"(?<![\w.,/])\d+\.\d+(?!\.|\d| {UNITS}|x| %| [kMGTP](?!\w))", text)


def test_finds_numbers_without_a_unit():
    assert find_unitless_numbers("[1/2] passed  a  28.2  14.1 us") == ["28.2"]
    assert find_unitless_numbers("[1/2] passed  a  28.2 us  14.1 us  1.27x  50 %") == []


@pytest.mark.parametrize("name", SUITES)
def test_no_remark_is_printed_twice(name):
    lines = print_lines(name, None)
    texts = [line for line in lines if " case " not in line and not re.match(r" *\[", line)]
    remarks = [line for line in texts if line.strip() and line.strip() != "it was slow"]
    assert len(remarks) == len(set(remarks))


def test_cut_id_is_recognizable():
    lines = print_lines("allreduce", 60)
    assert any("two[recursive" in line for line in lines)
