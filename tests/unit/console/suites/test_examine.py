"""`check_text`: the suite or the diagnostics of a text that is being edited."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.suites.loader import check_text, load_suite_file
from support.paths import SUITES

HALO = SUITES / "halo.yaml"
PATH = Path("mine.yaml")


def test_valid_text_gives_its_suite():
    checked = check_text(HALO.read_text(), HALO)
    assert checked.suite == load_suite_file(HALO)
    assert checked.diagnostics == ()


def test_applies_overrides():
    checked = check_text(HALO.read_text(), HALO, ["iterations=7"])
    assert {case.params["iterations"] for case in checked.suite.cases} == {7}


def test_reports_all_errors_with_their_lines():
    text = HALO.read_text().replace("name: small", "name: large").replace("[off, on]", "[off, of]")
    checked = check_text(text, PATH)
    assert checked.suite is None
    assert [(error.file, error.line) for error in checked.diagnostics] == [
        ("mine.yaml", 15),
        ("mine.yaml", 37),
    ]
    assert "duplicate" in checked.diagnostics[0].message


def test_error_without_position_is_on_the_first_line(messages):
    (error,) = check_text(HALO.read_text(), PATH, ["halo_lenn=1"]).diagnostics
    assert (error.file, error.line, error.column) == ("mine.yaml", 1, 1)
    messages.check(error.message)


@settings(max_examples=40)
@given(st.integers(0, len(HALO.read_text())), st.text(max_size=6))
def test_unfinished_text_never_raises(cursor, typed):
    text = HALO.read_text()
    for state in (text[:cursor] + typed, text[:cursor] + typed + text[cursor:]):
        checked = check_text(state, PATH)
        assert (checked.suite is None) == bool(checked.diagnostics)


def test_distinguishes_empty_broken_and_binary_text(messages):
    (empty,) = check_text("", PATH).diagnostics
    messages.check(empty.message)
    (broken,) = check_text("a: [", PATH).diagnostics
    assert "invalid YAML" in broken.message
    (binary,) = check_text("a: \0", PATH).diagnostics
    assert (binary.line, binary.column) == (1, 4)
