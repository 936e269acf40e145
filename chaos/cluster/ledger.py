"""The world outside: a ledger that no pod can mend, with every application it ever made.

    POST /ACCOUNT       apply; headers Idempotency-Key and Cortex-Attempt; the body is kept
    GET  /ACCOUNT/KEY   what became of a key: {"applied": true or false, "result": number or null}

It serves on threads of its own. How an account behaves is set beforehand: see `Terms`.
"""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self

from attrs import define, evolve, field, frozen

KEY_HEADER = "Idempotency-Key"
ATTEMPT_HEADER = "Cortex-Attempt"
HELD_FOR_S = 30.0
SHUTDOWN_POLL_S = 0.05

Answer = Literal["result", "error", "drop"]


@frozen(kw_only=True)
class Terms:
    """How an account takes requests to apply something."""

    honours_key: bool = True
    """A key that was applied is answered with the same result and not applied again."""
    is_fenced: bool = False
    """An attempt below the highest that was seen of a key, lookups included, is refused."""
    can_be_asked: bool = True
    """Whether it tells what became of a key."""
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
    at: float
    """By the monotonic clock, in seconds."""


@define(eq=False)
class _Account:
    terms: Terms = field(factory=Terms)
    asked_count: int = 0
    lookup_count: int = 0
    highest: dict[str, int] = field(factory=dict)
    results: dict[str, int] = field(factory=dict)
    """Of the first application of each key."""
    applied: list[Application] = field(factory=list)
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

    def __init__(
        self,
        *,
        terms_of: Callable[[str], Terms] = lambda _: Terms(),
        on_applied: Callable[[Application], None] = lambda _: None,
    ) -> None:
        """`terms_of`: by the account's name, unless `set`; `on_applied` is called in any thread."""
        self._terms_of = terms_of
        self._on_applied = on_applied
        self._lock = threading.Lock()
        self._accounts: dict[str, _Account] = {}
        self._applied: list[Application] = []
        self._asks: list[tuple[str, int]] = []
        self.errors: list[str] = []
        """What a request did that no request may do."""
        handler = type("Handler", (_Handler,), {"ledger": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(SHUTDOWN_POLL_S,))

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

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- for whoever runs it

    def set(self, account: str, **terms: Any) -> None:
        """Set how an account behaves from the next request on."""
        self._account(account).terms = Terms(**terms)

    def release(self, account: str) -> None:
        """Let go what it holds, and hold nothing more."""
        self._account(account).released.set()

    def applied(self, account: str | None = None) -> list[Application]:
        """What was done, in order; by default to all accounts."""
        with self._lock:
            if account is None:
                return self._applied.copy()
            book = self._accounts.get(account)
            return [] if book is None else book.applied.copy()

    def asks(self) -> list[tuple[str, int]]:
        """The key and the attempt of each request, in order, whatever became of it."""
        with self._lock:
            return self._asks.copy()

    def asked_count(self, account: str) -> int:
        """How many requests to apply something came, whatever became of them."""
        return self._account(account).asked_count

    def lookup_count(self, account: str) -> int:
        return self._account(account).lookup_count

    # --- for the handler

    def take(self, account: str, key: str, attempt: int, body: Any) -> tuple[Terms, int, Any]:
        """Apply a request, or do not; the terms it was taken by, the status and the answer.

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
            self._asks.append((key, attempt))
            highest = book.highest.get(key, 0)
            book.highest[key] = max(highest, attempt)
            if terms.is_fenced and attempt < highest:
                return terms, 412, {"error": f"attempt {highest} has been here"}
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
        """What became of a key, as status and answer; from now on no lower attempt applies it."""
        book = self._account(account)
        with self._lock:
            book.lookup_count += 1
            self._asks.append((key, attempt))
            if not book.terms.can_be_asked:
                return 404, {"error": "there is no such question"}
            book.highest[key] = max(book.highest.get(key, 0), attempt)
            result = book.results.get(key)
        return 200, {"applied": result is not None, "result": result}

    def _account(self, name: str) -> _Account:
        with self._lock:
            if name not in self._accounts:
                self._accounts[name] = _Account(self._terms_of(name))
            return self._accounts[name]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


class _Handler(BaseHTTPRequestHandler):
    ledger: Ledger

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        sent = self.rfile.read(length)
        if len(sent) < length:
            self.close_connection = True
            return  # whoever asked was killed meanwhile
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
            pass  # whoever asked was killed meanwhile

    def log_message(self, *_: object) -> None:
        """Nothing to stderr."""
