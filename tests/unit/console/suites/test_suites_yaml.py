"""The YAML reader of suites: YAML 1.2 scalars, positions, problems and limits."""

import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.suites import yaml_nodes
from spbench.suites.yaml_nodes import MAX_DEPTH, Mark, YamlError, parse_yaml


def parse_value(text):
    document = parse_yaml(text)
    assert document.problems == ()
    return document.root.data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("y", "y"),
        ("Off", "Off"),
        ("true", True),
        ("FALSE", False),
        ("tRue", "tRue"),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("0o8", "0o8"),
        ("0b11", "0b11"),
        ("-0x1", "-0x1"),
        ("1_000", "1_000"),
        ("-12", -12),
        ("+12", 12),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1.5E-3", -0.0015),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("inf", "inf"),
        ("nan", "nan"),
        (".", "."),
        ("1.2.3", "1.2.3"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("null", None),
        ("~", None),
        ("", None),
        ("NULL", None),
        ("none", "none"),
        ("=", "="),
        ("'010'", "010"),
        ('"null"', "null"),
        ("! 12", "12"),
        ("!!str 12", "12"),
        ("!!int '12'", 12),
        ("!!float 12", 12.0),
        ("!!null ''", None),
        ("!!seq [1]", [1]),
        ("!!map {a: 1}", {"a": 1}),
        ("\N{ARABIC-INDIC DIGIT ONE}", "\N{ARABIC-INDIC DIGIT ONE}"),
    ],
)
def test_parses_scalars_as_yaml_1_2(text, expected):
    parsed = parse_value(text)
    assert parsed == expected
    assert type(parsed) is type(expected)


def test_parses_nan():
    assert math.isnan(parse_value(".nan"))


@given(st.integers(-(10**30), 10**30))
def test_whole_numbers_keep_their_value(number):
    assert parse_value(str(number)) == number
    assert parse_value(f"00{number}" if number >= 0 else str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_their_value(number):
    parsed = parse_value(repr(number))
    assert parsed == number
    assert type(parsed) is float


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])))
def test_quoted_text_stays_text(text):
    assert parse_value(yaml.safe_dump(text, default_style='"', allow_unicode=True)) == text


@settings(max_examples=60)
@given(st.text("ab:- []{},&*!|>%@#'\"\n\t\0\x85\ud800\U0001f600?<1.", max_size=40))
def test_any_text_gives_a_document_or_an_error_with_position(text):
    try:
        marks = [problem.mark for problem in parse_yaml(text).problems]
    except YamlError as error:
        marks = [error.mark]
    assert all(mark.line >= 1 and mark.column >= 1 for mark in marks)


def test_marks_are_those_of_keys_and_values():
    document = parse_yaml("cases:\n  - name: é\n    params: {a: [1, 22], b:   3}\n")
    assert document.find_marks(("cases",)) == (Mark(1, 1), Mark(2, 3))
    assert document.find_marks(("cases", 0)) == (Mark(2, 5), Mark(2, 5))
    assert document.find_marks(("cases", 0, "params", "a")) == (Mark(3, 14), Mark(3, 17))
    assert document.find_marks(("cases", 0, "params", "a", 1)).value == Mark(3, 21)
    assert document.find_marks(("cases", 0, "params", "b")) == (Mark(3, 26), Mark(3, 31))
    missing = document.find_marks(("cases", 0, "params", "c", 7))
    assert missing == document.find_marks(("cases", 0, "params"))


