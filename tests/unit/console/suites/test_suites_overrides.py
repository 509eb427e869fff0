"""Overrides of suites by --set: effects on cases, and errors that name the option."""

from pathlib import Path

import pytest

from spbench.errors import SuiteError, UsageError
from spbench.suites.loader import load_suite_text

TEXT = """\
schema: spbench.suite/1
name: s
launch: {timeout: 7, env: {A: 1}}
cases:
  - name: swept
    benchmark: halo.exchange
    params: {image_size: 64}
    matrix: {slice_method: [vertical, square], halo_len: [1, 3]}
    exclude: [{slice_method: square, halo_len: 1}]
  - name: zipped
    benchmark: halo.exchange
    zip: {halo_len: [1, 2, 3], batch_size: [1, 1, 2]}
    launch: {timeout: 9, env: {A: 2, B: 3}}
  - name: memory
    benchmark: memory.copy
    np: 2
"""


def load_suite(*overrides, text=TEXT):
    return load_suite_text(text, Path("s.yaml"), overrides)


def load_ids(*overrides, text=TEXT):
    return [case.id for case in load_suite(*overrides, text=text).cases]


def load_errors(*overrides, text=TEXT):
    with pytest.raises(SuiteError) as caught:
        load_suite(*overrides, text=text)
    return [str(diagnostic) for diagnostic in caught.value.diagnostics]


def test_overridden_sweep_collapses():
    assert load_ids() == [
        "swept[slice_method=vertical,halo_len=1]",
        "swept[slice_method=vertical,halo_len=3]",
        "swept[slice_method=square,halo_len=3]",
        "zipped[halo_len=1,batch_size=1]",
        "zipped[halo_len=2,batch_size=1]",
        "zipped[halo_len=3,batch_size=2]",
        "memory",
    ]
    suite = load_suite("halo_len=3")
    assert [case.id for case in suite.cases] == [
        "swept[slice_method=vertical]",
        "swept[slice_method=square]",
        "zipped[batch_size=1]",
        "zipped[batch_size=2]",
        "memory",
    ]
    assert {case.params.get("halo_len") for case in suite.cases} == {3, None}
    assert load_ids("halo_len=3", "batch_size=4")[2:] == ["zipped", "memory"]


def test_exclude_of_the_set_value_loses_the_key():
    assert load_ids("halo_len=1")[0] == "swept[slice_method=vertical]"
    assert load_ids("halo_len=1")[1] == "zipped[batch_size=1]"


def test_exclude_of_another_value_no_longer_applies():
    assert load_ids("halo_len=2")[:2] == [
        "swept[slice_method=vertical]",
        "swept[slice_method=square]",
    ]


def test_exclude_of_only_the_set_key_is_dropped():
    text = TEXT.replace("{slice_method: square, halo_len: 1}", "{halo_len: 1}")
    assert load_ids("halo_len=1", text=text)[:2] == [
        "swept[slice_method=vertical]",
        "swept[slice_method=square]",
    ]


def test_error_in_an_exclude_keeps_its_column(messages):
    text = TEXT.replace("exclude: [{", "exclude: [{halo_len: 1}, {halo_len: 3}, {colour: 3}, {")
    errors = load_errors("halo_len=3", "slice_method=square", text=text)
    messages.check(errors)


def test_rejects_a_key_that_is_set_twice(messages):
    with messages.raises(UsageError):
        load_suite("halo_len=3", "halo_len=5")


def test_overrides_suite_keys():
    suite = load_suite("name=other", "description=Run: fast", "repeat=3")
    assert (suite.name, suite.description) == ("other", "Run: fast")
    assert {case.repeat for case in suite.cases} == {3}


def test_override_of_launch_settings_wins_over_cases():
    suite = load_suite("launch.timeout=30", "launch.env.A=010", "launch.args=[-v, --x]")
    assert {case.launch.timeout for case in suite.cases} == {30}
    assert suite.cases[0].launch.env == {"A": "010"}
    assert suite.cases[3].launch.env == {"A": "010", "B": "3"}
    assert suite.cases[0].launch.args == ("-v", "--x")
    suite = load_suite("launch.env={C: 1e3}")
    assert {tuple(case.launch.env.items()) for case in suite.cases} == {(("C", "1e3"),)}


