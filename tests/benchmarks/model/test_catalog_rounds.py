"""Interleaved pipelines in the parameters of the model benchmarks."""

import pytest

from spbench_workers.benchmarks.model.entry import BENCHMARKS

*MODELS, _ = BENCHMARKS
RESNET = MODELS[0]
SMALL = {"image_size": 64, "batch_size": 8}
ROUNDS = SMALL | {"schedule": "interleaved", "parts": 2}


@pytest.mark.parametrize(
    ("settings", "ranks", "stages", "rounds"),
    [
        ({}, 2, 4, 2),
        ({"rounds": 3}, 2, 6, 3),
        ({"split_size": 6, "rounds": 3}, 2, 6, 3),
        ({"split_size": 8, "parts": 4}, 4, 8, 2),
        ({"replicas": 3}, 6, 4, 2),
        ({"local_DP": 2}, 4, 4, 2),
        ({"local_DP": "2,1,2,1"}, 3, 4, 2),
        ({"local_DP": "2,2,2,2"}, 4, 4, 2),
        ({"balance": "10,10,10,8"}, 2, 4, 2),
        ({"balance": "measured"}, 2, 4, 2),
        ({"enable_evaluation": True, "parts": 3}, 2, 4, 2),
    ],
)
@pytest.mark.parametrize("entry", MODELS, ids=lambda entry: entry.name)
def test_one_round_determines_the_ranks(entry, settings, ranks, stages, rounds):
    if entry is not RESNET and "," in settings.get("balance", ""):
        settings = settings | {"balance": "6,6,6,6"}
    params = entry.complete(dict(entry.begins_with) | ROUNDS | settings)
    assert entry.ranks(params).exact == ranks
    assert (params["split_size"], params["rounds"]) == (stages, rounds)
    assert entry.complete(params) == params
    if params["balance"] != "measured":
        assert len(params["balance"].split(",")) == stages


@pytest.mark.parametrize(
    ("params", "param", "message"),
    [
        ({"schedule": "1f1b", "rounds": 2}, "rounds", "does nothing without schedule interleaved"),
        ({"schedule": None, "rounds": 2}, "rounds", "does nothing without schedule interleaved"),
        ({"rounds": 1}, "rounds", "below the least value, 2"),
        ({"rounds": 10**20}, "rounds", "above the greatest value, 5000"),
        ({"rounds": 5000}, "split_size", "10000 stages are more than the 38 layers"),
        ({"split_size": 10**20}, "split_size", "above the greatest value, 10000"),
        *(
            ({"scheme": scheme}, "schedule", f"is for scheme lp, not for {scheme}")
            for scheme in ("sequential", "sp", "gems", "gems_sp")
        ),
        ({"split_size": 2}, "split_size", "too small for 2 rounds: take 4 or more"),
        ({"split_size": 7, "rounds": 3}, "split_size", "no multiple of rounds 3: take 6 or 9"),
        ({"parts": 1}, "parts", "no multiple of the 2 stages of a round"),
        ({"parts": 1}, "parts", "take 2"),
        ({"parts": 4, "split_size": 6}, "parts", "take 3 or 6"),
        ({"local_DP": "2,1,1,2"}, "local_DP", "the same in each of 2 rounds, as in 2,1,2,1"),
        ({"local_DP": "2,1"}, "local_DP", "2 entries, 4 of 4 stages"),
        ({"balance": "19,19"}, "balance", "one for each of 4 stages"),
        ({"enable_evaluation": True, "schedule": "gpipe"}, "schedule", "with enable_evaluation"),
    ],
)
def test_rejects_invalid_parameters_of_rounds(params, param, message):
    with pytest.raises(ExceptionGroup) as caught:
        RESNET.complete({**ROUNDS, **params})
    (error,) = caught.value.exceptions
    assert (error.param, message in str(error)) == (param, True), str(error)


def test_lists_coordinates_of_ranks():
    params = RESNET.complete(ROUNDS | {"local_DP": "2,1,2,1"})
    assert RESNET.place(params, 1) == {"replica": 0, "stage": 0, "stages": "0,2", "member": 1}
    assert RESNET.place(params, 2) == {"replica": 0, "stage": 1, "stages": "1,3"}
