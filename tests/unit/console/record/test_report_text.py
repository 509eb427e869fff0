"""Reports that are read case by case, with bounded memory."""

import json
import tracemalloc
from functools import partial

import pytest

from spbench.record.runs.report_text import read_report_file


@pytest.fixture(params=[1, 2, 7, 1 << 20], ids="blocks of {}".format)
def read_file(request):
    """Return the reader with short blocks, so that values may end anywhere."""
    return partial(read_report_file, block_characters=request.param)


@pytest.fixture
def read(read_file, tmp_path):
    """Return a function that writes a report and reads it."""

    def write_and_read(text, convert=lambda case: case):
        path = tmp_path / "report.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_file(path, convert)

    return write_and_read


@pytest.mark.parametrize("indent", [None, 0, 1, 4])
@pytest.mark.parametrize("cases", [[], [{}], [{"id": "a"}, {"id": "é\n", "x": [1.5, None]}, 3]])
def test_reads_cases_apart_from_the_report(read, indent, cases):
    report = {
        "schema": "x",
        "n": 1234,
        "x": -1.25e-7,
        "cases": cases,
        "errors": ["cases", "["],
        "run": {"cases": [1]},
        "y": 5e300,
    }
    assert read(json.dumps(report, indent=indent)) == (report | {"cases": []}, cases)


def test_converts_each_case_before_reading_the_next(read):
    converted = []

    def convert(case):
        converted.append(case)
        return len(converted)

    with pytest.raises(ValueError, match="expected"):
        read('{"cases": [1, 2 3]}', convert)
    assert converted == [1, 2]


def test_rejects_a_value_without_end_in_bounded_memory(read_file, tmp_path):
    path = tmp_path / "report.json"
    path.write_text('{"a": "' + "x" * 20_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="Unterminated string"):
            read_file(path, lambda case: case, max_case_characters=1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5e6


def test_keeps_only_part_of_the_text_in_memory(tmp_path):
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"cases": [{"id": "x" * 50_000}] * 200}))
    tracemalloc.start()
    try:
        _, cases = read_report_file(path, lambda case: len(case["id"]), block_characters=1 << 16)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert cases == [50_000] * 200
    assert peak < path.stat().st_size / 10


@pytest.mark.parametrize("value", ['"x"', "null", '{"a": 1}'])
def test_cases_that_are_not_an_array_stay_in_the_report(read, value):
    assert read(f'{{"cases": {value}}}') == ({"cases": json.loads(value)}, [])


def test_last_of_two_cases_keys_wins(read):
    assert read('{"cases": [1], "cases": [2]}') == ({"cases": []}, [2])


INVALID_OBJECTS = [
    "",
    " ",
    "[]",
    "1",
    "{",
    '{"a"}',
    '{"a": 1',
    '{"a": 1,}',
    "{1: 2}",
    "{} {}",
    b"\xff{}",
]
INVALID_CASES = ['{"cases": [', '{"cases": [1,]}', '{"cases": [1 2]}', '{"cases": []}x']
NESTED = ['{"cases": ' + "[" * 100_000, '{"a": ' + "[" * 100_000]


@pytest.mark.parametrize("text", [*INVALID_OBJECTS, *INVALID_CASES, *NESTED])
def test_rejects_text_that_is_not_a_json_object(read, text):
    with pytest.raises(ValueError, match=r"expected|Expecting|nested too deep|codec can't decode"):
        read(text)


def test_replaces_control_characters_in_texts(read):
    head, cases = read('{"a": "x\\u001by", "cases": [{"id": "\\u009bz"}]}')
    assert (head["a"], cases) == ("x?y", [{"id": "?z"}])
