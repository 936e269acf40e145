"""Scenes of the pictures of the terminal UI: an empty cluster, a usual one, a hostile one.

`fill` changes a fake cluster; a `Scene` says how one comes to a screen. Everything goes by the
cluster's clock, so that each run shows the same.
"""

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.log_line import Level
from cortex.store import pulse
from cortex.store.breakers import FreezeState
from cortex.store.pulse import Attention, Failure, Need, Trouble
from tests.support.hostile import HOSTILE, LINES
from tests.support.terminal.tui import FakeBackend, Seat, instant
from tests.support.terminal.tui_dead import a_bucket
from tests.support.terminal.tui_job import a_step

QUIET_S: Final = 1.0
"""Longer than any silence that the inbox wants before a key."""
MARKUP: Final = "[@click=app.quit]quit[/] [red]x[/]"
WIDE_TEXT: Final = "請求書 👩‍💻 e\u0301"
SAYS: Final = "5 model"
GATE: Final = UUID(int=0x7F3C44)
ASKING: Final = 0x9F3C00
"""The job that waits for it."""


@attrs.frozen(kw_only=True)
class Scene:
    """A screen, and the keys that lead there from the first one."""

    first: str = "jobs"
    keys: tuple[str, ...] = ()

    async def enter(self, seat: Seat) -> None:
        """Go there, with a silence before each key, and let everything be read."""
        for key in self.keys:
            await seat.pass_time(QUIET_S)
            await seat.press(key)
        await seat.pass_time(3)


SCENES: Final = {
    "pulse": Scene(first="pulse"),
    "jobs": Scene(),
    "job": Scene(keys=("enter",)),
    "approvals": Scene(keys=("3",)),
    "approving": Scene(keys=("3", "a", "a")),
    "denying": Scene(keys=("3", "d")),
    "pods": Scene(first="pods"),
    "fields": Scene(first="pods", keys=("v",)),
    "dead": Scene(first="dead"),
    "letters": Scene(first="dead", keys=("enter",)),
    "messages": Scene(first="messages"),
    "breakers": Scene(first="breakers"),
    "effects": Scene(first="effects"),
    "resolving": Scene(first="effects", keys=("R", "2")),
    "help": Scene(keys=("question_mark",)),
    "logs": Scene(keys=("L",)),
    "log": Scene(keys=("K", "y", "j", "R", "y", "escape", "at")),
}


DOUBT: Final = UUID(int=0xE7)
"""The effect whose outcome is unknown."""
NO_WORD: Final = "its pod died during the call, and the other side cannot be asked"


def empty(_: FakeBackend) -> None:
    """Change nothing: no job, no pod, nothing that waits."""


def typical(cluster: FakeBackend) -> None:
    """An afternoon on which some things go wrong."""
    now = instant(cluster.clock)
    _jobs(cluster, now)
    _approvals(cluster)
    _pods(cluster)
    _breakers(cluster)
    _effects(cluster)
    _letters(cluster, now)
    _messages(cluster)
    _pulse(cluster, now)
    cluster.heads = {
        "approvals": 4,
        "first_expiry": now + timedelta(seconds=252),
        "breakers": 1,
        "dead": 214,
        "pods_ready": 4,
        "pods_living": 6,
        "jobs_about": 104_217,
    }


