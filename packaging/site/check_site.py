"""Look at the built site as a phone shows it: `python -m pytest -n 0 packaging/site/check_site.py`.

Build it first, with `packaging/site/build`. Needs Chromium, and no network.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urldefrag

import pytest

from tests.support.outside_programs import BROWSER
from tests.support.servers.browser import Browser, Page

SITE: Final = Path(__file__).parent.parent.parent / "dist" / "site"
PAGES: Final = sorted(SITE.rglob("*.html"))
WIDTH: Final = 390
_OUTSIDE: Final = """
[...document.querySelectorAll('.rst-content *')].filter(each => {
    const scrolls = each.closest('pre, table, .wy-breadcrumbs');
    return each.getBoundingClientRect().right > innerWidth + 1 && (!scrolls || scrolls === each);
}).map(each => each.outerHTML.slice(0, 200))
"""
"""What is cut off on the right and does not scroll within a frame of its own."""

_FAINT: Final = """
(() => {
    const parts = color => color.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(each => each / 255)
        .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
        .reduce((sum, each, i) => sum + each * [0.2126, 0.7152, 0.0722][i], 0.05);
    const behind = each => {
        const color = parts(getComputedStyle(each).backgroundColor);
        return color[3] === 0 ? behind(each.parentElement) : color;
    };
    const texts = '.rst-content :is(h1, h2, p, li, a, td, th, pre, span, code)';
    return [...document.querySelectorAll(texts)]
        .filter(each => each.innerText.trim() && !each.matches('.headerlink, .icon, .btn'))
        .filter(each => {
            const pair = [light(parts(getComputedStyle(each).color)), light(behind(each))].sort();
            return pair[1] / pair[0] < 4.5;
        }).map(each => each.outerHTML.slice(0, 200));
})()
"""
"""Text whose contrast with its background is less than 4.5, which WCAG 2 asks for (level AA)."""


def ids(page: Path) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', page.read_text("utf-8")))


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    browser = Browser(BROWSER.needed(), tmp_path_factory.mktemp("browser"))
    yield browser.page(width=WIDTH, height=844, is_phone=True)
    browser.close()


def test_site_is_built() -> None:
    assert SITE / "docs" / "tutorial.html" in PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(SITE)))
def test_links_lead_to_pages_of_the_site(page: Path) -> None:
    for link in re.findall(r'(?:href|src)="([^"]+)"', page.read_text("utf-8")):
        path, anchor = urldefrag(unquote(link))
        if re.match(r"\w+:|//|/", path):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or target.suffix != ".html" or anchor in ids(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(SITE)))
def test_page_fits_the_width_of_a_phone(page: Path, phone: Page) -> None:
    phone.open(page.as_uri())
    assert phone.evaluate("document.documentElement.scrollWidth") <= WIDTH
    assert phone.evaluate(_OUTSIDE) == []


def test_code_is_highlighted_without_help_from_elsewhere(phone: Page) -> None:
    page = SITE / "docs" / "tutorial.html"
    assert not re.search(
        r'<(?:link|script)[^>]*(?:href|src)="(?:https?:)?//', page.read_text("utf-8")
    )
    phone.open(page.as_uri())
    spans = "[...document.querySelectorAll('.highlight span')]"
    colours = phone.evaluate(f"{spans}.map(each => getComputedStyle(each).color)")
    assert len(set(colours)) > 3


@pytest.mark.parametrize(
    "name", ["index", "docs/tutorial", "docs/internals/hot-path", "docs/reference/python"]
)
def test_text_has_contrast_in_light_and_dark_mode(name: str, phone: Page) -> None:
    for is_dark in (False, True):
        phone.darken(is_dark=is_dark)
        phone.open((SITE / f"{name}.html").as_uri())
        assert phone.evaluate(_FAINT) == []
