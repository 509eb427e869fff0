"""Editing of suite files: formatting, insertion, change, removal of entries."""

import difflib
import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.errors import UsageError
from spbench.suites import yaml_nodes
from spbench.suites.edit import compose
from spbench.suites.edit.draft import CaseDraft, parse_draft
from spbench.suites.edit.outline import Outline
from spbench.suites.edit.rewrite import find_comments
from spbench.suites.edit.yaml_format import (
    WIDTH,
    find_plain_scalar,
    format_flow,
    format_key,
    format_scalar,
)
from spbench.suites.loader import load_suite_text
from support.paths import SUITES

SHIPPED = {path.stem: path.read_text() for path in sorted(SUITES.glob("*.yaml"))}
HALO = SHIPPED["halo"]

LINK = CaseDraft("mine", "link.pingpong", {"pairs": "all", "sizes": [8, "64KiB"]}, np=2)
TILES = CaseDraft(
    "tiles",
    "halo.exchange",
    {"image_size": 256, "num_spatial_parts": 4},
    matrix={"slice_method": ["vertical", "square"], "halo_len": [1, 3]},
    exclude=[{"slice_method": "square", "halo_len": 1}],
    repeat=2,
    expect={"time_ms.p50": {"max": 5.0}},
    launch={"timeout": 30, "env": {"A": "1"}},
    comment="Two lines\nof a remark.",
)

# Text that no program can receive is rejected; see test_suites_loader.
SHORT_TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), max_size=8
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | SHORT_TEXTS
MISLEADING = (
    "no null 010 1e3 .5 ~ - -x ... x: #b = << 0o10 a,b [x] { *a &a !t %d @ ` ? x\x85y \ufeff é"
)
PLAIN_TEXTS = st.sampled_from([*MISLEADING.split(" "), "", " a", "- x", "x: y", "a #b"])
VALUES = st.recursive(
    SCALARS | PLAIN_TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SHORT_TEXTS, inner, max_size=4),
    max_leaves=12,
)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
KEYS = st.sampled_from(["image_size", "halo_len", "a key", "np", "on"])
SECTION = st.dictionaries(KEYS, SCALARS | PLAIN_TEXTS, max_size=3)
SWEPT = st.dictionaries(KEYS, st.lists(SCALARS | PLAIN_TEXTS, min_size=1, max_size=30), max_size=3)
LINES = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=20)
DRAFTS = st.builds(
    CaseDraft,
    name=NAMES,
    benchmark=NAMES,
    params=SECTION,
    matrix=SWEPT,
    zip=SWEPT,
    exclude=st.lists(st.dictionaries(KEYS, SCALARS, min_size=1), max_size=2),
    np=st.none() | st.integers(1, 9),
    repeat=st.integers(1, 3),
    per_host=st.sampled_from([False, True, 5]),
    until=st.just({}) | st.just({"interval": 0.5, "max_time": 9.0}),
    expect=st.dictionaries(
        NAMES, st.dictionaries(st.sampled_from(["max", "min"]), st.integers(), min_size=1)
    ),
    launch=st.fixed_dictionaries(
        {}, optional={"timeout": st.floats(1, 99), "env": st.dictionaries(NAMES, SHORT_TEXTS)}
    ),
    comment=st.none() | st.lists(LINES, min_size=1, max_size=3).map("\n".join),
)


def sort_keys(value):
    if not isinstance(value, dict):
        return value
    return {key: sort_keys(value[key]) for key in sorted(value)}


def describe_draft(draft):
    """Return a draft as text, equal for equal drafts.

    NaN is equal to NaN, and keys are sorted if their order has no meaning.
    """
    parts = {name: getattr(draft, name) for name in CaseDraft.__slots__}
    parts |= {name: sort_keys(parts[name]) for name in ("params", "expect", "launch")}
    return repr(parts | {"exclude": list(draft.exclude)})


def join_lines(head, *lines):
    return "\n".join([head, *lines, ""])


