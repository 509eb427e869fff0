"""The commands of the four launchers: argv, environment and hostfile, word for word."""

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
UNHURRIED = {"MV2_FASTSSH_THRESHOLD": "2147483647"}
"""Keeps mpirun_rsh from its way for many hosts, which breaks arguments."""


@pytest.fixture(autouse=True)
def plain_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(mpirun_rsh, "NVIDIA_DEVICE", tmp_path / "no-such-device")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.chdir(tmp_path)


def mvapich2_in(folder: Path, device: str, configured: str) -> Path:
    """Return an mpirun_rsh beside an mpiname, which says so of its library."""
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


def line(command: Command) -> str:
    return shlex.join(command.argv)


def test_mpirun_rsh_across_hosts():
    command = launch("mpirun_rsh")
    assert line(command) == (
        f"/mpi/mpirun_rsh --export-all -np 4 -hostfile {HOSTFILE} MV2_HYBRID_BINDING_POLICY=spread "
        f"MV2_CPU_BINDING_POLICY=hybrid PYTHONNOUSERSITE=true MV2_USE_CUDA=0 MV2_USE_GDRCOPY=0 "
        f"{TAIL}"
    )
    assert command.env == {"HOME": "/home/u", "MV2_MPIRUN_TIMEOUT": "60", **UNHURRIED, **PRIVATE}


def test_mpirun_rsh_with_gpu_preload_and_own_values(monkeypatch, tmp_path):
    monkeypatch.setattr(mpirun_rsh, "NVIDIA_DEVICE", Path("/dev/null"))
    library = tmp_path / "mv2/lib/libmpi.so"
    library.parent.mkdir(parents=True)
    library.touch()
    with_cuda = mvapich2_in(tmp_path, "ch3:mrail", "--enable-cuda --with-cuda=/usr/local/cuda")
    command = launch(
        "mpirun_rsh",
        executable=with_cuda,
        env={"MV2_HOME": str(tmp_path / "mv2"), "LD_PRELOAD": "/old.so", "MV2_USE_CUDA": "9"},
    )
    assert line(command) == (
        f"{with_cuda} --export-all -np 4 -hostfile {HOSTFILE} MV2_HYBRID_BINDING_POLICY=spread "
        f"MV2_CPU_BINDING_POLICY=hybrid PYTHONNOUSERSITE=true MV2_USE_CUDA=1 MV2_USE_GDRCOPY=0 "
        f"LD_PRELOAD={library} {TAIL}"
    )
    # --export-all beats words: what stands in a word must not stand in the environment
    assert set(command.env) == {"MV2_HOME", "MV2_MPIRUN_TIMEOUT", *UNHURRIED, *PRIVATE}


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
def test_mpirun_rsh_gives_gpu_memory_to_a_library_that_takes_it(
    monkeypatch, tmp_path, device, configured, value
):
    monkeypatch.setattr(mpirun_rsh, "NVIDIA_DEVICE", Path("/dev/null"))
    command = launch("mpirun_rsh", executable=mvapich2_in(tmp_path, device, configured))
    assert f"MV2_USE_CUDA={value}" in command.argv


def test_mpirun_rsh_gives_no_gpu_memory_to_a_library_that_says_nothing(monkeypatch):
    monkeypatch.setattr(mpirun_rsh, "NVIDIA_DEVICE", Path("/dev/null"))
    assert "MV2_USE_CUDA=0" in launch("mpirun_rsh").argv


