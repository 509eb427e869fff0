"""Fixtures of all tests."""

from __future__ import annotations

import atexit
import gc
import hashlib
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from support.paths import ROOT
from support.runs import kill_leftovers

# The time of an example depends on other work on the cores, not on the tested code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
settings.register_profile("quick", deadline=None, max_examples=20)

pytest_plugins = ["support.messages", "support.process_groups"]

OPTIONAL_PACKAGES = ("torch", "mpi4py", "scipy", "pandas", "selenium")
"""Packages that only some tests need. `make dev` does not install them."""

MISSING_PACKAGES = [name for name in OPTIONAL_PACKAGES if find_spec(name) is None]


def pytest_configure() -> None:
    """Prepare the environment of all tests and of the programs they start."""
    # xdist's workers have no terminal, and programs would use a size from the environment.
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    os.environ["PWD"] = str(make_plain_path(ROOT))
    # A shell lets background jobs ignore SIGINT, and so do the programs that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        set_temporary_folder()
    else:
        # Ranks of other tests use the same cores: let ranks yield while they wait for a message.
        os.environ.update(OMPI_MCA_mpi_yield_when_idle="1")


def set_temporary_folder() -> None:
    """Set TMPDIR for the programs that tests start.

    An mpirun refuses to start if one with the same PID was killed before and left files in TMPDIR.
    """
    folder = tempfile.mkdtemp(prefix="spbench-tests-")
    os.chmod(folder, 0o711)  # some tests start programs as another user
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TMPDIR"] = folder


def make_plain_path(folder: Path) -> Path:
    """Return a folder, or a link to it if mpirun_rsh rejects its characters.

    mpirun_rsh starts ranks in the folder that the shell names in PWD, which may be a link.
    """
    if re.fullmatch(r"[\w./-]+", str(folder), re.ASCII):
        return folder
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    link = Path(tempfile.gettempdir()) / f"spbench-tests-{os.getuid()}-{digest}"
    with suppress(FileExistsError):  # of an earlier session, or of another process of this one
        link.symlink_to(folder)
    return link


@pytest.fixture(scope="module")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set HOME to a folder without a profile, and return it.

    Login shells, which `launch.setup` starts, would read the user's profile. If one is killed
    during pyenv's part of the profile, pyenv makes every later one wait for 60 s.
    """
    home = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        yield home


@pytest.fixture
def late() -> Iterator[Any]:
    """Install the late device, without pending work, and finish its work after."""
    from standins.late_device import install

    device = install()
    device.reset()
    yield device
    device.streams.synchronize_device()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import the modules of the tests without garbage collection.

    The imported objects stay, so that looking for garbage among them is useless.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        if "torch" in sys.modules:
            # Tests have small tensors, and run in parallel.
            sys.modules["torch"].set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip the files that need a missing package."""
    report = yield
    for name in MISSING_PACKAGES if report.failed else ():
        if f"No module named '{name}'" in report.longreprtext:
            report.outcome = "skipped"
            reason = f"Skipped: needs {name}, which is not installed"
            report.longrepr = (str(collector.path), 0, reason)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Skip the tests that need a missing package."""
    try:
        return (yield)
    except ModuleNotFoundError as error:
        if error.name in MISSING_PACKAGES:
            pytest.skip(f"needs {error.name}, which is not installed")
        raise


@pytest.fixture(autouse=True)
def _no_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep launch lines the same on machines with and without tcmalloc."""
    if "spbench.launch" in sys.modules:
        monkeypatch.setattr("spbench.launch.allocator.FOLDERS", ())


@pytest.fixture(autouse=True)
def no_run_outlives_its_test() -> Iterator[None]:
    yield
    kill_leftovers()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """Start headless Chromium, which logs its requests and console messages."""
    chromium = shutil.which("chromium")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium is not installed")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,900"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path / 'profile'}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    program = webdriver.Chrome(options=options, service=service)
    yield program
    program.quit()
