"""Tests of the survey of hosts, with a stand-in for ssh."""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from spbench import __version__
from spbench.errors import UsageError
from spbench.launch.finding import FindingStatus
from spbench.launch.mpi_probe import INSTALL
from spbench.launch.survey import survey
from spbench.launch.survey.command import build_survey_input
from spbench.launch.survey.facts import HostFacts, group_findings, parse_facts
from spbench.launch.survey.reach import ANSWER_TIMEOUT
from spbench.suites.settings import LaunchSettings
from spbench_core import host_facts
from support.ssh_hosts import SshHosts, make_idle_hosts

PYTHON = sys.executable


@pytest.fixture
def ssh(tmp_path, monkeypatch) -> SshHosts:
    return make_idle_hosts(tmp_path / "ssh", monkeypatch)


async def survey_named(
    ssh: SshHosts, *names: str, timeout_seconds: float = ANSWER_TIMEOUT, **keys: object
) -> dict[str, HostFacts]:
    settings = LaunchSettings.model_validate(keys)
    surveyed = survey.survey_hosts(names, settings, ssh.env, timeout_seconds=timeout_seconds)
    return {answer.host: answer async for answer in surveyed}


async def survey_host(ssh: SshHosts, name: str, **keys: Any) -> HostFacts:
    return (await survey_named(ssh, name, **keys))[name]


def list_findings(answer: HostFacts) -> list[tuple[str, str]]:
    return [(finding.subject, finding.text) for finding in answer.findings]


