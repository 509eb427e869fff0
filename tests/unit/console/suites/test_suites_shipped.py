"""The JSON schema of suites, and the contents of the shipped suites."""

import json
import subprocess
import sys
from time import perf_counter

import jsonschema
import pytest
import yaml
from benchmarks.gpu_once.results import render_page

from spbench.launch.gpu_needs import needs_exclusive_gpu, needs_gpu
from spbench.suites.case import DERIVED_METRICS
from spbench.suites.json_schema import SCHEMA_FILE, SCHEMA_ID, build_suite_schema
from spbench.suites.loader import load_suite_file
from spbench.suites.select import select_matching
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.parameters import UNSWEPT_KINDS
from spbench_workers.benchmarks.allreduce.entry import COLLECTIVES
from spbench_workers.collectives.base import LIBRARIES, SCHEDULED
from support.paths import DOCS, SUITES

SHIPPED = sorted(SUITES.glob("*.yaml"))
SCHEMA = build_suite_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


@pytest.mark.slow
def test_schema_is_a_valid_json_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "schema" in SCHEMA["required"]


def test_published_schema_is_current():
    remedy = "write it again: make generate"
    assert json.loads(SCHEMA_FILE.read_text()) == SCHEMA, remedy
    assert SCHEMA["$id"] == SCHEMA_ID


@pytest.mark.parametrize("shape", ["params", "lists", "points"])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_schema_describes_each_parameter_of_a_benchmark(name, shape):
    properties = SCHEMA["$defs"][f"{name}.{shape}"]["properties"]
    for param in BENCHMARKS[name].params:
        if shape == "lists" and param.kind in UNSWEPT_KINDS:
            assert param.name not in properties
            continue
        if shape == "points":
            reference = f"#/$defs/{name}.params/properties/{param.name}"
            assert properties[param.name] == {"$ref": reference}
            continue
        assert properties[param.name]["description"] == param.help
        if param.default is not None and shape == "params":
            assert properties[param.name]["default"] == param.default


@pytest.mark.parametrize(
    ("section", "is_valid"),
    [
        ({"matrix": {"iterations": [1, 2], "np": [1, 2]}}, True),
        ({"zip": {"dtype": ["fp32", "fp64"]}}, True),
        ({"exclude": [{"iterations": 1, "np": 2}]}, True),
        ({"matrix": {"iterations": []}}, False),
        ({"matrix": {"iterations": 1}}, False),
        ({"matrix": {"iterations": [0]}}, False),
        ({"matrix": {"iteratons": [1]}}, False),
        ({"matrix": {"np": [0]}}, False),
        ({"zip": {"dtype": ["fp33"]}}, False),
        ({"exclude": [{"iterations": 0}]}, False),
        ({"exclude": [{"iteratons": 1}]}, False),
        ({"exclude": [{}]}, False),
    ],
)
def test_schema_checks_values_of_sweeps_and_exclusions(section, is_valid):
    case = {"name": "a", "benchmark": "halo.exchange"} | section
    suite = {"schema": "spbench.suite/1", "name": "s", "cases": [case]}
    assert VALIDATOR.is_valid(suite) == is_valid


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_suites_are_valid(path):
    VALIDATOR.validate(yaml.safe_load(path.read_text()))
    suite = load_suite_file(path)
    assert suite.name == path.stem
    assert suite.description


def make_suite(**changes):
    case = {"name": "a", "benchmark": "halo.exchange", **changes}
    return {"schema": "spbench.suite/1", "name": "s", "cases": [case]}


@pytest.mark.parametrize(
    "suite",
    [
        {"schema": "spbench.suite/1", "name": "s", "cases": []},
        {"schema": "spbench.suite/2", "name": "s", "cases": [make_suite()["cases"][0]]},
        make_suite() | {"colour": "red"},
        make_suite() | {"launch": {"launcher": "mpirunrsh"}},
        make_suite() | {"launch": {"env": {"A": None}}},
        make_suite() | {"launch": {"env": {"1A": "x"}}},
        make_suite() | {"launch": {"timeout": 0}},
        make_suite(benchmark="halo.exchang"),
        make_suite(name="a b"),
        make_suite(params={"halo_le": 3}),
        make_suite(params={"halo_len": 0}),
        make_suite(params={"slice_method": "vertcal"}),
        make_suite(params={"size": "4MiB"}),
        make_suite(matrix={"halo_len": 3}),
        make_suite(matrix={"halo_len": []}),
        make_suite(matrix={"halo_len": [0]}),
        make_suite(zip={"halo_le": [1]}),
        make_suite(matrix={"np": [0]}),
        make_suite(exclude=[{}]),
        make_suite(exclude=[{"halo_le": 1}]),
        make_suite(expect={"time_m": {"max": 1}}),
        make_suite(expect={"time_ms.p55": {"max": 1}}),
        make_suite(expect={"time_ms": {}}),
        make_suite(expect={"time_ms": {"max": None}}),
        make_suite(np=0),
    ],
)
def test_schema_rejects_invalid_suite(suite):
    assert not VALIDATOR.is_valid(suite)


