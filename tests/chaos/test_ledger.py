"""The world outside as programs meet it: by the kind of their operation."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from chaos.cluster.ledger import ATTEMPT_HEADER, KEY_HEADER, Ledger
from chaos.workloads.program import Op, account
from chaos.workloads.terms import terms_of


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger(terms_of=terms_of) as running:
        yield running


def ask(ledger: Ledger, op: Op, *, attempt: int, method: str = "POST") -> tuple[int, Any]:
    path = f"/{account(op, 'job', 0)}" + ("/k" if method == "GET" else "")
    answer = httpx2.request(
        method,
        ledger.url + path,
        json={"takes_ms": 0} if method == "POST" else None,
        headers={KEY_HEADER: "k", ATTEMPT_HEADER: str(attempt)},
        trust_env=False,
    )
    return answer.status_code, answer.json()


@pytest.mark.parametrize("op,count", [(Op.IDEMPOTENT, 1), (Op.UNSAFE, 2)])
def test_ledger_deduplicates_only_operations_that_honour_keys(
    ledger: Ledger, op: Op, count: int
) -> None:
    for attempt in (1, 2):
        assert ask(ledger, op, attempt=attempt)[0] == 200
    assert len(ledger.applied(account(op, "job", 0))) == len(ledger.applied()) == count


def test_ledger_refuses_an_older_call_after_answering_not_applied(ledger: Ledger) -> None:
    output = {"applied": False, "result": None}
    assert ask(ledger, Op.RECONCILABLE, attempt=2, method="GET") == (200, output)
    assert ask(ledger, Op.RECONCILABLE, attempt=1)[0] == 412
    assert ask(ledger, Op.RECONCILABLE, attempt=2) == (200, {"result": 1})


@pytest.mark.parametrize("op", [Op.IDEMPOTENT, Op.UNSAFE])
def test_ledger_answers_only_about_reconcilable_operations(ledger: Ledger, op: Op) -> None:
    assert ask(ledger, op, attempt=1, method="GET")[0] == 404