def test_mpirun_rsh_settings_win_over_its_defaults():
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
    assert line(command) == shlex.join(
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
    assert command.env == {"MV2_MPIRUN_TIMEOUT": "13", **UNHURRIED, **hidden, **PRIVATE}


@pytest.mark.parametrize(
    ("bind", "oversubscribed", "words"),
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
def test_mpirun_rsh_binding(bind, oversubscribed, words):
    command = launch("mpirun_rsh", bind=bind, oversubscribed=oversubscribed)
    assert f"{HOSTFILE} {words} PYTHONNOUSERSITE=true" in line(command)


def test_mpirun_rsh_of_mvapich_3_has_its_own_prefix():
    command = launch("mpirun_rsh", library="mvapich", bind="none")
    assert "MVP_ENABLE_AFFINITY=0" in command.argv
    assert command.env["MVP_MPIRUN_TIMEOUT"] == "60"


def test_mpirun_rsh_timeouts_go_to_itself():
    command = launch("mpirun_rsh", rank_env={"MPIEXEC_TIMEOUT": "9", "MV2_MPIRUN_TIMEOUT": "5"})
    assert command.env == {
        "HOME": "/home/u",
        "MV2_MPIRUN_TIMEOUT": "5",
        "MPIEXEC_TIMEOUT": "9",
        **UNHURRIED,
        **PRIVATE,
    }
    assert not any(word.startswith(("MPIEXEC", "MV2_MPIRUN")) for word in command.argv)


def test_mpirun_rsh_keeps_the_path_that_it_needs_itself():
    command = launch("mpirun_rsh", env={"PATH": "/bin", "A": "1"}, rank_env={"PATH": "/x y"})
    assert "PATH='/x y'" in command.argv
    own = {"PATH": "/x y", "A": "1", "MV2_MPIRUN_TIMEOUT": "60"}
    assert command.env == {**own, **UNHURRIED, **PRIVATE}


def test_mpirun_rsh_hostfile():
    write = load_launcher("mpirun_rsh").hostfile
    assert write((RankBlock("n1", 2, "mlx5_0"), RankBlock("n2", 1))) == "n1:2:mlx5_0\nn2:1\n"
    own = socket.gethostname()
    assert write(()) == f"{own}\n"
    # to mpirun_rsh, localhost is another machine
    assert write((RankBlock("localhost", 3),)) == f"{own}:3\n"
    with pytest.raises(UsageError, match="takes no IPv6 address: give the name of fe80::1"):
        write((RankBlock("fe80::1", 1),))
    with pytest.raises(UsageError, match="no host name of digits only: give another of 123"):
        write((RankBlock("123", 1),))


def test_mpirun_rsh_refuses_what_it_would_break(monkeypatch, tmp_path):
    with pytest.raises(UsageError, match="takes '/a=b/python' for an assignment"):
        launch("mpirun_rsh", program=("/a=b/python",))
    with pytest.raises(UsageError, match="cannot read a hostfile with a path as long as"):
        launch("mpirun_rsh", hostfile=Path("/" + "x" * 300))
    folder = tmp_path / "two words"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match=r"cannot start ranks in '.*two words'"):
        launch("mpirun_rsh")
    link = tmp_path / "it's"
    link.symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="cannot start ranks in"):
        launch("mpirun_rsh", env={"PWD": str(link)})


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"env": {"LD_LIBRARY_PATH": "/a b/lib"}}, "LD_LIBRARY_PATH on unquoted, and '/a b/lib'"),
        ({"rank_env": {"LD_LIBRARY_PATH": "/a'b"}}, "LD_LIBRARY_PATH on unquoted"),
        ({"args": ["-fastssh"]}, "launch.args: with -fastssh mpirun_rsh has shells read"),
        ({"args": ["--fast"]}, "launch.args: with --fast mpirun_rsh"),
        ({"args": ["-sg", "video"]}, "launch.args: with -sg mpirun_rsh"),
    ],
)
def test_mpirun_rsh_refuses_what_breaks_its_quoting(keys, sentence):
    with pytest.raises(UsageError, match=re.escape(sentence)):
        launch("mpirun_rsh", **keys)


def test_mpirun_rsh_takes_paths_and_options_that_break_nothing():
    kept = {"LD_LIBRARY_PATH": "/opt/x-1.2/lib:/usr/lib"}
    assert (
        launch("mpirun_rsh", env=kept, args=["-legacy"]).env["LD_LIBRARY_PATH"]
        == kept["LD_LIBRARY_PATH"]
    )


@pytest.mark.parametrize("name", ["openmpi", "hydra", "mpirun_rsh", "srun"])
@pytest.mark.parametrize("variable", ["LICENSE", "DB_PASSWORD", "MY_TOKEN", "OMP_PLACES"])
def test_arguments_do_not_show_the_value_of_a_variable(name, variable):
    """Everybody on a host can read arguments, and only the owner the environment."""
    command = launch(name, rank_env={variable: "s3cret"}, env={variable: "of the console"})
    assert not any("s3cret" in word for word in command.argv)
    assert command.env[variable] == "s3cret"


