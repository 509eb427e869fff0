"""When CUDA loads its kernels: at its start, where stages of a model talk over NCCL."""

import os
from types import SimpleNamespace

import pytest

from spbench.launch.jobs import _kernel_loading_environment
from spbench_workers.binding.before_mpi import kernel_loading, request_eager_loading
from spbench_workers.standalone import program

NAME = "CUDA_MODULE_LOADING"


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (["model.resnet", "--backend", "nccl"], {}, {NAME: "EAGER"}),
        (["model.resnet", "--backend=nccl"], {}, {NAME: "EAGER"}),
        (["model.resnet", "--backend", "nccl"], {NAME: "LAZY"}, {NAME: "LAZY"}),
        (["model.resnet", "--backend", "mpi"], {}, {}),
        # No receive of these is posted while something else is computed.
        (["allreduce", "--algorithm", "nccl"], {}, {}),
    ],
)
def test_by_hand_the_command_line_says_so(words, before, after):
    environ = dict(before)
    request_eager_loading(words, environ)
    assert environ == after


def test_by_hand_it_is_set_before_anything_starts_cuda(monkeypatch):
    def start():
        raise RuntimeError(f"started with {os.environ.get(NAME)}")

    monkeypatch.setenv(NAME, "")
    monkeypatch.delenv(NAME)
    monkeypatch.setattr(program, "open_world", start)
    with pytest.raises(RuntimeError, match="started with EAGER"):
        program.main(["model.resnet", "--backend", "nccl"])


def job(*backends, env=None):
    cases = [SimpleNamespace(params={"backend": backend}) for backend in backends]
    return SimpleNamespace(cases=cases, settings=SimpleNamespace(env=env or {}))


@pytest.mark.parametrize(
    ("given", "env", "words"),
    [
        (job("mpi", "nccl"), {}, {NAME: "EAGER"}),
        (job("mpi", "gloo"), {}, {}),
        (job("nccl", env={NAME: "LAZY"}), {}, {}),
        (job("nccl"), {NAME: "LAZY"}, {}),
    ],
)
def test_the_console_says_so_to_the_ranks(given, env, words):
    assert _kernel_loading_environment(given, env) == words


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({}, ("lazy", "CUDA_MODULE_LOADING is not set")),
        ({NAME: "EAGER"}, ("eager", "CUDA_MODULE_LOADING=EAGER")),
        ({NAME: "LAZY"}, ("lazy", "CUDA_MODULE_LOADING=LAZY")),
    ],
)
def test_it_is_recorded(environ, told):
    assert kernel_loading(environ) == told
