"""HPGO's Python interface, and the planner's own for programs."""

import pytest

import spbench.compat.hpgo as hpgo
import spbench.planner as planner
from spbench.planner.planning import plan
from support.planner.sample_profiles import (
    find_shared_file,
    load_hpgo_outputs,
    make_chain,
    render_torchgraph,
)


def made_file(tmp_path):
    path = tmp_path / "chain.txt"
    path.write_text(render_torchgraph(make_chain([3.0, 5.0, 2.0, 4.0], [1e6] * 4, [1e7] * 4)))
    return path


def test_py_orchestrate_gives_the_plan_of_mode_hpgo(tmp_path):
    path = made_file(tmp_path)
    conductor = hpgo.conductor_from_torch_graph_and_seps(str(path), 1, 64, [2, 4])
    speedup, stages = conductor.py_orchestrate()
    expected = plan(conductor.profile, conductor.cluster, 64, mode="hpgo")
    assert (speedup, stages) == (expected.speedup, expected.list_hpgo_stages())
    assert stages[0][0] == 0
    assert stages[-1][1] == 3
    assert sorted(device for *_, devices in stages for device in devices) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "row", load_hpgo_outputs()[:2], ids=lambda row: f"{row['profile']} {row['machines']}"
)
def test_it_is_hpgo_s_own_answer(row):
    sizes = row["profile_batch_size"], row["global_batch_size"], row["machines"]
    conductor = hpgo.conductor_from_torch_graph_and_seps(
        str(find_shared_file(row["profile"])), *sizes
    )
    speedup, stages = conductor.py_orchestrate()
    assert speedup == pytest.approx(row["speedup"], rel=1e-12)
    assert [devices for *_, devices in stages] == [stage["gpus"] for stage in row["stages"]]


def test_a_missing_profile_and_wrong_machines_are_one_sentence(tmp_path, messages):
    with messages.raises(planner.PlannerError):
        hpgo.conductor_from_torch_graph_and_seps(str(tmp_path / "none.txt"), 1, 64, [2])
    with pytest.raises(planner.PlannerError, match="4"):
        hpgo.conductor_from_torch_graph_and_seps(str(made_file(tmp_path)), 1, 64, [4, 4])


def test_the_planner_s_names_are_there_and_others_are_not(messages):
    assert all(callable(getattr(planner, name)) for name in planner.__all__)
    assert set(planner.__all__) == set(planner._MODULES)
    with messages.raises(AttributeError):
        _ = planner.nonsense
