"""The world outside: a ledger that no pod can correct, with every application it ever made.

    POST /ACCOUNT        apply; headers Idempotency-Key and Cortex-Attempt; the body is kept
    GET  /ACCOUNT/KEY    the outcome of a key: {"applied": true or false, "result": number or null}

It serves on its own threads. How an account behaves is set beforehand: see `Terms`.
"""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal

from attrs import define, evolve, field, frozen

from chaos.cluster.threaded_server import ThreadedServer

KEY_HEADER = "Idempotency-Key"
ATTEMPT_HEADER = "Cortex-Attempt"
HELD_FOR_S = 30.0

Answer = Literal["result", "error", "drop"]


@frozen(kw_only=True)
class Terms:
    """How an account answers requests to apply something."""

    honours_key: bool = True
    """A key that was already applied gets the same result and is not applied again."""
    is_fenced: bool = False
    """An attempt below the highest one received for a key, lookups included, is refused."""
    is_queryable: bool = True
    """Whether it answers lookups of a key."""
    refusal: int | None = None
    """A status such as 422, returned instead of applying anything."""
    answer: Answer = "result"
    """What follows an application: its result, a 503, or a cut connection."""
    held: Literal["no", "before", "after"] = "no"
    """Whether a request waits for `release` before it is applied, or before it is answered."""
    times: int | None = None
    """How many requests this holds for; all others are accepted as usual."""


@frozen
class Application:
    """One application of an operation."""

    account: str
    key: str
    attempt: int
    body: Any
    result: int
    at: float
    """By the monotonic clock, in seconds."""


@define(eq=False)
class _Account:
    terms: Terms = field(factory=Terms)
    request_count: int = 0
    lookup_count: int = 0
    highest: dict[str, int] = field(factory=dict)
    results: dict[str, int] = field(factory=dict)
    """Of the first application of each key."""
    applied: list[Application] = field(factory=list)
    released: threading.Event = field(factory=threading.Event)

    def terms_now(self) -> Terms:
        """Return the terms of the next request."""
        self.request_count += 1
        times = self.terms.times
        if times is not None and self.request_count > times:
            return evolve(self.terms, refusal=None, answer="result", held="no")
        return self.terms


class Ledger(ThreadedServer):
    """A running ledger; `url` is its address. Its methods may be called from any thread."""

    def __init__(
        self,
        *,
        terms_of: Callable[[str], Terms] = lambda _: Terms(),
        on_applied: Callable[[Application], None] = lambda _: None,
    ) -> None:
        """`terms_of`: by the account's name, unless `set`; `on_applied` runs in any thread."""
        self._terms_of = terms_of
        self._on_applied = on_applied
        self._lock = threading.Lock()
        self._accounts: dict[str, _Account] = {}
        self._applied: list[Application] = []
        self._requests: list[tuple[str, int]] = []
        self.errors: list[str] = []
        """Requests that broke the protocol."""
        super().__init__(type("Handler", (_Handler,), {"ledger": self}))

    def close(self) -> None:
        for account in self._accounts.values():
            account.released.set()
        super().close()

    # --- for the code that runs it

    def set(self, account: str, **terms: Any) -> None:
        """Set how an account behaves from the next request on."""
        self._account(account).terms = Terms(**terms)

    def release(self, account: str) -> None:
        """Release held requests, and hold no more."""
        self._account(account).released.set()

    def applied(self, account: str | None = None) -> list[Application]:
        """Return the applications in order, by default of all accounts."""
        with self._lock:
            if account is None:
                return self._applied.copy()
            book = self._accounts.get(account)
            return [] if book is None else book.applied.copy()

    def requests(self) -> list[tuple[str, int]]:
        """The key and the attempt of each request, in order, whatever its outcome."""
        with self._lock:
            return self._requests.copy()

    def request_count(self, account: str) -> int:
        """How many requests to apply something arrived, whatever their outcome."""
        return self._account(account).request_count

    def lookup_count(self, account: str) -> int:
        return self._account(account).lookup_count

    # --- for the handler

    def take(self, account: str, key: str, attempt: int, body: Any) -> tuple[Terms, int, Any]:
        """Apply a request or not; return the terms used, the status and the answer.

        `takes_ms` of the body passes, one half before it is applied, one half before the answer.
        """
        book = self._account(account)
        half_s = body.get("takes_ms", 0) / 2000 if isinstance(body, dict) else 0.0
        time.sleep(half_s)
        with self._lock:
            terms = book.terms_now()
        if terms.held == "before":
            book.released.wait(HELD_FOR_S)
        with self._lock:
            self._requests.append((key, attempt))
            highest = book.highest.get(key, 0)
            book.highest[key] = max(highest, attempt)
            if terms.is_fenced and attempt < highest:
                return terms, 412, {"error": f"superseded by attempt {highest}"}
            if terms.refusal is not None:
                return terms, terms.refusal, {"error": "refused"}
            result = book.results.get(key)
            if result is None or not terms.honours_key:
                result = len(self._applied) + 1
                application = Application(account, key, attempt, body, result, time.monotonic())
                self._applied.append(application)
                book.applied.append(application)
                book.results.setdefault(key, result)
                self._on_applied(application)
        if terms.held == "after":
            book.released.wait(HELD_FOR_S)
        time.sleep(half_s)
        return terms, 503 if terms.answer == "error" else 200, {"result": result}

    def look_up(self, account: str, key: str, attempt: int) -> tuple[int, Any]:
        """Return the outcome of a key as status and answer; blocks lower attempts from then on."""
        book = self._account(account)
        with self._lock:
            book.lookup_count += 1
            self._requests.append((key, attempt))
            if not book.terms.is_queryable:
                return 404, {"error": "lookups are not supported"}
            book.highest[key] = max(book.highest.get(key, 0), attempt)
            result = book.results.get(key)
        return 200, {"applied": result is not None, "result": result}

    def _account(self, name: str) -> _Account:
        with self._lock:
            if name not in self._accounts:
                self._accounts[name] = _Account(self._terms_of(name))
            return self._accounts[name]


class _Handler(BaseHTTPRequestHandler):
    ledger: Ledger

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        sent = self.rfile.read(length)
        if len(sent) < length:
            self.close_connection = True
            return  # the caller was killed meanwhile
        body = json.loads(sent)
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
        self._answer(*self.ledger.look_up(account, key, attempt))

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
            pass  # the caller was killed meanwhile

    def log_message(self, *_: object) -> None:
        """Write nothing to stderr."""
