"""Expressions of bounds: as Python reckons, and nothing but their own error."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.suites.expression import MAX_DEPTH, ExpressionError, parse_expression

FIGURES = {"a": 3.5, "b.c-d": 0.25, "e[size=8]": 70.0}


def look_up(figure):
    return FIGURES[figure.case]


def value(text):
    return parse_expression(text).evaluate(look_up)


def refuses(text):
    with pytest.raises(ExpressionError) as caught:
        value(text)
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


def reckoned(text):
    """What Python makes of it, None where that is no finite number."""
    for name, known in (
        ("case(a).time_ms", FIGURES["a"]),
        ("case( b.c-d ).x.p50", FIGURES["b.c-d"]),
        ('case("e[size=8]").skew.max', FIGURES["e[size=8]"]),
    ):
        text = text.replace(name, repr(known))
    try:
        result = float(eval(text, {"__builtins__": {}, "min": min, "max": max}))
    except (ZeroDivisionError, OverflowError):
        return None
    return result if math.isfinite(result) else None


@given(EXPRESSIONS)
def test_it_reckons_as_python_does(text):
    expected = reckoned(text)
    if expected is None:
        refuses(text)
    else:
        assert value(text) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(st.one_of(st.text(), st.text("case(min,max)\"'[].+-*/ 0123456789eKiB_=\n")))
def test_any_text_is_read_or_refused_at_a_place_in_it(text):
    try:
        expression = parse_expression(text)
        expression.evaluate(lambda figure: 1.0)
    except ExpressionError as error:
        at = error.position
    else:
        at = 0
        cases = tuple(figure.case for figure in expression.metrics)
        same = parse_expression(expression.substitute_cases(cases))
        assert tuple(figure.case for figure in same.metrics) == cases
    assert 0 <= at <= len(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64KiB", 65536.0), ("1.5e1", 15.0), (".5 * 4", 2.0), ("7 - 2 - 1", 4.0), ("--2", 2.0)],
)
def test_numbers_and_their_units(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "at", "told"),
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
def test_what_is_none_is_refused_where_it_is_wrong(text, at, told):
    error = refuses(text)
    assert (str(error)[: len(told)], error.position) == (told, at)


def test_cases_are_written_as_they_can_be_read_again():
    expression = parse_expression("min(case(a).x, 2 * case('b').y)")
    written = expression.substitute_cases(("plain", 'n[v="1"]'))
    assert written == 'min(case(plain).x, 2 * case("n[v=""1""]").y)'
    assert [figure.case for figure in parse_expression(written).metrics] == ["plain", 'n[v="1"]']
