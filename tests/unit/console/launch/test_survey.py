"""Facts of hosts, over a stand-in for ssh."""

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
from unit.ssh_hosts import SshHosts, idle_hosts

PYTHON = sys.executable


@pytest.fixture
def ssh(tmp_path, monkeypatch) -> SshHosts:
    return idle_hosts(tmp_path / "ssh", monkeypatch)


async def survey_of(ssh: SshHosts, *names: str, **keys: object) -> dict[str, HostFacts]:
    settings = LaunchSettings.model_validate(keys)
    return {facts.host: facts async for facts in survey.survey_hosts(names, settings, ssh.env)}


async def facts(ssh: SshHosts, name: str, **keys: object) -> HostFacts:
    return (await survey_of(ssh, name, **keys))[name]


def told(found: HostFacts) -> list[tuple[str, str]]:
    return [(finding.subject, finding.text) for finding in found.findings]


def gone(path: Path) -> bool:
    """True if the process that wrote its id to a file has ended."""
    try:
        return Path(f"/proc/{path.read_text().strip()}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


async def test_a_host_tells_what_it_has(ssh):
    ssh.equip("node01")
    found = await facts(ssh, "node01")
    assert (found.status, found.reason, found.findings) == ("ok", "", ())
    assert (found.mpi, found.mpi4py, found.torch) == ("Open MPI v5.0.11", "4.1.0", "2.6.0")
    assert found.spbench == __version__
    assert found.cores == len(os.sched_getaffinity(0))
    assert found.memory_gib >= found.free_gib > 0
    assert found.load >= 0
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.interpreter == PYTHON


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
    """A folder in whose proc, sys and dev hosts look in place of their own."""
    for name, text in KERNEL.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    sent = Path(host_facts.__file__).read_text()
    for name in ("proc/driver", "sys/bus", "dev"):
        sent = sent.replace(f'Path("/{name}', f'Path("{tmp_path}/{name}')
    (tmp_path / "sent.py").write_text(sent.replace("libcuda.so.1", "libnowhere.so.1"))
    monkeypatch.setattr(host_facts, "__file__", str(tmp_path / "sent.py"))
    return tmp_path


def torch_in(packages: Path, built: str) -> None:
    """Install a torch that cannot be imported."""
    (packages / "torch").mkdir()
    (packages / "torch/__init__.py").write_text("raise SystemExit('torch was imported')")
    text = f"from typing import Optional\n\n__version__ = '2.6.0'\ncuda: Optional[str] = {built}\n"
    (packages / "torch/version.py").write_text(text)


async def test_a_host_tells_its_gpus_and_whether_torch_and_driver_fit(ssh, kernel):
    torch_in(ssh.equip("node01", "export CUDA_VISIBLE_DEVICES=1"), "'13.0'")
    found = await facts(ssh, "node01")
    assert [(card.address, card.node) for card in found.gpus.cards] == [
        ("0000:1a:00.0", 0),
        ("0000:9a:00.0", 1),
    ]
    assert (found.devices, found.torch_cuda) == ("2 x NVIDIA A100", "13.0")
    assert (found.gpus.driver, found.gpus.visible, found.gpus.usable) == ("535.104.05", "1", 1)
    assert [text for subject, text in told(found) if subject != "shared memory"] == [
        "the driver is 535.104.05, and torch is built for CUDA 13.0, which needs driver 580.65.06 "
        "or newer",
        "libcuda.so.1 cannot be loaded: torch sees no GPU without it",
        "CUDA_VISIBLE_DEVICES is '1', which shows 1 of 2 GPUs",
    ]
    assert found.status == "note"


async def test_a_host_with_gpus_and_a_torch_for_the_cpu(ssh, kernel):
    torch_in(ssh.equip("node01"), "None")
    found = await facts(ssh, "node01")
    assert found.torch_cuda == ""
    assert found.reason == (
        "torch: 2 x NVIDIA A100 here, torch is a CPU build (2.6.0): no rank uses a GPU"
    )
    assert "pytorch.org" in found.findings[0].mend


@pytest.mark.slow
async def test_whether_mpi_takes_memory_of_gpus_comes_with_its_evidence(ssh):
    name = "spbench_parallel.device.mpi_memory"
    told = "lambda *, started: (None, f'Open MPI: asked with {started}')"
    module = f"import sys, types\nsys.modules[{name!r}] = module = types.ModuleType({name!r})\n"
    ssh.equip("node01", more=f"{module}module.detect_cuda_awareness = {told}\n")
    raising = (
        "def detect_cuda_awareness(started):\n    raise RuntimeError('SPBENCH_CUDA_AWARE is 7')\n"
    )
    ssh.equip(
        "node02", more=f"{module}{raising}module.detect_cuda_awareness = detect_cuda_awareness\n"
    )
    found = await survey_of(ssh, "node01", "node02")
    assert found["node01"].mpi_memory == (None, "Open MPI: asked with False")
    assert found["node02"].mpi_memory == (None, "SPBENCH_CUDA_AWARE is 7")


async def test_a_torch_whose_build_cannot_be_read_is_not_judged(ssh, kernel):
    packages = ssh.equip("node01")
    torch_in(packages, "None")
    (packages / "torch/version.py").write_text("__version__ = '2.6.0'\n")
    found = await facts(ssh, "node01")
    assert found.torch_cuda is None
    assert "torch" not in [subject for subject, _ in told(found)]


async def test_this_machine_needs_no_ssh(ssh):
    found = await survey_of(ssh, "localhost", "127.0.0.9")
    assert not list((ssh.folder / "hosts").iterdir())
    for one in found.values():
        assert one.interpreter == PYTHON
        assert abs(one.clock_s) < 0.1


async def test_a_machine_without_ssh_is_told(ssh):
    (ssh.folder / "bin/ssh").unlink()
    ssh.env["PATH"] = f"{ssh.folder}/bin"
    found = await facts(ssh, "node01")
    assert (found.status, found.reason) == (
        "unreachable",
        "ssh cannot run here (No such file or directory)",
    )
    assert "install ssh on this machine" in found.findings[0].mend


async def test_banners_of_a_login_shell_do_no_harm(ssh):
    long = "head -c 1200000 /dev/zero | tr '\\0' x; echo"
    ssh.equip("node01", "echo 'spbench-host {no JSON}'", long, "printf 'quota> '", "echo no >&2")
    found = await facts(ssh, "node01")
    assert (found.status, found.mpi) == ("ok", "Open MPI v5.0.11")


@pytest.mark.parametrize(
    ("lines", "reason", "mend"),
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
async def test_a_host_that_refuses_is_unreachable(ssh, lines, reason, mend):
    ssh.add("node01", lines)
    found = await facts(ssh, "node01")
    assert (found.status, found.reason, found.cores) == ("unreachable", reason, None)
    (finding,) = found.findings
    assert finding.status == "missing"
    assert mend in finding.mend


async def test_a_name_that_does_not_resolve(ssh):
    found = await facts(ssh, "nowhere")
    assert (found.status, found.reason) == ("unreachable", "its name does not resolve")
    assert "correct the name" in found.findings[0].mend


@pytest.mark.slow
async def test_a_host_that_hangs_meets_its_deadline_and_leaves_nothing(ssh, monkeypatch):
    monkeypatch.setattr(survey, "ANSWER_TIMEOUT", 0.4)
    ssh.add("node01", f"echo $$ > {ssh.folder}/pid", "trap '' TERM", "exec sleep 60")
    started = time.monotonic()
    found = await facts(ssh, "node01")
    assert (found.status, found.reason) == ("unreachable", "no answer in 0.4 s")
    assert time.monotonic() - started < 4
    assert gone(ssh.folder / "pid")


@pytest.mark.slow
async def test_facts_come_in_the_order_of_arrival_and_the_rest_can_be_cancelled(ssh):
    wait = "while [ ! -e {} ]; do sleep 0.02; done"
    ssh.equip("second", wait.format(ssh.folder / "go"))
    ssh.add("never", f"echo $$ > {ssh.folder}/pid", "exec sleep 60")
    ssh.equip("first", wait.format(ssh.folder / "pid"))
    names = ["second", "never", "first", "second"]
    settings = LaunchSettings.model_validate({})
    found: Any = survey.survey_hosts(names, settings, ssh.env)
    async with aclosing(found) as arriving:
        assert (await anext(arriving)).host == "first"
        (ssh.folder / "go").touch()
        assert (await anext(arriving)).host == "second"
        assert not gone(ssh.folder / "pid")
        closing = time.monotonic()
    assert gone(ssh.folder / "pid")
    assert time.monotonic() - closing < ANSWER_TIMEOUT / 2


async def test_no_more_than_so_many_are_asked_at_once(ssh, monkeypatch):
    asking: set[str] = set()
    most = 0

    async def ask(host: str, *_: object) -> HostFacts:
        nonlocal most
        asking.add(host)
        most = max(most, len(asking))
        await asyncio.sleep(0)
        asking.discard(host)
        return HostFacts(host, FindingStatus.OK)

    monkeypatch.setattr(survey, "_query_host", ask)
    names = [f"node{number}" for number in range(100)]
    settings = LaunchSettings.model_validate({})
    found = [facts.host async for facts in survey.survey_hosts([*names, *names], settings, ssh.env)]
    assert sorted(found) == sorted(names)
    assert most == 64


async def test_another_interpreter_answers_where_the_ranks_is_not(ssh):
    ssh.equip("node01", f"PATH={ssh.folder}/bin:$PATH")
    found = await facts(ssh, "node01", python="/opt/nowhere/python")
    assert found.status == "missing"
    version = ".".join(map(str, sys.version_info[:3]))
    assert told(found) == [
        ("python", f"/opt/nowhere/python is not there; python3 ({version}) answered instead")
    ]
    assert found.cores
    assert (found.mpi, found.torch) == (None, None)


async def test_a_host_without_any_python(ssh):
    ssh.add("node01", f"mkdir -p {ssh.folder}/few; ln -sf /bin/sh {ssh.folder}/few/sh")
    ssh.add("node01", (ssh.folder / "hosts/node01").read_text(), f"PATH={ssh.folder}/few")
    found = await facts(ssh, "node01", python="/opt/nowhere/python")
    assert found.status == "missing"
    assert found.reason.startswith(
        "neither /opt/nowhere/python nor python3 answers: exit status 127: "
    )
    assert "python3" in found.reason.rpartition("127")[2]
    assert "launch.python" in found.findings[0].mend


async def test_a_shell_that_lets_nobody_in(ssh):
    ssh.add("node01", "echo 'This account is currently not available.'; exit 1")
    found = await facts(ssh, "node01")
    assert (found.status, found.reason) == (
        "missing",
        f"neither {PYTHON} nor python3 answers: exit status 1",
    )


@pytest.mark.slow
async def test_setup_lines_and_environment_reach_the_host_as_they_are(ssh):
    packages = ssh.equip("node01")
    ssh.add("node01")
    strange = packages.rename(packages.parent / "it's $HOME; a")
    found = await facts(ssh, "node01", env={"PYTHONPATH": str(strange)})
    assert found.torch == "2.6.0"
    assert found.mpi4py == "4.1.0"
    plain = strange.rename(packages)
    found = await facts(ssh, "node01", setup=["true # no", f"export PYTHONPATH={plain}"])
    assert found.torch == "2.6.0"
    found = await facts(ssh, "node01", setup=["false"])
    assert "exit status 1: spbench: setup line failed: false" in found.reason


async def test_a_container_that_is_no_command_line(ssh):
    with pytest.raises(UsageError, match=r"launch\.container"):
        await facts(ssh, "node01", container="'open")


async def test_a_relative_interpreter_is_found_from_wherever_the_shell_stands(ssh, monkeypatch):
    ssh.equip("node01", "cd /")
    monkeypatch.chdir(Path(PYTHON).parent)
    found = await facts(ssh, "node01", python=f"./{Path(PYTHON).name}")
    assert (found.status, found.interpreter) == ("ok", PYTHON)


async def test_what_the_ranks_lack_is_named_with_its_mend(ssh):
    packages = ssh.equip("node01", spbench="0.0.1")
    (packages / "mpi4py/MPI.py").write_text("raise RuntimeError('cannot load libmpi.so')")
    found = await facts(ssh, "node01")
    assert found.status == "missing"
    assert told(found) == [
        (
            "MPI library",
            f"mpi4py of {PYTHON} finds no MPI library (RuntimeError: cannot load libmpi.so)",
        ),
        ("spbench", f"0.0.1 there, {__version__} here"),
    ]
    assert found.findings[0].mend.startswith(f"{PYTHON} -m pip install")
    assert f"'spbench[workers,mpi]=={__version__}'" in found.findings[1].mend
    assert (found.mpi, found.torch, found.spbench) == (None, "2.6.0", "0.0.1")


async def facts_with_mpi(ssh: SshHosts, module: str) -> HostFacts:
    """Return the facts of a host on which mpi4py is this module."""
    (ssh.equip("node01") / "mpi4py/MPI.py").write_text(module)
    return await facts(ssh, "node01")


async def test_an_mpi_library_that_ends_the_interpreter_leaves_the_other_facts(ssh):
    found = await facts_with_mpi(ssh, "import os\nprint('MPI noise')\nos._exit(9)")
    assert found.cores
    assert "cannot be asked for its MPI library, exit status 9" in found.reason


@pytest.mark.long
@pytest.mark.slow
async def test_an_mpi_library_that_hangs_leaves_the_other_facts(ssh, monkeypatch):
    monkeypatch.setattr("spbench.launch.survey.command.PROBE_TIMEOUT", 0.3)
    found = await facts_with_mpi(ssh, "import time\ntime.sleep(60)")
    assert found.cores
    assert "did not tell its MPI library within" in found.reason


@pytest.mark.slow
async def test_a_clock_that_is_off_is_a_note_however_long_the_way(ssh):
    late = "import time\nreal = time.time\ntime.time = lambda: real() - 90\n"
    ssh.equip("late", more=late)
    ssh.equip("far", "sleep 0.3")
    found = await survey_of(ssh, "late", "far")
    assert found["late"].clock_s == pytest.approx(-90, abs=0.1)
    assert found["late"].status == "note"
    assert "90.0 s behind this machine's" in found["late"].reason
    assert found["far"].clock_s == pytest.approx(0, abs=0.1)
    assert found["far"].status == "ok"


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


def port(name: str, state: str) -> dict[str, str]:
    return {"name": name, "port": "1", "state": state, "rate": "400 Gb/sec (4X NDR)"}


def probed(library: str, torch: str = "null", worker: str = "true") -> dict[str, object]:
    said = f'{{"mpi4py": "4", "library": "{library}", "torch": {torch}, "worker": {worker}}}'
    return {"status": 0, "stdout": f"noise\nspbench-probe {said}\n", "stderr": ""}


def test_ports_of_adapters():
    one = parse_facts("a", "/py", ANSWER | {"adapters": [port("mlx5_0", "DOWN")]}, 0.0)
    assert "no port is active (mlx5_0:1 DOWN)" in one.findings[-1].text
    both = [port("mlx5_0", "ACTIVE"), port("mlx5_1", "DOWN")]
    two = parse_facts("a", "/py", ANSWER | {"adapters": both}, 0.0)
    assert [finding.subject for finding in two.findings] == ["python"]
    assert two.links == "1 x 400 Gb/sec (4X NDR), 1 x DOWN"
    assert two.devices == "2 x NVIDIA H200"
    assert [card.node for card in two.gpus.cards] == [0, 1]
    assert (two.adapters[1].name, two.adapters[1].state) == ("mlx5_1", "DOWN")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"probe": probed("LAM/MPI 7", '"2.6"')}, "does not know, 'LAM/MPI 7'"),
        ({"probe": probed("MPICH", '"2.6"', "false")}, "/py has no spbench_workers"),
        ({"probe": probed("MPICH")}, "the halo, memory and compute benchmarks need it"),
        ({"python": "3.6.8", "probe": probed("MPICH")}, "/py is Python 3.6.8; ranks need 3.11"),
    ],
)
def test_one_finding_is_said_once_with_its_mend(change, text):
    found = parse_facts("a", "/py", ANSWER | change, None)
    (finding,) = found.findings
    assert text in finding.text
    assert finding.mend
    assert found.status == "missing"
    assert found.reason == f"{finding.subject}: {finding.text}"


