"""A model goes on from a checkpoint as if there had been no break, whatever the two layouts.

One launch does all, in float64. A model learns three steps; another learns two in the same layout,
and the third in another layout, on other weights until it has read the checkpoint.
"""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

RANKS = 5
CLOSE = 1e-9  # Adam divides by the root of tiny squares: last digits become larger.
FAR = 1e-4

V1 = {"model": "resnet", "config": {"version": 1, "depth": 8, "width": 4}}
AMOEBANET = {"model": "amoebanet", "config": {"num_layers": 3, "num_filters": 8}, "image": [64, 64]}
ONE = {"stages": 1}
LP2 = {"stages": 2}
LP3 = {"stages": 3}
SP5 = {"stages": 2, "grids": ["2x2"]}
SP3 = {"stages": 2, "grids": ["1x2"]}
SP4 = {"stages": 2, "grids": ["1x2", "2x1"]}
GEMS = {"stages": 2, "mirrored": True}
ONE_WAY = GEMS | {"one_way": True}
FUSED = SP3 | {"fused_layers": 2}
MEMBERS = {"stages": 2, "members": 2}
ROUNDS = {"stages": 4, "rounds": 2}


def resume(before, after, optimizer="sgd", network=V1, **more):
    words = {"action": "resume", "before": before, "after": after, "optimizer": optimizer}
    return network | words | more


def refuse(damage, says, **other):
    words = {"action": "refuse", "before": ONE, "after": LP2, "optimizer": "sgd"}
    return V1 | words | {"damage": damage, "says": says, "other": other}


RESUMED = [
    *(
        resume(before, after, optimizer)
        for before, after in ((LP2, ONE), (SP5, LP3), (GEMS, SP3), (ONE, GEMS))
        for optimizer in ("sgd", "adam")
    ),
    resume(SP4, MEMBERS, "adamw"),
    resume(MEMBERS, SP3),
    resume({"stages": 2, "replicas": 2}, {"stages": 1, "replicas": 2}, "adam"),
    resume(ONE_WAY, FUSED, "adam"),
    resume(FUSED, ONE_WAY),
    resume(ONE, LP2, network=AMOEBANET),
    resume(ROUNDS, LP3, "adam"),
    resume(LP2, ROUNDS),
]
MIXED = resume(LP2, SP3, precision="fp16")
UNREAD = resume(LP2, ONE, unread=True)
# Without the optimizer's state the weights of the third step are others.
FORGETFUL = [resume(LP2, ONE, optimizer, weights_only=True) for optimizer in ("sgd", "adam")]
EVALUATED = [resume(before, LP3) | {"action": "evaluate"} for before in (SP3, GEMS)]
ONE_RANK = ("there is no", "FOLDER/none", "FOLDER/checkpoint has no", "has no state", "head.")
"""The first words of what a single rank finds; the others then say which one it was."""
REFUSED = [
    refuse("truncated", "FOLDER/checkpoint cannot be read as a checkpoint: it is cut off"),
    refuse("plain", "FOLDER/checkpoint is no checkpoint of spbench: it names no schema"),
    refuse("schema", "its schema is spbench.checkpoint/0, not spbench.checkpoint/1"),
    refuse("tensor", "FOLDER/checkpoint has no stack1_block1.main.conv1.weight: it is not whole"),
    refuse("state", "has no state of sgd for stack1_block1.main.conv1.weight"),
    refuse("unseen", "there is no checkpoint FOLDER/elsewhere: all hosts"),
    refuse("folder", "FOLDER/none/checkpoint cannot be written (No such file or directory)"),
    refuse("none", "was learnt by sgd, not by adam: set optimizer to sgd", optimizer="adam"),
    refuse("none", "holds ResNet-8 v1, and this is AmoebaNet-D (3, 8)", **AMOEBANET),
    refuse(
        "none",
        "holds ResNet-8 v1 with other settings (its layer stem differs)",
        config={"version": 1, "depth": 8, "width": 8},
    ),
    refuse("none", "head.linear.weight of shape (5, 16), and this model's is", image=[64, 64]),
]
CASES = [*RESUMED, MIXED, UNREAD, *FORGETFUL, *EVALUATED, *REFUSED]


def name_of(case):
    def words(layout):
        return "-".join(f"{key}={value}" for key, value in layout.items())

    return f"{case['model']} {words(case['before'])} to {words(case['after'])} {case['optimizer']}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def answers(folder):
    return run_cases_on_ranks(RANKS, "resume_all.py", folder, CASES)


@pytest.mark.parametrize("case", RESUMED, ids=name_of)
def test_another_layout_goes_on_as_if_there_had_been_no_break(answers, case):
    found = answers[CASES.index(case)]
    assert found["steps"] == 2
    assert found["rate"] == 0.05 * 0.5**2
    assert max(found["loss"], found["weights"], found["states"]) < CLOSE, found
    assert found["weights counted"] > found["states counted"] / 3 > 10


def test_the_scale_of_the_loss_goes_on_too(answers):
    found = answers[CASES.index(MIXED)]
    assert found["scale"] == 128
    assert found["loss"] < 0.01


def test_a_model_that_has_not_read_it_is_another(answers):
    found = answers[CASES.index(UNREAD)]
    assert min(found["loss"], found["weights"]) > FAR


@pytest.mark.parametrize("case", FORGETFUL, ids=name_of)
def test_without_the_optimizers_state_it_would_not(answers, case):
    found = answers[CASES.index(case)]
    assert found["rate"] == 0.05
    assert found["loss"] < CLOSE  # Of the third step, before its update.
    assert found["weights"] > FAR


@pytest.mark.parametrize("case", EVALUATED, ids=name_of)
def test_another_layout_infers_the_same(answers, case):
    assert answers[CASES.index(case)]["logits"] < CLOSE


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["damage"] + case["says"][-25:])
def test_what_cannot_be_taken_up_is_told_on_every_rank_and_changes_nothing(answers, case):
    found = answers[CASES.index(case)]
    assert len(found) == 2
    (said, _), _ = found
    assert case["says"] in said
    assert ("(on rank" in said) == case["says"].startswith(ONE_RANK)
    assert found == [[said, True]] * 2


def test_no_other_file_is_left_behind(answers, folder):
    names = {path.name for path in folder.glob("*/*")}
    assert names == {"broken", "one", "other", "learnt", "checkpoint"}
