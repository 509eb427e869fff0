"""Kernel loading of CUDA: at its start if stages of a model communicate by NCCL."""

import os
from types import SimpleNamespace

import pytest

from spbench.launch.jobs import _build_kernel_loading_environment
from spbench_workers.binding.before_mpi import kernel_loading, request_eager_loading
from spbench_workers.standalone import program

NAME = "CUDA_MODULE_LOADING"


@pytest.mark.parametrize(
    ("arguments", "before", "after"),
    [
        (["model.resnet", "--backend", "nccl"], {}, {NAME: "EAGER"}),
        (["model.resnet", "--backend=nccl"], {}, {NAME: "EAGER"}),
        (["model.resnet", "--backend", "nccl"], {NAME: "LAZY"}, {NAME: "LAZY"}),
        (["model.resnet", "--backend", "mpi"], {}, {}),
        # No receive of these is posted while other work is computed.
        (["allreduce", "--algorithm", "nccl"], {}, {}),
    ],
)
def test_a_standalone_command_line_requests_eager_loading(arguments, before, after):
    environ = dict(before)
    request_eager_loading(arguments, environ)
    assert environ == after


def test_a_standalone_run_sets_it_before_cuda_starts(monkeypatch, messages):
    def fail_to_start():
        raise RuntimeError(f"started with {os.environ.get(NAME)}")

    monkeypatch.setenv(NAME, "")
    monkeypatch.delenv(NAME)
    monkeypatch.setattr(program, "open_world", fail_to_start)
    with messages.raises(RuntimeError):
        program.main(["model.resnet", "--backend", "nccl"])


def make_job(*backends, env=None):
    cases = [SimpleNamespace(params={"backend": backend}) for backend in backends]
    return SimpleNamespace(cases=cases, settings=SimpleNamespace(env=env or {}))


@pytest.mark.parametrize(
    ("job", "env", "expected"),
    [
        (make_job("mpi", "nccl"), {}, {NAME: "EAGER"}),
        (make_job("mpi", "gloo"), {}, {}),
        (make_job("nccl", env={NAME: "LAZY"}), {}, {}),
        (make_job("nccl"), {NAME: "LAZY"}, {}),
    ],
)
def test_the_console_sets_it_for_the_ranks(job, env, expected):
    assert _build_kernel_loading_environment(job, env) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("lazy", "CUDA_MODULE_LOADING is not set")),
        ({NAME: "EAGER"}, ("eager", "CUDA_MODULE_LOADING=EAGER")),
        ({NAME: "LAZY"}, ("lazy", "CUDA_MODULE_LOADING=LAZY")),
    ],
)
def test_reports_kernel_loading_and_its_source(environ, expected):
    assert kernel_loading(environ) == expected