def has_ended(path: Path) -> bool:
    """Return whether the process that wrote its id to a file has ended."""
    try:
        return Path(f"/proc/{path.read_text().strip()}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


async def test_survey_returns_the_facts_of_a_host(ssh):
    ssh.add_with_packages("node01")
    facts = await survey_host(ssh, "node01")
    assert (facts.status, facts.reason, facts.findings) == ("ok", "", ())
    assert (facts.mpi, facts.mpi4py, facts.torch) == ("Open MPI v5.0.11", "4.1.0", "2.6.0")
    assert facts.spbench == __version__
    assert facts.cores == len(os.sched_getaffinity(0))
    assert facts.memory_gib >= facts.free_gib > 0
    assert facts.load >= 0
    assert facts.python == ".".join(map(str, sys.version_info[:3]))
    assert facts.interpreter == PYTHON


KERNEL = {
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Kernel Module  535.104.05  Release\n",
    "proc/driver/nvidia/gpus/0000:1a:00.0/information": "Model: \t NVIDIA A100\n",
    "proc/driver/nvidia/gpus/0000:9a:00.0/information": "Model: \t NVIDIA A100\n",
    "sys/bus/pci/devices/0000:1a:00.0/numa_node": "0\n",
    "sys/bus/pci/devices/0000:9a:00.0/numa_node": "1\n",
    "dev/nvidia0": "",
    "dev/nvidia1": "",
    "dev/shm/x": "",
}
"""The files of a host with a GPU on each of two sockets."""


@pytest.fixture
def kernel(tmp_path, monkeypatch) -> Path:
    """Return a folder that replaces /proc, /sys and /dev of the hosts."""
    for name, text in KERNEL.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    source = Path(host_facts.__file__).read_text()
    for name in ("proc/driver", "sys/bus", "dev"):
        source = source.replace(f'Path("/{name}', f'Path("{tmp_path}/{name}')
    (tmp_path / "sent.py").write_text(source.replace("libcuda.so.1", "libnowhere.so.1"))
    monkeypatch.setattr(host_facts, "__file__", str(tmp_path / "sent.py"))
    return tmp_path


def install_torch(packages: Path, built: str) -> None:
    """Install a torch that cannot be imported."""
    (packages / "torch").mkdir()
    (packages / "torch/__init__.py").write_text("raise SystemExit('torch was imported')")
    text = f"from typing import Optional\n\n__version__ = '2.6.0'\ncuda: Optional[str] = {built}\n"
    (packages / "torch/version.py").write_text(text)


async def test_reports_gpus_and_mismatch_of_torch_and_driver(ssh, kernel, messages):
    install_torch(ssh.add_with_packages("node01", "export CUDA_VISIBLE_DEVICES=1"), "'13.0'")
    facts = await survey_host(ssh, "node01")
    assert [(card.address, card.node) for card in facts.gpus.cards] == [
        ("0000:1a:00.0", 0),
        ("0000:9a:00.0", 1),
    ]
    messages.check((facts.devices, facts.torch_cuda))
    assert (facts.gpus.driver, facts.gpus.visible, facts.gpus.usable) == ("535.104.05", "1", 1)
    messages.check([text for subject, text in list_findings(facts) if subject != "shared memory"])
    assert facts.status == "note"


async def test_reports_a_cpu_build_of_torch_on_a_gpu_host(ssh, kernel, messages):
    install_torch(ssh.add_with_packages("node01"), "None")
    facts = await survey_host(ssh, "node01")
    assert facts.torch_cuda == ""
    messages.check(facts.reason)
    assert "pytorch.org" in facts.findings[0].remedy


@pytest.mark.slow
async def test_cuda_awareness_of_mpi_has_its_evidence(ssh):
    name = "spbench_parallel.device.mpi_memory"
    function = "lambda *, started: (None, f'Open MPI: asked with {started}')"
    module = f"import sys, types\nsys.modules[{name!r}] = module = types.ModuleType({name!r})\n"
    ssh.add_with_packages("node01", more=f"{module}module.cuda_aware = {function}\n")
    raising = "def cuda_aware(started):\n    raise RuntimeError('SPBENCH_CUDA_AWARE is 7')\n"
    ssh.add_with_packages("node02", more=f"{module}{raising}module.cuda_aware = cuda_aware\n")
    facts = await survey_named(ssh, "node01", "node02")
    assert facts["node01"].mpi_memory == (None, "Open MPI: asked with False")
    assert facts["node02"].mpi_memory == (None, "SPBENCH_CUDA_AWARE is 7")


async def test_unknown_build_of_torch_gives_no_finding(ssh, kernel):
    packages = ssh.add_with_packages("node01")
    install_torch(packages, "None")
    (packages / "torch/version.py").write_text("__version__ = '2.6.0'\n")
    facts = await survey_host(ssh, "node01")
    assert facts.torch_cuda is None
    assert "torch" not in [subject for subject, _ in list_findings(facts)]


async def test_this_machine_is_surveyed_without_ssh(ssh):
    facts = await survey_named(ssh, "localhost", "127.0.0.9")
    assert not list((ssh.folder / "hosts").iterdir())
    for answer in facts.values():
        assert answer.interpreter == PYTHON
        assert abs(answer.clock_s) < 0.1


async def test_missing_ssh_is_reported(ssh, messages):
    (ssh.folder / "bin/ssh").unlink()
    ssh.env["PATH"] = f"{ssh.folder}/bin"
    facts = await survey_host(ssh, "node01")
    assert facts.status == "unreachable"
    messages.check(facts.reason)
    messages.check(facts.findings[0].remedy)


async def test_banners_of_a_login_shell_are_ignored(ssh):
    long = "head -c 1200000 /dev/zero | tr '\\0' x; echo"
    ssh.add_with_packages(
        "node01", "echo 'spbench-host {no JSON}'", long, "printf 'quota> '", "echo no >&2"
    )
    facts = await survey_host(ssh, "node01")
    assert (facts.status, facts.mpi) == ("ok", "Open MPI v5.0.11")


@pytest.mark.parametrize(
    ("lines", "reason", "fix"),
    [
        (
            "echo 'Permission denied (publickey).' >&2; exit 255",
            "Permission denied (publickey).",
            "ssh-copy-id node01",
        ),
        (
            "echo 'Host key verification failed.' >&2; exit 255",
            "Host key verification failed.",
            "accept its key once: ssh node01 true",
        ),
        ("exit 255", "exit status 255", "ssh -o BatchMode=yes node01 true"),
    ],
)
async def test_refusing_host_is_unreachable(ssh, lines, reason, fix):
    ssh.add("node01", lines)
    facts = await survey_host(ssh, "node01")
    assert (facts.status, facts.reason, facts.cores) == ("unreachable", reason, None)
    (finding,) = facts.findings
    assert finding.status == "missing"
    assert fix in finding.remedy


async def test_unresolved_name_is_reported(ssh, messages):
    facts = await survey_host(ssh, "nowhere")
    assert facts.status == "unreachable"
    messages.check(facts.reason)
    messages.check(facts.findings[0].remedy)


@pytest.mark.slow
async def test_hanging_host_times_out_and_is_killed(ssh, messages):
    ssh.add("node01", f"echo $$ > {ssh.folder}/pid", "trap '' TERM", "exec sleep 60")
    start = time.monotonic()
    facts = await survey_host(ssh, "node01", timeout_seconds=0.4)
    assert facts.status == "unreachable"
    messages.check(facts.reason)
    assert time.monotonic() - start < 4
    assert has_ended(ssh.folder / "pid")


@pytest.mark.slow
async def test_facts_arrive_as_answered_and_closing_kills_the_others(ssh):
    wait = "while [ ! -e {} ]; do sleep 0.02; done"
    ssh.add_with_packages("second", wait.format(ssh.folder / "go"))
    ssh.add("never", f"echo $$ > {ssh.folder}/pid", "exec sleep 60")
    ssh.add_with_packages("first", wait.format(ssh.folder / "pid"))
    names = ["second", "never", "first", "second"]
    settings = LaunchSettings.model_validate({})
    surveyed: Any = survey.survey_hosts(names, settings, ssh.env)
    async with aclosing(surveyed) as arriving:
        assert (await anext(arriving)).host == "first"
        (ssh.folder / "go").touch()
        assert (await anext(arriving)).host == "second"
        assert not has_ended(ssh.folder / "pid")
        closing = time.monotonic()
    assert has_ended(ssh.folder / "pid")
    assert time.monotonic() - closing < ANSWER_TIMEOUT / 2


async def test_number_of_concurrent_queries_is_limited(ssh, monkeypatch):
    querying: set[str] = set()
    highest = 0

    async def query_host(host: str, *_: object) -> HostFacts:
        nonlocal highest
        querying.add(host)
        highest = max(highest, len(querying))
        await asyncio.sleep(0)
        querying.discard(host)
        return HostFacts(host, FindingStatus.OK)

    monkeypatch.setattr(survey, "_query_host", query_host)
    names = [f"node{number}" for number in range(100)]
    settings = LaunchSettings.model_validate({})
    surveyed = survey.survey_hosts([*names, *names], settings, ssh.env)
    assert sorted([answer.host async for answer in surveyed]) == sorted(names)
    assert highest == 64


async def test_python3_answers_if_the_interpreter_is_missing(ssh):
    ssh.add_with_packages("node01", f"PATH={ssh.folder}/bin:$PATH")
    facts = await survey_host(ssh, "node01", python="/opt/nowhere/python")
    assert facts.status == "missing"
    version = ".".join(map(str, sys.version_info[:3]))
    assert list_findings(facts) == [
        ("python", f"/opt/nowhere/python is not there; python3 ({version}) answered instead")
    ]
    assert facts.cores
    assert (facts.mpi, facts.torch) == (None, None)


async def test_host_without_python_is_reported(ssh):
    ssh.add("node01", f"mkdir -p {ssh.folder}/few; ln -sf /bin/sh {ssh.folder}/few/sh")
    ssh.add("node01", (ssh.folder / "hosts/node01").read_text(), f"PATH={ssh.folder}/few")
    facts = await survey_host(ssh, "node01", python="/opt/nowhere/python")
    assert facts.status == "missing"
    assert facts.reason.startswith(
        "neither /opt/nowhere/python nor python3 answers: exit status 127: "
    )
    assert "python3" in facts.reason.rpartition("127")[2]
    assert "launch.python" in facts.findings[0].remedy


async def test_disabled_login_shell_is_reported(ssh):
    ssh.add("node01", "echo 'This account is currently not available.'; exit 1")
    facts = await survey_host(ssh, "node01")
    assert (facts.status, facts.reason) == (
        "missing",
        f"neither {PYTHON} nor python3 answers: exit status 1",
    )


@pytest.mark.slow
async def test_setup_and_environment_reach_the_host_unchanged(ssh):
    packages = ssh.add_with_packages("node01")
    ssh.add("node01")
    strange = packages.rename(packages.parent / "it's $HOME; a")
    facts = await survey_host(ssh, "node01", env={"PYTHONPATH": str(strange)})
    assert facts.torch == "2.6.0"
    assert facts.mpi4py == "4.1.0"
    plain = strange.rename(packages)
    facts = await survey_host(ssh, "node01", setup=["true # no", f"export PYTHONPATH={plain}"])
    assert facts.torch == "2.6.0"
    facts = await survey_host(ssh, "node01", setup=["false"])
    assert "exit status 1: spbench: setup line failed: false" in facts.reason


async def test_rejects_an_invalid_container_command(ssh):
    with pytest.raises(UsageError, match=r"launch\.container"):
        await survey_host(ssh, "node01", container="'open")


async def test_relative_interpreter_does_not_depend_on_the_shell(ssh, monkeypatch):
    ssh.add_with_packages("node01", "cd /")
    monkeypatch.chdir(Path(PYTHON).parent)
    facts = await survey_host(ssh, "node01", python=f"./{Path(PYTHON).name}")
    assert (facts.status, facts.interpreter) == ("ok", PYTHON)


async def test_missing_packages_are_reported_with_a_fix(ssh):
    packages = ssh.add_with_packages("node01", spbench="0.0.1")
    (packages / "mpi4py/MPI.py").write_text("raise RuntimeError('cannot load libmpi.so')")
    facts = await survey_host(ssh, "node01")
    assert facts.status == "missing"
    assert list_findings(facts) == [
        (
            "MPI library",
            f"mpi4py of {PYTHON} finds no MPI library (RuntimeError: cannot load libmpi.so)",
        ),
        ("spbench", f"0.0.1 there, {__version__} here"),
    ]
    assert facts.findings[0].remedy.startswith(f"{PYTHON} -m pip install")
    assert f"'spbench[workers,mpi]=={__version__}'" in facts.findings[1].remedy
    assert (facts.mpi, facts.torch, facts.spbench) == (None, "2.6.0", "0.0.1")


async def survey_host_with_mpi(ssh: SshHosts, module: str) -> HostFacts:
    """Return the facts of a host on which mpi4py is this module."""
    (ssh.add_with_packages("node01") / "mpi4py/MPI.py").write_text(module)
    return await survey_host(ssh, "node01")


async def test_crash_in_the_mpi_library_keeps_the_other_facts(ssh):
    facts = await survey_host_with_mpi(ssh, "import os\nprint('MPI noise')\nos._exit(9)")
    assert facts.cores
    assert "cannot be asked for its MPI library, exit status 9" in facts.reason


@pytest.mark.long
@pytest.mark.slow
async def test_hanging_mpi_library_keeps_the_other_facts(ssh):
    facts = await survey_host_with_mpi(ssh, "import time\ntime.sleep(60)")
    assert facts.cores
    assert "did not tell its MPI library within" in facts.reason


@pytest.mark.slow
async def test_wrong_clock_is_a_note_at_any_latency(ssh, messages):
    late = "import time\nreal = time.time\ntime.time = lambda: real() - 90\n"
    ssh.add_with_packages("late", more=late)
    ssh.add_with_packages("far", "sleep 0.3")
    facts = await survey_named(ssh, "late", "far")
    assert facts["late"].clock_s == pytest.approx(-90, abs=0.1)
    assert facts["late"].status == "note"
    messages.check(facts["late"].reason)
    assert facts["far"].clock_s == pytest.approx(0, abs=0.1)
    assert facts["far"].status == "ok"


ANSWER = {
    "cores": 8,
    "memory_gib": 60.0,
    "free_gib": 50.0,
    "load": 0.1,
    "gpus": {
        "cards": [
            {"model": "NVIDIA H200", "address": f"0000:{n}a:00.0", "node": n, "uuid": None}
            for n in range(2)
        ],
        "undriven": [],
        "files": 2,
        "other_files": False,
        "driver": "580.82.07",
        "cuda": "13.0",
        "visible": None,
        "shared_gib": 64.0,
    },
    "adapters": [],
    "python": "3.12.1",
    "interpreter": "/py",
    "probe": None,
}


def build_port(name: str, state: str) -> dict[str, str]:
    return {"name": name, "port": "1", "state": state, "rate": "400 Gb/sec (4X NDR)"}


def build_probe(library: str, torch: str = "null", worker: str = "true") -> dict[str, object]:
    answer = f'{{"mpi4py": "4", "library": "{library}", "torch": {torch}, "worker": {worker}}}'
    return {"status": 0, "stdout": f"noise\nspbench-probe {answer}\n", "stderr": ""}


def test_inactive_ports_are_reported_if_none_is_active(messages):
    single = parse_facts("a", "/py", ANSWER | {"adapters": [build_port("mlx5_0", "DOWN")]}, 0.0)
    messages.check(single.findings[-1].text)
    ports = [build_port("mlx5_0", "ACTIVE"), build_port("mlx5_1", "DOWN")]
    pair = parse_facts("a", "/py", ANSWER | {"adapters": ports}, 0.0)
    assert [finding.subject for finding in pair.findings] == ["python"]
    messages.check(pair.links)
    messages.check(pair.devices)
    assert [card.node for card in pair.gpus.cards] == [0, 1]
    assert (pair.adapters[1].name, pair.adapters[1].state) == ("mlx5_1", "DOWN")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"probe": build_probe("LAM/MPI 7", '"2.6"')}, "does not know, 'LAM/MPI 7'"),
        ({"probe": build_probe("MPICH", '"2.6"', "false")}, "/py has no spbench_workers"),
        ({"probe": build_probe("MPICH")}, "the halo, memory and compute benchmarks need it"),
        (
            {"python": "3.6.8", "probe": build_probe("MPICH")},
            "/py is Python 3.6.8; ranks need 3.11",
        ),
    ],
)
def test_single_finding_sets_status_and_reason(change, text):
    facts = parse_facts("a", "/py", ANSWER | change, None)
    (finding,) = facts.findings
    assert text in finding.text
    assert finding.remedy
    assert facts.status == "missing"
    assert facts.reason == f"{finding.subject}: {finding.text}"