def test_alias_is_a_copy_at_its_own_position():
    document = parse_yaml("a: &x [1, 2]\nb: *x\n")
    assert document.root.data == {"a": [1, 2], "b": [1, 2]}
    assert document.find_marks(("b",)).value == Mark(2, 4)
    data = document.root.data
    assert data["a"] is not data["b"]


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", (3, 1), "duplicate key 'a' (first on line 1)"),
        ("1: a", (1, 1), "the key '1' is not text"),
        ("~: a", (1, 1), "not text"),
        ("no: a\ntrue: b", (2, 1), "the key 'true' is not text"),
        ("[a]: b", (1, 1), "a list or mapping as key is not text"),
        ("a: !foo b", (1, 4), "the tag !foo is not read here"),
        ("a: !!python/name:os.system x", (1, 4), "!!python/name:os.system is not read"),
        ("a: !!binary aGk=", (1, 4), "the tag !!binary"),
        ("a: !!set {b}", (1, 4), "the tag !!set"),
        ("a: !mine [b]", (1, 4), "the tag !mine"),
        ("a: !!int b", (1, 4), "'b' is no !!int"),
        ("a: !!bool 1", (1, 4), "'1' is no !!bool"),
        ("a: {<<: {b: 1}}", (1, 5), "merge keys (<<) are not read"),
        ("a: 1\n---\nb: 2\n", (2, 1), "a second document begins here"),
        ("a: " + "9" * 5000, (1, 4), "more than 250 digits"),
        ("a: 0x" + "f" * 4000, (1, 4), "more than 250 digits"),
        ("a: 0o" + "7" * 5000, (1, 4), "more than 250 digits"),
        ("a: -" + "9" * 300, (1, 4), "more than 250 digits"),
        ("a: !!int 0x" + "f" * 4000, (1, 4), "more than 250 digits"),
        ("a: !!float " + "9" * 400, (1, 4), "more than 250 digits"),
    ],
)
def test_problems_do_not_stop_the_parser(text, position, message):
    (problem,) = parse_yaml(text).problems
    assert problem.mark == position
    assert message in problem.message


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("a: [1\nb: 2", (1, 4), "the bracket [ is not closed: add ]"),
        ("a: [1, 2}", (1, 9), "a comma or ] is missing before this"),
        ("a: [", (1, 4), "the bracket [ is not closed: add ], or remove it"),
        ("a: [1,, 2]", (1, 7), "a value is missing before ,"),
        ('a: "b\nc: d', (1, 4), 'the quote " is not closed: add " at the end'),
        ("a: 'b' c", (1, 8), "unexpected text behind a value in quotes"),
        ("a:\n\t- b", (2, 1), "a line is indented with a tab: use spaces"),
        (
            "a: b: c",
            (1, 5),
            "the value contains a colon and a space: put the whole value in quotes",
        ),
        ("a: @b", (1, 4), "a value cannot begin with @: put it in quotes"),
        ("%a\nb: 1", (1, 1), "a value cannot begin with %: put it in quotes"),
        ("a: - b", (1, 4), "write the - on a new line"),
        ("a: 1\nb\nc: 2", (2, 1), "this line has no colon and space: write it as KEY: VALUE"),
        ("a:1\nb: 2", (1, 1), "this line lacks a space: write a: 1"),
        ("a:\n  -b: 1\n    c: 2", (2, 3), "this line lacks a space: write - b: 1"),
        ("a: 1\n  b: 2", (2, 4), "line 1, which has a value already: do not indent it"),
        ("a:\n  - b: 1\n  c: 2", (3, 3), 'indent it by 4 spaces, like line 2, or add "- "'),
        ("a:\n  - b: 1\n  b: 2", (3, 3), 'add "- ", or indent it by 4 spaces, like line 2'),
        ("a:\n  - b: 1\n   - c: 2", (3, 4), "no line above: indent it by 2 spaces, like line 2"),
        ("a:\n    b: 1\n  c: 2", (3, 3), "no line above: indent it by 4 spaces, like line 2"),
        ("a: \x01", (1, 4), "U+0001 cannot stand in YAML"),
        ("a: *b", (1, 4), "the alias *b names no anchor"),
        ("a: &b [*b]", (1, 8), "stands inside its own anchor"),
        ("[" * 500 + "]" * 500, (1, MAX_DEPTH + 1), "nested deeper"),
    ],
)
def test_rejects_invalid_yaml_at_its_position(text, position, message):
    with pytest.raises(YamlError) as caught:
        parse_yaml(text)
    assert caught.value.mark == position
    assert message in str(caught.value)


ITEMS = "a:\n  - b: 1\n    c: 2\n  - b: 3\n    c: 4\n    d: 5\n"


