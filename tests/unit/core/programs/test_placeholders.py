import pytest

from spbench_core.programs.placeholders import fill_placeholders, find_placeholders, is_placeholder


@pytest.mark.parametrize(
    ("text", "names", "text_then"),
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
def test_names_between_braces_are_filled_in_and_other_braces_stay(text, names, text_then):
    assert list(find_placeholders(text)) == names
    assert fill_placeholders(text, lambda name: f"<{name}>") == text_then


def test_hosts_of_ranks_are_known_too():
    assert is_placeholder("host:3")
    assert not is_placeholder("ranks")
