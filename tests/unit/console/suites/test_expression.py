"""Expressions of bounds: values as in Python, and errors with their position."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.suites.expressions.expression import MAX_DEPTH, ExpressionError, parse_expression

FIGURES = {"a": 3.5, "b.c-d": 0.25, "e[size=8]": 70.0}


def look_up(figure):
    return FIGURES[figure.case]


def evaluate(text):
    return parse_expression(text).evaluate(look_up)


def evaluate_error(text):
    with pytest.raises(ExpressionError) as caught:
        evaluate(text)
    return caught.value


LEAVES = st.one_of(
    st.floats(0, 1e6, allow_nan=False).map(repr),
    st.integers(0, 9999).map(str),
    st.sampled_from(["case(a).time_ms", "case( b.c-d ).x.p50", 'case("e[size=8]").skew.max']),
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from("+-*/"), part).map(" ".join),
        part.map("({})".format),
        part.map("-{}".format),
        st.tuples(st.sampled_from(["min", "max"]), st.lists(part, min_size=2, max_size=3)).map(
            lambda call: f"{call[0]}({', '.join(call[1])})"
        ),
    ),
    max_leaves=12,
)


def evaluate_with_python(text):
    """Return the value that Python computes, or None if it is not a finite number."""
    for name, number in (
        ("case(a).time_ms", FIGURES["a"]),
        ("case( b.c-d ).x.p50", FIGURES["b.c-d"]),
        ('case("e[size=8]").skew.max', FIGURES["e[size=8]"]),
    ):
        text = text.replace(name, repr(number))
    try:
        result = float(eval(text, {"__builtins__": {}, "min": min, "max": max}))
    except (ZeroDivisionError, OverflowError):
        return None
    return result if math.isfinite(result) else None


@given(EXPRESSIONS)
def test_computes_the_same_as_python(text):
    expected = evaluate_with_python(text)
    if expected is None:
        evaluate_error(text)
    else:
        assert evaluate(text) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(st.one_of(st.text(), st.text("case(min,max)\"'[].+-*/ 0123456789eKiB_=\n")))
def test_any_text_parses_or_fails_at_a_position_in_it(text):
    try:
        expression = parse_expression(text)
        expression.evaluate(lambda figure: 1.0)
    except ExpressionError as error:
        position = error.position
    else:
        position = 0
        cases = tuple(figure.case for figure in expression.metrics)
        parsed_again = parse_expression(expression.substitute_cases(cases))
        assert tuple(figure.case for figure in parsed_again.metrics) == cases
    assert 0 <= position <= len(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64KiB", 65536.0), ("1.5e1", 15.0), (".5 * 4", 2.0), ("7 - 2 - 1", 4.0), ("--2", 2.0)],
)
def test_parses_numbers_and_units(text, expected):
    assert evaluate(text) == expected


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, "expected a number, case(NAME).metric, min(...), max(...) or (, not the end"),
        ("1 +", 3, "expected a number"),
        ("2 3", 2, "expected +, -, *, / or the end, not '3'"),
        ("1 * fast", 4, "expected a number"),
        ("5ms", 0, "'5ms' is no number; of units there are those of bytes (64KiB)"),
        ("1e999", 0, "1e999 is too large"),
        ("case(a)", 7, "expected ., not the end"),
        ("case(a).", 8, "expected a metric"),
        ("case(a[n=1]).x", 6, 'an id with brackets stands in quotes: case("...")'),
        ("min(1; 2)", 5, "expected ), not ';'"),
        ("1 / (2 - 2)", 0, "it divides by zero"),
        ("1e300 * 1e300", 0, "it comes to no finite number"),
        ("__import__('os')", 0, "expected a number"),
        ("(" * (MAX_DEPTH + 1), MAX_DEPTH + 1, "it nests deeper than"),
        ("1+" * 2000, 0, "it is longer than 2000 characters"),
    ],
)
def test_rejects_invalid_expression_at_its_position(text, position, message):
    error = evaluate_error(text)
    assert (str(error)[: len(message)], error.position) == (message, position)


def test_substituted_cases_parse_again():
    expression = parse_expression("min(case(a).x, 2 * case('b').y)")
    text = expression.substitute_cases(("plain", 'n[v="1"]'))
    assert text == 'min(case(plain).x, 2 * case("n[v=""1""]").y)'
    assert [figure.case for figure in parse_expression(text).metrics] == ["plain", 'n[v="1"]']
