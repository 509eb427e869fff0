"""A rank's GPU before MPI starts: by local ranks, the driver and sysfs."""

import ctypes

import pytest

from spbench_parallel.device.driver import Driver
from spbench_workers.binding import numa
from spbench_workers.binding.before_mpi import select_gpu
from spbench_workers.binding.local_rank import read_local_rank


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "2"}, (2, "OMPI_COMM_WORLD_LOCAL_RANK")),
        ({"MV2_COMM_WORLD_LOCAL_RANK": "5"}, (5, "MV2_COMM_WORLD_LOCAL_RANK")),
        ({"MPI_LOCALRANKID": "1"}, (1, "MPI_LOCALRANKID")),
        ({"MPI_LOCALRANKID": "x"}, None),
        ({"SLURM_LOCALID": "3", "SLURM_STEP_ID": "0"}, (3, "SLURM_LOCALID")),
        # A batch script has it as well, and each launcher in it passes it to all its ranks.
        ({"SLURM_LOCALID": "0"}, None),
        (
            {"SLURM_LOCALID": "0", "SLURM_STEPID": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "4"},
            (4, "OMPI_COMM_WORLD_LOCAL_RANK"),
        ),
    ],
)
def test_reads_the_local_rank_of_the_launcher(environ, expected):
    assert read_local_rank(environ) == expected


class FakeCuda:
    """The part of libcuda that ctypes calls, with some GPUs.

    `fails` names the calls that return an error.
    """

    def __init__(self, count=2, fails=()):
        self._count = count
        self._fails = fails
        self.current = None

    def _status(self, name):
        return 999 if name in self._fails else 0

    def cuInit(self, flags):  # noqa: N802 - the library's name
        return self._status("cuInit")

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = self._count
        return self._status("cuDeviceGetCount")

    def cuDeviceGet(self, device, index):  # noqa: N802
        device._obj.value = index
        return 101 if index >= self._count else 0

    def cuDeviceGetPCIBusId(self, text, size, device):  # noqa: N802
        text.value = f"0000:{0xA1 + device.value:X}:00.0".encode()
        return self._status("cuDeviceGetPCIBusId")

    def cuDevicePrimaryCtxRetain(self, context, device):  # noqa: N802
        context._obj.value = 100 + device.value
        return self._status("cuDevicePrimaryCtxRetain")

    def cuCtxSetCurrent(self, context):  # noqa: N802
        self.current = context.value
        return self._status("cuCtxSetCurrent")


def test_the_driver_counts_and_addresses_gpus_like_sysfs():
    driver = Driver(FakeCuda())
    assert driver.count_gpus() == 2
    assert driver.read_pci_address(1) == "0000:a2:00.0"
    assert driver.read_pci_address(2) is None
    assert Driver(FakeCuda(fails=("cuInit",))).count_gpus() == 0
    assert Driver(FakeCuda(fails=("cuDeviceGetPCIBusId",))).read_pci_address(0) is None


LOCAL = {"MV2_COMM_WORLD_LOCAL_RANK": "3", "SPBENCH_DEVICE": "cuda"}


def test_the_gpu_of_the_local_rank_is_current_before_mpi():
    library = FakeCuda()
    assert select_gpu(LOCAL, lambda: Driver(library)) == 1
    assert library.current == 101


@pytest.mark.parametrize(
    ("environ", "library"),
    [
        ({**LOCAL, "SPBENCH_DEVICE": ""}, FakeCuda()),
        ({"SPBENCH_DEVICE": "cuda"}, FakeCuda()),
        (LOCAL, FakeCuda(count=0)),
        (LOCAL, FakeCuda(fails=("cuDevicePrimaryCtxRetain",))),
    ],
)
def test_selects_no_gpu_if_not_requested_or_missing(environ, library):
    assert select_gpu(environ, lambda: Driver(library)) is None
    assert library.current is None


def test_selects_no_gpu_without_a_driver():
    assert select_gpu(LOCAL, lambda: None) is None


def test_the_real_loader_returns_a_usable_driver_or_none():
    from spbench_parallel.device.driver import load_driver

    driver = load_driver()
    assert driver is None or driver.count_gpus() >= 0
    assert ctypes.sizeof(ctypes.c_void_p) == 8


@pytest.fixture
def two_sockets(tmp_path, monkeypatch):
    """Two sockets of two cores with a GPU on each, and a GPU without a node in sysfs."""
    pci = tmp_path / "pci"
    cpus = tmp_path / "cpu"
    for address, node in (("0000:41:00.0", 0), ("0000:c1:00.0", 1), ("0000:e1:00.0", -1)):
        (pci / address).mkdir(parents=True)
        (pci / address / "numa_node").write_text(f"{node}\n")
    for cpu in range(4):
        (cpus / f"cpu{cpu}" / f"node{cpu // 2}").mkdir(parents=True)
    monkeypatch.setattr(numa, "PCI", pci)
    monkeypatch.setattr(numa, "CPUS", cpus)


@pytest.mark.usefixtures("two_sockets")
@pytest.mark.parametrize(
    ("address", "cpus", "is_near", "expected"),
    [
        ("0000:41:00.0", (0, 1), True, "near the rank's cores on NUMA node 0"),
        ("0000:c1:00.0", (0, 1, 2, 3), True, "near the rank's cores on NUMA node 0, 1"),
        ("0000:c1:00.0", (0,), False, "it is on NUMA node 1, they on node 0"),
        ("0000:e1:00.0", (0,), None, "not known"),
        ("0000:99:00.0", (0,), None, "not known"),
        (None, (0,), None, "not known"),
        ("0000:41:00.0", (9,), None, "not known"),
    ],
)
def test_a_gpu_is_near_the_cores_of_its_socket(address, cpus, is_near, expected):
    nearness, phrase = numa.describe_nearness(address, cpus)
    assert nearness is is_near
    assert expected in phrase
