import pytest

from spbench_core.programs.placeholders import fill_placeholders, find_placeholders, is_placeholder


@pytest.mark.parametrize(
    ("text", "names", "filled"),
    [
        ("plain", [], "plain"),
        ("{rank} of {np}", ["rank", "np"], "<rank> of <np>"),
        ("--to={host:12}", ["host:12"], "--to=<host:12>"),
        ("{{rank}} {rank}", ["rank"], "{rank} <rank>"),
        ('{"a": {"b": 1}}', [], '{"a": {"b": 1}}'),
        ("a{1,2} ${HOME} {}", ["HOME"][:0], "a{1,2} ${HOME} {}"),
        ("awk '{print}'", ["print"], "awk '<print>'"),
    ],
)
def test_fills_names_in_braces_and_keeps_other_braces(text, names, filled):
    assert list(find_placeholders(text)) == names
    assert fill_placeholders(text, lambda name: f"<{name}>") == filled


def test_accepts_the_host_of_a_rank():
    assert is_placeholder("host:3")
    assert not is_placeholder("ranks")