def test_overrides_launch_settings_of_a_suite_without_any():
    text = "schema: spbench.suite/1\nname: s\ncases: [{name: a, benchmark: memory.copy}]\n"
    suite = load_suite("launch.env.A=x=y", "launch.threads=2", text=text)
    assert (suite.launch.env, suite.launch.threads) == ({"A": "x=y"}, 2)


def test_overrides_np():
    text = TEXT[: TEXT.index("  - name: swept")] + TEXT[TEXT.index("  - name: memory") :]
    assert [case.np for case in load_suite("np=3", text=text).cases] == [3]
    swept = text.replace("    np: 2\n", "    matrix: {np: [1, 2]}\n")
    assert [(c.id, c.np) for c in load_suite("np=3", text=swept).cases] == [("memory", 3)]


def test_derived_value_follows_an_override():
    cases = load_suite("grid=1x2", "slice_method=vertical").cases
    assert [(case.params["num_spatial_parts"], case.np) for case in cases[:1]] == [(2, 2)]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("halo_len=x", "s.yaml:7:13: error: --set halo_len=x: halo_len: 'x' is not a whole number"),
        (
            "slice_method=squar",
            "s.yaml:7:13: error: --set slice_method=squar: slice_method: 'squar' is none of "
            "vertical, horizontal, square (did you mean square?)",
        ),
        (
            "halo_len=",
            "s.yaml:7:13: error: --set halo_len=: halo_len is empty: give it a value or leave it "
            "out",
        ),
        (
            "launch.timeout=soon",
            "s.yaml:3:19: error: --set launch.timeout=soon: launch.timeout must be a number, "
            "not 'soon'",
        ),
        (
            "launch.env.1B=x",
            "s.yaml:3:22: error: --set launch.env.1B=x: '1B' cannot name an environment variable: "
            "use letters, digits and _ with no digit first; SPBENCH_... is spbench's own",
        ),
        (
            "launch.env.B=",
            "s.yaml:3:27: error: --set launch.env.B=: launch.env.B must be text, not empty",
        ),
        ("repeat=0", "s.yaml:5:5: error: --set repeat=0: repeat must be at least 1, not 0"),
        (
            "name=1",
            "s.yaml:2:7: error: --set name=1: name must be text, not 1 (put it in quotes)",
        ),
        (
            "np=4.0",
            "s.yaml:5:5: error: --set np=4.0: np must be a whole number, not 4.0",
        ),
        (
            "np=3",
            "s.yaml:5:5: error: --set np=3: np is 3, but halo.exchange runs on 4 ranks",
        ),
    ],
)
def test_invalid_value_is_one_error_that_names_the_option(override, message):
    assert load_errors(override) == [message]


def test_contradiction_names_the_option(messages):
    errors = load_errors("num_spatial_parts=3")
    messages.check(errors[0])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("halo_le=3", "no suite key or parameter is called 'halo_le' (did you mean halo_len?)"),
        ("launch.timout=3", "called 'launch.timout' (did you mean launch.timeout?)"),
        ("launch.timeout.x=3", "called 'launch.timeout.x' (did you mean launch.timeout?)"),
        ("launch.env.=3", "called 'launch.env.'"),
        ("n=3", "no suite key or parameter is called 'n'"),
        ("cases=3", "no suite key or parameter is called 'cases'"),
        ("halo_len", "write it as --set key=value"),
        ("=3", "write it as --set key=value"),
        ("halo_len=[3", "invalid YAML"),
        ("halo_len=!x 3", "the tag !x is not read here"),
    ],
)
def test_rejects_unknown_or_malformed_override(override, message):
    with pytest.raises(UsageError) as caught:
        load_suite(override)
    assert not isinstance(caught.value, SuiteError)
    assert str(caught.value).startswith(f"--set {override}: ")
    assert message in str(caught.value)


def test_errors_of_the_file_precede_an_unknown_key(messages):
    errors = load_errors("halo_le=3", text=TEXT.replace("memory.copy", "memory.cop"))
    messages.check(errors)


@pytest.mark.parametrize("cases", ["3", "[3, {name: a}]", "[{benchmark: 3, params: 4, zip: 5}]"])
def test_overrides_of_a_malformed_file_are_errors(cases):
    text = f"schema: spbench.suite/1\nname: s\nlaunch: 3\ncases: {cases}\n"
    errors = load_errors("np=2", "launch.env.A=1", "launch.bind=core", "halo_len=2", text=text)
    assert any("launch must be a mapping, not 3" in error for error in errors)
