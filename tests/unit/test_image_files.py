"""Dockerfile and Apptainer definition: nobody here can build them, their shape can be read."""

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
"""Docker's, but for ENTRYPOINT, which would stand before the ranks' interpreter, and ADD."""
SECTIONS = {
    *("setup", "files", "post", "environment", "runscript", "startscript", "test", "labels"),
    "help",
}


def readme_line():
    (line,) = re.findall(r"^pip install .*'\.\[.*\]'$", (ROOT / "README.md").read_text(), re.M)
    return line.replace("--constraint constraints.txt ", "")


def is_shell(text):
    return subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0


def instructions_in(dockerfile):
    lines = [line for line in dockerfile.splitlines() if not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in whole.splitlines() if line.strip()]


def wrong_in_dockerfile(text):
    """What is wrong, each in a word."""
    steps = instructions_in(text)
    images = [words.split() for name, words in steps if name == "FROM"]
    stages = {image[2] for image in images if len(image) == 3 and image[1] == "AS"}
    last = steps[max(at for at, step in enumerate(steps) if step[0] == "FROM") :]
    users = [words for name, words in last if name == "USER"]
    made = [words for name, words in last if name == "RUN" and words.startswith("useradd")]
    named = re.findall(r"--from=(\S+)", text)
    runs = [words for name, words in steps if name == "RUN"]
    installs = [re.sub(r"--\S+ ", "", words) for words in runs]
    found = {
        "mark": not text.startswith("# Not built yet"),
        "instruction": not {name for name, _ in steps} <= INSTRUCTIONS,
        "base": not all(BASE.fullmatch(image[0]) for image in images),
        "bases": len({image[0] for image in images}) != 1,
        "stages": not named or not set(named) <= stages,
        "user": users != ["spbench"] or not any(words.endswith(" spbench") for words in made),
        "shell": not all(map(is_shell, runs)),
        "install": readme_line() not in installs,
    }
    return [word for word, wrong in found.items() if wrong]


def wrong_in_definition(text):
    head, *parts = re.split(r"^%", text, flags=re.MULTILINE)
    sections = {part.partition("\n")[0].strip(): part.partition("\n")[2] for part in parts}
    keys = dict(re.findall(r"^(\w+): (\S+)$", head, re.MULTILINE))
    scripts = [sections.get(name, "") for name in ("post", "environment", "runscript", "test")]
    extras = re.findall(r"\[([a-z,]+)\]", sections.get("post", ""))
    (base,) = {words.split()[0] for name, words in instructions_in(DOCKERFILE) if name == "FROM"}
    found = {
        "mark": not text.startswith("# Not built yet"),
        "header": keys.get("Bootstrap") != "docker",
        "base": keys.get("From") != base,
        "sections": not {"files", "post", "environment"} <= sections.keys() <= SECTIONS,
        "shell": not all(map(is_shell, scripts)) or "set -e" not in sections.get("post", ""),
        "install": [f"'.[{one}]'" for one in extras] != [readme_line().split()[-1]],
    }
    return [word for word, wrong in found.items() if wrong]


def test_both_are_well_formed():
    assert wrong_in_dockerfile(DOCKERFILE) == []
    assert wrong_in_definition(DEFINITION) == []


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
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
def test_a_fault_in_the_dockerfile_is_found(old, new, wrong):
    assert old in DOCKERFILE
    assert wrong_in_dockerfile(DOCKERFILE.replace(old, new)) == [wrong]


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
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
def test_a_fault_in_the_definition_is_found(old, new, wrong):
    assert old in DEFINITION
    assert wrong_in_definition(DEFINITION.replace(old, new)) == [wrong]


def test_the_extras_that_pages_name_are_there():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pages = "".join(page.read_text() for page in (ROOT / "README.md", DOCS / "install.md"))
    named = set(",".join(re.findall(r"[.l]\[([a-z,]+)\]'", pages)).split(","))
    assert {"all", "workers", "serve"} <= named <= declared["optional-dependencies"].keys()