def test_schema_accepts_what_the_loader_accepts():
    suite = make_suite(
        params={"num_spatial_parts": "4", "image_size": "65x96"},
        matrix={"halo_len": [1, 3], "np": [4]},
        zip={"seed": [1, 2], "batch_size": [1, 2]},
        exclude=[{"halo_len": 1, "seed": 2}],
        expect={"time_ms.p50": {"max": 5}, "skew": {"min": 1, "max": 3.5}},
        launch={"env": {"A": 1, "B": "x", "C": True}, "threads": 2, "args": ["-v"]},
        np=None,
    )
    VALIDATOR.validate(suite)


def test_halo_suite_covers_its_parameters():
    cases = load_suite_file(SUITES / "halo.yaml").cases
    assert len(cases) <= 12
    assert {case.np for case in cases} == {4}
    assert {case.params["slice_method"] for case in cases} == {"vertical", "horizontal", "square"}
    assert {case.params["halo_len"] for case in cases} >= {1, 3}
    assert {case.benchmark for case in cases} == {b for b in BENCHMARKS if b.startswith("halo.")}
    large = [c for c in cases if c.params["image_size"] == 1024 and c.params["in_channels"] == 3]
    assert {case.params["halo_len"] for case in large} == {3}
    assert {case.params["slice_method"] for case in large} == {"vertical", "square"}
    assert {"4x1", "1x4", "2x2"} == {case.params["grid"] for case in cases}


def test_allreduce_suite_covers_its_parameters():
    cases = load_suite_file(SUITES / "allreduce.yaml").cases
    assert {case.benchmark for case in cases} == {"allreduce.sweep"}
    assert {case.np for case in cases} == {2, 4}
    assert {case.params["collective"] for case in cases} == set(COLLECTIVES)
    assert {case.params["mode"] for case in cases} == {"blocking", "persistent", "nonblocking"}
    assert {case.params["size"] for case in cases} >= {8, 4096, 1 << 20}
    # nccl needs GPUs; schedules for other numbers of ranks, and aliases, are left out.
    left_out = {"nccl", "muji", "muji_2", "muji_8", "muji_fallback"}
    assert {case.params["algorithm"] for case in cases} == {*SCHEDULED, *LIBRARIES} - left_out


def test_kvstore_suite_covers_its_parameters():
    cases = load_suite_file(SUITES / "kvstore.yaml").cases
    assert {case.benchmark for case in cases} == {"kvstore.push_pull"}
    assert {case.np for case in cases} == {2, 3, 4, 5}
    stores = {"local", "device", "dist_sync", "dist_device_sync", "dist_async", "allreduce"}
    assert {case.params["kv_store"] for case in cases} == stores
    assert {case.params["bucket"] for case in cases} == {None, "tensor", "fused", "sliced", "flat"}
    assert {case.params["gc_type"] for case in cases} == {"none", "2bit", "1bit"}
    assert {case.params["optimizer"] for case in cases} == {"none", "sgd", "adam"}
    assert {case.params["sharding"] for case in cases} == {None, "hash", "balanced"}


def test_smoke_suite_runs_each_benchmark_on_two_ranks():
    cases = load_suite_file(SUITES / "smoke.yaml").cases
    assert {case.benchmark for case in cases} == set(BENCHMARKS)
    assert {case.np for case in cases} == {2}


def test_gpu_suite_names_the_cases_that_share_one_gpu():
    cases = load_suite_file(SUITES / "gpu.yaml").cases
    assert all(needs_gpu(case) for case in cases)
    assert {case.name.partition("-")[0] for case in cases} == {"shared", "each", "numa", "peer"}
    for case in cases:
        assert needs_exclusive_gpu(case) == case.name.startswith("each-")
    assert [
        case.name for case in select_matching(cases, "shared") if needs_exclusive_gpu(case)
    ] == []


def test_bringup_suite_expects_skew():
    cases = {case.name: case for case in load_suite_file(SUITES / "bringup.yaml").cases}
    with_skew = [n for n, case in cases.items() if [e.metric for e in case.expect] == ["skew"]]
    assert with_skew == ["memory", "gemm", "conv"]
    assert {name for name, case in cases.items() if case.np is not None} == {"halo"}
    assert [metric.name for metric in DERIVED_METRICS] == ["skew"]


def test_loading_is_fast_and_imports_little():
    load_suite_file(SUITES / "halo.yaml")
    start = perf_counter()
    load_suite_file(SUITES / "halo.yaml")
    assert perf_counter() - start < 0.1
    heavy = "{'torch', 'mpi4py', 'numpy', 'textual', 'rich', 'typer', 'jsonschema'}"
    code = f"import spbench.suites, sys; print({heavy} & sys.modules.keys())"
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert completed.stdout.strip() == "set()"


def test_gpu_results_page_matches_its_report():
    report = DOCS / "gpu_results.json"
    page = DOCS / "gpu_results.md"
    no_gpu_yet = "**Status:** no GPU has run spbench yet."
    if not report.exists():
        assert not page.exists()
        assert no_gpu_yet in (DOCS / "gpu.md").read_text()
        return
    results = json.loads(report.read_text())
    assert not results["rehearsal"]
    assert page.read_text() == render_page(results)
    assert no_gpu_yet not in (DOCS / "gpu.md").read_text()
    suite_ids = {case.id for case in load_suite_file(SUITES / "gpu.yaml").cases}
    assert suite_ids & {case["id"] for step in results["steps"] for case in step["cases"]}
