"""Headless Chromium, and a page in it: what it shows, what it fetched, what it complained of."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

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
    raise FileNotFoundError(f"{' or '.join(names)} is not installed: ./run installs it")


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
        self.settle()

    def press(self, modifier: str, key: str) -> None:
        """Press a key while another one is held."""
        ActionChains(self.driver).key_down(modifier).send_keys(key).key_up(modifier).perform()
        self.settle()

    def click(self, selector: str) -> None:
        """Click in the middle of an element."""
        self.find(selector).click()
        self.settle()

    def settle(self) -> None:
        """Wait until the page has drawn what was just done."""
        self.run("for (let i = 0; i < 2; i++) await new Promise(done => requestAnimationFrame(() => setTimeout(done)))")

    def click_at(self, selector: str, x: float, y: float) -> None:
        """Click at a place of an element, from its upper left corner in CSS pixels."""
        box = self.find(selector).rect
        ActionChains(self.driver).move_to_element_with_offset(
            self.find(selector), round(x - box["width"] / 2), round(y - box["height"] / 2)
        ).click().perform()
        self.settle()

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
        found = self.requests() + self.complaints()
        assert not found, "\n".join(found)


def start_browser(data: str | os.PathLike[str]) -> webdriver.Chrome:
    """A browser that keeps its data in an empty directory. Whoever starts it calls `quit()`."""
    options = webdriver.ChromeOptions()
    options.binary_location = find("chromium", "google-chrome", "chromium-browser")
    for argument in (*ARGUMENTS, f"--user-data-dir={os.fspath(data)}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(executable_path=find("chromedriver")))
    browser.set_script_timeout(120)
    return browser