def suite_text(*lines):
    return join_lines("schema: spbench.suite/1\nname: s", *lines)


# Scalars


@given(SCALARS | PLAIN_TEXTS)
def test_scalar_round_trips(value):
    for text in (
        f"a: {format_scalar(value)}",
        f"[{format_scalar(value)}]",
        f"{{a: {format_scalar(value)}}}",
    ):
        document = yaml_nodes.parse_yaml(text)
        (parsed,) = document.root.data.values() if text[0] != "[" else document.root.data
        assert document.problems == ()
        assert repr(parsed) == repr(value)


@given(st.dictionaries(SHORT_TEXTS.filter(lambda key: key != "<<"), VALUES, max_size=3))
def test_values_round_trip(data):
    data = {key: value for key, value in data.items() if "<<" not in repr(value)}
    text = "\n".join(line for key, value in data.items() for line in format_key(key, value, 0))
    assert repr(yaml_nodes.parse_yaml(text).root.data or {}) == repr(data)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("65x96", "65x96"),
        ("64KiB", "64KiB"),
        ("on", "on"),
        ("--map-by core", "--map-by core"),
        ("010", '"010"'),
        ("null", '"null"'),
        ("a: b", '"a: b"'),
        ("é\x85", '"é\\u0085"'),
        (True, "true"),
        (None, "null"),
        (1e-05, "1e-05"),
        (-math.inf, "-.inf"),
    ],
)
def test_scalars_are_plain_if_possible(value, expected):
    assert format_scalar(value) == expected


def test_long_values_go_below_their_key():
    params = {f"parameter_{number}": number for number in range(5)}
    assert format_key("params", params, 14, flow=True) == [
        "              params:",
        f"                {format_flow(params)}",
    ]
    lines = format_key("sizes", list(range(100)), 2)
    assert lines[:2] == ["  sizes:", "    [" + ", ".join(map(str, range(26))) + ","]
    assert max(map(len, lines)) <= WIDTH


# New entries


def test_each_mapping_of_a_new_entry_is_a_block():
    edited = compose.insert_case(suite_text("cases:", "  - {name: a, benchmark: b}"), TILES)
    assert edited.line == 8
    assert edited.text == suite_text(
        "cases:",
        "  - {name: a, benchmark: b}",
        "",
        "  # Two lines",
        "  # of a remark.",
        "  - name: tiles",
        "    benchmark: halo.exchange",
        "    params:",
        "      image_size: 256",
        "      num_spatial_parts: 4",
        "    matrix:",
        "      slice_method: [vertical, square]",
        "      halo_len: [1, 3]",
        "    exclude:",
        "      - slice_method: square",
        "        halo_len: 1",
        "    repeat: 2",
        "    expect:",
        "      time_ms.p50:",
        "        max: 5.0",
        "    launch:",
        "      timeout: 30",
        "      env:",
        "        A: 1",
    )


@pytest.mark.parametrize("name", ["halo", "links"])
def test_rewritten_shipped_entries_have_the_same_values(name):
    text = SHIPPED[name]
    rewritten = ""
    for index in range(text.count("- name:")):
        rewritten = compose.insert_case(rewritten, compose.read_draft(text, index)).text
    cases, rewritten_cases = (
        yaml_nodes.parse_yaml(t).root.data["cases"] for t in (text, rewritten)
    )
    assert repr(rewritten_cases) == repr(cases)
    assert (
        yaml.load(rewritten, yaml.BaseLoader)["cases"] == yaml.load(text, yaml.BaseLoader)["cases"]
    )
    assert "{" not in rewritten
    assert '"' not in rewritten


@given(SHORT_TEXTS)
def test_plain_scalar_is_spelled_like_its_text(text):
    value = find_plain_scalar(text)
    assert format_scalar(value) in (text, format_scalar(text))
    assert not isinstance(value, str) or value == text


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2), ("true", True), ("1.5", 1.5), ("1.50", "1.50"), ("010", "010"), ("null", "null")],
)
def test_text_needs_no_quotes_if_its_number_is_spelled_the_same(text, value):
    assert find_plain_scalar(text) == value


