"""Files of checkpoints: complete or absent, and rejected for another model."""

import os
from dataclasses import replace

import pytest
import torch

from spbench_core.models.registry import make_model
from spbench_parallel.checkpoints import file
from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.model import run as benchmark
from support.recording_context import make_context


def make_network(**config):
    params = {"num_layers": 3, "num_filters": 8} | config
    return make_model("amoebanet", image_size=(64, 64), num_classes=5, **params)


def make_checkpoint(step=3, **changes):
    weights = {"a.weight": torch.arange(6.0).view(2, 3), "a.count": torch.tensor(7)}
    states = {"a.weight": {"exp_avg": torch.ones(2, 3), "step": torch.tensor(3.0)}}
    base = file.Checkpoint(
        schema=file.SCHEMA,
        model=make_network().name,
        layers=file.compute_digests(make_network()),
        step=step,
        optimizer="adam",
        learning_rate=0.1,
        loss_scale=(128.0, 5),
        weights=weights,
        states=states,
    )
    return replace(base, **changes)


def test_reads_back_a_written_checkpoint(tmp_path):
    path = tmp_path / "kept"
    file.write(path, make_checkpoint())
    stored = file.read(path)
    assert (stored.step, stored.learning_rate, stored.loss_scale) == (3, 0.1, (128.0, 5))
    for name, tensor in make_checkpoint().weights.items():
        assert torch.equal(stored.weights[name], tensor)
        assert stored.weights[name].dtype == tensor.dtype
    file.check_model(path, stored, make_network())
    file.check_tensors(path, stored.weights, make_checkpoint().weights)
    file.check_states(path, stored, "adam", {"a.weight": torch.zeros(2, 3)})
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_digests_of_layers_stay_those_of_earlier_files():
    """Renaming parts of `spbench_core.models` must not invalidate checkpoints."""
    assert file.compute_digests(make_network()) == {
        "stem1": "032850d3ba5ed701",
        "stem2": "95553dcebf7a61a9",
        "stem3": "5b405fc94439936f",
        "cell1_normal1": "e0ad0c5182c13278",
        "cell2_reduction": "97835b54896cdcf5",
        "cell3_normal1": "9a2e2f8db49ed26d",
        "cell4_reduction": "b975dafa82f9b2c2",
        "cell5_normal1": "10cbed0c8564b6c4",
        "classify": "7fcd0f456a770cdf",
    }
    resnet = make_model("resnet", image_size=(32, 32), num_classes=5, version=1, depth=8)
    stored = {"stem": "aee3e79c27dc94b8", "stack1_block1": "a429e13f27d0cc15"}
    assert file.compute_digests(resnet).items() >= stored.items()


@pytest.mark.parametrize("fault", ["save", "fsync"])
def test_a_failed_write_keeps_the_earlier_file(tmp_path, monkeypatch, fault, messages):
    path = tmp_path / "kept"
    file.write(path, make_checkpoint(step=3))

    def fail_halfway(*args):
        if fault == "save":
            args[1].write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch if fault == "save" else os, fault, fail_halfway)
    with messages.raises(CannotRunError):
        file.write(path, make_checkpoint(step=4))
    assert file.read(path).step == 3
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_rejects_a_truncated_file(tmp_path):
    path = tmp_path / "kept"
    file.write(path, make_checkpoint())
    contents = path.read_bytes()
    for size in (0, 1, 100, len(contents) // 2, len(contents) - 1):
        path.write_bytes(contents[:size])
        with pytest.raises(CannotRunError, match=rf"^{path} cannot be read as a checkpoint"):
            file.read(path)


def test_rejects_a_file_that_would_run_code(tmp_path, messages):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    torch.save({"schema": file.SCHEMA, "weights": Evil()}, tmp_path / "evil")
    with messages.raises(CannotRunError):
        file.read(tmp_path / "evil")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("config", [{"pool3": "max"}, {"shift": True}])
def test_rejects_other_settings_of_equal_shapes(tmp_path, config, messages):
    with messages.raises(CannotRunError):
        file.check_model(tmp_path, make_checkpoint(), make_network(**config))


def test_rejects_states_of_other_shapes_or_none(tmp_path, messages):
    with messages.raises(CannotRunError):
        file.check_states(tmp_path, make_checkpoint(), "adam", {"a.weight": torch.zeros(3, 2)})
    weights_only = make_checkpoint(optimizer=None, learning_rate=None, states={})
    with messages.raises(CannotRunError):
        file.check_states(tmp_path, weights_only, "adam", {})
    # Before the first step, no parameter has a state.
    file.check_states(
        tmp_path, make_checkpoint(step=0, states={}), "adam", {"a.weight": torch.zeros(2, 3)}
    )


LEARNING = {"scheme": "sequential", "version": 1, "depth": 8, "batch_size": 2}
INFERRING = LEARNING | {"enable_evaluation": True}


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("none", INFERRING, "there is no checkpoint FOLDER/none: all hosts must see it"),
        ("another", INFERRING, "FOLDER/another holds AmoebaNet-D (3, 8), and this is ResNet-8 v1"),
        ("another", LEARNING, "FOLDER/another holds AmoebaNet-D (3, 8), and this is ResNet-8 v1"),
        ("none/new", LEARNING, "FOLDER/none/new cannot be written (No such file or directory)"),
        ("another/new", LEARNING, "FOLDER/another/new cannot be written (Not a directory)"),
    ],
)
def test_rejects_an_unusable_checkpoint_before_any_work(
    monkeypatch, tmp_path, name, params, expected
):
    file.write(tmp_path / "another", make_checkpoint())
    monkeypatch.setattr(benchmark, "_open_images", lambda *_: pytest.fail("work has begun"))
    context = make_context("model.resnet", **params, checkpoint=str(tmp_path / name))
    with pytest.raises(CannotRunError) as caught:
        benchmark.run(context)
    assert expected in str(caught.value).replace(str(tmp_path), "FOLDER")
    assert [path.name for path in tmp_path.iterdir()] == ["another"]


def test_rejects_nccl_without_a_gpu_before_any_work(monkeypatch, messages):
    monkeypatch.setattr(benchmark, "_open_images", lambda *_: pytest.fail("work has begun"))
    context = make_context("model.resnet", **LEARNING | {"scheme": "lp", "backend": "nccl"})
    context.params["device"] = "cpu"
    with messages.raises(CannotRunError) as caught:
        benchmark.run(context)
    assert caught.value.missing
