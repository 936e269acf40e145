"""Quotas: never exceeded, however many ask at once; waiting jobs continue as room comes."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from cortex.domain.errors import NotFoundError
from cortex.domain.job import Claim, EffectIntent, IntentReply
from cortex.domain.quota import Quota
from cortex.postgres.session import Session
from cortex.store import effects, quotas, retries
from tests.support.at_once import at_once
from tests.support.records.effects import Doers, an_intent
from tests.support.records.rows import job_row, move_clock, new_id, seeded_random
from tests.support.servers.postgres import database_of, sql

HOUR_S = 3600.0
MAIL = Quota.parse("mail", "20/hour")
PAY = Quota.parse("pay", "500 EUR/day", argument="amount")


@pytest.fixture
def doers(store: Session, database: str) -> Doers:
    move_clock(database, _to_next_day(database))
    return Doers(store, database)


def _to_next_day(dsn: str) -> float:
    """Seconds to a minute past the next midnight: no window ends while a test runs."""
    query = "SELECT extract(epoch FROM date_trunc('day', now(), 'UTC') - now()) AS s"
    return float(sql(dsn, query)[0]["s"]) + 86_400 + 60


def put(doers: Doers, quota: Quota) -> None:
    doers.call(quotas.put, quota, by="ana", reason="a test")


def mail(doers: Doers, claim: Claim, **fields: Any) -> IntentReply:
    found = doers.intend(claim, {"to": "li"}, **{"tool": "mail", "key": "mail", **fields})
    assert found is not None
    return found


def pay(doers: Doers, claim: Claim, amount: Any, **fields: Any) -> IntentReply:
    found = doers.intend(claim, {"amount": amount}, **fields)
    assert found is not None
    return found


def used(doers: Doers) -> dict[str, Decimal]:
    """The usage of each quota in this hour or day."""
    return {row.name: row.used for row in doers.call(quotas.page)}


def asked_at_once(
    doers: Doers, batches: Sequence[Sequence[EffectIntent]]
) -> list[tuple[EffectIntent, IntentReply]]:
    """Ask for leave by statements at the same instant, as several pods do; none is lost."""

    def ask(batch: Sequence[EffectIntent]) -> Any:
        return lambda db: effects.intend(db, pod_id=doers.pod_id, operations=batch)

    answers: dict[Any, IntentReply] = {}
    for each in at_once(doers.dsn, *(ask(batch) for batch in batches)):
        assert not isinstance(each, BaseException), each
        answers |= each
    return [(intent, answers[intent.id]) for batch in batches for intent in batch]


def deadlocks(dsn: str) -> int:
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = $1"
    return int(sql(dsn, query, database_of(dsn))[0]["deadlocks"])


# --- what people change


def test_a_quota_is_set_changed_and_removed_and_each_is_a_fact(doers: Doers) -> None:
    new = doers.call(quotas.put, MAIL, by="ana", reason="too much post")
    assert (new.name, new.before, new.after) == ("mail:calls:hour", None, Decimal(20))
    raised = doers.call(quotas.put, Quota.parse("mail", "30/hour"), by="bo", reason="more")
    assert (raised.before, raised.after) == (Decimal(20), Decimal(30))
    (row,) = doers.call(quotas.page)
    assert (row.limit_amount, row.changed_by, row.reason) == (Decimal(30), "bo", "more")
    assert row.resets_at - row.now <= timedelta(hours=1)
    gone = doers.call(quotas.remove, MAIL.name, by="li", reason="enough")
    assert (gone.before, gone.after) == (Decimal(30), None)
    assert doers.call(quotas.page) == []
    with pytest.raises(NotFoundError, match="mail:calls:hour"):
        doers.call(quotas.remove, MAIL.name, by="li", reason="enough")
    query = "SELECT subtype, data FROM cortex.fact WHERE source = 'quota:mail:calls:hour'"
    output = [(row["subtype"], json.loads(row["data"])) for row in sql(doers.dsn, query)]
    assert [(subtype, data["by"], data["reason"]) for subtype, data in output] == [
        ("quota_set", "ana", "too much post"),
        ("quota_set", "bo", "more"),
        ("quota_removed", "li", "enough"),
    ]


def test_usage_survives_a_change_of_the_limit(doers: Doers) -> None:
    put(doers, MAIL)
    mail(doers, doers.claimed())
    put(doers, Quota.parse("mail", "1/hour"))
    assert mail(doers, doers.claimed()).verdict == "quota"
    assert used(doers) == {"mail:calls:hour": 1}


def test_pages_go_by_name(doers: Doers) -> None:
    for tool in "abc":
        put(doers, Quota.parse(tool, "1/hour"))
    first = doers.call(quotas.page, limit=2)
    assert [row.tool for row in first] == ["a", "b"]
    assert [row.tool for row in doers.call(quotas.page, after=first[-1].name)] == ["c"]


# --- what calls take


def test_call_quota_is_exact_under_concurrency(doers: Doers) -> None:
    put(doers, MAIL)
    claims = doers.claimed_many(120)
    intents = [an_intent(claim, {"n": n}, tool="mail") for n, claim in enumerate(claims)]
    batches = [intents[n : n + 5] for n in range(0, len(intents), 5)]
    found = asked_at_once(doers, batches)
    assert Counter(answer.verdict for _, answer in found) == {"go": 20, "quota": 100}
    assert used(doers) == {"mail:calls:hour": 20}
    assert len(doers.call(effects.page, limit=1000)) == 20
    (refused, *_) = (answer for _, answer in found if answer.verdict == "quota")
    assert refused.quota == "mail:calls:hour"
    assert f"{refused.used:f} of {refused.limit:f}" == "20 of 20"
    assert refused.wait_s is not None
    assert 0 < refused.wait_s <= HOUR_S


def test_amount_quota_is_never_exceeded_under_concurrency(doers: Doers) -> None:
    put(doers, PAY)
    rng = seeded_random()
    claims = doers.claimed_many(80)
    amounts = [round(rng.uniform(0.01, 40), 2) for _ in claims]
    intents = [an_intent(claim, {"amount": a}) for claim, a in zip(claims, amounts, strict=True)]
    found = asked_at_once(doers, [intents[n : n + 4] for n in range(0, len(intents), 4)])
    let_through = {intent.id for intent, answer in found if answer.verdict == "go"}
    paid = sum(
        (Decimal(str(a)) for i, a in zip(intents, amounts, strict=True) if i.id in let_through),
        Decimal(0),
    )
    assert used(doers) == {"pay:amount:day": paid}
    assert paid <= 500
    for intent, answer in found:
        if intent.id not in let_through:
            assert (answer.verdict, answer.quota) == ("quota", "pay:amount:day")
            assert answer.used is not None
            assert answer.amount is not None
            assert answer.used + answer.amount > 500


def test_several_quotas_take_all_or_none(doers: Doers) -> None:
    put(doers, PAY)
    put(doers, Quota.parse("pay", "3/hour"))
    put(doers, Quota.parse("pay", "900 EUR/day", argument="fee"))

    def ask(amount: float, fee: float) -> tuple[str, str | None]:
        found = doers.intend(doers.claimed(), {"amount": amount, "fee": fee})
        assert found is not None
        return found.verdict, found.quota

    assert ask(400, 1) == ("go", None)
    before = used(doers)
    assert before == {"pay:amount:day": 400, "pay:calls:hour": 1, "pay:fee:day": 1}
    assert ask(101, 1) == ("quota", "pay:amount:day")
    assert ask(1, 900) == ("quota", "pay:fee:day")
    assert used(doers) == before
    assert ask(1, 1) == ("go", None)
    assert ask(1, 1) == ("go", None)
    assert ask(1, 1) == ("quota", "pay:calls:hour")
    assert used(doers) == {"pay:amount:day": 402, "pay:calls:hour": 3, "pay:fee:day": 3}


def test_quotas_of_many_tools_do_not_lock_each_other_out(doers: Doers) -> None:
    tools = [f"tool-{n}" for n in range(6)]
    for tool in tools:
        put(doers, Quota.parse(tool, "10/hour"))
        put(doers, Quota.parse(tool, "1000/day", argument="n"))
    rng = seeded_random()
    batches = []
    for _ in range(16):
        batch = [
            an_intent(claim, {"n": 1}, tool=tool)
            for claim, tool in zip(doers.claimed_many(len(tools)), tools, strict=True)
        ]
        rng.shuffle(batch)
        batches.append(batch)
    before = deadlocks(doers.dsn)
    found = asked_at_once(doers, batches)
    assert deadlocks(doers.dsn) == before
    for tool in tools:
        verdicts = Counter(answer.verdict for intent, answer in found if intent.tool == tool)
        assert verdicts == {"go": 10, "quota": 6}


def test_a_call_takes_once_however_often_it_is_asked_for(doers: Doers) -> None:
    put(doers, MAIL)
    claim = doers.claimed()
    leave = mail(doers, claim)
    assert mail(doers, claim, id=leave.id).verdict == "go"
    claim = doers.again(claim)
    assert mail(doers, claim).verdict == "recheck"
    assert mail(doers, claim, is_sure=True).verdict == "go"
    assert doers.tell(claim, leave.id)
    assert mail(doers, claim).verdict == "go"
    assert used(doers) == {"mail:calls:hour": 1}


def test_hour_and_day_quotas_reset_at_their_boundaries(doers: Doers) -> None:
    put(doers, Quota.parse("mail", "1/hour"))
    put(doers, Quota.parse("mail", "2/day"))
    start_s = _to_next_day(doers.dsn)
    assert mail(doers, doers.claimed()).verdict == "go"
    stopped = mail(doers, doers.claimed())
    assert (stopped.verdict, stopped.quota) == ("quota", "mail:calls:hour")
    move_clock(doers.dsn, start_s + HOUR_S)
    assert mail(doers, doers.claimed()).verdict == "go"
    move_clock(doers.dsn, start_s + 2 * HOUR_S)
    stopped = mail(doers, doers.claimed())
    assert (stopped.verdict, stopped.quota) == ("quota", "mail:calls:day")
    assert stopped.wait_s == pytest.approx(22 * HOUR_S - 60, abs=30)
    move_clock(doers.dsn, start_s + 24 * HOUR_S)
    assert mail(doers, doers.claimed()).verdict == "go"


def test_repeated_call_counts_in_the_hour_it_is_repeated(
    doers: Doers,
) -> None:
    put(doers, Quota.parse("mail", "1/hour"))
    put(doers, Quota.parse("mail", "2/day"))
    start_s = _to_next_day(doers.dsn)
    claim = doers.claimed()
    leave = mail(doers, claim)
    for _ in range(2):
        assert doers.tell(claim, leave.id)
        assert mail(doers, claim).verdict == "go"
    assert doers.tell(claim, leave.id)
    assert used(doers) == {"mail:calls:day": 1, "mail:calls:hour": 1}
    move_clock(doers.dsn, start_s + HOUR_S)
    assert mail(doers, doers.claimed()).verdict == "go"
    stopped = mail(doers, claim)
    assert (stopped.verdict, stopped.id) == ("quota", leave.id)
    move_clock(doers.dsn, start_s + 2 * HOUR_S)
    assert mail(doers, claim).verdict == "go"
    assert used(doers) == {"mail:calls:day": 2, "mail:calls:hour": 1}


def test_amount_above_the_quota_is_never_allowed(doers: Doers) -> None:
    put(doers, PAY)
    found = pay(doers, doers.claimed(), 500.01)
    assert (found.verdict, found.quota, found.amount) == (
        "never",
        "pay:amount:day",
        Decimal("500.01"),
    )
    assert pay(doers, doers.claimed(), 10**300).verdict == "never"
    assert pay(doers, doers.claimed(), 500).verdict == "go"


@pytest.mark.parametrize("amount", ["12", None, -1, -0.01, True, [1], {"a": 1}, "NaN"])
def test_invalid_amount_is_never_allowed(doers: Doers, amount: Any) -> None:
    put(doers, PAY)
    found = pay(doers, doers.claimed(), amount)
    assert (found.verdict, found.quota) == ("no_amount", "pay:amount:day")
    missing = doers.intend(doers.claimed(), {"total": 1})
    assert (missing and missing.verdict) == "no_amount"
    assert used(doers) == {"pay:amount:day": 0}


def test_an_argument_may_be_nested(doers: Doers) -> None:
    put(doers, Quota.parse("pay", "10/day", argument="order.lines.0.price"))
    for price, verdict in ((7.5, "go"), (2.50000001, "quota"), (2.5, "go")):
        found = doers.intend(doers.claimed(), {"order": {"lines": [{"price": price}]}})
        assert (found and found.verdict) == verdict


def test_other_tools_are_not_held(doers: Doers) -> None:
    put(doers, Quota.parse("mail", "0/hour"))
    assert mail(doers, doers.claimed()).verdict == "never"
    assert mail(doers, doers.claimed(), tool="mail_draft").verdict == "go"


# --- who waits for one


def wait_for(doers: Doers, quota: Quota, count: int, *, delay_s: float = HOUR_S) -> list[Claim]:
    """The jobs that have to wait for a quota."""
    claims = doers.claimed_many(count)
    for claim in claims:
        doers.suspend(claim, delay_s=delay_s, waiting_on=f"quota:{quota.name}")
    return claims


def due(doers: Doers) -> int:
    return doers.call(retries.due, limit=200).count


def test_waiting_jobs_resume_as_far_as_calls_are_left(doers: Doers) -> None:
    put(doers, MAIL)
    for _ in range(20):
        mail(doers, doers.claimed())
    wait_for(doers, MAIL, 300)
    assert due(doers) == 0
    move_clock(doers.dsn, _to_next_day(doers.dsn) + 2 * HOUR_S)
    assert due(doers) == 20
    assert due(doers) == 0, "those that were let go may take all that there is"
    claims = doers.claims()
    assert len(claims) == 20
    for claim in claims[:15]:
        assert mail(doers, claim).verdict == "go"
    assert due(doers) == 5
    (row,) = doers.call(quotas.page)
    assert (row.used, row.waiting_jobs) == (Decimal(15), 275)


def test_some_waiting_jobs_resume_while_an_amount_is_left(doers: Doers) -> None:
    put(doers, PAY)
    wait_for(doers, PAY, 50, delay_s=0.0)
    assert due(doers) == 20
    assert due(doers) == 0
    (claim, *_) = doers.claims()
    assert pay(doers, claim, 500).verdict == "go"
    assert due(doers) == 0, "nothing is left of it"


@pytest.mark.parametrize("change", ["raised", "removed"])
def test_quota_change_resumes_waiting_jobs_at_once(doers: Doers, change: str) -> None:
    put(doers, Quota.parse("mail", "1/hour"))
    mail(doers, doers.claimed())
    wait_for(doers, MAIL, 5)
    move_clock(doers.dsn, _to_next_day(doers.dsn) + 60)
    assert due(doers) == 0
    if change == "raised":
        put(doers, Quota.parse("mail", "4/hour"))
        assert due(doers) == 3
    else:
        doers.call(quotas.remove, MAIL.name, by="ana", reason="a test")
        assert due(doers) == 5


def test_an_attempt_that_was_about_to_wait_sees_the_change(doers: Doers) -> None:
    put(doers, PAY)
    claim = doers.claimed()
    pay(doers, doers.claimed(), 500)
    assert pay(doers, claim, 1).verdict == "quota"
    put(doers, Quota.parse("pay", "501 EUR/day", argument="amount"))
    doers.suspend(claim, delay_s=HOUR_S, waiting_on=f"quota:{PAY.name}")
    assert due(doers) == 1
    claim = doers.claim(claim.lease.job_id)
    assert pay(doers, claim, 2).verdict == "quota"
    doers.suspend(claim, delay_s=HOUR_S, waiting_on=f"quota:{PAY.name}")
    assert due(doers) == 0, "it has seen the change and found too little room"


def test_old_quota_change_resumes_no_jobs(doers: Doers) -> None:
    put(doers, PAY)
    claim = doers.claimed()
    pay(doers, doers.claimed(), 500)
    assert pay(doers, claim, 1).verdict == "quota"
    put(doers, Quota.parse("pay", "501 EUR/day", argument="amount"))
    move_clock(doers.dsn, _to_next_day(doers.dsn) + 60)
    doers.suspend(claim, delay_s=HOUR_S, waiting_on=f"quota:{PAY.name}")
    assert due(doers) == 0, "it was seen"
    assert job_row(doers.dsn, claim.lease.job_id)["status"] == "RETRY"


def test_a_quota_holds_no_others_back(doers: Doers) -> None:
    put(doers, Quota.parse("mail", "0/hour"))
    wait_for(doers, MAIL, 300, delay_s=0.0)
    other = doers.claimed()
    doers.suspend(other, delay_s=0.0)
    assert due(doers) == 1
    assert job_row(doers.dsn, other.lease.job_id)["worker_job_id"] is not None


# --- what is long over


def test_old_hours_are_forgotten_in_bounded_passes(doers: Doers) -> None:
    put(doers, MAIL)
    mail(doers, doers.claimed())
    query = """
        INSERT INTO cortex.quota_use (quota_id, began_at, used)
        SELECT 7, cortex.now() - n * interval '1 hour', 1 FROM generate_series(25, 34) n
    """
    sql(doers.dsn, query)

    def forget(limit: int) -> int:
        return doers.call(quotas.forget, kept_s=24 * HOUR_S, limit=limit)

    assert (forget(6), forget(6), forget(6)) == (6, 4, 0)
    assert used(doers) == {"mail:calls:hour": 1}


def test_an_id_is_no_quota(doers: Doers) -> None:
    """A job may wait for a name that no quota ever had: it continues."""
    claim = doers.claimed()
    doers.suspend(claim, delay_s=HOUR_S, waiting_on=f"quota:{new_id()}")
    assert due(doers) == 1