def hostile(cluster: FakeBackend) -> None:
    """Names and texts that a terminal would obey, or that a reader would misread."""
    now = instant(cluster.clock)
    names = (HOSTILE, MARKUP, WIDE_TEXT, "x" * 300)
    for number, name in enumerate(names, 1):
        _hostile_rows(cluster, number, name, now)
    limit = {"name": HOSTILE, "unit": "usd", "limit_amount": 1, "spent": 0.99}
    steps = [
        a_step(1, f"1 {HOSTILE}", "model", took_s=3, usage=_usage(10**7, 10**6), cost_usd=1234.5),
        a_step(2, f"1 {MARKUP}", "tool", at_s=3, took_s=9, is_error=True),
    ]
    cluster.add(
        9,
        **_running(now, 95, pod=HOSTILE),
        created_at=now + timedelta(seconds=1),
        agent=MARKUP,
        steps=steps,
        budgets=[limit],
        checkpoint={"cost_usd": "1234567.5"},
    )
    cluster.logs.add(
        1, LINES, job_id=UUID(int=9), step=HOSTILE, source=MARKUP, fields={HOSTILE: WIDE_TEXT}
    )
    output = {"output": '{"content": [{"text": "' + "x" * 99, "output_bytes": 10**9, "why": LINES}
    cluster.one.details = {step.key: output for step in steps}
    waits = [("approval", WIDE_TEXT), ("effect", HOSTILE), ("job", MARKUP), ("job", "x" * 300)]
    cluster.pulse.attention_seen = Attention(
        troubles=tuple(
            Trouble(kind=kind, name=name, word=name, at=now)
            for kind, name in (("breaker", MARKUP), ("pod", HOSTILE), ("runner", HOSTILE))
        ),
        needs=tuple(
            _need(kind, number, name, now, word=name, agent=name, why=LINES)
            for number, (kind, name) in enumerate(waits, 1)
        ),
        failures=tuple(
            Failure(job_id=UUID(int=n), type=name, agent=name, error=name, message=LINES, at=now)
            for n, name in enumerate(names, 1)
        ),
    )
    cluster.heads = {
        "approvals": 10**4,
        "first_expiry": now + timedelta(days=40),
        "breakers": 10**4,
        "is_frozen": True,
        "dead": 10**4,
        "pods_ready": 10**4,
        "pods_living": 10**4,
    }


FILLS: Final[Mapping[str, Callable[[FakeBackend], None]]] = {
    "empty": empty,
    "typical": typical,
    "hostile": hostile,
}


def speak(cluster: FakeBackend) -> None:
    """Send output of the newest job's model to its listeners."""
    newest = max(cluster.rows, default=None)
    if newest is not None:
        is_hostile = cluster.rows[newest]["agent"] == MARKUP
        report = "Dear customer,\n\nyour invoice 8812 was refunded today, in full."
        text = LINES if is_hostile else report
        cluster.one.say(newest, text[:1], key=SAYS)  # from then on the screen shows the speed
        cluster.one.say(newest, text[1:], offset=1, key=SAYS)


# --- jobs


def _usage(read: int, written: int) -> dict[str, int]:
    cached = dict.fromkeys(("cache_read_tokens", "cache_write_tokens"), 0)
    return {"input_tokens": read, "output_tokens": written, **cached}


def _running(now: datetime, for_s: float, **fields: Any) -> dict[str, Any]:
    began = now - timedelta(seconds=for_s)
    known = {"started_at": began, "heartbeat_at": now - timedelta(seconds=3)}
    return {"status": "RUNNING", "attempt": 1, "pod": "eu-2", **known, **fields}


def _ended(now: datetime, status: str, ago_s: float, took_s: float, **fields: Any) -> Any:
    ended = now - timedelta(seconds=ago_s)
    began = ended - timedelta(seconds=took_s)
    known = {"finished_at": ended, "started_at": began, "attempt": 1}
    return {"status": status, **known, **fields}


def _head(seq: int, key: str, cost: str) -> dict[str, Any]:
    return {"seq": seq, "key": key, "cost_usd": cost}


