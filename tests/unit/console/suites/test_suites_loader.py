"""Loading of suites: all errors with line and column, settings, and odd files."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.errors import ExitCode, SuiteError, UsageError
from spbench.suites.case import RepeatPolicy
from spbench.suites.loader import load_suite_file, load_suite_text
from spbench.suites.model import CaseEntry
from spbench.suites.settings import LaunchSettings, SuiteLaunch, parse_time_limit
from support.paths import TEST_SUITES

HEAD = "schema: spbench.suite/1\nname: s\n"


def load_suite(cases, head=HEAD, overrides=()):
    return load_suite_text(f"{head}cases:\n{cases}", Path("s.yaml"), overrides)


def load_errors(cases, head=HEAD, overrides=()):
    with pytest.raises(SuiteError) as caught:
        load_suite(cases, head, overrides)
    return [str(diagnostic) for diagnostic in caught.value.diagnostics]


def test_reports_every_error_of_a_file_in_one_pass():
    text = (TEST_SUITES / "wrong.yaml").read_text()
    with pytest.raises(SuiteError) as caught:
        load_suite_text(text, Path("wrong.yaml"))
    assert str(caught.value).splitlines() == (TEST_SUITES / "wrong.txt").read_text().splitlines()
    assert caught.value.exit_code == ExitCode.USAGE


def test_messages_do_not_use_pydantic_wording():
    messages = (TEST_SUITES / "wrong.txt").read_text().lower()
    for jargon in ("input should", "extra inputs", "pydantic", "http", "valid (", "[type="):
        assert jargon not in messages


def test_loads_a_complete_suite():
    suite = load_suite(
        "  - name: a\n    benchmark: halo.exchange\n    params: {halo_len: 3}\n    repeat: 2\n"
        "    expect: {time_ms.p50: {max: 5, min: 1}, skew: {max: 3}}\n",
        HEAD + "description: what it is\nlaunch: {timeout: 7, setup: [module load x]}\n",
    )
    (case,) = suite.cases
    assert (suite.name, suite.description, suite.path) == ("s", "what it is", Path("s.yaml"))
    assert suite.launch == SuiteLaunch(timeout=7, setup=("module load x",))
    assert (case.id, case.np, case.repeat, case.line) == ("a", 4, 2, 6)
    assert case.params["halo_len"] == 3
    assert case.params["grid"] == "2x2"
    assert [(e.metric, e.op, e.limit) for e in case.expect] == [
        ("time_ms.p50", "max", 5.0),
        ("time_ms.p50", "min", 1.0),
        ("skew", "max", 3.0),
    ]
    assert case.launch == suite.launch


def test_launch_settings_merge_and_env_merges_by_name():
    suite = load_suite(
        "  - name: a\n    benchmark: memory.copy\n"
        "    launch: {env: {B: 2, C: x}, args: [-v], timeout: 120}\n",
        HEAD + "launch: {env: {A: 1, B: 1}, args: [--x], timeout: 7, bind: core}\n",
    )
    merged = suite.cases[0].launch
    assert merged.env == {"A": "1", "B": "2", "C": "x"}
    assert (merged.args, merged.timeout, merged.bind) == (("-v",), 120, "core")
    assert suite.launch.env == {"A": "1", "B": "1"}


def test_env_values_are_text_as_written():
    head = HEAD + 'launch: {env: {A: 010, B: "1", C: 1e3, D: true, E: no, F: "", G: 0x1F}}\n'
    suite = load_suite("  - {name: a, benchmark: memory.copy}\n", head)
    assert suite.launch.env == {
        "A": "010",
        "B": "1",
        "C": "1e3",
        "D": "true",
        "E": "no",
        "F": "",
        "G": "0x1F",
    }


def test_rejects_empty_env_value():
    head = HEAD + "launch:\n  env:\n    A:\n"
    (error,) = load_errors("  - {name: a, benchmark: memory.copy}\n", head)
    assert error == "s.yaml:5:7: error: launch.env.A must be text, not empty"


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        (
            "  - {name: a, benchmark: link.pingpong, np: §1}",
            "np is 1, but link.pingpong needs at least 2 ranks",
        ),
        (
            "  - {name: a, benchmark: halo.exchange, np: §3}",
            "np is 3, but halo.exchange runs on 4 ranks: set np to 4, or change "
            "num_spatial_parts (4) or grid (2x2)",
        ),
        (
            "  - {name: a, benchmark: halo.exchange, params: {grid: 1x1}, np: §2}",
            "np is 2, but halo.exchange runs on 1 rank: set np to 1, or change "
            "num_spatial_parts (1) or grid (1x1)",
        ),
        (
            "  - {name: a, benchmark: halo.exchange, matrix: {np: [§3, 4]}}",
            "np is 3, but halo.exchange runs on 4 ranks: set np to 4, or change "
            "num_spatial_parts (4) or grid (2x2)",
        ),
        (
            "  - {name: a, benchmark: halo.exchange, np: §4, matrix: {grid: [2x2, 3x3]}}",
            "np is 4, but halo.exchange with grid=3x3 runs on 9 ranks: set np to 9, or change "
            "num_spatial_parts (9) or grid (3x3)",
        ),
        (
            "  - {name: a, benchmark: memory.copy, matrix: {np: [2, §0]}}",
            "np must be a whole number from 1, not 0",
        ),
        (
            "  - {name: a, benchmark: memory.copy, np: 2, matrix: {§np: [2]}}",
            "np is given twice; give it once",
        ),
        (
            "  - {name: a, benchmark: memory.copy, np: §0}",
            "np must be at least 1, not 0",
        ),
        (
            "  - {name: a, benchmark: memory.copy, np: §two}",
            "np must be a whole number, not 'two'",
        ),
        (
            "  - {name: §a b, benchmark: memory.copy}",
            "name is 'a b'; use letters, digits and . _ - with a letter or digit first",
        ),
        (
            "  - {name: §1, benchmark: memory.copy}",
            "name must be text, not 1 (put it in quotes)",
        ),
        (
            "  - {name: a, benchmark: §memory.cpy}",
            "unknown benchmark 'memory.cpy' (did you mean memory.copy?)",
        ),
        (
            "  - {name: a, benchmark: §compute.memory}",
            "unknown benchmark 'compute.memory' (did you mean memory.copy?)",
        ),
        (
            "  - {name: a, benchmark: §zzz}",
            "unknown benchmark 'zzz'; `spbench benchmarks` lists them",
        ),
        (
            "  - {name: a, benchmark: halo.exchange, params: {grid: §4x1, slice_method: vertical}}",
            "a: grid 4x1 is not slice_method vertical; give one of the two",
        ),
        (
            "  - {name: a, benchmark: halo.exchange, zip: {grid: §[4x1], slice_method: [square]}}",
            "a[grid=4x1,slice_method=square]: grid 4x1 is not slice_method square; give one of "
            "the two",
        ),
        (
            "  - {name: a, benchmark: memory.copy, launch: {env: {§SPBENCH_RUN: x}}}",
            "'SPBENCH_RUN' cannot name an environment variable: use letters, digits and _ with no "
            "digit first; SPBENCH_... is spbench's own",
        ),
        (
            "  - {name: a, benchmark: memory.copy, §zip: {size: [8, 8], seed: [1, 1]}}",
            "zip makes a[size=8,seed=1] twice",
        ),
        (
            "  - {name: a, benchmark: memory.copy, matrix: {seed: [1]}, exclude: [§{seed: 2}]}",
            "this exclude matches no case",
        ),
        (
            "  - {name: a, benchmark: memory.copy, matrix: {seed: [1]}, §exclude: [{seed: 1}]}",
            "exclude leaves no case of a",
        ),
        (
            "  - {name: a, benchmark: memory.copy, matrix: {seed: [1, §01]}}",
            "seed: 1 is listed twice",
        ),
        (
            "  - {name: a, benchmark: memory.copy, expect: {time_ms: {max: §}}}",
            "max is empty: give it a number or leave it out",
        ),
        (
            "  - {name: a, benchmark: memory.copy, expect: {time_ms: {max: §.inf}}}",
            "expect.time_ms.max must be a finite number or an expression, not inf",
        ),
        (
            "  - {name: a, benchmark: memory.copy, expect: {time_ms: §5}}",
            "expect.time_ms must be a mapping, not 5",
        ),
        (
            "  - {name: a, benchmark: memory.copy, launch: {threads: §0}}",
            "launch.threads must be auto or at least 1, not 0",
        ),
        (
            "  - {name: a, benchmark: memory.copy, launch: {container: §{args: [-v]}}}",
            "launch.container lacks the key 'image'",
        ),
        (
            "  - {name: a, benchmark: memory.copy, launch: {container: {image: §3}}}",
            "launch.container.image must be text, not 3 (put it in quotes)",
        ),
        (
            "  - {name: a, benchmark: memory.copy, launch: {container: {image: x, §gpu: y}}}",
            "unknown key 'gpu' in launch.container (known: image, runtime, mounts, args)",
        ),
        (
            "  - {name: a, benchmark: memory.copy, launch: {container: {image: x, mounts: [§a]}}}",
            "'a' is not a mount: write PATH or PATH:INSIDE[:ro] with absolute paths",
        ),
        (
            "  - {name: a, benchmark: memory.copy, launch: {container: §[x]}}",
            "launch.container must be text or a mapping, not a list",
        ),
        (
            "  - {name: a, benchmark: memory.copy, launch: {timeout: §0}}",
            "launch.timeout must be above 0, not 0",
        ),
        (
            "  - {name: a, benchmark: memory.copy, launch: {args: [-v, §5]}}",
            "launch.args[1] must be text, not 5 (put it in quotes)",
        ),
        (
            "  - {name: a, benchmark: memory.copy, repeat: §1001}",
            "repeat must be at most 1000, not 1001",
        ),
        (
            "  - {name: a, benchmark: memory.copy, until: {interval: §2, max_time: 5}}",
            "until.interval must be below 1, not 2",
        ),
        (
            "  - {name: a, benchmark: memory.copy, until: {interval: 0.1, max_time: §0}}",
            "until.max_time must be above 0, not 0",
        ),
        (
            "  - {name: a, benchmark: memory.copy, until: §{interval: 0.1}}",
            "until lacks the key 'max_time'",
        ),
        (
            "  - {name: a, benchmark: memory.copy, params: §[1]}",
            "params must be a mapping, not a list",
        ),
        (
            f"  - {{name: §{'a' * 101}, benchmark: memory.copy}}",
            f"name must be at most 100 characters long, not '{'a' * 28}...{'a' * 28}'",
        ),
        (
            "  - {name: a, benchmark: memory.copy, §iterations: 4}",
            "unknown key 'iterations' in the case (iterations is a parameter: write it under "
            "params)",
        ),
        (
            "  - {name: a, benchmark: memory.copy, §ranks: 4}",
            "unknown key 'ranks' in the case (did you mean np?)",
        ),
        (
            "  - {name: a, benchmark: memory.copy, §timeout: 4}",
            "unknown key 'timeout' in the case (did you mean launch.timeout?)",
        ),
        (
            "  - {name: a, benchmark: memory.copy, matrix: {§nprocs: [1, 2]}}",
            "memory.copy has no parameter 'nprocs' (did you mean np?)",
        ),
        ("  §[]", "cases must be a list with at least one item, not an empty list"),
        ("  §{}", "cases must be a list, not a mapping"),
    ],
)
def test_reports_one_error_at_the_marked_position(cases, message):
    before, _, after = cases.partition("§")
    (error,) = load_errors(before + after + "\n")
    assert error == f"s.yaml:4:{len(before) + 1}: error: {message}"


def test_rejects_parameter_under_two_names(size_alias):
    (error,) = load_errors("  - {name: a, benchmark: memory.copy, params: {size: 8, bytes: 8}}\n")
    assert error == "s.yaml:4:57: error: size is given twice; give it once"
    suite = load_suite("  - {name: a, benchmark: memory.copy, matrix: {bytes: [8, 1KiB]}}\n")
    assert [case.id for case in suite.cases] == ["a[size=8]", "a[size=1KiB]"]
    assert [case.params["size"] for case in suite.cases] == [8, 1024]


@pytest.fixture
def size_alias(monkeypatch):
    from dataclasses import replace

    from spbench_core.catalog import BENCHMARKS

    entry = BENCHMARKS["memory.copy"]
    params = tuple(replace(p, aliases=("bytes",)) if p.name == "size" else p for p in entry.params)
    fields = ("name", "summary", "runs_in", "metrics", "checks")
    other_fields = {name: getattr(entry, name) for name in fields}
    monkeypatch.setitem(BENCHMARKS, "memory.copy", type(entry)(params=params, **other_fields))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "s.yaml:1:1: error: the file is empty; a suite begins with"),
        ("- a\n", "s.yaml:1:1: error: this is not a mapping; a suite begins with"),
        ("{}", "s.yaml:1:1: error: the suite lacks the key 'name'"),
        ("a: [", "s.yaml:1:4: error: invalid YAML: the bracket [ is not closed"),
        ("cases: 3\nlaunch: 4\nname: [1]\nschema: x\n", "s.yaml:2:9: error: launch must be a map"),
    ],
)
def test_rejects_text_that_is_not_a_suite(text, message):
    with pytest.raises(SuiteError) as caught:
        load_suite_text(text, Path("s.yaml"))
    assert any(line.startswith(message) for line in str(caught.value).splitlines())


CASE_KEYS = list(CaseEntry.model_fields)
KEYS = [*CASE_KEYS, *LaunchSettings.model_fields, "halo_len", "grid", "sizes", "time_ms", "max"]
SCALARS: list[Any] = [None, True, 0, 1, 4, -1, 2.5, float("nan"), "", "a", "4x1", "square"]
SCALARS += ["halo.exchange", "memory.copy", "link.pingpong", "spbench.suite/1", "64KiB", "auto"]
SCALARS += [[], {}, [[1], "a"]]
ANYTHING = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=8,
)
BENCHMARKS_OR_NOT = ["halo.exchange", "memory.copy", "link.pingpong", "auto", [], None]
ENTRY = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"]), "benchmark": st.sampled_from(BENCHMARKS_OR_NOT)},
    optional=dict.fromkeys(CASE_KEYS[2:], ANYTHING),
)
DEFAULTS = ANYTHING | st.fixed_dictionaries({}, optional=dict.fromkeys(CASE_KEYS[2:], ANYTHING))
OVERRIDES = st.lists(
    st.builds("{}={}".format, st.sampled_from([*KEYS, "launch.env.A", "launch.args"]), ANYTHING),
    max_size=2,
)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(ENTRY | ANYTHING, max_size=3) | ANYTHING, ANYTHING, DEFAULTS, OVERRIDES)
def test_any_data_gives_a_suite_or_a_usage_error(cases, launch, defaults, overrides):
    data = {"schema": "spbench.suite/1", "name": "s", "launch": launch, "cases": cases}
    data |= {"defaults": defaults}
    message = ""
    try:
        cases = load_suite_text(yaml.safe_dump(data), Path("s.yaml"), overrides).cases
    except UsageError as error:
        message = str(error)
        cases = ()
    assert bool(message) != bool(cases)
    assert "Input should" not in message


def test_rejects_unreadable_files(tmp_path):
    (tmp_path / "halo.yaml").write_text(HEAD)
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "smoke.yaml").write_text(HEAD)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    (tmp_path / "nul.yaml").write_bytes(b"\0\0\0")
    (tmp_path / "big.yaml").write_bytes(b"#" * (4 * 2**20 + 1))
    cases = {
        "halo.yml": "there is no such file (did you mean halo.yaml?)",
        "smoke.yaml": "there is no such file (did you mean suites/smoke.yaml?)",
        "none/x": "there is no such file",
        ".": "it is a folder",
        "latin.yaml": "it is not UTF-8 text (byte 9 is 0xe9)",
        "nul.yaml": "it is a binary file",
        "big.yaml": "at most 4 MiB",
        "halo.yaml/x": "Not a directory",
        "x\0y": "null byte",
    }
    for name, message in cases.items():
        with pytest.raises(UsageError) as caught:
            load_suite_file(tmp_path / name)
        assert message in str(caught.value)
        assert not isinstance(caught.value, SuiteError)
        assert "\n" not in str(caught.value)


def test_keeps_the_text_as_read(tmp_path):
    text = HEAD + "cases: [{name: a, benchmark: memory.copy}]  # é\n"
    path = tmp_path / "s.yaml"
    path.write_text(text)
    assert load_suite_file(path).text == text


BATCH = """
schema: spbench.suite/1
name: b
launch: {batch: {account: "a b", time: 1:30, modules: [x, 3], lines: ["a\\nb"]}}
cases:
  - {name: a, benchmark: link.pingpong, np: 2, launch: {batch: {account: x}}}