@pytest.mark.slow
@settings(max_examples=60)
@given(st.sampled_from(sorted(SHIPPED)), DRAFTS, st.none() | st.integers(1, 60))
def test_inserted_entry_round_trips_and_can_be_removed(name, draft, after):
    text = SHIPPED[name]
    edited = compose.insert_case(text, draft, after)
    index = compose.find_entry(edited.text, edited.line)
    assert describe_draft(parse_entry(edited.text, index)) == describe_draft(draft)
    assert compose.remove_case(edited.text, index).text == text


def parse_entry(text, index):
    """Parse an entry with values that the suite model may reject."""
    outline = Outline(text)
    return parse_draft(outline.items[index], outline.read_comment(index))


AROUND = suite_text(
    "launch: {timeout: 9}  # short",  # line 3
    "cases:",
    "  # about a",
    "  - name: a",
    "    benchmark: memory.copy  # the copy",  # line 7
    "    # a's own",
    "",
    "  # A new part",  # line 10
    "",
    "  # about b",
    "  - name: b",  # line 13
    "    benchmark: memory.copy",
    "",
    "# the end",
)


@pytest.mark.parametrize(
    ("after", "preceding_lines"),
    [(None, 14), (1, 14), (4, 14), (5, 8), (7, 8), (9, 8), (11, 8), (12, 14), (14, 14), (99, 14)],
)
def test_new_entry_goes_below_the_entry_at_the_line(after, preceding_lines):
    lines = AROUND.splitlines()
    new = ["", *compose.insert_case("", LINK).text.splitlines()[3:]]
    edited = compose.insert_case(AROUND, LINK, after)
    assert edited.text.splitlines() == [*lines[:preceding_lines], *new, *lines[preceding_lines:]]
    assert edited.line == preceding_lines + 2


@pytest.mark.parametrize(
    ("line", "index"),
    [(4, None), (5, 0), (8, 0), (9, None), (10, None), (12, 1), (14, 1), (16, None), (99, None)],
)
def test_entry_spans_its_lines_and_the_comment_above_it(line, index):
    assert compose.find_entry(AROUND, line) == index


def test_broken_text_has_no_entries():
    assert compose.find_entry("cases: [", 1) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            ["cases:", "- name: a", "  benchmark: b", "- name: c", "  benchmark: d"],
            ["- name: mine", "  benchmark: link.pingpong", "  np: 2"],
        ),
        (
            ["cases:", "    -   name: a", "        benchmark: b"],
            ["", "    - name: mine", "      benchmark: link.pingpong", "      np: 2"],
        ),
        (
            ["cases:", "  -", "    # why", "    name: a", "    benchmark: b"],
            ["", "  - name: mine", "    benchmark: link.pingpong", "    np: 2"],
        ),
        (
            ["cases: &all  # all", "  - &a {name: a, benchmark: b}", "  - *a"],
            ["  - name: mine", "    benchmark: link.pingpong", "    np: 2"],
        ),
        (
            ["cases:  # none", "# the end"],
            None,
        ),
    ],
)
def test_keeps_the_style_of_the_file(before, after):
    edited = compose.insert_case(suite_text(*before), replace(LINK, params={}))
    if after is None:
        after = ["  - name: mine", "    benchmark: link.pingpong", "    np: 2"]
        before, end = before[:1], before[1:]
        assert edited.text == suite_text(*before, *after, *end)
    else:
        assert edited.text == suite_text(*before, *after)


@pytest.mark.parametrize("empty", ["cases:", "cases: []", "cases: ~", "cases:\n  [ ]"])
def test_inserts_into_an_empty_list(empty):
    edited = compose.insert_case(
        suite_text(empty + "  # soon", "description: d"), replace(LINK, params={})
    )
    assert edited.line == 4
    assert edited.text == suite_text(
        "cases:  # soon",
        "  - name: mine",
        "    benchmark: link.pingpong",
        "    np: 2",
        "description: d",
    )


