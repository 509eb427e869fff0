"""Plug-ins that were written with the first names of plug-in API 1."""

import sys
from pathlib import Path

import pytest

from spbench.launch.detect import load_launcher
from spbench.launch.launcher import JobSpec, RankBlock
from spbench.suites.launcher_names import load_plugin_launchers
from spbench.suites.settings import LaunchSettings
from spbench_core import plugins
from spbench_core.catalog.benchmark import IdleParamError
from spbench_core.catalog.registration import load_plugin_entries
from spbench_core.catalog.scaling import ScalingTarget

CATALOG = """
from dataclasses import dataclass

from spbench_core.catalog.benchmark import IdleParamError, Benchmark, Ranks, iteration_of, time_of
from spbench_core.catalog.parameters import LISTS, UNSWEPT, Kind, Param
from spbench_core.catalog.scaling import AtRanks, any_work, follow, of_rank, own_work, whole
from spbench_core.catalog.shared_params import SEED, iterations, warmup
from spbench_core.catalog.tiles import tile_place, tile_ranks, tiles_over_ranks
from spbench_core.catalog.typed_params import parameter, params_of, shared
from spbench_core.catalog.work import Work, estimate_from, loops

SPBENCH_PLUGIN_API = 1


@dataclass(frozen=True)
class SumParams:
    count: int = parameter("int", 1000, "numbers of all ranks", minimum=1)
    iterations: int = shared(iterations(20))
    warmup: int = shared(warmup(2))
    seed: int = shared(SEED)


def scale(given, params, to: AtRanks):
    follow(to, ("count",))
    assert to.by is None and to.written == 2
    return given | {"count": of_rank("count", params["count"], to)}


def estimate(params, np):
    return Work(flops=params.count * loops(params))


BENCHMARKS = (
    Benchmark(
        name="first.sum",
        summary="a sum",
        params=params_of(SumParams),
        metrics=(time_of("one sum"),),
        checks=("sum",),
        faults=("corrupt-sum",),
        scaled=scale,
        work=estimate_from(SumParams, estimate),
        worker="nowhere",
    ),
)
"""
LAUNCHER = """
from pathlib import Path

from spbench.launch.launcher import Command, JobSpec, Placed, RankEnd, Said, counts, traits_of

SPBENCH_PLUGIN_API = 1


class FirstLauncher:
    name = "first"
    libraries = frozenset({"openmpi"})
    shows_binding = ""
    resolves_names = False
    helper = None

    def candidates(self, env, beside):
        return [Path(beside)]

    def version(self, executable):
        return traits_of(self).program or "first 1"

    def hostfile(self, placement):
        return " ".join(f"{host}:{ranks}" for host, ranks in counts(placement).items())

    def command(self, executable, job, env):
        return Command((*job.counts, str(job.asked["bind"])), {})

    def said(self, output):
        end = RankEnd((2,), "node02", 9)
        said = Said((end,))
        assert end.how in end.sentence and said.sentence == end.sentence
        return said


LAUNCHER = FirstLauncher()
"""


@pytest.fixture
def installed_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a plug-in with one benchmark and one launcher for the test."""
    info = tmp_path / "spbench_first-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: spbench-first\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(
        "[spbench.benchmarks]\nfirst = spbench_first_catalog\n"
        "[spbench.launchers]\nfirst = spbench_first_launcher\n"
    )
    (tmp_path / "spbench_first_catalog.py").write_text(CATALOG)
    (tmp_path / "spbench_first_launcher.py").write_text(LAUNCHER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_objects_by_group", {})
    monkeypatch.setattr(plugins, "_warnings", [])
    yield tmp_path
    for module in ("spbench_first_catalog", "spbench_first_launcher"):
        sys.modules.pop(module, None)


@pytest.mark.usefixtures("installed_plugin")
def test_a_benchmark_with_the_first_names_is_complete():
    entry = load_plugin_entries({})["first.sum"]
    assert plugins.list_warnings() == ()
    params = entry.complete({"count": 10})
    target = ScalingTarget(ranks=4, base_ranks=2, work="weak")
    assert entry.scaled is not None
    assert entry.scaled({}, params, target) == {"count": 20}
    assert entry.work is not None
    estimate = entry.work(params, 2)
    assert estimate is not None
    assert estimate.flops == 10 * 22
    assert entry.metrics[0].help.startswith("one sum")


@pytest.mark.usefixtures("installed_plugin")
def test_a_launcher_with_the_first_names_is_complete():
    assert "first" in load_plugin_launchers()
    assert plugins.list_warnings() == ()
    launcher = load_launcher("first")
    placement = (RankBlock("node01", 2), RankBlock("node02", 1))
    job = JobSpec(3, placement, LaunchSettings(), ("true",), {}, False, None)
    assert launcher.version(Path("first")) == "first 1"
    assert launcher.hostfile(job.placement) == "node01:2 node02:1"
    assert launcher.command(Path("first"), job, {}).argv == ("node01", "node02", "own")
    assert launcher.parse_output("").message == (
        "rank 2 on node02 was killed by signal 9 (SIGKILL)"
    )


def test_a_launcher_may_have_the_current_name_of_its_parser(installed_plugin: Path):
    module = installed_plugin / "spbench_first_launcher.py"
    module.write_text(LAUNCHER.replace("def said(", "def parse_output("))
    assert load_launcher("first").parse_output("").ends[0].ranks == (2,)


def test_a_launcher_without_a_parser_is_left_out(installed_plugin: Path):
    module = installed_plugin / "spbench_first_launcher.py"
    module.write_text(LAUNCHER.replace("def said(", "def other("))
    assert "first" not in load_plugin_launchers()
    (warning,) = plugins.list_warnings()
    assert "launcher first lacks parse_output" in warning


def test_an_idle_parameter_has_its_reason_by_the_first_name():
    assert IdleParamError("seed", "on device cpu").why == "on device cpu"
