"""Expectations that refer to cases: resolution, and errors with their position."""

from pathlib import Path

import pytest

from spbench.errors import SuiteError
from spbench.suites.loader import load_suite_text

HEAD = "schema: spbench.suite/1\nname: s\ncases:\n"
TIMED = "benchmark: compute.gemm, np: 1, "


def load_cases(*entries):
    text = HEAD + "".join(f"  - {{{entry}}}\n" for entry in entries)
    return {case.id: case for case in load_suite_text(text, Path("s.yaml")).cases}


def load_errors(*entries):
    with pytest.raises(SuiteError) as caught:
        load_cases(*entries)
    return [str(error) for error in caught.value.diagnostics]


def format_entry(limit, name="a", more=""):
    return f"name: {name}, {TIMED}{more} expect: {{time_ms: {{max: {limit}}}}}"


SWEPT = f"name: b, {TIMED} matrix: {{n: [8, 16], dtype: [fp32, fp64]}}"


@pytest.mark.parametrize(
    ("limit", "more", "case", "expression"),
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
def test_finds_case_by_id_name_or_equal_values(limit, more, case, expression):
    cases = load_cases(format_entry(limit, more=more), SWEPT, f"name: c, {TIMED}")
    (item,) = cases[case].expect
    assert (item.limit, item.expression) == (None, expression)


def test_expression_of_numbers_only_becomes_a_number():
    (item,) = load_cases(format_entry("2 * 1KiB"))["a"].expect
    assert (item.limit, item.expression) == (2048.0, None)


@pytest.mark.parametrize(
    ("limit", "offset", "message"),
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
def test_rejects_unresolvable_reference_at_its_position(limit, offset, message):
    (error,) = load_errors(format_entry(limit, more="params: {n: 32},"), SWEPT, f"name: c, {TIMED}")
    start = format_entry("", more="params: {n: 32},").index("max: ") + len("max: ") + len("  - {")
    column = start + offset + 1 - (limit == "1 + ")  # YAML drops a space at the end
    assert error.startswith(f"s.yaml:4:{column}: error: max is no limit: {message}")


def test_name_is_ambiguous_if_parameters_differ(messages):
    entry = "name: a, benchmark: memory.copy, np: 1, expect: {time_ms: {max: case(b).skew}}"
    (error,) = load_errors(entry, SWEPT.replace(", dtype: [fp32, fp64]", ""))
    messages.check(error)


def test_case_with_errors_is_not_reported_as_unknown():
    errors = load_errors(format_entry("case(b).time_ms"), f"name: b, {TIMED} params: {{nn: 8}}")
    assert ["nn" in error for error in errors] == [True]


def test_error_in_escaped_text_names_the_character():
    (error,) = load_errors(format_entry('"1 \\x2b fast"'))
    assert error.endswith("not 'fast' (at its character 5)")
