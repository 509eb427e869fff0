"""Cases that need GPUs, and what is said before the launch where they are not there."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from running import run
from spbench.errors import MissingError
from spbench.launch import gpu_needs
from spbench.launch.detect import load_launcher
from spbench.launch.gpu_needs import check_gpus, needs_exclusive_gpu, needs_gpu
from spbench.launch.gpus.facts import Card, HostGpus
from spbench.launch.hosts.hosts import Hosts, parse_hosts
from spbench.launch.jobs import Job, Launch, group_cases
from spbench.launch.mpi_probe import MpiLibrary
from spbench.launch.placement import place_ranks
from spbench.launch.survey.facts import HostFacts, make_unreachable
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS
from spbench_core.host_facts import VISIBLE_DEVICES

NO_GPU = HostGpus(shared_gib=1.0)


def having(count: int, **other: object) -> HostGpus:
    cards = tuple(Card("NVIDIA H200", f"0000:{number}a:00.0") for number in range(count))
    return replace(HostGpus(cards, files=count, driver="580.82.07", cuda="13.0"), **other)


def case(name: str, benchmark: str, np: int | None = None, **params: object) -> Case:
    entry = BENCHMARKS[benchmark]
    complete = entry.complete(params)
    np = np or entry.ranks(complete).exact
    return Case(name, name, benchmark, complete, np, 1, (), LaunchSettings(), 1)


GEMM = case("gemm", "compute.gemm", 1, device="cuda")
HOST = case("host", "compute.gemm", 1)
NCCL = case("nccl", "allreduce.sweep", 2, algorithm=["native", "nccl"])


@pytest.mark.parametrize(
    ("asked", "gpu", "each"),
    [
        (GEMM, True, False),
        (HOST, False, False),
        (case("a", "compute.gemm", 1, device="cpu"), False, False),
        (case("a", "memory.copy", 1), False, False),
        (case("a", "memory.copy", 1, path="to_device"), True, False),
        (case("a", "memory.copy", 1, path="peer"), True, False),
        (case("a", "halo.exchange", grid="1x2", transport="cuda"), True, False),
        (case("a", "halo.exchange", grid="1x2", transport="nccl"), True, True),
        (case("a", "halo.exchange", grid="1x2", transport="shm"), False, False),
        (case("a", "model.resnet", scheme="lp", backend="nccl"), True, True),
        (case("a", "model.resnet", scheme="lp", backend="gloo"), False, False),
        (NCCL, True, True),
        (case("a", "allreduce.sweep", 2, algorithm="nccl"), True, True),
        (case("a", "allreduce.sweep", 2, algorithm=["native", "gloo"]), False, False),
        (case("a", "kvstore.push_pull", kv_store="allreduce", algorithm="nccl"), True, True),
        (case("a", "kvstore.push_pull", kv_store="device", gpus=[0, 3]), False, False),
        (replace(HOST, params={"device": "cuda", "path": "nccl"}), True, True),
    ],
)
def test_what_a_case_needs(asked, gpu, each):
    assert (needs_gpu(asked), needs_exclusive_gpu(asked)) == (gpu, each)


def jobs_of(
    cases: list[Case],
    gpus: HostGpus | None = NO_GPU,
    torch_cuda: str | None = "13.0",
    hosts: Hosts | None = None,
    launcher: str = "openmpi",
) -> list[tuple[Job, Launch, Hosts | None]]:
    library = MpiLibrary("openmpi", "Open MPI", "4", "2.11.0", torch_cuda, gpus)
    named = SimpleNamespace(launcher=load_launcher(launcher))
    return [
        (
            job,
            Launch(
                named, library, SimpleNamespace(placement=place_ranks(hosts, job.np)), None, None
            ),
            hosts,
        )
        for job in group_cases(cases, lambda _: hosts)
    ]


async def refused(*cases: Case, env: dict[str, str] | None = None, **other: object) -> str | None:
    """Return what is said of a run that is refused; None: it is not."""
    try:
        await check_gpus(jobs_of(list(cases), **other), env or {})
    except MissingError as error:
        return str(error)
    return None


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """Stands in for the survey: hosts answer what they are given, and those asked are kept."""
    asked = SimpleNamespace(hosts=[], answers={}, settings=[])

    async def survey(hosts, settings, env, say):
        asked.settings.append(settings)
        for host in hosts:
            asked.hosts.append(host)
            yield asked.answers[host]

    monkeypatch.setattr(gpu_needs, "survey_hosts", survey)
    return asked


async def test_a_gpu_that_is_not_there_is_one_sentence_with_all_cases():
    cases = [case(f"c{number}", "compute.gemm", 1, device="cuda") for number in range(40)]
    assert await refused(*cases, HOST) == (
        "cannot run c0, c1, c2 and 37 more on this machine: there is no GPU, neither in "
        "/proc/driver/nvidia/gpus nor as /dev/nvidia0 (spbench doctor says how to fix it; or leave "
        "them out with -k or --case, or name hosts that have GPUs with --hostfile)"
    )


async def test_the_cases_of_a_matrix_are_named_once():
    sizes = [replace(GEMM, id=f"gemm[n={2**n}]") for n in range(8)]
    found = await refused(*sizes, replace(GEMM, id="other", name="other"))
    assert found.startswith("cannot run gemm, other on this machine: there is no GPU")


async def test_cases_of_the_host_are_not_refused(asked):
    assert await refused(HOST) is None
    assert await refused(HOST, hosts=parse_hosts("node1")) is None
    assert asked.hosts == []


@pytest.mark.parametrize(
    ("gpus", "torch_cuda", "said"),
    [
        (having(2), "", "torch 2.11.0 is a build without CUDA"),
        (having(2, cuda="12.4"), "13.0", "takes CUDA up to 12.4, and torch is built for CUDA 13.0"),
        (
            having(2, visible=""),
            "13.0",
            "CUDA_VISIBLE_DEVICES is '', which shows no GPU; there are 2",
        ),
    ],
)
async def test_a_gpu_that_no_rank_can_use(gpus, torch_cuda, said):
    env = {} if gpus.visible is None else {VISIBLE_DEVICES: gpus.visible}
    found = await refused(GEMM, gpus=gpus, torch_cuda=torch_cuda, env=env)
    assert found.startswith("cannot run gemm on this machine: ")
    assert said in found


@pytest.mark.parametrize("gpus", [None, having(1), HostGpus(other_files=True)])
async def test_what_is_there_or_not_known_is_left_to_the_ranks(gpus):
    assert await refused(GEMM, gpus=gpus) is None


async def test_nccl_takes_a_gpu_for_each_rank_of_a_host():
    found = await refused(NCCL, GEMM, gpus=having(1))
    assert found == (
        "cannot run nccl on this machine: 2 ranks share 1 GPU, and nccl needs one for each rank "
        "(start fewer ranks a host (ranks_per_host), or leave them out with -k or --case, or name "
        "hosts that have GPUs with --hostfile)"
    )
    assert await refused(NCCL, gpus=having(2)) is None
    one = await refused(NCCL, gpus=having(8, visible="5"), env={VISIBLE_DEVICES: "5"})
    assert "2 ranks share 1 GPU," in one
    mig = "MIG-1,MIG-2"
    assert await refused(NCCL, gpus=having(8, visible=mig), env={VISIBLE_DEVICES: mig}) is None


async def test_a_plan_wants_a_gpu_for_each_rank():
    ranks = replace(GEMM, np=4)
    assert await refused(ranks, gpus=having(2)) is None
    found = await refused(launched(ranks, oversubscribe=False), gpus=having(2))
    assert "4 devices are wanted, one for each rank, and 2 GPUs available" in found
    assert await refused(launched(ranks, oversubscribe=False), gpus=having(4)) is None


def launched(case: Case, **settings: object) -> Case:
    return replace(case, launch=LaunchSettings.model_validate(settings))


EACH_ITS_OWN = {"setup": ["export CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK"]}


@pytest.mark.parametrize("visible", ["", "0"])
@pytest.mark.parametrize(
    "settings", [EACH_ITS_OWN, {"container": "each-its-own image"}, {"python": "./each-its-own"}]
)
async def test_a_gpu_that_each_rank_is_given_is_not_judged_by_the_one_that_was_asked(
    asked, settings, visible
):
    seen = having(2, visible=visible)
    peers = case("p", "kvstore.push_pull", kv_store="device", gpus=[0, 1], device="cuda")
    cases = [launched(one, **settings) for one in (GEMM, NCCL, peers)]
    assert await refused(*cases, gpus=seen) is None
    asked.answers["node1"] = HostFacts(
        "node1", "ok", cores=8, gpus=seen, torch="2.11.0", torch_cuda="13.0"
    )
    if "python" not in settings:
        assert await refused(*cases, hosts=parse_hosts("node1:2")) is None
    # more than the host has are too many however they are shared out
    many = await refused(replace(cases[1], np=3), gpus=seen)
    assert "3 ranks share 2 GPUs," in many
    assert "there is no GPU" in await refused(*cases, gpus=NO_GPU)


async def test_gpus_that_this_shell_shows_are_not_those_of_another_host(asked):
    asked.answers["node1"] = HostFacts(
        "node1", "ok", cores=8, gpus=having(2, visible=""), torch="2.11.0", torch_cuda="13.0"
    )
    hosts = parse_hosts("node1")
    assert await refused(GEMM, hosts=hosts, env={VISIBLE_DEVICES: "1"}) is None
    assert "shows n" in await refused(GEMM, hosts=hosts)
    assert "shows n" in await refused(launched(GEMM, env={VISIBLE_DEVICES: ""}), hosts=hosts)


async def test_gpus_that_a_store_names_are_there():
    params = {"kv_store": "device", "device": "cuda"}
    named = case("named", "kvstore.push_pull", gpus=[0, 3], **params)
    found = await refused(named, gpus=having(2))
    assert "cannot run named on this machine: gpus names GPU 3, and a rank sees 2 GPUs" in found
    one = case("one", "kvstore.push_pull", device_ids=[2], **params)
    tiles = case("tiles", "halo.exchange", grid="1x2", device_ids=[2, 0])
    for case_ in (one, tiles):
        assert needs_gpu(case_)
        assert "device_ids names GPU 2, and" in await refused(case_, gpus=having(2))
        assert await refused(case_, gpus=having(3)) is None
    assert await refused(named, gpus=having(4)) is None
    counted = case("counted", "kvstore.push_pull", gpus=4, **params)
    assert await refused(counted, gpus=having(1)) is None


async def test_nccl_takes_each_gpu_of_device_ids_once():
    tiles = case("tiles", "halo.exchange", grid="1x2", transport="nccl", device_ids=[0])
    found = await refused(tiles, gpus=having(4))
    assert "2 ranks share 1 GPU of device_ids, and nccl needs one for each rank" in found
    both = case("both", "halo.exchange", grid="1x2", transport="nccl", device_ids=[0, 1])
    assert await refused(both, gpus=having(4)) is None


async def test_a_copy_between_gpus_needs_two():
    peer = case("peer", "memory.copy", 1, path="peer")
    assert await refused(peer, gpus=having(1)) == (
        "cannot run peer on this machine: path peer needs two GPUs, and a rank sees 1 GPU (take "
        "path device, or leave them out with -k or --case, or name hosts that have GPUs with "
        "--hostfile)"
    )
    assert "there is no GPU" in await refused(peer)
    for gpus in (having(2), HostGpus(other_files=True), having(2, visible="0")):
        assert await refused(peer, gpus=gpus) is None
    assert await refused(case("a", "memory.copy", 1, path="to_host"), gpus=having(1)) is None


async def test_several_reasons_are_one_sentence():
    named = case("named", "kvstore.push_pull", kv_store="device", gpus=[0, 3], device="cuda")
    found = await refused(NCCL, named, gpus=having(1))
    assert found.startswith("cannot run nccl on this machine: 2 ranks")
    assert "; nor named on this machine: gpus names GPU 3" in found


async def test_other_hosts_are_asked_and_named(asked):
    for host, gpus in {"node1": having(2), "node2": NO_GPU, "node3": NO_GPU}.items():
        asked.answers[host] = HostFacts(
            host, "ok", cores=8, gpus=gpus, torch="2.11.0", torch_cuda="13.0"
        )
    spread = replace(NCCL, np=6)
    found = await refused(spread, gpus=NO_GPU, hosts=parse_hosts("node[1-3]:2"))
    assert found.startswith("cannot run nccl on node[2-3]: there is no GPU")
    assert asked.hosts == ["node1", "node2", "node3"]
    fits = await refused(NCCL, hosts=parse_hosts("node1:2,node2:2"))
    assert fits is None


async def test_hosts_that_do_not_answer_are_left_to_the_ranks(asked):
    asked.answers["node1"] = make_unreachable("node1", "no answer in 8 s")
    assert await refused(GEMM, hosts=parse_hosts("node1")) is None


async def test_a_host_is_asked_once_for_all_jobs_that_ask_alike(asked):
    asked.answers["node1"] = HostFacts("node1", "ok", cores=8, gpus=NO_GPU)
    other = LaunchSettings.model_validate({"env": {"CUDA_VISIBLE_DEVICES": ""}})
    late = LaunchSettings.model_validate({"timeout": 7})
    cases = [GEMM, replace(GEMM, name="late", launch=late), replace(GEMM, name="env", launch=other)]
    found = await refused(*cases, hosts=parse_hosts("node1"))
    assert found.startswith("cannot run gemm, late, env on node1: there is no GPU")
    assert asked.hosts == ["node1", "node1"]
    assert [settings.env for settings in asked.settings] == [{}, {"CUDA_VISIBLE_DEVICES": ""}]


async def test_a_host_that_only_has_servers_needs_no_gpu(asked):
    asked.answers["node2"] = HostFacts("node2", "ok", cores=8, gpus=NO_GPU)
    stores = case(
        "dist", "kvstore.push_pull", kv_store="dist_sync", num_servers=1, gpus=1, device="cuda"
    )
    workers = stores.np - 1
    asked.answers["node1"] = HostFacts("node1", "ok", cores=8, gpus=having(1))
    assert await refused(stores, hosts=parse_hosts(f"node1:{workers},node2:1")) is None


async def test_hosts_that_a_launcher_chooses_are_left_to_the_ranks():
    assert await refused(GEMM, env={"LSB_JOBID": "1"}) is None
    assert await refused(GEMM, launcher="srun") is None
    assert await refused(GEMM, launcher="srun", hosts=parse_hosts("node1")) is None


@pytest.mark.parametrize(
    "name",
    [
        "PE_HOSTFILE",
        "HYDRA_HOST_FILE",
        "I_MPI_HYDRA_HOST_FILE",
        "OMPI_MCA_orte_default_hostfile",
        "OMPI_MCA_orte_default_dash_host",
        "PRTE_MCA_prte_default_hostfile",
        "COBALT_NODEFILE",
        "LSB_MCPU_HOSTS",
        "FLUX_URI",
    ],
)
async def test_hosts_that_a_launcher_reads_from_its_own_variables_are_left_to_the_ranks(name):
    assert await refused(GEMM, env={name: "x"}) is None


async def test_variables_of_every_shell_name_no_hosts():
    assert await refused(GEMM, env={"HOSTNAME": "x", "HOST": "x", "HOSTTYPE": "x", "LS_COLORS": ""})


@pytest.mark.parametrize(
    "args", [["--host", "node7"], ["-f", "hosts"], ["-x", "CUDA_VISIBLE_DEVICES=0"]]
)
async def test_what_arguments_of_the_launcher_may_change_is_left_to_the_ranks(asked, args):
    assert await refused(launched(GEMM, args=args)) is None
    assert asked.hosts == []


async def test_ranks_that_arguments_of_the_launcher_may_share_out_otherwise(asked):
    for host in ("node1", "node2"):
        asked.answers[host] = HostFacts(
            host, "ok", cores=8, gpus=having(1), torch="2.11.0", torch_cuda="13.0"
        )
    hosts = parse_hosts("node1:2,node2:2")
    assert "2 ranks share 1 GPU," in await refused(NCCL, hosts=hosts)
    assert await refused(launched(NCCL, args=["--map-by", "node"]), hosts=hosts) is None


@pytest.mark.slow
def test_the_shipped_suite_is_refused_at_once_where_there_is_no_gpu(tmp_path):
    pytest.importorskip("mpi4py")
    ended = run("suites/gpu.yaml", home=tmp_path / "home", env={"CUDA_VISIBLE_DEVICES": ""})
    assert ended.code == 3
    assert ended.stderr.startswith("spbench: error: cannot run shared-")
    assert len((ended.stdout + ended.stderr).splitlines()) < 12
    assert not (tmp_path / "home/runs").exists()
