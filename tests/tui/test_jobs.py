"""Ten user jobs, each done by its keys: at two sizes, and in a browser."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.paths import ROOT
from support.tui.app_driver import SIZES, make_console, read_screen, wait_until
from support.tui.jobs import USER_TASKS

SPBENCH = Path(sys.executable).parent / "spbench"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
TIMEOUT = 90.0
_CONTROL = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-_])")
_ROW = re.compile(r"^\| (?P<name>[^|]+?) \| (?P<keys>\d+) \|", re.MULTILINE)


SAMPLE = ("first run", "compare with yesterday", "switch the launcher, copy its line")
"""The jobs of `make test`."""


def make_param(job):
    rank_marks = [pytest.mark.mpi, pytest.mark.alone] if job.starts_ranks else []
    duration_marks = [] if job.name in SAMPLE and not job.starts_ranks else [pytest.mark.long]
    return pytest.param(
        job, id=job.name, marks=[pytest.mark.timeout(300), *rank_marks, *duration_marks]
    )


FIRST_TEXTS = {"first run": "shipped with spbench", "recover unsaved text": "Recover"}
"""Text that a complete page shows, if not a launch line."""
JOB_PARAMS = [make_param(job) for job in USER_TASKS]


def test_docs_state_the_number_of_keys_of_each_job():
    text = (ROOT / "docs" / "console.md").read_text()
    documented = {row["name"]: int(row["keys"]) for row in _ROW.finditer(text)}
    assert documented == {job.name: job.key_count for job in USER_TASKS}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("job", JOB_PARAMS)
async def test_keys_complete_the_job(job, size, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suite = job.prepare(tmp_path)
    app = make_console(tmp_path, suite=suite, environ=dict(os.environ) | AS_ROOT)
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: "Help" in read_screen(app) or "Recover" in read_screen(app))
        if suite is None:
            await wait_until(pilot, lambda: "shipped with spbench" in read_screen(app))
            await wait_until(pilot, lambda: app.focused is not None)
        elif "Recover" not in read_screen(app):
            await wait_until(pilot, lambda: "mpirun" in read_screen(app))
        for keys, text in job.steps:
            for key in keys:
                await pilot.press({" ": "space", ",": "comma"}.get(key, key))
            await wait_until(pilot, lambda text=text: is_visible(app, text), TIMEOUT)
        await wait_until(pilot, lambda: job.is_done(tmp_path), TIMEOUT)


def is_visible(app, text):
    """Return whether a text is on the screen, in full or cut, or in a message."""
    screen_text = " ".join(read_screen(app).replace("│", " ").split())
    return text in screen_text or any(
        text in f"{note.title} {note.message}" for note in app._notifications
    )


class BrowserPage:
    """The console in a browser, with terminal output read from websocket frames."""

    def __init__(self, browser, address):
        from selenium.webdriver.common.by import By

        self._browser = browser
        browser.get(address)
        self._wait(lambda: browser.find_elements(By.CSS_SELECTOR, "body.-first-byte"))
        self._keyboard = browser.find_element(By.CSS_SELECTOR, "textarea.xterm-helper-textarea")
        self._output = b""

    def press(self, key):
        from selenium.webdriver.common.keys import Keys

        self._output = b""
        if key.startswith("ctrl+"):
            self._keyboard.send_keys(Keys.CONTROL, key.removeprefix("ctrl+"))
            self._keyboard.send_keys(Keys.NULL)
        else:
            named_keys = {"enter": Keys.ENTER, "down": Keys.ARROW_DOWN}
            function = getattr(Keys, key.upper(), key) if re.fullmatch(r"f\d", key) else key
            self._keyboard.send_keys(named_keys.get(key, function))

    def wait_for_text(self, text):
        """Wait until the text was drawn since the last key."""
        expected = "".join(text.split())
        self._wait(lambda: expected in self._text())

    def _text(self):
        for entry in self._browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.webSocketFrameReceived":
                frame = message["params"]["response"]
                if frame["opcode"] == 2:
                    self._output += base64.b64decode(frame["payloadData"])
        text = _CONTROL.sub(b"", self._output).decode(errors="replace")
        return "".join(text.replace("│", "").split())

    def _wait(self, condition):
        end_time = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < end_time, (
                self._text()[-2000:] if self._output else "nothing drawn"
            )
            time.sleep(0.2)


@pytest.fixture
def serve_tui(tmp_path, monkeypatch):
    """Serve the console in a folder, and return its address."""
    monkeypatch.setenv("SPBENCH_CONFIG", str(tmp_path / "console.yaml"))
    servers = []

    def start(folder, suite):
        arguments = [
            SPBENCH,
            "serve",
            *([suite] if suite else []),
            "--port",
            "0",
            "--home",
            folder / "home",
        ]
        environ = os.environ | AS_ROOT
        server = subprocess.Popen(
            list(map(str, arguments)), cwd=folder, env=environ, stdout=subprocess.PIPE, text=True
        )
        servers.append(server)
        return server.stdout.readline().strip()

    yield start
    for server in servers:
        server.send_signal(signal.SIGINT)
        server.wait(20)
        server.stdout.close()


@pytest.mark.long
@pytest.mark.parametrize("job", JOB_PARAMS)
def test_keys_complete_the_job_in_a_browser(job, tmp_path, serve_tui, browser):
    folder = tmp_path / "here"
    folder.mkdir()
    suite = job.prepare(folder)
    page = BrowserPage(browser, serve_tui(folder, suite))
    page.wait_for_text(FIRST_TEXTS.get(job.name, "mpirun"))
    time.sleep(1)
    for keys, text in job.steps:
        for key in keys:
            page.press(key)
            time.sleep(0.1)
        page.wait_for_text(text)
        time.sleep(0.5)
    page._wait(lambda: job.is_done(folder))