@pytest.mark.parametrize("parser", [yaml_nodes._PARSER, yaml.SafeLoader])
@pytest.mark.parametrize(
    ("part", "slip", "position", "message"),
    [
        ("  - b: 3", "3  - b: 3", (4, 1), 'unexpected 3 before the "-" of a list item: remove it'),
        ("  - b: 3", "  3- b: 3", (4, 3), 'unexpected 3 before the "-" of a list item: remove it'),
        ("a:", "a:: [", (1, 5), "the bracket [ is not closed: add ], or remove it"),
        ("  - b: 3", "e: [\n  - b: 3", (4, 4), "the bracket [ is not closed"),
        ("c: 4", "c 4", (5, 5), "write c: 4, or indent it to continue a value"),
        ("c: 4", "c = 4", (5, 5), "write c: 4, or indent it to continue a value"),
        ("- b: 3", "- b 3", (4, 5), "this line has no colon behind its key: write b: 3"),
        ("- b: 3", "- b:3", (4, 3), "this line lacks a space: write b: 3"),
        ("- b: 3", "-b: 3", (4, 3), "this line lacks a space: write - b: 3"),
        ("c: 4", "c {e: 4, f: 5}", (5, 5), "this line has no colon behind its key: write c: {"),
        ("a:", "e:\na", (2, 1), "this line has no colon and space: write a:, or remove it"),
        ("    c: 4", "3", (5, 1), "write it as KEY: VALUE, or remove it"),
        ("    c: 4", "c: 4", (5, 1), "less than lines 4 and 6: indent it by 4 spaces"),
        ("    d: 5", "  d: 5", (6, 3), 'indent it by 4 spaces, like line 5, or add "- "'),
        ("    c: 4", "3" * 3000, (5, 1), "write it as KEY: VALUE, or remove it"),
        ("    c: 4", f"c {'3' * 3000}", (5, 1), "write it as KEY: VALUE, or remove it"),
        ("    c: 4", f"c '{'3 ' * 3000}'", (5, 1), "write it as KEY: VALUE, or remove it"),
        ("a:", "'e'\na:", (1, 1), "write it as KEY: VALUE, or remove it"),
        ("c: 4", "c: !e!f 4", (5, 8), "a value cannot begin with !: put it in quotes"),
        ("c: 4", "c: |4 e", (5, 11), "unexpected text behind | or >: put the value in quotes"),
        ("c: 4", "c: [4]]", (5, 11), "the bracket ] was not opened: remove it"),
        ("c: 4", "c: '[4', e: [", (5, 12), "unexpected text behind a value in quotes"),
    ],
)
def test_names_the_line_with_a_slip(monkeypatch, parser, part, slip, position, message):
    monkeypatch.setattr(yaml_nodes, "_PARSER", parser)
    with pytest.raises(YamlError) as caught:
        parse_yaml(ITEMS.replace(part, slip, 1))
    assert message in str(caught.value)
    assert caught.value.mark == position


def test_rejects_an_alias_bomb(messages):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    refs = [", ".join([f"*a{i}"] * 9) for i in range(9)]
    lines += [f"a{i + 1}: &a{i + 1} [{ref}]" for i, ref in enumerate(refs)]
    with messages.raises(YamlError):
        parse_yaml("\n".join(lines))


def test_expansion_limit_applies_at_the_root():
    wide = "[" + "x," * 400 + "]"
    with pytest.raises(YamlError, match="aliases expand"):
        parse_yaml(f"a: &a {wide}\nb: [" + "*a," * 300 + "]\n")


@pytest.mark.slow
@pytest.mark.parametrize("start", ["[", "[&a x,*a,"])
def test_rejects_too_many_values(start, messages):
    with messages.raises(YamlError):
        parse_yaml("a:\n  - b: " + start + "x," * 100_001 + "]\n")


def test_parses_empty_text_and_byte_order_mark():
    assert parse_value("") is None
    assert parse_value("# only a comment\n") is None
    assert parse_value("\ufeffa: 1") == {"a": 1}


def test_pure_python_parser_gives_the_same_document(monkeypatch):
    text = "a: &x [1, no, 'q', ! 3]\nb: *x\n'c d': {e: 0o10}\nf: |\n  text\n"
    parsed = parse_yaml(text)
    monkeypatch.setattr(yaml_nodes, "_PARSER", yaml.SafeLoader)
    assert parse_yaml(text) == parsed
    with pytest.raises(YamlError):
        parse_yaml("a: [1\nb: 2")
