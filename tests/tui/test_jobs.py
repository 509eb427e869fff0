"""Ten jobs, each done by its keys: at two sizes, and in a browser; the docs count the keys."""

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
from support.tui.driving import SIZES, console, shown, until
from support.tui.jobs import JOBS

SPBENCH = Path(sys.executable).parent / "spbench"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
PATIENCE = 90.0
_CONTROL = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-_])")
_ROW = re.compile(r"^\| (?P<name>[^|]+?) \| (?P<keys>\d+) \|", re.MULTILINE)


SAMPLE = ("first run", "compare with yesterday", "switch the launcher, copy its line")
"""The jobs of `make test`."""


def marked(job):
    alone = [pytest.mark.mpi, pytest.mark.alone] if job.ranks else []
    again = [] if job.name in SAMPLE and not job.ranks else [pytest.mark.long]
    return pytest.param(job, id=job.name, marks=[pytest.mark.timeout(300), *alone, *again])


FIRST_SEEN = {"first run": "shipped with spbench", "recover unsaved text": "Recover"}
"""What is seen when the page is whole; else a launch line."""
ALL = [marked(job) for job in JOBS]


def test_the_docs_say_how_many_keys_each_job_takes():
    text = (ROOT / "docs" / "console.md").read_text()
    told = {row["name"]: int(row["keys"]) for row in _ROW.finditer(text)}
    assert told == {job.name: job.keys for job in JOBS}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("job", ALL)
async def test_a_job_is_done_by_its_keys(job, size, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suite = job.furnish(tmp_path)
    app = console(tmp_path, suite=suite, environ=dict(os.environ) | AS_ROOT)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "Help" in shown(app) or "Recover" in shown(app))
        if suite is None:
            await until(pilot, lambda: "shipped with spbench" in shown(app))
            await until(pilot, lambda: app.focused is not None)
        elif "Recover" not in shown(app):
            await until(pilot, lambda: "mpirun" in shown(app))
        for keys, seen in job.steps:
            for key in keys:
                await pilot.press({" ": "space", ",": "comma"}.get(key, key))
            await until(pilot, lambda seen=seen: told(app, seen), PATIENCE)
        await until(pilot, lambda: job.done(tmp_path), PATIENCE)


def told(app, words):
    """Whether these words are on the screen, whole or cut at the end of lines, or in a message."""
    text = " ".join(shown(app).replace("│", " ").split())
    return words in text or any(
        words in f"{note.title} {note.message}" for note in app._notifications
    )


class Page:
    """The console in a browser: keys go in, and what its terminal was given is read from frames."""

    def __init__(self, browser, address):
        from selenium.webdriver.common.by import By

        self._browser = browser
        browser.get(address)
        self._wait(lambda: browser.find_elements(By.CSS_SELECTOR, "body.-first-byte"))
        self._keyboard = browser.find_element(By.CSS_SELECTOR, "textarea.xterm-helper-textarea")
        self._seen = b""

    def press(self, key):
        from selenium.webdriver.common.keys import Keys

        self._seen = b""
        if key.startswith("ctrl+"):
            self._keyboard.send_keys(Keys.CONTROL, key.removeprefix("ctrl+"))
            self._keyboard.send_keys(Keys.NULL)
        else:
            named = {"enter": Keys.ENTER, "down": Keys.ARROW_DOWN}
            function = getattr(Keys, key.upper(), key) if re.fullmatch(r"f\d", key) else key
            self._keyboard.send_keys(named.get(key, function))

    def sees(self, words):
        """Wait until the words were drawn, since the last key."""
        wanted = "".join(words.split())
        self._wait(lambda: wanted in self._text())

    def _text(self):
        for entry in self._browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.webSocketFrameReceived":
                frame = message["params"]["response"]
                if frame["opcode"] == 2:
                    self._seen += base64.b64decode(frame["payloadData"])
        text = _CONTROL.sub(b"", self._seen).decode(errors="replace")
        return "".join(text.replace("│", "").split())

    def _wait(self, what):
        ends = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < ends, self._text()[-2000:] if self._seen else "nothing drawn"
            time.sleep(0.2)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serves the console in a folder, and returns its address."""
    monkeypatch.setenv("SPBENCH_CONFIG", str(tmp_path / "console.yaml"))
    servers = []

    def start(folder, suite):
        words = [
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
            list(map(str, words)), cwd=folder, env=environ, stdout=subprocess.PIPE, text=True
        )
        servers.append(server)
        return server.stdout.readline().strip()

    yield start
    for server in servers:
        server.send_signal(signal.SIGINT)
        server.wait(20)
        server.stdout.close()


@pytest.mark.long
@pytest.mark.parametrize("job", ALL)
def test_a_job_is_done_in_a_browser(job, tmp_path, served, browser):
    folder = tmp_path / "here"
    folder.mkdir()
    suite = job.furnish(folder)
    page = Page(browser, served(folder, suite))
    page.sees(FIRST_SEEN.get(job.name, "mpirun"))
    time.sleep(1)
    for keys, seen in job.steps:
        for key in keys:
            page.press(key)
            time.sleep(0.1)
        page.sees(seen)
        time.sleep(0.5)
    page._wait(lambda: job.done(folder))
