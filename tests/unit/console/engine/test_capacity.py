"""Runs that exceed the cores or memory of this machine are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from spbench.engine import capacity, plan
from spbench.engine.capacity import find_excess_ranks, find_rejection, reject_over_capacity
from spbench.engine.plan import Request, RunPlan
from spbench.errors import ExitCode, MissingError
from spbench.launch.choice import LaunchChoice
from spbench.record.machine import machine_files
from spbench.record.machine.machine_files import read_available_memory

GIB = 2**30
SUITES = Path(__file__).parents[4] / "suites"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, int | None]:
    """Simulate two cores and 8 GiB of memory; tests may change them."""
    facts: dict[str, int | None] = {"memory": 8 * GIB, "cores": 2}
    monkeypatch.setattr(capacity, "count_cores", lambda: facts["cores"])
    monkeypatch.setattr(capacity, "read_available_memory", lambda: facts["memory"])
    return facts


def plan_suite(tmp_path: Path, text: str, **choices: object) -> RunPlan:
    suite = tmp_path / "suite.yaml"
    suite.write_text(f"schema: spbench.suite/1\nname: made-up\n{text}")
    request = Request(suite, tmp_path / "home", {}, launch_choice=LaunchChoice(**choices))
    return plan.plan_run(request)


def plan_barrier(tmp_path: Path, np: int, launch: str = "{}", **choices: object) -> RunPlan:
    text = f"launch: {launch}\ncases: [{{name: a, benchmark: link.barrier, np: {np}}}]\n"
    return plan_suite(tmp_path, text, **choices)


@pytest.mark.parametrize(("np", "rejected"), [(4, False), (8, False), (9, False), (10, True)])
def test_five_ranks_per_core_are_rejected(tmp_path: Path, np: int, rejected: bool) -> None:
    assert (find_rejection(plan_barrier(tmp_path, np)) is not None) is rejected


def test_excess_has_the_words_of_the_rejection(tmp_path: Path) -> None:
    planned = plan_suite(
        tmp_path,
        "cases:\n"
        "  - {name: many, benchmark: link.barrier, np: 32}\n"
        "  - {name: more, benchmark: link.barrier, np: 81}\n"
        "  - {name: few, benchmark: link.barrier, np: 4}\n",
    )
    excess = find_excess_ranks(planned)
    assert list(excess) == ["many", "more"]
    assert excess["more"] == find_rejection(planned)


def test_rejection_names_ranks_cores_and_option(tmp_path: Path, messages) -> None:
    with pytest.raises(MissingError) as rejected:
        reject_over_capacity(plan_barrier(tmp_path, 32))
    assert rejected.value.exit_code == ExitCode.MISSING
    message = str(rejected.value)
    messages.check(message)
    assert "--oversubscribe" in message


@pytest.mark.parametrize(
    ("launch", "choices"),
    [
        ("{oversubscribe: force}", {}),
        ("{}", {"oversubscribe": True}),
        ("{oversubscribe: false}", {"oversubscribe": True}),
        ("{}", {"hosts": "node[01-02]:16"}),
    ],
)
def test_force_and_remote_hosts_accept_any_number_of_ranks(
    tmp_path: Path, launch: str, choices: dict[str, object]
) -> None:
    assert find_rejection(plan_barrier(tmp_path, 32, launch, **choices)) is None


def test_slots_of_this_machine_do_not_add_cores(tmp_path: Path) -> None:
    assert find_rejection(plan_barrier(tmp_path, 32, hosts="localhost:32"))


def plan_gemm(tmp_path: Path, n: int, **choices: object) -> RunPlan:
    text = f"cases: [{{name: big, benchmark: compute.gemm, np: 2, params: {{n: {n}}}}}]\n"
    return plan_suite(tmp_path, text, **choices)


def test_rejects_too_much_memory_with_both_sizes(tmp_path: Path) -> None:
    assert find_rejection(plan_gemm(tmp_path, 4096)) is None
    rejection = find_rejection(plan_gemm(tmp_path, 32768))
    assert rejection is not None
    assert rejection.startswith(
        "case big needs at least 24.3 GiB of memory for its 2 ranks, and this machine has 8 GiB "
        "available"
    )
    assert find_rejection(plan_gemm(tmp_path, 32768, oversubscribe=True)) is None


def test_unknown_memory_rejects_nothing(tmp_path: Path, machine: dict[str, int | None]) -> None:
    machine["memory"] = None
    assert find_rejection(plan_gemm(tmp_path, 32768)) is None


def test_data_on_a_gpu_takes_no_host_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "spbench.launch.gpu_needs.read_cards", lambda: [{"address": "0000:01:00.0"}]
    )
    assert find_rejection(plan_gemm(tmp_path, 32768)) is None


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.yaml")), ids=lambda path: path.stem)
def test_no_shipped_suite_is_rejected_on_two_cores(
    path: Path, tmp_path: Path, machine: dict[str, int | None]
) -> None:
    if path.stem == "real_size":
        machine["memory"] = 20 * 10**9  # the need that the suite states
    plan_ = plan.plan_run(Request(path, tmp_path, {}))
    assert find_rejection(plan_) is None


def test_available_memory_is_capped_by_the_cgroup_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 16000 kB\nMemAvailable: 9000 kB\n")
    monkeypatch.setattr(machine_files, "PROC", tmp_path)
    limits: dict[str, int | None] = {"memory_bytes": None}
    monkeypatch.setattr(machine_files, "read_cgroup_limits", lambda: limits)
    assert read_available_memory() == 9000 * 1024
    limits["memory_bytes"] = 1000
    assert read_available_memory() == 1000
    (tmp_path / "meminfo").unlink()
    assert read_available_memory() == 1000
    limits["memory_bytes"] = None
    assert read_available_memory() is None
