"""Effects of unknown outcome: a person's resolution is never overwritten nor waited for."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import attrs
import pytest
from attrs import frozen

from cortex.domain.approvals.approval import ApprovalRequest
from cortex.domain.canonical import canonical, digest
from cortex.domain.effect import Resolution
from cortex.domain.job import Claim, EffectIntent, IntentReply, Suspend, UnknownEffect
from cortex.durable.gates import Gate
from cortex.postgres.session import Session
from cortex.store import approvals, effects, tasks
from tests.support.people import user
from tests.support.records.rows import assert_one_truth, job_row, new_id
from tests.support.servers.postgres import sql

ARGUMENTS = canonical({"amount": 1})


def an_intent(claim: Claim, **fields: Any) -> EffectIntent:
    defaults: dict[str, Any] = {
        "lease": claim.lease,
        "id": new_id(),
        "key": "pay",
        "tool": "pay",
        "arguments": ARGUMENTS,
        "digest": digest(ARGUMENTS),
        "is_sure": False,
        "can_reconcile": False,
        "approval_id": None,
    }
    return EffectIntent(**defaults | fields)


@frozen
class Pod:
    """One pod with its jobs and the people who resolve effects."""

    store: Session
    database: str
    id: UUID
    running: Callable[..., Claim]
    claim: Callable[..., list[Claim]]

    def intended(self, claim: Claim, **fields: Any) -> IntentReply:
        """The ledger's answer to one intent."""
        intent = an_intent(claim, **fields)
        return self.store(effects.intend, pod_id=self.id, operations=[intent])[intent.id]

    def suspend(self, claim: Claim, **fields: Any) -> None:
        """End the attempt with a wish to wait for a person."""
        wish = Suspend(lease=claim.lease, delay_s=None, is_counted=False, **fields)
        assert self.store(tasks.suspend, pod_id=self.id, operations=[wish])

    def doubt(self, claim: Claim, effect_id: UUID) -> None:
        """The same, for one to judge the effect."""
        unknown = (UnknownEffect(effect_id, "nobody knows"),)
        self.suspend(claim, waiting_on=f"effect:{effect_id}", unknown=unknown)

    def resolve(self, effect_id: UUID, said: Resolution) -> bool:
        done = self.store(
            effects.resolve, effect_id, said, by=user("ana"), reason="seen", result="7"
        )
        return done.job_goes_on


@pytest.fixture
def pod(
    store: Session,
    database: str,
    pod_id: UUID,
    running: Callable[..., Claim],
    claim: Callable[..., list[Claim]],
) -> Pod:
    return Pod(store, database, pod_id, running, claim)


@pytest.mark.parametrize("said", Resolution)
def test_resolution_resumes_the_job(pod: Pod, said: Resolution) -> None:
    first = pod.running()
    effect_id = pod.intended(first).id
    pod.doubt(first, effect_id)
    assert job_row(pod.database, first.lease.job_id)["status"] == "WAITING_FOR_APPROVAL"
    assert pod.resolve(effect_id, said)
    (second,) = pod.claim(pod.id)
    answer = pod.intended(second)
    verdicts = {"applied": "done", "not-applied": "go", "give-up": "abandoned"}
    assert (answer.id, answer.verdict) == (effect_id, verdicts[said])
    assert answer.result == ("7" if said is Resolution.APPLIED else None)
    assert_one_truth(pod.database)


@pytest.mark.parametrize("said", Resolution)
def test_resolution_while_the_job_runs_prevents_its_wait(pod: Pod, said: Resolution) -> None:
    """The job came back for another reason, and the person spoke before it could wait again."""
    first = pod.running()
    effect_id = pod.intended(first).id
    pod.doubt(first, effect_id)
    sql(pod.database, "SELECT cortex.let_go($1)", first.lease.job_id)
    (second,) = pod.claim(pod.id)
    assert pod.intended(second).verdict == "recheck"
    assert not pod.resolve(effect_id, said), "it runs already"
    pod.doubt(second, effect_id)
    row = job_row(pod.database, second.lease.job_id)
    assert (row["status"], row["waiting_on"]) == ("RETRY", None)
    assert row["next_retry_at"] <= row["now"]
    kept = pod.store(effects.show, effect_id)
    assert (kept.resolution, kept.status == "UNKNOWN") == (said, False)
    assert_one_truth(pod.database)


def test_earlier_attempt_cannot_doubt_the_effect_of_a_later_one(pod: Pod) -> None:
    first = pod.running()
    effect_id = pod.intended(first).id
    sql(pod.database, "UPDATE cortex.effect SET attempt = 2 WHERE id = $1", effect_id)
    pod.doubt(first, effect_id)
    assert pod.store(effects.show, effect_id).status == "PENDING"


def test_ids_as_the_database_gives_them_can_be_waited_for(pod: Pod) -> None:
    first = pod.running()
    request = ApprovalRequest(
        id=new_id(),
        key="pay approval",
        tool="pay",
        arguments=ARGUMENTS,
        digest=digest(ARGUMENTS),
        said=None,
        **attrs.asdict(Gate(), recurse=False),
    )
    waiting_on = f"approval:{request.id}"
    pod.suspend(first, waiting_on=waiting_on, requests=(request,))
    sql(pod.database, "SELECT cortex.let_go($1)", first.lease.job_id)
    (second,) = pod.claim(pod.id)
    asked = pod.store(approvals.of_line, first.lease.job_id, "pay approval")
    assert asked is not None
    pod.suspend(second, waiting_on=waiting_on, awaited=(asked.id,))
    assert job_row(pod.database, first.lease.job_id)["status"] == "WAITING_FOR_APPROVAL"