def _jobs(cluster: FakeBackend, now: datetime) -> None:
    """Four agents; what happened to them comes again and again."""
    due = now + timedelta(seconds=41)
    awaited = {
        "kind": "approval",
        "id": str(GATE),
        "what": "refund",
        "risk": "HIGH",
        "people": 1,
        "agreed": 0,
        "status": "PENDING",
        "requested_by": None,
        "expires_at": (now + timedelta(seconds=252)).isoformat(),
    }
    waits = {"status": "RETRY", "next_retry_at": due, "retry_count": 2, "attempt": 2}
    person = {"status": "WAITING_FOR_APPROVAL", "attempt": 1}
    gate = {**person, "waiting_on": f"approval:{GATE}", "awaited": awaited}
    doubt = {"kind": "effect", "id": str(DOUBT), "tool": "pay", "status": "UNKNOWN", "why": NO_WORD}
    unknown = {**person, "waiting_on": f"effect:{DOUBT}", "awaited": doubt}
    spent = {**person, "waiting_on": "budget:agent:crawler:usd:run"}
    kinds: list[dict[str, Any]] = [
        {"agent": "refund-bot", **gate, "checkpoint": _head(3, "refund", "0.02")},
        {**waits, "waiting_on": "llm:gpt", "checkpoint": _head(4, "call_llm", "0.21")},
        _running(now, 42, agent="triage", checkpoint=_head(2, "classify", "0.004")),
        _ended(now, "COMPLETED", 60, 75, checkpoint=_head(9, "send_mail", "0.44")),
        _running(now, 200, pod="eu-3", heartbeat_at=now - timedelta(seconds=95)),
        _ended(now, "FAILED", 300, 12, agent="crawler", error_message="404: no such page"),
        {"agent": None, "run_at": now + timedelta(hours=2)},
        _ended(now, "CANCELLED", 900, 5, agent="refund-bot", cancelled_by="li"),
        _ended(now, "COMPLETED", 4000, 3600, checkpoint=_head(812, "fetch", "12.70")),
        {"agent": "triage"},
        {"agent": "refund-bot", **unknown, "checkpoint": _head(5, "pay", "0.03")},
        {"agent": "crawler", **spent, "checkpoint": _head(40, "fetch", "1.00")},
    ]
    for number in range(40):
        fields = kinds[number % len(kinds)]
        at = now - timedelta(seconds=200 + 31.0 * number)
        cluster.add(ASKING - 7 * number, **fields, created_at=at)
    asked = [a_step(1, "1 model", "model", took_s=9), a_step(2, "1 find_customer", "tool", at_s=9)]
    cluster.change(UUID(int=ASKING), steps=[*asked, a_step(3, "2 model", "model", at_s=10)])
    _open_job(cluster, now)


def _open_job(cluster: FakeBackend, now: datetime) -> None:
    """The newest one: it failed once, a person agreed to something, and now it speaks."""

    def at(seconds: float) -> datetime:
        return now - timedelta(seconds=151 - seconds)

    def step(seq: int, key: str, kind: str, start: float, took: float, **fields: Any) -> Any:
        times = {"started_at": at(start), "finished_at": at(start + took)}
        return a_step(seq, key, kind, **{**fields, **times})

    priced = {"usage": _usage(1_200, 340), "cost_usd": 0.012}
    steps = [
        step(1, "1 model", "model", 0, 11, **priced),
        step(2, "1 fetch_invoice", "tool", 11, 4),
        step(3, "2 model", "model", 15, 41, usage=_usage(5_400, 910), cost_usd=0.04),
        step(4, "2 search_orders", "tool", 56, 9, is_error=True),
        step(5, "3 refund approval", "approval", 66, 38),
        step(6, "4 model", "model", 105, 12, **priced),
        step(7, "4 refund", "effect", 118, 2.4),
    ]
    broken = {"attempt": 1, "outcome": "retry", "ended_at": at(60), "due_at": at(64)}
    broken |= {"error": "429 Too Many Requests", "error_class": "TRANSIENT_429"}
    broken |= {"error_code": "429", "pod": "eu-1"}
    times = {"created_at": at(66), "decided_at": at(104), "decided_by": "ana"}
    asked = {"key": "3 refund approval", "tool": "refund", "status": "APPROVED", **times}
    limit = {"name": "agent:invoice-bot:usd:run", "unit": "usd", "limit_amount": 1, "spent": 0.08}
    cluster.add(
        0x9F3D07,
        **_running(now, 151, attempt=2, retry_count=1, steps=steps, attempts=[broken]),
        created_at=at(-2),
        approvals=[asked],
        budgets=[limit],
        checkpoint={"cost_usd": "0.08"},
    )
    _log_of(cluster, UUID(int=0x9F3D07), at)
    cluster.one.details = {
        SAYS: {"history": []},
        "4 refund": {
            "effect_id": UUID(int=0x6F2E),
            "effect_status": "COMPLETED",
            "calls_count": 1,
            "can_reconcile": True,
            "arguments": '{"customer":"cus_88","invoice":8812}',
            "output": '{"receipt":"re_31"}',
            "output_bytes": 19,
        },
    }


