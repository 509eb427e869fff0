"""Syntax of the Dockerfile and the Apptainer definition, without building them."""

import re
import subprocess
import tomllib

import pytest

from support.paths import DOCS, EXAMPLES, ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
DEFINITION = (EXAMPLES / "spbench.def").read_text()
BASE = re.compile(r"python:3\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?")
INSTRUCTIONS = {
    *("ARG", "CMD", "COPY", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "SHELL"),
    *("USER", "VOLUME", "WORKDIR"),
}
"""Docker's except ADD and ENTRYPOINT, which would wrap the ranks' interpreter."""
SECTIONS = {
    *("setup", "files", "post", "environment", "runscript", "startscript", "test", "labels"),
    "help",
}


def read_install_command():
    (line,) = re.findall(r"^pip install .*'\.\[.*\]'$", (ROOT / "README.md").read_text(), re.M)
    return line.replace("--constraint constraints.txt ", "")


def is_valid_shell(text):
    return subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0


def parse_instructions(dockerfile):
    lines = [line for line in dockerfile.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def find_dockerfile_errors(text):
    """Return a keyword for each error."""
    steps = parse_instructions(text)
    images = [arguments.split() for name, arguments in steps if name == "FROM"]
    stages = {image[2] for image in images if len(image) == 3 and image[1] == "AS"}
    last = steps[max(index for index, step in enumerate(steps) if step[0] == "FROM") :]
    users = [arguments for name, arguments in last if name == "USER"]
    created_users = [
        arguments for name, arguments in last if name == "RUN" and arguments.startswith("useradd")
    ]
    copied_stages = re.findall(r"--from=(\S+)", text)
    runs = [arguments for name, arguments in steps if name == "RUN"]
    installs = [re.sub(r"--\S+ ", "", arguments) for arguments in runs]
    failures = {
        "mark": not text.startswith("# Not built yet"),
        "instruction": not {name for name, _ in steps} <= INSTRUCTIONS,
        "base": not all(BASE.fullmatch(image[0]) for image in images),
        "bases": len({image[0] for image in images}) != 1,
        "stages": not copied_stages or not set(copied_stages) <= stages,
        "user": users != ["spbench"]
        or not any(arguments.endswith(" spbench") for arguments in created_users),
        "shell": not all(map(is_valid_shell, runs)),
        "install": read_install_command() not in installs,
    }
    return [keyword for keyword, failed in failures.items() if failed]


def find_definition_errors(text):
    """Return a keyword for each error."""
    head, *parts = re.split(r"^%", text, flags=re.MULTILINE)
    sections = {part.partition("\n")[0].strip(): part.partition("\n")[2] for part in parts}
    keys = dict(re.findall(r"^(\w+): (\S+)$", head, re.MULTILINE))
    scripts = [sections.get(name, "") for name in ("post", "environment", "runscript", "test")]
    extras = re.findall(r"\[([a-z,]+)\]", sections.get("post", ""))
    (base,) = {
        arguments.split()[0] for name, arguments in parse_instructions(DOCKERFILE) if name == "FROM"
    }
    failures = {
        "mark": not text.startswith("# Not built yet"),
        "header": keys.get("Bootstrap") != "docker",
        "base": keys.get("From") != base,
        "sections": not {"files", "post", "environment"} <= sections.keys() <= SECTIONS,
        "shell": not all(map(is_valid_shell, scripts)) or "set -e" not in sections.get("post", ""),
        "install": [f"'.[{extra}]'" for extra in extras] != [read_install_command().split()[-1]],
    }
    return [keyword for keyword, failed in failures.items() if failed]


def test_both_files_are_well_formed():
    assert find_dockerfile_errors(DOCKERFILE) == []
    assert find_definition_errors(DEFINITION) == []


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("# Not built yet", "# Built", "mark"),
        ("WORKDIR /src", "WORKDIRR /src", "instruction"),
        ("CMD [", "ENTRYPOINT [", "instruction"),
        ("python:3.12.12-slim-bookworm", "python:latest", "base"),
        ("3.12.12-slim-bookworm AS", "3.12.11-slim-bookworm AS", "bases"),
        ("--from=build", "--from=built", "stages"),
        ("USER spbench", "USER root", "user"),
        ("USER spbench\n", "", "user"),
        ("&& rm", "&& (rm", "shell"),
        (".[all]", ".[workers]", "install"),
    ],
)
def test_finds_an_error_in_the_dockerfile(old, new, error):
    assert old in DOCKERFILE
    assert find_dockerfile_errors(DOCKERFILE.replace(old, new)) == [error]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("# Not built yet", "# Built", "mark"),
        ("Bootstrap: docker", "Bootstrap: dokcer", "header"),
        ("3.12.12-slim", "3.12-slim", "base"),
        ("%environment", "%environ", "sections"),
        ("$(ls", "$((ls", "shell"),
        ("set -eu", "set -u", "shell"),
        ("[all]", "[workers]", "install"),
    ],
)
def test_finds_an_error_in_the_definition(old, new, error):
    assert old in DEFINITION
    assert find_definition_errors(DEFINITION.replace(old, new)) == [error]


def test_documented_extras_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pages = "".join(page.read_text() for page in (ROOT / "README.md", DOCS / "install.md"))
    extras = set(",".join(re.findall(r"[.l]\[([a-z,]+)\]'", pages)).split(","))
    assert {"all", "workers", "serve"} <= extras <= project["optional-dependencies"].keys()
