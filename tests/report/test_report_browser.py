"""The report in a browser: it opens offline, shows what it has, and leads from task to rollout and back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grown_run import EVIL, grown_run, hostile, many

from coevolve.report.page import write_report

_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for found in map(shutil.which, _NAMES) if found), None)
playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=f"no browser is installed ({', '.join(_NAMES)})")

WIDTHS = [380, 1400]


class Page:
    """One page of one browser, with all that it said and asked for."""

    def __init__(self, browser: Any, width: int) -> None:
        self.tab = browser.new_page(viewport={"width": width, "height": 900})
        self.tab.set_default_timeout(120_000)  # a page draws in a second, and waits for a busy machine
        self.said: list[str] = []
        self.asked: list[str] = []
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("request", lambda request: self.asked.append(request.url))

    def open(self, file: Path, place: str = "") -> Any:
        self.tab.goto(file.as_uri() + place)
        self.tab.wait_for_selector("body[data-drawn]")
        return self.tab

    def outside(self) -> list[str]:
        """What it asked for beyond its own file and what it holds."""
        return [url for url in self.asked if not url.startswith(("file:", "data:", "blob:"))]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(params=WIDTHS)
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Page]:
    made = Page(browser, request.param)
    yield made
    made.tab.close()


@pytest.fixture(scope="module")
def file(grown: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([grown], tmp_path_factory.mktemp("page") / "report.html")


def test_it_opens_without_a_complaint_and_without_the_network(page: Page, file: Path) -> None:
    tab = page.open(file)
    assert page.said == [] and page.outside() == []
    assert tab.locator(".plot .main-svg").count() >= 8
    for plot in tab.locator(".plot").all():
        box = plot.bounding_box()
        assert box["width"] > 250 and box["height"] > 200
    across, inside = tab.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]")
    assert across <= inside  # nothing to be pushed sideways


def test_search_finds_by_words_calls_and_ids(page: Page, file: Path) -> None:
    tab = page.open(file)
    rows = tab.locator("#tasks a")
    every, first = rows.count(), rows.last.locator(".text").inner_text()
    tab.fill("#search", "no such words anywhere")
    tab.wait_for_selector("#tasks a", state="detached")
    tab.fill("#search", first.upper())
    tab.wait_for_selector("#tasks a")
    assert 0 < rows.count() < every
    assert first in [row.inner_text() for row in tab.locator("#tasks .text").all()]
    key = rows.first.get_attribute("href").rpartition("/")[2]
    tab.fill("#search", key)
    tab.wait_for_selector("#tasks li:only-child")
    assert rows.count() == 1


def test_the_list_is_sorted_and_chosen_as_asked(page: Page, file: Path) -> None:
    tab = page.open(file)

    def steps() -> list[int]:
        return [
            int(text.split()[1]) for text in tab.locator("#tasks .meta > span:nth-child(2)").all_inner_texts()
        ]

    assert steps() == sorted(steps(), reverse=True)
    tab.select_option("#order", "old")
    assert steps() == sorted(steps())
    tab.select_option("#verdict", "refused")
    assert all("refused" in text for text in tab.locator("#tasks .meta").all_inner_texts())
    tab.select_option("#verdict", "admitted")
    tab.select_option("#origin", "boundary")
    assert set(tab.locator("#tasks .meta > span:first-child").all_inner_texts()) == {"boundary"}


def test_a_task_leads_to_its_failed_rollout_and_that_one_back(page: Page, file: Path) -> None:
    tab = page.open(file)
    tab.select_option("#origin", "boundary")
    tab.locator("#tasks a").first.click()
    made = tab.locator("#detail[data-shows^='#task/'] .asks").inner_text()
    here = tab.locator("#detail").get_attribute("data-shows")
    tab.locator("#detail a[href^='#signal/']").first.click()
    tab.wait_for_selector("#detail[data-shows^='#signal/']")
    assert "rollouts solved it" in tab.locator("#detail .asks").inner_text()
    tab.locator("#detail a.rollout").first.click()
    tab.wait_for_selector("#detail[data-shows^='#rollout/']")
    assert "failed" in tab.locator("#detail .head").inner_text()
    assert tab.locator("#detail .asks a[href^='#task/']").count() == 1  # the parent
    tab.locator("#detail a[href^='#signal/']").first.click()
    tab.wait_for_selector("#detail[data-shows^='#signal/']")
    tab.locator(f"#detail a[href='{here}']").first.click()
    tab.wait_for_selector(f"#detail[data-shows='{here}']")
    assert tab.locator("#detail .asks").inner_text() == made
    assert page.said == []


def test_a_phone_goes_back_to_the_list(browser: Any, file: Path) -> None:
    page = Page(browser, WIDTHS[0])
    tab = page.open(file)
    tab.locator("#tasks a").first.click()
    tab.locator("#detail.open .back").click()
    tab.locator("#detail").wait_for(state="hidden")  # the page hears of its new address a moment later
    assert tab.locator("#tasks a").first.is_visible()
    tab.close()


def test_a_lineage_link_opens_where_it_leads(page: Page, file: Path) -> None:
    tab = page.open(file, "#rollout/1")
    assert "rollout 1" in tab.locator("#detail .head").inner_text()
    assert tab.locator("#detail .call").count() >= 0 and tab.locator("#detail").is_visible()


def test_a_task_named_script_stays_text(page: Page, grown: Path, tmp_path: Path) -> None:
    run, task, rollout = hostile(tmp_path / "run", grown)
    file = write_report([run])
    tab = page.open(file, f"#task/{task}")
    shown = tab.locator("#detail .asks").inner_text()
    assert shown == EVIL
    assert EVIL in tab.locator("#tasks .text").first.inner_text()
    tab.locator("#detail details").last.evaluate("one => one.open = true")
    tab.goto(f"{file.as_uri()}#rollout/{rollout}")
    tab.wait_for_selector(f"#detail[data-shows='#rollout/{rollout}']")
    assert EVIL in tab.locator("#detail .call").all_inner_texts()
    tab.goto(f"{file.as_uri()}#lineage")
    tab.select_option("#verdict", "refused")
    tab.locator("#tasks a").first.click()
    tab.wait_for_selector("#detail[data-shows^='#refused/']")
    assert tab.title() != "owned" and tab.locator("main img, main script").count() == 0
    assert page.said == [] and page.outside() == []


def test_several_runs_open_as_quietly(page: Page, grown: Path, tmp_path: Path) -> None:
    other = grown_run(tmp_path / "other" / "<i>run", seed=1, train={"beta": 0.5})
    tab = page.open(write_report([grown, other], tmp_path / "all.html"))
    assert page.said == [] and page.outside() == []
    assert tab.locator(".plot .main-svg").count() >= 3 and tab.locator("i:has-text('run')").count() == 0
    across, inside = tab.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]")
    assert across <= inside


def test_ten_thousand_tasks_open_in_under_three_seconds(
    browser: Any, grown: Path, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    file = write_report([many(tmp_path / "many", grown, 10_000)])
    page = Page(browser, 1400)
    tab = page.open(file)
    taken = int(tab.locator("body").get_attribute("data-listed"))
    record_property("milliseconds", taken)
    assert taken < 3000  # by the browser's own clock, from asking for the page to the list
    assert tab.locator("#tasks a").count() <= 60  # the rest is made as it is scrolled to
    total = int(tab.locator("#found").inner_text().split()[0].replace(",", ""))
    assert total > 10_000
    tab.locator("#tasks a").last.scroll_into_view_if_needed()
    tab.wait_for_selector("#tasks li:nth-child(61)")
    tab.fill("#search", "number 9,999".replace(",", ""))
    tab.wait_for_selector("#tasks .text:has-text('This is number 9999.')")
    assert page.said == []
    tab.close()
