"""Credentials are hidden in suites and arguments, and restored in a repeated run."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from spbench.errors import UsageError
from spbench.record.hidden_values import (
    hide_arguments,
    hide_override,
    hide_params,
    hide_suite,
    restore_suite,
)
from spbench.suites.loader import load_suite_text

SUITE = """\
schema: spbench.suite/1
name: made-up
description: größe
launch:
  env: {HF_TOKEN: "s3cret, or", NCCL_DEBUG: INFO, HTTPS_PROXY: "http://me:s3cret@proxy/"}
cases:
  - name: own
    benchmark: program.run
    np: 1
    launch:
      env:
        MY_PASSWD: |
          s3cret
          s3cret
        OMP_NUM_THREADS: 2
        OTHER_AUTH: &anchor s3cret
        THIRD_AUTH: *anchor
    params: {argv: [prog, "HF_TOKEN"], env: {WANDB_API_KEY: s3cret, MODE: fast}}
"""


def load(text, *overrides):
    return load_suite_text(text, Path("a.yaml"), overrides)


def test_hides_credentials_of_all_environments_of_a_suite():
    hidden = hide_suite(SUITE)
    assert "s3cret" not in hidden
    assert hidden.count("\n") == SUITE.count("\n")
    content = yaml.safe_load(hidden)
    (case,) = content["cases"]
    assert content["description"] == "größe"
    assert content["launch"]["env"] == {
        "HF_TOKEN": "***",
        "NCCL_DEBUG": "INFO",
        "HTTPS_PROXY": "***",
    }
    assert case["launch"]["env"] == {
        "MY_PASSWD": "***",
        "OMP_NUM_THREADS": 2,
        "OTHER_AUTH": "***",
        "THIRD_AUTH": "***",
    }
    assert case["params"]["env"] == {"WANDB_API_KEY": "***", "MODE": "fast"}
    assert case["params"]["argv"] == ["prog", "HF_TOKEN"]


@pytest.mark.parametrize(
    "text",
    [
        "name: a\nenv: {A: 1}\n",
        "launch: {env: {HF_TOKEN: }}\n",
        "\ufeffname: x # env\n",
        "env: [",
        "",
    ],
)
def test_keeps_suites_without_credentials_unchanged(text):
    assert hide_suite(text) == text


def test_repeated_run_takes_hidden_values_from_the_environment():
    names = ["HF_TOKEN", "HTTPS_PROXY", "MY_PASSWD", "OTHER_AUTH", "THIRD_AUTH", "WANDB_API_KEY"]
    environ = {name: name.lower() for name in names} | {"NCCL_DEBUG": "other"}
    suite = restore_suite(load(hide_suite(SUITE)), environ)
    (case,) = suite.cases
    assert suite.launch.env["HF_TOKEN"] == "hf_token"
    assert case.launch.env == {
        "HF_TOKEN": "hf_token",
        "NCCL_DEBUG": "INFO",
        "HTTPS_PROXY": "https_proxy",
        "MY_PASSWD": "my_passwd",
        "OMP_NUM_THREADS": "2",
        "OTHER_AUTH": "other_auth",
        "THIRD_AUTH": "third_auth",
    }
    assert case.params["env"] == {"WANDB_API_KEY": "wandb_api_key", "MODE": "fast"}


def test_missing_variable_of_a_repeated_run_is_an_error(messages):
    with messages.raises(UsageError):
        restore_suite(load(hide_suite(SUITE)), {"HF_TOKEN": "a"})


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("launch.env.HF_TOKEN=a b", "launch.env.HF_TOKEN='***'"),
        ("launch.env.NCCL_DEBUG=INFO", "launch.env.NCCL_DEBUG=INFO"),
        ("launch.env={HF_TOKEN: abc, A: 1}", 'launch.env={HF_TOKEN: "***", A: 1}'),
        ("env={WANDB_API_KEY: abc}", 'env={WANDB_API_KEY: "***"}'),
        ("iterations=9", "iterations=9"),
    ],
)
def test_hides_credentials_of_overrides(text, hidden):
    assert hide_override(text) == hidden
    assert hide_arguments(["run", "a.yaml", "--set", text]) == ["run", "a.yaml", "--set", hidden]
    assert hide_arguments(["run", f"--set={text}"]) == ["run", f"--set={hidden}"]


def test_hidden_overrides_can_be_read_again():
    override = hide_override("launch.env.HF_TOKEN=abc")
    suite = load(hide_suite(SUITE), override, "launch.env.HTTPS_PROXY=x")
    assert suite.launch.env["HF_TOKEN"] == "***"


def test_hides_credentials_in_the_environment_of_a_program():
    params = {"argv": ["a"], "env": {"MY_AUTH": "b", "MODE": "c"}}
    assert hide_params(params) == {"argv": ["a"], "env": {"MY_AUTH": "***", "MODE": "c"}}
    assert hide_params({"env": None, "n": 1}) == {"env": None, "n": 1}
