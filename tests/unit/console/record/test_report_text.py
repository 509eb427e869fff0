import json

import pytest

from spbench.record.runs.report_text import read_report_file


def read(tmp_path, text, convert=lambda case: case):
    path = tmp_path / "report.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_report_file(path, convert)


@pytest.mark.parametrize("indent", [None, 0, 1, 4])
@pytest.mark.parametrize("cases", [[], [{}], [{"id": "a"}, {"id": "é\n", "x": [1.5, None]}, 3]])
def test_cases_are_read_one_by_one(tmp_path, indent, cases):
    report = {"schema": "x", "cases": cases, "errors": ["cases", "["], "run": {"cases": [1]}}
    assert read(tmp_path, json.dumps(report, indent=indent)) == (report | {"cases": []}, cases)


def test_a_case_is_converted_before_the_next_is_read(tmp_path):
    seen = []

    def convert(case):
        seen.append(case)
        return len(seen)

    with pytest.raises(ValueError, match="expected"):
        read(tmp_path, '{"cases": [1, 2 3]}', convert)
    assert seen == [1, 2]


@pytest.mark.parametrize("value", ['"x"', "null", '{"a": 1}'])
def test_cases_that_are_no_array_stay_in_the_report(tmp_path, value):
    assert read(tmp_path, f'{{"cases": {value}}}') == ({"cases": json.loads(value)}, [])


def test_the_last_of_two_cases_counts_as_in_json(tmp_path):
    assert read(tmp_path, '{"cases": [1], "cases": [2]}') == ({"cases": []}, [2])


NO_OBJECTS = [
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
NO_CASES = ['{"cases": [', '{"cases": [1,]}', '{"cases": [1 2]}', '{"cases": []}x']
NESTED = ['{"cases": ' + "[" * 100_000, '{"a": ' + "[" * 100_000]


@pytest.mark.parametrize("text", [*NO_OBJECTS, *NO_CASES, *NESTED])
def test_rejects_what_is_no_json_object(tmp_path, text):
    with pytest.raises(ValueError, match=r"expected|Expecting|nested too deep|codec can't decode"):
        read(tmp_path, text)


def test_texts_have_no_commands_of_terminals(tmp_path):
    head, cases = read(tmp_path, '{"a": "x\\u001by", "cases": [{"id": "\\u009bz"}]}')
    assert (head["a"], cases) == ("x?y", [{"id": "?z"}])