def test_worst_finding_sets_the_status(messages):
    answer = ANSWER | {"adapters": [build_port("mlx5_0", "DOWN")], "probe": build_probe("MPICH")}
    facts = parse_facts("a", "/py", answer, 5.0)
    assert [finding.status for finding in facts.findings] == ["missing", "note", "note"]
    assert facts.status == "missing"
    messages.check(facts.findings[1].text)


def test_equal_findings_of_hosts_are_grouped():
    hosts = [
        parse_facts(name, "/py", ANSWER | {"probe": build_probe("MPICH")}, 0.0) for name in "ab"
    ]
    ((finding, names),) = group_findings(hosts).items()
    assert (finding.subject, finding.remedy, names) == ("torch", f"/py -m {INSTALL}", ["a", "b"])


def test_survey_program_runs_on_old_python():
    length, _, text = build_survey_input(LaunchSettings.model_validate({})).partition(b"\n")
    assert len(text) == int(length)
    tree = ast.parse(text, feature_version=(3, 6))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.NamedExpr)]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions
    for function in functions:
        annotations = [function.returns, *(arg.annotation for arg in function.args.args)]
        assert not [node for node in annotations if isinstance(node, (ast.Subscript, ast.BinOp))]


def test_survey_program_ends_with_its_input():
    from spbench.launch.survey.command import MARK, build_survey_command

    settings = LaunchSettings.model_validate({})
    text = build_survey_input(settings) + b"\n\n"
    process = subprocess.run(
        build_survey_command(settings), input=text, capture_output=True, timeout=30
    )
    assert process.returncode == 0
    assert process.stdout.decode().count(MARK) == 3


def test_variables_are_passed_without_showing_their_values():
    from spbench.launch.survey.command import build_survey_command

    values = {"NOTE": "s3cret; it's $HOME\n\n", "EMPTY": "", "LETTERS": "größe"}
    setup = ["env -0 >&2"]
    settings = LaunchSettings.model_validate({"env": values, "setup": setup})
    args = build_survey_command(settings)
    assert not any("s3cret" in arg for arg in args)
    process = subprocess.run(
        args, input=build_survey_input(settings), capture_output=True, timeout=30
    )
    assert process.returncode == 0
    printed = dict(
        entry.split("=", 1) for entry in process.stderr.decode().split("\0") if "=" in entry
    )
    assert {name: printed[name] for name in values} == values