def _log_of(cluster: FakeBackend, job_id: UUID, at: Callable[[float], datetime]) -> None:
    """What its code has said, in both attempts."""
    refund = {"customer": "cus_88", "amount": 1240}
    broken = "the model asks to wait\nTraceback (most recent call last):\n  …\nRateLimitError: 429"
    lines: list[tuple[float, int, Level, str | None, str | None, str, Any]] = [
        (0.1, 1, Level.INFO, None, None, "invoice 8812 is read", None),
        (12.0, 1, Level.DEBUG, "1 fetch_invoice", "httpx", "GET /invoices/8812", {"status": 200}),
        (60.0, 1, Level.ERROR, "2 model", "shop.llm", broken, None),
        (65.9, 2, Level.INFO, None, None, "invoice 8812 is read", None),
        (104.2, 2, Level.INFO, None, "stdout", "approved, going on", None),
        (118.4, 2, Level.WARNING, "4 refund", "shop.pay", "slow answer", {"took_s": 2.4}),
        (120.5, 2, Level.INFO, None, None, "refunded", refund),
    ]
    for number, (seconds, attempt, level, step, source, text, fields) in enumerate(lines, 1):
        known = {"attempt": attempt, "level": level, "step": step, "source": source}
        cluster.logs.add(number, text, job_id=job_id, at=at(seconds), fields=fields, **known)


# --- what waits for people


def _approvals(cluster: FakeBackend) -> None:
    inbox = cluster.approvals
    refund = {
        "customer": "cus_88",
        "amount": 1240.0,
        "currency": "EUR",
        "memo": "goodwill \u202e24.21 RUE",
        "notify": {"to": "a.mueller@example.org", "template": "refund-done"},
    }
    inbox.add(
        GATE.int,
        tool="stripe.refund",
        arguments=refund,
        risk="HIGH",
        effect="refunds a card payment: money leaves the account",
        policy="refunds above 500 EUR ask a person",
        said="The customer was overcharged by twelve forty, so I will refund twelve forty.",
        expires_s=252.0,
        job_id=UUID(int=ASKING),
    )
    deploy = {"branch": "main", "force": True}
    two = {"people": 2, "agreed": 1, "has_agreed": True, "risk": "CRITICAL"}
    inbox.add(0xA1, tool="git.push", arguments=deploy, agent="deploy-bot", expires_s=7200.0, **two)
    mail = {"to": "all-customers", "subject": "We are closed on Monday", "count": 412}
    inbox.add(0xA2, tool="mail.send", arguments=mail, agent="news-bot", expires_s=83_400.0)
    note = {"ticket": 5512, "text": "called back, waits for papers"}
    inbox.add(0xA3, tool="crm.note", arguments=note, risk="LOW", reversible=True, agent="triage")
    inbox.end(inbox.add(0xA4, tool="mail.send", arguments=mail), "DENIED")


def _pods(cluster: FakeBackend) -> None:
    pods, ago = cluster.pods, cluster.pods.ago
    pods.add(1)
    pods.add(2, running=8, rss_bytes=1_300 * 1024**2, loop_lag_ms=140.0)
    leaves = {"draining_at": ago(12), "abort_at": ago(-33), "phase": "jobs"}
    pods.add(3, state="DRAINING", **leaves)
    pods.add(4, heartbeat_at=ago(130), oldest_lease_at=ago(130))
    pods.add(5, trouble="disk_full", trouble_at=ago(61))
    asked = {"drain_requested_at": ago(70), "drain_requested_by": "li", "drain_reason": "new disk"}
    gone = {"oldest_lease_at": None, "longest_claim_at": None}
    drained = pods.add(6, state="DRAINING", running=0, **asked, **gone)
    pods.where[drained] = [("runs", "eu-1", 2), ("waits", None, 1)]
    ended = {"ended_at": ago(300), "connections": None}
    pods.add(7, state="DEAD", name="eu-7-of-yesterday", **ended, **gone)
    queues = cluster.queues
    queues.add(None)
    queues.add("crawl", paused_by="ana", paused_at=ago(1500), reason="deploy", ready=1_204)
    queues.add("mail", running=12, ready=0, oldest_ready_s=None, later=3)
    queues.add("reports", oldest_ready_s=95.0, ready=31)


