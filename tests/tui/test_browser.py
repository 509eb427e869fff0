"""The console in a real browser over `spbench serve`: Chromium without a window."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.paths import SUITES

SPBENCH = Path(sys.executable).parent / "spbench"
PICTURE = "spbench-serve.png"
KEY_BAR = "spbench-serve-keys.png"
PREVENTED = "left.defaultPrevented"


@pytest.fixture
def address(tmp_path, monkeypatch):
    """The address that `spbench serve` tells; the server ends by Ctrl-C and leaves nothing."""
    monkeypatch.setenv("SPBENCH_CONFIG", str(tmp_path / "console.yaml"))
    words = [SPBENCH, "serve", SUITES / "smoke.yaml", "--port", "0"]
    with subprocess.Popen(
        [*map(str, words), "--home", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0, server.stderr.read()


def wait_for(what, seconds=30):
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_keys_reach_the_console_in_a_browser_and_no_other_host_is_asked(
    address, browser, tmp_path, artefacts
):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.get("about:blank")
    browser.get_log("performance")  # what it asked for before, as its own first page
    browser.get(address)
    wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, "body.-first-byte"))
    keyboard = browser.find_element(By.CSS_SELECTOR, "textarea.xterm-helper-textarea")
    settings = tmp_path / "console.yaml"
    time.sleep(3)  # the terminal is a canvas: what it shows cannot be asked for
    dark = browser.get_screenshot_as_png()
    keyboard.send_keys(Keys.CONTROL, "p")
    time.sleep(1)
    keyboard.send_keys("theme: spbench-light")
    time.sleep(1)
    keyboard.send_keys(Keys.ENTER)
    wait_for(settings.exists)
    assert "spbench-light" in settings.read_text()
    time.sleep(1)
    browser.save_screenshot(str(artefacts / PICTURE))
    assert (artefacts / PICTURE).read_bytes() != dark
    own = re.match(r"http://([^/]+)/", address)[1]
    asked = [
        found
        for entry in browser.get_log("performance")
        for found in re.findall(r'"url":"(?:https?|wss?)://([^/"]+)', entry["message"])
    ]
    assert set(asked) == {own}
    refused = [entry["message"] for entry in browser.get_log("browser")]
    assert not [line for line in refused if "Content Security Policy" in line], refused


@pytest.mark.long
@pytest.mark.timeout(180)
def test_the_key_bar_is_there_unasked_and_unsaved_text_keeps_the_page(address, browser, artefacts):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    def asks():
        left = "const left = new Event('beforeunload', {cancelable: true});"
        return browser.execute_script(f"{left} window.dispatchEvent(left); return {PREVENTED};")

    browser.get(address)
    wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, "body.-first-byte"))
    time.sleep(5)  # the terminal is a canvas: what it shows cannot be asked for
    browser.save_screenshot(str(artefacts / KEY_BAR))
    assert is_drawn_below(artefacts / KEY_BAR)
    assert not asks()
    keyboard = browser.find_element(By.CSS_SELECTOR, "textarea.xterm-helper-textarea")
    keyboard.send_keys(Keys.ENTER)  # into the editor, at the line of the case
    time.sleep(1)
    keyboard.send_keys(" ")
    wait_for(asks)
    keyboard.send_keys(Keys.BACKSPACE)
    wait_for(lambda: not asks())


def is_drawn_below(picture):
    """Whether there is text in the terminal's last row."""
    from PIL import Image

    with Image.open(picture) as drawn:
        width, height = drawn.size
        row = drawn.convert("L").crop((0, height - 24, width, height))
    return len(row.getcolors(256) or ()) > 16
