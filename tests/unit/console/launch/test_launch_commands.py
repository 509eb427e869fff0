"""Tests of the commands of the four launchers: argv, environment and hostfile."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.errors import UsageError
from spbench.launch.detect import load_launcher
from spbench.launch.launcher import Command, JobSpec, RankBlock
from spbench.launch.launchers import mpirun_rsh
from spbench.suites.settings import LaunchSettings

FOUR = (RankBlock("node01", 2), RankBlock("node02", 2))
HOSTFILE = Path("/home/u/.spbench/hostfiles/0123456789ab")
PYTHON = "/venv/bin/python"
PROGRAM = (PYTHON, "-m", "mpi4py", "-m", "spbench_workers")
TAIL = " ".join(PROGRAM)
NOTE = "it's $HOME; x"
PRIVATE = {"SPBENCH_TOKEN": "secret", "SPBENCH_RUN": "r1"}
NO_FAST_SSH = {"MV2_FASTSSH_THRESHOLD": "2147483647"}
"""Turns off the start method of mpirun_rsh for many hosts, which breaks arguments."""


@pytest.fixture(autouse=True)
def plain_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(mpirun_rsh, "NVIDIA_DEVICE", tmp_path / "no-such-device")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.chdir(tmp_path)


def install_mvapich2(folder: Path, device: str, configured: str) -> Path:
    """Return an mpirun_rsh next to an mpiname that prints this configuration."""
    mpiname = folder / "mpiname"
    mpiname.write_text(
        "#!/bin/sh\n[ \"$1\" = -a ] && cat <<'TEXT'\n"
        f"MVAPICH2 2.3.7 Wed March 02 22:00:00 EST 2022 {device}\n\nCompilation\n"
        f"CC: gcc    -DNDEBUG -O2\n\nConfiguration\n--prefix=/opt/mvapich2 {configured}\nTEXT\n"
    )
    mpiname.chmod(0o755)
    return folder / "mpirun_rsh"


def launch(
    name: str,
    np: int = 4,
    *,
    placement: tuple[RankBlock, ...] = FOUR,
    oversubscribed: bool = False,
    library: str = "",
    env: dict[str, str] | None = None,
    hostfile: Path | None = HOSTFILE,
    program: tuple[str, ...] = PROGRAM,
    rank_env: dict[str, str] | None = None,
    executable: Path | None = None,
    **keys: object,
) -> Command:
    job = JobSpec(
        np=np,
        placement=placement,
        settings=LaunchSettings.model_validate({**keys, "env": rank_env or {}}),
        program=program,
        private_env=PRIVATE,
        oversubscribed=oversubscribed,
        hostfile=hostfile,
        library=library,
    )
    program_path = executable or Path(f"/mpi/{name}")
    return load_launcher(name).command(program_path, job, env or {"HOME": "/home/u"})


def join_argv(command: Command) -> str:
    return shlex.join(command.argv)


def test_mpirun_rsh_starts_ranks_on_each_host():
    command = launch("mpirun_rsh")
    assert join_argv(command) == (
        f"/mpi/mpirun_rsh --export-all -np 4 -hostfile {HOSTFILE} MV2_HYBRID_BINDING_POLICY=spread "
        f"MV2_CPU_BINDING_POLICY=hybrid PYTHONNOUSERSITE=true MV2_USE_CUDA=0 MV2_USE_GDRCOPY=0 "
        f"{TAIL}"
    )
    assert command.env == {"HOME": "/home/u", "MV2_MPIRUN_TIMEOUT": "60", **NO_FAST_SSH, **PRIVATE}


def test_mpirun_rsh_preloads_its_library_for_gpus(monkeypatch, tmp_path):
    monkeypatch.setattr(mpirun_rsh, "NVIDIA_DEVICE", Path("/dev/null"))
    library = tmp_path / "mv2/lib/libmpi.so"
    library.parent.mkdir(parents=True)
    library.touch()
    with_cuda = install_mvapich2(tmp_path, "ch3:mrail", "--enable-cuda --with-cuda=/usr/local/cuda")
    command = launch(
        "mpirun_rsh",
        executable=with_cuda,
        env={"MV2_HOME": str(tmp_path / "mv2"), "LD_PRELOAD": "/old.so", "MV2_USE_CUDA": "9"},
    )
    assert join_argv(command) == (
        f"{with_cuda} --export-all -np 4 -hostfile {HOSTFILE} MV2_HYBRID_BINDING_POLICY=spread "
        f"MV2_CPU_BINDING_POLICY=hybrid PYTHONNOUSERSITE=true MV2_USE_CUDA=1 MV2_USE_GDRCOPY=0 "
        f"LD_PRELOAD={library} {TAIL}"
    )
    # --export-all overrides assignments, so assigned names must not be in the environment
    assert set(command.env) == {"MV2_HOME", "MV2_MPIRUN_TIMEOUT", *NO_FAST_SSH, *PRIVATE}


@pytest.mark.parametrize(
    ("device", "configured", "value"),
    [
        ("ch3:mrail", "--enable-cuda=basic --with-cuda=/usr/local/cuda", "1"),
        ("ch3:mrail", "--with-rdma=gen2", "0"),
        ("ch3:mrail", "--disable-cuda", "0"),
        ("ch3:mrail", "--with-cuda=/usr/local/cuda", "0"),
        ("ch3:mrail", "--libdir=/opt/mvapich2/gdr/lib", "1"),
        ("ch3:mrail", "--libdir=/opt/mvapich2/gdr/lib --without-cuda", "0"),
        ("ch3:mrail", "--enable-cuda=no --with-cuda=/usr/local/cuda", "0"),
        ("ch3:sock", "--with-device=ch3:sock", "0"),
        ("ch3:sock", "--with-device=ch3:sock --enable-cuda", "0"),
    ],
)
def test_mpirun_rsh_enables_cuda_if_the_library_supports_it(
    monkeypatch, tmp_path, device, configured, value
):
    monkeypatch.setattr(mpirun_rsh, "NVIDIA_DEVICE", Path("/dev/null"))
    command = launch("mpirun_rsh", executable=install_mvapich2(tmp_path, device, configured))
    assert f"MV2_USE_CUDA={value}" in command.argv


def test_mpirun_rsh_disables_cuda_for_unknown_libraries(monkeypatch):
    monkeypatch.setattr(mpirun_rsh, "NVIDIA_DEVICE", Path("/dev/null"))
    assert "MV2_USE_CUDA=0" in launch("mpirun_rsh").argv


def test_mpirun_rsh_settings_override_its_defaults():
    command = launch(
        "mpirun_rsh",
        env={"OMP_NUM_THREADS": "7", "NOTE": "old"},
        threads=4,
        rank_env={
            "MV2_USE_CUDA": "1",
            "MV2_USE_GDRCOPY": "1",
            "MV2_NOTE": "a b",
            "NOTE": "it's $HOME; x",
            "EMPTY": "",
        },
        args=("-ppn", "2"),
        start_timeout=12.5,
    )
    assert join_argv(command) == shlex.join(
        [
            *f"/mpi/mpirun_rsh --export-all -np 4 -ppn 2 -hostfile {HOSTFILE}".split(),
            "MV2_ENABLE_AFFINITY=0",
            "PYTHONNOUSERSITE=true",
            "MV2_USE_CUDA=1",
            "MV2_USE_GDRCOPY=1",
            "MV2_NOTE='a b'",
            *PROGRAM,
        ]
    )
    hidden = {"OMP_NUM_THREADS": "4", "NOTE": "it's $HOME; x", "EMPTY": ""}
    assert command.env == {"MV2_MPIRUN_TIMEOUT": "13", **NO_FAST_SSH, **hidden, **PRIVATE}


@pytest.mark.parametrize(
    ("bind", "oversubscribed", "assignments"),
    [
        ("auto", True, "MV2_ENABLE_AFFINITY=0"),
        ("none", False, "MV2_ENABLE_AFFINITY=0"),
        (
            "core",
            False,
            "MV2_ENABLE_AFFINITY=1 MV2_CPU_BINDING_POLICY=bunch MV2_CPU_BINDING_LEVEL=core",
        ),
        (
            "numa",
            False,
            "MV2_ENABLE_AFFINITY=1 MV2_CPU_BINDING_POLICY=bunch MV2_CPU_BINDING_LEVEL=numanode",
        ),
    ],
)
def test_mpirun_rsh_binds_to_the_assigned_cores(bind, oversubscribed, assignments):
    command = launch("mpirun_rsh", bind=bind, oversubscribed=oversubscribed)
    assert f"{HOSTFILE} {assignments} PYTHONNOUSERSITE=true" in join_argv(command)


def test_mpirun_rsh_of_mvapich_3_has_its_own_prefix():
    command = launch("mpirun_rsh", library="mvapich", bind="none")
    assert "MVP_ENABLE_AFFINITY=0" in command.argv
    assert command.env["MVP_MPIRUN_TIMEOUT"] == "60"


def test_mpirun_rsh_timeouts_are_in_its_environment():
    command = launch("mpirun_rsh", rank_env={"MPIEXEC_TIMEOUT": "9", "MV2_MPIRUN_TIMEOUT": "5"})
    assert command.env == {
        "HOME": "/home/u",
        "MV2_MPIRUN_TIMEOUT": "5",
        "MPIEXEC_TIMEOUT": "9",
        **NO_FAST_SSH,
        **PRIVATE,
    }
    assert not any(word.startswith(("MPIEXEC", "MV2_MPIRUN")) for word in command.argv)


def test_mpirun_rsh_keeps_its_path():
    command = launch("mpirun_rsh", env={"PATH": "/bin", "A": "1"}, rank_env={"PATH": "/x y"})
    assert "PATH='/x y'" in command.argv
    expected = {"PATH": "/x y", "A": "1", "MV2_MPIRUN_TIMEOUT": "60"}
    assert command.env == {**expected, **NO_FAST_SSH, **PRIVATE}


def test_mpirun_rsh_writes_a_hostfile():
    write = load_launcher("mpirun_rsh").hostfile
    assert write((RankBlock("n1", 2, "mlx5_0"), RankBlock("n2", 1))) == "n1:2:mlx5_0\nn2:1\n"
    hostname = socket.gethostname()
    assert write(()) == f"{hostname}\n"
    # to mpirun_rsh, localhost is another machine
    assert write((RankBlock("localhost", 3),)) == f"{hostname}:3\n"
    with pytest.raises(UsageError, match="takes no IPv6 address: give the name of fe80::1"):
        write((RankBlock("fe80::1", 1),))
    with pytest.raises(UsageError, match="no host name of digits only: give another of 123"):
        write((RankBlock("123", 1),))


def test_mpirun_rsh_rejects_paths_that_it_breaks(monkeypatch, tmp_path, messages):
    with messages.raises(UsageError):
        launch("mpirun_rsh", program=("/a=b/python",))
    with messages.raises(UsageError):
        launch("mpirun_rsh", hostfile=Path("/" + "x" * 300))
    folder = tmp_path / "two words"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with messages.raises(UsageError):
        launch("mpirun_rsh")
    link = tmp_path / "it's"
    link.symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    with messages.raises(UsageError):
        launch("mpirun_rsh", env={"PWD": str(link)})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"env": {"LD_LIBRARY_PATH": "/a b/lib"}}, "LD_LIBRARY_PATH on unquoted, and '/a b/lib'"),
        ({"rank_env": {"LD_LIBRARY_PATH": "/a'b"}}, "LD_LIBRARY_PATH on unquoted"),
        ({"args": ["-fastssh"]}, "launch.args: with -fastssh mpirun_rsh has shells read"),
        ({"args": ["--fast"]}, "launch.args: with --fast mpirun_rsh"),
        ({"args": ["-sg", "video"]}, "launch.args: with -sg mpirun_rsh"),
    ],
)
def test_mpirun_rsh_rejects_values_that_break_its_quoting(keys, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        launch("mpirun_rsh", **keys)


def test_mpirun_rsh_accepts_harmless_paths_and_options():
    env = {"LD_LIBRARY_PATH": "/opt/x-1.2/lib:/usr/lib"}
    assert (
        launch("mpirun_rsh", env=env, args=["-legacy"]).env["LD_LIBRARY_PATH"]
        == env["LD_LIBRARY_PATH"]
    )


@pytest.mark.parametrize("name", ["openmpi", "hydra", "mpirun_rsh", "srun"])
@pytest.mark.parametrize("variable", ["LICENSE", "DB_PASSWORD", "MY_TOKEN", "OMP_PLACES"])
def test_arguments_do_not_show_values_of_variables(name, variable):
    """All users of a host can read arguments, only the owner can read the environment."""
    command = launch(name, rank_env={variable: "s3cret"}, env={variable: "of the console"})
    assert not any("s3cret" in word for word in command.argv)
    assert command.env[variable] == "s3cret"


@pytest.mark.parametrize("name", ["openmpi", "hydra", "mpirun_rsh"])
@pytest.mark.parametrize(
    "variable", ["LD_PRELOAD", "TMPDIR", "PATH", "SSH_AUTH_SOCK", "OMPI_MCA_btl", "HYDRA_DEBUG"]
)
def test_launcher_variables_are_set_only_for_ranks(name, variable):
    command = launch(name, rank_env={variable: "/own"})
    assert any(variable in word for word in command.argv)
    if (name, variable) != ("mpirun_rsh", "PATH"):  # it searches programs in its own PATH
        assert command.env.get(variable) != "/own"


TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=("Cs",)), max_size=30
) | st.text("'\"$`\\ \n\t;&|*?~#{}!()<>=a", max_size=12)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(TEXT, min_size=1, max_size=5), st.lists(TEXT, min_size=1, max_size=5))
def test_mpirun_rsh_quoting_survives_its_shell_line(arguments, values):
    names = [f"MV2_V{index}" for index in range(len(values))]
    command = launch(
        "mpirun_rsh",
        program=("/venv/bin/python", *arguments),
        rank_env=dict(zip(names, values, strict=True)),
    )
    passed = command.argv[-len(arguments) :]
    options = command.argv[: command.argv.index("/venv/bin/python")]
    pairs = [word for word in options if word.startswith("MV2_V")]
    # mpirun_rsh puts arguments between '...' and leaves assignments unchanged
    shell = " ".join(
        ["/usr/bin/env -i", *pairs, "printf '%s\\0'", *(f"'{word}'" for word in passed)]
    )
    printed = subprocess.run(["bash", "-c", shell], capture_output=True, check=True).stdout
    assert printed.decode() == "".join(f"{argument}\0" for argument in arguments)
    env = subprocess.run(
        ["bash", "-c", " ".join(["/usr/bin/env -i", *pairs, "/usr/bin/env -0"])],
        capture_output=True,
        check=True,
    ).stdout.decode()
    assert env == "".join(f"{name}={value}\0" for name, value in zip(names, values, strict=True))


def test_hydra_starts_ranks_on_each_host():
    command = launch("hydra", library="mpich", ranks_per_host=2, threads=1, args=("-prepend-rank",))
    assert join_argv(command) == (
        f"/mpi/hydra -n 4 -f {HOSTFILE} -ppn 2 -genvall -bind-to core -prepend-rank {TAIL}"
    )
    assert command.env == {"HOME": "/home/u", "OMP_NUM_THREADS": "1", **PRIVATE}
    assert load_launcher("hydra").hostfile(FOUR) == "node01:2\nnode02:2\n"


def test_hydra_needs_no_hostfile_on_this_machine():
    rank_env = {"NOTE": "a 'b' $c", "LD_PRELOAD": "/a b.so"}
    command = launch("hydra", placement=(), hostfile=None, rank_env=rank_env)
    assert command.argv == (
        *["/mpi/hydra", "-n", "4", "-genvall", "-bind-to", "core", "-genv", "LD_PRELOAD"],
        "/a b.so",
        *PROGRAM,
    )
    assert command.env == {"HOME": "/home/u", "NOTE": "a 'b' $c", **PRIVATE}
    assert load_launcher("hydra").hostfile(()) is None


def test_rank_with_several_threads_is_not_bound_to_a_core():
    assert "-bind-to none" in join_argv(launch("hydra", threads=4))
    assert "-bind-to core" in join_argv(launch("hydra", threads=4, bind="core"))
    assert "-bind-to none" in join_argv(launch("hydra", oversubscribed=True))
    assert "-bind-to numa" in join_argv(launch("hydra", oversubscribed=True, bind="numa"))


def test_hydra_of_intel_mpi_binds_by_environment():
    assert "-bind-to" not in join_argv(launch("hydra", library="intelmpi"))
    command = join_argv(launch("hydra", library="intelmpi", bind="numa"))
    assert "-genvall -genv I_MPI_PIN 1 -genv I_MPI_PIN_DOMAIN numa /venv" in command
    assert "-genv I_MPI_PIN 0 /venv" in join_argv(launch("hydra", library="intelmpi", bind="none"))


def test_hydra_of_intel_mpi_uses_a_machinefile():
    assert f"-f {HOSTFILE}" in join_argv(launch("hydra"))
    command = join_argv(launch("hydra", library="intelmpi"))
    assert f"-machinefile {HOSTFILE}" in command
    assert "-f " not in command


KEEPALIVE = " ".join(
    f"--mca oob_tcp_keepalive_{name} {seconds}"
    for name, seconds in (("time", 6), ("intvl", 3), ("probes", 3))
)


def test_openmpi_starts_ranks_on_each_host():
    env = {"PATH": "/usr/bin", "VIRTUAL_ENV": "/venv", "LANG": "C"}
    command = launch("openmpi", env=env, rank_env={"NOTE": "a b", "PATH": "/x"})
    assert command.argv == (
        *f"/mpi/openmpi -n 4 --hostfile {HOSTFILE} {KEEPALIVE} --bind-to core -x NOTE".split(),
        *["-x", "PATH=/x", "-x", "SPBENCH_TOKEN", "-x", "SPBENCH_RUN", "-x", "VIRTUAL_ENV"],
        *PROGRAM,
    )
    assert command.env == {"OMPI_MCA_osc": "^ucx", "NOTE": "a b", **env, **PRIVATE}
    assert load_launcher("openmpi").hostfile(FOUR) == "node01 slots=2\nnode02 slots=2\n"


@pytest.mark.parametrize("path", ["/opt/my mpi/mpirun", "/opt/it's/mpirun", "/opt/$HOME/mpirun"])
def test_openmpi_rejects_unsafe_paths_for_other_hosts(path):
    with pytest.raises(UsageError, match="cannot start ranks on other hosts: install Open MPI"):
        launch("openmpi", executable=Path(path))
    command = launch("openmpi", placement=(), hostfile=None, executable=Path(path))
    assert command.argv[0] == path


def test_openmpi_accepts_non_ascii_paths():
    assert launch("openmpi", executable=Path("/opt/é/mpirun")).argv[0] == "/opt/é/mpirun"


def test_openmpi_oversubscribes_this_machine():
    command = launch(
        "openmpi", placement=(), hostfile=None, oversubscribed=True, args=("--report-bindings",)
    )
    assert join_argv(command) == (
        f"/mpi/openmpi -n 4 --oversubscribe --bind-to none --report-bindings {TAIL}"
    )
    assert load_launcher("openmpi").hostfile(()) is None


def test_openmpi_uses_the_network_if_ranks_may_be_remote():
    local = (RankBlock(socket.gethostname(), 4),)
    allocated = {"SLURM_JOB_ID": "7"}
    disabled = "^ofi,openib,uct"
    assert launch("openmpi", placement=()).env["OMPI_MCA_btl"] == disabled
    assert launch("openmpi", placement=local, env=allocated).env["OMPI_MCA_btl"] == disabled
    assert launch("openmpi", placement=(), env={"OMPI_MCA_btl": "tcp"}).env["OMPI_MCA_btl"] == "tcp"
    assert "OMPI_MCA_btl" not in launch("openmpi", placement=(), env=allocated).env
    assert "OMPI_MCA_btl" not in launch("openmpi", placement=(*local, *FOUR)).env


def test_openmpi_exports_variables_if_ranks_may_be_remote():
    local = (RankBlock(socket.gethostname(), 4),)
    allocated = {"PBS_NODEFILE": "/nodes"}
    assert "-x SPBENCH_TOKEN" in join_argv(launch("openmpi", placement=(), env=allocated))
    assert "-x SPBENCH_TOKEN" not in join_argv(launch("openmpi", placement=local, env=allocated))
    assert "-x SPBENCH_TOKEN" not in join_argv(launch("openmpi", placement=()))


def test_openmpi_maps_ranks_per_host():
    command = join_argv(launch("openmpi", ranks_per_host=2, bind="numa"))
    assert f"--map-by ppr:2:node {KEEPALIVE} --bind-to numa -x SPBENCH_TOKEN" in command


def test_openmpi_keepalive_of_the_user_is_kept():
    assert "keepalive" not in join_argv(launch("openmpi", placement=()))
    args = ("--mca", "oob_tcp_keepalive_time", "60")
    command = join_argv(launch("openmpi", args=args))
    assert command.count("oob_tcp_keepalive_time") == 1
    assert "oob_tcp_keepalive_time 60" in command


def test_openmpi_allows_root_and_keeps_user_choices(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    env = launch("openmpi", env={"OMPI_MCA_osc": "rdma"}).env
    assert env["OMPI_ALLOW_RUN_AS_ROOT"] == env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert env["OMPI_MCA_osc"] == "rdma"


def test_srun_lists_its_nodes():
    command = launch("srun", hostfile=None, library="mpich", rank_env={"LIST": "a,b"}, bind="numa")
    assert join_argv(command) == (
        "/mpi/srun -n 4 --nodelist=node01,node02 -N 2 --ntasks-per-node=2 --cpu-bind=ldoms "
        f"--export=ALL -K --mpi=pmi2 {TAIL}"
    )
    assert command.env == {"HOME": "/home/u", "LIST": "a,b", **PRIVATE}
    assert load_launcher("srun").hostfile(FOUR) is None


def test_srun_with_uneven_hosts_uses_a_hostfile():
    text = load_launcher("srun").hostfile((RankBlock("n2", 1), RankBlock("n1", 2)))
    assert text == "n2\nn1\nn1\n"
    command = launch("srun", library="openmpi", bind="core")
    assert join_argv(command) == (
        "/mpi/srun -n 4 --distribution=arbitrary --cpu-bind=cores --export=ALL -K --mpi=pmix "
        + TAIL
    )
    assert command.env["SLURM_HOSTFILE"] == str(HOSTFILE)


def test_srun_keeps_the_order_of_the_hosts():
    assert load_launcher("srun").hostfile((RankBlock("n2", 1), RankBlock("n1", 1))) == "n2\nn1\n"


def test_srun_uses_its_allocation_without_hosts():
    command = launch(
        "srun",
        placement=(),
        hostfile=None,
        library="mpich",
        ranks_per_host=2,
        args=("--mpi=pmix_v4",),
    )
    assert join_argv(command) == (
        f"/mpi/srun -n 4 --ntasks-per-node=2 --export=ALL -K --mpi=pmix_v4 {TAIL}"
    )
    assert load_launcher("srun").hostfile(()) is None


@pytest.mark.parametrize("name", ["mpirun_rsh", "hydra", "openmpi", "srun"])
def test_private_variables_reach_no_command_line(name):
    command = launch(name)
    assert not any("secret" in word for word in command.argv)
    assert command.env["SPBENCH_TOKEN"] == "secret"


def test_env_overrides_threads():
    settings_ = LaunchSettings.model_validate({"threads": 4, "env": {"OMP_NUM_THREADS": "2"}})
    job = JobSpec(1, (), settings_, PROGRAM, {}, False, None)
    assert job.rank_env == {"OMP_NUM_THREADS": "2"}
    assert replace(job, oversubscribed=True).binding == "none"