def _breakers(cluster: FakeBackend) -> None:
    breakers, ago = cluster.breakers, cluster.breakers.ago
    sick = {"state": "OPEN", "failures": 3, "opened_at": ago(130), "open_until": ago(-12)}
    error = "RATE_LIMIT: 429 Too Many Requests: you have used all of the tokens of this minute"
    breakers.add("llm:gpt", **sick, waiting=12, last_error=error)
    held = {"forced_by": "li", "forced_reason": "key leaked", "forced_at": ago(600)}
    breakers.add("llm:old", state="OPEN", opened_at=ago(600), **held)
    probed = {"probe_by": "x", "probe_pod": "eu-2", "opened_at": ago(95)}
    breakers.add("http:api", state="HALF_OPEN", failures=5, **probed)
    breakers.add("tool:crm", failures=1, last_error="TIMEOUT: no answer within 30 s")
    breakers.add("tool:mail.send")
    breakers.happened(
        "llm:gpt",
        *((1500, "OPEN"), (1400, "HALF_OPEN"), (1395, "CLOSED"), (130, "OPEN")),
        errors=[(130, "rate_limit", error), (131, "overloaded", "busy"), (140, "overloaded", "no")],
    )
    breakers.happened("llm:old", (600, "OPEN"))
    breakers.happened("http:api", (95, "OPEN"), (3, "HALF_OPEN"))


def _effects(cluster: FakeBackend) -> None:
    effects = cluster.effects
    effects.add(DOUBT.int, why=NO_WORD, arguments={"customer": "cus_88", "amount": 1240.0})
    effects.add(0xE6, tool="mail.send", key="7 send", why="no answer within 30 s", calls_count=2)
    said = {"resolution": "applied", "resolved_by": "li", "resolved_reason": "in the ledger"}
    effects.add(0xE5, status="COMPLETED", finished_at=effects.now, **said)
    effects.add(0xE4, status="PENDING", tool="crm.note", why=None, job_status="RUNNING")
    effects.add_quota("pay", 20, used=Decimal(20), waiting_jobs=3)
    effects.add_quota("mail.send", 500, used=Decimal(431))


def _letters(cluster: FakeBackend, now: datetime) -> None:
    dead = cluster.dead
    for number in range(1, 204):
        at = now - timedelta(minutes=3 * number)
        dead.add(number, created_at=at, breaker="OPEN", step=f"{number % 9} plan")
    lost = {"error_class": "PERMANENT", "error_message": "404: https://shop.example.org/p/8812"}
    for number in range(300, 310):
        at = now - timedelta(hours=number - 298)
        dead.add(number, "f2f2", agent="crawler", error_code="not_found", created_at=at, **lost)
    wrong = {"error_code": "invalid_value", "error_message": "payload: not an object"}
    dead.add(400, "f3", agent=None, created_at=now - timedelta(days=3), step=None, **wrong)


def _messages(cluster: FakeBackend) -> None:
    messages, ago = cluster.messages, cluster.messages.ago
    for seq, days in ((1, 3), (2, 2)):
        messages.add(seq, created_at=ago(86_400 * days), key=None, payload={"order": f"o-{seq}"})
    order = {"order": "o-7", "customer": {"id": "cus_88", "name": "Möller"}, "lines": [1, 2]}
    messages.add(3, payload=order, key="o-7")
    due = {"available_at": ago(-45), "attempts": 1, "last_error": "timed out after 15 s"}
    many = {"id": UUID(int=3), "payload": order, "subscription": "audit-log", "channel": "log"}
    messages.add(4, "PENDING", **many, **due)
    asked = {"topic": "approval.requested", "subscription": "decisions", "channel": "email"}
    messages.add(5, "PROCESSING", **asked, attempts=1)
    messages.add(6, "PENDING", is_parked=True, key="o-7")
    messages.add(7, "PENDING", channel=None, subscription="billing-of-last-year")