"""


def test_checks_batch_settings_and_allows_them_once_per_suite(tmp_path):
    path = tmp_path / "b.yaml"
    path.write_text(BATCH)
    with pytest.raises(SuiteError) as caught:
        load_suite_file(path, ["launch.batch.nodes=0"])
    messages = [str(item).partition(" error: ")[2] for item in caught.value.diagnostics]
    assert [line.partition(";")[0] for line in messages] == [
        "--set launch.batch.nodes=0: launch.batch.nodes must be at least 1, not 0",
        "'a b' must be one word without blanks, quotes, $ and backslashes",
        "'1:30' is not a time limit: write it like 45m, 2h or 1:30:00",
        "launch.batch.modules[1] must be text, not 3 (put it in quotes)",
        "'a\\nb' must be one line of text that is not empty",
        "unknown key 'batch' in launch (known: launcher, ranks_per_host, oversubscribe, "
        "bind, threads, allocator, python, setup, container, hostfile, env, args, fan_in, tunnel, "
        "start_timeout, silence_timeout, timeout)",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45m", 2700), ("2h", 7200), ("1d", 86400), ("1:30:00", 5400), ("1-12:00:00", 129600)],
)
def test_parses_time_limit(text, seconds, messages):
    assert parse_time_limit(text) == seconds
    with messages.raises(ValueError):
        parse_time_limit(f"{text}x")


@pytest.mark.parametrize("keys", ["np: 1000000000", "matrix: {np: [2, 1000000000]}"])
def test_rejects_more_ranks_than_any_machine_has(keys, messages):
    [error] = load_errors(f"  - {{name: a, benchmark: compute.gemm, {keys}}}\n")
    messages.check(error)


@pytest.mark.parametrize("escape", [r"\0", r"\x00"])
@pytest.mark.parametrize("setting", ["env: {A: TEXT}", "setup: [TEXT]", "python: TEXT"])
def test_rejects_nul_characters_at_their_line(setting, escape, messages):
    text = setting.replace("TEXT", f'"a{escape}b"')
    [error] = load_errors(f"  - {{name: a, benchmark: compute.gemm, np: 2, launch: {{{text}}}}}\n")
    assert error.startswith("s.yaml:4:")
    messages.check(error)


def test_reports_only_the_first_of_many_errors():
    cases = "".join(f"  - {{name: a{n}, benchmark: none, x: {'y' * 5000}}}\n" for n in range(200))
    with pytest.raises(SuiteError) as caught:
        load_suite(cases)
    lines = str(caught.value).splitlines()
    assert len(caught.value.diagnostics) >= 200
    assert len(lines) == 51
    assert lines[-1] == f"and {len(caught.value.diagnostics) - 50} more errors"
    assert max(map(len, lines)) < 1100


@pytest.mark.parametrize(
    "cases",
    [
        f"  - name: a\n    benchmark: {'x' * 1500}\n",
        f"  - name: a\n    {'x' * 1500}:3\n",
        f"  -{'x' * 1500}\n",
    ],
)
def test_messages_do_not_repeat_pasted_text(cases):
    (error,) = load_errors(cases)
    assert "xxx...xxx" in error
    assert len(error) < 300


def test_until_requires_interleaved_order():
    entry = "  - {name: a, benchmark: memory.copy, until: {interval: 0.02, max_time: 60}}\n"
    (case,) = load_suite(entry).cases
    assert (case.repeat, case.until) == (1, RepeatPolicy(0.02, 60))
    (error,) = load_errors(entry + "order: together\n")
    reason = "until repeats a case in launches of its own: it takes order: interleaved"
    assert error == f"s.yaml:4:39: error: {reason}"
