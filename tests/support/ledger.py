"""The other side of effects: a ledger that no pod can mend, with every application it ever made.

    POST /ACCOUNT       apply; headers Idempotency-Key and Cortex-Attempt; the body is kept
    GET  /ACCOUNT/KEY   what became of a key: {"applied": true or false, "result": number or null}

How an account behaves is set by the test: see `Terms`.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from attrs import define, evolve, field, frozen

KEY_HEADER = "Idempotency-Key"
ATTEMPT_HEADER = "Cortex-Attempt"
HELD_FOR_S = 30.0

Answer = Literal["result", "error", "drop"]


@frozen(kw_only=True)
class Terms:
    """How an account takes requests to apply something."""

    honours_key: bool = True
    """A key that was applied is answered with the same result and not applied again."""
    is_fenced: bool = False
    """An attempt below the highest that was seen of a key, lookups included, is refused."""
    refusal: int | None = None
    """A status such as 422 in place of applying anything."""
    answer: Answer = "result"
    """What follows an application: its result, a 503, or a cut connection."""
    held: Literal["no", "before", "after"] = "no"
    """Whether a request waits for `release` before it is applied, or before it is answered."""
    times: int | None = None
    """So many requests; all others are taken as usual."""


@frozen
class Application:
    """Something that was done, once for each of these."""

    account: str
    key: str
    attempt: int
    body: Any
    result: int


@define(eq=False)
class _Account:
    terms: Terms = field(factory=Terms)
    asked_count: int = 0
    lookup_count: int = 0
    highest: dict[str, int] = field(factory=dict)
    released: threading.Event = field(factory=threading.Event)

    def terms_now(self) -> Terms:
        """Those of the next request."""
        self.asked_count += 1
        times = self.terms.times
        if times is not None and self.asked_count > times:
            return evolve(self.terms, refusal=None, answer="result", held="no")
        return self.terms


class Ledger:
    """A running ledger; `url` is where it is. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accounts: dict[str, _Account] = {}
        self._applied: list[Application] = []
        self.errors: list[str] = []
        """What a request did that no request may do."""
        handler = type("Handler", (_Handler,), {"ledger": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        for account in self._accounts.values():
            account.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    # --- for the test

    def set(self, account: str, **terms: Any) -> None:
        """Set how an account behaves from the next request on."""
        self._account(account).terms = Terms(**terms)

    def release(self, account: str) -> None:
        """Let go what it holds, and hold nothing more."""
        self._account(account).released.set()

    def applied(self, account: str) -> list[Application]:
        """What was done, in order."""
        with self._lock:
            return [each for each in self._applied if each.account == account]

    def asked_count(self, account: str) -> int:
        """How many requests to apply something came, whatever became of them."""
        return self._account(account).asked_count

    def lookup_count(self, account: str) -> int:
        return self._account(account).lookup_count

    # --- for the handler

    def take(self, account: str, key: str, attempt: int, body: Any) -> tuple[Terms, int, Any]:
        """Apply a request, or do not; the terms it was taken by, the status and the answer."""
        book = self._account(account)
        with self._lock:
            terms = book.terms_now()
        if terms.held == "before":
            book.released.wait(HELD_FOR_S)
        with self._lock:
            highest = book.highest.get(key, 0)
            book.highest[key] = max(highest, attempt)
            if terms.is_fenced and attempt < highest:
                return terms, 412, {"error": f"attempt {highest} has been here"}
            if terms.refusal is not None:
                return terms, terms.refusal, {"error": "refused"}
            result = self._result(account, key)
            if result is None or not terms.honours_key:
                result = len(self._applied) + 1
                self._applied.append(Application(account, key, attempt, body, result))
        if terms.held == "after":
            book.released.wait(HELD_FOR_S)
        return terms, 503 if terms.answer == "error" else 200, {"result": result}

    def look_up(self, account: str, key: str, attempt: int) -> Any:
        book = self._account(account)
        with self._lock:
            book.lookup_count += 1
            book.highest[key] = max(book.highest.get(key, 0), attempt)
            result = self._result(account, key)
        return {"applied": result is not None, "result": result}

    def _account(self, name: str) -> _Account:
        with self._lock:
            return self._accounts.setdefault(name, _Account())

    def _result(self, account: str, key: str) -> int | None:
        """Of the first application of a key."""
        found = (a for a in self._applied if a.account == account and a.key == key)
        return next((application.result for application in found), None)


class _Handler(BaseHTTPRequestHandler):
    ledger: Ledger

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length))
        terms, status, answer = self.ledger.take(self.path[1:], *self._headers(), body)
        if terms.answer == "drop" and status < 400:
            self.close_connection = True
            return
        self._answer(status, answer)

    def do_GET(self) -> None:
        account, _, key = self.path[1:].partition("/")
        sent_key, attempt = self._headers()
        if sent_key != key:
            self.ledger.errors.append(f"{self.path} was asked with key {sent_key}")
        self._answer(200, self.ledger.look_up(account, key, attempt))

    def _headers(self) -> tuple[str, int]:
        return self.headers[KEY_HEADER], int(self.headers[ATTEMPT_HEADER])

    def _answer(self, status: int, answer: Any) -> None:
        data = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            pass  # whoever asked was killed meanwhile

    def log_message(self, *_: object) -> None:
        """Nothing to stderr."""


@contextmanager
def running_ledger() -> Iterator[Ledger]:
    """Run a ledger until the block is left; fails if a request did what none may do."""
    ledger = Ledger()
    ledger.start()
    try:
        yield ledger
    finally:
        ledger.close()
    assert not ledger.errors, ledger.errors
