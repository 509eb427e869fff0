"""Selection of cases by -k and --case, and fault injection into cases."""

from pathlib import Path

import pytest

from spbench.errors import ExitCode, NothingSelected, UsageError
from spbench.suites.inject import (
    check_fault_rank,
    describe_effect,
    describe_finder,
    explain_undetectable,
    inject_fault,
    inject_faults,
    list_effective_faults,
)
from spbench.suites.loader import load_suite_file, load_suite_text
from spbench.suites.select import select_matching, select_named
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.fault_effects import describe_fault
from spbench_core.catalog.planted_fault import PlantedFault

TEXT = """\
schema: spbench.suite/1
name: s
cases:
  - name: tiles
    benchmark: halo.exchange
    matrix: {slice_method: [vertical, square], halo_len: [1, 3]}
  - name: Copy
    benchmark: memory.copy
"""
CASES = load_suite_text(TEXT, Path("s.yaml")).cases
V1, V3, S1, S3, COPY = (case.id for case in CASES)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tiles", [V1, V3, S1, S3]),
        ("COPY", [COPY]),
        ("copy", [COPY]),
        ("exchange", [V1, V3, S1, S3]),
        ("memory.copy", [COPY]),
        ("not tiles", [COPY]),
        ("not not tiles", [V1, V3, S1, S3]),
        ("halo_len=3", [V3, S3]),
        ("tiles[slice_method=square,halo_len=1]", [S1]),
        ("square and halo_len=3", [S3]),
        ("vertical and halo_len=3 or copy", [V3, COPY]),
        ("vertical and (halo_len=3 or copy)", [V3]),
        ("not (square or copy)", [V1, V3]),
        ("square and not halo_len=1", [S3]),
        ("(((copy)))", [COPY]),
        ("  ", [V1, V3, S1, S3, COPY]),
    ],
)
def test_selects_cases_by_expression(expression, expected):
    assert [case.id for case in select_matching(CASES, expression)] == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("and", "expected a word, not, or (, not 'and' (column 1)"),
        ("a or", "expected a word, not, or (, not the end"),
        ("a b", "expected and, or, or the end, not 'b' (column 3)"),
        ("(a", "expected and, or, or ), not the end"),
        ("a)", "expected and, or, or the end, not ')' (column 2)"),
        ("()", "expected a word, not, or (, not ')' (column 2)"),
        ("not", "expected a word"),
        ("(" * 5000, "nest deeper than 100 levels"),
    ],
)
def test_rejects_invalid_expression(expression, message):
    with pytest.raises(UsageError) as caught:
        select_matching(CASES, expression)
    assert message in str(caught.value)


def test_accepts_long_expressions_without_parentheses():
    assert select_matching(CASES, " or ".join(["zz"] * 5000 + ["copy"])) == CASES[-1:]
    assert select_matching(CASES, "not " * 5000 + "copy") == CASES[-1:]


def test_selecting_no_case_is_an_error(messages):
    with messages.raises(NothingSelected) as caught:
        select_matching(CASES, "nowhere")
    assert caught.value.exit_code == ExitCode.NOTHING


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([S1], [S1]),
        (["Copy", V3], [V3, COPY]),
        (["tiles"], [V1, V3, S1, S3]),
        (["tiles", S1], [V1, V3, S1, S3]),
    ],
)
def test_selects_cases_by_name(names, expected):
    assert [case.id for case in select_named(CASES, names)] == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tile", "--case tile: no case is called so (did you mean tiles?)"),
        ("copy", "--case copy: no case is called so (did you mean Copy?)"),
        ("halo_len=1", "--case halo_len=1: no case is called so"),
        ("", "--case : no case is called so"),
    ],
)
def test_rejects_inexact_case_name(name, message):
    with pytest.raises(UsageError) as caught:
        select_named(CASES, ["Copy", name])
    assert str(caught.value).startswith(message)


def inject(text, cases=CASES):
    return {case.id: case.inject for case in inject_fault(cases, text) if case.inject}


def test_common_fault_goes_into_each_case():
    assert inject("hang") == dict.fromkeys([V1, V3, S1, S3, COPY], "hang")