def test_empty_text_gets_the_head_of_a_suite():
    edited = compose.insert_case("", LINK, suite="links")
    assert edited == compose.EditedText(
        "schema: spbench.suite/1\nname: links\ncases:\n  - name: mine\n"
        "    benchmark: link.pingpong\n    np: 2\n    params:\n"
        "      pairs: all\n      sizes: [8, 64KiB]\n",
        4,
    )
    assert load_suite_text(edited.text, Path("s.yaml")).cases[0].np == 2


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("# mine\n\n", "schema: spbench.suite/1\nname: suite\ncases:\n"),
        ("---\n", "schema: spbench.suite/1\nname: suite\ncases:\n"),
        ("name: s\n", "schema: spbench.suite/1\ncases:\n"),
        ("schema: spbench.suite/1\nname: s  # x\n# so\n", "cases:\n"),
    ],
)
def test_missing_head_keys_are_added_below(text, head):
    edited = compose.insert_case(text, LINK)
    assert edited.text.startswith(text + head + "  - name: mine\n")
    assert load_suite_text(edited.text, Path("s.yaml")).cases[0].name == "mine"


@pytest.mark.parametrize(
    "text",
    [
        suite_text("cases:", "  - {name: a, benchmark: b}")[:-1],
        suite_text("cases:")[:-1],
        "name: s",
    ],
)
def test_keeps_a_missing_newline_at_the_end(text):
    edited = compose.insert_case(text, replace(LINK, params={}))
    assert edited.text.startswith(text + "\n")
    assert edited.text.endswith("np: 2")
    index = compose.find_entry(edited.text, edited.line)
    assert compose.replace_case(edited.text, index, LINK).text == edited.text + (
        "\n    params:\n      pairs: all\n      sizes: [8, 64KiB]"
    )


def test_keeps_windows_line_ends_and_byte_order_mark():
    text = "\ufeff" + HALO.replace("\n", "\r\n")
    edited = compose.insert_case(text, LINK, 12)
    assert edited.text.replace("\r\n", "").count("\n") == 0
    assert edited.text.replace("\r\n", "\n") == "\ufeff" + compose.insert_case(HALO, LINK, 12).text
    assert compose.remove_case(edited.text, 1).text == text
    renamed = compose.replace_case(
        text, 0, replace(compose.read_draft(text, 0), np=4, comment="New.\nTwo.")
    )
    assert renamed.text.replace("\r\n", "").count("\n") == 0
    assert compose.read_draft(renamed.text, 0).comment == "New.\nTwo."


# Changed entries

COMMENTED = suite_text(
    "cases:",
    "  # first",
    "  - name: a  # its name",
    "    benchmark: halo.exchange",
    "    params:  # of the image",
    "      # side",
    "      image_size: 0x40  # pixels",
    "      halo_len: 3",
    "    matrix:",
    "      slice_method: [vertical,  # strips",
    "                     square]  # both",
    "      # behind",
    "    repeat: 1",
    "    # before expect",
    "    expect:",
    "      skew: {max: 3}   # at most three times",
    "",
    "  # second",
    "  - {name: b, benchmark: memory.copy}  # short",
)


def change_case(text, index, **changes):
    return compose.replace_case(
        text, index, replace(compose.read_draft(text, index), **changes)
    ).text


