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

# How long an example takes says nothing of what is tested, and much of what else the cores do.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
settings.register_profile("quick", deadline=None, max_examples=20)

pytest_plugins = ["support.messages", "support.process_groups"]

NEEDED = ("torch", "mpi4py", "scipy", "pandas", "selenium")
"""Packages that only some tests need; `make dev` installs none of them."""

ABSENT = [name for name in NEEDED if find_spec(name) is None]


def pytest_configure() -> None:
    """Prepare the environment of all tests and of the programs that they start."""
    # xdist's workers have no terminal, and programs would believe in its size.
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    os.environ["PWD"] = str(plain_path(ROOT))
    # A shell lets background jobs ignore SIGINT, and so do the programs that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        give_programs_a_folder()
    else:
        # Ranks of other tests are on the same cores: those that wait for a message give way.
        os.environ.update(OMPI_MCA_mpi_yield_when_idle="1")


def give_programs_a_folder() -> None:
    """Set TMPDIR for the programs that tests start.

    An mpirun refuses to start if one with the same PID was killed before and left files in TMPDIR.
    """
    folder = tempfile.mkdtemp(prefix="spbench-tests-")
    os.chmod(folder, 0o711)  # some tests start programs as another user
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TMPDIR"] = folder


def plain_path(folder: Path) -> Path:
    """Return a folder, or a link to it if its path has characters that mpirun_rsh does not take.

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

    Login shells, which `launch.setup` starts, would read the user's. If one is killed while pyenv's
    part of the profile runs, pyenv lets every later one wait for 60 s.
    """
    home = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        yield home


@pytest.fixture
def late() -> Iterator[Any]:
    """The device that does its work late, with none of it at first, and with all done after."""
    from standins.late_device import install

    device = install()
    device.reset()
    yield device
    device.streams.synchronize_device()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import what the tests import, all of which stays, without looking for garbage among it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        if "torch" in sys.modules:
            # Tests have small tensors, and run beside each other.
            sys.modules["torch"].set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip the files that need what this Python has not."""
    report = yield
    for name in ABSENT if report.failed else ():
        if f"No module named '{name}'" in report.longreprtext:
            report.outcome = "skipped"
            words = f"Skipped: needs {name}, which is not installed"
            report.longrepr = (str(collector.path), 0, words)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Skip the tests that need what this Python has not."""
    try:
        return (yield)
    except ModuleNotFoundError as error:
        if error.name in ABSENT:
            pytest.skip(f"needs {error.name}, which is not installed")
        raise


@pytest.fixture(autouse=True)
def _no_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let launch lines be the same on machines with tcmalloc and without."""
    if "spbench.launch" in sys.modules:
        monkeypatch.setattr("spbench.launch.allocator.FOLDERS", ())


@pytest.fixture(autouse=True)
def no_run_outlives_its_test() -> Iterator[None]:
    yield
    kill_leftovers()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """Chromium without a window; it keeps what it asks for, and what pages say in its console."""
    chromium = shutil.which("chromium")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium is not installed")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,900"):
        options.add_argument(word)
    options.add_argument(f"--user-data-dir={tmp_path / 'profile'}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    program = webdriver.Chrome(options=options, service=service)
    yield program
    program.quit()
