"""The file of a checkpoint: whole or not there, and refused where it is another's."""

import os
from dataclasses import replace

import pytest
import torch

from spbench_core.models.registry import make_model
from spbench_parallel.checkpoints import file
from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.model import run as benchmark
from unit.recorded import context_of


def network(**config):
    words = {"num_layers": 3, "num_filters": 8} | config
    return make_model("amoebanet", image_size=(64, 64), num_classes=5, **words)


def checkpoint(step=3, **words):
    weights = {"a.weight": torch.arange(6.0).view(2, 3), "a.count": torch.tensor(7)}
    states = {"a.weight": {"exp_avg": torch.ones(2, 3), "step": torch.tensor(3.0)}}
    made = file.Checkpoint(
        schema=file.SCHEMA,
        model=network().name,
        layers=file.digests(network()),
        step=step,
        optimizer="adam",
        learning_rate=0.1,
        loss_scale=(128.0, 5),
        weights=weights,
        states=states,
    )
    return replace(made, **words)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "kept"
    file.write(path, checkpoint())
    found = file.read(path)
    assert (found.step, found.learning_rate, found.loss_scale) == (3, 0.1, (128.0, 5))
    for name, tensor in checkpoint().weights.items():
        assert torch.equal(found.weights[name], tensor)
        assert found.weights[name].dtype == tensor.dtype
    file.check_model(path, found, network())
    file.check_tensors(path, found.weights, checkpoint().weights)
    file.check_states(path, found, "adam", {"a.weight": torch.zeros(2, 3)})
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("fault", ["save", "fsync"])
def test_a_write_that_fails_leaves_the_earlier_file(tmp_path, monkeypatch, fault):
    path = tmp_path / "kept"
    file.write(path, checkpoint(step=3))

    def half(*words):
        if fault == "save":
            words[1].write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch if fault == "save" else os, fault, half)
    with pytest.raises(CannotRunError, match=r"kept cannot be written \(No space left on device\)"):
        file.write(path, checkpoint(step=4))
    assert file.read(path).step == 3
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_a_file_cut_anywhere_is_not_read(tmp_path):
    path = tmp_path / "kept"
    file.write(path, checkpoint())
    whole = path.read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CannotRunError, match=rf"^{path} cannot be read as a checkpoint"):
            file.read(path)


def test_a_file_that_would_run_something_is_not_read(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    torch.save({"schema": file.SCHEMA, "weights": Evil()}, tmp_path / "evil")
    with pytest.raises(CannotRunError, match="cannot be read as a checkpoint"):
        file.read(tmp_path / "evil")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("config", [{"pool3": "max"}, {"shift": True}])
def test_a_model_of_the_same_shapes_that_computes_otherwise_is_another(tmp_path, config):
    with pytest.raises(CannotRunError, match=r"AmoebaNet-D \(3, 8\) with other settings"):
        file.check_model(tmp_path, checkpoint(), network(**config))


def test_states_of_other_shapes_or_none_are_told(tmp_path):
    with pytest.raises(CannotRunError, match=r"has exp_avg of a.weight in shape \(2, 3\)"):
        file.check_states(tmp_path, checkpoint(), "adam", {"a.weight": torch.zeros(3, 2)})
    alone = checkpoint(optimizer=None, learning_rate=None, states={})
    with pytest.raises(CannotRunError, match="has weights alone"):
        file.check_states(tmp_path, alone, "adam", {})
    # Before the first step there is none of any parameter.
    file.check_states(
        tmp_path, checkpoint(step=0, states={}), "adam", {"a.weight": torch.zeros(2, 3)}
    )


LEARNING = {"scheme": "sequential", "version": 1, "depth": 8, "batch_size": 2}
INFERRING = LEARNING | {"enable_evaluation": True}


@pytest.mark.parametrize(
    ("name", "params", "why"),
    [
        ("none", INFERRING, "there is no checkpoint FOLDER/none: all hosts must see it"),
        ("another", INFERRING, "FOLDER/another holds AmoebaNet-D (3, 8), and this is ResNet-8 v1"),
        ("another", LEARNING, "FOLDER/another holds AmoebaNet-D (3, 8), and this is ResNet-8 v1"),
        ("none/new", LEARNING, "FOLDER/none/new cannot be written (No such file or directory)"),
        ("another/new", LEARNING, "FOLDER/another/new cannot be written (Not a directory)"),
    ],
)
def test_a_checkpoint_of_no_use_is_refused_before_any_work(
    monkeypatch, tmp_path, name, params, why
):
    file.write(tmp_path / "another", checkpoint())
    monkeypatch.setattr(benchmark, "_open_images", lambda *_: pytest.fail("work has begun"))
    context = context_of("model.resnet", **params, checkpoint=str(tmp_path / name))
    with pytest.raises(CannotRunError) as caught:
        benchmark.run(context)
    assert why in str(caught.value).replace(str(tmp_path), "FOLDER")
    assert [one.name for one in tmp_path.iterdir()] == ["another"]


def test_nccl_without_a_gpu_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(benchmark, "_open_images", lambda *_: pytest.fail("work has begun"))
    context = context_of("model.resnet", **LEARNING | {"scheme": "lp", "backend": "nccl"})
    context.params["device"] = "cpu"
    with pytest.raises(CannotRunError, match="backend nccl needs a GPU for each rank") as caught:
        benchmark.run(context)
    assert caught.value.missing