def test_benchmark_fault_goes_into_its_cases_only():
    assert inject("corrupt-halo") == dict.fromkeys([V1, V3, S1, S3], "corrupt-halo")
    assert inject("corrupt-copy") == {COPY: "corrupt-copy"}


def test_fault_goes_into_case_by_id_or_name():
    assert inject(f"slow@{S3}") == {S3: "slow"}
    assert inject(f"slow=1.1@{S3}") == {S3: "slow=1.1"}
    assert inject(f"slow=1.1,rank=0@{S3}") == {S3: "slow=1.1,rank=0"}
    assert inject("slow@tiles") == dict.fromkeys([V1, V3, S1, S3], "slow")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hung", "no selected case knows 'hung'; they know corrupt-halo, "),
        ("hung", "(did you mean hang?)"),
        ("hang@tile", "no selected case is called 'tile' (did you mean tiles?)"),
        ("hang@", "no selected case is called ''"),
        ("corrupt-halo@Copy", "they know corrupt-copy, hang, kill, stop, raise, exit, slow"),
        ("", "no selected case knows ''"),
        ("hang=2", "hang takes no factor; slow does, as slow=1.1"),
        ("slow=fast", "slow=fast: give a number above 1 and at most 1000, such as slow=1.1"),
        ("slow=1@Copy", "slow=1: give a number above 1 and at most 1000"),
        ("slow=1001", "slow=1001: give a number above 1 and at most 1000"),
        ("slow=nan", "slow=nan: give a number above 1"),
        ("slow=", "slow=: give a number above 1"),
        ("hang,2", "2: give the number of a rank after the comma, such as hang,rank=0"),
        ("hang,rank=-1", "rank=-1: give the number of a rank after the comma"),
        ("slow,rank=1,rank=2", "rank=1,rank=2: give the number of a rank after the comma"),
        ("stale-state,rank=1", "stale-state takes no rank, because all ranks of the case have"),
    ],
)
def test_rejects_invalid_fault(text, message):
    with pytest.raises(UsageError) as caught:
        inject_fault(CASES, text)
    assert str(caught.value).startswith(f"--inject {text}: ")
    assert message in str(caught.value)


def test_fault_must_apply_to_a_selected_case(messages):
    with messages.raises(UsageError):
        inject_fault(select_matching(CASES, "copy"), "corrupt-halo")


def test_injects_several_faults():
    cases = inject_faults(CASES, [f"kill@{V1}", f"slow=2@{S3}", "raise@Copy"])
    assert [case.inject for case in cases] == ["kill", None, None, "slow=2", "raise"]
    cases = inject_faults(CASES, ["corrupt-halo", "corrupt-copy"])
    assert [case.inject for case in cases] == ["corrupt-halo"] * 4 + ["corrupt-copy"]
    assert inject_faults(CASES, []) == CASES


@pytest.mark.parametrize(
    "texts",
    [["kill@tiles", f"slow@{V1}"], ["kill", "raise@Copy"], ["slow@Copy", "slow@Copy"]],
)
def test_rejects_second_fault_of_a_case(texts, messages):
    with messages.raises(UsageError):
        inject_faults(CASES, texts)


