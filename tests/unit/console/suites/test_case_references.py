"""Expectations that refer to cases: each finds one, or is refused where it stands."""

from pathlib import Path

import pytest

from spbench.errors import SuiteError
from spbench.suites.loader import load_suite_text

HEAD = "schema: spbench.suite/1\nname: s\ncases:\n"
TIMED = "benchmark: compute.gemm, np: 1, "


def loaded(*entries):
    text = HEAD + "".join(f"  - {{{entry}}}\n" for entry in entries)
    return {case.id: case for case in load_suite_text(text, Path("s.yaml")).cases}


def refused(*entries):
    with pytest.raises(SuiteError) as caught:
        loaded(*entries)
    return [str(error) for error in caught.value.diagnostics]


def expecting(limit, name="a", more=""):
    return f"name: {name}, {TIMED}{more} expect: {{time_ms: {{max: {limit}}}}}"


SWEPT = f"name: b, {TIMED} matrix: {{n: [8, 16], dtype: [fp32, fp64]}}"


@pytest.mark.parametrize(
    ("limit", "more", "case", "found"),
    [
        ("2 * case(c).time_ms.p95", "", "a", "2 * case(c).time_ms.p95"),
        ("case(a).time_ms.p99 + 1", "", "a", "case(a).time_ms.p99 + 1"),
        ("case(b).skew", "matrix: {dtype: [fp64, fp32], n: [16]},", "a[dtype=fp64,n=16]",
         'case("b[n=16,dtype=fp64]").skew'),
        ("case(b).skew", "params: {n: 8},", "a", 'case("b[n=8,dtype=fp32]").skew'),
        ("'case(\"b[dtype=fp64]\").skew'", "matrix: {n: [16]},", "a[n=16]",
         'case("b[n=16,dtype=fp64]").skew'),
        ("'case(\"b[n=8,dtype=fp64]\").skew'", "", "a", 'case("b[n=8,dtype=fp64]").skew'),
    ],
)  # fmt: skip
def test_a_case_is_found_by_id_name_or_equal_values(limit, more, case, found):
    cases = loaded(expecting(limit, more=more), SWEPT, f"name: c, {TIMED}")
    (item,) = cases[case].expect
    assert (item.limit, item.expression) == (None, found)


def test_an_expression_of_numbers_alone_is_a_number():
    (item,) = loaded(expecting("2 * 1KiB"))["a"].expect
    assert (item.limit, item.expression) == (2048.0, None)


@pytest.mark.parametrize(
    ("limit", "at", "told"),
    [
        ("2 * case(cc).time_ms", 9, "no case is called 'cc' (did you mean c?)"),
        ("case(zzzz).time_ms", 5, "no case is called 'zzzz' (known: a, b, c)"),
        ("case(c).tim_ms", 8, "compute.gemm has no metric 'tim_ms' (did you mean time_ms?)"),
        ("case(c).time_ms.p51", 8, "unknown statistic 'p51' (did you mean p95?)"),
        ("'case(\"b[n=9]\").skew'", 6, "no case of 'b[n=9]' has the same values as this one (there "
         "are b[n=8,dtype=fp32], b[n=8,dtype=fp64], b[n=16,dtype=fp32] and 1 more); name one by "
         'its id in quotes, as case("b[n=8,dtype=fp32]")'),
        ("case(b).skew", 5, "no case of 'b' has the same values as this one"),
        ("1 + ", 4, "expected"),
    ],
)  # fmt: skip
def test_a_figure_that_cannot_be_found_is_refused_at_its_place(limit, at, told):
    (error,) = refused(expecting(limit, more="params: {n: 32},"), SWEPT, f"name: c, {TIMED}")
    begin = expecting("", more="params: {n: 32},").index("max: ") + len("max: ") + len("  - {")
    column = begin + at + 1 - (limit == "1 + ")  # YAML drops a space at the end
    assert error.startswith(f"s.yaml:4:{column}: error: max is no limit: {told}")


def test_several_cases_are_ambiguous_where_the_case_has_no_such_parameter():
    entry = "name: a, benchmark: memory.copy, np: 1, expect: {time_ms: {max: case(b).skew}}"
    (error,) = refused(entry, SWEPT.replace(", dtype: [fp32, fp64]", ""))
    assert "several cases are 'b' here (b[n=8], b[n=16])" in error


def test_a_name_whose_cases_have_errors_is_not_called_unknown():
    errors = refused(expecting("case(b).time_ms"), f"name: b, {TIMED} params: {{nn: 8}}")
    assert ["nn" in error for error in errors] == [True]


def test_an_error_in_a_text_with_escapes_says_at_which_character():
    (error,) = refused(expecting('"1 \\x2b fast"'))
    assert error.endswith("not 'fast' (at its character 5)")
