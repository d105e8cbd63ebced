"""A real browser, headless: `open_page(path)` shows a page and hands over a `Page` that says what it did."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

# No sandbox, because continuous integration runs as root; and nothing that asks the network for anything.
ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-device-scale-factor=1",
    "--window-size=1440,900",
)  # fmt: skip


def find(*names: str) -> str:
    """The first of these programs that is installed."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    pytest.fail(f"{' or '.join(names)} is not installed: ./run test installs it")


class Page:
    """A page in the browser. Whoever opens it asks at the end whether it was `clean()`."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, target: str | os.PathLike[str]) -> None:
        """Show a file or a URL."""
        self.driver.get_log("performance")
        self.driver.get_log("browser")
        address = os.fspath(target)
        self.driver.get(address if "://" in address else Path(address).resolve().as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns; a promise is waited for."""
        body = f"const done = arguments[arguments.length - 1]; (async (...args) => {{ {script} }})(...arguments)"
        body += ".then(value => done({value}), error => done({error: String(error && error.stack || error)}))"
        answer = self.driver.execute_async_script(body, *arguments)
        assert "error" not in answer, answer["error"]
        return answer.get("value")

    def wait(self, script: str, *arguments: Any, seconds: float = 60) -> Any:
        """Wait until an expression is true; its value."""
        return WebDriverWait(self.driver, seconds, poll_frequency=0.02).until(
            lambda driver: driver.execute_script(f"return ({script})", *arguments), f"never true: {script}"
        )

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def keys(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def click_at(self, selector: str, x: float, y: float) -> None:
        """Click at a place of an element, from its upper left corner in CSS pixels."""
        box = self.find(selector).rect
        ActionChains(self.driver).move_to_element_with_offset(
            self.find(selector), round(x - box["width"] / 2), round(y - box["height"] / 2)
        ).click().perform()

    def size(self, width: int, height: int, mobile: bool = False) -> None:
        """Make the window this large; `mobile` as on a phone, with touch."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": mobile})

    def media(self, **features: str) -> None:
        """Emulate media features, with _ for -: prefers_color_scheme="dark"."""
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": named})

    def screenshot(self, path: str | os.PathLike[str]) -> None:
        assert self.driver.save_screenshot(os.fspath(path))

    def requests(self) -> list[str]:
        """Addresses that were asked for over a network since the page was opened."""
        entries = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [entry["params"]["request"]["url"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]
        return [address for address in asked if not address.startswith(("file:", "data:", "blob:", "chrome"))]

    def complaints(self) -> list[str]:
        """Warnings and errors of the console since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    def clean(self) -> None:
        """Assert that nothing was fetched and nothing complained of."""
        assert self.requests() == []
        assert self.complaints() == []


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = find("chromium", "google-chrome", "chromium-browser")
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('browser')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(executable_path=find("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)
    browser.set_script_timeout(120)
    yield browser
    browser.quit()


@pytest.fixture
def open_page(driver: webdriver.Chrome) -> Iterator[Callable[[str | os.PathLike[str]], Page]]:
    """Show a page at 1440 x 900 in the light scheme."""
    page = Page(driver)

    def open(target: str | os.PathLike[str]) -> Page:
        page.size(1440, 900)
        page.media(prefers_color_scheme="light")
        page.open(target)
        return page

    yield open
    driver.get("about:blank")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A browser that inherits a preloaded sanitizer does not start."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.uninstrumented)
