"""Texts of a case's form, and the draft read from them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from spbench.suites.edit.compose import insert_case
from spbench.suites.edit.draft import CaseDraft
from spbench.suites.loader import check_text
from spbench.tui.form.texts import FormTexts
from spbench.tui.suites.form.draft_reader import read_form_draft
from spbench.tui.suites.form.form_texts import FormFields
from spbench.tui.suites.form.preview import Preview
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.default_texts import AUTO
from spbench_core.catalog.parameters import Param

FULL = CaseDraft(
    name="all",
    benchmark="halo.exchange",
    params={"batch_size": 2, "dtype": "fp64", "warmup": 0},
    matrix={"image_size": [64, "64x96"], "halo_len": [1]},
    zip={"iterations": [5, 10], "seed": [1, 2]},
    exclude=[{"image_size": 64, "seed": 1}],
    repeat=2,
    expect={
        "time_ms.p95": {"max": 5.0},
        "skew": {"max": 3, "min": 'min(0.5, case("a[n=1]").skew)'},
    },
    launch={"bind": "core", "env": {"A": "1"}, "args": ["--x", "--y"]},
    comment="Two lines\nabove.",
)


def make_fields(draft):
    return FormFields(BENCHMARKS[draft.benchmark], draft)


def read_changed(draft, expect=None, references=None, **texts):
    """Read a form in which these texts were changed."""
    form = make_fields(draft)
    texts = {name.replace("__", " "): text for name, text in texts.items()}
    expect = form.initial_texts.expect if expect is None else expect
    references = form.initial_texts.references if references is None else references
    return read_form_draft(
        form, FormTexts({**form.initial_texts.by_name, **texts}, expect, references)
    )


def read_changed_draft(draft, **texts):
    form = read_changed(draft, **texts)
    assert form.errors == {}
    return form.draft


def test_unchanged_form_keeps_the_draft():
    assert read_changed_draft(FULL) == FULL


@pytest.mark.parametrize(
    ("matrix", "params"),
    [
        ({"sizes": [["8", "1KiB"], [64]]}, {}),
        ({"sizes": [8]}, {}),
        ({"pairs": ["all"]}, {"sizes": [8, "64KiB"]}),
        ({"np": [2, 4]}, {"iterations": "5"}),
    ],
)
def test_distinguishes_single_value_sweeps_from_values(matrix, params):
    draft = CaseDraft("links", "link.pingpong", params, matrix)
    assert read_changed_draft(draft) == draft
    form = make_fields(draft)
    texts = {name: f"{text} " for name, text in form.initial_texts.by_name.items()}
    assert read_form_draft(form, FormTexts(texts)).draft == draft


def test_reads_one_value_several_values_and_none():
    draft = read_changed_draft(
        FULL, image_size="128", batch_size="1, 2, 4", dtype="", in_channels="3"
    )
    assert draft.params == {"warmup": 0, "image_size": 128, "in_channels": 3}
    assert draft.matrix == {"halo_len": [1], "batch_size": [1, 2, 4]}


def test_range_becomes_its_values():
    assert read_changed_draft(FULL, halo_len="1..8 *2").matrix["halo_len"] == [1, 2, 4, 8]


def test_parameters_in_step_move_to_zip_and_back():
    draft = read_changed_draft(FULL, in__step="halo_len, image_size", halo_len="1, 2")
    assert list(draft.zip) == ["image_size", "halo_len"]
    assert list(draft.matrix) == ["iterations", "seed"]
    assert read_changed(FULL, in__step="dtype").errors == {
        "in step": "'dtype' has no list of values above"
    }


def test_alias_keeps_its_name_in_the_file():
    benchmark = BENCHMARKS["memory.copy"]
    size = Param("image_size", "int", 32, "pixels", aliases=("size_of_image",))
    form = FormFields(
        replace(benchmark, params=(size,), resolve=dict),
        CaseDraft("case", "memory.copy", {"size_of_image": 64}),
    )
    assert form.initial_texts.by_name["image_size"] == "64"
    changed_form = read_form_draft(
        form, FormTexts({**form.initial_texts.by_name, "image_size": "128"})
    )
    assert changed_form.draft.params == {"size_of_image": 128}


def test_reads_one_or_several_np():
    draft = CaseDraft("links", "link.pingpong", np=2)
    assert read_changed_draft(draft, np="4").np == 4
    swept = read_changed_draft(draft, np="2, 4")
    assert (swept.np, swept.matrix) == (None, {"np": [2, 4]})
    assert read_changed_draft(swept, np="").matrix == {}


def test_reads_excluded_points():
    draft = read_changed_draft(FULL, exclude="{seed: 2, image_size: 64x96}, {halo_len: 1}")
    assert draft.exclude == [{"seed": 2, "image_size": "64x96"}, {"halo_len": 1}]
    for text in ("seed=1", "{seed: 1", "[1]"):
        assert list(read_changed(FULL, exclude=text).errors) == ["exclude"]


def test_reads_launch_settings_and_variables():
    draft = read_changed_draft(
        FULL, **{"launch.bind": "", "launch.env": "A=1\nB=x=y", "launch.timeout": "9"}
    )
    assert draft.launch == {"env": {"A": "1", "B": "x=y"}, "args": ["--x", "--y"], "timeout": 9}


def test_reads_expectations():
    form = read_changed(FULL, expect=[("time_ms", "", "1.5"), ("skew.max", "2", "")])
    assert form.draft.expect == {"time_ms": {"min": 1.5}, "skew.max": {"max": 2}}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("", "1", ""), "name the metric"),
        (("time_ms", "", ""), "time_ms has no bound: give max, min or both"),
        (("time_ms", "x", ""), "max is no limit: expected a number"),
        (("skew", "1", ""), "duplicate skew"),
    ],
)
def test_rejects_invalid_expectation(row, message):
    form = read_changed(FULL, expect=[("skew", "1", ""), row])
    assert form.draft is None
    assert message in form.errors["expect.1"]


BIG = {"reference": 0.35, "lower": -0.1, "upper": 0.05}
VM = {"reference": 2, "upper": 0.5}
WITH_REFERENCES = replace(
    FULL,
    expect={
        "time_ms": {"systems": {"big": BIG, "vm": VM}},
        "skew": {"max": 3},
        "time_ms.p95": BIG,
    },
)
ROWS = [
    ("time_ms", "big", "0.35", "-0.1", "0.05"),
    ("time_ms", "vm", "2", "", "0.5"),
    ("time_ms.p95", "", "0.35", "-0.1", "0.05"),
]


def test_unchanged_references_keep_their_order():
    assert make_fields(WITH_REFERENCES).initial_texts.references == ROWS
    assert make_fields(WITH_REFERENCES).initial_texts.expect == [("skew", "3", "")]
    assert list(read_changed_draft(WITH_REFERENCES).expect) == ["time_ms", "skew", "time_ms.p95"]
    assert read_changed_draft(WITH_REFERENCES) == WITH_REFERENCES


def test_reads_and_removes_references_of_systems():
    rows = [*ROWS[:2], ("time_ms", "laptop", "3", "", "1"), ("skew.max", "", "2", "-0.5", "")]
    form = read_changed(WITH_REFERENCES, references=rows)
    assert form.errors == {}
    assert form.draft.expect == {
        "skew": {"max": 3},
        "time_ms": {"systems": {"big": BIG, "vm": VM, "laptop": {"reference": 3, "upper": 1}}},
        "skew.max": {"reference": 2, "lower": -0.5},
    }
    assert read_changed(WITH_REFERENCES, references=[]).draft.expect == {"skew": {"max": 3}}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("", "", "1", "", "1"), "name the metric that this reference is for"),
        (("time_ms.p99", "vm", "", "", "1"), "time_ms.p99 has no reference: give a number above"),
        (("time_ms.p99", "", "1", "", ""), "time_ms.p99 has no tolerance: give lower, upper"),
        (("time_ms.p99", "", "0", "", "1"), "reference must be above 0, not 0"),
        (("time_ms.p99", "", "1", "0.1", ""), "lower must be at most 0, not 0.1 (such as -0.1)"),
        (("time_ms.p99", "", "1", "", "x"), "upper must be a number, not 'x'"),
        (("time_ms", "big", "1", "", "1"), "duplicate time_ms of big"),
        (("time_ms", "", "1", "", "1"), "duplicate time_ms"),
        (("time_ms.p95", "big", "1", "", "1"), "duplicate time_ms.p95"),
        (("skew", "", "1", "", "1"), "duplicate skew"),
        (("skew", "vm", "1", "", "1"), "duplicate skew"),
    ],
)
def test_rejects_invalid_reference(row, message):
    form = read_changed(WITH_REFERENCES, references=[*ROWS, row])
    assert form.draft is None
    assert message in form.errors["reference.3"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"name": ""}, "name is empty"),
        ({"name": "no spaces"}, "use letters, digits"),
        ({"repeat": "0"}, "repeat must be at least 1, not 0"),
        ({"halo_len": "1, x"}, "halo_len: 'x' is not a whole number"),
        ({"dtype": "fp23"}, "did you mean fp32?"),
        ({"launch.bind": "cores"}, "did you mean core?"),
    ],
)
def test_rejects_values_with_the_message_of_the_loader(texts, message):
    form = read_changed(FULL, **texts)
    assert form.draft is None
    assert list(form.errors) == list(texts)
    assert message in next(iter(form.errors.values()))


def test_repeat_and_comment_can_be_removed():
    draft = read_changed_draft(FULL, repeat="", comment="")
    assert (draft.repeat, draft.comment) == (None, None)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_initial_form_of_each_benchmark_is_valid(benchmark, tmp_path):
    initial_params = BENCHMARKS[benchmark].starting_params
    draft = CaseDraft("case", benchmark, params=dict(initial_params))
    texts = make_fields(draft).initial_texts
    assert all(
        text == "" for name, text in texts.by_name.items() if name not in ("name", *initial_params)
    )
    text = insert_case("", read_changed_draft(draft)).text
    assert check_text(text, tmp_path / "suite.yaml").diagnostics == ()


def find_defaults(entry):
    """Return the defaults of a form with the cases of an entry."""
    text = f"schema: spbench.suite/1\nname: s\ncases:\n  - {entry}\n"
    cases = check_text(text, Path("s.yaml")).suite.cases
    return make_fields(CaseDraft("links", cases[0].benchmark)).find_defaults(cases)


def test_default_is_shown_only_if_all_cases_share_it():
    swept = (
        "{name: a, benchmark: link.pingpong, np: 2, "
        "matrix: {iterations: [%s], seed: [1, 2, 3, 4, 5, 6, 7, 8]}}"
    )
    assert find_defaults(swept % "5")["iterations"] == "5"
    assert find_defaults(swept % "5, 6")["iterations"] == AUTO
    ranks = "{name: a, benchmark: link.pingpong, matrix: {np: [%s]}}"
    assert find_defaults(ranks % "2")["np"] == "2"
    assert find_defaults(ranks % "2, 4")["np"] == AUTO


def test_summary_names_rank_counts_next_to_all_slots():
    cases = [SimpleNamespace(np=np) for np in (2, None, 2)]
    assert Preview(None, cases=cases).summary == "3 cases on 2 ranks or all slots"
    assert Preview(None, cases=cases[1:2]).summary == "1 case on all slots"
