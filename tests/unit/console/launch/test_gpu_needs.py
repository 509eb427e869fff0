"""Tests of the check for the GPUs that cases need, before the launch."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

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
from support.runs import run

NO_GPU = HostGpus(shared_gib=1.0)


def make_gpus(count: int, **other: object) -> HostGpus:
    cards = tuple(Card("NVIDIA H200", f"0000:{number}a:00.0") for number in range(count))
    return replace(HostGpus(cards, files=count, driver="580.82.07", cuda="13.0"), **other)


def build_case(name: str, benchmark: str, np: int | None = None, **params: object) -> Case:
    entry = BENCHMARKS[benchmark]
    complete = entry.complete(params)
    np = np or entry.ranks(complete).exact
    return Case(name, name, benchmark, complete, np, 1, (), LaunchSettings(), 1)


GEMM = build_case("gemm", "compute.gemm", 1, device="cuda")
HOST = build_case("host", "compute.gemm", 1)
NCCL = build_case("nccl", "allreduce.sweep", 2, algorithm=["native", "nccl"])


@pytest.mark.parametrize(
    ("case", "gpu", "exclusive"),
    [
        (GEMM, True, False),
        (HOST, False, False),
        (build_case("a", "compute.gemm", 1, device="cpu"), False, False),
        (build_case("a", "memory.copy", 1), False, False),
        (build_case("a", "memory.copy", 1, path="to_device"), True, False),
        (build_case("a", "memory.copy", 1, path="peer"), True, False),
        (build_case("a", "halo.exchange", grid="1x2", transport="cuda"), True, False),
        (build_case("a", "halo.exchange", grid="1x2", transport="nccl"), True, True),
        (build_case("a", "halo.exchange", grid="1x2", transport="shm"), False, False),
        (build_case("a", "model.resnet", scheme="lp", backend="nccl"), True, True),
        (build_case("a", "model.resnet", scheme="lp", backend="gloo"), False, False),
        (NCCL, True, True),
        (build_case("a", "allreduce.sweep", 2, algorithm="nccl"), True, True),
        (build_case("a", "allreduce.sweep", 2, algorithm=["native", "gloo"]), False, False),
        (build_case("a", "kvstore.push_pull", kv_store="allreduce", algorithm="nccl"), True, True),
        (build_case("a", "kvstore.push_pull", kv_store="device", gpus=[0, 3]), False, False),
        (replace(HOST, params={"device": "cuda", "path": "nccl"}), True, True),
    ],
)
def test_detects_cases_that_need_gpus(case, gpu, exclusive):
    assert (needs_gpu(case), needs_exclusive_gpu(case)) == (gpu, exclusive)


def build_jobs(
    cases: list[Case],
    gpus: HostGpus | None = NO_GPU,
    torch_cuda: str | None = "13.0",
    hosts: Hosts | None = None,
    launcher: str = "openmpi",
) -> list[tuple[Job, Launch, Hosts | None]]:
    library = MpiLibrary("openmpi", "Open MPI", "4", "2.11.0", torch_cuda, gpus)
    installed = SimpleNamespace(launcher=load_launcher(launcher))
    return [
        (
            job,
            Launch(
                installed,
                library,
                SimpleNamespace(placement=place_ranks(hosts, job.np)),
                None,
                None,
            ),
            hosts,
        )
        for job in group_cases(cases, lambda _: hosts)
    ]


async def find_refusal(
    *cases: Case, env: dict[str, str] | None = None, **other: object
) -> str | None:
    """Return the message of a rejected run, or None if it is accepted."""
    try:
        await check_gpus(build_jobs(list(cases), **other), env or {})
    except MissingError as error:
        return str(error)
    return None


@pytest.fixture(autouse=True)
def survey_stub(monkeypatch):
    """Replace the survey: hosts return preset facts, and queried hosts are recorded."""
    stub = SimpleNamespace(hosts=[], answers={}, settings=[])

    async def survey(hosts, settings, env, say):
        stub.settings.append(settings)
        for host in hosts:
            stub.hosts.append(host)
            yield stub.answers[host]

    monkeypatch.setattr(gpu_needs, "survey_hosts", survey)
    return stub


async def test_missing_gpu_is_one_error_for_all_cases(messages):
    cases = [build_case(f"c{number}", "compute.gemm", 1, device="cuda") for number in range(40)]
    messages.check(await find_refusal(*cases, HOST))


async def test_cases_of_a_matrix_are_named_once(messages):
    sizes = [replace(GEMM, id=f"gemm[n={2**n}]") for n in range(8)]
    message = await find_refusal(*sizes, replace(GEMM, id="other", name="other"))
    messages.check(message)


async def test_host_cases_are_accepted_without_a_survey(survey_stub):
    assert await find_refusal(HOST) is None
    assert await find_refusal(HOST, hosts=parse_hosts("node1")) is None
    assert survey_stub.hosts == []


@pytest.mark.parametrize(
    ("gpus", "torch_cuda", "expected"),
    [
        (make_gpus(2), "", "torch 2.11.0 is a build without CUDA"),
        (
            make_gpus(2, cuda="12.4"),
            "13.0",
            "takes CUDA up to 12.4, and torch is built for CUDA 13.0",
        ),
        (
            make_gpus(2, visible=""),
            "13.0",
            "CUDA_VISIBLE_DEVICES is '', which shows no GPU; there are 2",
        ),
    ],
)
async def test_rejects_an_unusable_gpu(gpus, torch_cuda, expected):
    env = {} if gpus.visible is None else {VISIBLE_DEVICES: gpus.visible}
    message = await find_refusal(GEMM, gpus=gpus, torch_cuda=torch_cuda, env=env)
    assert message.startswith("cannot run gemm on this machine: ")
    assert expected in message


@pytest.mark.parametrize("gpus", [None, make_gpus(1), HostGpus(other_files=True)])
async def test_accepts_present_or_unknown_gpus(gpus):
    assert await find_refusal(GEMM, gpus=gpus) is None


async def test_nccl_needs_a_gpu_per_rank(messages):
    message = await find_refusal(NCCL, GEMM, gpus=make_gpus(1))
    messages.check(message)
    assert await find_refusal(NCCL, gpus=make_gpus(2)) is None
    shared = await find_refusal(NCCL, gpus=make_gpus(8, visible="5"), env={VISIBLE_DEVICES: "5"})
    messages.check(shared)
    mig = "MIG-1,MIG-2"
    assert (
        await find_refusal(NCCL, gpus=make_gpus(8, visible=mig), env={VISIBLE_DEVICES: mig}) is None
    )


async def test_plan_needs_a_gpu_per_rank(messages):
    ranks = replace(GEMM, np=4)
    assert await find_refusal(ranks, gpus=make_gpus(2)) is None
    message = await find_refusal(replace_launch(ranks, oversubscribe=False), gpus=make_gpus(2))
    messages.check(message)
    assert await find_refusal(replace_launch(ranks, oversubscribe=False), gpus=make_gpus(4)) is None


def replace_launch(original: Case, **settings: object) -> Case:
    return replace(original, launch=LaunchSettings.model_validate(settings))


SETUP_PER_RANK = {"setup": ["export CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK"]}


@pytest.mark.parametrize("visible", ["", "0"])
@pytest.mark.parametrize(
    "settings", [SETUP_PER_RANK, {"container": "each-its-own image"}, {"python": "./each-its-own"}]
)
async def test_per_rank_devices_are_not_judged_by_the_probe(
    survey_stub, settings, visible, messages
):
    gpus = make_gpus(2, visible=visible)
    peers = build_case("p", "kvstore.push_pull", kv_store="device", gpus=[0, 1], device="cuda")
    cases = [replace_launch(case, **settings) for case in (GEMM, NCCL, peers)]
    assert await find_refusal(*cases, gpus=gpus) is None
    survey_stub.answers["node1"] = HostFacts(
        "node1", "ok", cores=8, gpus=gpus, torch="2.11.0", torch_cuda="13.0"
    )
    if "python" not in settings:
        assert await find_refusal(*cases, hosts=parse_hosts("node1:2")) is None
    # more ranks than GPUs of the host are too many with any assignment
    message = await find_refusal(replace(cases[1], np=3), gpus=gpus)
    messages.check(message)
    messages.check(await find_refusal(*cases, gpus=NO_GPU))


async def test_visible_devices_of_this_shell_do_not_count_elsewhere(survey_stub):
    survey_stub.answers["node1"] = HostFacts(
        "node1", "ok", cores=8, gpus=make_gpus(2, visible=""), torch="2.11.0", torch_cuda="13.0"
    )
    hosts = parse_hosts("node1")
    assert await find_refusal(GEMM, hosts=hosts, env={VISIBLE_DEVICES: "1"}) is None
    assert "shows n" in await find_refusal(GEMM, hosts=hosts)
    assert "shows n" in await find_refusal(
        replace_launch(GEMM, env={VISIBLE_DEVICES: ""}), hosts=hosts
    )


async def test_named_gpus_must_exist(messages):
    params = {"kv_store": "device", "device": "cuda"}
    stored = build_case("named", "kvstore.push_pull", gpus=[0, 3], **params)
    message = await find_refusal(stored, gpus=make_gpus(2))
    messages.check(message)
    single = build_case("one", "kvstore.push_pull", device_ids=[2], **params)
    tiles = build_case("tiles", "halo.exchange", grid="1x2", device_ids=[2, 0])
    for case in (single, tiles):
        assert needs_gpu(case)
        messages.check(await find_refusal(case, gpus=make_gpus(2)))
        assert await find_refusal(case, gpus=make_gpus(3)) is None
    assert await find_refusal(stored, gpus=make_gpus(4)) is None
    counted = build_case("counted", "kvstore.push_pull", gpus=4, **params)
    assert await find_refusal(counted, gpus=make_gpus(1)) is None


async def test_nccl_needs_distinct_device_ids(messages):
    tiles = build_case("tiles", "halo.exchange", grid="1x2", transport="nccl", device_ids=[0])
    message = await find_refusal(tiles, gpus=make_gpus(4))
    messages.check(message)
    distinct = build_case("both", "halo.exchange", grid="1x2", transport="nccl", device_ids=[0, 1])
    assert await find_refusal(distinct, gpus=make_gpus(4)) is None


async def test_peer_copy_needs_two_gpus(messages):
    peer = build_case("peer", "memory.copy", 1, path="peer")
    messages.check(await find_refusal(peer, gpus=make_gpus(1)))
    messages.check(await find_refusal(peer))
    for gpus in (make_gpus(2), HostGpus(other_files=True), make_gpus(2, visible="0")):
        assert await find_refusal(peer, gpus=gpus) is None
    assert (
        await find_refusal(build_case("a", "memory.copy", 1, path="to_host"), gpus=make_gpus(1))
        is None
    )


async def test_several_reasons_are_one_error(messages):
    stored = build_case("named", "kvstore.push_pull", kv_store="device", gpus=[0, 3], device="cuda")
    message = await find_refusal(NCCL, stored, gpus=make_gpus(1))
    messages.check(message)


async def test_other_hosts_are_surveyed_and_named(survey_stub, messages):
    for host, gpus in {"node1": make_gpus(2), "node2": NO_GPU, "node3": NO_GPU}.items():
        survey_stub.answers[host] = HostFacts(
            host, "ok", cores=8, gpus=gpus, torch="2.11.0", torch_cuda="13.0"
        )
    spread = replace(NCCL, np=6)
    message = await find_refusal(spread, gpus=NO_GPU, hosts=parse_hosts("node[1-3]:2"))
    messages.check(message)
    assert survey_stub.hosts == ["node1", "node2", "node3"]
    fits = await find_refusal(NCCL, hosts=parse_hosts("node1:2,node2:2"))
    assert fits is None


async def test_unreachable_hosts_are_accepted(survey_stub):
    survey_stub.answers["node1"] = make_unreachable("node1", "no answer in 8 s")
    assert await find_refusal(GEMM, hosts=parse_hosts("node1")) is None


async def test_host_is_queried_once_per_environment(survey_stub, messages):
    survey_stub.answers["node1"] = HostFacts("node1", "ok", cores=8, gpus=NO_GPU)
    other = LaunchSettings.model_validate({"env": {"CUDA_VISIBLE_DEVICES": ""}})
    late = LaunchSettings.model_validate({"timeout": 7})
    cases = [GEMM, replace(GEMM, name="late", launch=late), replace(GEMM, name="env", launch=other)]
    message = await find_refusal(*cases, hosts=parse_hosts("node1"))
    messages.check(message)
    assert survey_stub.hosts == ["node1", "node1"]
    assert [settings.env for settings in survey_stub.settings] == [{}, {"CUDA_VISIBLE_DEVICES": ""}]


async def test_host_with_only_servers_needs_no_gpu(survey_stub):
    survey_stub.answers["node2"] = HostFacts("node2", "ok", cores=8, gpus=NO_GPU)
    stores = build_case(
        "dist", "kvstore.push_pull", kv_store="dist_sync", num_servers=1, gpus=1, device="cuda"
    )
    workers = stores.np - 1
    survey_stub.answers["node1"] = HostFacts("node1", "ok", cores=8, gpus=make_gpus(1))
    assert await find_refusal(stores, hosts=parse_hosts(f"node1:{workers},node2:1")) is None


async def test_hosts_chosen_by_the_launcher_are_accepted():
    assert await find_refusal(GEMM, env={"LSB_JOBID": "1"}) is None
    assert await find_refusal(GEMM, launcher="srun") is None
    assert await find_refusal(GEMM, launcher="srun", hosts=parse_hosts("node1")) is None


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
async def test_hosts_from_launcher_variables_are_accepted(name):
    assert await find_refusal(GEMM, env={name: "x"}) is None


async def test_usual_shell_variables_name_no_hosts():
    assert await find_refusal(
        GEMM, env={"HOSTNAME": "x", "HOST": "x", "HOSTTYPE": "x", "LS_COLORS": ""}
    )


@pytest.mark.parametrize(
    "args", [["--host", "node7"], ["-f", "hosts"], ["-x", "CUDA_VISIBLE_DEVICES=0"]]
)
async def test_launcher_arguments_disable_the_check(survey_stub, args):
    assert await find_refusal(replace_launch(GEMM, args=args)) is None
    assert survey_stub.hosts == []


async def test_mapping_arguments_disable_the_nccl_check(survey_stub, messages):
    for host in ("node1", "node2"):
        survey_stub.answers[host] = HostFacts(
            host, "ok", cores=8, gpus=make_gpus(1), torch="2.11.0", torch_cuda="13.0"
        )
    hosts = parse_hosts("node1:2,node2:2")
    messages.check(await find_refusal(NCCL, hosts=hosts))
    assert await find_refusal(replace_launch(NCCL, args=["--map-by", "node"]), hosts=hosts) is None


@pytest.mark.slow
def test_shipped_gpu_suite_is_rejected_without_a_gpu(tmp_path):
    pytest.importorskip("mpi4py")
    ended = run("suites/gpu.yaml", home=tmp_path / "home", env={"CUDA_VISIBLE_DEVICES": ""})
    assert ended.code == 3
    assert ended.stderr.startswith("spbench: error: cannot run shared-")
    assert len((ended.stdout + ended.stderr).splitlines()) < 12
    assert not (tmp_path / "home/runs").exists()