@pytest.mark.parametrize("name", ["openmpi", "hydra", "mpirun_rsh"])
@pytest.mark.parametrize(
    "variable", ["LD_PRELOAD", "TMPDIR", "PATH", "SSH_AUTH_SOCK", "OMPI_MCA_btl", "HYDRA_DEBUG"]
)
def test_variables_that_change_a_launcher_are_for_its_ranks_only(name, variable):
    command = launch(name, rank_env={variable: "/own"})
    assert any(variable in word for word in command.argv)
    if (name, variable) != ("mpirun_rsh", "PATH"):  # it looks programs up in its own PATH
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
    words = command.argv[-len(arguments) :]
    before = command.argv[: command.argv.index("/venv/bin/python")]
    pairs = [word for word in before if word.startswith("MV2_V")]
    # what mpirun_rsh makes of them: arguments between '...', assignments as they are
    shell = " ".join(["/usr/bin/env -i", *pairs, "printf '%s\\0'", *(f"'{w}'" for w in words)])
    printed = subprocess.run(["bash", "-c", shell], capture_output=True, check=True).stdout
    assert printed.decode() == "".join(f"{argument}\0" for argument in arguments)
    env = subprocess.run(
        ["bash", "-c", " ".join(["/usr/bin/env -i", *pairs, "/usr/bin/env -0"])],
        capture_output=True,
        check=True,
    ).stdout.decode()
    assert env == "".join(f"{name}={value}\0" for name, value in zip(names, values, strict=True))


def test_hydra_across_hosts():
    command = launch("hydra", library="mpich", ranks_per_host=2, threads=1, args=("-prepend-rank",))
    assert line(command) == (
        f"/mpi/hydra -n 4 -f {HOSTFILE} -ppn 2 -genvall -bind-to core -prepend-rank {TAIL}"
    )
    assert command.env == {"HOME": "/home/u", "OMP_NUM_THREADS": "1", **PRIVATE}
    assert load_launcher("hydra").hostfile(FOUR) == "node01:2\nnode02:2\n"


def test_hydra_here():
    rank_env = {"NOTE": "a 'b' $c", "LD_PRELOAD": "/a b.so"}
    command = launch("hydra", placement=(), hostfile=None, rank_env=rank_env)
    assert command.argv == (
        *["/mpi/hydra", "-n", "4", "-genvall", "-bind-to", "core", "-genv", "LD_PRELOAD"],
        "/a b.so",
        *PROGRAM,
    )
    assert command.env == {"HOME": "/home/u", "NOTE": "a 'b' $c", **PRIVATE}
    assert load_launcher("hydra").hostfile(()) is None


def test_a_rank_with_several_threads_is_not_bound_to_one_core():
    assert "-bind-to none" in line(launch("hydra", threads=4))
    assert "-bind-to core" in line(launch("hydra", threads=4, bind="core"))
    assert "-bind-to none" in line(launch("hydra", oversubscribed=True))
    assert "-bind-to numa" in line(launch("hydra", oversubscribed=True, bind="numa"))


def test_hydra_of_intel_mpi_binds_by_environment():
    assert "-bind-to" not in line(launch("hydra", library="intelmpi"))
    command = line(launch("hydra", library="intelmpi", bind="numa"))
    assert "-genvall -genv I_MPI_PIN 1 -genv I_MPI_PIN_DOMAIN numa /venv" in command
    assert "-genv I_MPI_PIN 0 /venv" in line(launch("hydra", library="intelmpi", bind="none"))


def test_hydra_of_intel_mpi_takes_counts_from_a_machinefile():
    assert f"-f {HOSTFILE}" in line(launch("hydra"))
    command = line(launch("hydra", library="intelmpi"))
    assert f"-machinefile {HOSTFILE}" in command
    assert "-f " not in command


KEEPALIVE = " ".join(
    f"--mca oob_tcp_keepalive_{name} {seconds}"
    for name, seconds in (("time", 6), ("intvl", 3), ("probes", 3))
)


def test_openmpi_across_hosts():
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
def test_openmpi_refuses_a_path_that_other_hosts_would_split(path):
    with pytest.raises(UsageError, match="cannot start ranks on other hosts: install Open MPI"):
        launch("openmpi", executable=Path(path))
    here = launch("openmpi", placement=(), hostfile=None, executable=Path(path))
    assert here.argv[0] == path


def test_openmpi_takes_a_path_with_letters_that_are_not_ascii():
    assert launch("openmpi", executable=Path("/opt/é/mpirun")).argv[0] == "/opt/é/mpirun"


def test_openmpi_here_and_too_many():
    command = launch(
        "openmpi", placement=(), hostfile=None, oversubscribed=True, args=("--report-bindings",)
    )
    assert line(command) == (
        f"/mpi/openmpi -n 4 --oversubscribe --bind-to none --report-bindings {TAIL}"
    )
    assert load_launcher("openmpi").hostfile(()) is None


