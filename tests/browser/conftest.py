"""A real browser, headless: `open_page(path)` shows a page and hands over a `Page` that says what it did."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser_page import Page, start_browser
from selenium import webdriver


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    browser = start_browser(tmp_path_factory.mktemp("browser"))
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
            item.add_marker(pytest.mark.beside)
