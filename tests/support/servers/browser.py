"""A headless Chromium, driven over the pipe of its DevTools protocol: what people really get.

What does not come in time raises `AssertionError`.
"""

import base64
import itertools
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from tests.support.eventually import WITHIN_S

HOST: Final = "cortex.test"
"""Leads to this machine, but is no origin that browsers trust, unlike 127.0.0.1."""
_ARGUMENTS: Final = (
    "--headless=new",
    "--no-sandbox",  # as root it has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-breakpad",
    "--disable-default-apps",
    "--disable-extensions",
    "--process-per-site",  # pages of a test run in one process, not in one each
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    f"--host-resolver-rules=MAP {HOST} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
_KEYS: Final = {
    "Enter": {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
    "Tab": {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9},
}


NAVIGATIONS_MAX = 10
POLL_MS = 20


class NavigatedError(AssertionError):
    """The page went away while a question to it was under way."""


class Browser:
    """One running browser."""

    def __init__(self, executable: str, folder: Path) -> None:
        to_read, commands = os.pipe()
        answers, to_write = os.pipe()
        # It speaks on 3 and 4; only bash can move descriptors of two digits there.
        move = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", move, executable, *_ARGUMENTS, f"--user-data-dir={folder}"],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._commands = os.fdopen(commands, "wb")
        self._answers = os.fdopen(answers, "rb")
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._events: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._contexts: list[str] = []
        self._targets: list[str] = []
        self._thread = threading.Thread(target=self._read, name="browser")
        self._thread.start()

    def close(self) -> None:
        """End it, with all that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._thread.join()
        self._commands.close()
        self._answers.close()

    def call(self, method: str, *, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Ask for one thing and wait until it is done."""
        number = next(self._numbers)
        answer: queue.Queue[dict[str, Any]] = queue.Queue()
        self._waiting[number] = answer
        sent: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            sent["sessionId"] = session
        self._commands.write(json.dumps(sent).encode() + b"\0")
        self._commands.flush()
        try:
            output = answer.get(timeout=WITHIN_S)
        except queue.Empty:
            raise AssertionError(f"the browser did not do {method} in {WITHIN_S:g} s") from None
        if "navigated" in str(output.get("error", "")):
            raise NavigatedError(method)
        assert "error" not in output, (method, output["error"])
        result: dict[str, Any] = output["result"]
        return result

    def page(
        self,
        *,
        width: int = 1280,
        height: int = 900,
        scale: float = 1,
        with_scripts: bool = True,
        is_phone: bool = False,
        is_dark: bool = False,
        profile: str | None = None,
    ) -> "Page":
        """Open an empty page, of a new profile unless one is named."""
        context = profile
        if context is None:
            context = self.profile()
            self._contexts.append(context)
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        self._targets.append(target["targetId"])
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"])
        self._events[page.session] = page.happened
        page.call("Page.enable")
        page.call("Network.enable")
        page.resize(width=width, height=height, scale=scale, is_phone=is_phone)
        page.darken(is_dark=is_dark)
        if not with_scripts:
            page.call("Emulation.setScriptExecutionDisabled", value=True)
        return page

    def profile(self) -> str:
        """Return a new profile: pages of one share its cookies and, mostly, a process."""
        return str(self.call("Target.createBrowserContext")["browserContextId"])

    def close_pages(self) -> None:
        """Close all pages, since open ones keep ticking, and remove their profiles."""
        while self._targets:
            self.call("Target.closeTarget", targetId=self._targets.pop())
        while self._contexts:
            self.call("Target.disposeBrowserContext", browserContextId=self._contexts.pop())

    def _read(self) -> None:
        pending = b""
        while piece := os.read(self._answers.fileno(), 65_536):
            *whole, pending = (pending + piece).split(b"\0")
            for text in whole:
                self._take(json.loads(text))

    def _take(self, output: dict[str, Any]) -> None:
        if "id" in output:
            self._waiting.pop(output["id"]).put(output)
        elif (happened := self._events.get(output.get("sessionId", ""))) is not None:
            happened(output)


@attrs.define
class Page:
    """One tab."""

    browser: Browser
    session: str
    requests: list[dict[str, Any]] = attrs.field(factory=list)
    """Requests that it sent, as the protocol reports them."""
    _loaded: "queue.Queue[None]" = attrs.field(factory=queue.Queue)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the tab for one thing."""
        return self.browser.call(method, session=self.session, **params)

    def resize(self, *, width: int, height: int, scale: float = 1, is_phone: bool = False) -> None:
        """Show it on another screen from now on."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=is_phone,
        )

    def darken(self, *, is_dark: bool) -> None:
        """Say what its reader prefers from now on, the light or the dark."""
        theme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])

    def happened(self, output: dict[str, Any]) -> None:
        """Take an event, in the thread that reads."""
        if output["method"] == "Page.loadEventFired":
            self._loaded.put(None)
        elif output["method"] == "Network.requestWillBeSent":
            self.requests.append(output["params"])

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Wait, after the block, until another document has loaded."""
        while not self._loaded.empty():
            self._loaded.get()
        yield
        try:
            self._loaded.get(timeout=WITHIN_S)
        except queue.Empty:
            raise AssertionError(f"no page was loaded; this is still {self.url}") from None

    def open(self, url: str) -> None:
        """Go to an address and wait until it has loaded."""
        with self.loading():
            self.call("Page.navigate", url=url)

    def back(self, steps: int = 1) -> None:
        """Press the browser's button; it may or may not load a document."""
        history = self.call("Page.getNavigationHistory")
        entry = history["entries"][history["currentIndex"] - steps]
        self.call("Page.navigateToHistoryEntry", entryId=entry["id"])

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page, also where its own scripts are off."""
        output = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in output, output["exceptionDetails"]
        return output["result"].get("value")

    @property
    def url(self) -> str:
        """Address of the page."""
        return str(self.evaluate("location.href"))

    @property
    def text(self) -> str:
        """Visible text of the page."""
        return str(self.evaluate("document.body.innerText"))

    def until(self, expression: str) -> None:
        """Wait until an expression of the page is true."""
        script = (
            f"new Promise(done => {{ const look = () => ({expression}) ? done(true)"
            f" : setTimeout(look, {POLL_MS}); look(); }})"
        )
        for _ in range(NAVIGATIONS_MAX):
            try:
                self.call(
                    "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
                )
            except NavigatedError:  # a page on the way to another one: ask the next
                continue
            return
        raise AssertionError(f"the page never stayed long enough to see {expression}")

    def click(self, selector: str) -> None:
        """Click the middle of an element, as a person does."""
        place = self.evaluate(
            f"(() => {{ const it = document.querySelector({json.dumps(selector)});"
            " it.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const box = it.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        at = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **at)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **at)

    def type(self, selector: str, text: str) -> None:
        """Click into a field and type."""
        self.click(selector)
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press and release a key."""
        pressed = _KEYS[key]
        self.call("Input.dispatchKeyEvent", type="keyDown", **pressed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{**pressed, "text": ""})

    def screenshot(self, path: Path, *, is_whole: bool = False) -> None:
        """Write what is seen of it, or all of it, as PNG."""
        output = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(output["data"]))
