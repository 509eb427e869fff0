"""The texts of a case's form, and the draft that they come to."""

from dataclasses import replace

import pytest

from spbench.suites.edit.compose import insert_case
from spbench.suites.edit.draft import CaseDraft
from spbench.suites.loader import check_text
from spbench.tui.suites.form.draft_reader import read_draft
from spbench.tui.suites.form.form_texts import FormFields, FormTexts
from spbench_core.catalog import BENCHMARKS
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


def form_of(draft):
    return FormFields(BENCHMARKS[draft.benchmark], draft)


def changed(draft, expect=None, references=None, **texts):
    """The texts of a form, of which these are typed anew, as it reads them."""
    form = form_of(draft)
    texts = {name.replace("__", " "): text for name, text in texts.items()}
    expect = form.initial_texts.expect if expect is None else expect
    references = form.initial_texts.references if references is None else references
    return read_draft(form, FormTexts({**form.initial_texts.by_name, **texts}, expect, references))


def drafted(draft, **texts):
    read = changed(draft, **texts)
    assert read.errors == {}
    return read.draft


def test_what_is_not_touched_stays_as_it_is():
    assert drafted(FULL) == FULL


@pytest.mark.parametrize(
    ("matrix", "params"),
    [
        ({"sizes": [["8", "1KiB"], [64]]}, {}),
        ({"sizes": [8]}, {}),
        ({"pairs": ["all"]}, {"sizes": [8, "64KiB"]}),
        ({"np": [2, 4]}, {"iterations": "5"}),
    ],
)
def test_sweeps_of_lists_and_of_one_value_are_told_from_values(matrix, params):
    draft = CaseDraft("links", "link.pingpong", params, matrix)
    assert drafted(draft) == draft
    form = form_of(draft)
    anew = {name: f"{text} " for name, text in form.initial_texts.by_name.items()}
    assert read_draft(form, FormTexts(anew)).draft == draft


def test_one_value_several_values_and_none():
    draft = drafted(FULL, image_size="128", batch_size="1, 2, 4", dtype="", in_channels="3")
    assert draft.params == {"warmup": 0, "image_size": 128, "in_channels": 3}
    assert draft.matrix == {"halo_len": [1], "batch_size": [1, 2, 4]}


def test_a_range_is_written_as_its_values():
    assert drafted(FULL, halo_len="1..8 *2").matrix["halo_len"] == [1, 2, 4, 8]


def test_names_in_step_go_to_zip_and_back():
    draft = drafted(FULL, in__step="halo_len, image_size", halo_len="1, 2")
    assert list(draft.zip) == ["image_size", "halo_len"]
    assert list(draft.matrix) == ["iterations", "seed"]
    assert changed(FULL, in__step="dtype").errors == {
        "in step": "'dtype' has no list of values above"
    }


def test_an_alias_keeps_the_name_that_it_has_in_the_file():
    known = BENCHMARKS["memory.copy"]
    size = Param("image_size", "int", 32, "pixels", aliases=("size_of_image",))
    form = FormFields(
        replace(known, params=(size,)), CaseDraft("case", "memory.copy", {"size_of_image": 64})
    )
    assert form.initial_texts.by_name["image_size"] == "64"
    read = read_draft(form, FormTexts({**form.initial_texts.by_name, "image_size": "128"}))
    assert read.draft.params == {"size_of_image": 128}


def test_np_one_or_several():
    plain = CaseDraft("links", "link.pingpong", np=2)
    assert drafted(plain, np="4").np == 4
    swept = drafted(plain, np="2, 4")
    assert (swept.np, swept.matrix) == (None, {"np": [2, 4]})
    assert drafted(swept, np="").matrix == {}


def test_points_to_leave_out():
    draft = drafted(FULL, exclude="{seed: 2, image_size: 64x96}, {halo_len: 1}")
    assert draft.exclude == [{"seed": 2, "image_size": "64x96"}, {"halo_len": 1}]
    for text in ("seed=1", "{seed: 1", "[1]"):
        assert list(changed(FULL, exclude=text).errors) == ["exclude"]


def test_launch_settings_and_variables():
    draft = drafted(FULL, **{"launch.bind": "", "launch.env": "A=1\nB=x=y", "launch.timeout": "9"})
    assert draft.launch == {"env": {"A": "1", "B": "x=y"}, "args": ["--x", "--y"], "timeout": 9}


def test_expectations():
    read = changed(FULL, expect=[("time_ms", "", "1.5"), ("skew.max", "2", "")])
    assert read.draft.expect == {"time_ms": {"min": 1.5}, "skew.max": {"max": 2}}


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (("", "1", ""), "name the metric"),
        (("time_ms", "", ""), "time_ms has no bound: give max, min or both"),
        (("time_ms", "x", ""), "max is no limit: expected a number"),
        (("skew", "1", ""), "duplicate skew"),
    ],
)
def test_an_expectation_that_cannot_be_judged_is_refused(row, sentence):
    read = changed(FULL, expect=[("skew", "1", ""), row])
    assert read.draft is None
    assert sentence in read.errors["expect.1"]


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


def test_references_are_rows_and_stay_in_their_order_if_nothing_is_typed():
    assert form_of(WITH_REFERENCES).initial_texts.references == ROWS
    assert form_of(WITH_REFERENCES).initial_texts.expect == [("skew", "3", "")]
    assert list(drafted(WITH_REFERENCES).expect) == ["time_ms", "skew", "time_ms.p95"]
    assert drafted(WITH_REFERENCES) == WITH_REFERENCES


def test_references_of_systems_are_typed_and_removed():
    rows = [*ROWS[:2], ("time_ms", "laptop", "3", "", "1"), ("skew.max", "", "2", "-0.5", "")]
    read = changed(WITH_REFERENCES, references=rows)
    assert read.errors == {}
    assert read.draft.expect == {
        "skew": {"max": 3},
        "time_ms": {"systems": {"big": BIG, "vm": VM, "laptop": {"reference": 3, "upper": 1}}},
        "skew.max": {"reference": 2, "lower": -0.5},
    }
    assert changed(WITH_REFERENCES, references=[]).draft.expect == {"skew": {"max": 3}}


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
def test_a_reference_that_cannot_be_judged_is_refused(row, message):
    read = changed(WITH_REFERENCES, references=[*ROWS, row])
    assert read.draft is None
    assert message in read.errors["reference.3"]


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({"name": ""}, "name is empty"),
        ({"name": "no spaces"}, "use letters, digits"),
        ({"repeat": "0"}, "repeat must be at least 1, not 0"),
        ({"halo_len": "1, x"}, "halo_len: 'x' is not a whole number"),
        ({"dtype": "fp23"}, "did you mean fp32?"),
        ({"launch.bind": "cores"}, "did you mean core?"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_loaders_sentence(texts, sentence):
    read = changed(FULL, **texts)
    assert read.draft is None
    assert list(read.errors) == list(texts)
    assert sentence in next(iter(read.errors.values()))


def test_repeat_and_comment_can_be_taken_away():
    draft = drafted(FULL, repeat="", comment="")
    assert (draft.repeat, draft.comment) == (1, None)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_form_of_every_benchmark_begins_with_a_case_that_the_loader_takes(benchmark, tmp_path):
    given = BENCHMARKS[benchmark].begins_with
    draft = CaseDraft("case", benchmark, params=dict(given))
    typed = form_of(draft).initial_texts
    assert all(text == "" for name, text in typed.by_name.items() if name not in ("name", *given))
    text = insert_case("", drafted(draft)).text
    assert check_text(text, tmp_path / "suite.yaml").diagnostics == ()
