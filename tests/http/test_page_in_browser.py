"""The page of a request in a real browser: with scripts and without, by key, by thumb, in the dark.

Needs Chromium.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from cortex.domain.approvals.approval import ApprovalRequest
from cortex.domain.canonical import canonical
from tests.support.outside_programs import BROWSER
from tests.support.reader import link_to, path_of, row_of
from tests.support.records.approvals import Askers
from tests.support.servers.browser import HOST, Browser, Page
from tests.support.servers.http_server import HttpServer

ARMED = "!document.documentElement.classList.contains('arming')"
POSTS = "/approvals/"
LONG = {
    "customer": "cus_88",
    "amount": 12.4,
    "unbroken": "x" * 700,
    "nested": {"a_very_long_name_" * 9: [{"deeper_" * 20: "y" * 200}]},
    "text": "\n".join("one line of many words that wraps" for _ in range(30)),
    "hidden": "\u202e" * 30,
}


@pytest.fixture(scope="module")
def server(shared_server: HttpServer) -> HttpServer:
    return shared_server


@pytest.fixture(scope="module")
def askers(shared_askers: Askers) -> Askers:
    return shared_askers


@pytest.fixture(scope="module")
def running_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    running = Browser(BROWSER.needed(), tmp_path_factory.mktemp("browser"))
    yield running
    running.close()


@pytest.fixture
def browser(running_browser: Browser) -> Iterator[Browser]:
    yield running_browser
    running_browser.close_pages()


@pytest.fixture(scope="module")
def profile(running_browser: Browser, server: HttpServer) -> str:
    """A profile that has signed in."""
    made = running_browser.profile()
    page = running_browser.page(profile=made)
    page.open(f"{base(server)}/approvals")
    sign_in(page, server)
    return made


def base(server: HttpServer, host: str = "127.0.0.1") -> str:
    return f"http://{host}:{server.port}"


def signed_in(page: Page, server: HttpServer, request: ApprovalRequest, **where: str) -> Page:
    """Come as a stranger, sign in, and be back at the request."""
    page.open(base(server, **where) + path_of(request))
    sign_in(page, server)
    assert page.url.endswith(path_of(request))
    return page


def sign_in(page: Page, server: HttpServer) -> None:
    page.type("#token", server.token("approver"))
    with page.loading():
        page.click("button.main")


def at(page: Page, server: HttpServer, request: ApprovalRequest) -> Page:
    """Open a request in a profile that has signed in."""
    page.open(base(server) + path_of(request))
    return page


def by_link(page: Page, server: HttpServer, askers: Askers, request: ApprovalRequest) -> Page:
    """Open a link."""
    token = link_to(askers.call, request)
    page.open(f"{base(server)}{path_of(request)}?t={token}")
    return page


def posts(page: Page) -> list[dict[str, Any]]:
    """Answers that it has sent."""
    sent = [each["request"] for each in page.requests]
    return [each for each in sent if each["method"] == "POST" and POSTS in each["url"]]


def armed(page: Page) -> Page:
    """Wait until its buttons count."""
    page.until(ARMED)
    return page


# --- the whole way


def test_without_scripts_a_link_leads_to_a_decision(
    browser: Browser, server: HttpServer, askers: Askers
) -> None:
    request = askers.asked()
    page = by_link(browser.page(with_scripts=False), server, askers, request)
    page.type("#name", "Bo Li")
    with page.loading():
        page.click("button.deny")
    assert "a denial needs a reason" in page.text
    assert page.evaluate("document.querySelector('#name').value") == "Bo Li"
    page.type("#reason", "looks wrong")
    with page.loading():
        page.click("button.deny")
    assert "Denied by Bo Li (unverified)" in page.text
    assert row_of(askers.call, request).reason == "looks wrong"


def test_without_scripts_an_edit_is_seen_and_then_approved(
    browser: Browser, server: HttpServer, askers: Askers
) -> None:
    request = askers.asked(risk="HIGH")
    page = signed_in(browser.page(with_scripts=False), server, request)
    page.click("details.edit summary")
    edited = json.dumps({"customer": "cus_88", "amount": 9})
    page.evaluate(f"document.querySelector('#draft').value = {json.dumps(edited)}")
    with page.loading():
        page.click("button[value=review]")
    assert "Approve with these changes?" in page.text
    page.type("#confirm", request.id.hex[-4:])
    with page.loading():
        page.click("button.approve")
    assert "Approved by ana" in page.text
    assert row_of(askers.call, request).arguments["amount"] == 9


def test_form_over_plain_http_is_accepted_by_its_origin(
    browser: Browser, server: HttpServer, askers: Askers
) -> None:
    """There, browsers send no Sec-Fetch-Site; and by the strictest referrer policy no Origin."""
    request = askers.asked(risk="HIGH")
    page = armed(signed_in(browser.page(), server, request, host=HOST))
    page.type("#confirm", request.id.hex[-4:])
    with page.loading():
        page.click("button.approve")
    assert "Approved by ana" in page.text


def test_after_a_decision_the_way_back_leads_to_no_form(
    browser: Browser, server: HttpServer, askers: Askers, profile: str
) -> None:
    request = askers.asked()
    page = armed(at(browser.page(profile=profile), server, request))
    with page.loading():
        page.click("button.approve")
    page.open(f"{base(server)}/approvals")
    for _ in range(2):
        page.back()
        page.until("document.body && document.body.innerText.includes('Approved by ana')")
        assert path_of(request) in page.url
        assert page.evaluate("document.querySelectorAll('.decision form').length") == 0
    assert len(posts(page)) == 1


def test_link_token_stays_out_of_history_and_scripts(
    browser: Browser, server: HttpServer, askers: Askers
) -> None:
    request = askers.asked()
    page = by_link(browser.page(), server, askers, request)
    assert page.url == base(server) + path_of(request)
    assert page.evaluate("document.cookie") == ""
    entries = page.call("Page.getNavigationHistory")["entries"]
    assert [entry["url"] for entry in entries if "?t=" in entry["url"]] == []
    later = [each["request"] for each in page.requests[1:]]
    assert "?t=" not in json.dumps(later), "in no address and no Referer"


# --- by accident


@pytest.mark.parametrize("with_scripts", [True, False])
def test_enter_in_a_field_decides_nothing(
    browser: Browser, server: HttpServer, askers: Askers, profile: str, *, with_scripts: bool
) -> None:
    request = askers.asked(risk="HIGH")
    page = at(browser.page(with_scripts=with_scripts, profile=profile), server, request)
    if with_scripts:
        armed(page)
    page.type("#confirm", request.id.hex[-4:])
    for selector in ("#confirm", "#canned", "#confirm"):
        page.evaluate(f"document.querySelector('{selector}').focus()")
        page.press("Enter")
        page.press("Enter")
    page.evaluate("document.querySelector('#confirm').focus()")
    with page.loading():
        page.click("button.approve")
    assert "Approved by ana" in page.text
    assert len(posts(page)) == 1


def test_buttons_count_after_a_quiet_moment_only(
    browser: Browser, server: HttpServer, askers: Askers, profile: str
) -> None:
    """A button pressed at every frame from the first one on acts after 400 ms, not before."""
    request = askers.asked(risk="HIGH")
    page = at(browser.page(profile=profile), server, request)
    press_always = """
        window.tried = 0;
        window.passed = null;
        addEventListener('submit', (event) => {
            if (!event.defaultPrevented) window.passed ??= performance.now();
            event.preventDefault();
        });
        addEventListener('DOMContentLoaded', () => {
            window.began = performance.now();
            const press = () => {
                window.tried += 1;
                document.querySelector('button.deny').click();
                if (window.passed === null) requestAnimationFrame(press);
            };
            press();
        });
    """
    page.call("Page.addScriptToEvaluateOnNewDocument", source=press_always)
    page.open(base(server) + path_of(request))
    page.until("window.passed !== null")
    began, passed, tried = page.evaluate("[window.began, window.passed, window.tried]")
    assert passed - began >= 400
    assert tried > 5
    assert posts(page) == []


def test_page_focuses_nothing_and_tab_order_ends_with_deny_and_approve(
    browser: Browser, server: HttpServer, askers: Askers, profile: str
) -> None:
    request = askers.asked(risk="HIGH")
    page = armed(at(browser.page(profile=profile), server, request))
    assert page.evaluate("document.activeElement === document.body")
    order = []
    for _ in range(16):
        page.press("Tab")
        order.append(
            page.evaluate(
                "(document.activeElement.value || '') + '#' + document.activeElement.id"
                " + ' ' + document.activeElement.localName"
            )
        )
        if order[-1].startswith("approve"):
            break
    assert order[-5:] == ["#canned select", "#reason textarea", "#confirm input",
                          "deny# button", "approve# button"]  # fmt: skip
    deny, approve = (
        page.evaluate(f"document.querySelector('button.{name}').getBoundingClientRect().x")
        for name in ("deny", "approve")
    )
    assert deny < approve


# --- time


def test_the_time_left_ticks_and_is_documented_each_minute(
    browser: Browser, server: HttpServer, askers: Askers
) -> None:
    request = askers.asked(expires_s=118.0)
    page = by_link(browser.page(), server, askers, request)
    live = "document.querySelector('#left-status')"
    assert page.evaluate(f"{live}.getAttribute('aria-live')") == "polite"
    assert page.evaluate(f"{live}.textContent") == ""
    page.evaluate("const now = performance.now(); performance.now = () => now + 59_000")
    page.until(f"{live}.textContent !== ''")
    left = page.evaluate("document.querySelector('.expiry strong').textContent")
    assert re.fullmatch(r"\d+ s", left)
    assert page.evaluate(f"{live}.textContent") == f"{left} left"


def test_expired_page_hides_its_buttons(
    browser: Browser, server: HttpServer, askers: Askers
) -> None:
    request = askers.asked(expires_s=4.0)
    page = by_link(browser.page(), server, askers, request)
    page.until("document.documentElement.classList.contains('over')")
    assert "Expired: it can no longer be decided." in page.text
    assert page.evaluate("document.querySelector('button.approve').offsetParent") is None


# --- on anything


WIDEST = """
    [...document.querySelectorAll('body *')]
        .filter((it) => !it.closest('.sr') && it.getBoundingClientRect().width > 0)
        .filter((it) => it.getBoundingClientRect().right > innerWidth + 1)
        .map((it) => it.outerHTML.slice(0, 120))