def test_the_worst_finding_gives_the_status():
    answer = ANSWER | {"adapters": [port("mlx5_0", "DOWN")], "probe": probed("MPICH")}
    found = parse_facts("a", "/py", answer, 5.0)
    assert [finding.status for finding in found.findings] == ["missing", "note", "note"]
    assert found.status == "missing"
    assert "5.0 s ahead of" in found.findings[1].text


def test_equal_findings_of_several_hosts_are_one():
    hosts = [parse_facts(name, "/py", ANSWER | {"probe": probed("MPICH")}, 0.0) for name in "ab"]
    ((finding, names),) = group_findings(hosts).items()
    assert (finding.subject, finding.mend, names) == ("torch", f"/py -m {INSTALL}", ["a", "b"])


def test_the_program_is_python_of_any_age():
    length, _, text = build_survey_input(LaunchSettings.model_validate({})).partition(b"\n")
    assert len(text) == int(length)
    tree = ast.parse(text, feature_version=(3, 6))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.NamedExpr)]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions
    for function in functions:
        annotations = [function.returns, *(arg.annotation for arg in function.args.args)]
        assert not [one for one in annotations if isinstance(one, (ast.Subscript, ast.BinOp))]


def test_the_program_ends_with_its_input():
    from spbench.launch.survey.command import MARK, build_survey_command

    settings = LaunchSettings.model_validate({})
    sent = build_survey_input(settings) + b"\n\n"
    done = subprocess.run(
        build_survey_command(settings), input=sent, capture_output=True, timeout=30
    )
    assert done.returncode == 0
    assert done.stdout.decode().count(MARK) == 3


def test_a_question_shows_no_values_of_variables_and_gives_them():
    from spbench.launch.survey.command import build_survey_command

    values = {"NOTE": "s3cret; it's $HOME\n\n", "EMPTY": "", "LETTERS": "größe"}
    setup = ["env -0 >&2"]
    settings = LaunchSettings.model_validate({"env": values, "setup": setup})
    words = build_survey_command(settings)
    assert not any("s3cret" in word for word in words)
    done = subprocess.run(
        words, input=build_survey_input(settings), capture_output=True, timeout=30
    )
    assert done.returncode == 0
    printed = dict(
        entry.split("=", 1) for entry in done.stderr.decode().split("\0") if "=" in entry
    )
    assert {name: printed[name] for name in values} == values
