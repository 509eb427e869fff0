"""Containers of the ranks: the words before the interpreter, by runtime."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from launched import NASTY
from spbench.launch.containers import build_container_prefix
from spbench.suites.settings import Container

MOUNTS = ["/data", "/a b:/inside:ro"]


def prefix(runtime: str, **keys: object) -> tuple[str, ...]:
    given = {"image": "img", "runtime": runtime, "args": ["--nv"], **keys}
    return build_container_prefix(Container.model_validate(given))


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch):
    monkeypatch.setattr(os, "getcwd", lambda: "/work")


def test_apptainer_binds_what_ranks_share():
    assert shlex.join(prefix("apptainer", mounts=MOUNTS)) == (
        "apptainer exec --bind /work:/work --bind /tmp:/tmp --bind /data:/data "
        "--bind '/a b:/inside:ro' --bind /dev/shm:/dev/shm --pwd /work --nv img"
    )


@pytest.mark.parametrize(("user", "words"), [(0, ""), (1000, "--userns=keep-id ")])
def test_podman_shares_the_host_and_keeps_the_user(monkeypatch, user, words):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert shlex.join(prefix("podman", mounts=MOUNTS)) == (
        f"podman run --rm --env-host --network=host --pid=host --ipc=host {words}"
        "--volume /work:/work --volume /tmp:/tmp --volume /data:/data "
        "--volume '/a b:/inside:ro' --workdir /work --nv img"
    )


def test_a_mount_of_ones_own_takes_the_place_of_tmp():
    words = prefix("podman", mounts=["/scratch:/tmp"])
    assert "/tmp:/tmp" not in words
    assert "/scratch:/tmp" in words


def test_docker_is_given_the_name_of_every_variable(tmp_path: Path):
    """A stand-in for docker: it writes its words down, and the values of the variables named."""
    docker = tmp_path / "docker"
    docker.write_text(
        "#!/bin/sh\n"
        f'for word; do printf "%s\\0" "$word"; done > {tmp_path}/words\n'
        f"env -0 > {tmp_path}/env\n"
    )
    docker.chmod(0o755)
    env = {**NASTY, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PMI_RANK": "3"}
    subprocess.run([*prefix("docker", mounts=MOUNTS), "python3", "a b"], env=env, check=True)
    words = (tmp_path / "words").read_text().split("\0")[:-1]
    assert words[0] == "run"
    assert {f"--env={name}" for name in env} <= set(words)
    assert words[words.index("--rm") - 1] == f"--user={os.getuid()}:{os.getgid()}"
    assert words[words.index("--workdir") :] == [
        "--workdir",
        "/work",
        "--nv",
        "img",
        "python3",
        "a b",
    ]
    assert "/a b:/inside:ro" in words
    found = dict(one.split("=", 1) for one in (tmp_path / "env").read_text().split("\0")[:-1])
    assert {name: found[name] for name in NASTY} == NASTY


@pytest.mark.parametrize("mount", ["data", "/a:b", "/a:/b:ro:x", ""])
def test_a_mount_is_of_whole_paths(mount):
    with pytest.raises(ValidationError, match="is no mount"):
        prefix("podman", mounts=[mount])
