from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.suites.loader import check_text, load_suite_file
from support.paths import SUITES

HALO = SUITES / "halo.yaml"
PATH = Path("mine.yaml")


def test_a_good_text_gives_its_suite():
    examined = check_text(HALO.read_text(), HALO)
    assert examined.suite == load_suite_file(HALO)
    assert examined.diagnostics == ()


def test_overrides_are_taken():
    examined = check_text(HALO.read_text(), HALO, ["iterations=7"])
    assert {case.params["iterations"] for case in examined.suite.cases} == {7}


def test_all_errors_come_with_their_places():
    text = HALO.read_text().replace("name: small", "name: large").replace("[off, on]", "[off, of]")
    examined = check_text(text, PATH)
    assert examined.suite is None
    assert [(error.file, error.line) for error in examined.diagnostics] == [
        ("mine.yaml", 15),
        ("mine.yaml", 37),
    ]
    assert "duplicate" in examined.diagnostics[0].message


def test_what_has_no_place_stands_at_the_first_line():
    (error,) = check_text(HALO.read_text(), PATH, ["halo_lenn=1"]).diagnostics
    assert (error.file, error.line, error.column) == ("mine.yaml", 1, 1)
    assert "did you mean halo_len?" in error.message


@settings(max_examples=40)
@given(st.integers(0, len(HALO.read_text())), st.text(max_size=6))
def test_no_state_of_typing_raises(at, typed):
    text = HALO.read_text()
    for state in (text[:at] + typed, text[:at] + typed + text[at:]):
        examined = check_text(state, PATH)
        assert (examined.suite is None) == bool(examined.diagnostics)


def test_the_shortest_texts_are_told_apart():
    (empty,) = check_text("", PATH).diagnostics
    assert "the file is empty" in empty.message
    (broken,) = check_text("a: [", PATH).diagnostics
    assert "invalid YAML" in broken.message
    (binary,) = check_text("a: \0", PATH).diagnostics
    assert (binary.line, binary.column) == (1, 4)