def _pulse(cluster: FakeBackend, now: datetime) -> None:
    shown = cluster.pulse
    shown.failed_messages, shown.waiting_messages, shown.oldest_message_s = 3, 4, 125.0
    shown.running, shown.due, shown.oldest_due_s = 37, 128, 95.0
    for number in range(pulse.BUCKETS):
        wave = 1 + math.sin(number / 3)
        shown.buckets.append(
            a_bucket(
                started=round(60 * wave),
                done=round(55 * wave),
                failed=3 if number % 11 == 5 else 0,
                wait_p50_s=0.4 + wave,
                wait_p95_s=1.1 + 3 * wave,
                model_p50_s=4.0 + wave,
                usd=Decimal(round(20 * wave)) / 100,
                is_known=number > 2,
            )
        )
    shown.spent_usd, shown.calls = Decimal("12.34"), 4_210
    pay = {"agent": "refund-bot", "word": "UNKNOWN", "why": NO_WORD}
    spent = {"agent": "crawler", "word": "budget:agent:crawler:usd:run"}
    week = now + timedelta(seconds=7200)
    push, mail = {"word": "CRITICAL", "agent": "deploy-bot"}, {"word": "MED", "agent": "news-bot"}
    soon = now + timedelta(seconds=252)
    lost = {"agent": "crawler", "error": "not_found"}
    shown.attention_seen = Attention(
        troubles=(
            Trouble(kind="breaker", name="llm:gpt", word="OPEN", at=now - timedelta(seconds=130)),
            Trouble(kind="pod", name="eu-4", word="READY", at=now - timedelta(seconds=130)),
        ),
        needs=(
            _need(
                "approval",
                GATE.int,
                "stripe.refund",
                now,
                until=soon,
                word="HIGH",
                agent="refund-bot",
            ),
            _need("approval", 0xA1, "git.push", now, until=week, **push),
            _need("approval", 0xA2, "mail.send", now, until=now + timedelta(days=1), **mail),
            _need("effect", DOUBT.int, "pay", now, **pay),
            _need("job", 0x9F3BB3, "digest", now, **spent),
        ),
        failures=(
            _failure(1, 180, now, agent="invoice-bot", error="overloaded"),
            _failure(2, 360, now, agent="invoice-bot", error="overloaded"),
            *(_failure(n, 1200 * n, now, **lost) for n in range(3, 12)),
        ),
    )


def _need(kind: str, number: int, name: str, now: datetime, **fields: Any) -> Need:
    known = {"since": now - timedelta(seconds=600), "until": None}
    return Need(
        kind=kind, id=UUID(int=number), job_id=UUID(int=ASKING), name=name, **known | fields
    )


def _failure(number: int, ago_s: float, now: datetime, **fields: Any) -> Failure:
    message = "404: https://shop.example.org/p/8812" if number > 2 else "the model is overloaded"
    at = now - timedelta(seconds=ago_s)
    return Failure(job_id=UUID(int=number), type="digest", message=message, at=at, **fields)


# --- hostile ones


def _hostile_rows(cluster: FakeBackend, number: int, name: str, now: datetime) -> None:
    ends = {"status": "FAILED", "error_message": LINES, "error_code": name, "finished_at": now}
    cluster.add(number, **ends, agent=name, pod=name, checkpoint=_head(10**6, name, "99999.99"))
    cluster.add(number + 4, status="RETRY", waiting_on=name, agent=name, retry_count=10**4)
    fields = dict.fromkeys(("tool", "key", "effect", "policy", "said", "agent", "job_type"), name)
    memo = {"memo": name, name[:50]: LINES}
    cluster.approvals.add(number, arguments=memo, schema=None, **fields)
    drained = {"drain_requested_by": name, "drain_reason": LINES}
    cluster.pods.add(
        number,
        name=name,
        version=name,
        job_types=[name],
        drain_requested_at=now,
        running=10**4,
        slots=10**4,
        loop_lag_ms=10.0**6,
        rss_bytes=2**50,
        **drained,
    )
    words = dict.fromkeys(("topic", "key", "subscription", "pod", "last_error", "tenant"), name)
    cluster.messages.add(number, **words, payload=memo, headers={"x": LINES}, attempts=10**6)
    cluster.queues.add(name, paused_by=name, paused_at=now, reason=LINES, ready=10**9)
    texts = dict.fromkeys(("tool", "key", "why", "agent", "job_type"), name)
    cluster.effects.add(number, arguments=memo, output={name: LINES}, **texts)
    cluster.effects.add_quota(name, 10**9, argument=name, unit=name, reason=LINES, used=Decimal(9))
    cluster.effects.freeze_seen = FreezeState(
        is_frozen=True, by=name, reason=LINES, frozen_at=now, waiting_jobs=10**9, now=now
    )
    held = {"forced_by": name, "forced_reason": LINES, "forced_at": now, "opened_at": now}
    cluster.breakers.add(
        f"llm:{name}", state="OPEN", **held, last_error=LINES, failures=10**5, waiting=10**9
    )
    cluster.breakers.happened(f"llm:{name}", (9, name), errors=[(9, name, LINES)] * 3)
    error = {"error_message": LINES, "error_code": name, "breaker": "HALF_OPEN", "step": name}
    cluster.dead.add(number, name[:20], agent=name, **error)