"""


SMALL = """
    [...document.querySelectorAll('.buttons button')].map((it) => it.getBoundingClientRect())
        .filter((box) => box.height < 44 || box.width < 44).length
"""
SCREENS: list[dict[str, Any]] = [
    {"width": 320, "height": 568, "scale": 2, "is_phone": True},
    {"width": 390, "height": 844, "scale": 3, "is_phone": True},
    {"width": 640, "height": 450, "scale": 2},  # a window of 1280 at 200 %
    {"width": 1280, "height": 900},
]


def test_page_is_never_wider_than_the_screen(
    browser: Browser, server: HttpServer, askers: Askers, profile: str
) -> None:
    request = askers.asked(arguments=LONG, risk="CRITICAL", schema={"type": "object"})
    page = at(browser.page(profile=profile), server, request)
    for path in (path_of(request), "/approvals", "/sign-in"):
        for screen in SCREENS:
            page.resize(**screen)
            page.open(base(server) + path)
            if path == path_of(request):
                page.click("details.edit summary")
                page.click("details.raw summary")
                small = page.evaluate(SMALL)
                assert small == 0, f"a thumb finds them at {screen['width']}"
            fits = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert (fits, page.evaluate(WIDEST)) == (True, []), (path, screen)


CONTRASTS = """
    (() => {
        const options = {willReadFrequently: true};
        const canvas = document.createElement('canvas').getContext('2d', options);
        const rgb = (colour) => {
            canvas.clearRect(0, 0, 1, 1);
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data];
        };
        const light = ([r, g, b]) => {
            const part = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
        };
        const ground = (it) => {
            for (; it; it = it.parentElement) {
                const colour = rgb(getComputedStyle(it).backgroundColor);
                if (colour[3] === 255) return colour;
            }
            return rgb(getComputedStyle(document.body).backgroundColor);
        };
        const found = [];
        for (const it of document.querySelectorAll('body *')) {
            const own = [...it.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
            if (!own || it.closest('.sr, option') || it.offsetParent === null) continue;
            const [a, b] = [light(rgb(getComputedStyle(it).color)), light(ground(it))];
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < 4.5) found.push([it.outerHTML.slice(0, 100), ratio]);
        }
        return found;
    })()
"""


def test_all_text_can_be_read_in_the_light_and_in_the_dark(
    browser: Browser, server: HttpServer, askers: Askers, profile: str
) -> None:
    request = askers.asked(arguments=LONG, risk="CRITICAL", schema={"type": "object"})
    askers.decide(request, by="kim", edited=canonical({**LONG, "amount": 9}))
    for risk in ("LOW", "MED", "HIGH"):
        askers.asked(risk=risk)
    page = armed(at(browser.page(profile=profile), server, request))

    def readable() -> None:
        for is_dark in (False, True):
            page.darken(is_dark=is_dark)
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(20, 22, 26)") is is_dark
            assert page.evaluate(CONTRASTS) == [], (page.url, is_dark)

    readable()
    with page.loading():
        page.click("button.approve")
    armed(page)
    assert "confirm is missing" in page.text
    readable()
    for path in ("/approvals", "/sign-in"):
        page.open(base(server) + path)
        readable()
