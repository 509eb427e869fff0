"""Tests of containers: the arguments before the interpreter, by runtime."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from spbench.launch.containers import build_container_prefix
from spbench.suites.settings import Container
from support.launched_programs import UNUSUAL_VALUES

MOUNTS = ["/data", "/a b:/inside:ro"]


def build_prefix(runtime: str, **keys: object) -> tuple[str, ...]:
    fields = {"image": "img", "runtime": runtime, "args": ["--nv"], **keys}
    return build_container_prefix(Container.model_validate(fields))


@pytest.fixture(autouse=True)
def _fixed_working_folder(monkeypatch):
    monkeypatch.setattr(os, "getcwd", lambda: "/work")


def test_apptainer_binds_shared_folders():
    assert shlex.join(build_prefix("apptainer", mounts=MOUNTS)) == (
        "apptainer exec --bind /work:/work --bind /tmp:/tmp --bind /data:/data "
        "--bind '/a b:/inside:ro' --bind /dev/shm:/dev/shm --pwd /work --nv img"
    )


@pytest.mark.parametrize(("user", "option"), [(0, ""), (1000, "--userns=keep-id ")])
def test_podman_shares_the_host_and_keeps_the_user(monkeypatch, user, option):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert shlex.join(build_prefix("podman", mounts=MOUNTS)) == (
        f"podman run --rm --env-host --network=host --pid=host --ipc=host {option}"
        "--volume /work:/work --volume /tmp:/tmp --volume /data:/data "
        "--volume '/a b:/inside:ro' --workdir /work --nv img"
    )


def test_user_mount_replaces_the_mount_of_tmp():
    args = build_prefix("podman", mounts=["/scratch:/tmp"])
    assert "/tmp:/tmp" not in args
    assert "/scratch:/tmp" in args


def test_docker_gets_the_name_of_every_variable(tmp_path: Path):
    """The stand-in for docker writes its arguments and the named variables to files."""
    docker = tmp_path / "docker"
    docker.write_text(
        "#!/bin/sh\n"
        f'for word; do printf "%s\\0" "$word"; done > {tmp_path}/words\n'
        f"env -0 > {tmp_path}/env\n"
    )
    docker.chmod(0o755)
    env = {**UNUSUAL_VALUES, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PMI_RANK": "3"}
    subprocess.run([*build_prefix("docker", mounts=MOUNTS), "python3", "a b"], env=env, check=True)
    args = (tmp_path / "words").read_text().split("\0")[:-1]
    assert args[0] == "run"
    assert {f"--env={name}" for name in env} <= set(args)
    assert args[args.index("--rm") - 1] == f"--user={os.getuid()}:{os.getgid()}"
    assert args[args.index("--workdir") :] == [
        "--workdir",
        "/work",
        "--nv",
        "img",
        "python3",
        "a b",
    ]
    assert "/a b:/inside:ro" in args
    lines = (tmp_path / "env").read_text().split("\0")[:-1]
    passed = dict(line.split("=", 1) for line in lines)
    assert {name: passed[name] for name in UNUSUAL_VALUES} == UNUSUAL_VALUES


@pytest.mark.parametrize("mount", ["data", "/a:b", "/a:/b:ro:x", ""])
def test_rejects_invalid_mounts(mount):
    with pytest.raises(ValidationError, match="is not a mount"):
        build_prefix("podman", mounts=[mount])