def test_loader_injects_faults(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    assert [case.inject for case in load_suite_file(path, inject="kill@Copy").cases] == [
        None
    ] * 4 + ["kill"]
    assert {case.inject for case in load_suite_file(path).cases} == {None}


def test_training_faults_are_rejected_for_inference():
    model = "{name: a, benchmark: model.resnet, params: {scheme: lp, enable_evaluation: true}}"
    head = "schema: spbench.suite/1\nname: s\ncases:\n  - "
    infer = load_suite_text(head + model, Path("s.yaml")).cases
    learn = load_suite_text(
        head + model.replace(", enable_evaluation: true", ""), Path("s.yaml")
    ).cases
    for fault in ("drop-gradient", "full:zero-weight-gradient", "tile-batchnorm"):
        assert inject_fault(learn, fault)[0].inject == fault
        with pytest.raises(UsageError, match=f"no selected case knows '{fault}'; they know wrong"):
            inject_fault(infer, fault)
    assert inject_fault(infer, "wrong-neighbour")[0].inject == "wrong-neighbour"


def test_each_fault_has_an_effect_of_its_own():
    names = {fault for entry in BENCHMARKS.values() for fault in entry.faults}
    effects = {name: describe_fault(name) for name in names}
    assert all(effects.values())
    assert len(set(effects.values())) == len(names)
    assert describe_fault("of-a-plug-in") == ""


def test_faults_of_a_case_say_what_finds_them(messages):
    case = next(case for case in CASES if case.benchmark.startswith("halo."))
    faults = map(PlantedFault, list_effective_faults(case))
    messages.check(
        [f"{describe_effect(case, fault)}. {describe_finder(case, fault)}" for fault in faults]
    )


PIPELINE = "benchmark: model.resnet, params: {scheme: lp, depth: 11, batch_size: 4, parts: 2}"


@pytest.mark.parametrize(
    ("entry", "is_detectable"),
    [
        ("benchmark: halo.exchange", True),  # measures waits
        ("benchmark: memory.copy, np: 2", True),  # measures each rank
        ("benchmark: memory.copy", True),  # on all slots
        ("benchmark: memory.copy, np: 1", False),
        ("benchmark: memory.copy, np: 1, expect: {skew: {max: 2}}", False),
        ("benchmark: memory.copy, np: 1, expect: {time_ms: {max: 2}}", True),
        (f"{PIPELINE}, np: 2", False),  # each rank has its own stage
        (f"{PIPELINE}, np: 2, expect: {{time_ms: {{max: 2}}}}", True),
        ("benchmark: link.pingpong, np: 2", False),
        ("benchmark: link.pingpong, np: 4", True),
        ("benchmark: link.ring, np: 4", False),
        ("benchmark: link.ring, np: 4, expect: {skew: {max: 2}}", True),
    ],
)
def test_knows_whether_a_slow_rank_can_be_detected(entry, is_detectable):
    text = f"schema: spbench.suite/1\nname: s\ncases:\n  - {{name: a, {entry}}}\n"
    case = load_suite_text(text, Path("s.yaml")).cases[0]
    assert (explain_undetectable(case, PlantedFault("slow")) is None) == is_detectable
    assert explain_undetectable(case, PlantedFault("kill")) is None


def test_chosen_rank_decides_whether_its_slowness_can_be_detected():
    tiles = "slice_method: vertical, num_spatial_parts: 2, image_size: 32"
    layout = f"scheme: sp, split_size: 2, depth: 11, {tiles}"
    entry = f"benchmark: model.resnet, params: {{{layout}}}"
    text = f"schema: spbench.suite/1\nname: s\ncases:\n  - {{name: a, {entry}}}\n"
    (case,) = load_suite_text(text, Path("s.yaml")).cases
    assert "the last rank" in explain_undetectable(case, PlantedFault("slow"))
    assert "rank 2, where" in explain_undetectable(case, PlantedFault("slow", rank=2))
    first = PlantedFault("slow", 1.5, rank=0)  # it has a tile of the first stage, like rank 1
    assert explain_undetectable(case, first) is None
    assert describe_effect(case, first).startswith("each iteration of rank 0 takes 1.5")


def test_rejects_a_rank_that_the_case_does_not_have():
    (case,) = inject_fault(CASES[-1:], "kill,rank=3")
    check_fault_rank(case, 4)
    check_fault_rank(CASES[0], 1)
    with pytest.raises(UsageError) as caught:
        check_fault_rank(case, 3)
    assert str(caught.value) == "--inject kill,rank=3: case Copy has no rank 3, only 0 to 2"


def test_says_what_is_checked_for_a_slow_rank(messages):
    head = "schema: spbench.suite/1\nname: s\ncases:\n  - {name: a, np: 2, benchmark: "
    entries = ("link.ring", "link.ring, expect: {skew: {max: 2}}", "link.pingpong", "memory.copy")
    cases = [load_suite_text(f"{head}{entry}}}", Path("s.yaml")).cases[0] for entry in entries]
    slow = PlantedFault("slow")
    messages.check(
        [
            explain_undetectable(case, slow)
            or f"{describe_effect(case, slow)}. {describe_finder(case, slow)}"
            for case in cases
        ]
    )
