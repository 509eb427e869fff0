"""The page of a run in a browser: light, dark, printed, and without requests."""

import base64
import json
import shutil
from importlib.resources import files

import pytest

from spbench.record.runs.folder import RunFolder
from spbench.report.formats.page.document import render_page
from spbench.report.recorded import load_run

pytestmark = [pytest.mark.screen, pytest.mark.slow, pytest.mark.timeout(120)]
COLORS = """
const style = (element) => getComputedStyle(document.querySelector(element));
return [style("body").backgroundColor, style("body").color, style("svg .bars").fill];
"""
CUT_ELEMENTS = """
return [...document.querySelectorAll(".wide")]
  .filter((element) => element.scrollWidth > element.clientWidth + 1)
  .map((element) => element.innerText.slice(0, 80));
"""
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def page(tmp_path):
    folder = shutil.copytree(str(files("spbench") / "demo"), tmp_path / "demo")
    path = tmp_path / "page.html"
    path.write_text(render_page(load_run(RunFolder(folder))))
    return path.as_uri()


def set_color_scheme(browser, name):
    features = [{"name": "prefers-color-scheme", "value": name}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def test_page_opens_light_and_dark_without_requests(browser, page):
    browser.get("about:blank")
    browser.get_log(
        "performance"
    )  # drop earlier requests, such as those of the browser's first page
    set_color_scheme(browser, "light")
    browser.get(page)
    light = browser.execute_script(COLORS)
    set_color_scheme(browser, "dark")
    dark = browser.execute_script(COLORS)
    assert light[0] == "rgb(251, 251, 249)"
    assert dark[0] == "rgb(18, 22, 28)"
    assert all(
        light_color != dark_color for light_color, dark_color in zip(light, dark, strict=True)
    )
    assert browser.title == "demo: failed"
    requested = [
        message["params"]["request"]["url"]
        for entry in browser.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"]
        == "Network.requestWillBeSent"
    ]
    assert [url for url in requested if not url.startswith("data:")] == [page]
    assert browser.get_log("browser") == []


def test_page_fits_narrow_windows_and_paper(browser, page):
    browser.set_window_size(520, 900)
    browser.get(page)
    assert browser.execute_script(OVERFLOW) <= 0
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.set_window_size(718, 900)  # A4 between usual margins
    assert browser.execute_script(CUT_ELEMENTS) == []
    assert base64.b64decode(browser.print_page()).startswith(b"%PDF")