def test_openmpi_looks_for_a_network_where_ranks_may_be_on_other_hosts():
    here = (RankBlock(socket.gethostname(), 4),)
    allocated = {"SLURM_JOB_ID": "7"}
    none = "^ofi,openib,uct"
    assert launch("openmpi", placement=()).env["OMPI_MCA_btl"] == none
    assert launch("openmpi", placement=here, env=allocated).env["OMPI_MCA_btl"] == none
    assert launch("openmpi", placement=(), env={"OMPI_MCA_btl": "tcp"}).env["OMPI_MCA_btl"] == "tcp"
    assert "OMPI_MCA_btl" not in launch("openmpi", placement=(), env=allocated).env
    assert "OMPI_MCA_btl" not in launch("openmpi", placement=(*here, *FOUR)).env


def test_openmpi_hands_its_variables_on_where_ranks_may_be_on_other_hosts():
    here = (RankBlock(socket.gethostname(), 4),)
    allocated = {"PBS_NODEFILE": "/nodes"}
    assert "-x SPBENCH_TOKEN" in line(launch("openmpi", placement=(), env=allocated))
    assert "-x SPBENCH_TOKEN" not in line(launch("openmpi", placement=here, env=allocated))
    assert "-x SPBENCH_TOKEN" not in line(launch("openmpi", placement=()))


def test_openmpi_ranks_per_host():
    command = line(launch("openmpi", ranks_per_host=2, bind="numa"))
    assert f"--map-by ppr:2:node {KEEPALIVE} --bind-to numa -x SPBENCH_TOKEN" in command


def test_openmpi_ends_daemons_of_lost_hosts_as_the_user_says():
    assert "keepalive" not in line(launch("openmpi", placement=()))
    own = ("--mca", "oob_tcp_keepalive_time", "60")
    command = line(launch("openmpi", args=own))
    assert command.count("oob_tcp_keepalive_time") == 1
    assert "oob_tcp_keepalive_time 60" in command


def test_openmpi_as_root_and_with_the_users_own_choice(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    env = launch("openmpi", env={"OMPI_MCA_osc": "rdma"}).env
    assert env["OMPI_ALLOW_RUN_AS_ROOT"] == env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert env["OMPI_MCA_osc"] == "rdma"


def test_srun_with_a_list_of_nodes():
    command = launch("srun", hostfile=None, library="mpich", rank_env={"LIST": "a,b"}, bind="numa")
    assert line(command) == (
        "/mpi/srun -n 4 --nodelist=node01,node02 -N 2 --ntasks-per-node=2 --cpu-bind=ldoms "
        f"--export=ALL -K --mpi=pmi2 {TAIL}"
    )
    assert command.env == {"HOME": "/home/u", "LIST": "a,b", **PRIVATE}
    assert load_launcher("srun").hostfile(FOUR) is None


def test_srun_with_uneven_hosts_takes_a_file_with_a_line_a_rank():
    text = load_launcher("srun").hostfile((RankBlock("n2", 1), RankBlock("n1", 2)))
    assert text == "n2\nn1\nn1\n"
    command = launch("srun", library="openmpi", bind="core")
    assert line(command) == (
        "/mpi/srun -n 4 --distribution=arbitrary --cpu-bind=cores --export=ALL -K --mpi=pmix "
        + TAIL
    )
    assert command.env["SLURM_HOSTFILE"] == str(HOSTFILE)


def test_srun_keeps_the_order_of_the_hosts():
    assert load_launcher("srun").hostfile((RankBlock("n2", 1), RankBlock("n1", 1))) == "n2\nn1\n"


def test_srun_without_hosts():
    command = launch(
        "srun",
        placement=(),
        hostfile=None,
        library="mpich",
        ranks_per_host=2,
        args=("--mpi=pmix_v4",),
    )
    assert line(command) == (
        f"/mpi/srun -n 4 --ntasks-per-node=2 --export=ALL -K --mpi=pmix_v4 {TAIL}"
    )
    assert load_launcher("srun").hostfile(()) is None


@pytest.mark.parametrize("name", ["mpirun_rsh", "hydra", "openmpi", "srun"])
def test_private_variables_reach_no_command_line(name):
    command = launch(name)
    assert not any("secret" in word for word in command.argv)
    assert command.env["SPBENCH_TOKEN"] == "secret"


def test_env_wins_over_threads():
    settings_ = LaunchSettings.model_validate({"threads": 4, "env": {"OMP_NUM_THREADS": "2"}})
    job = JobSpec(1, (), settings_, PROGRAM, {}, False, None)
    assert job.rank_env == {"OMP_NUM_THREADS": "2"}
    assert replace(job, oversubscribed=True).binding == "none"
