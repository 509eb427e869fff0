"""The console in headless Chromium, over `spbench serve`."""

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
    """Return the address that `spbench serve` prints.

    The server ends by Ctrl-C without errors.
    """
    monkeypatch.setenv("SPBENCH_CONFIG", str(tmp_path / "console.yaml"))
    arguments = [SPBENCH, "serve", SUITES / "smoke.yaml", "--port", "0"]
    with subprocess.Popen(
        [*map(str, arguments), "--home", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0, server.stderr.read()


def wait_for_condition(condition, seconds=30):
    end_time = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_time
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_browser_sends_keys_and_contacts_no_other_host(browser, address, tmp_path, artefacts):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.get("about:blank")
    browser.get_log("performance")  # discards earlier requests, such as for its own first page
    browser.get(address)
    wait_for_condition(lambda: browser.find_elements(By.CSS_SELECTOR, "body.-first-byte"))
    keyboard = browser.find_element(By.CSS_SELECTOR, "textarea.xterm-helper-textarea")
    settings = tmp_path / "console.yaml"
    time.sleep(3)  # the terminal is a canvas: its contents cannot be queried
    dark = browser.get_screenshot_as_png()
    keyboard.send_keys(Keys.CONTROL, "p")
    time.sleep(1)
    keyboard.send_keys("theme: spbench-light")
    time.sleep(1)
    keyboard.send_keys(Keys.ENTER)
    wait_for_condition(settings.exists)
    assert "spbench-light" in settings.read_text()
    time.sleep(1)
    browser.save_screenshot(str(artefacts / PICTURE))
    assert (artefacts / PICTURE).read_bytes() != dark
    server_host = re.match(r"http://([^/]+)/", address)[1]
    requested_hosts = [
        host
        for entry in browser.get_log("performance")
        for host in re.findall(r'"url":"(?:https?|wss?)://([^/"]+)', entry["message"])
    ]
    assert set(requested_hosts) == {server_host}
    console_messages = [entry["message"] for entry in browser.get_log("browser")]
    assert not [line for line in console_messages if "Content Security Policy" in line], (
        console_messages
    )


@pytest.mark.long
@pytest.mark.timeout(180)
def test_key_bar_is_drawn_and_unsaved_text_keeps_the_page(browser, address, artefacts):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    def page_asks():
        left = "const left = new Event('beforeunload', {cancelable: true});"
        return browser.execute_script(f"{left} window.dispatchEvent(left); return {PREVENTED};")

    browser.get(address)
    wait_for_condition(lambda: browser.find_elements(By.CSS_SELECTOR, "body.-first-byte"))
    time.sleep(5)  # the terminal is a canvas: its contents cannot be queried
    browser.save_screenshot(str(artefacts / KEY_BAR))
    assert is_drawn_below(artefacts / KEY_BAR)
    assert not page_asks()
    keyboard = browser.find_element(By.CSS_SELECTOR, "textarea.xterm-helper-textarea")
    keyboard.send_keys("e")  # into the editor, at the line of the case
    time.sleep(1)
    keyboard.send_keys(" ")
    wait_for_condition(page_asks)
    keyboard.send_keys(Keys.BACKSPACE)
    wait_for_condition(lambda: not page_asks())


def is_drawn_below(picture):
    """Return whether there is text in the terminal's last row."""
    from PIL import Image

    with Image.open(picture) as image:
        width, height = image.size
        row = image.convert("L").crop((0, height - 24, width, height))
    return len(row.getcolors(256) or ()) > 16
