"""Training that resumes in another layout, compared with training without a break.

One launch runs all cases, in float64. A model trains three steps. Another one trains two steps in
the same layout, and the third in another layout after it has read the checkpoint.
"""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

RANKS = 5
CLOSE = 1e-9  # Adam divides by the root of tiny squares, which enlarges rounding errors.
FAR = 1e-4

V1 = {"model": "resnet", "config": {"version": 1, "depth": 8, "width": 4}}
AMOEBANET = {"model": "amoebanet", "config": {"num_layers": 3, "num_filters": 8}, "image": [64, 64]}
ONE_RANK = {"stages": 1}
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


def make_resume_case(before, after, optimizer="sgd", network=V1, **fields):
    case = {"action": "resume", "before": before, "after": after, "optimizer": optimizer}
    return network | case | fields


def make_reject_case(damage, message, **other):
    case = {"action": "reject", "before": ONE_RANK, "after": LP2, "optimizer": "sgd"}
    return V1 | case | {"damage": damage, "message": message, "other": other}


RESUMED = [
    *(
        make_resume_case(before, after, optimizer)
        for before, after in ((LP2, ONE_RANK), (SP5, LP3), (GEMS, SP3), (ONE_RANK, GEMS))
        for optimizer in ("sgd", "adam")
    ),
    make_resume_case(SP4, MEMBERS, "adamw"),
    make_resume_case(MEMBERS, SP3),
    make_resume_case({"stages": 2, "replicas": 2}, {"stages": 1, "replicas": 2}, "adam"),
    make_resume_case(ONE_WAY, FUSED, "adam"),
    make_resume_case(FUSED, ONE_WAY),
    make_resume_case(ONE_RANK, LP2, network=AMOEBANET),
    make_resume_case(ROUNDS, LP3, "adam"),
    make_resume_case(LP2, ROUNDS),
]
MIXED = make_resume_case(LP2, SP3, precision="fp16")
UNREAD = make_resume_case(LP2, ONE_RANK, unread=True)
# Without the state of the optimizer, the third step gives other weights.
WITHOUT_STATE = [
    make_resume_case(LP2, ONE_RANK, optimizer, weights_only=True) for optimizer in ("sgd", "adam")
]
EVALUATED = [make_resume_case(before, LP3) | {"action": "evaluate"} for before in (SP3, GEMS)]
ONE_RANK_MESSAGES = (
    "there is no",
    "FOLDER/none",
    "FOLDER/checkpoint has no",
    "has no state",
    "head.",
)
"""Starts of messages for errors that only one rank detects; the other ranks name that rank."""
REJECTED = [
    make_reject_case(
        "truncated", "FOLDER/checkpoint cannot be read as a checkpoint: it is cut off"
    ),
    make_reject_case("plain", "FOLDER/checkpoint is no checkpoint of spbench: it names no schema"),
    make_reject_case("schema", "its schema is spbench.checkpoint/0, not spbench.checkpoint/1"),
    make_reject_case(
        "tensor", "FOLDER/checkpoint has no stack1_block1.main.conv1.weight: it is not whole"
    ),
    make_reject_case("state", "has no state of sgd for stack1_block1.main.conv1.weight"),
    make_reject_case("unseen", "there is no checkpoint FOLDER/elsewhere: all hosts"),
    make_reject_case(
        "folder", "FOLDER/none/checkpoint cannot be written (No such file or directory)"
    ),
    make_reject_case(
        "none", "was learnt by sgd, not by adam: set optimizer to sgd", optimizer="adam"
    ),
    make_reject_case("none", "holds ResNet-8 v1, and this is AmoebaNet-D (3, 8)", **AMOEBANET),
    make_reject_case(
        "none",
        "holds ResNet-8 v1 with other settings (its layer stem differs)",
        config={"version": 1, "depth": 8, "width": 8},
    ),
    make_reject_case(
        "none", "head.linear.weight of shape (5, 16), and this model's is", image=[64, 64]
    ),
]
CASES = [*RESUMED, MIXED, UNREAD, *WITHOUT_STATE, *EVALUATED, *REJECTED]


def describe_case(case):
    def describe_layout(layout):
        return "-".join(f"{key}={value}" for key, value in layout.items())

    before = describe_layout(case["before"])
    after = describe_layout(case["after"])
    return f"{case['model']} {before} to {after} {case['optimizer']}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def results(folder):
    return run_cases_on_ranks(RANKS, "resume_all.py", folder, CASES)


@pytest.mark.parametrize("case", RESUMED, ids=describe_case)
def test_another_layout_continues_without_a_difference(results, case):
    result = results[CASES.index(case)]
    assert result["steps"] == 2
    assert result["rate"] == 0.05 * 0.5**2
    assert max(result["loss"], result["weights"], result["states"]) < CLOSE, result
    assert result["weights counted"] > result["states counted"] / 3 > 10


def test_loss_scale_is_resumed(results):
    result = results[CASES.index(MIXED)]
    assert result["scale"] == 128
    assert result["loss"] < 0.01


def test_model_without_the_checkpoint_differs(results):
    result = results[CASES.index(UNREAD)]
    assert min(result["loss"], result["weights"]) > FAR


@pytest.mark.parametrize("case", WITHOUT_STATE, ids=describe_case)
def test_weights_differ_without_the_state_of_the_optimizer(results, case):
    result = results[CASES.index(case)]
    assert result["rate"] == 0.05
    assert result["loss"] < CLOSE  # the loss of the third step, before its update
    assert result["weights"] > FAR


@pytest.mark.parametrize("case", EVALUATED, ids=describe_case)
def test_another_layout_infers_equal_logits(results, case):
    assert results[CASES.index(case)]["logits"] < CLOSE


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: case["damage"] + case["message"][-25:])
def test_rejected_checkpoint_is_reported_on_each_rank(results, case):
    result = results[CASES.index(case)]
    assert len(result) == 2
    (message, _), _ = result
    assert case["message"] in message
    assert ("(on rank" in message) == case["message"].startswith(ONE_RANK_MESSAGES)
    assert result == [[message, True]] * 2


def test_no_other_file_is_left_behind(results, folder):
    names = {path.name for path in folder.glob("*/*")}
    assert names == {"broken", "one", "other", "learnt", "checkpoint"}