def diff_lines(before, after):
    """Return the removed and the added lines, in their order."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


@pytest.mark.slow
def test_unchanged_draft_keeps_the_text():
    for text in (*SHIPPED.values(), COMMENTED, AROUND):
        for index in range(text.count("name: ") - 1):
            assert compose.replace_case(text, index, compose.read_draft(text, index)).text == text


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"name": "c"}, ["-   - name: a  # its name", "+   - name: c  # its name"]),
        ({"np": 4}, ["+     np: 4"]),
        ({"repeat": 3}, ["-     repeat: 1", "+     repeat: 3"]),
        (
            {"until": {"interval": 0.02, "max_time": 60}},
            ["+     until:", "+       interval: 0.02", "+       max_time: 60"],
        ),
        ({"comment": None}, ["-   # first"]),
        ({"comment": "new\nold"}, ["-   # first", "+   # new", "+   # old"]),
        ({"expect": {}}, ["-     expect:", "-       skew: {max: 3}   # at most three times"]),
        (
            {"expect": {"skew": {"max": 4}, "time_ms": {"max": 1.5}}},
            [
                "-       skew: {max: 3}   # at most three times",
                "+       skew: {max: 4}   # at most three times",
                "+       time_ms: {max: 1.5}",
            ],
        ),
        (
            {"params": {"halo_len": 3, "image_size": 128}},
            ["-       image_size: 0x40  # pixels", "+       image_size: 128  # pixels"],
        ),
        ({"params": {"image_size": 64}}, ["-       halo_len: 3"]),
        (
            {"expect": {"skew": {"max": 3}, "time_ms": {"max": 1.5}}, "launch": {"bind": "x"}},
            ["+       time_ms: {max: 1.5}", "+     launch:", "+       bind: x"],
        ),
        (
            {"matrix": {"slice_method": ["square"]}, "zip": {"seed": [1]}, "launch": {"bind": "x"}},
            [
                "+       # strips",
                "-       slice_method: [vertical,  # strips",
                "-                      square]  # both",
                "+       slice_method: [square]  # both",
                "+     zip:",
                "+       seed: [1]",
                "+     launch:",
                "+       bind: x",
            ],
        ),
    ],
)
def test_only_changed_values_are_rewritten(changes, lines):
    assert sorted(diff_lines(COMMENTED, change_case(COMMENTED, 0, **changes))) == sorted(lines)


def test_sweep_keys_keep_their_order():
    new_first = change_case(
        COMMENTED, 0, matrix={"seed": [1], "slice_method": ["vertical", "square"]}
    )
    assert list(compose.read_draft(new_first, 0).matrix) == ["seed", "slice_method"]
    assert "# strips" in new_first
    new_last = change_case(
        COMMENTED, 0, matrix={"slice_method": ["vertical", "square"], "seed": [1]}
    )
    assert diff_lines(COMMENTED, new_last) == ["+       seed: [1]"]


def test_changes_an_entry_in_braces():
    assert change_case(COMMENTED, 1, np=2).endswith(
        "  - {name: b, benchmark: memory.copy, np: 2}  # short\n"
    )
    params = {"size": "64KiB", "warmup": 1, "iterations": 2, "seed": 7, "device": "cpu"}
    added = change_case(COMMENTED, 1, params=params, expect={"skew": {"max": 3}})
    assert "  - name: b\n    benchmark: memory.copy\n    params:\n      size: 64KiB\n" in added


@pytest.mark.slow
@settings(max_examples=60)
@given(st.sampled_from([*SHIPPED.values(), COMMENTED]), st.data())
def test_changed_entry_round_trips_and_the_rest_stays(text, data):
    index = data.draw(st.integers(0, text.count("name: ") - 2))
    before = compose.read_draft(text, index)
    other_draft = data.draw(DRAFTS)
    names = data.draw(st.sets(st.sampled_from(CaseDraft.__slots__)))
    draft = replace(before, **{name: getattr(other_draft, name) for name in names})
    edited = compose.replace_case(text, index, draft)
    assert describe_draft(parse_entry(edited.text, index)) == describe_draft(draft)
    assert compose.find_entry(edited.text, edited.line) == index
    paragraphs = text.split("\n\n")
    assert all(part in edited.text for position, part in enumerate(paragraphs) if position != index)


def test_values_are_compared_with_their_types():
    text = suite_text("cases:", "  - {name: a, benchmark: memory.copy, params: {warmup: 1}}")
    assert "warmup: 1.0" in change_case(text, 0, params={"warmup": 1.0})
    assert "warmup: true" in change_case(text, 0, params={"warmup": True})


def test_environment_values_are_text():
    lines = ["cases:", "  - name: a", "    benchmark: b", "    launch:", "      env: {A: 1, B: on}"]
    text = suite_text(*lines)
    draft = compose.read_draft(text, 0)
    assert draft.launch == {"env": {"A": "1", "B": "on"}}
    assert compose.replace_case(text, 0, replace(draft, np=2)).text == suite_text(
        *lines[:3], "    np: 2", *lines[3:]
    )


# Removed entries


def test_removing_an_entry_removes_its_comment():
    lines = AROUND.splitlines()
    edited = compose.remove_case(AROUND, 0)
    assert edited == compose.EditedText("\n".join([*lines[:4], *lines[9:], ""]), 5)
    assert compose.remove_case(AROUND, 1).text == "\n".join([*lines[:10], *lines[14:], ""])


def test_removing_the_only_entry_leaves_an_empty_list():
    text = compose.insert_case("", TILES).text
    assert compose.remove_case(text, 0).text == "schema: spbench.suite/1\nname: suite\ncases:\n"
    assert compose.insert_case(compose.remove_case(text, 0).text, TILES).text == text


# Refusals


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (suite_text("cases: [{name: a, benchmark: b}]"), "line 3: cases is written in brackets; "),
        (suite_text("cases: [ # none", "  ]"), "line 3: remove the brackets"),
        (suite_text("cases: {a: 1}"), "line 3: cases is no list; "),
        (suite_text("cases: 3"), "line 3: cases is no list; "),
        ("{name: s}", "the whole suite is in braces; "),
        ("- a", "the text is not a suite: "),
        (suite_text("cases:", "  - [a"), "cannot be read: invalid YAML: "),
        ("name: s\n...\n", "the form cannot change this case without changing"),
    ],
)
def test_rejects_text_without_room_for_an_entry(text, message):
    with pytest.raises(UsageError) as caught:
        compose.insert_case(text, LINK)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


ANCHORED = suite_text(
    "cases:",
    "  - {name: a, benchmark: halo.exchange, params: &p {halo_len: 1}}",
    "  - {name: b, benchmark: halo.exchange, params: *p}",
)


def test_keeps_an_anchor_that_others_refer_to(messages):
    with messages.raises(UsageError):
        compose.remove_case(ANCHORED, 0)
    with messages.raises(UsageError):
        change_case(ANCHORED, 0, params={"halo_len": 2})
    assert change_case(ANCHORED, 1, params={"halo_len": 2}) == ANCHORED.replace(
        "*p", "{halo_len: 2}"
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{name: a, benchmark: b, parms: {}}", "line 4: unknown key 'parms' in the case (did you"),
        ("{name: a}", "line 4: the case lacks the key 'benchmark'"),
        ("{name: a, benchmark: b, matrix: {x: 1}}", "line 4: matrix.x must be a list, not 1"),
        ("7", "line 4: a case must be a mapping, not 7"),
    ],
)
def test_rejects_an_edit_of_a_malformed_entry(entry, message):
    text = suite_text("cases:", f"  - {entry}")
    for edit in (lambda: compose.read_draft(text, 0), lambda: compose.replace_case(text, 0, LINK)):
        with pytest.raises(UsageError) as caught:
            edit()
        assert str(caught.value).startswith(message)
    assert compose.read_draft(compose.insert_case(text, LINK).text, 1) == LINK


@pytest.mark.parametrize("index", [-1, 7])
def test_rejects_an_index_out_of_range(index, messages):
    for edit in (
        compose.read_draft,
        compose.remove_case,
        lambda text, index: compose.replace_case(text, index, LINK),
    ):
        with messages.raises(UsageError):
            edit(HALO, index)


def test_finds_comments_but_not_text():
    text = "# a\na: '# no'  # b\nb: |\n  # no\n# c\nd: [x#no, # d\n  y]\n"
    assert [comment for _, comment in find_comments(text)] == ["# a", "# b", "# c", "# d"]
